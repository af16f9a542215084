"""Which items have a class, or are predicted to have it: a row of ``members`` for each; and counts.

Members and counts are derived from the items' rows and can be rebuilt.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from itertools import chain, repeat

import numpy as np

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


def change_members(
    connection: sqlite3.Connection,
    keys: Sequence[int],
    sets: Sequence[Sequence[int]],
    *,
    predicted: bool,
    adds: bool,
) -> None:
    """Add items, given by key and numbers of classes, to their classes, or remove them there."""
    sizes = np.fromiter(map(len, sets), dtype=np.int64, count=len(sets))
    numbers = np.fromiter(chain.from_iterable(sets), dtype=np.int64, count=sizes.sum())
    if not len(numbers):
        return
    order = np.argsort(numbers, kind="stable")  # members of a class are stored beside each other
    of = np.repeat(keys, sizes)[order]
    statement = (
        "INSERT INTO members (class, key, predicted) VALUES (?, ?, ?)"
        if adds
        else "DELETE FROM members WHERE class = ? AND key = ? AND predicted = ?"
    )
    rows = zip(numbers[order].tolist(), of.tolist(), repeat(predicted, len(of)), strict=True)
    connection.executemany(statement, rows)
    column, sign = "n_predicted" if predicted else "n", 1 if adds else -1
    distinct, n = np.unique(numbers, return_counts=True)
    connection.executemany(
        f"UPDATE classes SET {column} = {column} + ? WHERE number = ?",  # noqa: S608
        zip((sign * n).tolist(), distinct.tolist(), strict=True),
    )


def add_classes(connection: sqlite3.Connection, first: int, names: Sequence[str]) -> None:
    """Add classes that no item has yet, numbered from ``first`` on.

    Their round is 0, that of a class that no round brought.
    """
    rows = [(number, name, 0, row_crc(number, name, 0)) for number, name in enumerate(names, first)]
    connection.executemany("INSERT INTO classes (number, name, round, crc) VALUES (?,?,?,?)", rows)
    tally(connection, "classes", len(rows), sum(row[-1] for row in rows))


def note_round(connection: sqlite3.Connection, numbers: Iterable[int], at: int) -> None:
    """Record that a round was the first with these classes, if no earlier one was."""
    rows = connection.execute(
        "SELECT number, name, crc FROM classes WHERE round = 0 "
        "AND number IN (SELECT value FROM json_each(?))",
        (json.dumps(list(numbers)),),
    ).fetchall()
    for number, name, old in rows:
        crc = row_crc(number, name, at)
        connection.execute(
            "UPDATE classes SET round = ?, crc = ? WHERE number = ?", (at, crc, number)
        )
        tally(connection, "classes", 0, crc - old)
