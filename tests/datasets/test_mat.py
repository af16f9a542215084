"""The paper's MAT files, of version 5 and 7.3."""

from __future__ import annotations

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
from dataset_files import SHARED, damaged

from oasis.datasets import check, load, mat
from oasis.datasets.mat import MIRFLICKR, NUSWIDE, MatLayout
from oasis.datasets.matfile import dense, open_mat
from oasis.errors import DataError, MissingExtraError

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


@pytest.mark.parametrize("layout", [MIRFLICKR, NUSWIDE])
def test_mat_loaders_take_the_paper_widths(tmp_path: Path, version: str, layout: MatLayout) -> None:
    content = variables(layout, 4, 2)
    save(tmp_path / layout.file, content, version)
    data = load(layout.name, tmp_path)
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


def test_check_says_what_differs_from_the_published_files(tmp_path: Path, version: str) -> None:
    content = variables(SMALL)
    content["L_tr"][:, 1:] = 1
    content["L_tr"][:, 0] = content["L_te"][:, 0] = 0
    save(tmp_path / SMALL.file, content, version)
    found = mat.check(tmp_path, replace(SMALL, n_samples=9))
    assert found[:2] == ["8 samples, expected 9", "no sample has the class animals"]
    assert "Groundtrue_Vec.mat: absent, not f360a84" in found[2]


@pytest.mark.skipif(not SHARED.exists(), reason="the authors' label vectors are not here")
@pytest.mark.parametrize("layout", [MIRFLICKR, NUSWIDE])
def test_published_label_vectors_are_as_expected(layout: MatLayout) -> None:
    path = SHARED / layout.vectors_file
    found = mat.label_vectors(path, layout)
    assert tuple(found) == layout.classes
    assert {v.shape for v in found.values()} == {(300,)}
    assert mat.Source.of(path).sha256 == layout.vectors_sha256


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
    assert check("mirflickr", "third")[0] == "3 samples, expected 20,015"


def test_texts_of_mirflickr_come_with_labels_and_vectors(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = (rng.random((30, 24)) < 0.2).astype(np.uint8)
    texts = (rng.random((30, 9)) < 0.3).astype(np.uint8)
    folder = tmp_path / "mirflickr_text"
    folder.mkdir()
    with pytest.raises(DataError, match=r"lall\.mat: no such file; it holds LAll"):
        load("mirflickr-text", tmp_path)
    scipy.io.savemat(folder / "mirflickr25k-lall.mat", {"LAll": labels})
    scipy.io.savemat(folder / "mirflickr25k-yall.mat", {"YAll": texts})
    data = load("mirflickr-text", tmp_path)
    assert data.name == "mirflickr-text" and data.vectors is None
    assert (labels == data.L).all() and (data.X["text"].toarray() == texts).all()  # type: ignore[union-attr]
    assert data.classes == MIRFLICKR.classes and len(data.sources) == 2
    scipy.io.savemat(folder / "mirflickr25k-lall.mat", {"LAll": labels[:, :3]})
    with pytest.raises(DataError, match="LAll is"):
        load("mirflickr-text", tmp_path)
