"""Lists of rows, one per distinct code: a frozen base in CSR form and lists that grow.

As long as every row brings a new code, slot i has the one row i, and the base grows by moving its
end. After that, ``link[slot]`` says what a slot has beyond the base: 0 nothing, ``row + 1`` a
single row, and ``-1 - g`` the growing list ``g``. A growing list is a stretch of the pool with room
for a power of two; when it is full it moves to a stretch twice as long at the pool's end. Start and
length of a stretch share one int64, so a reader sees both or neither. Rows only ascend, so a reader
that works on an older snapshot sees newer rows at the end of lists only, and drops them by their
number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.errors import FormatError
from oasis.index.engine.buffers import Buffer

Ints = npt.NDArray[np.int64]

_LENGTH_BITS = 31
_LENGTH_MASK = (1 << _LENGTH_BITS) - 1


@dataclass(frozen=True)
class Pieces:
    """Where the rows of some slots lie: in the base first, then in the tail.

    A ``tail_start`` below zero stands for the single row ``-1 - tail_start``.
    """

    base_start: Ints
    base_length: Ints
    tail_start: Ints
    tail_length: Ints

    @property
    def length(self) -> Ints:
        return self.base_length + self.tail_length


class Postings:
    """The rows of every slot, ascending.

    Parameters
    ----------
    n_slots, n_rows : int
        What the base covers.
    offsets, rows : int32 arrays of n_slots + 1 and n_rows, or None
        The base lists; None when slot i has the one row i.

    Attributes
    ----------
    high : int
        Rows below this number may be in the lists; it moves before the lists do.
    """

    def __init__(
        self,
        n_slots: int,
        n_rows: int,
        offsets: npt.NDArray[np.int32] | None = None,
        rows: npt.NDArray[np.int32] | None = None,
    ) -> None:
        self.n_base = n_slots
        self.offsets = offsets
        self.base_rows = rows
        self.high = n_rows
        self._n_base_rows = n_rows
        self._checked = offsets is None
        # None while slot i has the one row i throughout
        self._link: Buffer | None = None if offsets is None else _no_links(n_slots)
        self._extent = Buffer(np.empty(0, dtype=np.int64))
        self._pool = Buffer(np.empty(0, dtype=np.int32))
        self._n_lists = 0
        self._n_pool = 0

    def nbytes(self, n_slots: int) -> int:
        """Return the bytes in use when ``n_slots`` slots are."""
        base = 0
        if self.offsets is not None and self.base_rows is not None:
            base = self.offsets.nbytes + self.base_rows.nbytes
        links = 0 if self._link is None else 4 * n_slots
        return base + links + 8 * self._n_lists + 4 * self._n_pool

    def check_base(self) -> None:
        """Check the base lists once, before their first use, because the file may be damaged."""
        if self._checked or self.offsets is None or self.base_rows is None:
            return
        offsets, rows = self.offsets, self.base_rows
        if (
            offsets[0] != 0
            or offsets[-1] != len(rows)
            or bool((offsets[1:] <= offsets[:-1]).any())
            or int(rows.min()) < 0
            or int(rows.max()) >= self._n_base_rows
        ):
            raise FormatError("the index file is damaged: its lists of rows do not fit together")
        self._checked = True

    def links(self, slots: Ints) -> npt.NDArray[np.int32]:
        """Return what each slot has beyond the base, as the module describes it."""
        link = self._link
        if link is None:
            return np.zeros(slots.shape, dtype=np.int32)
        links: npt.NDArray[np.int32] = link.take(slots)
        return links

    def single_rows(self, slots: Ints, links: npt.NDArray[np.int32]) -> Ints | None:
        """Return the rows of slots that have one row each, or None where some has more."""
        if self._link is None:
            return slots
        if self.n_base == 0:
            return links.astype(np.int64) - 1 if links.min(initial=1) > 0 else None
        if self.offsets is not None or links.min(initial=0) < 0:
            return None
        old = slots < self.n_base
        if bool((links[old] != 0).any()):
            return None
        return np.where(old, slots, links.astype(np.int64) - 1)

    def first_rows(self, slot: int, link: int, limit: int) -> list[int]:
        """Return the first rows of one slot, at most ``limit``: quicker than `rows` for a few."""
        rows: list[int] = []
        if slot < self.n_base:
            if self.offsets is None or self.base_rows is None:
                rows = [slot]
            else:
                start, stop = int(self.offsets[slot]), int(self.offsets[slot + 1])
                rows = self.base_rows[start : min(stop, start + limit)].tolist()
        limit -= len(rows)
        if link > 0 and limit > 0:
            rows.append(link - 1)
        elif link < 0 and limit > 0:
            extent = int(self._extent.tail[-1 - link])
            start, length = extent >> _LENGTH_BITS, min(extent & _LENGTH_MASK, limit)
            rows += self._pool.tail[start : start + length].tolist()
        return rows

    def pieces(self, slots: Ints) -> Pieces:
        """Return where the rows of ``slots`` (one-dimensional) lie."""
        # the order of these reads matters to a reader beside a writer: link, extent, then the pool
        link = self.links(slots).astype(np.int64)
        tail_start = -link
        tail_length = (link > 0).astype(np.int64)
        lists = np.flatnonzero(link < 0)
        if len(lists):
            extent = self._extent.take(-1 - link[lists])
            tail_start[lists] = extent >> _LENGTH_BITS
            tail_length[lists] = extent & _LENGTH_MASK
        base_start = np.zeros(len(slots), dtype=np.int64)
        base_length = np.zeros(len(slots), dtype=np.int64)
        if self.n_base:
            old = np.flatnonzero(slots < self.n_base)
            if self.offsets is None:
                base_start[old], base_length[old] = slots[old], 1
            else:
                start = self.offsets[slots[old]].astype(np.int64)
                base_start[old] = start
                base_length[old] = self.offsets[slots[old] + 1] - start
        return Pieces(base_start, base_length, tail_start, tail_length)

    def rows(self, pieces: Pieces, which: Ints, lengths: Ints) -> Ints:
        """Return the first ``lengths[i]`` rows of entry ``which[i]``, one list after the other."""
        within = ranges(np.zeros(len(which), dtype=np.int64), lengths)
        base_length = np.repeat(pieces.base_length[which], lengths)
        in_base = within < base_length
        if not self.n_base or not in_base.any():
            return self._tail_rows(np.repeat(pieces.tail_start[which], lengths), within)
        start = np.repeat(pieces.base_start[which], lengths)
        at = start + within
        if in_base.all():
            return at if self.base_rows is None else self.base_rows[at].astype(np.int64)
        rows = np.empty(len(within), dtype=np.int64)
        rows[in_base] = at[in_base] if self.base_rows is None else self.base_rows[at[in_base]]
        late = ~in_base
        tail_start = np.repeat(pieces.tail_start[which], lengths)[late]
        rows[late] = self._tail_rows(tail_start, (within - base_length)[late])
        return rows

    def _tail_rows(self, start: Ints, within: Ints) -> Ints:
        single = start < 0
        if not single.any():
            return self._pool.take(start + within).astype(np.int64)
        rows = -1 - start
        many = np.flatnonzero(~single)
        rows[many] = self._pool.take(start[many] + within[many])
        return rows

    def append(self, slots: Ints, counts: Ints, rows: Ints, n_slots: int, end: int) -> None:
        """Add ``counts[i]`` rows to slot ``slots[i]``; ``rows`` holds them list by list.

        Parameters
        ----------
        slots : distinct; those from ``n_slots`` on are new
        counts : at least 1 each
        rows : ascending within each list, none below a row that is there already
        n_slots : slots in use before the call
        end : one above the highest row

        Cost is in proportion to ``rows``, amortised. If it raises, every list is as it was.
        """
        if self._link is None:
            if len(rows) == len(slots) and bool((slots == rows).all()):
                # every row has a new code, and its slot has the same number: nothing to store
                self.high = end
                self.n_base = end
                return
            # ignore what a failed add has written beyond the slots in use
            self.n_base = n_slots
            self._link = _no_links(n_slots)
        links = self._link
        known = slots < n_slots
        link = np.zeros(len(slots), dtype=np.int64)
        link[known] = links.take(slots[known])
        n_new = int((~known).sum())
        grown = link < 0
        old_extent = self._extent.take(-1 - link[grown])
        old_start, old_length = -link, (link > 0).astype(np.int64)
        old_start[grown] = old_extent >> _LENGTH_BITS
        old_length[grown] = old_extent & _LENGTH_MASK
        length = old_length + counts

        alone = length == 1
        fits = grown & (length <= _room(old_length))
        moves = np.flatnonzero(~alone & ~fits)
        first = np.cumsum(counts) - counts
        start = old_start.copy()
        room = _room(length[moves])
        start[moves] = self._n_pool + np.cumsum(room) - room
        fresh = np.flatnonzero(~alone & ~grown)
        new_link = link.copy()
        new_link[alone] = rows[first[alone]] + 1
        new_link[fresh] = -1 - (self._n_lists + np.arange(len(fresh)))
        listed = np.flatnonzero(~alone)
        copied = old_length[moves]
        moved = self._tail_rows(
            np.repeat(old_start[moves], copied),
            ranges(np.zeros(len(moves), dtype=np.int64), copied),
        )
        n_pool = self._n_pool + int(room.sum())
        n_lists = self._n_lists + len(fresh)
        self._pool.reserve(n_pool)
        self._extent.reserve(n_lists)
        links.reserve(n_slots + n_new)

        targets = ranges(start[listed] + old_length[listed], counts[listed])
        values = rows if len(listed) == len(slots) else rows[np.repeat(~alone, counts)]
        extent = (start[listed] << _LENGTH_BITS) | length[listed]
        # a reader may be anywhere in the lists: rows first, then extents, then links
        self.high = end
        self._n_pool, self._n_lists = n_pool, n_lists
        try:
            self._pool.put(ranges(start[moves], copied), moved)
            self._pool.put(targets, values)
            self._extent.put(-1 - new_link[listed], extent)
            links.put(slots, new_link)
        except BaseException:
            self._extent.put(-1 - link[grown], old_extent)
            links.put(slots[known], link[known])
            raise


def _no_links(n_slots: int) -> Buffer:
    """Return empty links; zeros that were never written take no memory."""
    return Buffer(np.zeros(n_slots, dtype=np.int32))


def ranges(start: Ints, lengths: Ints) -> Ints:
    """Return ``start[i], start[i] + 1, ...``, ``lengths[i]`` numbers each, as one array.

    >>> import numpy as np
    >>> ranges(np.array([5, 9]), np.array([2, 3])).tolist()
    [5, 6, 9, 10, 11]
    """
    total = int(lengths.sum())
    offsets: Ints = start - (np.cumsum(lengths) - lengths)
    return np.arange(total) + np.repeat(offsets, lengths)


def _room(length: npt.NDArray[Any]) -> Ints:
    """Return the smallest power of two that is at least ``length`` (and 0 for 0)."""
    # frexp is exact here: lengths are below 2 ** 31
    _, exponent = np.frexp(np.maximum(length - 1, 0).astype(np.float64))
    room: Ints = np.where(length > 0, np.int64(1) << exponent.astype(np.int64), 0)
    return room
