"""The best codes of a query, then their items, exactly: candidates, proof, widening.

**By score**, a scan in low precision (`oasis.index.projections`) returns more candidates than are
asked for, and a bound on the score of every code that it left out. Candidates are scored again in
float64. If the bound lies below the last score of the answer, no other code can belong to it: the
answer is proven. If not, the scan is repeated with 4, then 64 times as many candidates, and with
queries that are rounded in finer steps thanks to the score reached so far (`Projections.look_up`).
What is not proven then is answered by scoring every code.

**By Hamming distance** faiss is exact, and returns the lowest rows among ties.

**Items.** Slots are numbered in the order of their first rows. So, if all rows are permitted, a
slot that is not among the first k can only hold items that come after the k first items of those
that are, and k slots are enough whatever the ties. Where rows are removed or not allowed, more
slots are taken and their rows tested, and the answer is checked: nothing that was left out may come
before its last item. What is not proven, the permitted rows alone answer. They do so at once where
they are few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array
from oasis.codes import Codes
from oasis.index.projections import (
    NO_KEY,
    Found,
    Ints,
    Projections,
    Scores,
    from_sort_keys,
    higher,
    join,
    sort_keys,
)
from oasis.index.protocol import AllowList, Ids, Mask
from oasis.index.segment import ROW_BITS, Snapshot

_WIDER = (1, 4, 64)
"""How many times as many candidates each scan has as should suffice."""

_BLOCK_ENTRIES = 1 << 21
_BLOCK_QUERIES = 1024

_SHORT_SCAN = 1 << 20
"""Distances that one thread computes in about half a millisecond."""

# what things cost in nanoseconds, roughly, to choose between two ways that are both exact
_SCAN_CODE = 1
_LOOK_AT_ROW = 150
_GATHER_ROW = 500

_MOST_LOOKED_AT = 1 << 17

Keys: TypeAlias = npt.NDArray[Any]

Scan: TypeAlias = Callable[[Snapshot, Ints, int], tuple[Keys, Ints]]
"""(snapshot, which queries, how many) -> keys (lower is better) and slots, by (key, slot)."""


def best(snapshot: Snapshot, projections: Projections, s: int) -> tuple[Scores, Ints]:
    """Return scores and slots (q, s) of the s best codes of each query, ties by slot.

    ``s`` must not exceed the number of codes.
    """
    answer = _settled(snapshot, projections, None, s, _WIDER[0])
    if answer.proven.all():
        return answer.scores, answer.slots
    scores, slots, floor = answer.scores, answer.slots, answer.lowest
    left = np.flatnonzero(~answer.proven)
    for wider in _WIDER[1:]:
        block = max(1, _BLOCK_ENTRIES // (2 * s * wider))
        unproven = [left[:0]]
        for start in range(0, len(left), block):
            some = left[start : start + block]
            answer = _settled(snapshot, projections[some], floor[some], s, wider)
            scores[some], slots[some] = answer.scores, answer.slots
            floor[some] = np.maximum(floor[some], answer.lowest)
            unproven.append(some[~answer.proven])
        left = np.concatenate(unproven)
    for row in left.tolist():
        scores[row], slots[row] = _among_all(snapshot, projections[np.array([row])], s)
    return scores, slots


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


def _settled(
    snapshot: Snapshot, projections: Projections, floor: Array | None, s: int, wider: int
) -> _Settled:
    """Scan, score candidates in float64, and compare the bound on the others with the last score.

    Codes below the ``floor`` of a query do not matter.
    """
    found = _scan(snapshot, projections, floor, s, wider)
    slots = found.slots
    absent = slots < 0
    some_absent = bool(absent.any())
    if some_absent:
        slots = np.maximum(slots, 0)
    query = np.repeat(np.arange(len(slots)), slots.shape[1])
    scores = projections.score(query, snapshot.codes_at(slots.ravel())).reshape(slots.shape)
    keys = sort_keys(scores, slots)
    if some_absent:
        keys[absent] = NO_KEY
    keys.sort(axis=1)
    keys = keys[:, :s]
    scores, slots = from_sort_keys(keys)
    lowest = projections.lowest(scores[:, -1])
    if some_absent:
        lowest[keys[:, -1] == NO_KEY] = -np.inf
    return _Settled(scores, slots, lowest, found.bound < lowest)


def _scan(
    snapshot: Snapshot, projections: Projections, floor: Array | None, s: int, wider: int
) -> Found:
    """Return candidates among the codes of all segments."""
    if len(snapshot.scanned) == 1:
        return snapshot.scanned[0].search(projections, floor, s, wider)
    found, first = [], 0
    for segment in snapshot.scanned:
        n = len(segment.codes)
        each = segment.search(projections, floor, min(s, n), wider)
        # what s codes of one segment reach, those of the others must reach too
        floor = higher([floor, each.floor]) if n >= s else floor
        slots = np.where(each.slots < 0, -1, each.slots + first) if first else each.slots
        found.append(each._replace(slots=slots, floor=floor))
        first += n
    return join(found)


def _among_all(snapshot: Snapshot, projection: Projections, s: int) -> tuple[Scores, Ints]:
    """Return the s best codes of one query by scoring all of them."""
    scores = [
        projection.score(np.zeros(len(segment.codes), dtype=np.int64), segment.codes)
        for segment in snapshot.scanned
    ]
    keys = sort_keys(np.concatenate(scores), np.arange(snapshot.n_slots))
    if s < len(keys):
        keys = np.partition(keys, s - 1)[:s]
    keys.sort()
    return from_sort_keys(keys)


def nearest(snapshot: Snapshot, queries: Codes, s: int) -> tuple[npt.NDArray[np.int32], Ints]:
    """Return distances and slots (q, s) of the s nearest codes of each query, ties by slot.

    ``s`` must not exceed the number of codes.
    """
    import faiss

    found, first = [], 0
    with _threads(len(queries), snapshot.n_slots):
        for segment in snapshot.scanned:
            n = min(s, len(segment.codes))
            distances, slots = faiss.knn_hamming(queries, segment.codes, n, variant="hc")
            found.append((distances, slots + first if first else slots))
            first += len(segment.codes)
    if len(found) == 1:
        return found[0]
    distances, slots = (np.concatenate(column, axis=1) for column in zip(*found, strict=True))
    # stable: the segments are in the order of their slots
    order = np.argsort(distances, axis=1, kind="stable")[:, :s]
    return np.take_along_axis(distances, order, axis=1), np.take_along_axis(slots, order, axis=1)


def within(snapshot: Snapshot, queries: Codes, radius: int) -> tuple[Ints, Ints, Ints]:
    """Return (query, slot, distance) of every code at distance <= radius, in no order."""
    import faiss

    found, first = [], 0
    for segment in snapshot.scanned:
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


def top_items(
    snapshot: Snapshot, scan: Scan, which: Ints, k: int, allowed: AllowList | None, blank: Any
) -> tuple[Ids, Keys]:
    """Return ids and keys (q, k) of the k first items of some queries, by (key, row).

    Where there are fewer, ids are -1 and keys ``blank``.
    """
    q = len(which)
    n = snapshot.n_items if allowed is None else min(snapshot.n_items, allowed.count)
    have = min(k, n)
    looked_at = have
    if allowed is not None or snapshot.n_items < snapshot.n_rows:
        # enough rows that so many of them should be permitted, and some to spare
        looked_at = int(1.5 * have * snapshot.n_rows / max(n, 1)) + 16
        together = q * (_SCAN_CODE * snapshot.n_slots + _LOOK_AT_ROW * looked_at)
        if allowed is not None and (
            _GATHER_ROW * n < together or looked_at > max(_MOST_LOOKED_AT, 4 * have)
        ):
            return top_items(snapshot.only(allowed), scan, which, k, None, blank)
    answers: tuple[Ids, Keys] | None = None
    permitted: Snapshot | None = None
    block = max(1, min(_BLOCK_QUERIES, _BLOCK_ENTRIES // max(1, looked_at)))
    for start in range(0, q if have else 0, block):
        some = slice(start, min(q, start + block))
        s = min(looked_at, snapshot.n_slots)
        found, slots = scan(snapshot, which[some], s)
        rows, found, proven = _expand(snapshot, slots, found, have, looked_at, allowed)
        if rows.shape == (q, k) and proven.all():
            return snapshot.ids_of(rows), found
        ids, keys = answers = answers or _blank(q, k, blank)
        ids[some, :have], keys[some, :have] = snapshot.ids_of(rows), found
        left = np.flatnonzero(~proven) + start
        if len(left):
            permitted = permitted or snapshot.only(allowed)
            ids[left], keys[left] = top_items(permitted, scan, which[left], k, None, blank)
    return answers or _blank(q, k, blank)


def _blank(q: int, k: int, blank: Any) -> tuple[Ids, Keys]:
    return np.full((q, k), -1, dtype=np.int64), np.full((q, k), blank)


def _expand(
    snapshot: Snapshot,
    slots: Ints,
    keys: Keys,
    k: int,
    looked_at: int,
    allowed: AllowList | None,
) -> tuple[Ints, Keys, Mask]:
    """Return the k first permitted rows of the given slots, their keys, and which are proven.

    Rows of answers that are not proven are of no use. At most ``looked_at`` rows of a query are
    tested, of slots and keys (q, s), the s first by (key, slot).
    """
    q, s = slots.shape
    proven = np.ones(q, dtype=np.bool_)
    tested = allowed is not None or snapshot.n_items < snapshot.n_rows
    if not snapshot.has_lists:
        if not tested:
            return slots[:, :k], keys[:, :k], proven
        permitted = _permitted(snapshot, slots, allowed)
        order = np.argsort(~permitted, axis=1, kind="stable")[:, :k]
        proven = permitted.sum(axis=1) >= k
        return np.take_along_axis(slots, order, 1), np.take_along_axis(keys, order, 1), proven

    counts = snapshot.counts(slots)
    if not tested and (counts[:, :k] == 1).all():
        first = np.zeros(slots[:, :k].size, dtype=np.int64)
        return snapshot.rows_at(slots[:, :k].ravel(), first).reshape(q, -1), keys[:, :k], proven
    lengths = np.minimum(counts, looked_at)
    reached = np.cumsum(lengths, axis=1)
    reached[:, -1] = looked_at
    last = (reached >= looked_at).argmax(axis=1)
    # slots of one key are looked at together
    needed = keys <= keys[np.arange(q), last][:, None]
    chosen, lengths = slots[needed], lengths[needed]
    ends = np.cumsum(lengths)
    within = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)
    rows = snapshot.rows_at(np.repeat(chosen, lengths), within)

    # one integer sorts by query, then key, then row: ties in key share a group
    group = np.ones((q, s), dtype=np.int64)
    np.not_equal(keys[:, 1:], keys[:, :-1], out=group[:, 1:])
    group = np.cumsum(group).reshape(q, s)
    order = (np.repeat(group[needed], lengths) << ROW_BITS) | rows
    row_keys = np.repeat(keys[needed], lengths)  # sorting leaves them as they are
    if tested:
        last_of_lists = order[ends - 1]
        permitted = _permitted(snapshot, rows, allowed)
        order, row_keys = order[permitted], row_keys[permitted]
        if not len(order):
            return slots[:, :1], keys[:, :1], ~proven
    order.sort()
    begin = order.searchsorted(group[:, 0] << ROW_BITS)
    if tested:
        proven = begin + k <= np.append(begin[1:], len(order))
        begin[~proven] = 0
    at = begin[:, None] + np.arange(k)
    taken = order.take(at, mode="clip")
    if tested:
        # lists that were cut short must end after the last item of the answer
        final = taken[:, -1]
        query = np.nonzero(needed)[0]
        cut = (counts[needed] > lengths) & (last_of_lists < final[query])
        proven[query[cut]] = False
        if s < snapshot.n_slots:
            # other slots come after all keys seen, or share the last key and are younger
            origin = snapshot.rows_at(slots[:, -1], np.zeros(q, dtype=np.int64))
            proven &= ~needed[:, -1] | (final <= ((group[:, -1] << ROW_BITS) | origin))
    return taken & ((1 << ROW_BITS) - 1), row_keys.take(at, mode="clip"), proven


def _permitted(snapshot: Snapshot, rows: Ints, allowed: AllowList | None) -> Mask:
    """Return which rows may be in an answer."""
    mask = ~snapshot.is_removed(rows)
    return mask if allowed is None else mask & allowed.admits(snapshot.ids_of(rows))
