"""Scores of real-valued queries: exact ones, and candidates by table look-up with bounds.

The score of a code is the inner product of query and signs, computed in float64 and rounded to
float32 once. A scan looks scores up in less precision, and what it may be off by is known before:
a code of n_bits bits is n_bits / 4 nibbles, and its score is the sum of one table entry per nibble;
table m has the 16 inner products of four query values with four signs. faiss's `IndexPQFastScan`
rounds all tables of a query to 8 bits with one common step, adds them up for 32 codes at a time in
SIMD registers, and returns the codes with the largest sums. It keeps a copy of the codes in an
order of its own. Few codes are looked up without one, in float32, one byte at a time.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array
from oasis.codes import Codes, unpack
from oasis.errors import InputError

Ints = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]

NIBBLES = unpack(np.arange(16, dtype=np.uint8)[:, None])[:, :4].T.astype(np.float64, order="C")
"""(4, 16): the four signs that four bits stand for."""

BLUR = 2.0**-8
"""Slack for float32 arithmetic in faiss's tables, in steps of the rounding; it takes under 2e-4."""

_TABLES = 16
"""Queries whose byte tables are made at a time: about half a megabyte at 128 bits."""

_CODES = 4096
"""Codes that are scored at a time: their table entries stay in the cache."""

_LARGEST = float(np.finfo(np.float32).max)


class LookUp(NamedTuple):
    """Queries as a scan takes them, in units of `Projections.scaled`.

    Attributes
    ----------
    values : (q, n_bits) float32
    rounding : (q,)
        Largest error of a sum of table entries that faiss rounded to 8 bits.
    slack : (q,)
        Largest error of a sum in float32.
    excess : (q,)
        Largest difference between a score of the given query and one of ``values``, which may have
        been cut; for codes that reach the floor only, see `Projections.look_up`.
    """

    values: Scores
    rounding: Array
    slack: Array
    excess: Array


@dataclass(frozen=True)
class Projections:
    """Real-valued queries, scaled for scans in float32.

    Attributes
    ----------
    values : (q, n_bits) float64, as given
    scaled : (q, n_bits) float32: values * scale
    scale : (q,) float64, a power of two, so that scaling is exact
    half : (q, n_bits / 4): half of largest less smallest sum of four signed values of ``scaled``
    slack : (q,)
        Largest error of a float32 sum over ``scaled``, the final rounding included.
    """

    values: Array
    scaled: Scores
    scale: Array
    half: Array
    slack: Array

    @classmethod
    def of(cls, projections: npt.NDArray[Any]) -> Projections:
        """Prepare (q, n_bits) real numbers, or refuse those that have no finite score."""
        values = projections.astype(np.float64)
        size = np.abs(values)
        total = np.add.reduce(size, axis=1)
        if not (total <= _LARGEST).all():
            raise InputError(
                f"projection {int(np.argmax(~(total <= _LARGEST)))} holds NaN, infinity or numbers "
                "too large for float32; expected finite numbers"
            )
        scale = np.ldexp(1.0, np.minimum(-np.frexp(np.maximum.reduce(size, axis=1))[1], 1000))
        half = np.add.reduce(size.reshape(len(size), -1, 4), axis=2) * scale[:, None]
        # the sum of n rounded terms, the rounding of the terms and that of the final score
        slack = (2.0**-23 * size.shape[1] * total + 2.0**-149) * scale
        return cls(values, (values * scale[:, None]).astype(np.float32), scale, half, slack)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, which: Ints) -> Projections:
        return Projections(
            self.values[which],
            self.scaled[which],
            self.scale[which],
            self.half[which],
            self.slack[which],
        )

    def bits(self, start: int, stop: int) -> Projections:
        """Return some bits of the queries, multiples of 8; the scale is kept."""
        return Projections(
            self.values[:, start:stop],
            self.scaled[:, start:stop],
            self.scale,
            self.half[:, start // 4 : stop // 4],
            self.slack,
        )

    def look_up(self, floor: Array | None) -> LookUp:
        """Return the queries for a scan, cut where a floor allows it.

        With ``total = sum_i |q_i|``, a code that disagrees with the sign of q_i has a score of
        ``total - 2 |q_i|`` at most. Where that is below the floor, all codes that matter agree on
        bit i: its value may be cut, and their scores fall by the same amount. Values are cut at
        the norm of the others, so that codes which disagree stay behind most of the others. Then
        faiss rounds in finer steps.

        Parameters
        ----------
        floor : (q,), or None
            A score that enough codes reach, in units of ``scaled``; -inf where none is known.
        """
        plain = LookUp(self.scaled, rounding(self.half), self.slack, np.zeros(len(self)))
        if floor is None:
            return plain
        size = np.abs(self.scaled.astype(np.float64))
        forced = 2 * size > (size.sum(axis=1) - floor + self.slack)[:, None]
        if not forced.any():
            return plain
        limit = np.sqrt(np.where(forced, 0.0, size**2).sum(axis=1)).astype(np.float32)[:, None]
        cut = forced & (size > limit) & (limit > 0)
        values = np.where(cut, np.copysign(limit, self.scaled), self.scaled)
        left = np.abs(values.astype(np.float64))
        # sums in float32 are off in proportion to what is left, and ``scaled`` is rounded once
        slack = 2.0**-23 * size.shape[1] * left.sum(axis=1) + self.slack / size.shape[1]
        half = left.reshape(len(left), -1, 4).sum(axis=2)
        changed = cut.any(axis=1)
        return LookUp(
            values,
            np.where(changed, rounding(half), plain.rounding),
            np.where(changed, slack, self.slack),
            np.where(changed, (size - left).sum(axis=1), 0.0),
        )

    def score(self, query: Ints, codes: Codes) -> Scores:
        """Return the score of ``codes[i]`` for ``query[i]``; ``query`` ascends.

        The terms of all codes are added in one order, so that bits of weight 0 change no score.
        """
        out = np.empty(len(query), dtype=np.float32)
        offsets = _offsets(codes.shape[1])
        for first in range(0, len(self), _TABLES):
            start, stop = 0, len(query)
            if len(self) > _TABLES:
                start, stop = np.searchsorted(query, [first, first + _TABLES]).tolist()
            tables = self._byte_tables(first)
            for begin in range(start, stop, _CODES):
                some = slice(begin, min(stop, begin + _CODES))
                # one row a byte: rows are added up much faster than the few entries of a code
                entries = np.add(codes[some].T, offsets, order="C")
                if len(self) > 1:
                    entries += (query[some] - first) * (32 * self.values.shape[1])
                # from 0, so that no score is -0.0, which is the same score
                out[some] = np.add.reduce(tables.take(entries), axis=0, initial=0.0)
        return out

    def lowest(self, scores: Scores) -> Array:
        """Return, for each query, the sum below which a code is certainly worse than its score.

        In units of ``scaled``: the score less what rounding it to float32 may have added, which is
        the part of one term in ``slack``.
        """
        rounded = self.slack / self.values.shape[1] + 2.0**-149 * self.scale
        lowest: Array = scores * self.scale - rounded
        return lowest

    def _byte_tables(self, first: int) -> Array:
        """Return the inner products of some queries with the signs of every byte, flat."""
        values = self.values[first : first + _TABLES]
        nibbles = np.einsum("qmi,ij->qmj", values.reshape(len(values), -1, 4), NIBBLES)
        tables: Array = nibbles[:, 1::2, :, None] + nibbles[:, ::2, None, :]
        return tables.ravel()


def rounding(half: Array) -> Array:
    """Return `rounding_of` for each row of (q, m) half spans."""
    return np.array([rounding_of(row) for row in half.tolist()])


def rounding_of(half: list[float]) -> float:
    """Return the largest error of a sum of table entries that faiss rounded to 8 bits.

    With tables t_m and one step ``h = max_m (max t_m - min t_m) / 255``, faiss keeps the integers
    nearest to ``(t_m - min t_m) / h``. The error of an entry is at most h / 2, and at most the span
    of its table; the error of a sum is the sum of these over m. Codes that a scan did not return
    have a true score of at most the worst returned sum plus this. ``half`` holds half of the span
    of each table.

    >>> rounding_of([4.0, 4.0]) < 2 * 0.51 * 8 / 255
    True
    """
    step = max(half) * (2 / 255)
    quarter = step / 4
    distance = 2 * sum([each if each < quarter else quarter for each in half])
    # the last term is for the float32 numbers that faiss returns
    return distance + BLUR * len(half) * step + 2.0**-20 * sum(half)


@functools.lru_cache(maxsize=8)
def _offsets(n_bytes: int) -> Ints:
    """Return where the entries of each byte begin in a table, (n_bytes, 1)."""
    return np.arange(0, 256 * n_bytes, 256)[:, None]


_SLOT_BITS = 31
NO_KEY = np.iinfo(np.int64).max
"""Behind every sort key."""


def sort_keys(scores: Scores, slots: Ints) -> Ints:
    """Return one integer each that sorts by falling score, then by slot.

    >>> import numpy as np
    >>> keys = np.sort(sort_keys(np.float32([1, 3, 3]), np.array([5, 9, 7])))
    >>> scores, slots = from_sort_keys(keys)
    >>> scores.tolist(), slots.tolist()
    ([3.0, 3.0, 1.0], [7, 9, 5])
    """
    return (-_monotone(scores.view(np.int32)) << _SLOT_BITS) | slots


def from_sort_keys(keys: Ints) -> tuple[Scores, Ints]:
    """Return the scores and slots of keys."""
    bits = _monotone((-(keys >> _SLOT_BITS)).astype(np.int32)).astype(np.int32)
    return bits.view(np.float32), keys & ((1 << _SLOT_BITS) - 1)


def _monotone(bits: npt.NDArray[np.int32]) -> Ints:
    """Map the bits of float32 numbers to integers of the same order; its own inverse."""
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).astype(np.int64)


MOST_CANDIDATES = 1 << 14
_SPARE = 24


class Found(NamedTuple):
    """Codes that a scan returned, and what it says about all others, in units of ``scaled``.

    Attributes
    ----------
    slots : (q, c): -1 for none
    bound : (q,): no other code that reaches the floor has a larger score; -inf where there is none
    floor : (q,): a score that s codes certainly reach, -inf if none is known; None: for no query
    """

    slots: Ints
    bound: Array
    floor: Array | None = None


class PackedScan:
    """All codes, by look-ups of 8 bits; slots are positions."""

    MOST_BITS = 1024
    """faiss adds up in 16 bits: 255 times n_bits / 4 must fit."""

    def __init__(self, codes: Codes) -> None:
        import faiss

        plain: Any = faiss.clone_index(_sign_index(8 * codes.shape[1]))
        plain.add_sa_codes(np.ascontiguousarray(codes))
        self._index: Any = faiss.IndexPQFastScan(plain)

    @property
    def nbytes(self) -> int:
        return int(self._index.codes.size())

    def search(self, projections: Projections, floor: Array | None, s: int, wider: int) -> Found:
        """Return candidates for the s best codes; codes below the floor (q,) do not matter.

        Their number suffices for most queries; ``wider`` multiplies it if it did not.
        """
        look = projections.look_up(floor)
        n = n_candidates(look, s, int(self._index.ntotal), wider)
        _, slots, bound = self.best(look, n)
        return Found(slots, bound, floor)

    def best(self, look: LookUp, n: int) -> tuple[Scores, Ints, Array]:
        """Return rounded scores and slots (q, n), best first, and the bound on all others."""
        sums, slots = self._index.search(look.values, n)
        worst: Array = sums[:, -1]
        if (short := slots[:, -1] < 0).any():
            # faiss leaves out codes whose sum is 0 steps: the lowest that there is
            worst = np.where(short, -np.abs(look.values).sum(axis=1, dtype=np.float64), worst)
        elif n == self._index.ntotal:
            worst = np.full(len(sums), -np.inf)
        return sums, slots, worst + (look.rounding + look.slack + look.excess)


class TableScan:
    """All codes, by look-ups in float32; slots are positions."""

    def __init__(self, codes: Codes) -> None:
        self._codes = codes

    def search(self, projections: Projections, floor: Array | None, s: int, wider: int) -> Found:
        """Return candidates for the s best codes, as `PackedScan.search` does."""
        look = projections.look_up(floor)
        n = n_candidates(look, s, len(self._codes), wider)
        q = len(projections)
        sums = np.empty((q, n), dtype=np.float32)
        slots = np.empty((q, n), dtype=np.int64)
        _by_byte_tables(self._codes, look.values, sums, slots)
        bound = np.full(q, -np.inf)
        if n < len(self._codes):
            bound = sums[:, -1] + look.excess + look.slack
        return Found(slots, bound, floor)


def n_candidates(look: LookUp, s: int, n_codes: int, wider: int) -> int:
    """Return how many of n codes a look-up should return, so that the s best are proven.

    If scores are normal with standard deviation 1 and rounded by an error e at most, the number of
    codes above the score of the s-th best less e grows as ``exp(z e)`` with
    ``z = sqrt(2 log(n / s))``. The error of all but the eight worst queries is taken.
    """
    spread = np.sqrt(np.einsum("ij,ij->i", look.values, look.values))
    error = look.rounding / np.maximum(spread, np.float32(1e-30))
    typical = float(error.max() if len(error) < 8 else np.partition(error, -8)[-8])
    z = math.sqrt(2 * math.log(max(2.0, n_codes / s)))
    enough = int(s * math.exp(min(2.0, 1.2 * z * typical))) + _SPARE
    return min(enough * wider, max(enough, MOST_CANDIDATES), n_codes)


def join(found: list[Found]) -> Found:
    """Return what several scans of the same queries found, together."""
    if len(found) == 1:
        return found[0]
    return Found(
        np.concatenate([each.slots for each in found], axis=1),
        functools.reduce(np.maximum, [each.bound for each in found]),
        higher([each.floor for each in found]),
    )


def higher(floors: list[Array | None]) -> Array | None:
    """Return the highest of several floors; None if none is known."""
    known = [floor for floor in floors if floor is not None]
    return functools.reduce(np.maximum, known) if known else None


def sign_centroids(n_bits: int) -> Scores:
    """Return 16 centroids for every four bits: the four signs that a nibble stands for."""
    return np.tile(NIBBLES.T.astype(np.float32), (n_bits // 4, 1)).ravel()


@functools.lru_cache(maxsize=8)
def _sign_index(n_bits: int) -> Any:
    """Return an empty faiss `IndexPQ` whose 16 centroids per nibble are its four signs."""
    import faiss

    index = faiss.IndexPQ(n_bits, n_bits // 4, 4, faiss.METRIC_INNER_PRODUCT)
    faiss.copy_array_to_vector(sign_centroids(n_bits), index.pq.centroids)
    index.is_trained = True
    return index


def _by_byte_tables(codes: Codes, queries: Scores, sums: Scores, slots: Ints) -> None:
    """Fill float32 sums and positions (q, n) of the n best codes, best first."""
    import faiss

    heap = faiss.float_minheap_array_t()
    heap.nh, heap.k = sums.shape
    heap.val, heap.ids = faiss.swig_ptr(sums), faiss.swig_ptr(slots)
    quantizer = _sign_quantizer(codes.shape[1])
    codes = np.ascontiguousarray(codes)
    pointer = faiss.swig_ptr
    quantizer.search_ip(pointer(queries), len(queries), pointer(codes), len(codes), heap, True)


@functools.lru_cache(maxsize=8)
def _sign_quantizer(n_bytes: int) -> Any:
    """Return a product quantizer whose 256 centroids per byte are that byte's eight signs."""
    import faiss

    quantizer = faiss.ProductQuantizer(8 * n_bytes, n_bytes, 8)
    signs = unpack(np.arange(256, dtype=np.uint8)[:, None]).astype(np.float32)
    faiss.copy_array_to_vector(np.tile(signs, (n_bytes, 1)).ravel(), quantizer.centroids)
    return quantizer
