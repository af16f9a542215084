"""Segment: an immutable block of items; and the tail, the block that still grows.

The items of an index are numbered by insertion, and a segment holds consecutive ones. Within it
they are rows 0, 1, ... Each distinct code is kept once. These codes are numbered in the order of
their first rows: the number of a code is its slot.

A segment is sorted once, when it is made: its codes, to find equal ones, and its ids, to find rows.
The copy of the codes that faiss looks scores up in is made when a search first needs it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array
from oasis.codes import Codes
from oasis.errors import FormatError
from oasis.index.equal_codes import equal_codes, ranges
from oasis.index.label_groups import LabelGroups
from oasis.index.look_ups import Found, PackedScan, TableScan
from oasis.index.projections import Projections
from oasis.index.protocol import Ids, Mask

Ints = npt.NDArray[np.int64]
Ints32 = npt.NDArray[np.int32]

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

    def search(self, projections: Projections, floor: Array, s: int, wider: int) -> Found:
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
