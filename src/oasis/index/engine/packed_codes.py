"""The second copy of the distinct codes, packed for look-ups in segments that never change.

A search that finds codes without a packed copy packs a limited number of them first. Where codes
have label bits, a segment of many codes is arranged by label halves
(`oasis.index.engine.label_groups`).
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np

from oasis.codes import Codes
from oasis.index.engine.buffers import Buffer
from oasis.index.engine.fast_scan import (
    MAX_BITS,
    Found,
    Part,
    by_byte_tables,
    n_candidates,
    pack_index,
    search_index,
)
from oasis.index.engine.label_groups import LabelGroups
from oasis.index.engine.projections import Projections, Surrogate

SEGMENT = 1 << 20
"""Codes of a full segment; packing them takes some 20 ms."""

GROUP_SEGMENT = 1 << 22
"""The same by label halves: a group that is spread over many segments is searched many times.
Packing takes some 200 ms a million codes."""

SMALLEST = 1024
"""So few codes are not worth a segment of their own."""

GROUPED = 1 << 17
"""So many codes of a segment are arranged by label halves."""


class Segment(NamedTuple):
    """The codes of slots ``start`` to ``stop``, packed."""

    start: int
    stop: int
    part: FlatPart | LabelGroups


class FlatPart:
    """Consecutive codes as a faiss index of their own.

    Attributes
    ----------
    index : faiss index; position i has slot ``start + i``
    """

    def __init__(self, codes: Codes, start: int) -> None:
        self.index: Any = pack_index(codes)
        self._start = start

    @property
    def nbytes(self) -> int:
        return int(self.index.codes.size())

    def search(self, projections: Projections, eased: Surrogate, s: int, wider: int) -> Found:
        found = search_index(self.index, eased, s, wider)
        if self._start:
            found.slots[found.slots >= 0] += self._start
        return found


class UnpackedPart(NamedTuple):
    """Consecutive codes without a packed copy."""

    codes: Codes
    start: int

    def search(self, projections: Projections, eased: Surrogate, s: int, wider: int) -> Found:
        n = n_candidates(eased, s, len(self.codes), wider)
        sums, at = by_byte_tables(self.codes, np.ascontiguousarray(eased.scaled), n)
        slack = eased.slack.astype(np.float64)
        bound = np.full(len(sums), -np.inf)
        if n < len(self.codes):
            bound = sums[:, -1] + eased.excess + slack
        return Found(sums + eased.excess[:, None], at + self.start, bound, slack, eased.floor)


class CutPart(NamedTuple):
    """A part whose codes from slot ``length`` on belong to a later snapshot."""

    part: Part
    length: int

    def search(self, projections: Projections, eased: Surrogate, s: int, wider: int) -> Found:
        found = self.part.search(projections, eased, s, wider)
        late = found.slots >= self.length
        bound = found.bound
        if isinstance(self.part, LabelGroups):
            # codes may have been left out because of better ones that belong to the later snapshot
            bound = np.where(late.any(axis=1), np.inf, bound)
        return found._replace(slots=np.where(late, -1, found.slots), bound=bound)


class PackedCodes:
    """The second copy of the distinct codes, as segments; shared by all snapshots of an index.

    Segments are built when a search needs them, by one thread at a time, and are never changed:
    a larger one replaces smaller ones. So any number of searches may use them beside a writer.

    Parameters
    ----------
    n_label_bytes : int
        Number of bytes at the beginning of a code that are label bits; 0 if it has none.
    """

    def __init__(self, n_label_bytes: int = 0) -> None:
        self._n_label_bytes = n_label_bytes
        self._segments: tuple[Segment, ...] = ()
        self._lock = threading.Lock()

    @property
    def segment(self) -> int:
        """Codes of a full segment."""
        return GROUP_SEGMENT if self._n_label_bytes else SEGMENT

    @property
    def nbytes(self) -> int:
        return sum(segment.part.nbytes for segment in self._segments)

    def parts(self, codes: Buffer, n_slots: int, most: int) -> list[Part]:
        """Return parts that together hold all codes, after packing at most ``most`` of them."""
        segments = self.cover(codes, n_slots, most)
        parts: list[Part] = [segment.part for segment in segments if segment.start < n_slots]
        start, n_base = _end(segments), len(codes.base)
        if start > n_slots:
            # a later snapshot was searched before
            parts[-1] = CutPart(parts[-1], n_slots)
        if start < n_base < n_slots:
            parts.append(UnpackedPart(codes.between(start, n_base), start))
            start = n_base
        if start < n_slots:
            parts.append(UnpackedPart(codes.between(start, n_slots), start))
        return parts

    def cover(self, codes: Buffer, length: int, most: int) -> tuple[Segment, ...]:
        """Return segments of the first slots, after packing at most ``most`` codes more.

        Segments may reach beyond ``length`` where a later snapshot was searched before.
        """
        if 8 * codes.base.shape[1] > MAX_BITS:
            return ()
        segments = self._segments
        if length - _end(segments) < SMALLEST:
            return segments
        with self._lock:
            packed = 0
            while length - _end(self._segments) >= SMALLEST and packed < most:
                packed += self._extend(codes, length)
            return self._segments

    def _extend(self, codes: Buffer, length: int) -> int:
        """Pack the next codes, at most up to the end of a full segment; return how many."""
        kept = list(self._segments)
        first = _end(self._segments)
        full = self.segment
        stop = min(length, (first // full + 1) * full)
        # smaller neighbours are packed again: a logarithmic number of times per code in all
        while (
            kept
            and kept[-1].stop % full
            and (stop % full == 0 or kept[-1].stop - kept[-1].start <= 3 * (stop - first))
        ):
            first = kept.pop().start
        part: FlatPart | LabelGroups
        if self._n_label_bytes and stop - first >= GROUPED:
            part = LabelGroups(codes, first, stop, self._n_label_bytes)
        else:
            part = FlatPart(codes.between(first, stop), first)
        self._segments = (*kept, Segment(first, stop, part))
        return stop - first


def _end(segments: tuple[Segment, ...]) -> int:
    return segments[-1].stop if segments else 0
