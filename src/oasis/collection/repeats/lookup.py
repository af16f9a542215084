"""Which items repeat a query: those whose fingerprints differ from the query's in a few bits.

All fingerprints of a collection are held in memory, 8 bytes an item and modality, from the first
query that needs them on. Two that differ in at most 11 of 64 bits differ in at most two bits of at
least one of four blocks of 16. So the items are sorted by each block, the 137 values of a block
that are so near are looked up, and only the items that have one are compared: one in 120. Items
that came since the last sorting are all compared.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array, Single
from oasis.collection.catalog.catalog import Catalog
from oasis.collection.catalog.commits import Keys, check_count
from oasis.collection.repeats.fingerprints import (
    Fingerprints,
    Prints,
    fault_of_damage,
    unpacked,
)
from oasis.hashers.chunk import check_features
from oasis.index.engine.postings import ranges

MOST_BITS = 11
"""Bits in which the fingerprints of a repeat may differ: those of a picture that was saved again,
cropped by a tenth, turned or made brighter mostly differ in fewer, those of the nearest other of
20,000 pictures in 12 to 16."""

_BLOCK_BITS = 2
"""Bits in which one of four blocks differs at most, where all differ in `MOST_BITS`."""

_BLOCKS = 4
_UNSORTED = 4096
"""Items, or an eighth of all, that may wait to be sorted."""
_AT_ONCE = 20_000


class Repeats(NamedTuple):
    """The items that repeat a query: keys, ascending, and how many bits of theirs differ.

    In the modality in which most do.
    """

    keys: Keys
    distances: npt.NDArray[np.int64]


def unlike(repeats: Repeats, keys: Keys) -> Array:
    """Return how unlike the query items are, by ascending keys: 0 for the same, 1 for no repeat.

    ``(b / 12)^2`` for a repeat that differs in b bits.

    >>> unlike(Repeats(np.array([3, 7]), np.array([0, 6])), np.array([1, 3, 7])).tolist()
    [1.0, 0.0, 0.25]
    """
    factors = np.ones(len(keys))
    at = np.minimum(np.searchsorted(keys, repeats.keys), max(len(keys) - 1, 0))
    found = keys[at] == repeats.keys if len(keys) else np.zeros(len(at), dtype=np.bool_)
    factors[at[found]] = np.square(repeats.distances[found] / (MOST_BITS + 1))
    return factors


def at_repeats(evidence: Single, repeats: Sequence[Repeats]) -> Single:
    """Return the evidence of queries, at least ``1 - (b / 12)^2`` with b bits to the nearest."""
    most = MOST_BITS + 1
    nearest = np.array([each.distances.min(initial=most) for each in repeats], dtype=np.float32)
    raised: Single = np.maximum(evidence, 1 - np.square(nearest / np.float32(most)))
    return raised


class RepeatLookup:
    """Finds the items that repeat a query; any thread may ask.

    Parameters
    ----------
    catalog : of the collection, whose rows have the fingerprints
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._changing = threading.Lock()
        self._known = _Known(None, np.empty((0, 0), dtype=np.uint64), ())

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
        return self._stored([known.like(each, next_key) for each in known.function.of(checked)])

    def _stored(self, found: list[Repeats]) -> list[Repeats]:
        """Return the repeats that were not deleted: memory keeps the fingerprints of all keys."""
        keys = [key for each in found for key in each.keys.tolist()]
        if not keys:
            return found
        with self._catalog.reading() as connection:
            there = {key for (key,) in self._catalog.rows(connection, "key", keys)}
        stored = []
        for each in found:
            kept = np.array([key in there for key in each.keys.tolist()], dtype=np.bool_)
            stored.append(Repeats(each.keys[kept], each.distances[kept]))
        return stored

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
            known = _Known(function, np.empty((0, len(function.names)), dtype=np.uint64), ())
        if not function.names:
            return known
        head = self._catalog.head(connection)
        start, stop, n = len(known.prints), head.next_key, 0
        prints = np.zeros((stop, len(function.names)), dtype=np.uint64)
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
        n_sorted = known.sorted[0].n if known.sorted else 0
        if stop - n_sorted > max(_UNSORTED, stop // 8):
            return _Known(function, prints, tuple(_Sorted.of(column) for column in prints.T))
        return _Known(function, prints, known.sorted)


class _Sorted(NamedTuple):
    """The first n items by each block of their fingerprints in one modality.

    Attributes
    ----------
    orders : of each block, the keys in the order of its values
    starts : of each block, where the keys with each of its values begin, (65537,)
    """

    n: int
    orders: list[npt.NDArray[np.int32]]
    starts: list[npt.NDArray[np.int32]]

    @classmethod
    def of(cls, prints: npt.NDArray[np.uint64]) -> _Sorted:
        orders, starts = [], []
        for block in _blocks(prints).T:
            orders.append(np.argsort(block, kind="stable").astype(np.int32))
            counts = np.bincount(block, minlength=1 << 16)
            starts.append(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
        return cls(len(prints), orders, starts)

    def near(self, value: np.uint64) -> Keys:
        """Return the keys of the items of which a block differs in few bits."""
        found = []
        for block, order, start in zip(
            _blocks(np.array([value]))[0], self.orders, self.starts, strict=True
        ):
            values = (block ^ _NEAR).astype(np.int64)
            begin = start[values].astype(np.int64)
            found.append(order[ranges(begin, start[values + 1] - begin)])
        return np.concatenate(found).astype(np.int64)


class _Known(NamedTuple):
    """The fingerprints of a collection's items: row k is that of key k, 0 where there is none."""

    function: Fingerprints | None
    prints: Prints
    sorted: tuple[_Sorted, ...]

    def like(self, query: npt.NDArray[np.uint64], next_key: int) -> Repeats:
        """Return the items that repeat a query with these fingerprints, (m,)."""
        columns = np.flatnonzero(query)
        if not len(columns):
            return NO_REPEATS
        first = int(columns[0])
        n_sorted = 0
        keys = np.empty(0, dtype=np.int64)
        if self.sorted:
            n_sorted = self.sorted[first].n
            keys = self.sorted[first].near(query[first])
        keys = np.concatenate([keys, np.arange(n_sorted, len(self.prints))])
        keys = keys[keys < next_key]
        theirs = self.prints[keys][:, columns]
        distances = np.bitwise_count(theirs ^ query[columns]).max(axis=1).astype(np.int64)
        same = (distances <= MOST_BITS) & theirs.all(axis=1)
        keys, distances = keys[same], distances[same]
        # several blocks of an item may be near
        order = np.argsort(keys, kind="stable")
        keys, distances = keys[order], distances[order]
        new = np.ones(len(keys), dtype=np.bool_)
        new[1:] = keys[1:] != keys[:-1]
        return Repeats(keys[new], distances[new])


_NEAR = np.array(
    [
        sum(1 << bit for bit in bits)
        for n_bits in range(_BLOCK_BITS + 1)
        for bits in combinations(range(16), n_bits)
    ],
    dtype=np.uint16,
)
"""The differences of two blocks that are near, (137,)."""

NO_REPEATS = Repeats(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def _blocks(prints: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint16]:
    """Return the blocks (n, 4) of 16 bits of fingerprints (n,)."""
    return prints.astype("<u8").view("<u2").reshape(-1, _BLOCKS)
