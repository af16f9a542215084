"""The number of BLAS threads: one where matrices are small.

BLAS libraries divide every product and factorisation among all cores, and the threads wait for each
other by spinning. For matrices of a few hundred rows this gains nothing, and on a busy machine each
call takes many times as long. Large products use all threads. Their number is set by
``OPENBLAS_NUM_THREADS`` or ``OMP_NUM_THREADS`` in the environment before the program starts, or by
``threadpoolctl.threadpool_limits`` around a call.

OpenBLAS, as in the packages of NumPy and SciPy, has one number for the whole process. `_Limits`
alone sets it, for all Python threads: otherwise two contexts that overlap would each restore what
the other one had set. Libraries with a number for each thread (MKL, OpenMP) are left as they are.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import _GeneratorContextManager, contextmanager
from functools import cache
from typing import Any, TypeAlias, TypeVar

_Context: TypeAlias = _GeneratorContextManager[None]
_Block = TypeVar("_Block")


def one_thread() -> _Context:
    """Return a context, or decorator, in which BLAS uses one thread.

    The number of BLAS threads is global to the process: it is 1 until the last Python thread has
    left such a context, and then what it was before the first one entered.

    >>> with one_thread():
    ...     pass
    """
    return _limits.held(None)


def at_most(n: int) -> _Context:
    """Return a context in which BLAS uses at most ``n`` threads, and `in_threads` too.

    Of several such contexts at once, the smallest limit holds, in the whole process.

    >>> with at_most(3):
    ...     pass
    """
    return _limits.held(n)


def in_threads(work: Callable[[_Block], None], blocks: Sequence[_Block]) -> None:
    """Call ``work`` on each block, in a pool with the number of threads that BLAS would use.

    It is the number outside of `one_thread`, whoever is inside meanwhile. So work outside BLAS runs
    in parallel too, and no thread waits for another inside a block. Results do not depend on the
    number of threads.

    >>> squares = [0] * 4
    >>> def work(block):
    ...     squares[block] = [number**2 for number in range(4)[block]]
    >>> in_threads(work, [slice(0, 2), slice(2, 4)])
    >>> squares
    [0, 1, 4, 9]
    """
    n_threads = min(len(blocks), _limits.n_threads()) if len(blocks) > 1 else 1
    with one_thread():
        if n_threads < 2:
            for block in blocks:
                work(block)
            return
        with ThreadPoolExecutor(n_threads) as pool:
            list(pool.map(work, blocks))


class _Limits:
    """All limits of the number of threads; None stands for that of `one_thread`.

    The first holder of a limit remembers the number of each library, the last one restores it.
    Libraries are called only where the number changes.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._held: list[int | None] = []
        self._before: list[tuple[Any, int]] = []
        self._now: int | None = None

    @contextmanager
    def held(self, limit: int | None) -> Iterator[None]:
        """Return a context in which a limit holds."""
        with self._guard:
            if not self._held:
                self._before = [(library, library.num_threads) for library in _libraries()]
            self._held.append(limit)
            self._set()
        try:
            yield
        finally:
            with self._guard:
                self._held.remove(limit)
                self._set()

    def n_threads(self) -> int:
        """Return the number of BLAS threads outside of `one_thread`."""
        with self._guard:
            numbers = [number for _, number in self._before] if self._held else None
            if numbers is None:
                numbers = [library.num_threads for library in _libraries()]
            limits = [limit for limit in self._held if limit is not None]
            return min([max(numbers, default=1), *limits])

    def _set(self) -> None:
        """Set the numbers of threads, whichever Python thread has set them before."""
        now = min((limit or 1 for limit in self._held), default=None)
        if now == self._now:
            return
        self._now = now
        first = self._before[0][0] if self._before else None
        # threadpoolctl 3.8 obeys the first thread that sets one, and ignores others until it leaves
        release = getattr(first, "clear_controlling_thread", None)
        if release is not None:
            release(force=True)
        for library, before in self._before:
            library.set_num_threads(before if now is None else min(before, now))
        if release is not None:
            release()


_limits = _Limits()


def _libraries() -> list[Any]:
    """Return the OpenBLAS libraries that this process has loaded; NumPy and SciPy have one each."""
    return _found("scipy.linalg" in sys.modules)


@cache
def _found(with_scipy: bool) -> list[Any]:
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return [
        library
        for library in ThreadpoolController().select(user_api="blas").lib_controllers
        if library.internal_api != "mkl" and getattr(library, "threading_layer", "") != "openmp"
    ]
