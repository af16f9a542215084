"""Data sets: their rows and labels, the npz layout, and the registry."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from dataset_files import SHARED, damaged
from hypothesis import given, settings
from hypothesis import strategies as st

from oasis.datasets import Dataset, check, load, names, npz
from oasis.datasets.dataset import (
    label_indicator,
)
from oasis.errors import DataError, InputError


def toy(n: int = 9, seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    return Dataset(
        "toy",
        {
            "image": rng.random((n, 4), dtype=np.float32),
            "text": sp.csr_array(rng.random((n, 5)) * (rng.random((n, 5)) < 0.4), dtype=np.float32),
        },
        (rng.random((n, 3)) < 0.4).astype(np.uint8),
        ("sky", "sea", "dog"),
        arrival=np.arange(n, dtype=np.int64) // 2,
        payload={"file": np.array([f"{i}.jpg" for i in range(n)]), "year": np.arange(n) + 2000},
        vectors={name: np.full(2, i, np.float32) for i, name in enumerate(("sky", "sea", "dog"))},
    )


def test_dataset_takes_rows_in_their_order() -> None:
    data = toy()
    X = data.take([7, 2, 2])
    assert np.array_equal(X["image"], data.X["image"][[7, 2, 2]])
    assert np.array_equal(X["text"].toarray(), data.X["text"].toarray()[[7, 2, 2]])
    assert data.take([])["text"].shape == (0, 5)
    assert data.widths == {"image": 4, "text": 5}


def test_dataset_labels_are_the_names_of_the_columns() -> None:
    data = toy()
    for rows in (None, [4, 0, 4], []):
        L = data.L if rows is None else data.L[np.array(rows, dtype=int)]
        expected = [tuple(n for n, on in zip(data.classes, row, strict=True) if on) for row in L]
        assert data.labels(rows) == expected
    assert np.array_equal(label_indicator(data.labels(), data.classes), data.L)
    with pytest.raises(InputError, match="sample 0 has the label 'cat', which is not a class"):
        label_indicator([["cat"]], data.classes)


def test_dataset_without_a_class_loses_the_samples_it_leaves_unlabelled() -> None:
    data = toy(40)
    less = data.without(["sea"], "less")
    rows = np.flatnonzero(data.L[:, [0, 2]].any(axis=1))
    assert less.name == "less"
    assert less.classes == ("sky", "dog")
    assert np.array_equal(less.L, data.L[rows][:, [0, 2]])
    assert np.array_equal(less.X["image"], data.X["image"][rows])
    assert np.array_equal(less.payload["year"], data.payload["year"][rows])
    assert set(less.vectors or ()) == {"sky", "dog"}
    assert less.describe()["recipe"] == {"dropped_classes": ["sea"]}
    with pytest.raises(InputError, match="toy has no class 'cat'"):
        data.without(["cat"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classes": ("a", "b")}, "2 class names for 3 label columns"),
        ({"classes": ("a", "b", "a")}, "the class name 'a' occurs more than once"),
        ({"L": np.full((9, 3), 2, np.uint8)}, "labels must be 0 or 1, found 2"),
        ({"L": np.zeros((9, 3))}, "uint8 indicator, got float64"),
        ({"X": {}}, "no modality"),
        ({"X": {"image": np.zeros((8, 2))}}, r"modality 'image' has shape \(8, 2\), expected \(9"),
        ({"arrival": np.zeros(3, np.int64)}, "column 'arrival' has shape"),
    ],
)
def test_dataset_that_does_not_fit_together_is_refused(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        replace(toy(), **change)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([9], "row 9 is outside toy, which has 9"),
        ([-1], "row -1"),
        ([0.5], "list of integers"),
        ([[1]], "list of integers"),
    ],
)
def test_dataset_refuses_rows_it_has_not(rows: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        toy().take(rows)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 12), st.integers(0, 1000))
def test_npz_round_trip(n: int, seed: int) -> None:
    from tempfile import TemporaryDirectory

    data = toy(n, seed)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "toy.npz"
        npz.write(data, path)
        back = npz.read(path)
        assert [p.name for p in Path(folder).iterdir()] == ["toy.npz"]
    assert back.name == "toy"
    assert back.classes == data.classes
    assert np.array_equal(back.L, data.L)
    assert np.array_equal(back.X["image"], data.X["image"])
    assert np.array_equal(back.X["text"].toarray(), data.X["text"].toarray())
    assert np.array_equal(back.arrival, data.arrival)
    assert set(back.payload) == set(data.payload)
    assert all(np.array_equal(back.payload[k], data.payload[k]) for k in data.payload)
    assert all(np.array_equal(back.vectors[k], data.vectors[k]) for k in data.classes)
    assert len(back.sources[0].sha256) == 64


def arrays() -> dict[str, Any]:
    """A file with a quantised, a sparse and a plain modality, and sparse labels."""
    return {
        "image_u8": np.array([[0, 10], [255, 1], [3, 4]], dtype=np.uint8),
        "image_scale": np.array([0.5, 2.0], dtype=np.float32),
        "text_indices": np.array([1, 0, 2], dtype=np.int32),
        "text_indptr": np.array([0, 2, 3, 3], dtype=np.int32),
        "text_shape": np.array([3, 4]),
        "sound": np.arange(6).reshape(3, 2),
        "labels_indices": np.array([1, 0]),
        "labels_indptr": np.array([0, 1, 1, 2]),
        "labels_shape": np.array([3, 2]),
        "label_names": np.array(["sky", "sea"]),
        "vocab": np.array(["a", "b", "c", "d"]),
        "id": np.array([5, 6, 7]),
    }


def test_npz_reads_every_form_of_a_modality(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, **arrays())
    data = load(str(path))
    assert data.name == "mine"
    assert data.X["image"].dtype == np.float32
    assert data.X["image"].tolist() == [[0, 20], [127.5, 2], [1.5, 8]]
    assert data.X["text"].toarray().tolist() == [[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    assert data.X["sound"].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert data.labels() == [("sea",), (), ("sky",)]
    assert {k: v.tolist() for k, v in data.payload.items()} == {"id": [5, 6, 7]}
    assert npz.read(path, drop=["sky"]).n_samples == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label_names": None}, "no array 'label_names', .* it holds .*labels.*--map image="),
        ({"labels_indptr": None}, "no array 'labels', and measures need"),
        ({"labels": np.zeros((3, 3))}, r"'labels' has shape \(3, 3\), expected \(n, 2\)"),
        ({"labels": np.full((3, 2), 0.5)}, "'labels' holds values other than 0 and 1"),
        ({"text_indices": np.array([1, 0, 9])}, "'text' is not a valid CSR matrix"),
        ({"text_shape": None}, "no array 'text_shape'; a sparse modality has"),
        ({"image_scale": np.ones(3)}, r"'image_scale' has shape \(3,\), expected one number per"),
        ({"sound": np.zeros((4, 2))}, r"modality 'sound' has shape \(4, 2\), expected \(3"),
        ({"sound": np.array([["a"], ["b"], ["c"]])}, "modality 'sound' holds <U1"),
        ({"arrival": np.full(3, 0.5)}, "'arrival' holds float64, expected whole numbers"),
        ({"arrival": np.zeros(2, int)}, "column 'arrival' has shape"),
        ({"label_vectors": np.zeros((3, 5))}, r"'label_vectors' has shape \(3, 5\)"),
        ({"label_names": np.array(["sky", "sky"])}, "the class name 'sky' occurs more than once"),
        ({"id": np.array([{}, {}, {}], dtype=object)}, "cannot be read as npz: Object arrays"),
    ],
)
def test_npz_that_is_wrong_names_the_array(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = tmp_path / "wrong.npz"
    content = {key: value for key, value in {**arrays(), **change}.items() if value is not None}
    np.savez(path, **content)
    with pytest.raises(DataError, match=f"wrong.npz.*{message}"):
        npz.read(path)


def test_npz_damaged_or_missing_is_a_data_error(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with pytest.raises(DataError, match=r"cannot read .*x\.npz: No such file"):
        npz.read(path)
    np.savez(path, **arrays())
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match="cannot be read as npz"):
        npz.read(path)
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(DataError, match="no zip file of arrays"):
        npz.read(tmp_path / "one.npy")


def test_npz_with_wrong_bits_is_a_data_error_or_reads(tmp_path: Path) -> None:
    path = tmp_path / "toy.npz"
    npz.write(toy(), path)
    raw, rng, refused = path.read_bytes(), np.random.default_rng(0), 0
    for i in range(150):
        path.write_bytes(damaged(raw, rng, flip=i % 3 > 0))
        try:
            npz.read(path)
        except DataError as error:
            refused += 1
            assert str(path) in str(error)
    assert refused > 100


def test_npz_refuses_to_write_a_name_of_the_layout(tmp_path: Path) -> None:
    data = replace(toy(), payload={"labels": np.zeros(9)})
    with pytest.raises(InputError, match="'labels' is a name of the file layout"):
        npz.write(data, tmp_path / "toy.npz")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.exists(), reason="the coco40k and wiki files are not here")
def test_coco_and_wiki_read_as_described() -> None:
    whole, data = load("coco40k", SHARED), load("coco79", SHARED)
    assert (whole.n_samples, len(whole.classes)) == (39_954, 80)
    assert (data.n_samples, len(data.classes)) == (39_798, 79)
    assert data.widths == {"image": 1280, "text": 1025}
    assert data.L.sum() / data.n_samples == pytest.approx(2.36, abs=0.005)
    assert "person" not in data.classes
    rows = np.flatnonzero(whole.L[:, 1:].any(axis=1))[[0, 99]]
    assert np.array_equal(data.take([0, 99])["image"], whole.take(rows)["image"])
    wiki = load("wiki", SHARED)
    assert wiki.widths == {"image": 128, "text": 10}
    assert (wiki.L.sum(axis=1) == 1).all()


def test_unknown_data_set_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"unknown data set 'flickr'; known are mirflickr, nus"):
        load("flickr")
    with pytest.raises(InputError, match=r"no check for 'wiki'; there is one for mirflickr"):
        check("wiki")
    assert set(names()) >= {"mirflickr", "nuswide", "coco79", "icons", "synthetic-nuswide"}


@pytest.mark.parametrize("sparse", [False, True])
def test_npz_with_a_value_that_is_not_finite_names_its_row_of_the_file(tmp_path, sparse):
    X = np.ones((90, 4), dtype=np.float32)
    X[3, 2] = np.nan
    arrays = {"labels": np.ones((90, 1), np.uint8), "label_names": np.array(["sky"])}
    if sparse:
        csr = sp.csr_array(X)
        arrays |= {"image_data": csr.data, "image_indices": csr.indices}
        arrays |= {"image_indptr": csr.indptr, "image_shape": np.array(csr.shape)}
    else:
        arrays["image"] = X
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(DataError, match=r"bad.npz: modality 'image' holds nan at row 3, column 2"):
        npz.read(tmp_path / "bad.npz")
