"""How many threads BLAS works with: one where matrices are small.

BLAS libraries divide every product and factorisation among all cores and let the threads wait for
each other actively. For matrices of a few hundred rows that gains nothing, and on a busy machine
each call takes many times as long. Large products keep all threads: the environment variables
``OPENBLAS_NUM_THREADS``, ``MKL_NUM_THREADS`` or ``OMP_NUM_THREADS``, set before the program starts,
or ``threadpoolctl.threadpool_limits`` around a call, say how many these are.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
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
        with _libraries().limit(limits=1, user_api="blas"):
            yield
    finally:
        _held.release()


_held = threading.Lock()


@cache
def _libraries() -> Any:
    """Return the libraries of BLAS that this process has loaded; NumPy and SciPy have one each."""
    import scipy.linalg  # noqa: F401 - its BLAS has to be there to be found
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController()
