"""Which items have a class: postings by class, and counts.

A row of ``postings`` lists some of the items that have a class, or of which it is predicted:
offsets from ``first_key``, ascending, little-endian uint32. The key ranges of the rows of a class
do not overlap. A chunk adds one row for each of its classes; an item that gets a class later is
added to the row before its key, or to a new row.

Postings and counts are derived from the items' rows and can be rebuilt.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.arrays import Rows
from oasis.collection.catalog.commits import Keys, delete_rows, insert_rows, row_crc, tally
from oasis.errors import FormatError

_ROW = 4096
"""An item is appended to the last row before its key if that has fewer entries than this."""


def class_postings(
    connection: sqlite3.Connection, number: int, after: int = 0, *, predicted: bool = False
) -> Keys:
    """Return the keys beyond ``after``, ascending, of the items that have a class.

    With ``predicted``, of the items of which it is predicted. Rows that are not as they were
    written are refused, and so are all of them if they are not as many as the class has items.
    """
    rows = connection.execute(
        "SELECT first_key, offsets, crc FROM postings WHERE class = ? AND predicted = ? "
        "AND first_key >= coalesce((SELECT max(first_key) FROM postings "
        "WHERE class = ? AND predicted = ? AND first_key <= ?), 0) ORDER BY first_key",
        (number, predicted, number, predicted, after),
    )
    lists = []
    for first, offsets, crc in rows:
        if row_crc(number, int(predicted), first, offsets) != crc:
            raise _damaged()
        lists.append(first + _offsets(offsets).astype(np.int64))
    keys: Keys = np.concatenate([np.empty(0, dtype=np.int64), *lists])
    if not after:
        column = "n_predicted" if predicted else "n"
        counted = connection.execute(
            f"SELECT {column} FROM classes WHERE number = ?",  # noqa: S608
            (number,),
        ).fetchone()
        if counted != (len(keys),):
            raise _damaged()
    return keys[np.searchsorted(keys, after, side="right") :]


def add_members(
    connection: sqlite3.Connection,
    first_key: int,
    members: Mapping[int, Sequence[int] | Rows],
    *,
    predicted: bool = False,
) -> None:
    """Add new items: by class, the offsets of their keys from ``first_key``, ascending."""
    insert_rows(
        connection,
        "postings",
        (
            (number, int(predicted), first_key, np.asarray(offsets, dtype="<u4").tobytes())
            for number, offsets in members.items()
        ),
    )
    _count(connection, {number: len(each) for number, each in members.items()}, predicted)


def add_member(connection: sqlite3.Connection, number: int, key: int) -> None:
    """Give a class to an item that is stored already."""
    row = _row_before(connection, number, key, predicted=False)
    first, known = (key, np.empty(0, dtype=np.uint32)) if row is None else row
    if len(known) >= _ROW and first + known[-1] < key:
        first, known = key, known[:0]
    listed = np.union1d(known, np.uint32(key - first))
    _put_row(connection, number, False, first, listed)
    _count(connection, {number: len(listed) - len(known)}, predicted=False)


def remove_members(
    connection: sqlite3.Connection, members: Mapping[int, Sequence[int]], *, predicted: bool = False
) -> None:
    """Remove keys, by class, from postings and counts; keys that are not listed are ignored."""
    for number, keys in members.items():
        left = np.array(sorted(keys), dtype=np.int64)
        while len(left):
            row = _row_before(connection, number, int(left[-1]), predicted=predicted)
            if row is None:
                break
            first, known = row
            gone, left = left[left >= first] - first, left[left < first]
            _put_row(connection, number, predicted, first, known[~np.isin(known, gone)])
    _count(connection, {number: -len(keys) for number, keys in members.items()}, predicted)


def add_classes(connection: sqlite3.Connection, classes: Iterable[tuple[int, str, int]]) -> None:
    """Add classes that no item has yet: number, name, and the round they came with.

    Round 0 stands for a class that no round brought.
    """
    rows = list(classes)
    crcs = [row_crc(*row) for row in rows]
    connection.executemany(
        "INSERT INTO classes (number, name, round, crc) VALUES (?, ?, ?, ?)",
        ((*row, crc) for row, crc in zip(rows, crcs, strict=True)),
    )
    tally(connection, "classes", len(rows), sum(crcs))


def note_round(connection: sqlite3.Connection, numbers: Sequence[int], at: int) -> None:
    """Record that a round was the first with these classes, if no earlier one was."""
    rows = connection.execute(
        "SELECT number, name, crc FROM classes WHERE round = 0 "
        "AND number IN (SELECT value FROM json_each(?))",
        (json.dumps(list(numbers)),),
    ).fetchall()
    crcs = [row_crc(number, name, at) for number, name, _ in rows]
    connection.executemany(
        "UPDATE classes SET round = ?, crc = ? WHERE number = ?",
        ((at, crc, row[0]) for row, crc in zip(rows, crcs, strict=True)),
    )
    tally(connection, "classes", 0, sum(crcs) - sum(old for _, _, old in rows))


def _count(connection: sqlite3.Connection, more: Mapping[int, int], predicted: bool) -> None:
    column = "n_predicted" if predicted else "n"
    connection.executemany(
        f"UPDATE classes SET {column} = {column} + ? WHERE number = ?",  # noqa: S608
        ((n, number) for number, n in more.items()),
    )


def _row_before(
    connection: sqlite3.Connection, number: int, key: int, *, predicted: bool
) -> tuple[int, npt.NDArray[np.uint32]] | None:
    """Return the row of a class in which a key is, if it is listed."""
    row = connection.execute(
        "SELECT first_key, offsets FROM postings WHERE class = ? AND predicted = ? "
        "AND first_key <= ? ORDER BY first_key DESC LIMIT 1",
        (number, predicted, key),
    ).fetchone()
    return None if row is None else (row[0], _offsets(row[1]))


def _put_row(
    connection: sqlite3.Connection,
    number: int,
    predicted: bool,
    first: int,
    offsets: npt.NDArray[Any],
) -> None:
    """Replace a row of the postings, or remove it if nothing is left."""
    delete_rows(
        connection,
        "postings",
        "class = ? AND predicted = ? AND first_key = ?",
        [(number, predicted, first)],
    )
    if len(offsets):
        row = (number, int(predicted), first, offsets.astype("<u4").tobytes())
        insert_rows(connection, "postings", [row])


def _offsets(blob: Any) -> npt.NDArray[np.uint32]:
    if not isinstance(blob, bytes) or len(blob) % 4:
        raise _damaged()
    return np.frombuffer(blob, dtype="<u4")


def _damaged() -> FormatError:
    return FormatError(
        "the postings of a class are damaged; 'oasis check --repair' makes them anew"
    )
