"""Codes with a label half and a content half: search groups of equal label halves, best first.

The first ``8 * n_bytes`` bits of such a code say which labels an item has, and few label halves
occur; the other bits hardly ever repeat. The score of a code is the label score of its group plus
its content score, and no content score exceeds the sum of the absolute content values of the query.
So a search scores the label halves alone, looks into the groups with the best ones, and is done
when the label score of every other group plus the largest content score lies below the last score
of the answer. Where too many groups would have to be looked into, it gives up, and all codes are
scanned; the score that the members of the best groups reach makes that scan more precise.

The groups cost little: the map from codes to slots is sorted by a hash whose upper half depends on
the label half alone, so a group is a stretch of a sorted run.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array
from oasis.codes import Codes, words
from oasis.errors import FormatError
from oasis.index.engine.best_codes import look_up
from oasis.index.engine.buffers import Buffer
from oasis.index.engine.fast_scan import pack_index
from oasis.index.engine.keys import SortedRun
from oasis.index.engine.postings import ranges
from oasis.index.engine.projections import Projections, Scores, Slots, sum_of_bytes

_HEADS = (256, 2048)
"""How many groups of a run a query considers at first, and at most."""

_MANY_CODES = 1 << 22
"""From so many codes on the groups are looked at first, however precise a scan would be."""

_LARGE = 4096
"""Groups of so many codes get a packed copy of their content halves when first searched."""

_GAIN = 12
"""How many times faster a code of a packed group is looked up than one that is fetched."""

_SHARE = 48
"""A search fetches no more than one code in so many; a scan of all is faster then."""

_LEAST = 4096
_BLOCK = 1 << 20


class LabelGroups:
    """The groups of one sorted run.

    Parameters
    ----------
    n_slots : int
        One above the highest slot that the run may hold.
    order : (n,) int32: the slots of the run, those of a group side by side
    starts : (g,) int32: where in ``order`` each group begins
    heads : (g, n_bytes) uint8: the label half of each group
    """

    def __init__(
        self,
        n_slots: int,
        order: npt.NDArray[np.int32],
        starts: npt.NDArray[np.int32],
        heads: Codes,
    ) -> None:
        self.n_slots = n_slots
        self.order = order
        self.starts = starts
        self.heads = heads
        self._content: dict[int, Any] = {}

    @classmethod
    def of(cls, run: SortedRun, codes: Buffer, n_bytes: int) -> LabelGroups:
        """Find the groups of a run; costs one look at each of its codes."""
        order = run.order if run.order is not None else np.empty(0, dtype=np.int32)
        found: list[npt.NDArray[Any]] = [np.empty(0, dtype=np.int64)]
        heads: list[Codes] = [np.empty((0, n_bytes), dtype=np.uint8)]
        before: Codes | None = None
        for start in range(0, len(order), _BLOCK):
            labels = np.ascontiguousarray(codes.take(order[start : start + _BLOCK])[:, :n_bytes])
            differs = np.ones(len(labels), dtype=np.bool_)
            pairs = words(labels)
            differs[1:] = (pairs[1:] != pairs[:-1]).any(axis=1)
            if before is not None:
                differs[0] = bool((labels[0] != before).any())
            at = np.flatnonzero(differs)
            found.append(at + start)
            heads.append(labels[at])
            before = labels[-1]
        starts = np.concatenate(found).astype(np.int32)
        return cls(run.stop, order, starts, np.concatenate(heads))

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def nbytes(self) -> int:
        indexes = [self.index] if "index" in self.__dict__ else []
        packed = sum(index.codes.size() for index in indexes + list(self._content.values()))
        return self.starts.nbytes + self.heads.nbytes + int(packed)

    @functools.cached_property
    def index(self) -> Any:
        """The label halves as a faiss index, made for the first search."""
        starts = self.starts
        if (
            not len(starts)
            or starts[0] != 0
            or starts[-1] >= len(self.order)
            or bool((starts[1:] <= starts[:-1]).any())
        ):
            raise FormatError("the index file is damaged: its groups do not fit together")
        return pack_index(self.heads)

    def sizes(self, groups: Slots) -> Slots:
        """Return how many slots each of these groups has."""
        ends = self.starts.take(groups + 1, mode="clip").astype(np.int64)
        ends[groups == len(self.starts) - 1] = len(self.order)
        return ends - self.starts[groups]

    def members(self, groups: Slots, sizes: Slots) -> Slots:
        """Return the slots of groups, one group after the other."""
        return self.slots_at(ranges(self.starts[groups].astype(np.int64), sizes))

    def slots_at(self, places: Slots) -> Slots:
        """Return the slots at these places of the run's order."""
        slots = self.order[places].astype(np.int64)
        if len(slots) and not 0 <= int(slots.min()) <= int(slots.max()) < self.n_slots:
            raise FormatError("the index file is damaged: a group points outside of the index")
        return slots

    def content(self, group: int, size: int, codes: Buffer) -> Any:
        """Return the content halves of one group as a faiss index, made for its first search.

        Two threads may make it at once; they make the same.
        """
        index = self._content.get(group)
        if index is None:
            slots = self.members(np.array([group]), np.array([size]))
            index = pack_index(codes.take(slots)[:, self.heads.shape[1] :])
            self._content[group] = index
        return index


class FromGroups(NamedTuple):
    """What the best groups hold: scores and slots (q, s) of codes, best first.

    ``floor`` (q,) is what s codes reach, in units of ``scaled``, -inf where no group was looked
    into; ``proven`` (q,) is whether no other code is better.
    """

    scores: Scores
    slots: Slots
    floor: Array
    proven: npt.NDArray[np.bool_]


def best_of_groups(
    codes: Buffer, groups: tuple[LabelGroups, ...], projections: Projections, s: int
) -> FromGroups:
    """Return the s best codes of each query among its best groups.

    ``groups`` are those of all runs and hold ``s`` codes or more.
    """
    q = len(projections)
    scores = np.empty((q, s), dtype=np.float32)
    slots = np.empty((q, s), dtype=np.int64)
    floor = np.full(q, -np.inf)
    proven = np.zeros(q, dtype=np.bool_)
    labels = projections.columns(8 * groups[0].heads.shape[1])
    rest = np.flatnonzero(_worthwhile(projections, labels, sum(len(each.order) for each in groups)))
    for n_heads in _HEADS:
        if not len(rest):
            break
        some = labels if len(rest) == q else labels[rest]
        heads = _best_heads(groups, some, n_heads)
        again = []
        for i, row in enumerate(rest.tolist()):
            one = projections if q == 1 else projections[np.array([row])]
            search = _GroupSearch(codes, groups, one, s)
            answer = search([(numbers[i], sums[i]) for numbers, sums in heads[0]], heads[1][i])
            if answer is not None:
                scores[row], slots[row] = answer
                proven[row] = True
                continue
            floor[row] = max(floor[row], search.floor)
            if search.may_widen:
                again.append(row)
        rest = np.array(again, dtype=np.int64)
    return FromGroups(scores, slots, floor, proven)


def _worthwhile(
    projections: Projections, labels: Projections, n_slots: int
) -> npt.NDArray[np.bool_]:
    """Return for which queries the groups should be looked at before all codes are scanned.

    Where content weighs more than labels, no group can be ruled out. Where rounding takes little
    of the norm of the content values, a scan is proven at once; of few codes it is faster.
    """
    label_sum = np.abs(labels.scaled).sum(axis=1)
    worthwhile: npt.NDArray[np.bool_] = np.abs(projections.scaled).sum(axis=1) < 2 * label_sum
    if n_slots < _MANY_CODES:
        content = projections.scaled[:, labels.scaled.shape[1] :]
        norm = np.sqrt(np.einsum("ij,ij->i", content, content))
        worthwhile &= projections.rounding > 0.4 * norm
    return worthwhile


def _best_heads(
    groups: tuple[LabelGroups, ...], labels: Projections, n_heads: int
) -> tuple[list[tuple[Slots, Scores]], Array]:
    """Return the best groups of each run, and a bound on the label score of all the others."""
    queries = np.ascontiguousarray(labels.scaled)
    error = labels.rounding + labels.slack
    outside = np.full(len(labels), -np.inf)
    found = []
    for group in groups:
        n = min(n_heads, len(group))
        sums, numbers = group.index.search(queries, n)
        worst = sums[:, -1]
        short = numbers[:, -1] < 0
        if short.any():
            # faiss leaves out groups whose sum is 0 steps: the lowest that there is
            worst[short] = -np.abs(queries[short]).sum(axis=1)
        if n < len(group) or short.any():
            outside = np.maximum(outside, worst + error)
        found.append((numbers, sums))
    return found, outside


class _GroupSearch:
    """The search of one query among the groups that look best.

    Attributes
    ----------
    may_widen : bool
        Whether a search that found no proven answer may find one among more groups.
    floor : float
        What s codes reach, in units of ``scaled``; -inf where none was looked at.
    """

    def __init__(
        self, codes: Buffer, groups: tuple[LabelGroups, ...], projection: Projections, s: int
    ) -> None:
        self._codes = codes
        self._groups = groups
        self._query = projection
        self._s = s
        self._tables = projection.byte_tables(0)
        self._n_label_bits = 8 * groups[0].heads.shape[1]
        self._scale, self._slack = float(projection.scale[0]), float(projection.slack[0])
        content = projection.values[0, self._n_label_bits :]
        self._content = float(np.abs(content).sum()) * self._scale
        self._n_slots = sum(len(group.order) for group in groups)
        self._limit = max(_LEAST, self._n_slots // _SHARE)
        self.may_widen = False
        self.floor = -np.inf

    def __call__(
        self, heads: list[tuple[Slots, Scores]], outside: float
    ) -> tuple[Scores, Slots] | None:
        """Answer from the given groups of each run, or return None."""
        s, content = self._s, self._content
        number, run, size, label = self._label_scores(heads)
        if content == 0:
            # all members of a group tie: the oldest s are enough
            reached = np.cumsum(np.minimum(size, s))
            cost = reached
        else:
            reached = np.cumsum(size)
            cost = np.cumsum(np.where(size < _LARGE, size, size // _GAIN))
        if not len(reached) or reached[-1] < s:
            self.may_widen = True
            return None
        # a guess at the last score of the answer, checked below: the median content score is 0
        enough = int(np.searchsorted(reached, s))
        bar = label[enough] - (content / 3 if reached[enough] < 4 * s else 0.0)
        for _ in range(2):
            if outside + content >= bar:
                depth, needed = label[0] - label[-1], label[0] + content - bar
                self.may_widen = bool(needed < 1.3 * depth and 3 * cost[-1] <= self._limit)
                break
            # label scores are in falling order
            n_groups = int(np.searchsorted(-label, content + self._slack - bar, side="right"))
            n_groups = max(n_groups, enough + 1)
            if cost[n_groups - 1] > self._limit:
                break
            chosen = slice(n_groups)
            scores, slots = self._look_into(number[chosen], run[chosen], size[chosen], label)
            self.floor = float(self._query.lowest(scores[-1:])[0])
            if self.floor >= bar:
                return scores, slots
            bar = self.floor
        if not self.may_widen and self.floor < bar and cost[enough] <= self._limit:
            self._find_floor(number[: enough + 1], run[: enough + 1], size[: enough + 1], label)
        return None

    def _find_floor(self, number: Slots, run: Slots, size: Slots, label: Array) -> None:
        """Look into groups for a floor alone, where it may help a scan to round less."""
        values = np.abs(self._query.scaled)
        if 2 * float(values.max()) > float(values.sum()) - float(label[len(size) - 1]):
            scores, _ = self._look_into(number, run, size, label)
            self.floor = float(self._query.lowest(scores[-1:])[0])

    def _look_into(
        self, number: Slots, run: Slots, size: Slots, label: Array
    ) -> tuple[Scores, Slots]:
        """Return the best members of some groups."""
        s = self._s
        large = size >= _LARGE if self._content else np.zeros(len(size), dtype=np.bool_)
        few = np.flatnonzero(~large)
        found = [self._members(number[few], run[few], size[few])] if len(few) else []
        bounds = []
        query = self._content_query.scaled if large.any() else self._query.scaled
        for at in np.flatnonzero(large).tolist():
            group, n = self._groups[run[at]], min(s + s // 4 + 32, int(size[at]))
            index = group.content(int(number[at]), int(size[at]), self._codes)
            sums, places = index.search(query, n)
            worst = sums[0, -1] if places[0, -1] >= 0 else -np.abs(query).sum()
            bounds.append((float(label[at]) + float(worst) + self._error, at))
            start = int(group.starts[number[at]])
            found.append(group.slots_at(start + places[0, places[0] >= 0]))
        slots = np.concatenate(found)
        if len(slots) >= s:
            scores, best = look_up(self._codes, self._query, slots, s, self._tables)
            lowest = float(self._query.lowest(scores[-1:])[0])
            short = [at for bound, at in bounds if bound >= lowest]
        else:
            short = [at for _, at in bounds]
        if not short:
            return scores, best
        # look at all members of the groups whose rounding leaves room for more
        more = np.array(short)
        found.append(self._members(number[more], run[more], size[more]))
        slots = np.unique(np.concatenate(found))
        return look_up(self._codes, self._query, slots, s, self._tables)

    @functools.cached_property
    def _content_query(self) -> Projections:
        """The content half of the query."""
        return self._query.columns_from(self._n_label_bits)

    @functools.cached_property
    def _error(self) -> float:
        return float(self._content_query.rounding[0]) + 2 * self._slack

    def _label_scores(self, heads: list[tuple[Slots, Scores]]) -> tuple[Slots, Slots, Slots, Array]:
        """Return number, run, size and label score of groups, best first."""
        numbers, runs, sizes, scores = [], [], [], []
        for run, (group, (number, _)) in enumerate(zip(self._groups, heads, strict=True)):
            number = number[number >= 0]
            numbers.append(number)
            runs.append(np.full(len(number), run))
            sizes.append(group.sizes(number))
            scores.append(sum_of_bytes(self._tables, group.heads[number]))
        label = np.concatenate(scores)
        label *= self._scale
        order = np.argsort(-label)
        return (
            np.concatenate(numbers)[order],
            np.concatenate(runs)[order],
            np.concatenate(sizes)[order],
            label[order],
        )

    def _members(self, number: Slots, run: Slots, size: Slots) -> Slots:
        """Return the slots of some groups; where the query has no content the lowest s of each."""
        most = self._s if self._content == 0 else self._n_slots
        parts = []
        for at, group in enumerate(self._groups):
            here = np.flatnonzero(run == at)
            small = here[size[here] <= most]
            parts.append(group.members(number[small], size[small]))
            for large in here[size[here] > most]:
                slots = group.members(number[[large]], size[[large]])
                parts.append(np.partition(slots, most - 1)[:most])
        return np.concatenate(parts)
