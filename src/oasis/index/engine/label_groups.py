"""Codes with a label half and a content half, packed by label half.

The first bits of such a code encode the labels of an item, and few label halves occur; the other
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
from oasis.index.engine import content_lists, group_search
from oasis.index.engine.buffers import Buffer
from oasis.index.engine.content_lists import ContentLists, ContentQueries, list_bytes
from oasis.index.engine.fast_scan import Found, join, pack_index, search_index
from oasis.index.engine.group_batch import together
from oasis.index.engine.group_search import GroupSearch, Look
from oasis.index.engine.keys import argsort, code_keys
from oasis.index.engine.postings import ranges
from oasis.index.engine.projections import Projections, Slots, Surrogate, sum_of_bytes

LISTED = 256
"""Groups of so many codes have a list. A list is searched far faster than single codes, but many
small ones are slower than one index of whole codes where all have to be searched."""

LEAST_LISTED = 24
"""The same where hardly any code is left without a list: searches then have lists alone to look
into."""

_LEFT = 16
"""One code in so many may be left."""

_MEMBER_BYTES = 3

_WORTH_A_LIST = 256
"""Bytes that one more list must save."""

Mask = npt.NDArray[np.bool_]


class LabelGroups:
    """The codes of slots ``start`` to ``stop`` by label half.

    Groups with lists come first: group i has list i. Of the others the members are kept, one group
    after the other. Some large groups are kept as two.

    Attributes
    ----------
    codes : Buffer
    n_label_bytes : int
    n_codes, n_groups : int
    n_members : int
        Codes of groups without lists.
    lists : ContentLists, or None where no group has one
    n_lists : int
    """

    def __init__(self, codes: Buffer, start: int, stop: int, n_label_bytes: int) -> None:
        some = codes.between(start, stop)
        order, begin = _by_label(some[:, :n_label_bytes])
        sizes = np.diff(begin, append=len(order))
        n_content_bytes = some.shape[1] - n_label_bytes
        large = sizes >= _least_listed(sizes, n_label_bytes, n_content_bytes)
        if 8 * n_content_bytes > content_lists.MAX_BITS:
            large[:] = False
        begin, sizes, large = _cut(begin, sizes, large, n_content_bytes)
        self.codes = codes
        self.n_label_bytes = n_label_bytes
        self.n_codes, self.n_groups = len(order), len(begin)
        self.n_lists = int(large.sum())
        self._start = start
        listed = order[ranges(begin[large], sizes[large])]
        members = order[ranges(begin[~large], sizes[~large])]
        self.n_members = len(members)
        # three bytes a member: a segment has fewer than 2**24 codes
        self._low, self._high = members.astype(np.uint16), (members >> 16).astype(np.uint8)
        ends = np.cumsum(np.concatenate([sizes[large], sizes[~large]]))
        self._starts = np.concatenate([[0], ends]).astype(np.int32)
        self.lists: ContentLists | None = None
        if self.n_lists:
            content = some[listed][:, n_label_bytes:]
            self.lists = ContentLists(listed + start, content, sizes[large])
        # (n_label_bytes, n_lists)
        self._labels = np.ascontiguousarray(some[order[begin[large]], :n_label_bytes].T)
        self._whole: Any = pack_index(some[members]) if len(members) else None
        heads = np.concatenate([order[begin[large]], order[begin[~large]]])
        self._heads: Any = pack_index(some[heads, :n_label_bytes])

    @property
    def nbytes(self) -> int:
        indexes = [self._heads] + ([] if self._whole is None else [self._whole])
        packed = sum(int(index.codes.size()) for index in indexes)
        arrays = self._low.nbytes + self._high.nbytes + self._labels.nbytes + self._starts.nbytes
        return packed + arrays + (0 if self.lists is None else self.lists.nbytes)

    def sizes(self, groups: Slots) -> Slots:
        """Return how many codes each of these groups has."""
        sizes: Slots = self._starts.take(groups + 1) - self._starts.take(groups)
        return sizes

    def members(self, groups: Slots, sizes: Slots) -> Slots:
        """Return the slots of groups without lists, one group after the other."""
        at = self._starts.take(groups).astype(np.int64) - int(self._starts[self.n_lists])
        return self._slots(ranges(at, sizes))

    def label_scores(self, projections: Projections, query: Slots, lists: Slots) -> Array:
        """Return the label score of ``lists[i]`` for ``query[i]``, in units of ``scaled``."""
        tables = projections.label_tables(self.n_label_bytes)
        first = query * (256 * self.n_label_bytes)
        scores = sum_of_bytes(tables, self._labels.take(lists, axis=1).T, first)
        return scores * projections.scale[query]

    def list_scores(self, tables: Array, lists: Slots | None = None) -> Array:
        """Return the label scores of some lists, or of all, by the byte tables of a query."""
        if lists is not None:
            return sum_of_bytes(tables, self._labels.take(lists, axis=1).T)
        # one byte after the other: entries of all would be a large array for a short moment
        scores: Array = tables[:256].take(self._labels[0])
        for byte in range(1, self.n_label_bytes):
            scores += tables[256 * byte : 256 * byte + 256].take(self._labels[byte])
        return scores

    def _slots(self, positions: Slots) -> Slots:
        """Return the slots at positions of the members of groups without lists."""
        slots = self._high.take(positions).astype(np.int64)
        slots <<= 16
        slots |= self._low.take(positions)
        slots += self._start
        return slots

    def search(self, projections: Projections, eased: Surrogate, s: int, wider: int) -> Found:
        """Return the best codes of the groups that may matter, or of all where they are many."""
        return self.search_above(projections, eased.floor, s, wider)

    def search_above(self, projections: Projections, floor: Array, s: int, wider: int) -> Found:
        """Return the same, given a score that s codes reach."""
        content = ContentQueries.of(projections, 8 * self.n_label_bytes)
        searches = [
            GroupSearch(self, projections, row, content[row : row + 1], each, s, wider)
            for row, each in enumerate(floor.tolist())
        ]
        self._rank(projections, searches)
        looks = self._looks(projections, content, searches)
        floor = np.array([search.floor for search in searches])
        rest = [row for row, search in enumerate(searches) if search.scan]
        found = Found(*_stack(looks), content.error, floor)
        if not rest:
            return found
        every = len(rest) == len(projections)
        part = projections if every else projections[np.array(rest)]
        whole = self._scan(part, floor[rest], s, wider)
        return join([found, whole if every else _spread(whole, rest, len(projections))])

    def search_one(self, projection: Projections, s: int) -> tuple[Slots, float]:
        """Return slots and bound of one query, as `search` does, with less to set up."""
        content = ContentQueries.of(projection, 8 * self.n_label_bytes)
        search = GroupSearch(self, projection, 0, content, -np.inf, s, 1)
        self._rank(projection, [search])
        _, slots, bound = search.finish() or search.look_into_lists()
        if not search.scan:
            return slots, bound
        whole = self._scan(projection, np.array([search.floor]), s, 1)
        return np.concatenate([slots, whole.slots[0]]), max(bound, float(whole.bound[0]))

    def _rank(self, projections: Projections, searches: list[GroupSearch]) -> None:
        """Rank groups for the queries that ask for it."""
        rows = [row for row, search in enumerate(searches) if search.ranks]
        if not rows:
            return
        label = projections.scaled[:, : 8 * self.n_label_bytes]
        if len(rows) < len(projections):
            label = label[rows]
        sums, found = self._heads.search(label, min(group_search.RANKED, self.n_groups))
        for at, row in enumerate(rows):
            searches[row].rank(sums[at], found[at])

    def _looks(
        self, projections: Projections, content: ContentQueries, searches: list[GroupSearch]
    ) -> list[Look]:
        """Return what each query found in its groups, small ones that are scanned not included."""
        ranked = together(self, projections, content, searches)
        looks = [ranked.get(row) or search.finish() for row, search in enumerate(searches)]
        rest = [row for row, look in enumerate(looks) if look is None and not searches[row].in_full]
        by_lists: dict[int, Look] = {}
        if len(rest) > 1:
            by_lists = self._look_into_lists(projections, content, searches, rest)
        return [
            look or by_lists.get(row) or searches[row].look_into_lists()
            for row, look in enumerate(looks)
        ]

    def _look_into_lists(
        self,
        projections: Projections,
        content: ContentQueries,
        searches: list[GroupSearch],
        rows: list[int],
    ) -> dict[int, Look]:
        """Look into all lists that may matter for some rows of the queries, together."""
        if self.lists is None:
            return {}
        label = projections.scaled[rows, : 8 * self.n_label_bytes] @ self._list_signs()
        bar = [searches[row].bar_of_lists() for row in rows]
        # one list at least
        within = label >= np.minimum(bar, label.max(axis=1))[:, None]
        outside = label.max(axis=1, where=~within, initial=-np.inf)
        lists = np.where(within, np.arange(self.n_lists), -1)
        found = self.lists.search(content[np.array(rows)], lists, label, searches[rows[0]].n_listed)
        return {
            row: searches[row].take(found.sums[at], found.slots[at], *bounds)
            for at, (row, *bounds) in enumerate(
                zip(rows, found.bound.tolist(), outside.tolist(), strict=True)
            )
        }

    def _list_signs(self) -> Array:
        """(8 n_label_bytes, n_lists): the label signs of lists."""
        return unpack(self._labels.T).T.astype(np.float64)

    def _scan(self, projections: Projections, floor: Array, s: int, wider: int) -> Found:
        """Return the best codes of groups without lists, given a score that s codes reach."""
        found = search_index(self._whole, projections.eased(floor), s, wider)
        # sums fall along a row, and codes below the floor do not matter
        n = int((found.sums >= (floor - found.error)[:, None]).sum(axis=1).max())
        at = found.slots[:, :n]
        slots = self._slots(np.maximum(at, 0))
        if n and at[:, -1].min() < 0:
            slots[at < 0] = -1
        return found._replace(sums=found.sums[:, :n], slots=slots)


def _least_listed(sizes: Slots, n_label_bytes: int, n_content_bytes: int) -> int:
    """Return how many codes a group must have for a list, given the sizes of all groups.

    Small groups have lists where these take no more memory than whole codes and members would.
    """
    if LISTED <= LEAST_LISTED:
        return LISTED
    large = sizes[sizes >= LEAST_LISTED]
    n_codes = int(sizes.sum())
    if _LEFT * (n_codes - int(large.sum())) > n_codes:
        return LISTED
    taken = int(list_bytes(large, n_content_bytes).sum()) + n_label_bytes * len(large)
    room = int(large.sum()) * (n_label_bytes + n_content_bytes + _MEMBER_BYTES)
    return LEAST_LISTED if taken <= room else LISTED


def _cut(
    begin: Slots, sizes: Slots, large: Mask, n_content_bytes: int
) -> tuple[Slots, Slots, Mask]:
    """Cut large groups in two where the lists of both take less memory: see `list_bytes`."""
    first = content_lists.full_size(sizes, n_content_bytes)
    rest = sizes - first
    saved = list_bytes(sizes, n_content_bytes) - list_bytes(first, n_content_bytes)
    cut = large & (rest > 0) & (saved - list_bytes(rest, n_content_bytes) > _WORTH_A_LIST)
    copies = np.where(cut, 2, 1)
    # of the two copies of a group that is cut, the first is what fills its room, the other the rest
    second = np.zeros(int(copies.sum()), dtype=np.bool_)
    second[np.cumsum(copies)[cut] - 1] = True
    begin, large = np.repeat(begin, copies), np.repeat(large, copies)
    begin[second] += first[cut]
    sizes = np.repeat(np.where(cut, first, sizes), copies)
    sizes[second] = rest[cut]
    return begin, sizes, large


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


def _spread(found: Found, rows: list[int], q: int) -> Found:
    """Return what was found for some rows of q queries, and nothing for the others."""
    blank = np.full(q, -np.inf)
    every = Found(
        np.full((q, found.sums.shape[1]), -np.inf),
        np.full((q, found.sums.shape[1]), -1),
        blank,
        np.zeros(q),
        blank.copy(),
    )
    for whole, part in zip(every, found, strict=True):
        whole[rows] = part
    return every


def _by_label(labels: Codes) -> tuple[Slots, Slots]:
    """Return an order in which equal label halves are side by side, and where each group begins.

    Label halves of one hash may alternate: then there are more groups than label halves, which
    costs some space, but results stay exact.
    """
    order = argsort(code_keys(labels))
    pairs = words(np.ascontiguousarray(labels[order]))
    differs: npt.NDArray[np.bool_] = np.ones(len(order), dtype=np.bool_)
    differs[1:] = (pairs[1:] != pairs[:-1]).any(axis=1)
    return order, np.flatnonzero(differs)
