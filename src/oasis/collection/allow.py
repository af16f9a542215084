"""Allow-lists: the keys of all items that pass a filter.

A list is made by one pass over the items (about a second for a million; classes come from their
postings, in milliseconds), kept, and afterwards only extended by the items that are new. A value is
judged once, however often it occurs.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterable
from functools import reduce

import numpy as np

from oasis.collection.catalog import Catalog, Keys
from oasis.collection.filters import Condition, Filter

_KEPT = 16
_VERDICTS = 100_000
"""Distinct values of a field whose verdict is kept during a pass."""
_FEW = 10
"""Where a class has less than one item in so many, only its items' payloads are read."""


class AllowLists:
    """Allow-lists of the filters used last, for one catalog; any thread may ask."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._kept: OrderedDict[str, tuple[int, Keys]] = OrderedDict()
        self._guard = threading.Lock()

    def is_kept(self, where: Filter) -> bool:
        """Return whether most of the work for a filter is done already."""
        with self._guard:
            return where.text in self._kept

    def keys(self, where: Filter) -> Keys:
        """Return the keys, ascending, of all committed items that pass.

        Items that were deleted after a list was made may still be in it.
        """
        with self._guard:
            last, known = self._kept.get(where.text, (0, np.empty(0, dtype=np.int64)))
        with self._catalog.reading() as connection:
            top = self._catalog.head(connection).next_key - 1
            if top > last:
                known = np.concatenate([known, self._scan(connection, where, last, top)])
        with self._guard:
            self._kept[where.text] = (top, known)
            self._kept.move_to_end(where.text)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return known

    def _scan(self, connection: sqlite3.Connection, where: Filter, last: int, top: int) -> Keys:
        parts = [self._having(connection, name, last) for name in where.labels]
        if not where.fields:
            return reduce(_common, parts)
        if parts:
            having = reduce(_common, parts)
            if len(having) * _FEW < top - last:
                rows = self._catalog.rows(connection, "key, payload", having.tolist())
                return np.sort(_judged(rows, where.fields))
            return _common(having, self._passing(connection, where.fields, last))
        return self._passing(connection, where.fields, last)

    def _having(self, connection: sqlite3.Connection, name: str, last: int) -> Keys:
        """Return the keys beyond ``last`` of the items that have a class."""
        rows = connection.execute(
            "SELECT first_key, offsets FROM postings WHERE first_key > ? AND class = "
            "(SELECT number FROM classes WHERE name = ?) ORDER BY first_key",
            (last, name),
        )
        lists = [
            first + np.frombuffer(offsets, dtype="<u4").astype(np.int64) for first, offsets in rows
        ]
        return np.concatenate([np.empty(0, dtype=np.int64), *lists])

    def _passing(
        self, connection: sqlite3.Connection, fields: tuple[tuple[str, Condition], ...], last: int
    ) -> Keys:
        """Return the keys beyond ``last`` of the items whose payload meets every condition."""
        # SQLite cuts the value out of the payload as it is written and Python judges it, so that
        # numbers are compared as they are everywhere else; a row that fails never leaves SQLite
        paths = [_path(name) for name, _ in fields]
        if None in paths:
            rows = connection.execute(
                "SELECT key, payload FROM items WHERE key > ? ORDER BY key", (last,)
            )
            return _judged(rows, fields)
        for number, (_, condition) in enumerate(fields):
            verdicts = _Verdicts(condition)
            connection.create_function(f"judge{number}", 1, verdicts.__getitem__)
        tests = " AND ".join(f"judge{number}(payload -> ?)" for number in range(len(fields)))
        found = connection.execute(
            f"SELECT key FROM items WHERE key > ? AND {tests} ORDER BY key",  # noqa: S608
            (last, *paths),
        )
        return np.array([key for (key,) in found], dtype=np.int64)


class _Verdicts(dict[str | None, bool]):
    """Whether a value, as JSON text, meets a condition; None stands for a field that is missing."""

    def __init__(self, condition: Condition) -> None:
        super().__init__({None: False})
        self._condition = condition

    def __missing__(self, text: str) -> bool:
        verdict = self._condition.holds(json.loads(text))
        if len(self) < _VERDICTS:
            self[text] = verdict
        return verdict


def _judged(
    rows: Iterable[tuple[int, str | None]], fields: tuple[tuple[str, Condition], ...]
) -> Keys:
    """Return the keys of the rows whose payload meets every condition."""
    where = Filter(fields, ())
    passed = [key for key, text in rows if text and where.matches(json.loads(text), ())]
    return np.array(passed, dtype=np.int64)


def _common(a: Keys, b: Keys) -> Keys:
    return np.intersect1d(a, b, assume_unique=True)


def _path(name: str) -> str | None:
    """Return a JSON path to a top-level key, or None for a key that SQLite cannot quote.

    >>> _path("year"), _path('a "b"')
    ('$."year"', None)
    """
    plain = name and all(c not in '"\\' and c.isprintable() for c in name)
    return f'$."{name}"' if plain else None
