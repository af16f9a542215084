"""Candidates for the best codes by table look-up, with bounds on all that was left out.

A code of n_bits bits is n_bits / 4 nibbles. For a query, the score of a code is the sum of one
table entry per nibble: table m has the 16 inner products of four query values with four signs.
faiss's `IndexPQFastScan` rounds all tables of a query to 8 bits with one common step, adds them up
for 32 codes at a time in SIMD registers, and returns the codes with the largest sums. It keeps a
copy of the codes in an order of its own. Few codes are looked up without one, in float32, one byte
at a time.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from oasis.arrays import Array
from oasis.codes import Codes, unpack
from oasis.index.projections import NIBBLES, Ints, LookUp, Projections, Scores

MOST_CANDIDATES = 1 << 14
_SPARE = 32


class Found(NamedTuple):
    """Codes that a scan returned, and what it says about all others, in units of ``scaled``.

    Attributes
    ----------
    sums : (q, c): scores in low precision
    slots : (q, c): -1 for none
    bound : (q,): no other code that reaches the floor has a larger score; -inf where there is none
    error : (q,): by how much a sum may differ from the score of a code that reaches the floor
    floor : (q,): a score that s codes certainly reach; -inf if none is known
    """

    sums: Array
    slots: Ints
    bound: Array
    error: Array
    floor: Array


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

    def search(self, projections: Projections, floor: Array, s: int, wider: int) -> Found:
        """Return candidates for the s best codes; codes below the floor (q,) do not matter.

        Their number suffices for most queries; ``wider`` multiplies it if it did not.
        """
        look = projections.look_up(floor)
        size = int(self._index.ntotal)
        n = n_candidates(look, s, size, wider)
        sums, slots = self._index.search(np.ascontiguousarray(look.values), n)
        worst: Array = sums[:, -1]
        if (short := slots[:, -1] < 0).any():
            # faiss leaves out codes whose sum is 0 steps: the lowest that there is
            worst = np.where(short, -np.abs(look.values).sum(axis=1, dtype=np.float64), worst)
        elif n == size:
            worst = np.full(len(sums), -np.inf)
        error = look.rounding + look.slack
        excess = look.excess
        return Found(sums + excess[:, None], slots, worst + (error + excess), error, floor)


class TableScan:
    """All codes, by look-ups in float32; slots are positions."""

    def __init__(self, codes: Codes) -> None:
        self._codes = codes

    def search(self, projections: Projections, floor: Array, s: int, wider: int) -> Found:
        """Return candidates for the s best codes, as `PackedScan.search` does."""
        look = projections.look_up(floor)
        n = n_candidates(look, s, len(self._codes), wider)
        q = len(projections)
        sums = np.empty((q, n), dtype=np.float32)
        slots = np.empty((q, n), dtype=np.int64)
        _by_byte_tables(self._codes, np.ascontiguousarray(look.values), sums, slots)
        bound = np.full(q, -np.inf)
        if n < len(self._codes):
            bound = sums[:, -1] + look.excess + look.slack
        return Found(sums + look.excess[:, None], slots, bound, look.slack, floor)


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
    enough = int(s * math.exp(min(2.0, 1.5 * z * typical))) + _SPARE
    return min(enough * wider, max(enough, MOST_CANDIDATES), n_codes)


def join(found: list[Found]) -> Found:
    """Return what several scans of the same queries found, together."""
    if len(found) == 1:
        return found[0]
    return Found(
        np.concatenate([each.sums for each in found], axis=1),
        np.concatenate([each.slots for each in found], axis=1),
        functools.reduce(np.maximum, [each.bound for each in found]),
        functools.reduce(np.maximum, [each.error for each in found]),
        functools.reduce(np.maximum, [each.floor for each in found]),
    )


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
