"""The nearest distinct codes by Hamming distance: the first slots by (distance, slot), exactly.

Codes come as one or two contiguous arrays. faiss is imported by the first search, here and in
`fast_scan` and `best_codes`, because loading it takes longer than reading a collection.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from oasis.codes import Codes

# distances that one thread computes in about half a millisecond
_SHORT_SCAN = 1 << 20

Slots = npt.NDArray[np.int64]


def nearest(parts: list[Codes], queries: Codes, s: int) -> tuple[npt.NDArray[np.int32], Slots]:
    """Return distances and slots of the s nearest codes of each query, ties by slot.

    ``s`` must not exceed the number of codes. faiss keeps the lowest rows among ties.
    """
    import faiss

    found, start = [], 0
    with _threads(len(queries), sum(map(len, parts))):
        for part in parts:
            distances, slots = faiss.knn_hamming(queries, part, min(s, len(part)), variant="hc")
            found.append((distances, slots + start if start else slots))
            start += len(part)
    if len(found) == 1:
        return found[0]
    distances = np.concatenate([d for d, _ in found], axis=1)
    slots = np.concatenate([i for _, i in found], axis=1)
    # stable: the parts are in the order of their slots
    order = np.argsort(distances, axis=1, kind="stable")[:, :s]
    return np.take_along_axis(distances, order, axis=1), np.take_along_axis(slots, order, axis=1)


@contextmanager
def _threads(n_queries: int, n_codes: int) -> Iterator[None]:
    """Return a context in which a short scan by faiss uses one thread.

    faiss divides queries among threads, which wait for each other by spinning: one query has
    nothing to divide, and on a busy machine a short scan takes many times as long with two. The
    number of threads is a setting of the calling thread, and is restored there.
    """
    import faiss

    n_threads = faiss.omp_get_max_threads()
    if n_threads == 1 or (n_queries > 1 and n_queries * n_codes > _SHORT_SCAN):
        yield
        return
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(n_threads)


def within(parts: list[Codes], queries: Codes, radius: int) -> tuple[Slots, Slots, Slots]:
    """Return (query, slot, distance) of every code at distance <= radius, in no order."""
    import faiss

    found, start = [], 0
    for part in parts:
        result = faiss.RangeSearchResult(len(queries))
        faiss.hamming_range_search(  # type: ignore[attr-defined]
            faiss.swig_ptr(queries),
            faiss.swig_ptr(part),
            len(queries),
            len(part),
            radius + 1,  # faiss's radius is strict
            part.shape[1],
            result,
        )
        limits = faiss.rev_swig_ptr(result.lims, len(queries) + 1).astype(np.int64)
        total = int(limits[-1])
        slots = faiss.rev_swig_ptr(result.labels, total).astype(np.int64) + start
        distances = faiss.rev_swig_ptr(result.distances, total).astype(np.int64)
        found.append((np.repeat(np.arange(len(queries)), np.diff(limits)), slots, distances))
        start += len(part)
    query, slot, distance = (np.concatenate(column) for column in zip(*found, strict=True))
    return query, slot, distance
