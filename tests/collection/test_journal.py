"""Entries of the journal: what was learned comes back bit for bit, and entries fill whole pages."""

import struct
import zlib

import numpy as np
import pytest
import safetensors.numpy
import scipy.sparse as sp
from collection_toy import open_toy
from collection_truth import Truth, assert_same_model
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from toy import chunk

from oasis.collection.files.files import Entry, read_entries
from oasis.errors import FormatError

NUMBERS = st.sampled_from([0.0, -0.0, 1.0, -2.5, 2.0**-140, 2.0**120])  # -0.0 is not left out


def dense_matrices(kind):
    return hnp.arrays(kind, st.tuples(st.integers(1, 3), st.integers(1, 40)), elements=NUMBERS)


def written(tmp_path, *entries):
    path = tmp_path / "journal-1.bin"
    path.write_bytes(b"".join(entry.to_bytes() for entry in entries))
    return path


def assert_same_entry(found, expected):
    assert found.labels == expected.labels
    assert found.new_classes == expected.new_classes
    assert found.new_rows.tobytes() == expected.new_rows.tobytes()
    assert list(found.X) == list(expected.X)
    for name, matrix in expected.X.items():
        assert found.X[name].shape == matrix.shape and found.X[name].dtype == matrix.dtype
        if sp.issparse(matrix):
            for part in ("data", "indices", "indptr"):
                assert getattr(found.X[name], part).tobytes() == getattr(matrix, part).tobytes()
        else:
            assert found.X[name].tobytes() == matrix.tobytes()


@given(dense_matrices(np.float32), dense_matrices(np.float64), st.text(max_size=5))
def test_entries_come_back_bit_for_bit_and_fill_pages(tmp_path_factory, single, double, name):
    n = len(single)
    entry = Entry(
        {"a": single, name or "b": np.resize(double, (n, double.shape[1]))},
        [("sky", name)] * n,
        (name,),
        np.arange(3.0)[None],
    )
    other = Entry({"a": sp.csr_array(single)}, [()] * n, (), np.empty((0, 3)))
    path = written(tmp_path_factory.mktemp("journal"), entry, other, entry)
    size = path.stat().st_size
    assert size % 4096 == 0
    for found, expected in zip(read_entries(path, 0, size), (entry, other, entry), strict=True):
        assert_same_entry(found, expected)


def test_zeros_of_dense_features_take_a_bit_each(tmp_path):
    rng = np.random.default_rng(0)
    features = np.maximum(rng.standard_normal((1, 20_000), dtype=np.float32), 0)
    full = written(tmp_path, Entry({"a": features + 1}, [("sky",)], (), np.empty((0, 3))))
    assert full.stat().st_size >= 80_000
    entry = Entry({"a": features}, [("sky",)], (), np.empty((0, 3)))
    assert written(tmp_path, entry).stat().st_size < 40_000 + 20_000 / 8 + 2 * 4096


def test_an_entry_without_padding_is_read_too(tmp_path):
    features = np.array([[0.0, 2.0, 0.0, 0.0]])
    facts = '{"modalities": [{"name": "a"}], "labels": [["sky"]], "classes": []}'
    arrays = {"new_rows": np.empty((0, 3)), "0/dense": features}
    body = safetensors.numpy.save(arrays, {"entry": facts})
    path = tmp_path / "journal-1.bin"
    path.write_bytes(struct.pack("<8sQI", b"OASISJNL", len(body), zlib.crc32(body)) + body)
    (found,) = read_entries(path, 0, path.stat().st_size)
    assert_same_entry(found, Entry({"a": features}, [("sky",)], (), np.empty((0, 3))))


def test_every_changed_byte_of_an_entry_is_noticed(tmp_path):
    entry = Entry({"a": np.eye(3)}, [("sky",)] * 3, (), np.empty((0, 3)))
    whole = entry.to_bytes()
    for at in range(0, len(whole), 7):
        path = tmp_path / "journal-1.bin"
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.raises(FormatError, match="damaged in the entry at byte 0"):
            read_entries(path, 0, len(whole))


def test_a_model_is_replayed_bit_for_bit_from_features_with_zeros(folder):
    truth, abandoned = Truth(), open_toy(folder / "c")
    for number, n in enumerate((40, 1, 3, 1)):
        X, y = chunk(n, seed=number)
        X = {name: np.maximum(np.asarray(matrix), 0) for name, matrix in X.items()}
        ids = [100 * number + row for row in range(n)]
        abandoned.ingest(X, y, ids)
        truth.ingest(X, y, ids)
    assert abandoned.stats().journal_entries == 3
    with open_toy(folder / "c", readonly=True) as c:
        assert_same_model(c.model, truth.model)
    abandoned.close()
