"""Readers of data files, against rows written by hand and files written by other libraries."""

from __future__ import annotations

import csv
import datetime
import decimal
import io
import json
import os
import re
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oasis.errors import DataError, InputError, MissingExtraError, UnusedFieldWarning
from oasis.items import (
    Fields,
    Item,
    Reject,
    RejectsFile,
    fields_in,
    lines,
    read_folder,
    read_items,
)
from oasis.items.folder import name_words

TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder with one (pretended) picture, beside a file that is none of its business."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.jpg").write_bytes(b"picture")
    (tmp_path / "secret.jpg").write_bytes(b"secret")
    return data


def write_lines(path: Path, *lines: str | dict[str, Any] | bytes) -> Path:
    encoded = [
        line
        if isinstance(line, bytes)
        else (line if isinstance(line, str) else json.dumps(line)).encode()
        for line in lines
    ]
    path.write_bytes(b"".join(line + b"\n" for line in encoded))
    return path


def items_of(results: Any) -> list[Item]:
    return [result for result in results if isinstance(result, Item)]


def rejects_of(results: Any) -> list[Reject]:
    return [result for result in results if isinstance(result, Reject)]


# ---------------------------------------------------------------- JSONL


def test_jsonl_gives_items_with_ids_kept_as_they_are(folder: Path) -> None:
    path = write_lines(
        folder / "items.jsonl",
        b"\xef\xbb\xbf"
        + b'{"id": 1, "image": "a.jpg", "text": "sea", "labels": ["x", "y", "x"]}\r',
        "",
        {"id": "1", "text": "Łódź", "payload": {"year": 2024, "tags": [1, None]}, "labels": None},
        {"id": -7, "image": "./b/../a.jpg", "text": None, "other": 3},
    )
    (folder / "b").mkdir()
    picture = (folder / "a.jpg").resolve()
    assert list(read_items(path)) == [
        Item(1, picture, "sea", ("x", "y")),
        Item("1", None, "Łódź", (), {"year": 2024, "tags": [1, None]}),
        Item(-7, picture),
    ]
    assert [item.where for item in items_of(read_items(path))] == [
        "items.jsonl:1",
        "items.jsonl:3",
        "items.jsonl:4",
    ]


@pytest.mark.parametrize(
    ("line", "key", "reason"),
    [
        ("{", None, "no JSON"),
        ("[1]", None, "a list, expected an object"),
        ("null", None, "null, expected an object"),
        ('{"id": 1, "text": NaN}', None, "NaN is not JSON"),
        ('{"id": 1, "text": "t", "payload": {"x": 1e999}}', None, "too large a number"),
        ("[" * 100_000, None, "no JSON"),
        (b'{"id": 1, "text": "\xff"}', None, "not UTF-8"),
        ('{"id": "\\ud800", "text": "t"}', None, "not valid Unicode"),
        ({"text": "t"}, None, "there is no 'id'"),
        ({"id": "", "text": "t"}, None, "there is no 'id'"),
        ({"id": True, "text": "t"}, None, "the truth value True"),
        ({"id": 1.5, "text": "t"}, None, "the number 1.5"),
        ({"id": 2**63, "text": "t"}, None, "beyond 64 bits"),
        ({"id": "k", "text": 5}, "k", "'text' is the number 5, expected a text"),
        ({"id": "k", "text": "t", "labels": 7}, "k", "'labels' is the number 7"),
        ({"id": "k", "text": "t", "labels": ["sky", 1]}, "k", "holds the number 1"),
        ({"id": "k", "text": "t", "labels": ["  "]}, "k", "an empty text"),
        ({"id": "k", "text": "t", "labels": {"a": 1}}, "k", "an object"),
        ({"id": "k", "text": "t", "payload": "{"}, "k", "'payload' is no JSON"),
        ({"id": "k", "text": "t", "payload": [1]}, "k", "a list, expected an object"),
        ({"id": "k", "image": 3}, "k", "expected a path"),
        ({"id": "k", "image": "missing.jpg"}, "k", "'missing.jpg' is missing"),
        ({"id": "k", "image": "."}, "k", "no regular file"),
        ({"id": "k", "image": "a\0b"}, "k", "cannot be followed"),
        ({"id": "k", "image": "x" * 5000}, "k", "cannot be followed"),
        ({"id": "k"}, "k", "neither a picture nor a text"),
        ({"id": "k", "text": ""}, "k", "neither a picture nor a text"),
        ({"id": "first", "text": "t"}, "first", "occurs earlier"),
    ],
)
def test_jsonl_rejects_what_is_no_item_and_goes_on(
    folder: Path, line: Any, key: Any, reason: str
) -> None:
    good = {"id": "first", "text": "t"}, {"id": "last", "text": "t"}
    path = write_lines(folder / "items.jsonl", good[0], line, good[1])
    first, reject, last = read_items(path)
    assert (first, last) == (Item("first", text="t"), Item("last", text="t"))
    assert isinstance(reject, Reject)
    assert (reject.where, reject.id) == ("items.jsonl:2", key)
    assert reason in reject.reason
    with pytest.raises(InputError, match=r"items\.jsonl:2: "):
        read_items(path, strict=True)


def test_strict_raises_when_the_file_turns_bad_after_the_check(folder: Path) -> None:
    path = write_lines(folder / "x.jsonl", {"id": 1, "text": "t"})
    checked = read_items(path, strict=True)
    write_lines(path, "no JSON")
    with pytest.raises(InputError, match="no JSON"):
        list(checked)


def test_lines_that_are_too_long_are_rejected_and_skipped(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 64)
    long, short = {"id": "long", "text": "x" * 500}, {"id": "b", "text": "t"}
    path = write_lines(folder / "x.jsonl", {"id": "a", "text": "t"}, long, short)
    results = list(read_items(path))
    assert [item.id for item in items_of(results)] == ["a", "b"]
    assert rejects_of(results) == [Reject("x.jsonl:2", None, "the line is longer than 64 bytes")]
    path = write_lines(folder / "x.csv", "id,text", "a,t", "long," + "x" * 500, "b,t")
    results = list(read_items(path))
    assert [item.id for item in items_of(results)] == ["a", "b"]
    assert rejects_of(results)[0].where == "x.csv:3"


@pytest.mark.slow
def test_reading_takes_memory_for_ids_only(folder: Path) -> None:
    n = 20_000
    with (folder / "x.jsonl").open("w") as file:
        for i in range(n):
            file.write(json.dumps({"id": f"item-{i}", "text": "word " * 200}) + "\n")
    size = (folder / "x.jsonl").stat().st_size
    tracemalloc.start()
    try:
        count = sum(isinstance(result, Item) for result in read_items(folder / "x.jsonl"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == n
    assert peak < size / 4


@given(st.lists(st.one_of(st.integers(-5, 5), st.sampled_from(["1", "-1", "a", "int 1"]))))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_ids_that_occur_again_are_rejected(tmp_path: Path, keys: list[str | int]) -> None:
    path = write_lines(tmp_path / "x.jsonl", *({"id": key, "text": "t"} for key in keys))
    first = list({(type(key), key): key for key in keys}.values())
    results = list(read_items(path))
    assert [item.id for item in items_of(results)] == first
    assert len(rejects_of(results)) == len(keys) - len(first)


# ---------------------------------------------------------------- paths


@pytest.mark.parametrize(
    "name", ["../secret.jpg", "b/../../secret.jpg", "link.jpg", "linked/secret.jpg"]
)
def test_paths_cannot_lead_outside_unless_allowed(folder: Path, name: str) -> None:
    (folder / "b").mkdir()
    (folder / "link.jpg").symlink_to("../secret.jpg")
    (folder / "linked").symlink_to("..")
    path = write_lines(folder / "x.jsonl", {"id": 1, "image": name})
    (reject,) = read_items(path)
    assert isinstance(reject, Reject)
    assert "leads outside" in reject.reason
    (item,) = read_items(path, allow_outside=True)
    assert isinstance(item, Item)
    assert item.image == (folder.parent / "secret.jpg").resolve()


def test_a_data_folder_reached_through_a_link_is_the_folder_it_leads_to(folder: Path) -> None:
    write_lines(folder / "x.jsonl", {"id": 1, "image": "a.jpg"})
    (folder.parent / "alias").symlink_to("data")
    assert items_of(read_items(folder.parent / "alias" / "x.jsonl"))[0].image == folder / "a.jpg"


# ---------------------------------------------------------------- CSV


def test_csv_reads_cells_labels_and_payload(folder: Path) -> None:
    path = write_lines(
        folder / "x.csv",
        b"\xef\xbb\xbfid,image,text,labels,payload",
        "007,a.jpg,,sky ; sea;;sky,",
        'b,,"two\nlines, a comma",,"{""year"": 2024}"',
        "",
        "c,,t,one,",
    )
    assert list(read_items(path)) == [
        Item("007", (folder / "a.jpg").resolve(), None, ("sky", "sea")),
        Item("b", None, "two\nlines, a comma", (), {"year": 2024}),
        Item("c", None, "t", ("one",)),
    ]
    assert [item.where for item in items_of(read_items(path))] == ["x.csv:2", "x.csv:3", "x.csv:6"]


def test_csv_gathers_columns_into_a_payload_with_numbers(folder: Path) -> None:
    path = write_lines(
        folder / "x.tsv", "key\tcap\ty\tz\tw", "1\tt\t2024\t01\t-1.50", "2\tt\t\t1e5\t"
    )
    fields = Fields(id="key", text="cap", payload=("y", "z", "w"))
    assert list(read_items(path, fields)) == [
        Item("1", None, "t", (), {"y": 2024, "z": "01", "w": -1.5}),
        Item("2", None, "t", (), {"z": "1e5"}),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("k,t", "2 cells, the header has 3"),
        ("k,t,,", "4 cells, the header has 3"),
        ('k,"t"x,', "not CSV"),
        ("k," + "x" * 200_000 + ",", "not CSV"),
        (b"k,\xff\xfe,", "not UTF-8"),
        (",t,", "there is no 'id'"),
        ("k,,", "neither a picture nor a text"),
        ("k,t,no object", "'payload' is no JSON"),
        ("k,t,[]", "expected an object"),
        ("first,t,", "occurs earlier"),
    ],
)
def test_csv_rejects_a_bad_row_and_goes_on(folder: Path, line: str | bytes, reason: str) -> None:
    path = write_lines(folder / "x.csv", "id,text,payload", "first,t,", line, "last,t,")
    results = list(read_items(path))
    assert [item.id for item in items_of(results)] == ["first", "last"]
    (reject,) = rejects_of(results)
    assert reject.where == "x.csv:3"
    assert reason in reject.reason
    with pytest.raises(InputError, match=r"x\.csv:3"):
        read_items(path, strict=True)


def test_csv_that_ends_within_quotes_rejects_the_open_row(folder: Path) -> None:
    path = write_lines(folder / "x.csv", "id,text", "a,t", 'b,"never closed', "c,t")
    results = list(read_items(path))
    assert [item.id for item in items_of(results)] == ["a"]
    assert [reject.where for reject in rejects_of(results)] == ["x.csv:3"]


@pytest.mark.parametrize(
    ("header", "fields", "message"),
    [
        (
            "no,text",
            Fields(),
            r"no column 'id' and none of files; its columns are \['no', 'text'\]",
        ),
        ("id,text", Fields(image="photo"), "no column 'photo'"),
        ("id,labels", Fields(), "neither a column of pictures .image, file, .* nor of texts"),
        ("id,text,text", Fields(), "two columns called 'text'"),
        ("", Fields(), "no column 'id'"),
        ('"id', Fields(), "no header"),
    ],
)
def test_csv_without_the_columns_needed_is_an_error(
    folder: Path, header: str, fields: Fields, message: str
) -> None:
    path = write_lines(folder / "x.csv", header)
    with pytest.raises(DataError, match=message):
        list(read_items(path, fields))


def test_a_cell_without_end_is_one_reject_and_a_quote_never_closed_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_CELL_BYTES", 1 << 18)
    long = ["a line of it"] * 11_000  # 143,000 bytes
    path = write_lines(folder / "x.csv", "id,text", "a,t", 'b,"opens', *long, 'closed"', "c,t")
    results = list(read_items(path))
    assert [item.id for item in items_of(results)] == ["a", "c"]
    (reject,) = rejects_of(results)
    assert reject.where == "x.csv:3" and "131072" in reject.reason

    write_lines(path, "id,text", "a,t", 'b,"opens', *long)
    assert [reject.where for reject in rejects_of(read_items(path))] == ["x.csv:3"]
    write_lines(path, "id,text", "a,t", 'b,"opens', *long * 3)
    read = []
    with pytest.raises(
        DataError, match=r"from x\.csv:3 on: a quote .* is not closed within 262,144"
    ):
        read.extend(read_items(path))
    write_lines(path, "id,text", "a,t", "b," + "one line " * 20_000, "c,t")
    assert [reject.where for reject in rejects_of(read_items(path))] == ["x.csv:3"]


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl"])
def test_a_table_has_a_largest_number_of_columns(folder: Path, name: str) -> None:
    for n in (4096, 4097):
        columns = ["id", "text", *(f"c{number}" for number in range(n - 2))]
        if name == "x.csv":
            path = write_lines(folder / name, ",".join(columns), "x," * (n - 1) + "7")
        else:
            path = write_lines(folder / name, dict.fromkeys(columns, "x") | {columns[-1]: 7})
        if n > 4096:
            with pytest.raises(
                DataError, match=r"has 4,097 \w+s, expected at most 4,096; leave out"
            ):
                fields_in(path)
            continue
        (item,) = items_of(read_items(path))
        assert len(item.payload) == n - 2 and item.payload[columns[-1]] == 7
        assert fields_in(path).told.endswith("c19 and 4,074 more")
        with pytest.raises(DataError, match=r"no \w+ 'other'; .* 'c17' and 4,076 more\]$"):
            fields_in(path, Fields(text="other"))


def test_csv_that_is_empty_is_an_error(folder: Path) -> None:
    (folder / "x.csv").touch()
    with pytest.raises(DataError, match=r"x\.csv is empty; expected a header"):
        list(read_items(folder / "x.csv"))


@pytest.mark.parametrize("name", ["x.jsonl", "x.csv"])
def test_a_field_with_a_misspelt_name_is_noted_once(folder: Path, name: str) -> None:
    rows = ("id,text,Lables,payload", "a,t,sky,", "b,t,sea,")
    if name == "x.jsonl":
        rows = tuple(json.dumps({"id": each, "text": "t", "Lables": ["sky"]}) for each in "ab")
    path = write_lines(folder / name, *rows)
    with pytest.warns(
        UnusedFieldWarning, match="'Lables' is not used; did you mean 'labels'"
    ) as told:
        assert [item.labels for item in items_of(read_items(path))] == [(), ()]
    assert len(told) == 1


NATURAL = [
    (
        ["file", "caption", "labels"],
        "pictures and ids from 'file', texts from 'caption', labels from 'labels'",
    ),
    (
        ["Image Path", "Title", "tag", "id", "year"],
        "pictures from 'Image Path', texts from 'Title', labels from 'tag', ids from 'id'; "
        "kept: year",
    ),
    (
        ["title", "caption", "path", "photo", "Category"],
        "pictures and ids from 'path', texts from 'caption', labels from 'Category'; "
        "kept: title, photo",
    ),
    (["uuid", "description"], "texts from 'description', ids from 'uuid'"),
    (["key", "text", "payload", "year"], "texts from 'text', ids from 'key'; kept: payload"),
]


@pytest.mark.parametrize(("columns", "told"), NATURAL)
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_columns_are_known_by_their_usual_names(
    folder: Path, suffix: str, columns: list[str], told: str
) -> None:
    cells = {name: f"{name} {{}}" for name in columns}
    cells |= {name: "a.jpg" for name in columns if name in ("file", "Image Path", "path")}
    cells |= {name: "sky" for name in columns if name in ("labels", "tag", "Category")}
    cells |= {"payload": '{"n": 1}'} if "payload" in columns else {}
    path = folder / f"x.{suffix}"
    if suffix == "csv":
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([columns, [cells[name] for name in columns]])
    elif suffix == "jsonl":
        write_lines(path, cells)
    else:
        write_parquet(path, {name: [cells[name]] for name in columns})
    fields = fields_in(path)
    assert fields.told == f"x.{suffix}: {told}"
    (item,) = read_items(path)
    assert isinstance(item, Item)
    assert list(read_items(path, fields)) == [item]  # the names found are names
    assert (item.image is None) == ("pictures" not in told)
    assert item.labels == (("sky",) if "labels from" in told else ())
    assert item.id == cells[fields.id] and item.text == cells[str(fields.text)]
    kept = told.partition("kept: ")[2].split(", ")
    plain = {name: cells[name] for name in kept if name in cells}
    assert item.payload == ({"n": 1} if kept == ["payload"] else plain)


def test_names_that_are_given_are_not_taken_for_anything_else(folder: Path) -> None:
    path = write_lines(folder / "x.csv", "file,tags,title,caption", "a.jpg,one,two,three")
    fields = fields_in(path, Fields(text="tags", labels="title", payload=("caption",)))
    assert fields.told.endswith(
        "pictures and ids from 'file', texts from 'tags', labels from 'title'; kept: caption"
    )
    path = write_lines(folder / "x.csv", "id,caption,title,Title", "1,a,b,c")
    assert items_of(read_items(path))[0].payload == {"title": "b", "Title": "c"}


def test_an_item_is_known_by_its_file_as_it_is_written(folder: Path) -> None:
    (folder / "b").mkdir()
    path = write_lines(folder / "b" / "x.csv", "file", "../a.jpg")
    (item,) = items_of(read_items(path, allow_outside=True))
    assert (item.id, item.image) == ("../a.jpg", (folder / "a.jpg").resolve())
    again = write_lines(folder / "x.jsonl", {"file": "a.jpg"}, {"file": "a.jpg"}, {"text": "t"})
    assert [each.reason for each in rejects_of(read_items(again))] == [
        "the id 'a.jpg' occurs earlier in the same file",
        "there is no 'file'",
    ]


def test_a_field_that_comes_late_is_read_under_its_default_name(folder: Path) -> None:
    rows = [{"id": n, "text": "t"} for n in range(300)]
    path = write_lines(folder / "x.jsonl", *rows, {"id": 300, "image": "a.jpg", "labels": "sky"})
    assert list(read_items(path))[-1] == Item(300, folder / "a.jpg", labels=("sky",))


def test_vectors_that_nobody_named_are_refused(folder: Path) -> None:
    rows = [{"id": n, "text": "t", "clip": [0.5] * 16, "box": [1, 2, 3, 4]} for n in range(2)]
    path = write_lines(folder / "x.jsonl", *rows)
    with pytest.raises(DataError, match=r"'clip' holds vectors; .*--feature image=clip.*--keep"):
        read_items(path)
    (first, _) = read_items(path, Fields(vectors={"image": "clip"}))
    assert isinstance(first, Item)
    assert (first.payload, len(first.vectors["image"])) == ({"box": [1, 2, 3, 4]}, 16)
    assert items_of(read_items(path, Fields(payload=("box",))))[0].payload == {"box": [1, 2, 3, 4]}


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_header_shows_its_delimiter(folder: Path, delimiter: str) -> None:
    lines = ("id,text,labels", 'a,"t, u",sky', 'b,v,"sky;sea"')
    lines = tuple(re.sub(r",(?! )", delimiter, line) for line in lines)
    path = write_lines(folder / "x.csv", *lines)
    assert list(read_items(path)) == [
        Item("a", text="t, u", labels=("sky",)),
        Item("b", text="v", labels=("sky", "sea")),
    ]


def test_csv_separator_may_be_any_text_but_none(folder: Path) -> None:
    path = write_lines(folder / "x.csv", "id,text,labels", "a,t,x || y;z")
    assert items_of(read_items(path, separator="||"))[0].labels == ("x", "y;z")
    with pytest.raises(InputError, match="separator"):
        read_items(path, separator="")


RECORDS = st.lists(
    st.tuples(TEXT, st.text(st.characters(exclude_categories=("Cs",)), max_size=8)),
    unique_by=lambda record: record[0],
    max_size=6,
)


@given(RECORDS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_jsonl_and_csv_give_back_what_was_written(
    tmp_path: Path, records: list[tuple[str, str]]
) -> None:
    records = [(key, text) for key, text in records if key and text and "\0" not in text]
    truth = [Item(key, text=text, labels=("x",), payload={"t": text}) for key, text in records]
    path = tmp_path / "x.jsonl"
    write_lines(
        path,
        *({"id": i.id, "text": i.text, "labels": ["x"], "payload": i.payload} for i in truth),
    )
    assert list(read_items(path)) == truth
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(["id", "text", "labels", "payload"])
    writer.writerows([i.id, i.text, "x", json.dumps(i.payload)] for i in truth)
    (tmp_path / "x.csv").write_bytes(table.getvalue().encode())
    assert list(read_items(tmp_path / "x.csv")) == truth


# ---------------------------------------------------------------- Parquet


def write_parquet(path: Path, columns: dict[str, list[Any]], **types: Any) -> Path:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(
        pa.table({name: pa.array(values, types.get(name)) for name, values in columns.items()}),
        path,
    )
    return path


def test_parquet_reads_every_kind_of_column(folder: Path) -> None:
    path = write_parquet(
        folder / "x.parquet",
        {
            "id": [1, 2, 3],
            "image": [{"bytes": b"abc", "path": None}, {"bytes": None, "path": "a.jpg"}, None],
            "text": [None, "two", "three"],
            "labels": [["x", "y"], [], None],
            "payload": [
                {"day": datetime.date(2024, 5, 1), "n": 1.5},
                None,
                {"day": None, "n": 2.0},
            ],
            "unused": [object.__name__] * 3,
        },
    )
    assert list(read_items(path)) == [
        Item(1, b"abc", None, ("x", "y"), {"day": "2024-05-01", "n": 1.5}),
        Item(2, (folder / "a.jpg").resolve(), "two"),
        Item(3, None, "three", (), {"day": None, "n": 2.0}),
    ]


def test_parquet_reads_plain_bytes_paths_and_json_payloads(folder: Path) -> None:
    path = write_parquet(
        folder / "x.parquet", {"id": ["a"], "image": [b"abc"], "payload": ['{"y": 1}']}
    )
    assert list(read_items(path)) == [Item("a", b"abc", payload={"y": 1})]
    path = write_parquet(
        folder / "y.parquet", {"id": ["a"], "image": ["a.jpg"], "y": [1], "z": [None]}
    )
    fields = Fields(payload=("y", "z"))
    assert list(read_items(path, fields)) == [
        Item("a", (folder / "a.jpg").resolve(), payload={"y": 1})
    ]


def test_parquet_keeps_rows_in_order_across_batches(folder: Path) -> None:
    path = write_parquet(folder / "x.parquet", {"id": [*range(700), 3], "text": ["t"] * 701})
    results = list(read_items(path))
    assert [item.id for item in items_of(results)] == list(range(700))
    assert rejects_of(results) == [
        Reject("x.parquet:701", 3, "the id 3 occurs earlier in the same file")
    ]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"labels": [7]}, "'labels' is the number 7"),
        ({"payload": [{"x": float("nan")}]}, "cannot be written as JSON"),
        ({"payload": [{"x": decimal.Decimal("1.5")}]}, "of type Decimal"),
        ({"payload": ["{"]}, "'payload' is no JSON"),
        ({"payload": [[1]]}, "a list, expected an object"),
        ({"image": [{"other": 1}]}, "an object, expected a path"),
    ],
)
def test_parquet_rejects_wrong_types(
    folder: Path, columns: dict[str, list[Any]], reason: str
) -> None:
    path = write_parquet(folder / "x.parquet", {"id": [1], "text": ["t"]} | columns)
    (reject,) = read_items(path)
    assert isinstance(reject, Reject)
    assert (reject.where, reject.id) == ("x.parquet:1", 1)
    assert reason in reject.reason


def test_parquet_that_is_none_or_lacks_columns_is_an_error(folder: Path) -> None:
    pytest.importorskip("pyarrow")
    path = folder / "x.parquet"
    path.write_bytes(b"PAR1 but not really")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        list(read_items(path))
    write_parquet(path, {"no": [1], "text": ["t"]})
    with pytest.raises(DataError, match="no column 'id'"):
        list(read_items(path))


def test_parquet_without_pyarrow_names_the_extra(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "x.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"oasis-hash\[parquet\]"):
        list(read_items(folder / "x.parquet"))


# ---------------------------------------------------------------- folders


@pytest.fixture
def album(tmp_path: Path) -> Path:
    album = tmp_path / "album"
    for name in ("b.PNG", "a.jpg", "sea/boats/c.jpeg", "sea/a.jpg", "a-b/d.gif", ".hidden/x.jpg"):
        path = album / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"picture")
    (album / "a.txt").write_text("  a caption\n", encoding="utf-8-sig")
    (album / "sea" / "a.txt").write_text("")
    (album / "notes.md").write_text("no picture")
    (album / ".x.jpg").write_bytes(b"hidden")
    return album


def test_folder_gives_pictures_by_name_with_captions(album: Path) -> None:
    names = ["a-b/d.gif", "a.jpg", "b.PNG", "sea/a.jpg", "sea/boats/c.jpeg"]
    assert list(read_items(album)) == [
        Item(name, album / name, "a caption" if name == "a.jpg" else None) for name in names
    ]


def test_file_names_can_be_texts_where_there_is_no_caption(album: Path) -> None:
    (album / "sea" / "red-boat_2.jpg").write_bytes(b"picture")
    (album / "--.png").write_bytes(b"picture")
    texts = {item.id: item.text for item in items_of(read_items(album, text_from_names=True))}
    assert texts == {
        "--.png": None,
        "a-b/d.gif": "d",
        "a.jpg": "a caption",
        "b.PNG": "b",
        "sea/a.jpg": "a",
        "sea/boats/c.jpeg": "c",
        "sea/red-boat_2.jpg": "red boat 2",
    }


@pytest.mark.parametrize(
    ("name", "words"),
    [
        *((each, "") for each in ("n02099601", "IMG_2031", "DSC00042", "DSC_0042", "P1010001")),
        *((each, "") for each in ("IMG-20190514-WA0003", "000000123456", "9f86d081884c7d65")),
        ("550e8400-e29b-41d4-a716-446655440000", ""),
        ("n02099601_golden_retriever", "golden retriever"),
        ("PXL_20210704_1312 red-boat 4711", "red boat 4711"),
        ("COCO_train2014_000000123456", "COCO train2014"),
        ("beachSunset-1999 (2)", "beach Sunset 1999 2"),
        ("deadbeef cafe 747 mp3 b52", "deadbeef cafe 747 mp3 b52"),
    ],
)
def test_numbers_that_identify_a_file_are_no_words_of_it(name: str, words: str) -> None:
    assert name_words(name) == words


def test_a_picture_whose_name_only_identifies_it_has_no_text(album: Path) -> None:
    (album / "DSC00042.jpg").write_bytes(b"picture")
    texts = {item.id: item.text for item in items_of(read_items(album, text_from_names=True))}
    assert texts["DSC00042.jpg"] is None and texts["b.PNG"] == "b"


def test_folder_names_can_be_labels(album: Path) -> None:
    labels = {
        item.id: item.labels for item in items_of(read_folder(album, labels_from_folders=True))
    }
    assert labels["sea/boats/c.jpeg"] == ("sea", "boats")
    assert labels["a.jpg"] == ()


def test_folder_rejects_links_and_captions_that_lead_astray(album: Path) -> None:
    (album.parent / "secret.jpg").write_bytes(b"secret")
    (album / "out.jpg").symlink_to("../secret.jpg")
    (album / "gone.jpg").symlink_to("nowhere.jpg")
    (album / "round").symlink_to(".")
    (album / "sea" / "boats" / "c.txt").write_bytes(b"\xff")
    (album / "b.txt").symlink_to("../secret.jpg")
    rejects = {reject.where: reject.reason for reject in rejects_of(read_folder(album))}
    assert rejects.keys() == {"out.jpg", "gone.jpg", "round", "sea/boats/c.jpeg", "b.PNG"}
    assert "outside" in rejects["out.jpg"]
    assert "missing" in rejects["gone.jpg"]
    assert "not followed" in rejects["round"]
    assert "not UTF-8" in rejects["sea/boats/c.jpeg"]
    assert "outside" in rejects["b.PNG"]
    with pytest.raises(InputError):
        read_folder(album, strict=True)


def test_folder_rejects_names_and_captions_that_cannot_be_kept(album: Path) -> None:
    try:
        Path(os.fsdecode(os.fsencode(album) + b"/\xff.jpg")).write_bytes(b"picture")
    except OSError:
        pytest.skip("this file system admits UTF-8 names only")
    (album / "b.txt").write_text("x" * (1 << 20) + "x")
    rejects = rejects_of(read_folder(album))
    assert [reject.reason for reject in rejects] == [
        "the caption 'b.txt' is longer than 1048576 bytes",
        "the name is not UTF-8",
    ]
    json.dumps(rejects[1].where).encode()


# ---------------------------------------------------------------- whole files


def test_a_missing_or_unknown_file_is_an_error(tmp_path: Path) -> None:
    for name in ("x.jsonl", "x.csv", "x.parquet", "x.npz", "x.xlsx", "nowhere"):
        with pytest.raises(DataError, match=rf"there is no file or folder .*{name}"):
            read_items(tmp_path / name)
    (tmp_path / "x.xlsx").touch()
    with pytest.raises(DataError, match="cannot tell what"):
        read_items(tmp_path / "x.xlsx")
    with pytest.raises(DataError, match="no folder"):
        read_folder(tmp_path / "nowhere")


def test_rejects_file_holds_one_object_a_line_and_replaces_the_last_run(tmp_path: Path) -> None:
    path = tmp_path / "rejects.jsonl"
    path.write_text("an older run\n")
    rejects = [Reject("x.jsonl:1", None, "no JSON"), Reject("x.jsonl:2", 7, "Łódź\n")]
    with RejectsFile(path) as file:
        for reject in rejects:
            file.write(reject)
        assert len(path.read_text().splitlines()) == 2  # there before it is closed
    assert file.count == 2
    assert [Reject(**json.loads(line)) for line in path.read_text().splitlines()] == rejects


def test_rejects_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot write the rejects file"), RejectsFile(tmp_path):
        pass
    with pytest.raises(InputError, match="not open"):
        RejectsFile(tmp_path / "x").write(Reject("", None, ""))
