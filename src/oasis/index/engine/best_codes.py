"""The best distinct codes by inner product with a real-valued query, exactly.

A search proceeds in three steps:

1. A scan in low precision returns more candidates than are asked for, with a bound on the score of
   every code that it did not return: table look-ups of 8 bits (`fast_scan`), and look-ups in
   float32 for the few codes that have no packed copy yet.
2. Candidates are scored again in float64.
3. If the bound lies below the last score of the answer, the answer is proven. If not, the scan is
   repeated for more candidates, with queries that the score reached makes it possible to round in
   finer steps (`Projections.eased`), and at last by a matrix product that keeps every code that
   can matter (`product_scan`).
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array
from oasis.codes import Codes, unpack
from oasis.index.engine.buffers import Buffer
from oasis.index.engine.fast_scan import SEGMENT, PackedCodes
from oasis.index.engine.product_scan import by_product
from oasis.index.engine.projections import Projections, Scores, Slots, Surrogate

_SPARE = 32
_FEW = 512
_WIDER = (4, 16)
"""How many times as many candidates the second scan has, and each one after it."""

_MOST_CANDIDATES = 1 << 14
_BLOCK_ENTRIES = 1 << 21
_SLOT_MASK = (1 << 31) - 1
_NO_KEY = np.iinfo(np.int64).max


class Candidates(NamedTuple):
    """What a scan returned: slots (q, c), -1 for none; and ``bound`` (q,), in units of ``scaled``.

    No other code has a larger score than ``bound``; -inf where all codes were returned.
    """

    slots: Slots
    bound: Array


class Settled(NamedTuple):
    """The s best candidates of each query: scores and slots (q, s), by score, then slot.

    ``lowest`` (q,) is what codes that matter reach, in units of ``scaled``, -inf where fewer than s
    candidates were there; ``proven`` (q,) is whether the candidates hold the answer.
    """

    scores: Scores
    slots: Slots
    lowest: Array
    proven: npt.NDArray[np.bool_]


def best(
    codes: Buffer,
    n_slots: int,
    packed: PackedCodes,
    projections: Projections,
    s: int,
    floor: Array | None = None,
) -> tuple[Scores, Slots]:
    """Return scores and slots of the s best codes of each query, ties by slot.

    ``s`` must not exceed ``n_slots``. ``packed`` is the packed copy of ``codes``, extended here.
    ``floor`` (q,) is what s codes are known to reach, as `Projections.lowest` gives it.
    """
    floor = np.full(len(projections), -np.inf) if floor is None else floor
    eased = projections.eased(floor)
    n_candidates = _n_candidates(eased, s, n_slots)
    if len(projections) == 1:
        answer = _best_of_one(codes, n_slots, packed, projections, eased, s, n_candidates)
        if answer is not None:
            return answer
    found = scan(codes, n_slots, packed, projections, eased, s, n_candidates)
    scores, slots, lowest, proven = settle(codes, projections, found, s)
    floor = np.maximum(floor, lowest)
    rest = np.flatnonzero(~proven)
    wider, widest = _WIDER
    while len(rest) and n_candidates < min(n_slots, _MOST_CANDIDATES):
        n_candidates = min(wider * n_candidates, _MOST_CANDIDATES)
        wider = widest
        left = []
        for some in np.array_split(rest, -(-len(rest) * n_candidates // _BLOCK_ENTRIES)):
            part = projections[some]
            found = scan(codes, n_slots, packed, part, part.eased(floor[some]), s, n_candidates)
            scores[some], slots[some], lowest, proven = settle(codes, part, found, s)
            floor[some] = np.maximum(floor[some], lowest)
            left.append(some[~proven])
        rest = np.concatenate(left)
    if len(rest):
        part = projections[rest]
        query, slot = by_product(codes.parts(n_slots), part, s)
        scores[rest], slots[rest] = _first(part, codes, query, slot, s)
    return scores, slots


def _n_candidates(eased: Surrogate, s: int, n_slots: int) -> int:
    """Return how many candidates should suffice for most queries.

    If scores are normal with standard deviation sd, the number of codes above the score of the s-th
    best less e grows as ``exp(z e / sd)`` with ``z = sqrt(2 log(n / s))``; e is the rounding.
    """
    if len(eased.scaled) == 1:
        one = eased.scaled[0]
        typical = float(eased.rounding[0]) / max(math.sqrt(float(one.dot(one))), 1e-30)
    else:
        spread = np.sqrt(np.einsum("ij,ij->i", eased.scaled, eased.scaled))
        error = eased.rounding / np.maximum(spread, np.float32(1e-30))
        typical = float(error.max() if len(error) < 8 else np.partition(error, -8)[-8])
    z = math.sqrt(2 * math.log(max(2.0, n_slots / s)))
    return int(s * math.exp(min(2.0, 1.5 * z * typical))) + _SPARE


def scan(
    codes: Buffer,
    n_slots: int,
    packed: PackedCodes,
    projections: Projections,
    eased: Surrogate,
    s: int,
    n_candidates: int,
) -> Candidates:
    """Return at least the ``n_candidates`` best codes of each query, as low precision sees them.

    ``eased`` are the queries that are scanned with, in place of ``projections``.

    Packing a code takes about as long as looking it up in float32 for two queries; so a search
    packs what it would otherwise look up, and one of a single query at most one segment.
    """
    q = len(projections)
    queries = np.ascontiguousarray(eased.scaled)
    error = eased.rounding
    bound = np.full(q, -np.inf)
    found: list[tuple[Scores, Slots]] = []
    start = 0
    for segment in packed.cover(codes, n_slots, (1 + q // 2) * SEGMENT):
        if segment.start >= n_slots:
            break
        n = min(n_candidates, segment.stop - segment.start)
        sums, slots = segment.index.search(queries, n)
        worst = sums[:, -1]
        short = slots[:, -1] < 0
        if short.any():
            # faiss leaves out codes whose sum is 0 steps: the lowest that there is
            worst[short] = -np.abs(queries[short]).sum(axis=1)
        if n < segment.stop - segment.start or short.any():
            bound = np.maximum(bound, worst + error)
        if segment.start:
            slots[slots >= 0] += segment.start
        if segment.stop > n_slots:
            # a segment that was built for a later snapshot
            slots[slots >= n_slots] = -1
        found.append((sums, slots))
        start = segment.stop
    if start < n_slots:
        for first, part in _pieces(codes, start, n_slots):
            n = min(n_candidates, len(part))
            sums, slots = _by_byte_tables(part, queries, n)
            if n < len(part):
                bound = np.maximum(bound, sums[:, -1])
            found.append((sums, slots + first))
    if len(found) == 1:
        sums, slots = found[0]
    else:
        sums = np.concatenate([sums for sums, _ in found], axis=1)
        slots = np.concatenate([slots for _, slots in found], axis=1)
    if slots.shape[1] > 4 * s:
        slots = _prune(sums, slots, s, eased)
    return Candidates(slots, bound + eased.excess + eased.slack)


def settle(codes: Buffer, projections: Projections, found: Candidates, s: int) -> Settled:
    """Score candidates; return the s best of each query and whether they are proven."""
    q, c = found.slots.shape
    if c < s:
        return _nothing(q, s)
    slots = np.maximum(found.slots, 0)
    scores = projections.scores(codes.take(slots))
    keys = _sort_keys(scores, slots)
    keys[found.slots < 0] = _NO_KEY
    keys.sort(axis=1)
    keys = keys[:, :s]
    scores, slots = _from_sort_keys(keys)
    there = keys[:, -1] != _NO_KEY
    lowest = projections.lowest(scores[:, -1])
    if not there.all():
        lowest = np.where(there, lowest, -np.inf)
    proven = there & ((found.bound < lowest) | np.isneginf(found.bound))
    return Settled(scores, slots, lowest, proven)


def _best_of_one(
    codes: Buffer,
    n_slots: int,
    packed: PackedCodes,
    projection: Projections,
    eased: Surrogate,
    s: int,
    n_candidates: int,
) -> tuple[Scores, Slots] | None:
    """Return the s best codes of one query, as `scan` and `settle` do, with less to set up.

    None where one segment does not hold all codes, or the answer is not proven.
    """
    segments = packed.cover(codes, n_slots, 0)
    if (
        len(segments) != 1
        or segments[0].stop != n_slots
        or n_candidates >= n_slots
        or projection.slack[0] == 0
    ):
        return None
    sums, found = segments[0].index.search(np.ascontiguousarray(eased.scaled), n_candidates)
    slots = found[0]
    if slots[-1] < 0:
        return None
    scores = projection.scores_of(0, codes.take(slots))
    order = np.argsort(-scores)
    best = scores[order[: s + 1]]
    bound = (
        float(sums[0, -1])
        + float(eased.rounding[0])
        + float(eased.excess[0])
        + float(eased.slack[0])
    )
    # as `Projections.lowest` has it, where the query is no multiples
    scale, slack = float(projection.scale[0]), float(projection.slack[0])
    lowest = float(best[s - 1]) * scale - slack / (8 * codes.base.shape[1]) - 2.0**-149 * scale
    if not bound < lowest:
        return None
    if bool((best[1:] == best[:-1]).any()):
        order = np.lexsort((slots, -scores))
    return best[None, :s], slots[order[:s]][None]


def look_up(
    codes: Buffer, projection: Projections, slots: Slots, s: int, tables: Array
) -> tuple[Scores, Slots]:
    """Return scores and slots of the s best of some slots for one query, ties by slot.

    ``tables`` are the byte tables of the query.
    """
    some = codes.take(slots)
    n = s + s // 4 + _SPARE
    if len(slots) > max(2 * n, _FEW):
        sums, at = _by_byte_tables(some, projection.scaled, n)
        chosen = at[0]
        score = projection.scores_of(0, some[chosen], tables)
        scores, best_slots = first_of(score, slots[chosen], s)
        if sums[0, -1] + projection.slack[0] < projection.lowest(scores[-1:])[0]:
            return scores, best_slots
    return first_of(projection.scores_of(0, some, tables), slots, s)


def first_of(scores: Scores, slots: Slots, s: int) -> tuple[Scores, Slots]:
    """Return the first s of (scores, slots) by falling score, then slot."""
    keys = _sort_keys(scores, slots)
    if len(keys) > 4 * s:
        keys = np.partition(keys, s - 1)[:s]
    keys.sort()
    return _from_sort_keys(keys[:s])


def _sort_keys(scores: Scores, slots: Slots) -> Slots:
    """Return one integer each that sorts by falling score, then by slot."""
    return (-_monotone(scores.view(np.int32)) << 31) | slots


def _from_sort_keys(keys: Slots) -> tuple[Scores, Slots]:
    bits = _monotone((-(keys >> 31)).astype(np.int32)).astype(np.int32)
    return bits.view(np.float32), keys & _SLOT_MASK


def _nothing(q: int, s: int) -> Settled:
    return Settled(
        np.empty((q, s), dtype=np.float32),
        np.empty((q, s), dtype=np.int64),
        np.full(q, -np.inf),
        np.zeros(q, dtype=np.bool_),
    )


def _prune(sums: Scores, slots: Slots, s: int, eased: Surrogate) -> Slots:
    """Drop candidates that cannot matter: worse than the s-th best by sums, or below the floor.

    Sums of cut queries do not tell how good the s-th best is, only what is below the floor.
    """
    c = sums.shape[1]
    sums[slots < 0] = -np.inf
    error = eased.rounding + eased.slack
    bar = np.partition(sums, c - s, axis=1)[:, c - s] - 2 * error
    bar = np.where(eased.excess > 0, eased.floor - eased.excess - error, bar)
    n = max(s, int((sums >= bar[:, None]).sum(axis=1).max()))
    if n == c:
        return slots
    return np.take_along_axis(slots, np.argpartition(-sums, n - 1, axis=1)[:, :n], axis=1)


def _pieces(codes: Buffer, start: int, stop: int) -> list[tuple[int, Codes]]:
    """Return (first slot, codes) of the stretches of memory that hold these slots."""
    n_base = len(codes.base)
    if start < n_base < stop:
        return [(start, codes.between(start, n_base)), (n_base, codes.between(n_base, stop))]
    return [(start, codes.between(start, stop))]


def _by_byte_tables(part: Codes, queries: Scores, n: int) -> tuple[Scores, Slots]:
    """Return float32 sums and positions of the n best codes by lookup tables per byte."""
    import faiss

    q = len(queries)
    sums = np.empty((q, n), dtype=np.float32)
    slots = np.empty((q, n), dtype=np.int64)
    heap = faiss.float_minheap_array_t()
    heap.nh, heap.k = q, n
    heap.val, heap.ids = faiss.swig_ptr(sums), faiss.swig_ptr(slots)
    quantizer = _sign_quantizer(part.shape[1])
    part = np.ascontiguousarray(part)
    quantizer.search_ip(faiss.swig_ptr(queries), q, faiss.swig_ptr(part), len(part), heap, True)
    return sums, slots


def _first(
    projections: Projections, codes: Buffer, query: Slots, slot: Slots, s: int
) -> tuple[Scores, Slots]:
    """Score candidates in no order and return the s best of each query, which has s or more."""
    score = projections.score(query, codes.take(slot))
    order = np.lexsort((slot, -score, query))
    begin = np.searchsorted(query[order], np.arange(len(projections)))
    chosen = order[begin[:, None] + np.arange(s)]
    return score[chosen], slot[chosen]


def _monotone(bits: npt.NDArray[np.int32]) -> Slots:
    """Map the bits of float32 numbers to integers of the same order; its own inverse."""
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).astype(np.int64)


@functools.lru_cache(maxsize=8)
def _sign_quantizer(n_bytes: int) -> Any:
    """Return a product quantizer whose 256 centroids per byte are that byte's eight signs."""
    import faiss

    quantizer = faiss.ProductQuantizer(8 * n_bytes, n_bytes, 8)
    signs = unpack(np.arange(256, dtype=np.uint8)[:, None]).astype(np.float32)
    faiss.copy_array_to_vector(np.tile(signs, (n_bytes, 1)).ravel(), quantizer.centroids)
    return quantizer
