"""From the nearest codes to the nearest items: expanded, tested, proven or searched again.

Slots are numbered in the order of their first rows. So, if all rows are permitted, a slot that is
not among the first k can only hold items that come after the k first items of those that are, and
k slots are enough whatever the ties. Where rows are removed or not allowed, more slots are taken
and their rows tested, and the answer is checked: nothing that was left out may come before its last
item. What is not proven, the permitted rows alone answer. They do so at once where they are few.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from oasis.index.protocol import AllowList, Ids, Mask
from oasis.index.segment import Ints
from oasis.index.snapshot import Snapshot

# what things cost in nanoseconds, roughly, to choose between two ways that are both exact
_SCAN_CODE = 1
_LOOK_AT_ROW = 150
_GATHER_ROW = 500

_MOST_LOOKED_AT = 1 << 17
_BLOCK_ENTRIES = 1 << 21
_BLOCK_QUERIES = 1024
_ROW_BITS = 31

Keys: TypeAlias = npt.NDArray[Any]

Scan: TypeAlias = Callable[[Snapshot, Ints, int], tuple[Keys, Ints]]
"""(snapshot, which queries, how many) -> keys (lower is better) and slots, by (key, slot)."""


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
    order = (np.repeat(group[needed], lengths) << _ROW_BITS) | rows
    row_keys = np.repeat(keys[needed], lengths)  # sorting leaves them as they are
    if tested:
        last_of_lists = order[ends - 1]
        permitted = _permitted(snapshot, rows, allowed)
        order, row_keys = order[permitted], row_keys[permitted]
        if not len(order):
            return slots[:, :1], keys[:, :1], ~proven
    order.sort()
    begin = order.searchsorted(group[:, 0] << _ROW_BITS)
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
            proven &= ~needed[:, -1] | (final <= ((group[:, -1] << _ROW_BITS) | origin))
    return taken & ((1 << _ROW_BITS) - 1), row_keys.take(at, mode="clip"), proven


def _permitted(snapshot: Snapshot, rows: Ints, allowed: AllowList | None) -> Mask:
    """Return which rows may be in an answer."""
    mask = ~snapshot.is_removed(rows)
    return mask if allowed is None else mask & allowed.admits(snapshot.ids_of(rows))
