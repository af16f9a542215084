"""The rows of a data file: JSONL, CSV or Parquet, as values by field name."""

from __future__ import annotations

import csv
import datetime
import json
import math
import re
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any, Self, TypeAlias

from oasis.errors import DataError, MissingExtraError
from oasis.items.item import Fields, Refused, field_of, is_unicode, kind_of

MAX_LINE_BYTES = 1 << 24
"""A longer line is rejected without being held in memory."""

Row: TypeAlias = tuple[str, dict[str, Any] | str]
"""Where, and the values by field name or the reason why there are none."""

_PARQUET_BATCH = 256
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?", re.ASCII)


def open_file(path: Path) -> BufferedReader:
    """Open a data file, or say why it cannot be read."""
    try:
        return path.open("rb")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error


def jsonl_rows(path: Path) -> Iterator[Row]:
    """Yield the objects of a JSONL file by line."""
    with open_file(path) as file:
        lines = _Lines(file)
        while True:
            try:
                line = next(lines)
                if not line.strip():
                    continue
                values = _parse_object(line)
            except StopIteration:
                return
            except Refused as refusal:
                yield f"{path.name}:{lines.number}", str(refusal)
            else:
                yield f"{path.name}:{lines.number}", values


def csv_rows(path: Path, fields: Fields, delimiter: str) -> Iterator[Row]:
    """Yield the rows of a CSV file; where a row spans lines, its first one is stated."""
    with open_file(path) as file:
        lines = _Lines(file)
        try:
            # map, unlike a generator, goes on after a line that is refused
            reader = csv.reader(map(_decode, lines), delimiter=delimiter, strict=True)
            header = next(reader, None)
        except (csv.Error, TypeError, Refused) as error:
            raise DataError(f"{path} has no header that can be read: {error}") from error
        _check_columns(path, header or [], fields)
        while True:
            where = f"{path.name}:{lines.number + 1}"
            try:
                cells = next(reader)
                if cells:
                    yield where, _csv_values(header or [], cells)
            except StopIteration:
                return
            except csv.Error as error:
                yield where, f"the row is no CSV: {error}"
            except Refused as refusal:
                yield where, str(refusal)


def _decode(line: bytes) -> str:
    # bytes that are no UTF-8 are carried along and refused with their row
    return line.decode("utf-8", "surrogateescape")


def _csv_values(header: list[str], cells: list[str]) -> dict[str, Any]:
    if len(cells) != len(header):
        raise Refused(f"the row has {len(cells)} cells, the header has {len(header)}")
    if not is_unicode("".join(cells)):
        raise Refused("the row is not UTF-8")
    return {name: cell for name, cell in zip(header, cells, strict=True) if cell}


def refine_csv(values: dict[str, Any], fields: Fields, separator: str) -> dict[str, Any]:
    """Return the cells of a row with labels split, and the payload or its numbers parsed."""
    if fields.labels in values:
        names = (name.strip() for name in values[fields.labels].split(separator))
        values[fields.labels] = [name for name in names if name]
    if isinstance(fields.payload, tuple):
        for name in fields.payload:
            if name in values and _NUMBER.fullmatch(values[name]):
                values[name] = json.loads(values[name])
    elif fields.payload in values:
        values[fields.payload] = _parse_object(values[fields.payload].encode(), fields.payload)
    return values


def parquet_rows(path: Path, fields: Fields) -> Iterator[Row]:
    """Yield the rows of a Parquet file, counted from 1."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", extra="parquet", what="reading Parquet") from error

    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            columns = list(file.schema_arrow.names)
            _check_columns(path, columns, fields)
            needed = [name for name in columns if name in fields.names()]
            for batch in file.iter_batches(batch_size=_PARQUET_BATCH, columns=needed):
                for values in batch.to_pylist():
                    number += 1
                    yield f"{path.name}:{number}", values
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as Parquet after row {number}: {error}") from error


def refine_parquet(values: dict[str, Any], fields: Fields) -> dict[str, Any]:
    """Return the values of a row with the picture unwrapped and the payload as JSON has it."""
    match field_of(values, fields.image):
        case {"bytes": bytes(content)}:
            values[str(fields.image)] = content
        case {"path": str(path)}:
            values[str(fields.image)] = path
    if isinstance(fields.payload, tuple):
        return values | _plain({name: values.get(name) for name in fields.payload})
    if fields.payload is not None:
        match values.get(fields.payload):
            case str(payload):
                values[fields.payload] = _parse_object(payload.encode(), fields.payload)
            case dict(payload):
                values[fields.payload] = _plain(payload)
    return values


def _plain(payload: dict[str, Any]) -> dict[str, Any]:
    """Return a payload as JSON would give it back."""

    def text(value: object) -> str:
        if isinstance(value, (datetime.date, datetime.time)):
            return value.isoformat()
        raise Refused(f"the payload holds {kind_of(value)}, which JSON cannot")

    try:
        result: dict[str, Any] = json.loads(json.dumps(payload, default=text, allow_nan=False))
    except ValueError as error:
        raise Refused(f"the payload cannot be written as JSON: {error}") from error
    return result


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


def _check_columns(path: Path, columns: list[str], fields: Fields) -> None:
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise DataError(f"{path} has two columns called {twice[0]!r}")
    defaults = Fields().names()
    missing = [name for name in fields.names() if name not in columns]
    wanted = [name for name in missing if name == fields.id or name not in defaults]
    if wanted:
        raise DataError(f"{path} has no column {wanted[0]!r}; its columns are {columns}")
    if fields.image not in columns and fields.text not in columns:
        raise DataError(
            f"{path} has neither a column {fields.image!r} for pictures nor {fields.text!r} for "
            f"texts; its columns are {columns}"
        )


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:40]} is too large a number")
    return number


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)


def _parse_object(data: bytes, name: str | None = None) -> dict[str, Any]:
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
