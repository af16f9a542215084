"""The kind of study ``tuning``: every method searches its grid with the same number of trials.

A trial learns from validation samples and is evaluated by MAP of others of them, by Hamming
distance. These samples are taken out of the data set by their number before any stream is dealt
(`oasis.experiments.task.load_dataset`): tables with tuned rows are of the part ``rest``. The first
trial has the published parameters, the others are drawn from the grid without repetition, with a
fixed seed. A tuned task has the parameter ``tuned``, the number of trials.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from oasis.datasets.dataset import Dataset
from oasis.errors import InputError
from oasis.experiments.methods import Value, grid_of, method_named, title_of
from oasis.experiments.results import Results
from oasis.experiments.stream import carry_out, check_setting, deal
from oasis.experiments.tables import Line, Part, Table
from oasis.experiments.task import Row, Task, load_dataset, runbook_for, segment
from oasis.metrics import chance_map, mean_average_precision

__all__ = ["cells", "check_setting", "facts", "parts", "tuned_tasks", "work"]

N_TRIALS = 24
Parameters: TypeAlias = tuple[tuple[str, Value], ...]


def facts(task: Task, data: Path | None) -> dict[str, Any]:
    """Return what a row depends on besides its task, as plain values."""
    dataset = _validation(task, data)
    method = method_named(task.method).facts(dataset, dict(task.parameters))
    grid = {name: list(values) for name, values in grid_of(task.method).items()}
    book = runbook_for(_name(task), task.setting).digest()
    return {"data": dataset.describe(), "method": {**method, "grid": grid}, "runbook": book}


def work(task: Task, data: Path | None, progress: Callable[[int, int], None]) -> Row:
    """Search the grid of a task's method; a trial that raises is recorded and not chosen."""
    if task.n_bits is None:
        raise InputError(f"{task.method!r} has no codes and is not tuned")
    dataset, method = _validation(task, data), method_named(task.method)
    place = Task("stream", _name(task), task.setting, task.method, task.n_bits, task.seed)
    stream = deal(place, dataset)
    # a batch method is trained once, on everything
    stream = stream.joint() if method.kind == "batch" else stream
    wanted = trial_parameters(task.method, int(task.option("trials", N_TRIALS)))
    trials: list[Row] = []
    for number, parameters in enumerate(wanted, 1):
        start = time.perf_counter()
        trial: Row = {"parameters": dict(parameters)}
        try:
            _, found = carry_out(replace(place, parameters=parameters), stream, lambda n, of: None)
            codes = np.concatenate(found.rounds[-1].query_codes)
            truth = np.concatenate([each.labels for each in found.sets])
            given = codes, found.base_codes(), truth, found.train_labels
            trial["map"] = mean_average_precision(*given)
        except Exception as error:  # noqa: BLE001 - parameters with which a method cannot work
            trial["error"] = f"{type(error).__name__}: {error}"[:300]
        trials.append({**trial, "seconds": round(time.perf_counter() - start, 4)})
        progress(number, len(wanted))
    if not any("map" in trial for trial in trials):
        raise InputError(f"no trial of {task.method} succeeded: {trials[0]['error']}")
    return {
        "n_learned": len(found.train_labels),
        "n_queries": len(truth),
        "chance": chance_map(truth, found.train_labels),
        "trials": trials,
    }


def trial_parameters(method: str, n_trials: int = N_TRIALS) -> list[Parameters]:
    """Return the parameters of the trials: the published ones, then distinct draws from the grid.

    >>> sorted(trial_parameters("random-projection"))
    [(), (('scaling', 'unit'),), (('scaling', 'zscore'),)]
    """
    grid, entry = grid_of(method), method_named(method)
    published = {**entry.parameters, **entry.fixed}
    names = list(grid)
    points = [dict(zip(names, values, strict=True)) for values in product(*grid.values())]
    order = np.random.default_rng([1, len(points)]).permutation(len(points))
    found: list[Parameters] = [()]
    for number in order.tolist():
        given = {k: v for k, v in points[number].items() if published.get(k) != v}
        parameters = tuple(sorted(given.items()))
        if parameters not in found and len(found) < n_trials:
            found.append(parameters)
    return found


def chosen(row: Row) -> Row:
    """Return the trial with the highest MAP; the first one if there are several."""
    found: Row = max(row["trials"], key=lambda trial: trial.get("map", -1.0))
    return found


def tuned_tasks(tasks: Sequence[Task], out: Path) -> list[Task]:
    """Return the tuned task of every task whose method was tuned on the same data and setting.

    If a code length was not tuned, the parameters of the nearest one are used.
    """
    found = []
    for task in tasks:
        if task.n_bits is None or task.parameters:
            continue
        name = segment(task.dataset).removesuffix("-rest")
        path = out / f"{name}.jsonl"
        rows = Results.read(path).of_kind("tuning") if path.is_file() else []
        own = [r for r in rows if (r["setting"], r["method"]) == (task.setting, task.method)]
        if own:
            row = min(own, key=lambda row: abs(row["n_bits"] - (task.n_bits or 0)))
            given = {**chosen(row)["parameters"], "tuned": len(row["trials"])}
            found.append(replace(task, parameters=tuple(sorted(given.items()))))
    return found


def cells(row: Row) -> dict[str, float]:
    """Return the figures that two files are compared by: MAP of the chosen trial."""
    return {"chosen": chosen(row)["map"]}


def parts(results: Results, dataset: str, rows: Sequence[Row]) -> list[Part]:
    """Return the trials and choices as a table."""
    sizes = sorted({(row["n_learned"], row["n_queries"]) for row in rows})
    samples = ", ".join(f"{learned:,} and {asked:,}" for learned, asked in sizes)
    lines = []
    for row in rows:
        best = chosen(row)
        given = ", ".join(f"{name}={value}" for name, value in best["parameters"].items())
        names = row["setting"], title_of(row["method"]), str(row["n_bits"]), given or "as published"
        failed = sum("map" not in trial for trial in row["trials"])
        found = row["trials"][0].get("map"), best["map"], row["chance"]
        lines.append(Line(names, (len(row["trials"]), failed, *found)))
    table = Table.of(
        "Tuning",
        "MAP by Hamming distance of validation queries, which are in no table; the same number of "
        "trials for every method, or the whole grid if it is smaller. Samples for learning and for "
        f"queries: {samples}. The first trial has the published parameters; parameters that are "
        "not named are the published ones.",
        ("setting", "method", "bits", "chosen"),
        ("trials", "failed", "published", "best", "chance"),
        lines,
    )
    return [Part("Tuning", (), (), (table,))]


def _name(task: Task) -> str:
    return f"validation:{task.dataset}"


def _validation(task: Task, data: Path | None) -> Dataset:
    return load_dataset(_name(task), data)
