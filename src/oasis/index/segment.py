"""Segments: immutable blocks of items; the tail, which still grows; and a snapshot of both.

The items of an index are numbered by insertion, and a segment holds consecutive ones. Within it
they are rows 0, 1, ... Each distinct code is kept once. These codes are numbered in the order of
their first rows: the number of a code is its slot. A segment is sorted once, when it is made: its
codes, to find equal ones, and its ids, to find rows. The copy of the codes that faiss looks scores
up in is made when a search first needs it.

New items go into the tail. When it would hold more than `_TAIL` items, they become a segment
instead, together with all older segments that are smaller than `_GROWTH` times what comes behind
them: so there are few segments, each much smaller than the one before it, and an item is sorted
again only a logarithmic number of times. Removed rows are marked in a bitmap per segment and
dropped when it is merged or saved, or a third of its rows is removed.

Rows and slots of all segments of a snapshot count as one: those of the second begin behind those of
the first.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array
from oasis.codes import Codes
from oasis.errors import FormatError, InputError
from oasis.index.label_groups import LabelGroups, equal_codes, ranges
from oasis.index.projections import Found, Ints, PackedScan, Projections, TableScan
from oasis.index.protocol import AllowList, Ids, Mask

Ints32 = npt.NDArray[np.int32]

MAX_ROWS = 2**30
"""Rows are int32, and a key of a score and a slot has 31 bits for the slot."""

ROW_BITS = 31

_TAIL = 4096
_GROWTH = 3

_PACKED = 1024
"""So many codes are packed for look-ups by 8 bits."""

_ROOM = 256


class Segment:
    """Items in order of insertion; never changed.

    Parameters
    ----------
    ids : (n,)
    codes : (s, n_bytes)
        Distinct codes, in the order of their first rows. (Nothing relies on their being distinct.)
    slots : (n,) int32, or None
        The slot of each row; None if all codes differ: then row i has slot i.
    offsets, rows : int32 arrays of s + 1 and n, or None
        Slot i has rows ``rows[offsets[i]:offsets[i + 1]]``, ascending.
    id_order : (n,) int32, or None
        Rows by id; None if ids ascend.
    n_label_bytes : int
        Number of bytes at the beginning of a code that are label bits.
    """

    def __init__(
        self,
        ids: Ids,
        codes: Codes,
        slots: Ints32 | None = None,
        offsets: Ints32 | None = None,
        rows: Ints32 | None = None,
        id_order: Ints32 | None = None,
        n_label_bytes: int = 0,
    ) -> None:
        self.ids, self.codes = ids, codes
        self.slots, self.offsets, self.rows = slots, offsets, rows
        self.id_order = id_order
        self.n_label_bytes = n_label_bytes
        self._packing = threading.Lock()
        self._packed: PackedScan | LabelGroups | None = None

    @classmethod
    def of(cls, ids: Ids, codes: Codes, slots: Ints, n_label_bytes: int = 0) -> Segment:
        """Sort items in order of insertion into a segment; row i has the code ``codes[slots[i]]``.

        Codes may be equal or unused.
        """
        n = len(ids)
        order, begin = equal_codes(codes)
        group = np.empty(len(codes), dtype=np.int64)
        group[order] = np.repeat(np.arange(len(begin)), np.diff(begin, append=len(codes)))
        # one integer sorts by group, then row
        both = np.sort((group[slots] << 32) | np.arange(n))
        rows = both & 0xFFFFFFFF
        first = np.flatnonzero(np.diff(both >> 32, prepend=-1))
        id_order = None if (ids[1:] > ids[:-1]).all() else np.argsort(ids).astype(np.int32)
        if len(first) == n:
            return cls(ids, codes[slots], None, None, None, id_order, n_label_bytes)
        by_first_row = np.argsort(rows[first])
        counts = np.diff(first, append=n)[by_first_row]
        rows = rows[ranges(first[by_first_row], counts)]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        used = np.empty(n, dtype=np.int32)
        used[rows] = np.repeat(np.arange(len(first)), counts)
        return cls(
            ids,
            codes[slots[rows[offsets[:-1]]]],
            used,
            offsets.astype(np.int32),
            rows.astype(np.int32),
            id_order,
            n_label_bytes,
        )

    @classmethod
    def merged(cls, parts: Sequence[Segment], kept: Sequence[Mask | None]) -> Segment:
        """Return some rows of several segments, in this order, as one; None keeps all rows."""
        ids, slots, first = [], [], 0
        for part, mask in zip(parts, kept, strict=True):
            here = slice(None) if mask is None else mask
            ids.append(part.ids[here])
            slots.append(part.slots_of(np.arange(len(part)))[here] + first)
            first += len(part.codes)
        codes = np.concatenate([part.codes for part in parts])
        return cls.of(np.concatenate(ids), codes, np.concatenate(slots), parts[0].n_label_bytes)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def n_codes(self) -> int:
        """Number of distinct codes."""
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        arrays = (self.ids, self.codes, self.slots, self.offsets, self.rows, self.id_order)
        packed = 0 if self._packed is None else self._packed.nbytes
        return packed + sum(array.nbytes for array in arrays if array is not None)

    @property
    def _by_id(self) -> npt.NDArray[Any] | None:
        """Rows by id, rows of one id ascending; None if ids ascend."""
        return self.id_order

    def check(self) -> None:
        """Raise `FormatError` if an array points outside of the segment: files may be damaged."""
        n, s = len(self.ids), len(self.codes)
        offsets, rows = self.offsets, self.rows
        for array, limit in ((self.slots, s), (rows, n), (self.id_order, n)):
            if array is not None and n and not 0 <= int(array.min()) <= int(array.max()) < limit:
                raise FormatError("the index file is damaged: it points outside of the index")
        if offsets is not None and (
            offsets[0] != 0 or offsets[-1] != n or bool((offsets[1:] <= offsets[:-1]).any())
        ):
            raise FormatError("the index file is damaged: its lists of rows do not fit together")

    def find(self, ids: Ids) -> Ints:
        """Return the row of each id, the last one if there are several; -1 if there is none."""
        if not len(self.ids):
            return np.full(len(ids), -1)
        order = self._by_id
        rows: Ints = np.searchsorted(self.ids, ids, side="right", sorter=order) - 1
        if order is not None:
            rows = np.where(rows < 0, 0, order[rows])
        return np.where((rows >= 0) & (self.ids[rows] == ids), rows, -1)

    def slots_of(self, rows: Ints) -> Ints:
        """Return the slot of each row."""
        return rows if self.slots is None else self.slots[rows].astype(np.int64)

    def counts(self, slots: Ints) -> Ints:
        """Return the number of rows of each slot."""
        if self.offsets is None:
            return np.ones(slots.shape, dtype=np.int64)
        counts: Ints = self.offsets.take(slots + 1) - self.offsets.take(slots)
        return counts

    def rows_at(self, slots: Ints, within: Ints) -> Ints:
        """Return row number ``within[i]``, counted from 0, of ``slots[i]``."""
        if self.offsets is None or self.rows is None:
            return slots
        return self.rows.take(self.offsets.take(slots) + within).astype(np.int64)

    def code_of(self, rows: Ints) -> Codes:
        """Return the code of each row."""
        codes: Codes = self.codes.take(self.slots_of(rows), axis=0)
        return codes

    def search(self, projections: Projections, floor: Array | None, s: int, wider: int) -> Found:
        """Return candidates for the s best codes, as `PackedScan.search` does."""
        packed = self._packed
        if packed is None and len(self.codes) >= _PACKED and self._is_packed():
            with self._packing:
                if self._packed is None:
                    self._packed = LabelGroups.of(self.codes, self.n_label_bytes) or PackedScan(
                        self.codes
                    )
                packed = self._packed
        return (packed or TableScan(self.codes)).search(projections, floor, s, wider)

    def _is_packed(self) -> bool:
        """Return whether look-ups by 8 bits can add the scores of such codes up."""
        return bool(8 * self.codes.shape[1] <= PackedScan.MOST_BITS)


class Tail(Segment):
    """The newest items: equal codes are not joined, and all codes are scanned.

    A tail is never changed either; the next one shares its buffers, in which it has written behind
    the last item of this one. Only one thread at a time may make the next tail, from the newest.
    """

    def __init__(self, ids: Ids, codes: Codes, n: int, n_label_bytes: int) -> None:
        super().__init__(ids[:n], codes[:n], n_label_bytes=n_label_bytes)
        self._all_ids, self._all_codes = ids, codes

    @classmethod
    def empty(cls, n_bytes: int, n_label_bytes: int) -> Tail:
        codes = np.empty((0, n_bytes), dtype=np.uint8)
        return cls(np.empty(0, dtype=np.int64), codes, 0, n_label_bytes)

    def plus(self, ids: Ids, codes: Codes) -> Tail:
        """Return the next tail, with these items too; cost is amortised in proportion to them."""
        n, m = len(self.ids), len(ids)
        all_ids, all_codes = self._all_ids, self._all_codes
        if n + m > len(all_ids):
            room = max(2 * n, n + m, _ROOM)
            all_ids = np.empty(room, dtype=np.int64)
            all_codes = np.empty((room, codes.shape[1]), dtype=np.uint8)
            all_ids[:n], all_codes[:n] = self.ids, self.codes
        all_ids[n : n + m], all_codes[n : n + m] = ids, codes
        return Tail(all_ids, all_codes, n + m, self.n_label_bytes)

    @functools.cached_property
    def n_codes(self) -> int:
        """Number of distinct codes."""
        return len(equal_codes(self.codes)[1])

    @functools.cached_property
    def _by_id(self) -> npt.NDArray[Any] | None:
        # an id may be removed and come again
        ascend = bool((self.ids[1:] > self.ids[:-1]).all())
        return None if ascend else np.argsort(self.ids, kind="stable")

    def _is_packed(self) -> bool:
        return False


@dataclass(frozen=True)
class Snapshot:
    """What a search sees; never changed. Adding and removing make the next one.

    Attributes
    ----------
    segments : tuple of Segment; the last is the tail, and only this one may be empty
    removed : tuple of masks of removed rows, one for each segment; None where none is removed
    """

    segments: tuple[Segment, ...]
    removed: tuple[Mask | None, ...]

    @classmethod
    def of(cls, segment: Segment) -> Snapshot:
        """Start from one segment, which may be empty."""
        segments = (segment,) if len(segment) else ()
        return cls._with(segments, (None,) * len(segments), segment)

    @classmethod
    def _with(
        cls, segments: tuple[Segment, ...], removed: tuple[Mask | None, ...], like: Segment
    ) -> Snapshot:
        tail = Tail.empty(like.codes.shape[1], like.n_label_bytes)
        return cls((*segments, tail), (*removed, None))

    @property
    def tail(self) -> Tail:
        tail = self.segments[-1]
        if not isinstance(tail, Tail):
            raise TypeError("the last segment is no tail")
        return tail

    @functools.cached_property
    def scanned(self) -> tuple[Segment, ...]:
        """The segments that hold anything."""
        return tuple(segment for segment in self.segments if len(segment))

    @functools.cached_property
    def first_row(self) -> Ints:
        """(m + 1,): the first row of each segment, and the number of rows."""
        return np.cumsum([0, *map(len, self.segments)])

    @functools.cached_property
    def first_slot(self) -> Ints:
        """(m + 1,): the first slot of each segment, and the number of slots."""
        return np.cumsum([0, *(len(segment.codes) for segment in self.segments)])

    @property
    def n_rows(self) -> int:
        return int(self.first_row[-1])

    @property
    def n_slots(self) -> int:
        return int(self.first_slot[-1])

    @functools.cached_property
    def n_items(self) -> int:
        """Number of rows that are not removed."""
        removed = [int(np.count_nonzero(mask)) for mask in self.removed if mask is not None]
        return self.n_rows - sum(removed)

    @property
    def nbytes(self) -> int:
        """Bytes in use, memory maps included."""
        masks = sum(mask.nbytes for mask in self.removed if mask is not None)
        return masks + sum(segment.nbytes for segment in self.segments)

    @functools.cached_property
    def has_lists(self) -> bool:
        """Whether any code has several rows; if none has, row and slot numbers are equal."""
        return any(segment.offsets is not None for segment in self.segments)

    def codes_at(self, slots: Ints) -> Codes:
        """Return the codes of slots, (..., n_bytes)."""
        return self._gather(self.first_slot, slots, lambda s, at: s.codes.take(at, axis=0))

    def ids_of(self, rows: Ints) -> Ids:
        """Return the ids of rows, of any shape."""
        return self._gather(self.first_row, rows, lambda s, at: s.ids.take(at))

    def code_of(self, rows: Ints) -> Codes:
        """Return the codes of rows."""
        return self._gather(self.first_row, rows, lambda s, at: s.code_of(at))

    def counts(self, slots: Ints) -> Ints:
        """Return the number of rows of each slot."""
        return self._gather(self.first_slot, slots, Segment.counts)

    def rows_at(self, slots: Ints, within: Ints) -> Ints:
        """Return row number ``within[i]``, counted from 0, of ``slots[i]``."""
        if len(self.scanned) == 1:
            return self.scanned[0].rows_at(slots, within)
        out = np.empty(len(slots), dtype=np.int64)
        where = np.searchsorted(self.first_slot, slots, side="right") - 1
        for number, segment in enumerate(self.segments):
            here = np.flatnonzero(where == number)
            if len(here):
                rows = segment.rows_at(slots[here] - self.first_slot[number], within[here])
                out[here] = rows + self.first_row[number]
        return out

    def is_removed(self, rows: Ints) -> Mask:
        """Return which rows, of any shape, are removed."""
        removed = np.zeros(rows.shape, dtype=np.bool_)
        for number, mask in enumerate(self.removed):
            if mask is not None:
                first, stop = self.first_row[number : number + 2]
                here = (rows >= first) & (rows < stop)
                removed[here] = mask[rows[here] - first]
        return removed

    def find(self, ids: Ids) -> Ints:
        """Return the row of each id, -1 for ids that are not there."""
        found = np.full(len(ids), -1)
        for number in reversed(range(len(self.segments))):
            segment, mask = self.segments[number], self.removed[number]
            left = np.flatnonzero(found < 0)
            if not len(left) or not len(segment):
                continue
            rows = segment.find(ids[left])
            there = rows >= 0 if mask is None else (rows >= 0) & ~mask[rows]
            found[left[there]] = rows[there] + self.first_row[number]
        return found

    def live_rows(self) -> Ints:
        """Return the rows that are not removed, ascending."""
        rows = np.arange(self.n_rows)
        return rows if self.n_items == self.n_rows else rows[~self.is_removed(rows)]

    def plus(self, codes: Codes, ids: Ids) -> Snapshot:
        """Return the next snapshot, with these items; they are checked already."""
        m, tail, mask = len(ids), self.tail, self.removed[-1]
        if self.n_rows + m > MAX_ROWS:
            raise InputError(
                f"an index holds at most {MAX_ROWS} rows, this would make {self.n_rows + m}; "
                "see oasis.scale for more"
            )
        if len(tail) + m <= _TAIL:
            if mask is not None:
                mask = np.concatenate([mask, np.zeros(m, dtype=np.bool_)])
            return Snapshot(
                (*self.segments[:-1], tail.plus(ids, codes)), (*self.removed[:-1], mask)
            )
        new = Segment(ids, codes, n_label_bytes=tail.n_label_bytes)
        first, total = len(self.segments) - 1, len(tail) + m
        while first > 0 and len(self.segments[first - 1]) < _GROWTH * total:
            first -= 1
            total += len(self.segments[first])
        merged = Segment.merged([*self.segments[first:], new], [*self._kept(first), None])
        return self._with((*self.segments[:first], merged), (*self.removed[:first], None), tail)

    def minus(self, rows: Ints) -> Snapshot:
        """Return the next snapshot, without these rows; they are there."""
        segments, removed = [], []
        for number, (segment, mask) in enumerate(zip(self.segments, self.removed, strict=True)):
            first, stop = self.first_row[number : number + 2]
            here = rows[(rows >= first) & (rows < stop)] - first
            if len(here):
                mask = np.zeros(len(segment), np.bool_) if mask is None else mask.copy()
                mask[here] = True
                if 3 * np.count_nonzero(mask) > len(segment):
                    segment, mask = self._without(segment, mask), None
            if len(segment) or isinstance(segment, Tail):
                segments.append(segment)
                removed.append(mask)
        return Snapshot(tuple(segments), tuple(removed))

    def only(self, allowed: AllowList | None) -> Snapshot:
        """Return a snapshot of the permitted items alone, in the same order; nothing is sorted."""
        if allowed is not None and allowed.count < self.n_rows // 4:
            rows = self.find(allowed.ids())
            rows = np.sort(rows[rows >= 0])
        else:
            rows = self.live_rows()
            if allowed is not None:
                rows = rows[allowed.admits(self.ids_of(rows))]
        return Snapshot.of(Segment(self.ids_of(rows), self.code_of(rows)))

    def compact(self) -> Segment:
        """Return the same items as one segment, without any trace of removed ones."""
        if len(self.scanned) == 1 and self.n_items == self.n_rows and self.scanned[0] != self.tail:
            return self.scanned[0]
        return Segment.merged(self.segments, self._kept(0))

    def _kept(self, first: int) -> list[Mask | None]:
        return [None if mask is None else ~mask for mask in self.removed[first:]]

    @staticmethod
    def _without(segment: Segment, mask: Mask) -> Segment:
        """Return a segment without removed rows."""
        if isinstance(segment, Tail):
            empty = Tail.empty(segment.codes.shape[1], segment.n_label_bytes)
            return empty.plus(segment.ids[~mask], segment.codes[~mask])
        return Segment.merged([segment], [~mask])

    def _gather(
        self, first: Ints, positions: Ints, take: Callable[[Segment, Ints], npt.NDArray[Any]]
    ) -> npt.NDArray[Any]:
        """Return what ``take`` gives for positions in all segments, from each of them."""
        if len(self.scanned) < 2:
            return take((*self.scanned, self.tail)[0], positions)
        where = np.searchsorted(first, positions, side="right") - 1
        out: npt.NDArray[Any] | None = None
        for number, segment in enumerate(self.segments):
            here = where == number
            if not here.any():
                continue
            part = take(segment, positions[here] - first[number])
            if out is None:
                out = np.empty((*positions.shape, *part.shape[1:]), dtype=part.dtype)
            out[here] = part
        return take(self.tail, positions) if out is None else out
