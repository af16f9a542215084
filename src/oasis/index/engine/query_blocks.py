"""Threads: the queries of a batch are divided among as many as faiss is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

SHORT_SCAN = 1 << 20
"""Codes times queries that one thread scans in about half a millisecond."""

_WORTH_A_THREAD = 1 << 22
_LEAST_QUERIES = 8
"""Fewer queries are not divided."""


@contextmanager
def faiss_threads(n: int | None) -> Iterator[None]:
    """Return a context in which searches of this thread by faiss use n threads; None: no change.

    faiss divides queries among threads, which wait for each other by spinning: on a busy machine a
    short scan takes many times as long with two. The number of threads is one of the calling
    thread, and so is its restoration.
    """
    import faiss

    before = faiss.omp_get_max_threads()
    if n is None or n == before:
        yield
        return
    faiss.omp_set_num_threads(n)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def in_blocks(work: Callable[[int, int], None], q: int, block: int, n_codes: int) -> None:
    """Call ``work(start, stop)`` for queries 0 to q in blocks of at most ``block``.

    Where a search of n codes takes long enough, blocks are divided among threads, each with one
    thread of faiss: scoring and expanding candidates take a third of a search of few codes, which
    faiss's own threads do not divide.
    """
    import faiss

    n_threads = min(faiss.omp_get_max_threads(), q // _LEAST_QUERIES)
    if n_threads < 2 or q * n_codes < _WORTH_A_THREAD:
        for start in range(0, q, block):
            work(start, min(q, start + block))
        return
    # as many blocks as threads, or a multiple of that
    n_blocks = min(q, -(-q // (block * n_threads)) * n_threads)
    edges = [q * i // n_blocks for i in range(n_blocks + 1)]

    def some(first: int) -> None:
        with faiss_threads(1):
            for i in range(first, n_blocks, n_threads):
                work(edges[i], edges[i + 1])

    with ThreadPoolExecutor(n_threads - 1) as pool:
        others = [pool.submit(some, first) for first in range(1, n_threads)]
        some(0)
        for each in others:
            each.result()
