from __future__ import annotations

import os
import struct
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from oasis.datasets import Dataset, check, icons, load, mat, names, npz
from oasis.datasets.dataset import (
    label_indicator,
)
from oasis.datasets.mat import MIRFLICKR, NUSWIDE, MatLayout
from oasis.datasets.matfile import dense, open_mat
from oasis.errors import DataError, InputError, MissingExtraError
from oasis.features.gradients import gradients

SHARED = Path(os.environ.get("OASIS_SHARED", Path(__file__).parents[2] / ".." / "shared")) / "data"


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


# --- the data set itself


def test_dataset_takes_rows_in_their_order() -> None:
    data = toy()
    X = data.take([7, 2, 2])
    assert np.array_equal(X["image"], data.X["image"][[7, 2, 2]])
    assert np.array_equal(X["text"].toarray(), data.X["text"].toarray()[[7, 2, 2]])
    assert data.take([])["text"].shape == (0, 5)
    assert data.widths == {"image": 4, "text": 5}
    assert data.payloads([3]) == [{"file": "3.jpg", "year": 2003}]


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


# --- anyone's own data


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
        ({"label_names": None}, "no array 'label_names'"),
        ({"labels_indptr": None}, r"no array 'labels'; expected an \(n, 2\) indicator"),
        ({"labels": np.zeros((3, 3))}, r"'labels' has shape \(3, 3\), expected \(n, 2\)"),
        ({"labels": np.full((3, 2), 0.5)}, "'labels' holds values other than 0 and 1"),
        ({"text_indices": np.array([1, 0, 9])}, "'text' is not a valid CSR matrix"),
        ({"text_shape": None}, "no array 'text_shape'; a sparse modality has"),
        ({"image_scale": np.ones(3)}, r"'image_scale' has shape \(3,\), expected one number per"),
        ({"sound": np.zeros((4, 2))}, "modality 'sound' has 4 rows, 'labels' has 3"),
        ({"sound": np.array([["a"], ["b"], ["c"]])}, "modality 'sound' holds <U1"),
        ({"arrival": np.zeros(3)}, "'arrival' holds float64, expected integers"),
        ({"arrival": np.zeros(2, int)}, "column 'arrival' has shape"),
        ({"label_vectors": np.zeros((3, 5))}, r"'label_vectors' has shape \(3, 5\)"),
        ({"label_names": np.array(["sky", "sky"])}, "the class name 'sky' occurs more than once"),
        ({"id": np.array([{}, {}, {}], dtype=object)}, "expected plain arrays, no pickles"),
    ],
)
def test_npz_that_is_wrong_names_the_array(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = tmp_path / "wrong.npz"
    content = {key: value for key, value in {**arrays(), **change}.items() if value is not None}
    np.savez(path, **content)
    with pytest.raises(DataError, match=f"wrong.npz: .*{message}"):
        npz.read(path)


def test_npz_damaged_or_missing_is_a_data_error(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with pytest.raises(DataError, match="no such file"):
        npz.read(path)
    np.savez(path, **arrays())
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match=r"not a readable .npz file"):
        npz.read(path)
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(DataError, match="not an archive"):
        npz.read(tmp_path / "one.npy")


def damaged(raw: bytes, rng: np.random.Generator, flip: bool) -> bytes:
    """A file that was cut off, or in which a few bits are wrong."""
    if not flip:
        return raw[: rng.integers(len(raw))]
    content = bytearray(raw)
    for at in rng.integers(len(raw), size=3):
        content[at] ^= 1 << rng.integers(8)
    return bytes(content)


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


# --- the paper's files

SMALL = replace(MIRFLICKR, image_features=6, text_features=7, n_samples=8)


def variables(
    layout: MatLayout, n_train: int = 5, n_test: int = 3, seed: int = 0
) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    content = {}
    for part, n in (("tr", n_train), ("te", n_test)):
        content[f"I_{part}"] = rng.standard_normal((n, layout.image_features))
        content[f"T_{part}"] = (rng.random((n, layout.text_features)) < 0.3).astype(float)
        content[f"L_{part}"] = (rng.random((n, len(layout.classes))) < 0.3).astype(float)
    return content


def save_73(path: Path, content: dict[str, Any]) -> None:
    """Write HDF5 as MATLAB does: a header, transposed arrays, CSC groups, characters as uint16."""
    import h5py

    with h5py.File(path, "w", userblock_size=512) as file:
        for name, value in content.items():
            if sp.issparse(value):
                csc = sp.csc_array(value)
                group = file.create_group(name)
                group.attrs["MATLAB_sparse"] = np.uint64(csc.shape[0])
                group["jc"] = csc.indptr.astype(np.uint64)
                if csc.nnz:
                    group["data"], group["ir"] = csc.data, csc.indices.astype(np.uint64)
            elif value.dtype.kind == "U":
                width = value.dtype.itemsize // 4
                codes = [[ord(c) for c in str(text).ljust(width)] for text in value]
                file[name] = np.array(codes, dtype=np.uint16).T
            else:
                file[name] = value.T
    with path.open("r+b") as stream:
        stream.write(b"MATLAB 7.3 MAT-file".ljust(512))


def save(path: Path, content: dict[str, Any], version: str) -> None:
    if version == "7.3":
        save_73(path, content)
    else:
        scipy.io.savemat(path, content)


@pytest.fixture(params=["5", "7.3"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("kind", ["dense", "sparse", "empty"])
def test_mat_merges_train_and_test(tmp_path: Path, version: str, kind: str) -> None:
    content = variables(SMALL)
    if kind == "empty":
        content["T_te"] = np.zeros_like(content["T_te"])
    stored = dict(content)
    if kind != "dense":
        for name in ("T_tr", "T_te", "L_tr", "L_te"):
            stored[name] = sp.csc_array(content[name])
    save(tmp_path / SMALL.file, stored, version)
    data = mat.read(tmp_path, SMALL)
    assert data.name == "mirflickr"
    assert data.X["image"].dtype == np.float32
    assert data.X["image"].flags.c_contiguous
    merged = {v: np.concatenate([content[f"{v}_tr"], content[f"{v}_te"]]) for v in "ITL"}
    assert np.array_equal(data.X["image"], merged["I"].astype(np.float32))
    assert sp.issparse(data.X["text"])
    assert np.array_equal(data.X["text"].toarray(), merged["T"])
    assert np.array_equal(data.L, merged["L"])
    assert data.vectors is None
    assert data.recipe == {"merged": "train 5 + test 3"}


@pytest.mark.parametrize(("loader", "layout"), [(mat.mirflickr, MIRFLICKR), (mat.nuswide, NUSWIDE)])
def test_mat_loaders_take_the_paper_widths(
    tmp_path: Path, version: str, loader: Any, layout: MatLayout
) -> None:
    content = variables(layout, 4, 2)
    save(tmp_path / layout.file, content, version)
    data = loader(tmp_path / layout.file)
    assert data.widths == {"image": 4096, "text": layout.text_features}
    assert data.classes == layout.classes
    assert np.array_equal(data.X["image"][4:], content["I_te"].astype(np.float32))


def test_mat_reads_big_variables_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oasis.datasets.matfile._BLOCK", 2)
    content = variables(SMALL)
    save_73(tmp_path / SMALL.file, content)
    data = mat.read(tmp_path, SMALL)
    whole = np.concatenate([content["I_tr"], content["I_te"]]).astype(np.float32)
    assert np.array_equal(data.X["image"], whole)
    assert np.array_equal(data.L, np.concatenate([content["L_tr"], content["L_te"]]))


def vectors(layout: MatLayout) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {
        layout.names_variable: np.array([name.ljust(10) for name in layout.classes]),
        layout.vectors_variable: rng.standard_normal((len(layout.classes), 300)).astype(np.float32),
    }


def test_mat_label_vectors_come_in_column_order(tmp_path: Path, version: str) -> None:
    content = vectors(SMALL)
    save(tmp_path / SMALL.file, variables(SMALL), version)
    save(tmp_path / SMALL.vectors_file, content, version)
    data = mat.read(tmp_path, SMALL)
    assert data.vectors is not None
    assert list(data.vectors) == list(SMALL.classes)
    found = np.stack(list(data.vectors.values()))
    assert found.dtype == np.float32
    assert np.array_equal(found, content["mir_gt_vec"])
    assert [source.file for source in data.sources] == [SMALL.file, SMALL.vectors_file]


def test_mat_label_vectors_that_are_wrong_are_named(tmp_path: Path, version: str) -> None:
    path = tmp_path / SMALL.vectors_file
    content = vectors(SMALL)
    save(path, {**content, "mir_gt": content["mir_gt"][::-1].copy()}, version)
    with pytest.raises(DataError, match=r"variable mir_gt holds the names \['wate'"):
        mat.label_vectors(path, SMALL)
    save(path, {**content, "mir_gt_vec": content["mir_gt_vec"][:5]}, version)
    with pytest.raises(DataError, match=r"mir_gt_vec has shape \(5, 300\), expected \(24, f\)"):
        mat.label_vectors(path, SMALL)
    save(path, {"mir_gt": content["mir_gt"]}, version)
    with pytest.raises(DataError, match=r"no variable mir_gt_vec; it holds \['mir_gt'\]"):
        mat.label_vectors(path, SMALL)
    save(path, {**content, "mir_gt": content["mir_gt_vec"]}, version)
    with pytest.raises(DataError, match=r"variable mir_gt is float32, expected .*character"):
        mat.label_vectors(path, SMALL)
    with pytest.raises(DataError, match=r"no such file; MIRFLICKR_Groundtrue_Vec.mat is at http"):
        mat.label_vectors(tmp_path / "none.mat", SMALL)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"T_tr": None}, r"no variable T_tr; it holds \['I_te', .*expected I_tr, T_tr"),
        ({"I_te": np.zeros((3, 5))}, "variable I_te is 3 x 5, expected n x 6$"),
        ({"I_tr": np.zeros((6, 5))}, "variable I_tr is 6 x 5, expected n x 6; is it transposed"),
        ({"L_te": np.zeros((4, 24))}, "of the te part differ .*'I_te': 3, 'T_te': 3, 'L_te': 4"),
        ({"L_tr": np.full((5, 24), 2.0)}, "variable L_tr holds 2.0, expected 0 and 1"),
    ],
)
def test_mat_that_is_wrong_names_file_and_variable(
    tmp_path: Path, version: str, change: dict[str, Any], message: str
) -> None:
    content = {k: v for k, v in {**variables(SMALL), **change}.items() if v is not None}
    save(tmp_path / SMALL.file, content, version)
    with pytest.raises(DataError, match=f"{SMALL.file}: .*{message}"):
        mat.read(tmp_path, SMALL)


def test_mat_missing_says_what_to_download_and_where(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load("nuswide", tmp_path)
    message = str(caught.value)
    for part in (
        f"{tmp_path}/NUSWIDE21_deep.mat: no such file",
        "Download NUSWIDE21_deep.mat and NUSWIDE21_Groundtrue_Vec.mat from https://",
        f"into {tmp_path}/",
        "I_tr, T_tr, L_tr, I_te, T_te, L_te",
    ):
        assert part in message


def test_mat_damaged_is_a_data_error(tmp_path: Path, version: str) -> None:
    path = tmp_path / SMALL.file
    save(path, variables(SMALL), version)
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(DataError, match=SMALL.file):
        mat.read(path, SMALL)
    path.write_bytes(b"neither of the two formats" * 20)
    with pytest.raises(DataError, match="list of variables cannot be read"):
        mat.read(path, SMALL)


def test_mat_cut_off_anywhere_is_a_data_error(tmp_path: Path, version: str) -> None:
    path = tmp_path / SMALL.file
    save(path, {**variables(SMALL), "T_tr": sp.csc_array(variables(SMALL)["T_tr"])}, version)
    raw, rng = path.read_bytes(), np.random.default_rng(1)
    for _ in range(40):
        path.write_bytes(damaged(raw, rng, flip=False))
        with pytest.raises(DataError, match=SMALL.file):
            mat.read(path, SMALL)


MAT_CONTENT = {
    **{
        kind: (np.arange(12).reshape(4, 3) * 9 % 31).astype(kind)
        for kind in ["f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]
    },
    "wide": np.random.default_rng(0).standard_normal((3, 2, 2)),
    "negative": np.array([[-1.5, 1e300], [np.inf, 0.0]]),
    "logical": np.array([[True, False, True]]),
    "empty": np.zeros((0, 3)),
    "sparse": sp.csc_array(np.eye(5)[:, [4, 0, 0]] * 2.5),
    "zeros": sp.csc_array((4, 2)),
    "text": np.array(["sky ", " sea", "dürr"]),
    "one": "a single row",
    "cells": np.array(["sky", "Wärme", "", "猫 and dog"], dtype=object),
    "square": np.array([["a", "b"], ["c", "d"]], dtype=object),
}


@pytest.mark.parametrize("compressed", [False, True])
def test_mat_5_is_read_as_scipy_reads_it(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / "all.mat"
    scipy.io.savemat(path, MAT_CONTENT, do_compression=compressed)
    truth = scipy.io.loadmat(path, spmatrix=False)
    with open_mat(path) as file:
        shapes = {
            name: tuple(shape) for name, shape, _ in scipy.io.whosmat(path, chars_as_strings=False)
        }
        assert file.shapes() == shapes
        for name in MAT_CONTENT:
            if name in ("text", "one"):
                assert file.strings(name) == [str(row).strip() for row in truth[name]]
            elif name in ("cells", "square"):
                flat = [np.ravel(cell) for cell in np.ravel(truth[name])]
                assert file.strings(name) == [str(each[0]) if each.size else "" for each in flat]
            else:
                [(start, values)] = file.blocks(name)
                assert start == 0
                assert values.dtype.kind == truth[name].dtype.kind
                assert np.array_equal(dense(values), dense(truth[name]), equal_nan=True)


def test_mat_5_of_the_other_byte_order_is_read(tmp_path: Path) -> None:
    # written by hand: SciPy writes the order of the machine
    def element(kind: int, data: bytes) -> bytes:
        return struct.pack(">II", kind, len(data)) + data + b"\0" * (-len(data) % 8)

    head = element(6, struct.pack(">II", 6, 0)) + element(5, struct.pack(">ii", 2, 3))
    values = np.arange(6, dtype=">f8")
    body = head + struct.pack(">HH4s", 1, 1, b"A\0\0\0") + element(9, values.tobytes())
    path = tmp_path / "big.mat"
    path.write_bytes(b"MATLAB 5.0 MAT-file".ljust(124) + b"\1\0MI" + element(14, body))
    assert np.array_equal(scipy.io.loadmat(path)["A"], values.reshape(2, 3, order="F"))
    with open_mat(path) as file:
        [(_, found)] = file.blocks("A")
    assert np.array_equal(found, values.reshape(2, 3, order="F"))


def test_mat_4_is_read(tmp_path: Path) -> None:
    path = tmp_path / "old.mat"
    scipy.io.savemat(path, {"A": np.eye(2), "names": np.array(["ab", "cd"])}, format="4")
    with open_mat(path) as file:
        assert file.shapes()["A"] == (2, 2)
        [(_, values)] = file.blocks("A")
        assert np.array_equal(values, np.eye(2))
        assert file.strings("names") == ["ab", "cd"]


@pytest.mark.parametrize("compressed", [False, True])
def test_mat_5_with_any_byte_changed_is_read_or_refused(folder: Path, compressed: bool) -> None:
    path = folder / "changed.mat"
    small = {name: MAT_CONTENT[name] for name in ("f4", "sparse", "text", "cells", "logical")}
    scipy.io.savemat(path, small, do_compression=compressed)
    raw, rng = bytearray(path.read_bytes()), np.random.default_rng(2)
    refused = 0
    for at in range(116, len(raw)):  # what is before is text
        changed = raw.copy()
        changed[at] = rng.choice([0, 1, 15, 255, changed[at] ^ 1 << int(rng.integers(8))])
        path.write_bytes(changed)
        try:
            with open_mat(path) as file:
                for name in file.shapes():
                    for read in (lambda f, n: list(f.blocks(n)), lambda f, n: f.strings(n)):
                        with suppress(DataError):
                            read(file, name)
        except DataError:
            refused += 1
    assert refused > len(raw) // 20


def test_mat_73_sparse_index_out_of_range_is_refused(tmp_path: Path) -> None:
    import h5py

    path = tmp_path / SMALL.file
    save_73(path, {**variables(SMALL), "T_tr": sp.csc_array(variables(SMALL)["T_tr"])})
    with h5py.File(path, "r+") as file:
        file["T_tr/ir"][0] = 10**9
    with pytest.raises(DataError, match="variable T_tr cannot be read"):
        mat.read(path, SMALL)


def test_mat_73_without_h5py_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_73(tmp_path / SMALL.file, variables(SMALL))
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingExtraError, match=r"oasis-hash\[paper\]"):
        mat.read(tmp_path, SMALL)


def test_check_shows_every_difference_at_once(tmp_path: Path, version: str) -> None:
    content = variables(SMALL)
    content["L_tr"][0] = 1
    save(tmp_path / SMALL.file, content, version)
    report = mat.check(tmp_path, SMALL)
    by_item = {finding.item: finding for finding in report.findings}
    assert all(by_item[name].ok for name in mat.VARIABLES)
    assert by_item["I_tr"].found == "5 x 6"
    assert by_item["samples"].ok
    assert by_item["0/1 label rows"].found == "8"
    assert not report.ok, "the vectors are absent"
    assert not by_item[f"sha256 {SMALL.vectors_file}"].ok
    content["T_te"] = content["T_te"][:, :3]
    del content["I_tr"]
    save(tmp_path / SMALL.file, content, version)
    lines = str(mat.check(tmp_path, SMALL)).splitlines()
    assert [line.split() for line in lines if line.startswith("!!")][:2] == [
        ["!!", "I_tr", "absent", "n", "x", "6"],
        ["!!", "T_te", "3", "x", "3", "n", "x", "7"],
    ]


@pytest.mark.skipif(not SHARED.exists(), reason="the authors' label vectors are not here")
@pytest.mark.parametrize("layout", [MIRFLICKR, NUSWIDE])
def test_published_label_vectors_are_as_expected(layout: MatLayout) -> None:
    path = SHARED / layout.vectors_file
    found = mat.label_vectors(path, layout)
    assert tuple(found) == layout.classes
    assert {v.shape for v in found.values()} == {(300,)}
    assert mat.Source.of(path).sha256 == layout.vectors_sha256


# --- real data in the npz layout


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


# --- icons


@pytest.fixture(scope="module")
def icon_set() -> Dataset:
    return load("icons")


def test_icons_are_as_described(icon_set: Dataset) -> None:
    assert icon_set.n_samples == 1_446
    assert len(icon_set.classes) == 68
    assert icon_set.widths == {"image": 900, "text": 2048}
    assert icon_set.L.sum() / 1_446 == pytest.approx(2.0, abs=0.05)
    assert icon_set.L.any(axis=1).all()
    at = icon_set.payload["name"].tolist().index("dog")
    assert "animals" in icon_set.labels([at])[0]
    row = icon_set.payloads([at])[0]
    assert row["title"] == "Dog"
    assert row["release"] == "5.4.0"
    n_terms = [len(icon.terms) for icon in icons.icons()]
    assert np.mean(n_terms) == pytest.approx(6.5, abs=0.05)


def test_icon_arrival_follows_the_releases(icon_set: Dataset) -> None:
    assert icon_set.arrival is not None
    order = np.argsort(icon_set.arrival, kind="stable")
    keys = [icons.release_order(r) for r in icon_set.payload["release"][order]]
    assert keys == sorted(keys)
    assert icon_set.arrival.min() == 0
    with pytest.raises(DataError, match="release 'new' is not of the form"):
        icons.release_order("new")


def test_icon_glyphs_are_drawn_inside_and_centred() -> None:
    glyphs = icons.render(icons.icons(), 48)
    assert glyphs.shape == (1_446, 48, 48)
    ink = glyphs > 64
    assert ink.any(axis=(1, 2)).all(), "every glyph is there"
    assert not ink[:, [0, -1]].any(), "none touches the border"
    assert not ink[:, :, [0, -1]].any()
    for axis in (1, 2):
        line = ink.any(axis=axis)
        before, after = line.argmax(axis=1), line[:, ::-1].argmax(axis=1)
        # by advance and baseline, so a half star stays a half: most ink is in the middle
        assert (np.abs(before - after) <= 2).mean() > 0.95
    assert len(np.unique(glyphs.reshape(1_446, -1), axis=0)) > 1_400
    with pytest.raises(InputError, match="size must be a multiple of 8"):
        icons.render([], 50)


def slow_gradients(image: np.ndarray) -> np.ndarray:
    """The histogram of oriented gradients of one image, pixel by pixel."""
    size = len(image)
    cells = np.zeros((size // 8, size // 8, 9))
    value = image.astype(float) / 255
    for y in range(size):
        for x in range(size):
            dy = value[y + 1, x] - value[y - 1, x] if 0 < y < size - 1 else 0.0
            dx = value[y, x + 1] - value[y, x - 1] if 0 < x < size - 1 else 0.0
            place = (np.arctan2(dy, dx) % np.pi) / (np.pi / 9)
            low = int(np.floor(place))
            strength = np.hypot(dx, dy)
            cells[y // 8, x // 8, low % 9] += strength * (1 - (place - low))
            cells[y // 8, x // 8, (low + 1) % 9] += strength * (place - low)
    blocks = []
    for r in range(size // 8 - 1):
        for c in range(size // 8 - 1):
            block = np.concatenate(
                [cells[r, c], cells[r, c + 1], cells[r + 1, c], cells[r + 1, c + 1]]
            )
            blocks.append(block / (np.linalg.norm(block) + 1e-3))
    flat = np.concatenate(blocks)
    return flat / np.linalg.norm(flat)


def test_gradients_equal_the_loop_over_pixels() -> None:
    image = np.random.default_rng(0).integers(256, size=(2, 24, 24)).astype(np.uint8)
    found = gradients(image)
    assert found.dtype == np.float32
    for i in range(2):
        np.testing.assert_allclose(found[i], slow_gradients(image[i]), atol=1e-5)
    edge = np.zeros((1, 16, 16), np.uint8)
    edge[:, :, 8:] = 255
    only = gradients(edge)[0].reshape(4, 9)
    assert (only[:, 0] > 0).all(), "a vertical edge has a horizontal gradient, the first bin"
    assert (only[:, 1:] == 0).all()
    assert not gradients(np.zeros((1, 16, 16), np.uint8)).any()
    assert gradients(np.zeros((0, 16, 16), np.uint8)).shape == (0, 36)


def test_icons_without_the_extra_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oasis.datasets.icons.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"fontawesomefree.*oasis-hash\[demo\]"):
        load("icons")
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingExtraError, match=r"PyYAML.*oasis-hash\[demo\]"):
        icons.icons()
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError, match=r"Pillow.*oasis-hash\[demo\]"):
        icons.render([], 48)


# --- the registry


def test_unknown_data_set_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"unknown data set 'flickr'; known are mirflickr, nus"):
        load("flickr")
    with pytest.raises(InputError, match=r"no check for 'wiki'; there is one for mirflickr"):
        check("wiki")
    assert set(names()) >= {"mirflickr", "nuswide", "coco79", "icons", "synthetic-nuswide"}


def test_data_folder_is_argument_then_environment_then_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = {
        "image": np.eye(2),
        "labels": np.eye(2, dtype=np.uint8),
        "label_names": np.array(["person", "dog"]),
    }
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OASIS_DATA", raising=False)
    with pytest.raises(DataError, match=r"neither at data/wiki.npz nor at data/wiki/wiki.npz"):
        load("wiki")
    for folder in ("data", "other", "third/coco40k"):
        Path(folder).mkdir(parents=True)
    np.savez("data/coco40k.npz", **content)
    assert load("coco40k").n_samples == 2
    np.savez("other/coco40k.npz", **content)
    monkeypatch.setenv("OASIS_DATA", "other")
    assert load("coco79").labels() == [("dog",)]
    np.savez("third/coco40k/coco40k.npz", **{**content, "labels": np.ones((2, 2), np.uint8)})
    assert load("coco79", "third").labels() == [("dog",), ("dog",)]
    Path("third/mirflickr").mkdir()
    save(Path("third/mirflickr") / MIRFLICKR.file, variables(MIRFLICKR, 2, 1), "5")
    assert load("mirflickr", "third").n_samples == 3
    assert not check("mirflickr", "third").ok


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
