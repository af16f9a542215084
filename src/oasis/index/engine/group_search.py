"""The best codes of label groups for one query, by the groups with the best labels.

No content score exceeds C, the sum of the absolute content values of the query. So a group whose
label score plus C is below the s-th best score of all codes cannot matter:

1. Score the label halves; keep the best groups.
2. Take the s-th best score to be at least some number: the floor where one is known, else a guess.
   Look into every group whose label score plus C reaches it: in faiss's list of a large group, at
   the members of small ones one by one.
3. What the s-th best of these codes reaches is a floor. If it is below the guess, or groups that
   were not ranked may reach it, repeat with the floor.

Whether rounded look-ups leave a doubt is settled by `oasis.index.engine.best_codes`. Where too many
groups would have to be looked into, all codes are scanned.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from oasis.arrays import Array
from oasis.index.engine.content_lists import ContentQueries
from oasis.index.engine.fast_scan import MOST_CANDIDATES, by_byte_tables
from oasis.index.engine.projections import Projections, Slots, rounding_of, sum_of_bytes
from oasis.index.engine.sort_keys import first_of

if TYPE_CHECKING:
    from oasis.index.engine.label_groups import LabelGroups

_HEADS = (256, 2048)
"""How many groups a query considers at first, and at most."""

_FEW = 512
"""So few codes are looked up in float64."""

# what things cost, in codes that a scan of all would look at meanwhile
_LIST = 128
_LISTED_CODE = 0.5
_MEMBER = 16

_SHARE = 2
"""A search may cost one scan of all codes divided by this."""

_DEPTH = 1.25
"""Label scores reach this much deeper among the most groups that are considered, or more."""

_LOOKS = 4
"""How often a search looks into groups at most; one that guessed well does so once."""

_FIRST = 8
"""Where a floor is all that is looked for: how many times as many codes as are asked for."""

_ONE = np.ones(1)

Look = tuple[Array, Slots, float]
"""Sums and slots of codes, and a bound on the scores of all others; in units of ``scaled``."""


class _Ranked(NamedTuple):
    """Groups with the best labels.

    Attributes
    ----------
    label : (g,) rounded label scores, best first
    number : (g,)
    error : float
        By how much a label score may be rounded.
    outside : float
        What the label scores of all other groups do not exceed.
    bar : float
        No group matters whose codes do not reach this: such groups may be missing.
    """

    label: Array
    number: Slots
    error: float
    outside: float
    bar: float


def list_candidates(s: int, wider: int) -> int:
    """Return how many codes a look-up in lists returns: content is rounded little."""
    return min((s + s // 4 + 32) * wider, max(2 * s, MOST_CANDIDATES))


class GroupSearch:
    """The search of one query in one part.

    Parameters
    ----------
    groups : LabelGroups
    projections, row : the query is row ``row``
    content : ContentQueries, of this query alone
    s : int
        How many codes are asked for.
    wider : int
        How many times as many candidates a look-up returns as should suffice.

    Attributes
    ----------
    floor : float
        What s codes are known to reach; -inf where nothing is known.
    """

    def __init__(
        self,
        groups: LabelGroups,
        projections: Projections,
        row: int,
        content: ContentQueries,
        s: int,
        wider: int,
    ) -> None:
        self._groups = groups
        self._queries, self._row = projections, row
        self._content = content
        self._s, self._n = s, list_candidates(s, wider)
        self._scale, self._slack = float(projections.scale[row]), float(projections.slack[row])
        half = projections.half_spans[row].tolist()
        self._label_half = half[: 2 * groups.n_label_bytes]
        # not by a difference: next to large label values it would be 0 for small content values
        self._total = sum(half[2 * groups.n_label_bytes :])
        values = content.values[0]
        self._deviation = math.sqrt(float(values.dot(values))) if self._total else 0.0
        # codes whose content is rounded away are scored in full, and where searches were repeated
        error = float(content.error[0])
        self._in_full = 2 * error > self._deviation or wider > 4
        self._error = 2 * self._slack if self._in_full else error
        self._reach = self._total + 2 * self._slack

    def __call__(self, floor: float) -> Look | None:
        """Return the best codes and a bound on all others, or None: scan all codes then."""
        self.floor = floor
        if sum(self._label_half) <= self._total:
            return None  # no group can be ruled out
        self._tables = self._queries.byte_tables(self._row)
        ranked = self._rank(_HEADS[0], -np.inf)
        bar = floor if floor > -np.inf else self._guess(ranked)
        for _ in range(_LOOKS):
            # the s-th best score is seldom more than this above a guess
            likely = bar if bar == self.floor else bar + 2.5 * self._deviation
            if not len(ranked.number):
                break
            first = ranked.bar == -np.inf
            if ranked.bar > bar or (first and ranked.outside + self._reach >= likely):
                top = float(ranked.label[0])
                if first and top + self._reach - likely > _DEPTH * (top - ranked.label[-1]):
                    break
                ranked = self._rank(_HEADS[1], bar)
            if ranked.outside + self._reach >= likely:
                break
            number, size, label, left = self._within(ranked, bar)
            if self._cost(number, size) > self._groups.n_codes / _SHARE:
                break
            sums, slots, bound = self._look_into(number, size, label)
            self._raise_floor(sums)
            # codes below the floor cannot matter
            outside = max(ranked.outside, left) + self._reach
            if outside < self.floor and ranked.bar <= self.floor:
                return sums, slots, bound
            bar = self.floor
        if self.floor == -np.inf and len(ranked.number):
            self._find_floor(ranked)
        return None

    def _find_floor(self, ranked: _Ranked) -> None:
        """Look into the best groups for a floor alone, where a scan rounds less with it."""
        values = np.abs(self._queries.scaled[self._row])
        if 2 * float(values.max()) < float(values.sum()) - float(ranked.label[0]):
            return  # no value can be cut
        size = self._groups.sizes(ranked.number)
        number = ranked.number[: int(np.searchsorted(np.cumsum(size), _FIRST * self._s)) + 1]
        size = size[: len(number)]
        if self._cost(number, size) <= self._groups.n_codes / _SHARE:
            self._raise_floor(self._look_into(number, size, self._labels(number))[0])

    def _raise_floor(self, sums: Array) -> None:
        """Note what s codes reach."""
        if len(sums) >= self._s:
            last = np.partition(sums, len(sums) - self._s)[len(sums) - self._s]
            self.floor = max(self.floor, float(last) - self._error)

    def _rank(self, n_heads: int, bar: float) -> _Ranked:
        """Return the groups with the best labels.

        Where a bar is given, groups that cannot reach it do not matter: so large label values that
        all others agree with may be cut, and the rest is rounded less (`Projections.eased`).
        """
        groups = self._groups
        if n_heads >= groups.n_groups:
            number = np.arange(groups.n_groups)
            label = self._labels(number)
            order = np.argsort(-label)
            return _Ranked(label[order], number[order], 0.0, -np.inf, -np.inf)
        n_bits = 8 * groups.n_label_bytes
        row = slice(self._row, self._row + 1)
        query = np.ascontiguousarray(self._queries.scaled[row, :n_bits])
        error, excess, total = rounding_of(self._label_half), 0.0, sum(self._label_half)
        if bar > -np.inf:
            queries = self._queries
            half = Projections(
                queries.values[row, :n_bits], query, queries.scale[row], _ONE, queries.slack[row]
            )
            eased = half.eased(np.array([bar - self._reach]))
            query, excess, error = eased.scaled, float(eased.excess[0]), float(eased.rounding[0])
            total = float(np.abs(query).sum())
        error += 2 * self._slack
        sums, found = groups.heads.search(query, n_heads)
        label, number = sums[0] + excess, found[0]
        worst = float(label[-1])
        if number[-1] < 0:
            # faiss leaves out groups whose sum is 0 steps: the lowest that there is
            there = number >= 0
            label, number, worst = label[there], number[there], excess - total
        return _Ranked(label, number, error, worst + error, bar)

    def _within(self, ranked: _Ranked, bar: float) -> tuple[Slots, Slots, Array, float]:
        """Return number, size and label score of the groups that may reach a bar.

        The last number is what the label scores of the other ranked groups do not exceed.
        """
        lowest = bar - self._reach
        near = int(np.searchsorted(-ranked.label, ranked.error - lowest, side="right"))
        left = -np.inf
        if near < len(ranked.label):
            left = float(ranked.label[near]) + ranked.error
        number = ranked.number[:near]
        label = self._labels(number)
        within = label >= lowest
        if not within.all():
            left = max(left, float(label[~within].max()))
            number, label = number[within], label[within]
        return number, self._groups.sizes(number), label, left

    def _labels(self, number: Slots) -> Array:
        """Return the label scores of groups."""
        n = self._groups.n_label_bytes
        return sum_of_bytes(self._tables[: 256 * n], self._groups.labels(number)) * self._scale

    def _guess(self, ranked: _Ranked) -> float:
        """Return a guess at the s-th best score; it decides how much is looked at, not the answer.

        If content scores are normal with standard deviation sd, the s-th best of m codes with a
        label score of at least l reaches ``l + z sd``, where a share s / m is above z. sd is about
        the norm of the content values, or more.
        """
        reached = np.cumsum(self._groups.sizes(ranked.number))
        enough = int(np.searchsorted(reached, self._s))
        if enough == len(reached):
            return -np.inf
        # a little below the quantiles of the normal distribution
        z = np.sqrt(np.log(reached[enough:] / self._s))
        z *= 1.2 * self._deviation
        z += ranked.label[enough:]
        return float(z.max()) - 0.75 * self._deviation

    def _cost(self, number: Slots, size: Slots) -> float:
        """Return about how many codes a scan would look at meanwhile."""
        if not self._total:
            return float(_MEMBER * np.minimum(size, self._s).sum())
        if self._in_full:
            return float(_MEMBER * size.sum())
        listed = number < self._groups.n_lists
        n_codes, n_listed_codes = int(size.sum()), int(size[listed].sum())
        n_lists = int(np.count_nonzero(listed))
        return (
            _LIST * n_lists + _LISTED_CODE * n_listed_codes + _MEMBER * (n_codes - n_listed_codes)
        )

    def _look_into(self, number: Slots, size: Slots, label: Array) -> Look:
        """Return the best codes of groups, and a bound on their others."""
        if not len(number):
            return np.empty(0), np.empty(0, dtype=np.int64), -np.inf
        groups = self._groups
        in_list = number < groups.n_lists
        listed, others = np.flatnonzero(in_list), np.flatnonzero(~in_list)
        if self._in_full:
            return self._score_in_full(number[listed], number[others], size[others])
        looks: list[Look] = []
        if len(listed) and groups.lists is not None:
            lists, labels = number[listed], label[listed]
            looks.append(groups.lists.search_one(self._content, lists, labels, self._n))
        if len(others):
            slots = groups.members(number[others], size[others])
            codes = groups.codes.take(slots)
            if len(slots) <= max(_FEW, self._n):
                looks.append((sum_of_bytes(self._tables, codes) * self._scale, slots, -np.inf))
            else:
                query = np.ascontiguousarray(self._queries.scaled[self._row : self._row + 1])
                sums, at = by_byte_tables(codes, query, self._n)
                looks.append((sums[0], slots[at[0]], float(sums[0, -1]) + self._slack))
        if len(looks) == 1:
            return looks[0]
        return (
            np.concatenate([look[0] for look in looks]),
            np.concatenate([look[1] for look in looks]),
            max(look[2] for look in looks),
        )

    def _score_in_full(self, listed: Slots, others: Slots, size: Slots) -> Look:
        """Return the s best codes of groups by score and slot: no other of them can matter."""
        groups = self._groups
        # without content the members of a group tie, and the oldest are the first of a list
        most = groups.n_codes if self._total else self._s
        parts = [groups.members(others, size)]
        if groups.lists is not None:
            parts += [groups.lists.slots(each, most) for each in listed.tolist()]
        slots = np.concatenate(parts)
        scores = self._queries.scores_of(self._row, groups.codes.take(slots), self._tables)
        scores, slots = first_of(scores, slots, self._s)
        unit = float(self._queries.unit[self._row])
        return scores.astype(np.float64) / unit * self._scale, slots, -np.inf
