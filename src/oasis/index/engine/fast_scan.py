"""Scores by table look-up: faiss's `IndexPQFastScan` over sign patterns.

A code of n_bits bits is n_bits / 4 nibbles. For a query, the score of a code is the sum of one
table entry per nibble: table m has the 16 inner products of four query values with four signs.
faiss rounds all tables of a query to 8 bits with one common step, adds them up for 32 codes at a
time in SIMD registers, and returns the codes with the largest sums. The rounding error of a sum has
a bound that is known before the scan (`Projections.rounding`), so an exact search can tell whether
a code that was not returned could still belong into the answer.

faiss needs the codes in an order of its own. This second copy is made here, in segments that never
change; a search that finds codes without one packs a limited number of them first.
"""

from __future__ import annotations

import functools
import threading
from typing import Any, NamedTuple

import numpy as np

from oasis.codes import Codes
from oasis.index.engine.buffers import Buffer
from oasis.index.engine.projections import NIBBLES

SEGMENT = 1 << 20
"""Codes of a full segment; packing them takes some 20 ms."""

MAX_BITS = 1024
"""faiss adds up in 16 bits: 255 times n_bits / 4 must fit."""

_SMALLEST = 1024
"""So few codes are not worth a segment of their own."""


class Segment(NamedTuple):
    """The codes of slots ``start`` to ``stop`` as a faiss index."""

    start: int
    stop: int
    index: Any


class PackedCodes:
    """The second copy of the distinct codes, as segments; shared by all snapshots of an index.

    Segments are built when a search needs them, by one thread at a time, and are never changed:
    a larger one replaces smaller ones. So any number of searches may use them beside a writer.
    """

    def __init__(self) -> None:
        self._segments: tuple[Segment, ...] = ()
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        return sum(segment.index.codes.size() for segment in self._segments)

    def cover(self, codes: Buffer, length: int, most: int) -> tuple[Segment, ...]:
        """Return segments of the first slots, after packing at most ``most`` codes more.

        Segments may reach beyond ``length`` where a later snapshot was searched before.
        """
        if 8 * codes.base.shape[1] > MAX_BITS:
            return ()
        segments = self._segments
        if length - _end(segments) < _SMALLEST:
            return segments
        with self._lock:
            packed = 0
            while length - _end(self._segments) >= _SMALLEST and packed < most:
                packed += self._extend(codes, length)
            return self._segments

    def _extend(self, codes: Buffer, length: int) -> int:
        """Pack the next codes, at most up to the end of a full segment; return how many."""
        kept = list(self._segments)
        first = _end(self._segments)
        stop = min(length, (first // SEGMENT + 1) * SEGMENT)
        # smaller neighbours are packed again: a logarithmic number of times per code in all
        while (
            kept
            and kept[-1].stop % SEGMENT
            and (stop % SEGMENT == 0 or kept[-1].stop - kept[-1].start <= 3 * (stop - first))
        ):
            first = kept.pop().start
        self._segments = (*kept, Segment(first, stop, pack_index(codes.between(first, stop))))
        return stop - first


def _end(segments: tuple[Segment, ...]) -> int:
    return segments[-1].stop if segments else 0


def pack_index(codes: Codes) -> Any:
    """Return the faiss index of codes; it keeps its own copy of them."""
    import faiss

    plain: Any = faiss.clone_index(_sign_index(8 * codes.shape[1]))
    plain.add_sa_codes(np.ascontiguousarray(codes))
    return faiss.IndexPQFastScan(plain)


@functools.lru_cache(maxsize=8)
def _sign_index(n_bits: int) -> Any:
    """Return an empty faiss `IndexPQ` whose 16 centroids per nibble are its four signs."""
    import faiss

    index = faiss.IndexPQ(n_bits, n_bits // 4, 4, faiss.METRIC_INNER_PRODUCT)
    centroids = np.tile(NIBBLES.T.astype(np.float32), (n_bits // 4, 1))
    faiss.copy_array_to_vector(centroids.ravel(), index.pq.centroids)
    index.is_trained = True
    return index
