"""Vectors that come with items, against the arrays that Parquet, npz, npy and JSONL hold."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from oasis.errors import DataError, InputError
from oasis.items import (
    Fields,
    Item,
    Reject,
    numpy_files,
    read_items,
    read_table,
    read_vector,
    vector_widths,
)

FIELDS = Fields(vectors={"image": "clip_image", "text": "clip_text"})
KINDS = {
    "fixed": lambda width, kind: pa.list_(kind, width),
    "list": lambda width, kind: pa.list_(kind),
    "large": lambda width, kind: pa.large_list(kind),
}


def column(rows: list[Any], form: str, kind: pa.DataType, width: int) -> pa.Array:
    return pa.array(rows, KINDS[form](width, kind))


@pytest.mark.parametrize("form", list(KINDS))
@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "int8"])
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 99), n=st.integers(1, 300))
def test_parquet_vectors_are_those_written(
    tmp_path_factory: pytest.TempPathFactory, form: str, kind: str, seed: int, n: int
) -> None:
    rng = np.random.default_rng(seed)
    truth = (rng.normal(size=(n, 5)) * 50).astype(kind)
    there = rng.random(n) < 0.8
    if form == "fixed" and int(pa.__version__.partition(".")[0]) < 25:
        there[:] = True  # pyarrow could not write null among lists of fixed size
    path = tmp_path_factory.mktemp("vectors") / "e.parquet"
    rows = [row if has else None for row, has in zip(truth, there, strict=True)]
    image = column(rows, form, pa.from_numpy_dtype(np.dtype(kind)), 5)
    text = pa.array([[float(i), 1.0] for i in range(n)])
    parquet.write_table(
        pa.table({"id": np.arange(n), "clip_image": image, "clip_text": text}), path
    )
    items = list(read_items(path, FIELDS))
    assert [item.id for item in items] == list(range(n))
    for item, row, has in zip(items, truth, there, strict=True):
        assert isinstance(item, Item)
        assert item.vectors["text"].tolist() == [float(item.id), 1.0]
        assert ("image" in item.vectors) == has
        if has:
            assert item.vectors["image"].dtype == kind
            assert np.array_equal(item.vectors["image"], row)


def test_parquet_vectors_of_a_wrong_length_or_not_finite_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "e.parquet"
    image = [[1.0, 2.0], [1.0], [np.nan, 1.0], [None, 1.0], None, [], [0.0, np.inf]]
    text = [[1.0]] * 4 + [None] + [[1.0]] * 2
    parquet.write_table(
        pa.table({"id": list("abcdefg"), "clip_image": image, "clip_text": text}), path
    )
    first, *others = read_items(path, FIELDS)
    assert isinstance(first, Item)
    assert [(r.id, r.reason) for r in others if isinstance(r, Reject)] == [
        ("b", "'clip_image' has 1 values, expected 2"),
        ("c", "'clip_image' holds nan at position 0, expected finite numbers"),
        ("d", "'clip_image' holds nan at position 0, expected finite numbers"),
        ("e", "it has no vector in ['clip_image', 'clip_text']"),
        ("f", "'clip_image' is an empty list, expected numbers"),
        ("g", "'clip_image' holds inf at position 1, expected finite numbers"),
    ]
    with pytest.raises(InputError, match=r"e.parquet:2: 'clip_image' has 1 values"):
        list(read_items(path, FIELDS, strict=True))


@pytest.mark.parametrize(
    ("values", "found"), [(["a"], "string"), ([["a"]], "list<"), ([1.0], "double")]
)
def test_parquet_columns_that_hold_no_vectors_are_refused(
    tmp_path: Path, values: list[Any], found: str
) -> None:
    path = tmp_path / "e.parquet"
    parquet.write_table(pa.table({"id": [1], "clip": values}), path)
    with pytest.raises(DataError, match=f"column 'clip' holds {found}.*lists of numbers"):
        list(read_items(path, Fields(vectors={"image": "clip"})))
    with pytest.raises(DataError, match=r"no column 'other'; its columns are \['id', 'clip'\]"):
        list(read_items(path, Fields(vectors={"image": "other"})))


def test_npz_has_an_array_per_column(tmp_path: Path) -> None:
    path = tmp_path / "e.npz"
    rng = np.random.default_rng(0)
    image, text = rng.normal(size=(3, 4)).astype(np.float16), rng.normal(size=(3, 2))
    np.savez(
        path,
        clip_image=image,
        clip_text=text,
        id=np.array(["a", "b", "c"]),
        labels=np.array(["sky; sea", "", "sky"]),
        year=np.array([1999.0, np.nan, 2001.0]),
        unread=np.zeros(7),
    )
    items = list(read_items(path, Fields(vectors=FIELDS.vectors, payload=("year",))))
    assert items == [
        Item("a", labels=("sky", "sea"), payload={"year": 1999.0}),
        Item("b"),
        Item("c", labels=("sky",), payload={"year": 2001.0}),
    ]
    assert all(isinstance(item, Item) for item in items)
    for row, item in enumerate(items):
        assert isinstance(item, Item)
        assert item.vectors["image"].dtype == np.float16
        assert np.array_equal(item.vectors["image"], image[row])
        assert np.array_equal(item.vectors["text"], text[row])


def test_npz_labels_may_be_a_matrix_and_ids_may_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "e.npz"
    labels = np.array([[1, 0], [0, 0], [1, 1]])
    payload = np.array(['{"a": 1}', "", "no"])
    arrays = {"clip": np.ones((3, 4)), "labels": labels, "payload": payload}
    np.savez(path, classes=np.array(["sky", "sea"]), **arrays)
    fields = Fields(vectors={"image": "clip"})
    *items, bad = read_items(path, fields)
    assert items == [Item(0, labels=("sky",), payload={"a": 1}), Item(1)]
    assert isinstance(bad, Reject)
    assert (bad.where, bad.id) == ("e.npz:3", 2)
    assert "'payload' is no JSON" in bad.reason
    np.savez(path, **arrays)
    with pytest.raises(
        DataError, match=r"labels of shape \(3, 2\); expected an array 'label_names'"
    ):
        list(read_items(path, fields))
    np.savez(path, label_names=np.array(["sky", "sea"]), **arrays)  # as for oasis reproduce
    assert next(read_items(path, fields)) == items[0]
    np.savez(path, classes=np.array(["sky", "sea"]), clip=np.ones((1, 4)), labels=[[2, 0]])
    with pytest.raises(DataError, match="expected only 0 and 1"):
        list(read_items(path, fields))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"clip": np.ones(3)}, r"shape \(3,\) and type float64, expected \(n, d\)"),
        ({"clip": np.array([["a"]])}, r"expected \(n, d\) real numbers"),
        ({"clip": np.ones((2, 0))}, r"expected \(n, d\) real numbers"),
        ({"clip": np.ones((2, 3)), "id": np.arange(3)}, "different lengths"),
        ({"clip": np.ones((2, 3)), "text": np.ones((2, 2))}, r"'text' has shape \(2, 2\)"),
        ({"other": np.ones((2, 3))}, r"no column 'clip'; its columns are \['other'\]"),
    ],
)
def test_npz_that_does_not_fit_is_refused(
    tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    np.savez(tmp_path / "e.npz", **arrays)
    with pytest.raises(DataError, match=message):
        list(read_items(tmp_path / "e.npz", Fields(vectors={"image": "clip"})))


def test_numpy_files_are_never_unpickled(tmp_path: Path) -> None:
    fields = Fields(vectors={"image": "clip"})
    np.savez(tmp_path / "e.npz", clip=np.array([[{}]], dtype=object))
    np.save(tmp_path / "e.npy", np.array([[{}]], dtype=object))
    for name in ("e.npz", "e.npy"):
        with pytest.raises(DataError, match="cannot be read as np"):
            list(read_items(tmp_path / name, fields))
    for name in ("f.npz", "f.npy"):
        for content in (b"", b"PK\x03\x04 broken", b"\x93NUMPY"):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(DataError, match="cannot be read as np"):
                list(read_items(tmp_path / name, fields))


def write_npz(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in members.items():
            opened.writestr(name, content)
    return path


def npy_header(shape: tuple[int, ...]) -> bytes:
    opened = io.BytesIO()
    description = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(opened, description)
    return opened.getvalue()


def test_an_npz_array_is_not_read_if_it_declares_more_than_the_file_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = Fields(vectors={"image": "clip"})
    path = tmp_path / "e.npz"
    for shape in ((10**6, 1000), (10**12, 10**12)):
        write_npz(path, {"clip.npy": npy_header(shape) + bytes(400)})
        with pytest.raises(
            DataError, match=r"'clip' declares 4.*,000 bytes, the file holds \d+ of"
        ):
            list(read_items(path, fields))

    monkeypatch.setattr(numpy_files, "SMALL_BYTES", 1 << 20)
    unread = npy_header((10**6, 1)) + bytes(4 * 10**6)  # of no use, so its size is none either
    content = {"clip.npy": npy_header((2**18, 1)) + bytes(2**20), "unread.npy": unread}
    assert len(list(read_items(write_npz(path, content), fields))) == 2**18
    content["clip.npy"] = npy_header((2**18 + 1, 1)) + bytes(2**20 + 4)
    write_npz(path, content)

    def read(*_: Any, **__: Any) -> None:
        raise AssertionError("an array was read")

    monkeypatch.setattr(np.lib.npyio.NpzFile, "__getitem__", read)
    with pytest.raises(DataError, match=r"declares arrays of 1,048,580, more than 100 times"):
        list(read_items(path, fields))


def test_an_npz_member_that_is_no_array_is_refused(tmp_path: Path) -> None:
    fields = Fields(vectors={"image": "clip"})
    whole = write_npz(tmp_path / "e.npz", {"clip.npy": npy_header((9, 99)) + bytes(3564)})
    broken = bytearray(whole.read_bytes())
    broken[45:60] = b"\xff" * 15  # of the compressed bytes
    for path in (
        write_npz(tmp_path / "bytes.npz", {"clip": b"no array"}),
        write_npz(tmp_path / "empty.npz", {"clip.npy": b""}),
        tmp_path / "broken.npz",
    ):
        if path.stem == "broken":
            path.write_bytes(broken)
        with pytest.raises(DataError, match="cannot be read as npz"):
            list(read_items(path, fields))


def test_npy_is_the_vectors_of_one_modality(tmp_path: Path) -> None:
    path = tmp_path / "e.npy"
    truth = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    truth[3, 1] = np.nan
    np.save(path, truth)
    results = list(read_items(path, Fields(vectors={"image": "image"})))
    for row, item in enumerate(results):
        assert item.id == row
        if row == 3:
            assert isinstance(item, Reject)
        else:
            assert isinstance(item, Item)
            assert np.array_equal(item.vectors["image"], truth[row])
    with pytest.raises(DataError, match="one modality; got 2"):
        list(read_items(path, FIELDS))
    with pytest.raises(DataError, match="one modality; got 0 modalities: add --feature image"):
        list(read_items(path))
    path.rename(tmp_path / "e.npz")
    with pytest.raises(DataError, match="no zip file of arrays"):
        list(read_items(tmp_path / "e.npz", FIELDS))


def test_vectors_of_a_parquet_file_that_are_not_used_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "e.parquet"
    table = {"id": [1, 2], "text": ["a", "b"], "clip": [[0.5, 1.0], None], "sizes": [[3], [4]]}
    parquet.write_table(pa.table(table), path)
    with pytest.raises(DataError, match=r"'clip' holds vectors.* --feature image=clip"):
        read_items(path)
    for fields in (Fields(vectors={"image": "clip"}), Fields(payload=("clip",))):
        assert len(list(read_items(path, fields))) == 2


def test_columns_of_parquet_that_json_cannot_hold_are_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "e.parquet"
    table = {"id": [1], "text": ["a"], "day": [datetime.date(2024, 5, 1)], "md5": [b"x"]}
    table |= {"price": [decimal.Decimal("1.5")], "sizes": [[3]], "size": [float("nan")], "n": [7]}
    parquet.write_table(pa.table(table), path)
    (item,) = read_items(path)
    assert item == Item(1, text="a", payload={"day": "2024-05-01", "n": 7})


def test_jsonl_vectors_are_lists(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    lines = [
        {"id": 1, "clip": [1, 2.5]},
        {"id": 2, "clip": ["a"]},
        {"id": 3, "clip": [[1], [2]]},
        {"id": 4, "clip": [True, False]},
        {"id": 5, "clip": [[1], [2, 3]]},
        {"id": 6, "clip": 7},
        {"id": 7, "text": "a boat"},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    fields = Fields(vectors={"image": "clip"})
    results = list(read_items(path, fields))
    assert [type(result) for result in results] == [Item] + 5 * [Reject] + [Item]
    assert isinstance(results[0], Item)
    assert results[0].vectors["image"].tolist() == [1.0, 2.5]
    assert vector_widths(read_items(path, fields), fields) == {"image": 2}


def test_vector_widths_come_from_the_first_row_that_has_one(tmp_path: Path) -> None:
    path = tmp_path / "e.parquet"
    table = {"id": [1, 2], "clip_image": [None, [1.0, 2.0]], "clip_text": [[1.0], None]}
    parquet.write_table(pa.table(table), path)
    assert vector_widths(read_items(path, FIELDS), FIELDS) == {"image": 2, "text": 1}
    parquet.write_table(pa.table({**table, "clip_image": [[np.nan], None]}), path)
    with pytest.raises(DataError, match=r"a vector in 'clip_image'; e\.parquet:1 cannot .* nan"):
        vector_widths(read_items(path, FIELDS), FIELDS)


@pytest.mark.parametrize("name", ["e.csv", "e.tsv", "folder"])
def test_files_that_cannot_hold_vectors_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "e.csv").touch()
    (tmp_path / "e.tsv").touch()
    with pytest.raises(DataError, match=r"cannot hold vectors; expected a \.parquet"):
        read_items(tmp_path / name, FIELDS)


def test_jsonl_without_a_field_that_was_asked_for_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    path.write_text('{"id": 1, "text": "a boat"}\n')
    for fields in (Fields(text="caption"), Fields(vectors={"image": "caption"})):
        with pytest.raises(DataError, match=r"no field 'caption'; its fields are \['id', 'text'\]"):
            list(read_items(path, fields))
    late = "".join(f'{{"id": {i}, "text": "a", "payload": {{}}}}\n' for i in range(255))
    path.write_text(late + '{"id": 256, "caption": "a boat"}\n')
    *_, last = read_items(path, Fields(text="caption"))
    assert last == Item(256, text="a boat")


def test_tables_in_memory_have_the_rows_of_their_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    clip = rng.normal(size=(600, 3)).astype(np.float16)
    table = pa.table(
        {
            "clip": pa.FixedSizeListArray.from_arrays(pa.array(clip.ravel()), 3),
            "labels": [["sky"] if row % 2 else [] for row in range(600)],
            "id": np.arange(600),
        }
    )
    parquet.write_table(table, tmp_path / "e.parquet")
    fields = Fields(vectors={"image": "clip"})
    truth = list(read_items(tmp_path / "e.parquet", fields))
    mapping = {"clip": clip, "labels": table["labels"].to_pylist(), "id": np.arange(600)}
    for form in (table, mapping, {**mapping, "clip": list(clip)}):
        found = list(read_table(form, fields))
        assert found == truth
        for item, row in zip(found, clip, strict=True):
            assert isinstance(item, Item)
            assert item.vectors["image"].dtype == np.float16
            assert np.array_equal(item.vectors["image"], row)
    without = {"clip": clip, "labels": [None] * 600}
    assert [item.id for item in read_table(without, fields)] == list(range(600))


def test_one_vector_is_a_list_or_a_file(tmp_path: Path) -> None:
    path = tmp_path / "v.npy"
    for array in (np.arange(3.0), np.arange(3.0)[None], np.arange(3).astype(np.float16)):
        np.save(path, array)
        assert read_vector(str(path)).tolist() == [0, 1, 2]
    assert read_vector(" [0, 1, 2.5]").tolist() == [0, 1, 2.5]
    np.save(path, np.ones((2, 3)))
    for value, message in (
        (str(path), r"the vector in .* has shape \(2, 3\)"),
        ("[1, NaN]", "holds nan at position 1"),
        ("[1, ", "cannot be read"),
        ("[]", "empty list"),
        ('["a"]', "expected a list of numbers"),
    ):
        with pytest.raises(InputError, match=message):
            read_vector(value)
    for value in ("none.npy", str(tmp_path), "0.5"):
        with pytest.raises(DataError, match="cannot be read as npy"):
            read_vector(value)
