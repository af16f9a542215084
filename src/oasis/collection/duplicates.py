"""Which items repeat a query, or each other: those whose fingerprints differ in a few bits.

All fingerprints of a collection are held in memory, 8 bytes an item and modality, from the first
query that needs them on. A query is compared with all of them: 0.05 ms for 100,000 items.
"""

from __future__ import annotations

import sqlite3
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy

from oasis.arrays import Array, Matrix, Single, in_range, is_sparse
from oasis.collection.catalog import Catalog
from oasis.collection.rows import Keys, check_count
from oasis.errors import FormatError
from oasis.model.threads import in_threads

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

    @property
    def sameness(self) -> Array:
        """How likely each is the same: ``1 - (b / 12)^4`` where b bits differ.

        >>> Repeats(np.array([3, 7]), np.array([0, 6])).sameness.tolist()
        [1.0, 0.9375]
        """
        same: Array = 1 - (self.distances / (MOST_BITS + 1)) ** 4
        return same


NO_REPEATS = Repeats(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


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

    def find(self, X: Mapping[str, Matrix], next_key: int) -> list[Repeats]:
        """Return the items with keys below ``next_key`` that repeat each of the checked queries.

        An item repeats a query if its features are the same, or nearly so, in every modality that
        the query has.
        """
        known = self._having(next_key)
        if known.function is None:
            n = next(iter(X.values())).shape[0]
            return [NO_REPEATS] * n
        found = [known.like(each, 0, next_key) for each in known.function.of(X)]
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
        record = self._catalog.meta(connection, "fingerprints")
        if record is None:
            return known
        function = Fingerprints.from_bytes(record)  # it may have grown
        if known.function is None or not function.names:
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


Prints: TypeAlias = npt.NDArray[np.uint64]
"""Fingerprints of items, (n, m), a column for each modality; 0 where an item lacks it."""

BITS = 64
_ODD = np.uint64(0x9E3779B97F4A7C15)

_BLOCK = 1024  # rows at a time

LEAST_FEATURES = 16
"""A modality with fewer features has no fingerprint: different items are too often alike in it."""


class Fingerprints:
    """The function from features to fingerprints, 64 bits in each modality, of a collection.

    Bit i is the sign of ``(x - m) h_i``, with x the features at unit length, m their mean over the
    first chunk that has some (0 for sparse ones), and h_i a random direction that depends on name
    and width of the modality alone. Features at an angle a differ in ``64 a / pi`` bits on average.
    A code of 256 bits has about fifty for the content of a picture, which thousands of pictures may
    share; so fingerprints identify it, and serve nothing else.

    Parameters
    ----------
    means : modality name -> mean (d,) of its features at unit length, or zeros

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = {"image": rng.random((100, 32)), "price": rng.random((100, 1))}
    >>> prints = Fingerprints.of_chunk(X)
    >>> prints.names, prints.of({"image": 2 * X["image"][:1]}) == prints.of(X)[:1]
    (['image'], array([[ True]]))
    """

    def __init__(self, means: Mapping[str, Single]) -> None:
        self._means = {name: means[name] for name in sorted(means)}

    @classmethod
    def of_chunk(cls, X: Mapping[str, Matrix]) -> Fingerprints:
        """Return the function for a collection whose first chunk is X."""
        return cls(
            {name: _mean(matrix) for name, matrix in X.items() if matrix.shape[1] >= LEAST_FEATURES}
        )

    def grown(self, X: Mapping[str, Matrix]) -> Fingerprints:
        """Return the function that has the means of modalities that no item had before X."""
        new = Fingerprints.of_chunk(X)._means
        return Fingerprints({name: new.get(name, mean) for name, mean in self._means.items()})

    @property
    def names(self) -> list[str]:
        """The modalities that have fingerprints, in the order of the columns."""
        return list(self._means)

    def of(self, X: Mapping[str, Matrix]) -> Prints:
        """Return the fingerprints (n, m) of checked rows; a modality may be missing.

        Cost: a product of n x d x 64 for each modality.
        """
        n = next(iter(X.values())).shape[0]
        prints = np.zeros((n, len(self._means)), dtype=np.uint64)
        for column, (name, mean) in enumerate(self._means.items()):
            if name in X:
                prints[:, column] = _prints(name, X[name], mean)
        return prints

    def packed(self, X: Mapping[str, Matrix], rows: slice, first_key: int) -> list[bytes | None]:
        """Return `packed` fingerprints of some of checked rows, whose keys begin with the first."""
        some = {name: matrix[rows] for name, matrix in X.items()}
        return packed(self.of(some), first_key + rows.start)

    def to_bytes(self) -> bytes:
        """Return what `from_bytes` reads."""
        return safetensors.numpy.save(dict(self._means))

    @classmethod
    def from_bytes(cls, data: bytes) -> Fingerprints:
        """Return the function that was saved."""
        try:
            means = safetensors.numpy.load(data)
        except (TypeError, safetensors.SafetensorError) as error:
            raise FormatError(f"the record of fingerprints cannot be read: {error}") from error
        return cls(means)


def blocks_of(n: int) -> list[slice]:
    """Return blocks of n rows: they are read twice, and the second time are in the cache.

    >>> blocks_of(1500)
    [slice(0, 1024, None), slice(1024, 1500, None)]
    """
    return [slice(at, min(at + _BLOCK, n)) for at in range(0, n, _BLOCK)]


def packed(prints: Prints, first_key: int) -> list[bytes | None]:
    """Return the fingerprints of items as their rows in the catalog keep them; None without any.

    The keys of the items follow each other. 8 bytes for each modality, and 2 for a checksum of
    these and the key: the checksum of a row also covers its payload, which is not read with them.

    >>> rows = packed(np.array([[1, 0], [0, 0]], dtype=np.uint64), first_key=7)
    >>> len(rows[0]), unpacked(rows, np.array([7, 8]), 2).tolist()
    (18, [[1, 0], [0, 0]])
    """
    n, m = prints.shape
    if not m:
        return [None] * n
    rows = np.empty((n, 8 * m + 2), dtype=np.uint8)
    rows[:, :-2] = prints.astype("<u8").view(np.uint8)
    rows[:, -2:] = _checks(prints, np.arange(first_key, first_key + n))[:, None].view(np.uint8)
    data, size = rows.tobytes(), rows.shape[1]
    return [data[at : at + size] for at in range(0, len(data), size)]


def unpacked(rows: Sequence[bytes | None], keys: npt.NDArray[np.int64], m: int) -> Prints:
    """Return the fingerprints (n, m) of items from their rows, or refuse those that are damaged."""
    size = 8 * m + 2
    if all(isinstance(row, bytes) and len(row) == size for row in rows):
        data = np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(-1, size)  # type: ignore[arg-type]
        prints = np.ascontiguousarray(data[:, :-2]).view("<u8").astype(np.uint64)
        checks = np.ascontiguousarray(data[:, -2:]).view("<u2")[:, 0]
        if (checks == _checks(prints, keys)).all():
            return prints
    raise fault_of_damage()


def fault_of_damage() -> FormatError:
    """Return the error of fingerprints that are not as they were written."""
    return FormatError(
        "the catalog is damaged: fingerprints of items cannot be read; 'oasis check' lists all "
        "damage"
    )


def _checks(prints: Prints, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.uint16]:
    """Return a checksum of each item's fingerprints and key, (n,)."""
    mixed = keys.astype(np.uint64) * _ODD
    for column in prints.T:
        mixed = ((mixed ^ column) * _ODD) ^ (mixed >> np.uint64(29))
    return (mixed >> np.uint64(48)).astype("<u2")


def _prints(name: str, X: Matrix, mean: Single) -> npt.NDArray[np.uint64]:
    planes = _planes(name, X.shape[1])
    centre = mean @ planes
    prints = np.empty(X.shape[0], dtype=np.uint64)

    def work(block: slice) -> None:
        rows, scale = in_range(X[block])
        values = np.asarray(rows @ planes) * scale[:, None] - centre
        bits = np.packbits(values > 0, axis=1, bitorder="little")
        found = bits.view("<u8")[:, 0].astype(np.uint64)
        found[found == 0] = 1  # 0 stands for no features
        found[scale == 0] = 0
        prints[block] = found

    in_threads(work, blocks_of(len(prints)))
    return prints


def _mean(X: Matrix) -> Single:
    if is_sparse(X):
        return np.zeros(X.shape[1], dtype=np.float32)
    rows, scale = in_range(X)
    # one row more, of zeros: the mean of a single row would leave nothing of it
    n = int(np.count_nonzero(scale)) + 1
    mean: Single = (np.asarray(scale @ rows) / n).astype(np.float32)
    return mean


@lru_cache(maxsize=16)
def _planes(name: str, d: int) -> Single:
    """Return the directions (d, 64) of a modality: the same on every machine."""
    rng = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode(errors="surrogatepass"))))
    return rng.standard_normal((d, BITS), dtype=np.float32)
