"""One state of an index: segments, oldest first, and the tail; and how the next state follows.

New items go into the tail. When it would hold more than `_TAIL` items, they become a segment
instead, together with all older segments that are smaller than `_GROWTH` times what comes behind
them: so there are few segments, each much smaller than the one before it, and an item is sorted
again only a logarithmic number of times. Removed rows are marked in a bitmap per segment and
dropped when it is merged or saved, or a third of its rows is removed.

Rows and slots of all segments count as one: those of the second begin behind those of the first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.codes import Codes
from oasis.errors import InputError
from oasis.index.protocol import AllowList, Ids, Mask
from oasis.index.segment import Ints, Segment, Tail

MAX_ROWS = 2**30
"""Rows are int32, and a key of a score and a slot has 31 bits for the slot."""

_TAIL = 4096
_GROWTH = 3


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
