"""Which items have a class, or are predicted to have it: a row of ``members`` for each; and counts.

Members and counts are derived from the items' rows and can be rebuilt.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from oasis.arrays import Rows
from oasis.collection.rows import Keys, row_crc, tally
from oasis.errors import FormatError

SCHEMA = """
CREATE TABLE members (
    class INTEGER, predicted INTEGER, key INTEGER, PRIMARY KEY (class, predicted, key)
) WITHOUT ROWID;
"""


def class_members(
    connection: sqlite3.Connection, number: int, most: int = -1, *, predicted: bool = False
) -> Keys:
    """Return the keys, ascending, of the oldest items that were given a class; -1 for all.

    ``predicted``: of those for which it is predicted.
    """
    rows = connection.execute(
        "SELECT key FROM members WHERE class = ? AND predicted = ? ORDER BY key LIMIT ?",
        (number, predicted, most),
    )
    return np.array([key for (key,) in rows], dtype=np.int64)


def check_members(connection: sqlite3.Connection, names: Iterable[str]) -> None:
    """Raise `FormatError` where classes have not as many members as they count."""
    for name in names:
        row = connection.execute(
            "SELECT n, (SELECT count(*) FROM members WHERE class = number AND predicted = 0) "
            "FROM classes WHERE name = ?",
            (name,),
        ).fetchone()
        if row is not None and row[0] != row[1]:
            raise FormatError(
                "the members of a class are damaged; 'oasis check --repair' makes them anew"
            )


def add_members(
    connection: sqlite3.Connection,
    first_key: int,
    members: Mapping[int, Sequence[int] | Rows],
    *,
    predicted: bool = False,
) -> None:
    """Add items: by class, the offsets of their keys from ``first_key``."""
    connection.executemany(
        f"INSERT INTO members VALUES (?, {int(predicted)}, ?)",  # noqa: S608
        (
            (number, key)
            for number, offsets in members.items()
            for key in (first_key + np.asarray(offsets, dtype=np.int64)).tolist()
        ),
    )
    _count(connection, {number: len(each) for number, each in members.items()}, predicted)


def remove_members(
    connection: sqlite3.Connection, members: Mapping[int, Sequence[int]], *, predicted: bool = False
) -> None:
    """Remove items from classes, by class their keys."""
    connection.executemany(
        f"DELETE FROM members WHERE class = ? AND predicted = {int(predicted)} AND key = ?",  # noqa: S608
        ((number, key) for number, keys in members.items() for key in keys),
    )
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
