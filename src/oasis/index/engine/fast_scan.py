"""Scores by table look-up: faiss's `IndexPQFastScan` over sign patterns.

A code of n_bits bits is n_bits / 4 nibbles. For a query, the score of a code is the sum of one
table entry per nibble: table m has the 16 inner products of four query values with four signs.
faiss rounds all tables of a query to 8 bits with one common step, adds them up for 32 codes at a
time in SIMD registers, and returns the codes with the largest sums. The rounding error of a sum has
a bound that is known before the scan (`Projections.rounding`), so an exact search can tell whether
a code that was not returned could still belong into the answer.

faiss needs the codes in an order of its own, a second copy (`oasis.index.engine.packed_codes`).
Codes without one are looked up in float32, one byte at a time.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple, Protocol

import numpy as np

from oasis.arrays import Array
from oasis.codes import Codes, unpack
from oasis.index.engine.projections import NIBBLES, Projections, Scores, Slots, Surrogate

MAX_BITS = 1024
"""faiss adds up in 16 bits: 255 times n_bits / 4 must fit."""


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
    slots: Slots
    bound: Array
    error: Array
    floor: Array


class Part(Protocol):
    """A part of the codes that can be scanned."""

    def search(self, projections: Projections, eased: Surrogate, s: int, wider: int) -> Found:
        """Return the best codes, for a search that asks for the s best of all parts.

        ``eased`` may be scanned in place of the queries; codes below its floor do not matter. The
        number of codes returned suffices for most queries; ``wider`` multiplies it if it did not.
        """


def n_candidates(eased: Surrogate, s: int, n_codes: int, wider: int) -> int:
    """Return how many of n codes a look-up should return, so that the s best are proven."""
    if len(eased.scaled) == 1:
        only = eased.scaled[0]
        typical = float(eased.rounding[0]) / max(math.sqrt(float(only.dot(only))), 1e-30)
    else:
        spread = np.sqrt(np.einsum("ij,ij->i", eased.scaled, eased.scaled))
        error = eased.rounding / np.maximum(spread, np.float32(1e-30))
        typical = float(error.max() if len(error) < 8 else np.partition(error, -8)[-8])
    enough = n_enough(typical, s, n_codes)
    return min(enough * wider, max(enough, MOST_CANDIDATES), n_codes)


def n_enough(error: float, s: int, n_codes: int) -> int:
    """Return how many of n codes prove the s best, where scores are rounded by ``error`` at most.

    If scores are normal with standard deviation 1, the number of codes above the score of the s-th
    best less e grows as ``exp(z e)`` with ``z = sqrt(2 log(n / s))``.
    """
    z = math.sqrt(2 * math.log(max(2.0, n_codes / s)))
    return int(s * math.exp(min(2.0, 1.5 * z * error))) + _SPARE


def search_index(index: Any, eased: Surrogate, s: int, wider: int) -> Found:
    """Return the best codes of a packed index as `Part` does; slots are positions in it."""
    queries = np.ascontiguousarray(eased.scaled)
    size = int(index.ntotal)
    n = n_candidates(eased, s, size, wider)
    sums, slots = index.search(queries, n)
    worst = sums[:, -1].astype(np.float64)
    short = slots[:, -1] < 0
    if short.any():
        # faiss leaves out codes whose sum is 0 steps: the lowest that there is
        worst[short] = -np.abs(queries[short]).sum(axis=1)
    elif n == size:
        worst[:] = -np.inf
    error = eased.rounding + eased.slack
    bound = worst + error + eased.excess
    return Found(sums + eased.excess[:, None], slots, bound, error, eased.floor)


def join(found: list[Found]) -> Found:
    """Return what several scans of the same queries found, together."""
    return Found(
        np.concatenate([each.sums for each in found], axis=1),
        np.concatenate([each.slots for each in found], axis=1),
        functools.reduce(np.maximum, [each.bound for each in found]),
        functools.reduce(np.maximum, [each.error for each in found]),
        functools.reduce(np.maximum, [each.floor for each in found]),
    )


def pack_index(codes: Codes) -> Any:
    """Return the faiss index of codes; it keeps its own copy of them."""
    import faiss

    plain: Any = faiss.clone_index(_sign_index(8 * codes.shape[1]))
    plain.add_sa_codes(np.ascontiguousarray(codes))
    return faiss.IndexPQFastScan(plain)


@functools.lru_cache(maxsize=8)
def _sign_index(n_bits: int) -> Any:
    """Return an empty faiss `IndexPQ` whose 16 centroids per nibble are its four signs."""
    import faiss

    index = faiss.IndexPQ(n_bits, n_bits // 4, 4, faiss.METRIC_INNER_PRODUCT)
    faiss.copy_array_to_vector(sign_centroids(n_bits), index.pq.centroids)
    index.is_trained = True
    return index


def sign_centroids(n_bits: int) -> Scores:
    """Return 16 centroids for every four bits: the four signs that a nibble stands for."""
    return np.tile(NIBBLES.T.astype(np.float32), (n_bits // 4, 1)).ravel()


def by_byte_tables(codes: Codes, queries: Scores, n: int) -> tuple[Scores, Slots]:
    """Return float32 sums and positions of the n best codes by look-up tables per byte."""
    import faiss

    q = len(queries)
    sums = np.empty((q, n), dtype=np.float32)
    at = np.empty((q, n), dtype=np.int64)
    heap = faiss.float_minheap_array_t()
    heap.nh, heap.k = q, n
    heap.val, heap.ids = faiss.swig_ptr(sums), faiss.swig_ptr(at)
    quantizer = _sign_quantizer(codes.shape[1])
    codes = np.ascontiguousarray(codes)
    quantizer.search_ip(faiss.swig_ptr(queries), q, faiss.swig_ptr(codes), len(codes), heap, True)
    return sums, at


@functools.lru_cache(maxsize=8)
def _sign_quantizer(n_bytes: int) -> Any:
    """Return a product quantizer whose 256 centroids per byte are that byte's eight signs."""
    import faiss

    quantizer = faiss.ProductQuantizer(8 * n_bytes, n_bytes, 8)
    signs = unpack(np.arange(256, dtype=np.uint8)[:, None]).astype(np.float32)
    faiss.copy_array_to_vector(np.tile(signs, (n_bytes, 1)).ravel(), quantizer.centroids)
    return quantizer
