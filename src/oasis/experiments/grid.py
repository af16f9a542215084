"""Execute many runs in several processes; resume, and move damaged files aside.

A results folder holds ``raw/<key>.npz``, ``summaries/<key>.json`` and ``queries/<key>.npz``, and on
request ``convergence/<key>.json``. A run is not repeated if its files are intact and were made from
the same data, runbook and method. Any other file with its name is moved aside with a notice, and
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
from oasis.datasets.own import is_own, split_name
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
from oasis.experiments.run.brought import traceback_of
from oasis.experiments.run.definition import Run, load_dataset
from oasis.experiments.run.methods import METHODS, method_named
from oasis.experiments.run.results import (
    RawResult,
    read_result,
    write_result,
)
from oasis.experiments.run.runner import carry_out, describe
from oasis.experiments.run.workers import Warned, warn_again, with_warnings, worker_processes

RAW = "raw"
"""Subfolder of raw results in a results folder."""


@dataclass(frozen=True)
class RoundDone:
    """A round of a run is finished."""

    run: Run
    n_done: int
    n_rounds: int


@dataclass(frozen=True)
class Notice:
    """A message for the user, such as about a damaged file."""

    run: Run
    text: str


@dataclass(frozen=True)
class Finished:
    """A run is finished: computed, measured again from an existing raw result, kept, or failed."""

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
    """Execute runs into a results folder; return the outcome of each, in the given order.

    Parameters
    ----------
    runs : the runs, each key once
    out : results folder; created if it does not exist
    data : folder of data files
    jobs : processes; each gets its share of the cores for linear algebra
    listener : called for every event, in this process

    Raises
    ------
    DataError, MissingExtraError
        Immediately, because no run of a data set can succeed without its files.
    InputError
        Before anything runs, if a method does not support a data set. Any other `OasisError`, and
        any exception of a method of yours, fails only its own run, and the others continue.
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
            _dataset.cache_clear()  # the file may have changed by the next call
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

    Other runs, and those with parameters, are skipped. An existing trace is kept if it has the same
    data and rounds and at least as many iterations.
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
    """Raise if a file is missing or a method does not support a data set.

    Loads data only for methods with a limit.
    """
    for dataset in dict.fromkeys(run.dataset for run in runs):
        if is_own(dataset) and not split_name(dataset)[0].exists():
            raise DataError(f"{split_name(dataset)[0]}: no such file")
    limited = {(run.dataset, run.method) for run in runs if method_named(run.method).max_classes}
    for dataset, method in sorted(limited):
        method_named(method).check_classes(_dataset(dataset, data))


def _ensure(run: Run, out: Path, data: Path | None, tell: Listener) -> Finished:
    """Make sure that a run's files exist, with as little work as possible."""
    try:
        return _ensured(run, out, data, tell)
    except (DataError, MissingExtraError):
        raise
    except OasisError as error:
        return Finished(run, "failed", error=str(error))
    except Exception as error:
        if run.method in METHODS:
            raise
        tell(Notice(run, f"{run.key} failed\n{traceback_of(error, run.method)}".rstrip()))
        said = " ".join(str(error).split())[:200]
        return Finished(run, "failed", error=f"{type(error).__name__}: {said}")


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
    """Return the existing raw result, if it is intact and up to date."""
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
    """Return which of the recorded facts differ from those of the run now; empty if none does."""
    about = json.loads(json.dumps(describe(run, dataset)))  # in the form in which it is recorded
    wanted = {"definition": run.key, **_comparable(about, found_about["method"])}
    found = {"definition": found_run.key, **_comparable(found_about, about["method"])}
    return next((key for key, value in wanted.items() if found.get(key) != value), "")


def _comparable(about: Any, other_method: Any) -> dict[str, Any]:
    # an older version may have recorded less about the method: only common keys are compared
    method = {
        key: value
        for key, value in about["method"].items()
        if key != "title" and key in other_method
    }
    source = method.pop("source_sha256", "")
    return {
        "data set": about["dataset"],
        "runbook": about["runbook"]["digest"],
        "method": method,
        "version of the method's file": source,
    }


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
    """Rename a file to an unused name beside it; return the new path."""
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
                    f"a process died during {futures[future].key}, perhaps out of memory; repeat "
                    "the command with fewer jobs to resume"
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
    """Execute a run. Rounds are reported at once, notices with the result, so that none is lost."""
    notices: list[Notice] = []

    def tell(event: Event) -> None:
        if isinstance(event, Notice):
            notices.append(event)
        elif _events is not None:
            _events.put(event)

    finished = _ensure(run, out, data, tell)
    return notices, finished
