"""Which items repeat a query, or each other: those whose fingerprints differ in a few bits.

All fingerprints of a collection are held in memory, 8 bytes an item and modality, from the first
query that needs them on. A query is compared with all of them: 0.05 ms for 100,000 items.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array
from oasis.collection.catalog import Catalog
from oasis.collection.repeats.fingerprints import (
    Fingerprints,
    Prints,
    fault_of_damage,
    unpacked,
)
from oasis.collection.rows import Keys, check_count
from oasis.hashers.chunk import check_features

MOST_BITS = 11
"""Bits in which the fingerprints of a repeat may differ: those of a picture that was saved again,
cropped by a tenth, turned or made brighter mostly differ in fewer, those of the nearest other of
20,000 pictures in 12 to 16."""

_AT_ONCE = 20_000


class Repeats(NamedTuple):
    """The items that repeat a query: keys, ascending, and how many bits of theirs differ.

    In the modality in which most do.
    """

    keys: Keys
    distances: npt.NDArray[np.int64]


NO_REPEATS = Repeats(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def unlike(repeats: Repeats, keys: Keys) -> Array:
    """Return how unlike the query items are, by ascending keys: 0 for the same, 1 for no repeat.

    ``(b / 12)^4`` for a repeat that differs in b bits.

    >>> unlike(Repeats(np.array([3, 7]), np.array([0, 6])), np.array([1, 3, 7])).tolist()
    [1.0, 0.0, 0.0625]
    """
    factors = np.ones(len(keys))
    at = np.minimum(np.searchsorted(keys, repeats.keys), max(len(keys) - 1, 0))
    found = keys[at] == repeats.keys if len(keys) else np.zeros(len(at), dtype=np.bool_)
    factors[at[found]] = (repeats.distances[found] / (MOST_BITS + 1)) ** 4
    return factors


class _Known(NamedTuple):
    """The fingerprints of a collection's items: row k is that of key k, 0 where there is none."""

    function: Fingerprints | None
    prints: Prints

    def like(self, query: npt.NDArray[np.uint64], start: int, stop: int) -> Repeats:
        """Return the items with keys from start to stop that repeat these fingerprints, (m,)."""
        columns = np.flatnonzero(query).tolist()
        if not columns:
            return NO_REPEATS
        first, *others = columns
        apart = np.bitwise_count(self.prints[start:stop, first] ^ query[first])
        near = np.flatnonzero(apart <= MOST_BITS)
        keys, distances = start + near, apart[near].astype(np.int64)
        keys, distances = self._having(keys, distances, first)
        for column in others:
            apart = np.bitwise_count(self.prints[keys, column] ^ query[column])
            near = np.flatnonzero(apart <= MOST_BITS)
            keys, distances = keys[near], np.maximum(distances[near], apart[near])
            keys, distances = self._having(keys, distances, column)
        return Repeats(keys, distances)

    def _having(
        self, keys: Keys, distances: npt.NDArray[np.int64], column: int
    ) -> tuple[Keys, npt.NDArray[np.int64]]:
        """Return those of the keys whose items have a fingerprint in this modality."""
        has = self.prints[keys, column] != 0
        return keys[has], distances[has]


class RepeatLookup:
    """Finds the items that repeat a query; any thread may ask.

    Parameters
    ----------
    catalog : of the collection, whose rows have the fingerprints
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._changing = threading.Lock()
        self._known = _Known(None, np.empty((0, 0), dtype=np.uint64))

    def find(self, X: Mapping[str, Any], widths: Mapping[str, int], next_key: int) -> list[Repeats]:
        """Return the items with keys below ``next_key`` that repeat each of the queries.

        An item repeats a query if its features are the same, or nearly so, in every modality that
        the query has.
        """
        checked = check_features(X, widths)
        known = self._having(next_key)
        if known.function is None:
            n = next(iter(checked.values())).shape[0]
            return [NO_REPEATS] * n
        found = [known.like(each, 0, next_key) for each in known.function.of(checked)]
        if not any(len(each.keys) for each in found):
            return found
        # memory keeps the fingerprints of deleted items too
        with self._catalog.reading() as connection:
            keys = np.concatenate([each.keys for each in found]).tolist()
            there = [key for (key,) in self._catalog.rows(connection, "key", keys)]
        stay = [np.isin(each.keys, there) for each in found]
        return [
            Repeats(each.keys[kept], each.distances[kept])
            for each, kept in zip(found, stay, strict=True)
        ]

    def groups(self, progress: Callable[[int], object] | None = None) -> list[list[int]]:
        """Return the keys of items that repeat each other, in groups of two and more, oldest first.

        Two items are in one group if they have the same modalities and repeat each other in all of
        them, or if both repeat a third one. Cost: n^2 / 2 comparisons, some seconds for 100,000
        items and minutes for a million.
        """
        with self._catalog.reading() as connection:
            next_key = self._catalog.head(connection).next_key
            keys = self._catalog.all_keys(connection)
        known = self._having(next_key)
        if known.function is None:
            return []
        first = {int(key): int(key) for key in keys}  # of each item, an older one of its group
        for n, key in enumerate(first, 1):
            own = known.prints[key]
            found = known.like(own, key + 1, next_key)
            same = ((known.prints[found.keys] != 0) == (own != 0)).all(axis=1)
            for other in found.keys[same].tolist():
                if other in first:
                    a, b = _oldest(first, key), _oldest(first, other)
                    first[max(a, b)] = min(a, b)
            if progress is not None and (n % 1000 == 0 or n == len(first)):
                progress(n % 1000 or 1000)
        made: dict[int, list[int]] = {}
        for key in first:
            made.setdefault(_oldest(first, key), []).append(key)
        return [group for group in made.values() if len(group) > 1]

    def has(self, next_key: int) -> bool:
        """Return whether the fingerprints of all items below a key are in memory."""
        known = self._known
        without = known.function is not None and not known.function.names
        return without or len(known.prints) >= next_key

    def _having(self, next_key: int) -> _Known:
        """Return the fingerprints of all items below a key; those that are new are read."""
        known = self._known
        if len(known.prints) >= next_key:
            return known
        with self._changing:
            known = self._known
            if len(known.prints) < next_key:
                with self._catalog.reading() as connection:
                    known = self._known = self._read(connection, known)
        return known

    def _read(self, connection: sqlite3.Connection, known: _Known) -> _Known:
        function = known.function
        if function is None:
            record = self._catalog.meta(connection, "fingerprints")
            if record is None:
                return known
            function = Fingerprints.from_bytes(record)
            known = _Known(function, np.empty((0, len(function.names)), dtype=np.uint64))
        if not function.names:
            return known
        head = self._catalog.head(connection)
        start, stop, n = len(known.prints), head.next_key, 0
        # columns lie together, as a query passes over one
        prints = np.zeros((stop, len(function.names)), dtype=np.uint64, order="F")
        prints[:start] = known.prints
        cursor = connection.execute("SELECT key, prints FROM items WHERE key >= ?", (start,))
        while rows := cursor.fetchmany(_AT_ONCE):
            keys = np.array([key for key, _ in rows], dtype=np.int64)
            if not start <= keys.min() <= keys.max() < stop:
                raise fault_of_damage()
            prints[keys] = unpacked([each for _, each in rows], keys, prints.shape[1])
            n += len(keys)
        if not start:
            check_count(connection, "items", n)
        return _Known(function, prints)


def _oldest(first: dict[int, int], key: int) -> int:
    while first[key] != key:
        first[key] = first[first[key]]
        key = first[key]
    return key
