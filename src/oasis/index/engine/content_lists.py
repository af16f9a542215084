"""Content bits by label group: faiss's `IndexIVFPQFastScan`, one list for each group.

The score of a code is the label score of its group plus its content score. faiss looks up the
content score in tables of 8 bits, as `oasis.index.engine.fast_scan` does for whole codes, and adds
the label score of the list in 16 bits. So the step of the rounding follows from the content values
of a query alone, however large its label values are, and label bits are not looked up.

faiss keeps 8 bytes for each code, here its slot, and whole blocks of 32 codes: only groups of about
a block or more are worth a list.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from oasis.arrays import Array
from oasis.codes import Codes
from oasis.index.engine.fast_scan import Found, sign_centroids
from oasis.index.engine.projections import (
    BLUR,
    Projections,
    Scores,
    Slots,
    rounding_bound,
    rounding_of,
)

Number = TypeVar("Number", float, Array)

MAX_BITS = 512
"""Content bits: 255 times a quarter of them are half of the 16 bits that faiss adds up in."""

_BLOCK = 32
_PAGE = 4096
_LEAST_ROOM = 256
_OVERHEAD = 64
"""Bytes that faiss takes for a list beside its codes."""

_LEAST = 2.0**-60
"""Content values below this, where the largest value of a query is about 1, are as good as 0."""

_LITTLE = 2.0**-12

_ONE_BY_ONE, _LIST_BY_LIST = 11, 13
"""Ways of faiss to search, both with a reservoir for each query: one query after the other, or one
list after the other for several queries. Before 1.13 it got some sums wrong."""

_SHARED = 8
"""Lists are searched list by list where so many queries share one on average."""

_LARGE = 256
"""And where a list that is searched has so many codes on average."""

_STEPS = 60_000
"""Steps of 16 bits that are used, fewer than 65,536: entries that are rounded up must fit too."""


def list_bytes(sizes: Slots, n_content_bytes: int) -> Slots:
    """Return how many bytes lists of so many codes take.

    faiss makes room for a power of two of bytes; pages of it that are never written are no memory.

    >>> import numpy as np
    >>> list_bytes(np.array([128, 129]), 8).tolist()
    [2112, 3144]
    """
    used = -(-sizes // _BLOCK) * (_BLOCK * n_content_bytes)
    room = np.exp2(np.ceil(np.log2(np.maximum(used, _LEAST_ROOM)))).astype(np.int64)
    taken: Slots = np.minimum(room, -(-used // _PAGE) * _PAGE) + 8 * sizes + _OVERHEAD
    return taken


def full_size(sizes: Slots, n_content_bytes: int) -> Slots:
    """Return how many of so many codes fill a list whose room is a power of two, or nearly.

    >>> import numpy as np
    >>> full_size(np.array([20, 128, 200]), 8).tolist()
    [20, 128, 128]
    """
    block = _BLOCK * n_content_bytes
    used = np.maximum(-(-sizes // _BLOCK) * block, _LEAST_ROOM)
    room = np.exp2(np.floor(np.log2(used))).astype(np.int64)
    full: Slots = np.minimum(np.maximum(room // block, 1) * _BLOCK, sizes)
    return full


@dataclass(frozen=True)
class ContentQueries:
    """The content halves of queries, prepared for look-ups.

    Attributes
    ----------
    values : (q, n_content_bits) float32, in units of `Projections.scaled`
    total : (q,): the largest sum of look-ups, and at least the largest content score
    error : (q,): the largest error of a sum of look-ups and label score
    room : (q,): how far the label scores of a search may lie apart
    """

    values: Scores
    total: Array
    error: Array
    room: Array

    @classmethod
    def of(cls, projections: Projections, n_label_bits: int) -> ContentQueries:
        """Take the content halves of queries."""
        values = projections.scaled[:, n_label_bits:].copy()
        half = projections.half_spans[:, n_label_bits // 4 :]
        if len(half) == 1:
            only = half[0].tolist()
            if max(only) >= _LEAST:
                # the same with less to set up
                room, error = _room(sum(only), max(only), rounding_of(only))
                error += 2 * float(projections.slack[0])
                return cls(values, np.array([sum(only)]), np.array([error]), np.array([room]))
        none = half.max(axis=1) < _LEAST
        ignored = np.where(none, _LITTLE + half.sum(axis=1), 0.0)
        if none.any():
            # next to no content: one bit gets a value that faiss can divide by
            half = half.copy()
            half[none], half[none, 0], values[none], values[none, 0] = 0.0, _LITTLE, 0.0, _LITTLE
        total = half.sum(axis=1)
        room, error = _room(total, half.max(axis=1), rounding_bound(half))
        return cls(values, total, error + ignored + 2 * projections.slack, room)

    def __getitem__(self, which: slice | Slots) -> ContentQueries:
        return ContentQueries(
            self.values[which], self.total[which], self.error[which], self.room[which]
        )

    def __len__(self) -> int:
        return len(self.values)


def _room(total: Number, largest: Number, rounding: Number) -> tuple[Number, Number]:
    """Return ``room`` and ``error`` of queries by sum, maximum and rounding of their half spans."""
    step = largest * (2 / 255)
    room = _STEPS * step - 2 * total
    # label scores are rounded too, and faiss returns float32 numbers
    return room, rounding + (0.5 + BLUR) * step + 2.0**-20 * room


class ContentLists:
    """The content halves of some groups, one list for each.

    Parameters
    ----------
    slots : (n,) int64, the slots of one group after the other, those of a group ascending
    codes : (n, n_content_bytes) uint8
    sizes : (g,) how many codes each group has
    """

    def __init__(self, slots: Slots, codes: Codes, sizes: Slots) -> None:
        import faiss

        self.n_codes = len(slots)
        self._sizes = sizes.astype(np.int32)
        self.nbytes = int(list_bytes(sizes, codes.shape[1]).sum())
        n_bits = 8 * codes.shape[1]
        # searches name the lists, so the quantizer that would choose them has no centroids
        quantizer = faiss.IndexFlatIP(n_bits)
        plain: Any = faiss.IndexIVFPQ(
            quantizer, n_bits, len(sizes), n_bits // 4, 4, faiss.METRIC_INNER_PRODUCT
        )
        faiss.copy_array_to_vector(sign_centroids(n_bits), plain.pq.centroids)
        plain.is_trained = True
        plain.ntotal = self.n_codes
        codes = np.ascontiguousarray(codes)
        start = 0
        for number, size in enumerate(sizes.tolist()):
            part = slice(start, start + size)
            plain.invlists.add_entries(
                number, size, faiss.swig_ptr(slots[part]), faiss.swig_ptr(codes[part])
            )
            start += size
        packed: Any = faiss.IndexIVFPQFastScan(plain)
        # an index over the same lists that searches each for several queries at once
        plain.reset()
        together: Any = faiss.IndexIVFPQFastScan(plain)
        together.replace_invlists(packed.invlists, False)
        for index, implem in ((packed, _ONE_BY_ONE), (together, _LIST_BY_LIST)):
            # packed lists are a copy of those of ``plain``; the quantizer must outlive the index
            index.orig_invlists = None
            index.referenced_objects = [quantizer]
            index.implem = implem
        self._index, self._together = packed, together

    def search(self, queries: ContentQueries, lists: Slots, labels: Array, n: int) -> Found:
        """Return the n best codes of some lists; n is at least 2, for which faiss has no short cut.

        Lists whose label score lies further below the best one than there is room for are left
        out; the bound is on their codes too. It is fast where queries share many lists.

        Parameters
        ----------
        lists : (q, p) int64: numbers of lists, -1 for none, at least one of each query
        labels : (q, p) float64: label scores of these lists
        """
        top = np.where(lists < 0, -np.inf, labels).max(axis=1)
        near = labels - top[:, None]
        near[lists < 0] = 0.0
        outside = np.full(len(lists), -np.inf)
        far = near < -queries.room[:, None]
        if far.any():
            outside = np.where(far, labels, -np.inf).max(axis=1) + queries.total + queries.error
            lists = np.where(far, -1, lists)
            near[far] = 0.0
        lists = np.ascontiguousarray(lists)
        index = self._together if self._shared(lists) else self._index
        sums, slots = self._search(index, queries.values, lists, near, n)
        worst = sums[:, -1].astype(np.float64)
        for row in np.flatnonzero(slots[:, -1] < 0).tolist():
            probed = lists[row] >= 0
            if np.count_nonzero(slots[row] >= 0) == self._sizes[lists[row, probed]].sum():
                worst[row] = -np.inf
            else:
                # faiss leaves out codes whose sum is 0 steps: the lowest that there is
                worst[row] = near[row, probed].min() - queries.total[row]
        bound = np.maximum(worst + top + queries.error, outside)
        return Found(sums + top[:, None], slots, bound, queries.error, np.full(len(lists), -np.inf))

    def _shared(self, lists: Slots) -> bool:
        """Return whether list by list is faster: many queries share large lists."""
        times = np.bincount(lists.ravel() + 1, minlength=1 + len(self._sizes))[1:]
        n_searched = int(times.sum())
        n_lists, n_codes = int(np.count_nonzero(times)), int(times @ self._sizes)
        return n_searched >= _SHARED * n_lists and n_codes >= _LARGE * n_searched

    def search_one(
        self, query: ContentQueries, lists: Slots, labels: Array, n: int
    ) -> tuple[Array, Slots, float]:
        """Return sums, slots and bound of one query, as `search` does, with less to set up.

        ``lists`` and ``labels`` are (p,), and all are lists.
        """
        top, last = float(labels.max()), float(labels.min())
        room, total, error = float(query.room[0]), float(query.total[0]), float(query.error[0])
        bound = -np.inf
        if last - top < -room:
            near = labels >= top - room
            bound = float(labels[~near].max()) + total + error
            lists, labels = lists[near], labels[near]
            last = float(labels.min())
        found = self._search(self._index, query.values, lists[None], labels[None] - top, n)
        sums, slots = found[0][0], found[1][0]
        if slots[-1] < 0:
            there = slots >= 0
            sums, slots = sums[there], slots[there]
            complete = len(slots) == int(self._sizes.take(lists).sum())
            worst = -np.inf if complete else last - top - total  # as above
        else:
            worst = float(sums[-1])
        return sums.astype(np.float64) + top, slots, max(bound, worst + top + error)

    def slots(self, number: int, most: int) -> Slots:
        """Return the slots of one list, in ascending order, at most so many."""
        import faiss

        size = min(most, int(self._index.invlists.list_size(number)))
        found: Slots = faiss.rev_swig_ptr(self._index.invlists.get_ids(number), size).copy()
        return found

    def _search(
        self, index: Any, values: Scores, lists: Slots, labels: Array, n: int
    ) -> tuple[Scores, Slots]:
        import faiss

        q, p = lists.shape
        sums = np.empty((q, n), dtype=np.float32)
        slots = np.empty((q, n), dtype=np.int64)
        labels = labels.astype(np.float32, order="C")
        pointer = faiss.swig_ptr
        index.search_preassigned_c(
            q,
            pointer(values),
            n,
            pointer(lists),
            pointer(labels),
            pointer(sums),
            pointer(slots),
            False,
            _parameters(p),
        )
        return sums, slots


@functools.lru_cache(maxsize=1024)
def _parameters(n_lists: int) -> Any:
    """Return the parameters of a search in so many lists; never changed, so threads may share."""
    import faiss

    parameters = faiss.IVFSearchParameters()
    parameters.nprobe = n_lists
    return parameters
