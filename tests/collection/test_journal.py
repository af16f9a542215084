"""Entries of the journal: they come back bit for bit, and misplaced ones are noticed."""

import numpy as np
import pytest
import scipy.sparse as sp
from collection_toy import open_toy
from collection_truth import Truth, assert_same_model
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from toy import chunk

from oasis.collection.journal import Entry
from oasis.errors import FormatError

NUMBERS = st.sampled_from([0.0, -0.0, 1.0, -2.5, 2.0**-140, 2.0**120])


def dense_matrices(kind):
    return hnp.arrays(kind, st.tuples(st.integers(1, 3), st.integers(1, 40)), elements=NUMBERS)


def assert_same_entry(found, expected):
    assert found.labels == expected.labels
    assert found.new_classes == expected.new_classes
    assert found.new_rows.tobytes() == expected.new_rows.tobytes()
    assert list(found.X) == list(expected.X)
    for name, matrix in expected.X.items():
        assert found.X[name].shape == matrix.shape and found.X[name].dtype == matrix.dtype
        if sp.issparse(matrix):
            for part in ("data", "indices", "indptr"):
                left, right = getattr(found.X[name], part), getattr(matrix, part)
                np.testing.assert_array_equal(left, right)
        else:
            np.testing.assert_array_equal(found.X[name], matrix)


@given(dense_matrices(np.float32), dense_matrices(np.float64), st.text(max_size=5))
def test_entries_come_back_bit_for_bit(single, double, name):
    n = len(single)
    entry = Entry(
        {"a": single, name or "b": np.resize(double, (n, double.shape[1]))},
        [("sky", name)] * n,
        (name,),
        np.arange(3.0)[None],
    )
    assert_same_entry(Entry.from_bytes(entry.to_bytes()), entry)
    other = Entry({"a": sp.csr_array(single)}, [()] * n, (), np.empty((0, 3)))
    assert_same_entry(Entry.from_bytes(other.to_bytes()), other)


DAMAGE = {
    "exchanged": "UPDATE journal SET (entry, crc) = (SELECT entry, crc FROM journal AS other "
    "WHERE other.commits != journal.commits)",
    "repeated": "UPDATE journal SET (entry, crc) = (SELECT entry, crc FROM journal "
    "ORDER BY commits LIMIT 1)",
    "lost": "DELETE FROM journal WHERE commits = (SELECT max(commits) FROM journal)",
    "added": "INSERT INTO journal SELECT commits + 9, entry, crc FROM journal LIMIT 1",
    "changed": "UPDATE journal SET entry = "
    "CAST(substr(entry, 1, 900) || x'00' || substr(entry, 902) AS BLOB)",
}


@pytest.mark.parametrize("damage", sorted(DAMAGE))
def test_an_entry_that_is_not_the_one_of_its_commit_is_noticed(folder, damage):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(40))
        c.ingest(*chunk(9, seed=1))
        c.ingest(*chunk(9, seed=2))
        assert c.stats().journal_entries == 2
        c._catalog._writer.execute(DAMAGE[damage])
        assert any("journal" in found for found in c.check())
        with pytest.raises(FormatError, match="journal"):
            open_toy(c.path, readonly=True)


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
