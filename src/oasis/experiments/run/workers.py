"""Worker processes that execute runs in parallel, and their warnings."""

from __future__ import annotations

import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

from oasis.errors import OasisWarning
from oasis.experiments.run.machine import THREAD_VARIABLES

Warned: TypeAlias = "list[tuple[str, type[Warning]]]"
"""Warnings by text and category, as they are sent between processes."""

Result = TypeVar("Result")


@contextmanager
def worker_processes(
    jobs: int, start: Callable[..., object] | None = None, *given: Any
) -> Iterator[ProcessPoolExecutor]:
    """Yield an executor of spawned processes, each with its share of the cores.

    ``start(*given)`` runs once in each process. If the block raises, the processes are terminated,
    because a run may take minutes. Result files are written atomically, so a process can be
    terminated at any time.
    """
    context = multiprocessing.get_context("spawn")
    before = set(multiprocessing.active_children())
    with limited_threads(max(1, (os.cpu_count() or 1) // jobs)):
        executor = ProcessPoolExecutor(
            jobs, mp_context=context, initializer=_start, initargs=(start, given)
        )
        try:
            yield executor
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()
            raise
        executor.shutdown()


def _start(start: Callable[..., object] | None, given: Sequence[Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    if start is not None:
        start(*given)


def with_warnings(call: Callable[..., Result], *given: Any) -> tuple[Result, Warned]:
    """Call a function in a worker; return its result and the warnings it gave.

    >>> with_warnings(lambda: warnings.warn("narrow", OasisWarning, stacklevel=2))
    (None, [('narrow', <class 'oasis.errors.OasisWarning'>)])
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default", OasisWarning)
        result = call(*given)
    return result, [(str(each.message), each.category) for each in caught]


def warn_again(warned: Warned) -> None:
    """Repeat the warnings of a worker in the parent process."""
    for text, category in warned:
        warnings.warn(text, category, stacklevel=3)


@contextmanager
def limited_threads(threads: int) -> Iterator[None]:
    """Set the environment that new processes inherit; linear algebra reads it when loaded."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
