"""Carry out many runs: resume what is there, put aside what is damaged, use several processes.

A results folder holds ``raw/<key>.npz``, ``summaries/<key>.json`` and ``queries/<key>.npz``, and on
request ``convergence/<key>.json``. A run whose files are whole and were made from the same data,
runbook and method is not run again. Any other file in its place is moved aside with a notice, and
never overwritten.
"""

from __future__ import annotations

import json
import multiprocessing
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

from oasis.datasets.dataset import Dataset
from oasis.errors import DataError, FormatError, InputError, MissingExtraError, OasisError
from oasis.experiments.measure import traces
from oasis.experiments.measure.convergence import trace_run
from oasis.experiments.measure.measures import measure
from oasis.experiments.measure.queries import QUERIES, write_queries
from oasis.experiments.measure.summaries import (
    FOLDER,
    VERSION,
    Summary,
    file_sha256,
    read_summary,
    write_summary,
)
from oasis.experiments.run.definition import Run, load_dataset
from oasis.experiments.run.methods import method_named
from oasis.experiments.run.results import (
    RawResult,
    read_result,
    write_result,
)
from oasis.experiments.run.runner import carry_out, describe
from oasis.experiments.run.workers import Warned, warn_again, with_warnings, worker_processes

RAW = "raw"
"""Where a results folder keeps its raw results."""


@dataclass(frozen=True)
class RoundDone:
    """A round of a run is over."""

    run: Run
    n_done: int
    n_rounds: int


@dataclass(frozen=True)
class Notice:
    """Something a person should know, such as a damaged file."""

    run: Run
    text: str


@dataclass(frozen=True)
class Finished:
    """A run is over: computed, measured anew from a raw result that was there, kept, or failed."""

    run: Run
    status: Literal["computed", "measured", "kept", "failed"]
    summary: Summary | None = None
    error: str = ""


Event: TypeAlias = RoundDone | Notice | Finished
Listener: TypeAlias = Callable[[Event], None]


def reproduce(
    runs: Sequence[Run],
    out: Path,
    *,
    data: Path | None = None,
    jobs: int = 1,
    listener: Listener | None = None,
) -> list[Finished]:
    """Carry out runs into a results folder; return how each of them ended, in the order given.

    Parameters
    ----------
    runs : the runs, each key once
    out : results folder; made when absent
    data : folder of data files
    jobs : processes; each gets its share of the cores for linear algebra
    listener : told of everything that happens, in this process

    Raises
    ------
    DataError, MissingExtraError
        At once: without its data a grid has no use.
    InputError
        Before anything runs, when a method cannot take a data set. Any other error that has a
        name fails its own run, and the others go on.
    """
    keys = [run.key for run in runs]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise InputError(f"two runs have the key {twice}; rename one of the files they come from")
    if jobs < 1:
        raise InputError(f"jobs must be a positive integer, got {jobs}")
    _refuse_impossible(runs, data)
    out.mkdir(parents=True, exist_ok=True)
    tell = listener or (lambda event: None)
    finished: dict[Run, Finished] = {}

    def note(event: Event) -> None:
        if isinstance(event, Finished):
            finished[event.run] = event
        tell(event)

    if jobs == 1 or len(runs) < 2:
        try:
            for run in runs:
                note(_ensure(run, out, data, note))
        finally:
            _dataset.cache_clear()  # the file may be another one next time
    else:
        _in_processes(runs, out, data, min(jobs, len(runs)), note)
    return [finished[run] for run in runs]


def trace_runs(
    runs: Sequence[Run],
    out: Path,
    n_iter: int,
    *,
    data: Path | None = None,
    listener: Listener | None = None,
) -> list[Finished]:
    """Trace loss and MAP by iteration for the first seed of the method as published.

    Other runs, and those with parameters, are left out. A trace that is there is kept if it is of
    the same data and rounds and goes as far.
    """
    if n_iter < 1:
        raise InputError(f"iterations must be a positive integer, got {n_iter}")
    tell = listener or (lambda event: None)
    finished = []
    picked = [run for run in runs if (run.variant, run.seed) == ("oasis-paper", 0)]
    try:
        for run in picked:
            path = out / traces.FOLDER / f"{run.key}.json"
            dataset = _dataset(run.dataset, data)
            status: Literal["computed", "kept"] = "kept"
            if not _is_kept_trace(run, path, dataset, n_iter, tell):
                status = "computed"

                def progress(done: int, of: int, run: Run = run) -> None:
                    tell(RoundDone(run, done, of))

                traces.write_trace(path, trace_run(run, dataset, n_iter, progress))
            finished.append(Finished(run, status))
            tell(finished[-1])
    finally:
        _dataset.cache_clear()
    return finished


def _is_kept_trace(run: Run, path: Path, dataset: Dataset, n_iter: int, tell: Listener) -> bool:
    if not path.exists():
        return False
    try:
        trace = traces.read_trace(path)
    except FormatError as error:
        tell(Notice(run, f"{error}; moved to {put_aside(path).name}, and traced again"))
        return False
    differing = _differing(run, dataset, trace.run, trace.about)
    if differing:
        aside = put_aside(path).name
        tell(Notice(run, f"{path} was made from another {differing}; moved to {aside}"))
        return False
    return all(len(each.loss) == max(n_iter, trace.n_iter) for each in trace.rounds)


def _refuse_impossible(runs: Sequence[Run], data: Path | None) -> None:
    """Raise for a method that cannot take a data set; only those with a limit need the data."""
    limited = {(run.dataset, run.method) for run in runs if method_named(run.method).max_classes}
    for dataset, method in sorted(limited):
        method_named(method).check_classes(_dataset(dataset, data))


def _ensure(run: Run, out: Path, data: Path | None, tell: Listener) -> Finished:
    """Make sure that a run's files are there, doing as little as possible."""
    try:
        return _ensured(run, out, data, tell)
    except (DataError, MissingExtraError):
        raise
    except OasisError as error:
        return Finished(run, "failed", error=str(error))


def _ensured(run: Run, out: Path, data: Path | None, tell: Listener) -> Finished:
    raw_path = out / RAW / f"{run.key}.npz"
    summary_path = out / FOLDER / f"{run.key}.json"
    dataset = _dataset(run.dataset, data)
    status: Literal["computed", "measured"] = "measured"
    raw = _kept_result(run, raw_path, dataset, tell)
    if raw is None:
        status = "computed"
        raw = carry_out(run, dataset, lambda done, of: tell(RoundDone(run, done, of)))
        write_result(raw_path, raw)
    sha256 = file_sha256(raw_path)
    queries_path = out / QUERIES / f"{run.key}.npz"
    kept = _kept_summary(run, summary_path, sha256, tell)
    if kept is not None and queries_path.exists():
        return Finished(run, "kept", kept)
    summary, scores = measure(raw, sha256)
    write_queries(queries_path, scores)
    write_summary(summary_path, summary)
    return Finished(run, status, summary)


def _kept_result(run: Run, path: Path, dataset: Dataset, tell: Listener) -> RawResult | None:
    """Return the raw result that is there, if it is whole and still holds."""
    if not path.exists():
        return None
    try:
        raw = read_result(path)
    except FormatError as error:
        reason = str(error)
    else:
        differing = _differing(run, dataset, raw.run, raw.about)
        if not differing:
            return raw
        reason = f"{path} was made from another {differing}"
    tell(Notice(run, f"{reason}; moved to {put_aside(path).name}, and run again"))
    return None


def _differing(run: Run, dataset: Dataset, found_run: Run, found_about: Any) -> str:
    """Return in what a file differs from what the run would give now; empty where in nothing."""
    about = json.loads(json.dumps(describe(run, dataset)))  # as it was when it was written
    wanted = {"definition": run.key, **_comparable(about, found_about["method"])}
    found = {"definition": found_run.key, **_comparable(found_about, about["method"])}
    return next((key for key, value in wanted.items() if found.get(key) != value), "")


def _comparable(about: Any, other_method: Any) -> dict[str, Any]:
    # an older version may not have recorded everything about the method: what both have counts
    method = {
        key: value
        for key, value in about["method"].items()
        if key != "title" and key in other_method
    }
    return {"data set": about["dataset"], "runbook": about["runbook"]["digest"], "method": method}


def _kept_summary(run: Run, path: Path, sha256: str, tell: Listener) -> Summary | None:
    if not path.exists():
        return None
    try:
        summary = read_summary(path)
    except FormatError as error:
        tell(Notice(run, f"{error}; moved to {put_aside(path).name}, and measured again"))
        return None
    if summary.raw_sha256 != sha256:
        put_aside(path)
        return None
    return summary if summary.version == VERSION else None  # an older one holds fewer measures


def put_aside(path: Path) -> Path:
    """Move a file out of the way, to a name of its own beside it; return that."""
    number = 1
    while (aside := path.with_name(f"{path.name}.aside-{number}")).exists():
        number += 1
    return path.rename(aside)


@lru_cache(maxsize=1)
def _dataset(name: str, folder: Path | None) -> Dataset:
    return load_dataset(name, folder)


def _in_processes(
    runs: Sequence[Run], out: Path, data: Path | None, jobs: int, tell: Listener
) -> None:
    events: multiprocessing.queues.Queue[Event] = multiprocessing.get_context("spawn").Queue()
    with worker_processes(jobs, _listen, events) as executor:
        futures = {executor.submit(with_warnings, _work, run, out, data): run for run in runs}
        _follow(futures, events, tell)


def _follow(
    futures: dict[Future[tuple[tuple[list[Notice], Finished], Warned]], Run],
    events: multiprocessing.queues.Queue[Event],
    tell: Listener,
) -> None:
    waiting = set(futures)
    while waiting:
        done, waiting = wait(waiting, timeout=0.2)
        _drain(events, tell)
        for future in done:
            try:
                (notices, finished), warned = future.result()
            except BrokenProcessPool as error:
                raise OasisError(
                    f"a process ended in the middle of {futures[future].key}, perhaps for want of "
                    "memory; run the same command again, with fewer jobs, to go on"
                ) from error
            warn_again(warned)
            for notice in notices:
                tell(notice)
            tell(finished)
    _drain(events, tell)


def _drain(events: multiprocessing.queues.Queue[Event], tell: Listener) -> None:
    while True:
        try:
            tell(events.get_nowait())
        except queue.Empty:
            return


_events: multiprocessing.queues.Queue[Event] | None = None


def _listen(events: multiprocessing.queues.Queue[Event]) -> None:
    global _events
    _events = events


def _work(run: Run, out: Path, data: Path | None) -> tuple[list[Notice], Finished]:
    """Carry out a run; rounds are told on the way, notices with the result: none may be lost."""
    notices: list[Notice] = []

    def tell(event: Event) -> None:
        if isinstance(event, Notice):
            notices.append(event)
        elif _events is not None:
            _events.put(event)

    finished = _ensure(run, out, data, tell)
    return notices, finished
