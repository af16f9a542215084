"""From the nearest distinct codes to the nearest items."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.index.engine.postings import Ints, Postings, ranges

_ROW_BITS = 31
_ROW_MASK = (1 << _ROW_BITS) - 1
_FEW_SLOTS = 256

Permit = Callable[[Ints], npt.NDArray[np.bool_]]
"""Rows -> which of them may be in an answer."""


@dataclass(frozen=True)
class Expansion:
    """Rows in the order of the answer, padded with -1; keys beside them; and whether it is proven.

    ``exact[i]`` is False where rows that were not looked at could belong into answer ``i``; None
    stands for True throughout.
    """

    rows: Ints
    keys: npt.NDArray[Any]
    exact: npt.NDArray[np.bool_] | None = None


def expand(
    postings: Postings,
    slots: Ints,
    keys: npt.NDArray[Any],
    k: int,
    *,
    n_rows: int,
    complete: bool,
    permit: Permit | None,
    target: int,
) -> Expansion:
    """Return the k first items by (key, row) among the items of the given slots.

    Parameters
    ----------
    slots, keys : (q, s)
        The s first slots by (key, slot) of every query, in that order.
    n_rows : int
        Rows from here on are not part of the snapshot that is searched.
    complete : bool
        The s slots are all there are.
    permit : callable, optional
        None if every row below ``n_rows`` is permitted.
    target : int
        Maximum number of rows, permitted or not, that are tested; at least k.

    Notes
    -----
    Slots are numbered in the order of their first rows. So, when all rows are permitted, a slot
    that is not among the first k can only hold items that come after the k first items of those
    that are, and k slots are enough whatever the ties. Where rows are not permitted, the answer is
    checked instead: nothing that was left out may come before its last item.
    """
    q, s = slots.shape
    if permit is None and postings.high == n_rows:
        links = postings.links(slots)
        single = postings.single_rows(slots, links)
        # a writer that began meanwhile has moved ``high`` before it touched a list
        if single is not None and postings.high == n_rows:
            return _pad(single[:, :k], keys[:, :k], k)
        if q == 1 and s <= _FEW_SLOTS:
            one = _expand_one(postings, slots[0], links[0].tolist(), keys[0], k)
            if postings.high == n_rows:
                return one

    pieces = postings.pieces(slots.ravel())
    if postings.high != n_rows:
        permit = _below(n_rows, permit)
    full = pieces.length
    length = np.minimum(full, target)
    reached = np.cumsum(length.reshape(q, s), axis=1)
    last = np.minimum((reached < target).sum(axis=1), s - 1)
    last_key = keys[np.arange(q), last]
    needed = (keys <= last_key[:, None]).ravel()
    which = np.flatnonzero(needed)
    lengths = length[which]
    rows = postings.rows(pieces, which, lengths)

    # one integer sorts by query, then key, then row: ties in key share a group
    group = np.zeros((q, s), dtype=np.int64)
    np.cumsum(keys[:, 1:] != keys[:, :-1], axis=1, out=group[:, 1:])
    group += (np.arange(q) * s)[:, None]
    flat_group = group.ravel()
    group_key = np.empty(q * s, dtype=keys.dtype)
    group_key[flat_group] = keys.ravel()
    order = (np.repeat(flat_group[which], lengths) << _ROW_BITS) | rows
    ends = order[np.cumsum(lengths) - 1]
    if permit is not None:
        order = order[permit(rows)]
    order = np.sort(order)
    begin = np.searchsorted(order, (np.arange(q + 1) * s) << _ROW_BITS)
    found = np.minimum(np.diff(begin), k)
    taken = order[ranges(begin[:-1], found)]
    at = np.arange(k)[None, :] < found[:, None]
    out_rows = np.full((q, k), -1, dtype=np.int64)
    out_keys = np.zeros((q, k), dtype=keys.dtype)
    out_rows[at] = taken & _ROW_MASK
    out_keys[at] = group_key[taken >> _ROW_BITS]
    if permit is None:
        return Expansion(out_rows, out_keys)

    enough = found == k
    final = np.zeros(q, dtype=np.int64)
    final[enough] = order[begin[:-1][enough] + k - 1]
    # lists that were cut short must end after the last item of the answer
    cut = np.flatnonzero(full[which] > lengths)
    cut_query = which[cut] // s
    early = (ends[cut] < final[cut_query]) | ~enough[cut_query]
    exact = np.ones(q, dtype=np.bool_)
    exact[cut_query[early]] = False
    # slots that were not looked at come after all keys seen, or share the last key and are younger
    all_seen = needed.reshape(q, s)[:, -1]
    origin = postings.rows(pieces, np.arange(q) * s + s - 1, np.ones(q, dtype=np.int64))
    last_origin = (group[:, -1] << _ROW_BITS) | origin
    if not complete:
        exact &= enough & (~all_seen | (final <= last_origin))
    else:
        exact &= enough | all_seen
    return Expansion(out_rows, out_keys, exact)


def _pad(rows: Ints, keys: npt.NDArray[Any], k: int) -> Expansion:
    q, have = rows.shape
    if have == k:
        return Expansion(rows, keys)
    out_rows = np.full((q, k), -1, dtype=np.int64)
    out_keys = np.zeros((q, k), dtype=keys.dtype)
    out_rows[:, :have], out_keys[:, :have] = rows, keys
    return Expansion(out_rows, out_keys)


def _expand_one(
    postings: Postings, slots: Ints, links: list[int], keys: npt.NDArray[Any], k: int
) -> Expansion:
    """Expand one query, all rows permitted: the same with less to set up."""
    slot_list, key_list = slots.tolist(), keys.tolist()
    rows: list[int] = []
    lengths: list[int] = []
    at, s = 0, len(slot_list)
    while at < s and len(rows) < k:
        left = k - len(rows)
        stop = at + 1
        tied = postings.first_rows(slot_list[at], links[at], left)
        while stop < s and key_list[stop] == key_list[at]:
            tied += postings.first_rows(slot_list[stop], links[stop], left)
            stop += 1
        if stop > at + 1:
            tied.sort()
            del tied[left:]
        lengths += [len(tied)] + [0] * (stop - at - 1)
        rows += tied
        at = stop
    out_keys = np.repeat(keys[:at], lengths)
    return _pad(np.array([rows], dtype=np.int64), out_keys[None, :], k)


def _below(n_rows: int, permit: Permit | None) -> Permit:
    def both(rows: Ints) -> npt.NDArray[np.bool_]:
        known = rows < n_rows
        if permit is None:
            return known
        # a row of a later snapshot has no entry in this snapshot's marks
        known[known] = permit(rows[known])
        return known

    return both
