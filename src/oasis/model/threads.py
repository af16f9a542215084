"""The number of BLAS threads: one where matrices are small.

BLAS libraries divide every product and factorisation among all cores, and the threads wait for each
other by spinning. For matrices of a few hundred rows this gains nothing, and on a busy machine each
call takes many times as long. Large products use all threads. Their number is set by
``OPENBLAS_NUM_THREADS``, ``MKL_NUM_THREADS`` or ``OMP_NUM_THREADS`` in the environment before the
program starts, or by ``threadpoolctl.threadpool_limits`` around a call.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar


@contextmanager
def one_thread() -> Iterator[None]:
    """Return a context in which BLAS uses one thread.

    The number of BLAS threads is global to the process, so only one Python thread at a time sets
    and restores it. A second thread that enters meanwhile changes nothing: the number is already 1,
    until the first one leaves.

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


_Block = TypeVar("_Block")


def in_threads(work: Callable[[_Block], None], blocks: Sequence[_Block]) -> None:
    """Call ``work`` on each block, in a pool with the number of threads that BLAS would use.

    So work outside BLAS runs in parallel too, and no thread waits for another inside a block.
    Results do not depend on the number of threads.

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
    """Return the BLAS libraries that this process has loaded; NumPy and SciPy have one each."""
    return _found("scipy.linalg" in sys.modules)


@cache
def _found(with_scipy: bool) -> Any:
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController().select(user_api="blas")
