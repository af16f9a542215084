"""The rows of JSONL and CSV files, as values by field name."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Any, Self

from oasis.errors import DataError
from oasis.items.builder import is_unicode, parse_object
from oasis.items.fields import Fields, Kind, check_columns
from oasis.items.item import Refused, Row

MAX_LINE_BYTES = 1 << 24
"""A longer line is rejected without being held in memory."""

MAX_CELL_BYTES = 1 << 20
"""A quoted cell of a CSV file that is too long, and goes on for more than so many bytes, ends the
reading."""

_FIRST = 256  # objects that are searched for the names of fields
_VECTOR = 16  # numbers from which on a list is a vector
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?", re.ASCII)


def open_file(path: Path) -> BufferedReader:
    """Open a data file; raise `DataError` if it cannot be read."""
    try:
        return path.open("rb")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error


def jsonl_columns(path: Path, fields: Fields) -> dict[str, Kind]:
    """Return the fields of the first 256 objects of a JSONL file."""
    found: dict[str, Kind] = {}
    for _, values in islice(jsonl_rows(path, fields), _FIRST):
        for name, value in () if isinstance(values, str) else values.items():
            if _is_vector(value):
                found[name] = "vectors"
            found.setdefault(name, "plain")
    return found


def jsonl_rows(path: Path, _fields: Fields) -> Iterator[Row]:
    """Yield the objects of a JSONL file by line."""
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


def csv_columns(path: Path, _fields: Fields) -> dict[str, Kind]:
    """Return the names in the header of a CSV file."""
    with open_file(path) as file:
        _, header = _opened(path, _Lines(file))
    check_columns(path, header)
    seen: set[str] = set()
    for name in header:
        if name in seen:
            raise DataError(f"{path} has two columns called {name!r}")
        seen.add(name)
    return dict.fromkeys(header, "plain")


def csv_rows(path: Path, fields: Fields) -> Iterator[Row]:
    """Yield the rows of a CSV file; the position of a row is its first line.

    A row with a cell of more than 131,072 characters is one reject, whatever lines the cell has.
    Raises `DataError` if a quote is not closed within `MAX_CELL_BYTES`: what follows is no table.
    """
    gathered = fields.payload if isinstance(fields.payload, tuple) else ()
    with open_file(path) as file:
        lines = _Lines(file)
        reader, header = _opened(path, lines)
        while True:
            where = f"{path.name}:{lines.number + 1}"
            lines.begin_row()
            try:
                if not (cells := next(reader)):
                    continue
                values = _csv_values(header, cells)
            except StopIteration:
                return
            except csv.Error as error:
                if "field limit" in str(error) and not lines.skip_quoted():
                    raise DataError(
                        f"{path} cannot be read from {where} on: a quote that opens there "
                        f"is not closed within {MAX_CELL_BYTES:,} bytes; close it, or remove it"
                    ) from None
                yield where, f"the row is not CSV: {error}"
            except Refused as refusal:
                yield where, str(refusal)
            else:
                for name in gathered:
                    if _NUMBER.fullmatch(values.get(name, "")):
                        values[name] = json.loads(values[name])
                yield where, values


def _opened(path: Path, lines: _Lines) -> tuple[Iterator[list[str]], list[str]]:
    """Return a reader of the rows and the header."""
    try:
        # map, unlike a generator, continues after a line that is refused
        reader = csv.reader(map(_decode, lines), delimiter=_delimiter(path), strict=True)
        header = next(reader, None)
    except (csv.Error, Refused) as error:
        raise DataError(f"{path} has no header that can be read: {error}") from error
    if header is None:
        raise DataError(f"{path} is empty; expected a header with the names of its columns")
    return reader, header


def _delimiter(path: Path) -> str:
    """Return a tab for .tsv, else the comma, semicolon or tab that the header has most of."""
    if path.suffix.lower() == ".tsv":
        return "\t"
    with open_file(path) as file:
        return max((",", ";", "\t"), key=_decode(file.readline(MAX_LINE_BYTES)).count)


def _is_vector(value: Any) -> bool:
    numbers = isinstance(value, list) and len(value) >= _VECTOR
    return numbers and all(isinstance(each, (int, float)) for each in value)


def _decode(line: bytes) -> str:
    # bytes that are not UTF-8 are kept as surrogates and refused with their row
    return line.decode("utf-8", "surrogateescape")


def _csv_values(header: list[str], cells: list[str]) -> dict[str, Any]:
    if len(cells) != len(header):
        raise Refused(f"the row has {len(cells)} cells, the header has {len(header)}")
    if not is_unicode("".join(cells)):
        raise Refused("the row is not UTF-8")
    return {name: cell for name, cell in zip(header, cells, strict=True) if cell}


class _Lines:
    """The lines of a file as bytes; one that is too long is skipped and refused."""

    def __init__(self, file: BufferedReader) -> None:
        self._file = file
        self.number = 0
        self.begin_row()

    def begin_row(self) -> None:
        """Begin to note whether a row is within quotes."""
        self._is_quoted = False

    def skip_quoted(self) -> bool:
        """Read to the line that closes a quote; return False if that is too far."""
        n_bytes = 0
        while self._is_quoted and (line := self._file.readline(MAX_CELL_BYTES)):
            n_bytes += len(line)
            if n_bytes > MAX_CELL_BYTES:
                return False
            self.number += 1
            self._is_quoted = b'"' not in line or line.count(b'"') % 2 == 0
        return True

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        line = self._file.readline(MAX_LINE_BYTES)
        if not line:
            raise StopIteration
        self.number += 1
        if b'"' in line:
            self._is_quoted ^= line.count(b'"') % 2 == 1
        if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = self._file.readline(MAX_LINE_BYTES)
            raise Refused(f"the line is longer than {MAX_LINE_BYTES} bytes")
        return line.removeprefix(b"\xef\xbb\xbf") if self.number == 1 else line
