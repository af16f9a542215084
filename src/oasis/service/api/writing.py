"""The one writer: changes are made one after the other, and few may wait."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TypeVar

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from oasis.model.threads import at_most
from oasis.service.http.problems import Problem, busy

Answer = TypeVar("Answer")

_FIRST_GUESS = 1.0
_WEIGHT = 0.3


class SparedCore:
    """Lets a change use all cores but one, which is left to searches.

    OpenMP has a thread limit per calling thread, which is set once, for the thread of the writer.
    BLAS has one limit for the whole process, which is held while a change runs
    (`oasis.model.threads`).
    """

    def __init__(self) -> None:
        self._n_threads = max(1, (os.cpu_count() or 1) - 1)

    def enter_thread(self) -> None:
        """Set the limit of OpenMP for the calling thread, and load the libraries of BLAS."""
        import scipy.linalg  # noqa: F401 - learning loads it; its BLAS has to be there to be found

        ThreadpoolController().limit(limits=self._n_threads, user_api="openmp")

    def limit(self) -> AbstractContextManager[object]:
        """Return a context in which BLAS leaves a core."""
        return at_most(self._n_threads)


class WriterQueue:
    """A queue of bounded length before one thread.

    Parameters
    ----------
    limit : int
        Changes that may wait or run; the next one is refused.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._cores = SparedCore()
        self._thread = ThreadPoolExecutor(
            1, thread_name_prefix="oasis-writer", initializer=self._cores.enter_thread
        )
        self._guard = threading.Lock()
        self._n = 0
        self._seconds = _FIRST_GUESS
        self._stopping = False

    def __len__(self) -> int:
        return self._n

    @property
    def stopping(self) -> bool:
        """Whether no more changes are taken."""
        return self._stopping

    async def run(self, change: Callable[[], Answer]) -> Answer:
        """Make a change in its turn and return what it returns.

        It is made even if the caller has gone away meanwhile.
        """
        with self._guard:
            self._refuse_when_stopping()
            if self._n >= self.limit:
                raise busy(
                    f"{self._n} changes are waiting already, at most {self.limit} may; come again",
                    self._n * self._seconds,
                    status=429,
                )
            self._n += 1
        try:
            future = self._thread.submit(self._timed, change)
        except RuntimeError:  # shut down between the check and the call
            self._done(None)
            self._refuse_when_stopping()
            raise
        future.add_done_callback(self._done)
        return await asyncio.shield(asyncio.wrap_future(future))

    def _timed(self, change: Callable[[], Answer]) -> Answer:
        self._refuse_when_stopping()
        start = time.perf_counter()
        try:
            with self._cores.limit():
                return change()
        finally:
            spent = time.perf_counter() - start
            self._seconds += _WEIGHT * (spent - self._seconds)

    def _done(self, _: object) -> None:
        with self._guard:
            self._n -= 1

    def _refuse_when_stopping(self) -> None:
        if self._stopping:
            raise Problem(
                503,
                "stopping",
                "the service is being stopped; nothing was changed",
                headers={"Retry-After": "5"},
            )

    def stop(self) -> None:
        """Take no more changes; those that wait are refused, the running one goes on."""
        self._stopping = True

    def close(self) -> None:
        """Stop, and wait until the running change is done."""
        self.stop()
        self._thread.shutdown(wait=True)
