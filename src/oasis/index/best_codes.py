"""The best codes of a query, exactly: candidates, proof, widening.

By score, a scan in low precision (`oasis.index.look_ups`) returns more candidates than are asked
for, and a bound on the score of every code that it left out. Candidates are scored again in
float64. If the bound lies below the last score of the answer, no other code can belong to it: the
answer is proven. If not, the scan is repeated with 4, then 64 times as many candidates, and with
queries that are rounded in finer steps thanks to the score reached so far
(`Projections.look_up`). What is not proven then is answered by scoring every code.

By Hamming distance faiss is exact, and returns the lowest rows among ties.

The codes of all segments count as one: those of the second begin behind those of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array
from oasis.codes import Codes
from oasis.index.look_ups import Found, join
from oasis.index.projections import (
    NO_KEY,
    Ints,
    Projections,
    Scores,
    from_sort_keys,
    sort_keys,
)
from oasis.index.protocol import Mask
from oasis.index.segment import Segment

_WIDER = (1, 4, 64)
"""How many times as many candidates each scan has as should suffice."""

_BLOCK_ENTRIES = 1 << 21

_SHORT_SCAN = 1 << 20
"""Distances that one thread computes in about half a millisecond."""

CodesAt: TypeAlias = Callable[[Ints], Codes]
"""Slots -> their codes."""


def best(
    segments: Sequence[Segment], codes_at: CodesAt, projections: Projections, s: int
) -> tuple[Scores, Ints]:
    """Return scores and slots (q, s) of the s best codes of each query, ties by slot.

    ``s`` must not exceed the number of codes.
    """
    q = len(projections)
    scores, slots = np.empty((q, s), dtype=np.float32), np.empty((q, s), dtype=np.int64)
    floor, left = np.full(q, -np.inf), np.arange(q)
    for wider in _WIDER:
        block = max(1, _BLOCK_ENTRIES // (2 * s * wider))
        unproven = [left[:0]]
        for start in range(0, len(left), block):
            some = left[start : start + block]
            part = projections if len(some) == q else projections[some]
            found = _scan(segments, part, floor[some], s, wider)
            answer = _settled(codes_at, part, found, s)
            if len(some) == q and answer.proven.all():
                return answer.scores, answer.slots
            scores[some], slots[some] = answer.scores, answer.slots
            floor[some] = np.maximum(floor[some], answer.lowest)
            unproven.append(some[~answer.proven])
        left = np.concatenate(unproven)
    for row in left.tolist():
        scores[row], slots[row] = _among_all(segments, projections[np.array([row])], s)
    return scores, slots


def _scan(
    segments: Sequence[Segment], projections: Projections, floor: Array, s: int, wider: int
) -> Found:
    """Return candidates among the codes of all segments."""
    found, first = [], 0
    for segment in segments:
        each = segment.search(projections, floor, min(s, len(segment.codes)), wider)
        # what s codes of one segment reach, those of the others must reach too
        floor = np.maximum(floor, each.floor) if len(segment.codes) >= s else floor
        slots = np.where(each.slots < 0, -1, each.slots + first) if first else each.slots
        found.append(Found(each.sums, slots, each.bound, each.error, floor))
        first += len(segment.codes)
    return join(found)


class _Settled(NamedTuple):
    """The s best candidates of each query.

    Attributes
    ----------
    scores, slots : (q, s), by score, then slot
    lowest : (q,): a score that s codes certainly reach, in units of ``scaled``
    proven : (q,): whether no other code belongs to the answer
    """

    scores: Scores
    slots: Ints
    lowest: Array
    proven: Mask


def _settled(codes_at: CodesAt, projections: Projections, found: Found, s: int) -> _Settled:
    """Score candidates in float64, and compare the bound on the others with the last score."""
    slots = _pruned(found, s)
    there = slots >= 0
    query = np.repeat(np.arange(len(slots)), slots.shape[1])
    every = slots if there.all() else np.maximum(slots, 0)
    scores = projections.score(query, codes_at(every.ravel())).reshape(slots.shape)
    keys = sort_keys(scores, every)
    if every is not slots:
        keys[~there] = NO_KEY
    keys.sort(axis=1)
    keys = keys[:, :s]
    scores, slots = from_sort_keys(keys)
    lowest = projections.lowest(scores[:, -1])
    proven = found.bound < lowest
    if (short := keys[:, -1] == NO_KEY).any():
        lowest = np.where(short, -np.inf, lowest)
        proven &= ~short
    return _Settled(scores, slots, lowest, proven)


def _pruned(found: Found, s: int) -> Ints:
    """Return the slots of candidates, less those that cannot matter if these are many.

    These are below the floor, or worse than the s-th best by sums. If there is a floor, values of
    the queries may have been cut: sums then show which codes are below the floor, but not how good
    the s-th best is.
    """
    slots, c = found.slots, found.slots.shape[1]
    if c <= 2 * s:
        return slots
    sums = np.where(slots < 0, -np.inf, found.sums)
    bar = np.partition(sums, c - s, axis=1)[:, c - s] - 2 * found.error
    bar = np.where(found.floor > -np.inf, found.floor - found.error, bar)
    n = max(s, int((sums >= bar[:, None]).sum(axis=1).max()))
    if 2 * n > c:
        return slots
    kept: Ints = np.take_along_axis(slots, np.argpartition(-sums, n - 1, axis=1)[:, :n], axis=1)
    return kept


def _among_all(segments: Sequence[Segment], projection: Projections, s: int) -> tuple[Scores, Ints]:
    """Return the s best codes of one query by scoring all of them."""
    keys, first = np.empty(0, dtype=np.int64), 0
    for segment in segments:
        n = len(segment.codes)
        scores = projection.score(np.zeros(n, dtype=np.int64), segment.codes)
        keys = np.concatenate([keys, sort_keys(scores, np.arange(first, first + n))])
        first += n
    if s < len(keys):
        keys = np.partition(keys, s - 1)[:s]
    keys.sort()
    return from_sort_keys(keys)


def nearest(
    segments: Sequence[Segment], queries: Codes, s: int
) -> tuple[npt.NDArray[np.int32], Ints]:
    """Return distances and slots (q, s) of the s nearest codes of each query, ties by slot.

    ``s`` must not exceed the number of codes.
    """
    import faiss

    found, first = [], 0
    with _threads(len(queries), sum(len(segment.codes) for segment in segments)):
        for segment in segments:
            n = min(s, len(segment.codes))
            distances, slots = faiss.knn_hamming(queries, segment.codes, n, variant="hc")
            found.append((distances, slots + first if first else slots))
            first += len(segment.codes)
    if len(found) == 1:
        return found[0]
    distances = np.concatenate([d for d, _ in found], axis=1)
    slots = np.concatenate([i for _, i in found], axis=1)
    # stable: the segments are in the order of their slots
    order = np.argsort(distances, axis=1, kind="stable")[:, :s]
    return np.take_along_axis(distances, order, axis=1), np.take_along_axis(slots, order, axis=1)


def within(segments: Sequence[Segment], queries: Codes, radius: int) -> tuple[Ints, Ints, Ints]:
    """Return (query, slot, distance) of every code at distance <= radius, in no order."""
    import faiss

    found, first = [], 0
    for segment in segments:
        result = faiss.RangeSearchResult(len(queries))
        faiss.hamming_range_search(  # type: ignore[attr-defined]
            faiss.swig_ptr(queries),
            faiss.swig_ptr(segment.codes),
            len(queries),
            len(segment.codes),
            radius + 1,  # faiss's radius is strict
            segment.codes.shape[1],
            result,
        )
        limits = faiss.rev_swig_ptr(result.lims, len(queries) + 1).astype(np.int64)
        total = int(limits[-1])
        slots = faiss.rev_swig_ptr(result.labels, total).astype(np.int64) + first
        distances = faiss.rev_swig_ptr(result.distances, total).astype(np.int64)
        found.append((np.repeat(np.arange(len(queries)), np.diff(limits)), slots, distances))
        first += len(segment.codes)
    query, slot, distance = (np.concatenate(column) for column in zip(*found, strict=True))
    return query, slot, distance


@contextmanager
def _threads(n_queries: int, n_codes: int) -> Iterator[None]:
    """Return a context in which a short scan by faiss uses one thread.

    faiss divides queries among threads, which wait for each other by spinning: one query has
    nothing to divide, and on a busy machine a short scan takes many times as long with two. The
    number of threads is a setting of the calling thread, and is restored there.
    """
    import faiss

    n_threads = faiss.omp_get_max_threads()
    if n_threads == 1 or (n_queries > 1 and n_queries * n_codes > _SHORT_SCAN):
        yield
        return
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(n_threads)
