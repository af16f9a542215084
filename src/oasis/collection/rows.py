"""The tables, the head row, and how rows are written and checked.

Every row that came from outside has a ``crc`` of its other columns (but the counts of a class), and
``tallies`` holds for each such table the number of rows and the sum of their crcs: so a changed,
lost or added row is found. ``members``, ``deleted``, the counts of classes and the tables of words
are derived from these, compared by `check`, and made anew by `repair`.

``items`` holds one row per item that is not deleted; its key only grows and is never used again. An
item whose labels change gets a new key, and a new code; ``born`` is its first key, under which its
pictures and features are. ``labels`` are numbers of classes, as text with commas, ``predicted`` the
same for classes that the model predicted of an item without labels, ``looks`` names that its
picture surely looks like, a line each. ``prints`` are the fingerprints of its features
(`oasis.collection.duplicates`), NULL without any. ``deleted`` lists keys that readers and the index
file may still have.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oasis.collection.records import Id
from oasis.errors import FormatError

Keys = npt.NDArray[np.int64]
"""Keys of items, (n,)."""

APPLICATION_ID = 0x0A515
FORMAT_VERSION = 11

SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value, crc INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE head (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    commits INTEGER NOT NULL, next_key INTEGER NOT NULL, n_items INTEGER NOT NULL,
    n_seen INTEGER NOT NULL, n_rounds INTEGER NOT NULL,
    model INTEGER NOT NULL, model_bytes INTEGER NOT NULL, model_crc INTEGER NOT NULL,
    journal_bytes INTEGER NOT NULL, journal_entries INTEGER NOT NULL,
    "index" INTEGER NOT NULL, index_commits INTEGER NOT NULL, index_key INTEGER NOT NULL,
    crc INTEGER NOT NULL
);
CREATE TABLE items (
    key INTEGER PRIMARY KEY, id NOT NULL UNIQUE, born INTEGER NOT NULL, round INTEGER NOT NULL,
    code BLOB NOT NULL,
    prints BLOB, labels TEXT, predicted TEXT, looks TEXT, payload TEXT,
    crc INTEGER NOT NULL
);
CREATE TABLE classes (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, n INTEGER NOT NULL DEFAULT 0,
    n_predicted INTEGER NOT NULL DEFAULT 0, round INTEGER NOT NULL, crc INTEGER NOT NULL
);
CREATE TABLE rounds (
    number INTEGER PRIMARY KEY, time REAL NOT NULL, n INTEGER NOT NULL,
    n_labelled INTEGER NOT NULL, "precision" REAL, chance REAL, seconds REAL NOT NULL,
    bytes INTEGER NOT NULL, crc INTEGER NOT NULL
);
CREATE TABLE journal (commits INTEGER PRIMARY KEY, entry BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE thumbnails (key INTEGER PRIMARY KEY, picture BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE previews (key INTEGER PRIMARY KEY, picture BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE features (key INTEGER PRIMARY KEY, data BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE texts (key INTEGER PRIMARY KEY, text TEXT NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE deleted (key INTEGER PRIMARY KEY, commits INTEGER NOT NULL);
CREATE TABLE tallies (name TEXT PRIMARY KEY, n INTEGER NOT NULL, crc INTEGER NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Head:
    """What is committed.

    Attributes
    ----------
    commits : number of commits so far
    next_key : key of the next item; every item has a smaller one
    n_items, n_seen, n_rounds : items now, samples ever, chunks ever
    model, model_bytes, model_crc : generation of the model file (0: none), its length and checksum
    journal_bytes, journal_entries : of the small chunks learned since the model file
    index, index_commits, index_key : generation of the index file (0: none), the commit it shows,
        and the last key it may hold. Where codes are searched elsewhere there is no file, and the
        commit is one whose deletions are known to have arrived there
    """

    commits: int = 0
    next_key: int = 1
    n_items: int = 0
    n_seen: int = 0
    n_rounds: int = 0
    model: int = 0
    model_bytes: int = 0
    model_crc: int = 0
    journal_bytes: int = 0
    journal_entries: int = 0
    index: int = 0
    index_commits: int = 0
    index_key: int = 0

    @property
    def model_name(self) -> str:
        return f"model-{self.model}.safetensors"

    @property
    def index_name(self) -> str:
        return f"index-{self.index}.hamming"

    @property
    def generation(self) -> int:
        """The largest number of a file that this commit names; smaller ones were replaced."""
        return max(self.model, self.index)

    @property
    def file_names(self) -> set[str]:
        """The files beside the catalog that this commit needs."""
        return {
            name
            for generation, name in (
                (self.model, self.model_name),
                (self.index, self.index_name),
            )
            if generation
        }


def without_index_file(head: Head, commits: int, last_key: int) -> Head:
    """Return a head without an index file: codes are in Milvus, or are read from rows.

    Deletions up to ``commits`` need not be listed any longer; keys beyond ``last_key`` count as
    changes since.
    """
    return replace(head, index=0, index_commits=commits, index_key=last_key)


HEAD_COLUMNS = ", ".join(f'"{field.name}"' for field in fields(Head))


CHECKED_COLUMNS = {
    "items": "key, id, born, round, code, prints, labels, predicted, looks, payload",
    "classes": "number, name, round",
    "rounds": 'number, time, n, n_labelled, "precision", chance, seconds, bytes',
    "journal": "commits, entry",
    "thumbnails": "key, picture",
    "previews": "key, picture",
    "features": "key, data",
    "texts": "key, text",
    "meta": "name, value",
}
"""Tables whose rows are tallied, and the columns that ``crc`` covers."""

IDS_AT_ONCE = 900
"""Parameters of one statement."""

ROWS_AT_ONCE = 50
"""Rows of one statement, which takes three quarters of the time of one each."""


def row_crc(*values: Any) -> int:
    """Return the signed crc32 of the values of a row; 4 bytes where SQLite keeps it.

    >>> row_crc(1, "a", b"") == row_crc(1, "b", b""), row_crc(1, b"") == row_crc(1, "")
    (False, False)
    """
    crc, shown = 0, []
    for value in values:
        if type(value) is bytes:  # the repr of a picture takes long
            crc = zlib.crc32(value, crc + 1)
            shown.append(len(value))
        else:
            shown.append(value)
    return zlib.crc32(repr(shown).encode("utf-8", "surrogatepass"), crc) - (1 << 31)


class ItemRow(NamedTuple):
    """An item's row in the catalog, as `ITEM_COLUMNS` selects it."""

    key: int
    id: Id
    born: int
    round: int
    code: bytes
    prints: bytes | None
    labels: str | None
    predicted: str | None
    looks: str | None
    payload: str | None
    crc: int

    @property
    def is_sound(self) -> bool:
        """Whether the row matches its checksum."""
        return row_crc(*self[:-1]) == self.crc

    def check(self) -> ItemRow:
        """Return the row, or raise `FormatError` if it does not match its checksum."""
        if not self.is_sound:
            raise FormatError(
                f"the item with key {self.key} is damaged: its row does not match its checksum; "
                "'oasis check' lists all damage"
            )
        return self

    @property
    def payload_bytes(self) -> int:
        """Bytes of JSON that its payload has."""
        text = str(self.payload or "")  # a damaged row may have another type
        return len(text) if text.isascii() else len(text.encode())

    def decoded_payload(self) -> dict[str, Any]:
        return decoded_payload(self.payload)

    def label_names(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names of its classes; ``names`` are those of all classes, by number."""
        return self._named(self.labels, names)

    def predicted_names(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the classes that were predicted for it."""
        return self._named(self.predicted, names)

    @property
    def names_of_looks(self) -> tuple[str, ...]:
        """The names of things that its picture surely looks like."""
        return tuple(self.looks.splitlines()) if isinstance(self.looks, str) else ()

    def _named(self, numbers: str | None, names: Sequence[str]) -> tuple[str, ...]:
        if not numbers:
            return ()
        try:
            return tuple(names[number] for number in label_numbers(numbers))
        except (IndexError, ValueError) as error:
            raise FormatError(
                f"the item with key {self.key} is damaged: it has classes {numbers!r}, of "
                f"{len(names)} that have names"
            ) from error


ITEM_COLUMNS = CHECKED_COLUMNS["items"] + ", crc"


def items_with(connection: sqlite3.Connection, column: str, values: Sequence[Id]) -> list[ItemRow]:
    """Return the checked rows of the items with these ids, or keys, in the order of their keys."""
    found: list[ItemRow] = []
    for start in range(0, len(values), IDS_AT_ONCE):
        block = values[start : start + IDS_AT_ONCE]
        rows = connection.execute(
            f"SELECT {ITEM_COLUMNS} FROM items WHERE {column} IN ({','.join('?' * len(block))})",  # noqa: S608
            block,
        )
        found += [ItemRow(*row).check() for row in rows]
    return sorted(found, key=lambda item: item.key)


def items_between(connection: sqlite3.Connection, last: int, end: int, most: int) -> list[ItemRow]:
    """Return the checked rows of the first items with keys beyond ``last`` and below ``end``."""
    rows = connection.execute(
        f"SELECT {ITEM_COLUMNS} FROM items WHERE key > ? AND key < ? ORDER BY key LIMIT ?",  # noqa: S608
        (last, end, most),
    )
    return [ItemRow(*row).check() for row in rows]


def decoded_payload(text: str | None) -> dict[str, Any]:
    """Return the payload of a row, or raise `FormatError` if it cannot be read."""
    try:
        payload: dict[str, Any] = json.loads(text) if text else {}
    except (TypeError, ValueError, RecursionError) as error:
        raise FormatError(
            f"a payload in the catalog is damaged: {error}; 'oasis check' lists all damage"
        ) from error
    return payload


def tally(connection: sqlite3.Connection, table: str, n: int, crc: int) -> None:
    """Count rows that are inserted (n > 0) or deleted (n < 0), and the sum of their crcs."""
    connection.execute(
        "INSERT INTO tallies VALUES (?, ?, ?) "
        "ON CONFLICT (name) DO UPDATE SET n = n + excluded.n, crc = crc + excluded.crc",
        (table, n, crc),
    )


def check_count(connection: sqlite3.Connection, table: str, n: int) -> None:
    """Raise `FormatError` unless n rows, as many as were found, are in a table."""
    row = connection.execute("SELECT n FROM tallies WHERE name = ?", (table,)).fetchone()
    expected = row[0] if row else 0
    if n != expected:
        raise FormatError(
            f"the catalog is damaged: {n} rows of {table} were found, {expected} were written; "
            "'oasis check' lists all damage"
        )


def insert_rows(
    connection: sqlite3.Connection, table: str, rows: Iterable[tuple[Any, ...]]
) -> None:
    """Insert rows, given by their checked columns, with their crcs; and tally them."""
    columns = CHECKED_COLUMNS[table]
    marks = f"({','.join('?' * (columns.count(',') + 2))})"
    n = total = 0
    remaining = iter(rows)
    while some := list(islice(remaining, ROWS_AT_ONCE)):
        values: list[Any] = []
        for row in some:
            crc = row_crc(*row)
            total += crc
            values += row
            values.append(crc)
        connection.execute(
            f"INSERT INTO {table} ({columns}, crc) "  # noqa: S608
            f"VALUES {','.join([marks] * len(some))}",
            values,
        )
        n += len(some)
    if n:
        tally(connection, table, n, total)


def delete_rows(
    connection: sqlite3.Connection, table: str, condition: str, values: Sequence[tuple[Any, ...]]
) -> None:
    """Delete the rows that meet a condition, for each of the values; and tally them."""
    rows = total = 0
    for each in values:
        n, crc = connection.execute(
            f"SELECT count(*), coalesce(sum(crc), 0) FROM {table} WHERE {condition}",  # noqa: S608
            each,
        ).fetchone()
        if n:
            connection.execute(f"DELETE FROM {table} WHERE {condition}", each)  # noqa: S608
            rows, total = rows + n, total + crc
    if rows:
        tally(connection, table, -rows, -total)


def label_text(numbers: list[int]) -> str | None:
    """Return class numbers as they stand in a row; None for none.

    >>> label_text([3, 17]), label_text([])
    ('3,17', None)
    """
    return ",".join(map(str, numbers)) or None


def label_numbers(text: str | None) -> list[int]:
    """Return the class numbers of a row.

    >>> label_numbers("3,17")
    [3, 17]
    """
    return [int(part) for part in text.split(",")] if text else []
