"""Codes with a label half and a content half, packed by label half.

The first bits of such a code say which labels an item has, and few label halves occur; the other
bits hardly ever repeat. Codes with equal label halves form a group. The score of a code is the
label score of its group plus its content score. Each code is packed once: as content bits in the
list of its group (`oasis.index.engine.content_lists`) or, where the group is too small for a list,
as a whole code.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array
from oasis.codes import Codes, unpack, words
from oasis.index.engine import content_lists
from oasis.index.engine.buffers import Buffer
from oasis.index.engine.content_lists import ContentLists, ContentQueries
from oasis.index.engine.fast_scan import Found, join, pack_index, search_index
from oasis.index.engine.group_search import GroupSearch, Look, list_candidates
from oasis.index.engine.keys import argsort, code_keys
from oasis.index.engine.postings import ranges
from oasis.index.engine.projections import Projections, Slots, Surrogate

LISTED = 256
"""Groups of so many codes have a list. A list is searched far faster than single codes, but many
small ones are slower than one index of whole codes where all have to be searched."""


class LabelGroups:
    """The codes of slots ``start`` to ``stop`` by label half.

    Groups with lists come first: group i has list i. Of the others the members are kept, one group
    after the other.

    Attributes
    ----------
    codes : Buffer
    n_label_bytes : int
    n_codes, n_groups : int
    lists : ContentLists, or None where no group has one
    n_lists : int
    heads : faiss index of the label halves
    """

    def __init__(self, codes: Buffer, start: int, stop: int, n_label_bytes: int) -> None:
        some = codes.between(start, stop)
        order, begin = _by_label(some[:, :n_label_bytes])
        sizes = np.diff(begin, append=len(order))
        large = sizes >= LISTED
        if 8 * (some.shape[1] - n_label_bytes) > content_lists.MAX_BITS:
            large[:] = False
        self.codes = codes
        self.n_label_bytes = n_label_bytes
        self.n_codes, self.n_groups = len(order), len(begin)
        self.n_lists = int(large.sum())
        self._start = start
        listed = order[ranges(begin[large], sizes[large])]
        members = order[ranges(begin[~large], sizes[~large])]
        # three bytes a member: a segment has fewer than 2**24 codes
        self._low, self._high = members.astype(np.uint16), (members >> 16).astype(np.uint8)
        self._firsts = order[begin[large]].astype(np.int32)
        ends = np.cumsum(np.concatenate([sizes[large], sizes[~large]]))
        self._starts = np.concatenate([[0], ends]).astype(np.int32)
        self.lists: ContentLists | None = None
        if self.n_lists:
            content = some[listed][:, n_label_bytes:]
            self.lists = ContentLists(listed + start, content, sizes[large])
        self._whole: Any = pack_index(some[members]) if len(members) else None
        labels = some[np.concatenate([order[begin[large]], order[begin[~large]]]), :n_label_bytes]
        self.heads: Any = pack_index(labels)

    @property
    def nbytes(self) -> int:
        indexes = [self.heads] + ([] if self._whole is None else [self._whole])
        packed = sum(int(index.codes.size()) for index in indexes)
        arrays = self._low.nbytes + self._high.nbytes + self._firsts.nbytes + self._starts.nbytes
        return packed + arrays + (0 if self.lists is None else self.lists.nbytes)

    def sizes(self, groups: Slots) -> Slots:
        """Return how many codes each of these groups has."""
        sizes: Slots = self._starts.take(groups + 1) - self._starts.take(groups)
        return sizes

    def labels(self, groups: Slots) -> Codes:
        """Return the label halves of groups."""
        at = self._starts.take(groups).astype(np.int64) - int(self._starts[self.n_lists])
        listed = at < 0
        if listed.all():
            slots = self._firsts.take(groups) + np.int64(self._start)
        else:
            slots = self._slots(np.maximum(at, 0))
            slots[listed] = self._firsts.take(groups[listed]) + np.int64(self._start)
        labels: Codes = self.codes.take(slots)
        return labels[:, : self.n_label_bytes]

    def members(self, groups: Slots, sizes: Slots) -> Slots:
        """Return the slots of groups without lists, one group after the other."""
        at = self._starts.take(groups).astype(np.int64) - int(self._starts[self.n_lists])
        return self._slots(ranges(at, sizes))

    def _slots(self, positions: Slots) -> Slots:
        """Return the slots at positions of the members of groups without lists."""
        slots = self._high.take(positions).astype(np.int64)
        slots <<= 16
        slots |= self._low.take(positions)
        slots += self._start
        return slots

    def search(self, projections: Projections, eased: Surrogate, s: int, wider: int) -> Found:
        """Return the best codes of the groups that may matter, or of all where they are many."""
        q = len(projections)
        content = ContentQueries.of(projections, 8 * self.n_label_bytes)
        searches = [
            GroupSearch(self, projections, row, content[row : row + 1], s, wider)
            for row in range(q)
        ]
        looks = [
            search(floor) for search, floor in zip(searches, eased.floor.tolist(), strict=True)
        ]
        floor = np.array([search.floor for search in searches])
        rest = np.array([row for row, look in enumerate(looks) if look is None], dtype=np.int64)
        if len(rest) == q:
            return self._search_all(projections, floor, content, s, wider)._replace(floor=floor)
        found = _stack([look for look in looks if look is not None])
        error = content.error
        if not len(rest):
            return Found(*found, error, floor)
        others = self._search_all(projections[rest], floor[rest], content[rest], s, wider)
        answered = np.setdiff1d(np.arange(q), rest)
        width = max(found[0].shape[1], others.slots.shape[1])
        joined = Found(
            np.full((q, width), -np.inf), np.full((q, width), -1), np.empty(q), error.copy(), floor
        )
        for rows, (sums, slots, bound) in ((answered, found), (rest, others[:3])):
            joined.sums[rows, : sums.shape[1]] = sums
            joined.slots[rows, : sums.shape[1]] = slots
            joined.bound[rows] = bound
        joined.error[rest] = others.error
        return joined

    def _search_all(
        self, projections: Projections, floor: Array, content: ContentQueries, s: int, wider: int
    ) -> Found:
        """Return the best codes of all lists, and the best of the others."""
        found = []
        if self.lists is not None:
            n = min(self.n_codes, list_candidates(s, wider))
            found.append(self._search_lists(self.lists, projections, floor, content, n))
        if self._whole is not None:
            whole = search_index(self._whole, projections.eased(floor), s, wider)
            slots = np.where(whole.slots < 0, -1, self._slots(np.maximum(whole.slots, 0)))
            found.append(whole._replace(slots=slots))
        return found[0] if len(found) == 1 else join(found)

    def _search_lists(
        self,
        lists: ContentLists,
        projections: Projections,
        floor: Array,
        content: ContentQueries,
        n: int,
    ) -> Found:
        """Search all lists that may hold a code that reaches the floor."""
        signs = unpack(self.labels(np.arange(self.n_lists))).astype(np.float32)
        label = (projections.scaled[:, : signs.shape[1]] @ signs.T).astype(np.float64)
        best = label.max(axis=1)
        needed = np.minimum(best, floor - content.total - content.error)
        reached = label >= needed[:, None]
        numbers = np.flatnonzero(reached.any(axis=0))
        chosen = np.where(reached[:, numbers], numbers, -1)
        return lists.search(content, chosen, label[:, numbers], n)


def _stack(looks: list[Look]) -> tuple[Array, Slots, Array]:
    """Return sums and slots (q, c), padded with -inf and -1, and bounds (q,)."""
    if len(looks) == 1:
        sums, slots, bound = looks[0]
        return sums[None].astype(np.float64), slots[None], np.array([bound])
    width = max(len(look[0]) for look in looks)
    padded = np.full((len(looks), width), -np.inf)
    numbers = np.full((len(looks), width), -1)
    for row, (sums, slots, _) in enumerate(looks):
        padded[row, : len(sums)], numbers[row, : len(sums)] = sums, slots
    return padded, numbers, np.array([look[2] for look in looks])


def _by_label(labels: Codes) -> tuple[Slots, Slots]:
    """Return an order in which equal label halves are side by side, and where each group begins.

    Label halves of one hash may alternate: then there are more groups than label halves, which
    costs a little space and no exactness.
    """
    order = argsort(code_keys(labels))
    pairs = words(np.ascontiguousarray(labels[order]))
    differs: npt.NDArray[np.bool_] = np.ones(len(order), dtype=np.bool_)
    differs[1:] = (pairs[1:] != pairs[:-1]).any(axis=1)
    return order, np.flatnonzero(differs)
