"""The best distinct codes by inner product with a real-valued query, exactly.

A search proceeds in three steps:

1. A scan in low precision returns more candidates than are asked for, with a bound on the score of
   every code that it did not return: table look-ups of 8 bits (`fast_scan`), and look-ups in
   float32 for the few codes that have no packed copy yet.
2. Candidates are scored again in float64.
3. If the bound lies below the last score of the answer, the answer is proven. If not, the scan is
   repeated for more candidates, with queries that are rounded in finer steps thanks to the score
   reached so far (`Projections.eased`), and finally by a matrix product that keeps every code that
   can matter (`product_scan`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array
from oasis.index.engine.buffers import Buffer
from oasis.index.engine.fast_scan import join, n_enough
from oasis.index.engine.label_groups import LabelGroups
from oasis.index.engine.packed_codes import SEGMENT, FlatPart, PackedCodes
from oasis.index.engine.product_scan import by_product
from oasis.index.engine.projections import (
    Projections,
    Scores,
    Slots,
    Surrogate,
    rounding_of,
)
from oasis.index.engine.sort_keys import NO_KEY, from_sort_keys, sort_keys

_WIDER = (1, 4, 64)
"""How many times as many candidates each scan has as should suffice."""

_BLOCK_ENTRIES = 1 << 21
_NO_FLOOR = np.array([-np.inf])


class Candidates(NamedTuple):
    """What a scan returned: slots (q, c), -1 for none; and ``bound`` (q,), in units of ``scaled``.

    No other code has a larger score than ``bound``; -inf where all codes were returned.
    """

    slots: Slots
    bound: Array


class Settled(NamedTuple):
    """The s best candidates of each query: scores and slots (q, s), by score, then slot.

    ``lowest`` (q,) is a lower bound on the scores of the answer, in units of ``scaled``; -inf if
    there were fewer than s candidates. ``proven`` (q,) says whether the candidates contain the
    answer.
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
) -> tuple[Scores, Slots]:
    """Return scores and slots of the s best codes of each query, ties by slot.

    ``s`` must not exceed ``n_slots``. ``packed`` is the packed copy of ``codes``, extended here.
    """
    floor = np.full(len(projections), -np.inf)
    widths: tuple[int, ...] = _WIDER
    if len(projections) == 1:
        answer = _best_of_one(codes, n_slots, packed, projections, s)
        if isinstance(answer, tuple):
            return answer
        if answer is not None:
            floor[0], widths = answer, _WIDER[1:]
    scores = np.empty((len(projections), s), dtype=np.float32)
    slots = np.empty((len(projections), s), dtype=np.int64)
    rest = np.arange(len(projections))
    for wider in widths:
        left = []
        n_queries = max(1, _BLOCK_ENTRIES // (2 * s * wider))
        for start in range(0, len(rest), n_queries):
            some = rest[start : start + n_queries]
            part = projections if len(some) == len(projections) else projections[some]
            found = scan(codes, n_slots, packed, part, part.eased(floor[some]), s, wider)
            scores[some], slots[some], lowest, proven = settle(codes, part, found, s)
            floor[some] = np.maximum(floor[some], lowest)
            left.append(some[~proven])
        rest = np.concatenate(left)
        if not len(rest):
            return scores, slots
    part = projections[rest]
    query, slot = by_product(codes.parts(n_slots), part, s)
    scores[rest], slots[rest] = _first(part, codes, query, slot, s)
    return scores, slots


def scan(
    codes: Buffer,
    n_slots: int,
    packed: PackedCodes,
    projections: Projections,
    eased: Surrogate,
    s: int,
    wider: int,
) -> Candidates:
    """Return the best codes of each query in low precision: s and some more.

    ``eased`` are the queries that are scanned with, in place of ``projections``; ``wider``
    multiplies the number of codes that should suffice.

    Packing a code takes about as long as looking it up in float32 for two queries; so a search
    packs codes instead of looking them up, a search with a single query at most one segment.
    """
    parts = packed.parts(codes, n_slots, (1 + len(projections) // 2) * SEGMENT)
    found = []
    for part in parts:
        found.append(part.search(projections, eased, s, wider))
        # a score that s codes of one part reach is a lower bound for codes of the other parts too
        eased = eased._replace(floor=np.maximum(eased.floor, found[-1].floor))
    sums, slots, bound, error, _ = found[0] if len(found) == 1 else join(found)
    if slots.shape[1] > 4 * s:
        slots = _prune(sums, slots, s, error, eased)
    return Candidates(slots, bound)


def settle(codes: Buffer, projections: Projections, found: Candidates, s: int) -> Settled:
    """Score candidates; return the s best of each query and whether they are proven."""
    q, c = found.slots.shape
    if c < s:
        return _nothing(q, s)
    there = found.slots >= 0
    if there.all():
        keys = sort_keys(projections.scores(codes.take(found.slots)), found.slots)
    else:
        query, slots = there.nonzero()[0], found.slots[there]
        keys = np.full((q, c), NO_KEY)
        keys[there] = sort_keys(projections.score(query, codes.take(slots)), slots)
    keys.sort(axis=1)
    keys = keys[:, :s]
    scores, slots = from_sort_keys(keys)
    enough = keys[:, -1] != NO_KEY
    lowest = projections.lowest(scores[:, -1])
    if not enough.all():
        lowest = np.where(enough, lowest, -np.inf)
    proven = enough & ((found.bound < lowest) | np.isneginf(found.bound))
    return Settled(scores, slots, lowest, proven)


def _best_of_one(
    codes: Buffer,
    n_slots: int,
    packed: PackedCodes,
    projection: Projections,
    s: int,
) -> tuple[Scores, Slots] | float | None:
    """Return the s best codes of one query, as `scan` and `settle` do, with less to set up.

    If the answer is not proven, the score that s codes reach is returned; None if one segment does
    not hold all codes, or too few were found.
    """
    if n_slots > packed.segment or projection.slack[0] == 0:
        return None
    parts = packed.parts(codes, n_slots, SEGMENT)
    if len(parts) != 1:
        return None
    part = parts[0]
    if isinstance(part, FlatPart):
        rounding = rounding_of(projection.half_spans[0].tolist())
        spread = math.sqrt(float(projection.scaled[0].dot(projection.scaled[0])))
        n = n_enough(rounding / spread, s, n_slots)
        if n >= n_slots:
            return None
        sums, found = part.index.search(projection.scaled, n)
        slots, bound = found[0], float(sums[0, -1]) + rounding + float(projection.slack[0])
        if slots[-1] < 0:
            return None
        scores = projection.scores_alone(codes.take(slots))
    else:
        if isinstance(part, LabelGroups):
            slots, bound = part.search_one(projection, s)
        else:
            each = part.search(projection, projection.eased(_NO_FLOOR), s, 1)
            slots, bound = each.slots[0], float(each.bound[0])
        if len(slots) < s or slots.min() < 0:
            return None
        scores = projection.scores_of(0, codes.take(slots))
    order = np.argsort(-scores)
    best = scores[order[: s + 1]]
    lowest = projection.lowest_of(0, float(best[s - 1]))
    if not bound < lowest:
        return lowest
    if bool((best[1:] == best[:-1]).any()):
        order = np.lexsort((slots, -scores))
    return best[None, :s], slots[order[:s]][None]


def _nothing(q: int, s: int) -> Settled:
    return Settled(
        np.empty((q, s), dtype=np.float32),
        np.empty((q, s), dtype=np.int64),
        np.full(q, -np.inf),
        np.zeros(q, dtype=np.bool_),
    )


def _prune(sums: Array, slots: Slots, s: int, error: Array, eased: Surrogate) -> Slots:
    """Drop candidates that cannot matter: below the floor, or worse than the s-th best by sums.

    If there is a floor, values of the queries may have been clipped: the sums then show which codes
    are below the floor, but not how good the s-th best is.
    """
    c = sums.shape[1]
    sums[slots < 0] = -np.inf
    bar = np.partition(sums, c - s, axis=1)[:, c - s] - 2 * error
    bar = np.where(eased.floor > -np.inf, eased.floor - error, bar)
    n = max(s, int((sums >= bar[:, None]).sum(axis=1).max()))
    if n == c:
        return slots
    return np.take_along_axis(slots, np.argpartition(-sums, n - 1, axis=1)[:, :n], axis=1)


def _first(
    projections: Projections, codes: Buffer, query: Slots, slot: Slots, s: int
) -> tuple[Scores, Slots]:
    """Score candidates in no order and return the s best of each query, which has s or more."""
    by_query = np.argsort(query, kind="stable")
    query, slot = query[by_query], slot[by_query]
    score = projections.score(query, codes.take(slot))
    order = np.lexsort((slot, -score, query))
    begin = np.searchsorted(query[order], np.arange(len(projections)))
    chosen = order[begin[:, None] + np.arange(s)]
    return score[chosen], slot[chosen]
