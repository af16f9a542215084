"""Tasks in several processes: kept where a row is there, put aside where it is outdated.

Each data set has one results file in the folder. The row of a finished task is written at once, so
that a stopped command continues where it stopped. A row whose data, rounds, options or method have
changed is moved to ``<name>.aside.txt`` with a notice. A task
that raises is a failed row; the others continue, and it is tried again by the next command.
"""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from oasis.errors import DataError, InputError, MissingExtraError, OasisError, OasisWarning
from oasis.experiments.brought import traceback_of
from oasis.experiments.results import THREAD_VARIABLES, Results, environment, outdated
from oasis.experiments.task import Row, Task, load_dataset, missing_file, segment


@dataclass(frozen=True)
class RoundDone:
    """A step of a task is finished; told only where tasks run in this process."""

    task: Task
    n_done: int
    n_steps: int


@dataclass(frozen=True)
class Notice:
    """A message for the user, such as about a damaged file."""

    text: str


@dataclass(frozen=True)
class Finished:
    """A task is finished: computed, kept from an earlier call, or failed (``row["error"]``)."""

    task: Task
    status: Literal["computed", "kept", "failed"]
    row: Row


Event: TypeAlias = RoundDone | Notice | Finished
Listener: TypeAlias = Callable[[Event], None]
_Facts: TypeAlias = dict[str, Any]
_Done: TypeAlias = tuple[Finished, _Facts, str, "list[tuple[str, type[Warning]]]"]
"""An outcome, its facts, a notice (the reason why an old row is put aside, or a traceback)."""


def run(
    tasks: Sequence[Task],
    out: Path,
    *,
    data: Path | None = None,
    jobs: int = 1,
    listener: Listener | None = None,
) -> list[Finished]:
    """Execute tasks into a results folder; return the outcome of each, in the given order.

    Parameters
    ----------
    tasks : each key once
    out : results folder; created if it does not exist
    data : folder of data files
    jobs : processes; each gets its share of the cores for linear algebra
    listener : called for every event, in this process

    Raises
    ------
    DataError, MissingExtraError
        Immediately, because no task of a data set can succeed without its files. Any other
        exception fails only its own task.
    """
    keys = [task.key for task in tasks]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise InputError(f"two tasks have the key {twice}; rename one of the files they come from")
    if jobs < 1:
        raise InputError(f"jobs must be a positive integer, got {jobs}")
    for name in dict.fromkeys(task.dataset for task in tasks):
        if (lacking := missing_file(name)) is not None:
            raise DataError(f"{lacking}: no such file")
    tell = listener or (lambda event: None)
    folder = _Folder(out, tell)
    finished: dict[str, Finished] = {}
    for done, facts, notice, warned in _outcomes(tasks, folder, data, jobs, tell):
        for text, category in warned:
            warnings.warn(text, category, stacklevel=2)
        folder.put(done, facts, notice)
        finished[done.task.key] = done
        tell(done)
    return [finished[key] for key in keys]


def _outcomes(
    tasks: Sequence[Task], folder: _Folder, data: Path | None, jobs: int, tell: Listener
) -> Iterator[_Done]:
    if jobs == 1 or len(tasks) < 2:
        try:
            for task in tasks:
                yield _done(task, data, folder.kept(task), tell)
        finally:
            load_dataset.cache_clear()  # the file may have changed by the next call
        return
    try:
        with worker_processes(min(jobs, len(tasks))) as executor:
            futures = [executor.submit(_done, each, data, folder.kept(each)) for each in tasks]
            for future in as_completed(futures):
                yield future.result()
    except BrokenProcessPool as error:
        raise OasisError(
            "a process died during a task, perhaps out of memory; repeat the command with fewer "
            "jobs to resume"
        ) from error


def _done(
    task: Task,
    data: Path | None,
    kept: tuple[Row, _Facts] | None,
    tell: Listener = lambda event: None,
) -> _Done:
    """Execute a task in the process that calls this, unless its row is up to date."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default", OasisWarning)
        found = _executed(task, data, kept, tell)
    return (*found, [(str(each.message), each.category) for each in caught])


def _executed(
    task: Task, data: Path | None, kept: tuple[Row, _Facts] | None, tell: Listener
) -> tuple[Finished, _Facts, str]:
    facts: _Facts = {}
    notice = ""
    try:
        facts = {**task.module.facts(task, data), "options": dict(task.options)}
        if kept is not None:
            reason = outdated(facts, kept[1])
            if not reason:
                return Finished(task, "kept", kept[0]), kept[1], ""
            notice = f"the row {task.key} was made from another {reason}; put aside, and run again"

        def progress(done: int, of: int) -> None:
            tell(RoundDone(task, done, of))

        row = task.module.work(task, data, progress)
        facts["environment"] = environment()
        return Finished(task, "computed", {**task.names(), **row}), facts, notice
    except (DataError, MissingExtraError):
        raise
    except OasisError as error:
        said = str(error)
    except Exception as error:  # noqa: BLE001 - one method's fault must not end the others' tasks
        said = f"{type(error).__name__}: {error}"
        notice = f"{task.key} failed\n{traceback_of(error, task.method)}".rstrip()
    row = {**task.names(), "error": " ".join(said.split())[:300]}
    return Finished(task, "failed", row), facts, notice


class _Folder:
    """The results files of a folder; every row is written when it is there."""

    def __init__(self, path: Path, tell: Listener) -> None:
        self._path, self._tell = path, tell
        path.mkdir(parents=True, exist_ok=True)
        self._files: dict[str, Results] = {}

    def kept(self, task: Task) -> tuple[Row, _Facts] | None:
        """Return the row of a task and its facts, if there is one and it did not fail."""
        found = self._file(task)
        row = found.rows.get(task.key)
        return None if row is None or "error" in row else (row, found.facts_of(row))

    def put(self, done: Finished, facts: _Facts, notice: str) -> None:
        """Write a row, and put aside the one that it replaces."""
        if notice:
            self._tell(Notice(notice))
        if done.status == "kept":
            return
        path = self._place(done.task)
        with _locked(path):
            if path.exists():  # another command may have written to it
                self._files[path.name] = Results.read(path)
            found = self._file(done.task)
            old = found.rows.get(done.task.key)
            if old is not None and "error" not in old:
                if done.status == "failed":
                    return  # what is there may still be read, and is tried again
                with path.with_name(f"{path.stem}.aside.txt").open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps({**old, "of": found.facts_of(old)}) + "\n")
            found.put(done.row, facts)
            found.write(path)

    def _file(self, task: Task) -> Results:
        path = self._place(task)
        if path.name not in self._files:
            self._files[path.name] = Results.read(path) if path.exists() else Results()
        return self._files[path.name]

    def _place(self, task: Task) -> Path:
        return self._path / f"{segment(task.dataset)}.jsonl"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Wait until no other command writes to a results file."""
    with path.with_name(f".{path.name}.lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


@contextmanager
def worker_processes(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Yield an executor of spawned processes, each with its share of the cores.

    If the block raises, the processes are terminated, because a task may take minutes.
    """
    context = multiprocessing.get_context("spawn")
    children = set(multiprocessing.active_children())
    limits = dict.fromkeys(THREAD_VARIABLES, str(max(1, (os.cpu_count() or 1) // jobs)))
    before = {name: os.environ.get(name) for name in limits}
    os.environ.update(limits)  # new processes inherit it; linear algebra reads it when loaded
    try:
        executor = ProcessPoolExecutor(jobs, mp_context=context, initializer=_ignore_interrupts)
        try:
            yield executor
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - children:
                child.terminate()
            raise
        executor.shutdown()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
