"""The best codes of label groups for one query, by the groups with the best labels.

No content score exceeds C, the sum of the absolute content values of the query. So a group whose
label score plus C is below the s-th best score of all codes cannot matter:

1. Rank the groups by rounded label scores.
2. Assume a lower bound on the s-th best score: the floor if one is known, else a guess.
   Look into every group whose label score plus C reaches it: in faiss's list of a large group, at
   the members of small ones one by one.
3. The s-th best score of these codes is a floor. If groups that were left out may reach it,
   repeat with the floor.

If the ranked groups are not enough, all lists that may reach the bar are searched, and the codes of
all small groups are scanned; both for the queries of a batch together. If content weighs so much
that hardly any group could be ruled out, groups are not ranked, and all lists are searched.

`oasis.index.engine.best_codes` then proves the answer or repeats the search.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from oasis.arrays import Array
from oasis.index.engine.content_lists import ContentQueries
from oasis.index.engine.fast_scan import MOST_CANDIDATES, by_byte_tables
from oasis.index.engine.projections import (
    Projections,
    Scores,
    Slots,
    rounding_of,
    sum_of_bytes,
)
from oasis.index.engine.sort_keys import first_of

if TYPE_CHECKING:
    from oasis.index.engine.label_groups import LabelGroups

RANKED = 384
"""How many groups a query ranks."""

_MOST_CONTENT = 2.0
"""Groups are not ranked where C exceeds the norm of the label values so many times: label scores
differ by about that norm, and too many groups would matter."""

_FEW = 512
"""So few codes are looked up in float64."""

_MEMBER = 20
"""What a code that is fetched costs, in codes that a scan would look at meanwhile."""

_SHARE = 2
"""Scoring all codes of some groups may cost one scan of all codes divided by this."""

_LOOKS = 3
"""How often a search looks into ranked groups at most; one that guessed well does so once."""

Look = tuple[Array | Scores, Slots, float]
"""Sums and slots of codes, and a bound on the scores of all others; in units of ``scaled``."""

_NO_GROUPS = np.empty(0, dtype=np.int64)
_NOTHING: Look = (np.empty(0), _NO_GROUPS, -np.inf)


class Ranked(NamedTuple):
    """Groups with the best labels.

    Attributes
    ----------
    label : (g,) rounded label scores, best first
    number : (g,)
    error : float
        Largest rounding error of a label score.
    outside : float
        Upper bound on the label scores of all other groups.
    """

    label: Scores
    number: Slots
    error: float
    outside: float


def list_candidates(s: int, wider: int) -> int:
    """Return how many codes a look-up in lists returns: content is rounded little."""
    return min((s + s // 4 + 32) * wider, max(2 * s, MOST_CANDIDATES))


def reachable(
    label: Array | Scores, reached: Array, s: int, deviation: float | Array
) -> Array | Scores:
    """Return what the s-th best score may be, by the groups up to each one.

    If content scores are normal with standard deviation sd, the s-th best of m codes with a label
    score of at least l reaches ``l + z sd``, where a share s / m is above z. sd is about the norm
    of the content values, or more. ``reached``, not below s, is how many codes the groups have.
    """
    # a little below the quantiles of the normal distribution
    z = np.sqrt(np.log(reached / s))
    z *= 1.2 * deviation
    z += label
    z -= 0.75 * deviation
    return z


class GroupSearch:
    """The search of one query in one part: `rank`, where `ranks` asks for it, then `finish`.

    Parameters
    ----------
    groups : LabelGroups
    projections, row : the query is row ``row``
    content : ContentQueries, of this query alone
    floor : float
        A score that s codes are known to reach; -inf if none is known.
    s : int
        Number of codes asked for.
    wider : int
        Factor on the number of candidates that a look-up should have to return.

    Attributes
    ----------
    floor : float
        As given, and raised by what was found.
    ranks : bool
        Whether groups are to be ranked.
    ranked : Ranked, or None before `rank`
    reach : float
        C plus its rounding error.
    deviation : float
        Estimate of the standard deviation of content scores.
    error : float
        Largest rounding error of a sum of look-ups in lists.
    n_listed : int
        Number of codes that a look-up in lists returns.
    in_full : bool
        Whether few codes are scored exactly, because look-ups would round too much.
    scan : bool
        Whether the codes of small groups were left out, and have to be scanned.
    """

    def __init__(
        self,
        groups: LabelGroups,
        projections: Projections,
        row: int,
        content: ContentQueries,
        floor: float,
        s: int,
        wider: int,
    ) -> None:
        self._groups = groups
        self._queries, self._row = projections, row
        self._content = content
        self.floor = floor
        self.s, self.n_listed = s, list_candidates(s, wider)
        self._scale, self._slack = float(projections.scale[row]), float(projections.slack[row])
        half = projections.half_spans[row].tolist()
        self._label_half = half[: 2 * groups.n_label_bytes]
        # not by a difference: next to large label values it would be 0 for small content values
        self._total = sum(half[2 * groups.n_label_bytes :])
        values = content.values[0]
        self.deviation = math.sqrt(float(values.dot(values))) if self._total else 0.0
        # codes whose content is rounded away are scored in full, and where searches were repeated
        self.error = float(content.error[0])
        self.in_full = 2 * self.error > self.deviation or wider > 4
        self.reach = self._total + 2 * self._slack
        self.scan = False
        # if C exceeds the sum of all label values, no group can be ruled out
        self.ranks = sum(self._label_half) > self._total
        if self.ranks and groups.n_groups > RANKED:
            label = projections.scaled[row, : 8 * groups.n_label_bytes]
            self.ranks = self._total <= _MOST_CONTENT * math.sqrt(float(label.dot(label)))
        self.ranked: Ranked | None = None
        self._guessed: float = -np.inf

    def rank(self, sums: Scores, found: Slots) -> None:
        """Take the groups with the best labels, as faiss returned them."""
        error = rounding_of(self._label_half) + 2 * self._slack
        outside = float(sums[-1]) + error
        if found[-1] < 0:
            # faiss leaves out groups whose sum is 0 steps: the lowest that there is
            there = found >= 0
            sums, found = sums[there], found[there]
            outside = error - sum(self._label_half)
        if len(found) == self._groups.n_groups:
            outside = -np.inf
        self.ranked = Ranked(sums, found, error, outside)

    def finish(self) -> Look | None:
        """Return the best codes and a bound on all others; None where all lists are to be searched.

        These may be searched for several queries together: see `bar_of_lists` and `take`.
        """
        if self.ranked is not None:
            self._tables = self._queries.byte_tables(self._row)
            sizes = self._groups.sizes(self.ranked.number)
            if self.floor == -np.inf:
                self._guessed = self._guess(self.ranked.label, sizes)
            look = self._among_ranked(self.ranked, sizes)
            if look is not None:
                return self._near(*look)
        self.scan = self._groups.n_members > 0
        return None

    def bar_of_lists(self) -> float:
        """Return what a label score must reach for a list to matter.

        A guess is lowered: lists cost little, and only once it is found out that too few were
        looked into are small groups scanned again.
        """
        bar = self.floor if self.floor > -np.inf else self._guessed - self.deviation
        return float(bar - self.reach)

    def take(self, sums: Scores, slots: Slots, bound: float, outside: float) -> Look:
        """Return the best codes of lists as faiss returned them.

        ``outside`` is an upper bound on the label scores of other lists.
        """
        there = slots >= 0
        sums, slots = sums[there], slots[there]
        self._raise_floor(sums, self.error)
        return self._with_outside(sums, slots, bound, outside)

    def look_into_lists(self) -> Look:
        """Look into the lists that may reach the bar, or into all where none is known."""
        groups = self._groups
        self._tables = self._queries.byte_tables(self._row)
        label = groups.list_scores(self._tables) * self._scale
        bar = self.bar_of_lists()
        lists, outside = np.arange(len(label)), -np.inf
        if bar > -np.inf:
            within = label >= bar
            outside = float(label[~within].max(initial=-np.inf))
            lists, label = np.flatnonzero(within), label[within]
        look = self._look_into(lists, label, _NO_GROUPS, _NO_GROUPS)
        return self._with_outside(*look, outside)

    def _with_outside(
        self, sums: Array | Scores, slots: Slots, bound: float, outside: float
    ) -> Look:
        outside += self.reach
        return self._near(sums, slots, bound if outside < self.floor else max(bound, outside))

    def _near(self, sums: Array | Scores, slots: Slots, bound: float) -> Look:
        """Return a look without codes that cannot reach the floor."""
        if len(sums) > self.s and self.floor > -np.inf:
            near = sums >= self.floor - self.error
            sums, slots = sums[near], slots[near]
        return sums, slots, bound

    def _among_ranked(self, ranked: Ranked, sizes: Slots) -> Look | None:
        """Look into ranked groups; None where they are not enough, or their codes too many."""
        groups = self._groups
        bar = self.floor if self.floor > -np.inf else self._guessed
        for _ in range(_LOOKS):
            # the s-th best score is seldom more than this above a guess
            likely = bar if bar == self.floor else bar + 2.5 * self.deviation
            if ranked.outside + self.reach >= likely:
                return None
            lowest = bar - self.reach
            near = int(np.searchsorted(-ranked.label, ranked.error - lowest, side="right"))
            outside = ranked.outside
            if near < len(ranked.label):
                outside = float(ranked.label[near]) + ranked.error
            number, size = ranked.number[:near], sizes[:near]
            in_list = number < groups.n_lists
            listed = number[in_list]
            if len(listed):
                number, size = number[~in_list], size[~in_list]
            if _MEMBER * int(size.sum()) > groups.n_members + _MEMBER * _FEW:
                return None
            label = groups.list_scores(self._tables, listed) * self._scale
            sums, slots, bound = self._look_into(listed, label, number, size)
            # codes below the floor cannot matter
            if outside + self.reach < self.floor:
                return sums, slots, bound
            bar = self.floor
        return None

    def _raise_floor(self, sums: Array | Scores, error: float) -> None:
        """Note what s codes reach."""
        if len(sums) >= self.s:
            last = np.partition(sums, len(sums) - self.s)[len(sums) - self.s]
            self.floor = max(self.floor, float(last) - error)

    def _guess(self, label: Array | Scores, sizes: Slots) -> float:
        """Return a guess at the s-th best score; it decides how much is looked at, not the answer.

        Label scores fall.
        """
        reached = sizes.cumsum()
        enough = int(reached.searchsorted(self.s))
        if enough == len(reached):
            return -np.inf
        return float(reachable(label[enough:], reached[enough:], self.s, self.deviation).max())

    def _look_into(self, listed: Slots, label: Array, small: Slots, sizes: Slots) -> Look:
        """Return the best codes of groups and a bound on their others, and raise the floor.

        ``label`` are the label scores of the lists, ``sizes`` the numbers of codes of the others.
        """
        groups = self._groups
        if self.in_full:
            # without content the members of a group tie, and the oldest are the first of a list
            most = groups.n_codes if self._total else self.s
            n_codes = int(np.minimum(groups.sizes(listed), most).sum()) + int(sizes.sum())
            if _MEMBER * n_codes <= groups.n_codes / _SHARE:
                look = self._score_in_full(listed, most, small, sizes)
                self._raise_floor(look[0], 2 * self._slack)
                return look
        looks: list[Look] = []
        if len(listed) and groups.lists is not None:
            looks.append(groups.lists.search_one(self._content, listed, label, self.n_listed))
        if len(small):
            slots = groups.members(small, sizes)
            codes = groups.codes.take(slots)
            if len(slots) <= max(_FEW, self.n_listed):
                looks.append((sum_of_bytes(self._tables, codes) * self._scale, slots, -np.inf))
            else:
                query = np.ascontiguousarray(self._queries.scaled[self._row : self._row + 1])
                sums, at = by_byte_tables(codes, query, self.n_listed)
                looks.append((sums[0], slots[at[0]], float(sums[0, -1]) + self._slack))
        if len(looks) == 1:
            look = looks[0]
        elif looks:
            look = (
                np.concatenate([each[0] for each in looks]),
                np.concatenate([each[1] for each in looks]),
                max(each[2] for each in looks),
            )
        else:
            look = _NOTHING
        self._raise_floor(look[0], self.error)
        return look

    def _score_in_full(self, listed: Slots, most: int, small: Slots, sizes: Slots) -> Look:
        """Return the s best codes of groups by score and slot: no other of them can matter."""
        groups = self._groups
        parts = [groups.members(small, sizes)]
        if groups.lists is not None:
            parts += [groups.lists.slots(each, most) for each in listed.tolist()]
        slots = np.concatenate(parts)
        scores = self._queries.scores_of(self._row, groups.codes.take(slots), self._tables)
        scores, slots = first_of(scores, slots, self.s)
        unit = float(self._queries.unit[self._row])
        return scores.astype(np.float64) / unit * self._scale, slots, -np.inf
