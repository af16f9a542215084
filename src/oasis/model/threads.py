"""The number of BLAS threads: one where matrices are small.

BLAS libraries divide every product and factorisation among all cores, and the threads wait for each
other by spinning. For matrices of a few hundred rows this gains nothing, and on a busy machine each
call takes many times as long. Large products use all threads. Their number is set by
``OPENBLAS_NUM_THREADS``, ``MKL_NUM_THREADS`` or ``OMP_NUM_THREADS`` in the environment before the
program starts, or by ``threadpoolctl.threadpool_limits`` around a call.

OpenBLAS has one number for the whole process. `_Shared` alone sets it, for all Python threads:
otherwise two contexts that overlap would each restore what the other one had set.
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


def one_thread() -> _Context:
    """Return a context, or decorator, in which BLAS uses one thread.

    The number of BLAS threads is global to the process: it is 1 until the last Python thread has
    left such a context, and then what it was before the first one entered.

    >>> with one_thread():
    ...     pass
    """
    return _limited(None)


def at_most(n: int) -> _Context:
    """Return a context in which BLAS uses at most ``n`` threads, and `in_threads` too.

    Of several such contexts at once, the smallest limit holds, in the whole process.

    >>> with at_most(3):
    ...     pass
    """
    return _limited(n)


@contextmanager
def _limited(limit: int | None) -> Iterator[None]:
    own = _libraries()[1]
    _shared.enter(limit)
    try:
        if own:
            with _limited_here(own, limit or 1):
                yield
        else:
            yield
    finally:
        _shared.leave(limit)


_Block = TypeVar("_Block")


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
    n_threads = min(len(blocks), _shared.n_threads()) if len(blocks) > 1 else 1
    with one_thread():
        if n_threads < 2:
            for block in blocks:
                work(block)
            return
        with ThreadPoolExecutor(n_threads) as pool:
            list(pool.map(work, blocks))


class _Shared:
    """The number of threads that OpenBLAS has for the whole process, and all limits of it.

    The first holder of a limit remembers the number, the last one restores it. Libraries are called
    only where the number changes.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._n_single = 0
        self._limits: list[int] = []
        self._libraries: Sequence[Any] = ()
        self._before: list[int] = []
        self._limit: int | None = None

    def enter(self, limit: int | None) -> None:
        """Take a limit; None stands for that of `one_thread`."""
        with self._guard:
            if not self._n_single and not self._limits:
                self._libraries = _libraries()[0]
                self._before = [library.num_threads for library in self._libraries]
            if limit is None:
                self._n_single += 1
            else:
                self._limits.append(limit)
            self._set()

    def leave(self, limit: int | None) -> None:
        """Give back a limit that was taken."""
        with self._guard:
            if limit is None:
                self._n_single -= 1
            else:
                self._limits.remove(limit)
            self._set()

    def _set(self) -> None:
        limit = 1 if self._n_single else min(self._limits, default=None)
        if limit == self._limit:
            return
        self._limit = limit
        numbers = [before if limit is None else min(before, limit) for before in self._before]
        _set_threads(self._libraries, numbers)

    def n_threads(self) -> int:
        """Return the number of BLAS threads outside of `one_thread`."""
        with self._guard:
            held = self._n_single or self._limits
            shared, own = _libraries()
            numbers = self._before if held else [library.num_threads for library in shared]
            numbers = numbers or [library.num_threads for library in own]
            return min([max(numbers, default=1), *self._limits])


_shared = _Shared()


def _set_threads(libraries: Sequence[Any], numbers: Sequence[int]) -> None:
    """Set the numbers of threads, whichever Python thread has set them before."""
    # threadpoolctl 3.8 obeys the first thread that sets one, and ignores others until it leaves
    release = getattr(libraries[0], "clear_controlling_thread", None) if libraries else None
    if release is not None:
        release(force=True)
    for library, number in zip(libraries, numbers, strict=True):
        library.set_num_threads(number)
    if release is not None:
        release()


@contextmanager
def _limited_here(libraries: Sequence[Any], n: int) -> Iterator[None]:
    """Limit libraries that have a number for each Python thread, in this one."""
    above = [(each, number) for each in libraries if (number := each.num_threads) > n]
    try:
        for library, _ in above:
            library.set_num_threads(n)
        yield
    finally:
        for library, number in above:
            library.set_num_threads(number)


def _libraries() -> tuple[list[Any], list[Any]]:
    """Return the BLAS libraries that this process has loaded; NumPy and SciPy have one each.

    First those with one number of threads for the process, then those with one for each thread.
    """
    return _found("scipy.linalg" in sys.modules)


@cache
def _found(with_scipy: bool) -> tuple[list[Any], list[Any]]:
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    own = [
        library
        for library in libraries
        if library.internal_api == "mkl" or getattr(library, "threading_layer", "") == "openmp"
    ]
    return [library for library in libraries if library not in own], own
