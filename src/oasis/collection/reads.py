"""What is read from a catalog: its head, facts, classes, rounds, and the rows of items."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.collection.records import ClassInfo, Id, Round
from oasis.collection.rows import HEAD_COLUMNS, Head, Keys, row_crc
from oasis.errors import FormatError

_BLOCK = 20_000


class Reads:
    """Questions to the catalog; all that one connection answers belongs to one commit."""

    path: Path

    def head(self, connection: sqlite3.Connection) -> Head:
        row = connection.execute(f"SELECT {HEAD_COLUMNS}, crc FROM head").fetchone()  # noqa: S608
        if row is None:
            raise FormatError(f"{self.path} is damaged: its head is missing")
        if row_crc(*row[:-1]) != row[-1]:
            raise FormatError(f"{self.path} is damaged: its head does not match its checksum")
        return Head(*row[:-1])

    def meta(self, connection: sqlite3.Connection, name: str) -> Any:
        """Return a fact by name, or None."""
        row = connection.execute("SELECT value, crc FROM meta WHERE name = ?", (name,)).fetchone()
        if row is None:
            # it may be there under a name that is damaged
            for each, value, crc in connection.execute("SELECT name, value, crc FROM meta"):
                if row_crc(each, value) != crc:
                    raise FormatError(f"{self.path} is damaged: its facts do not match checksums")
            return None
        if row_crc(name, row[0]) != row[1]:
            raise FormatError(f"{self.path} is damaged: its {name} does not match its checksum")
        return row[0]

    def class_names(self, connection: sqlite3.Connection, start: int = 0) -> list[str]:
        """Return the names of the classes from number ``start`` on."""
        rows = connection.execute(
            "SELECT number, name, round, crc FROM classes WHERE number >= ? ORDER BY number",
            (start,),
        )
        names: list[str] = []
        for number, name, at, crc in rows:
            if row_crc(number, name, at) != crc or number != start + len(names):
                raise FormatError(
                    f"{self.path} is damaged: the class with number {number} does not match its "
                    "checksum, or one before it is missing"
                )
            names.append(name)
        return names

    def names_from(self, connection: sqlite3.Connection, known: Sequence[str]) -> Sequence[str]:
        """Return class names by number: those known, or all where there are newer ones."""
        (last,) = connection.execute("SELECT max(number) FROM classes").fetchone()
        return (
            known if (-1 if last is None else last) < len(known) else self.class_names(connection)
        )

    def classes(self, connection: sqlite3.Connection) -> list[ClassInfo]:
        """Return the classes that items have, given or predicted, in order of arrival."""
        rows = connection.execute(
            "SELECT name, n, round, n_predicted FROM classes WHERE n OR n_predicted ORDER BY number"
        )
        return [ClassInfo(*row) for row in rows]

    def rounds(self, connection: sqlite3.Connection) -> list[Round]:
        new: dict[int, list[str]] = {}
        for number, name in connection.execute("SELECT round, name FROM classes ORDER BY number"):
            new.setdefault(number, []).append(name)
        rows = connection.execute(
            'SELECT number, time, n, n_labelled, "precision", chance, seconds, bytes '
            "FROM rounds ORDER BY number"
        )
        return [
            Round(number, at, n, n_labelled, tuple(new.get(number, ())), *rest)
            for number, at, n, n_labelled, *rest in rows
        ]

    def keys_of(self, connection: sqlite3.Connection, ids: Sequence[Id]) -> dict[Id, int]:
        """Return id -> key for those of the ids that are there."""
        found: dict[Id, int] = {}
        # not json_each, which would turn texts with a NUL and large numbers into others
        for start in range(0, len(ids), 500):
            block = ids[start : start + 500]
            marks = ",".join("?" * len(block))
            found.update(
                connection.execute(f"SELECT id, key FROM items WHERE id IN ({marks})", block)  # noqa: S608
            )
        return found

    def free_ids(self, connection: sqlite3.Connection, start: int, n: int) -> int:
        """Return the first of n successive numbers that are no ids: ``start``, or beyond all ids.

        Numbers come before texts in the order of SQLite.
        """
        taken = connection.execute(
            "SELECT 1 FROM items WHERE id BETWEEN ? AND ? LIMIT 1", (start, start + n - 1)
        ).fetchone()
        if taken is None:
            return start
        (largest,) = connection.execute(
            "SELECT id FROM items WHERE id < '' ORDER BY id DESC LIMIT 1"
        ).fetchone()
        return int(largest) + 1

    def rows(
        self, connection: sqlite3.Connection, columns: str, keys: Iterable[int]
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the columns of the items with these keys, in no order; unknown keys are skipped."""
        return connection.execute(
            f"SELECT {columns} FROM items WHERE key IN (SELECT value FROM json_each(?))",  # noqa: S608
            (json.dumps(list(keys)),),
        )

    def codes(
        self, connection: sqlite3.Connection, after: int, n_bits: int
    ) -> Iterator[tuple[Keys, npt.NDArray[np.uint8]]]:
        """Yield keys and codes of the items with keys beyond ``after``, ascending, in blocks."""
        cursor = connection.execute(
            "SELECT key, code FROM items WHERE key > ? ORDER BY key", (after,)
        )
        while rows := cursor.fetchmany(_BLOCK):
            keys = np.array([key for key, _ in rows], dtype=np.int64)
            if not all(isinstance(code, bytes) for _, code in rows):
                raise FormatError(f"{self.path} is damaged: a code is no blob")
            packed = b"".join(code for _, code in rows)
            if len(packed) != len(rows) * n_bits // 8:
                raise FormatError(f"{self.path} is damaged: a code has not {n_bits} bits")
            yield keys, np.frombuffer(packed, dtype=np.uint8).reshape(len(rows), n_bits // 8)

    def codes_of(
        self, connection: sqlite3.Connection, keys: Keys, n_bits: int
    ) -> tuple[Keys, npt.NDArray[np.uint8]]:
        """Return those of the keys that are there, ascending, and their codes."""
        found = sorted(self.rows(connection, "key, code", keys.tolist()))
        if not all(isinstance(code, bytes) and len(code) * 8 == n_bits for _, code in found):
            raise FormatError(f"{self.path} is damaged: a code has not {n_bits} bits")
        packed = np.frombuffer(b"".join(code for _, code in found), dtype=np.uint8)
        there = np.array([key for key, _ in found], dtype=np.int64)
        return there, packed.reshape(len(found), n_bits // 8)

    def count(self, connection: sqlite3.Connection, before: int) -> int:
        """Return the number of items with keys below ``before``; one pass over them."""
        row = connection.execute("SELECT count(*) FROM items WHERE key < ?", (before,)).fetchone()
        return int(row[0])

    def all_keys(self, connection: sqlite3.Connection) -> Keys:
        """Return the keys of all items, ascending."""
        rows = connection.execute("SELECT key FROM items ORDER BY key")
        return np.fromiter((key for (key,) in rows), dtype=np.int64)

    def deleted(self, connection: sqlite3.Connection, commits: int, key: int) -> Keys:
        """Return the keys up to ``key`` that were deleted after commit number ``commits``."""
        rows = connection.execute(
            "SELECT key FROM deleted WHERE commits > ? AND key <= ?", (commits, key)
        )
        return np.array([row[0] for row in rows], dtype=np.int64)
