"""The rows of JSONL and CSV files, as values by field name."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator
from io import BufferedReader
from itertools import chain, islice
from pathlib import Path
from typing import Any, Self

from oasis.errors import DataError, InputError
from oasis.items.item import Fields, Refused, Row, field_of, is_unicode, kind_of

MAX_LINE_BYTES = 1 << 24
"""A longer line is rejected without being held in memory."""

_FIRST = 256  # objects that are searched for the names of fields
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?", re.ASCII)


def open_file(path: Path) -> BufferedReader:
    """Open a data file; raise `DataError` if it cannot be read."""
    try:
        return path.open("rb")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error


def jsonl_rows(path: Path, fields: Fields) -> Iterator[Row]:
    """Yield the objects of a JSONL file by line.

    A field whose name is not the default one must occur in one of the first 256 objects; else
    `DataError` is raised before the first row.
    """
    rows = _objects(path)
    first = list(islice(rows, _FIRST))
    found = dict.fromkeys(
        name for _, values in first for name in (() if isinstance(values, str) else values)
    )
    if found:
        fields.check_given(path, "field", list(found))
        fields.note_unkept(path, list(found), "fields")
    yield from chain(first, rows)


def _objects(path: Path) -> Iterator[Row]:
    with open_file(path) as file:
        lines = _Lines(file)
        while True:
            try:
                line = next(lines)
                if not line.strip():
                    continue
                values = parse_object(line)
            except StopIteration:
                return
            except Refused as refusal:
                yield f"{path.name}:{lines.number}", str(refusal)
            else:
                yield f"{path.name}:{lines.number}", values


def csv_rows(path: Path, fields: Fields, delimiter: str) -> Iterator[Row]:
    """Yield the rows of a CSV file; the position of a row is its first line."""
    with open_file(path) as file:
        lines = _Lines(file)
        try:
            # map, unlike a generator, continues after a line that is refused
            reader = csv.reader(map(_decode, lines), delimiter=delimiter, strict=True)
            header = next(reader, None)
        except (csv.Error, TypeError, Refused) as error:
            raise DataError(f"{path} has no header that can be read: {error}") from error
        if header is None:
            raise DataError(f"{path} is empty; expected a header with the names of its columns")
        _check_delimiter(path, header, fields, delimiter)
        fields.check(path, header)
        fields.note_unkept(path, header)
        while True:
            where = f"{path.name}:{lines.number + 1}"
            try:
                cells = next(reader)
                if cells:
                    yield where, _csv_values(header, cells)
            except StopIteration:
                return
            except csv.Error as error:
                yield where, f"the row is not CSV: {error}"
            except Refused as refusal:
                yield where, str(refusal)


def _check_delimiter(path: Path, header: list[str], fields: Fields, delimiter: str) -> None:
    """Raise `DataError` if another delimiter would have given a column of ids."""
    for other in {",", ";", "\t"} - {delimiter} if len(header) == 1 else ():
        if fields.id in [name.strip('"') for name in header[0].split(other)]:
            name = {",": "commas", ";": "semicolons", "\t": "tabs"}
            raise DataError(
                f"{path} has {name[other]} between its columns, expected "
                f"{name.get(delimiter, repr(delimiter))}; write it anew, with commas as .csv or "
                "tabs as .tsv (in Python: read_csv(..., delimiter=...))"
            )


def _decode(line: bytes) -> str:
    # bytes that are not UTF-8 are kept as surrogates and refused with their row
    return line.decode("utf-8", "surrogateescape")


def _csv_values(header: list[str], cells: list[str]) -> dict[str, Any]:
    if len(cells) != len(header):
        raise Refused(f"the row has {len(cells)} cells, the header has {len(header)}")
    if not is_unicode("".join(cells)):
        raise Refused("the row is not UTF-8")
    return {name: cell for name, cell in zip(header, cells, strict=True) if cell}


def refine_csv(values: dict[str, Any], fields: Fields, separator: str) -> dict[str, Any]:
    """Return the cells of a row with labels split and the payload parsed."""
    values = split_labels(values, fields, separator)
    if isinstance(fields.payload, tuple):
        for name in fields.payload:
            if name in values and _NUMBER.fullmatch(values[name]):
                values[name] = json.loads(values[name])
    elif fields.payload in values:
        values[fields.payload] = parse_object(values[fields.payload].encode(), fields.payload)
    return values


def check_separator(separator: str) -> None:
    """Raise `InputError` unless labels can be split by it."""
    if not separator:
        raise InputError("the separator of labels is empty; expected something like ';'")


def split_labels(values: dict[str, Any], fields: Fields, separator: str) -> dict[str, Any]:
    """Return the values of a row; labels that are one text become a list.

    >>> split_labels({"labels": "sky; sea"}, Fields(), ";")
    {'labels': ['sky', 'sea']}
    """
    if isinstance(labels := field_of(values, fields.labels), str):
        names = (name.strip() for name in labels.split(separator))
        values[str(fields.labels)] = [name for name in names if name]
    return values


class _Lines:
    """The lines of a file as bytes; one that is too long is skipped and refused."""

    def __init__(self, file: BufferedReader) -> None:
        self._file = file
        self.number = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        line = self._file.readline(MAX_LINE_BYTES)
        if not line:
            raise StopIteration
        self.number += 1
        if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = self._file.readline(MAX_LINE_BYTES)
            raise Refused(f"the line is longer than {MAX_LINE_BYTES} bytes")
        return line.removeprefix(b"\xef\xbb\xbf") if self.number == 1 else line


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:40]} is too large a number")
    return number


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)


def parse_object(data: bytes, name: str | None = None) -> dict[str, Any]:
    """Parse a JSON object from bytes; ``name`` is the field they come from, if any."""
    what = "the line" if name is None else repr(name)
    try:
        value = _DECODER.decode(data.decode())
    except UnicodeDecodeError as error:
        raise Refused(f"{what} is not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise Refused(f"{what} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise Refused(f"{what} is {kind_of(value)}, expected an object")
    # half of a surrogate pair can be written as an escape, but not stored
    if b"\\u" in data and not is_unicode(json.dumps(value, ensure_ascii=False)):
        raise Refused(f"{what} is not valid Unicode")
    return value
