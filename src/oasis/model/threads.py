"""How many threads BLAS works with: one where matrices are small.

BLAS libraries divide every product and factorisation among all cores and let the threads wait for
each other actively. For matrices of a few hundred rows that gains nothing, and on a busy machine
each call takes many times as long. Large products keep all threads: the environment variables
``OPENBLAS_NUM_THREADS``, ``MKL_NUM_THREADS`` or ``OMP_NUM_THREADS``, set before the program starts,
or ``threadpoolctl.threadpool_limits`` around a call, say how many these are.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any


@contextmanager
def one_thread() -> Iterator[None]:
    """Return a context in which BLAS works with one thread.

    The number of threads belongs to the process, so one thread at a time sets it and sets it back.
    Whoever enters meanwhile changes nothing: the number is 1 already, until the first one leaves.

    >>> with one_thread():
    ...     pass
    """
    if not _held.acquire(blocking=False):
        yield
        return
    try:
        with _libraries().limit(limits=1):
            yield
    finally:
        _held.release()


_held = threading.Lock()


def in_threads(work: Callable[[slice], None], blocks: Sequence[slice]) -> None:
    """Do the work on each block, with as many threads as BLAS has, one for each block at a time.

    Work that is not BLAS's is then divided as well, and no thread waits for another inside a
    block. Results do not depend on the number of threads.

    >>> squares = [0] * 4
    >>> def work(block):
    ...     squares[block] = [number**2 for number in range(4)[block]]
    >>> in_threads(work, [slice(0, 2), slice(2, 4)])
    >>> squares
    [0, 1, 4, 9]
    """
    n_threads = min(len(blocks), _n_threads()) if len(blocks) > 1 else 1
    with one_thread():
        if n_threads < 2:
            for block in blocks:
                work(block)
            return
        with ThreadPoolExecutor(n_threads) as pool:
            list(pool.map(work, blocks))


def _n_threads() -> int:
    return max((int(each["num_threads"]) for each in _libraries().info()), default=1)


def _libraries() -> Any:
    """Return the libraries of BLAS that this process has loaded; NumPy and SciPy have one each."""
    return _found("scipy.linalg" in sys.modules)


@cache
def _found(with_scipy: bool) -> Any:
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController().select(user_api="blas")
