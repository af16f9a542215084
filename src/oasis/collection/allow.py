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
from functools import reduce
from typing import Any

import numpy as np

from oasis.collection.catalog import Catalog, Keys
from oasis.collection.filters import Condition, Filter

_KEPT = 16
_BLOCK = 20_000
_JUDGED = 100_000
"""Distinct values of a field whose verdict is kept during a pass."""


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
                known = np.concatenate([known, self._scan(connection, where, last)])
        with self._guard:
            self._kept[where.text] = (top, known)
            self._kept.move_to_end(where.text)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return known

    def _scan(self, connection: sqlite3.Connection, where: Filter, last: int) -> Keys:
        parts = [self._having(connection, name, last) for name in where.labels]
        if where.fields:
            parts.append(self._passing(connection, where.fields, last))
        return reduce(lambda a, b: np.intersect1d(a, b, assume_unique=True), parts)

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
        # SQLite cuts the value out of the payload as it is written; Python judges it, so that
        # numbers are compared as they are everywhere else
        columns = ", ".join("payload -> ?" for _ in fields)
        paths = [_path(name) for name, _ in fields]
        if any(path is None for path in paths):
            return self._passing_slowly(connection, fields, last)
        cursor = connection.execute(
            f"SELECT key, {columns} FROM items WHERE key > ? AND payload IS NOT NULL ORDER BY key",  # noqa: S608
            (*paths, last),
        )
        judged: list[dict[str | None, bool]] = [{None: False} for _ in fields]
        passed: list[int] = []
        while rows := cursor.fetchmany(_BLOCK):
            for key, *values in rows:
                for (_, condition), known, text in zip(fields, judged, values, strict=True):
                    verdict = known.get(text)
                    if verdict is None:
                        verdict = condition.holds(json.loads(text))
                        if len(known) < _JUDGED:
                            known[text] = verdict
                    if not verdict:
                        break
                else:
                    passed.append(key)
        return np.array(passed, dtype=np.int64)

    def _passing_slowly(
        self, connection: sqlite3.Connection, fields: tuple[tuple[str, Condition], ...], last: int
    ) -> Keys:
        where = Filter(fields, ())
        rows: Any = connection.execute(
            "SELECT key, payload FROM items WHERE key > ? AND payload IS NOT NULL ORDER BY key",
            (last,),
        )
        passed = [key for key, payload in rows if where.matches(json.loads(payload), ())]
        return np.array(passed, dtype=np.int64)


def _path(name: str) -> str | None:
    """Return a JSON path to a top-level key, or None for a key that SQLite cannot quote.

    >>> _path("year"), _path('a "b"')
    ('$."year"', None)
    """
    plain = name and all(c not in '"\\' and c.isprintable() for c in name)
    return f'$."{name}"' if plain else None
