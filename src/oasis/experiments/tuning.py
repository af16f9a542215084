"""Tuning: every method, including ours, searches a declared grid with the same number of trials.

A trial learns from a part of the first rounds of the stream and is evaluated by MAP of another part
of them, by Hamming distance. None of these samples is a query of the table: the queries of all
seeds of the table are excluded. The first trial has the published parameters; the others are drawn
from the grid without repetition, with a fixed seed. Trials and choices are recorded in
``tuning/<data set>/<setting>/<method>/<bits>.json`` of the results folder, and `tuned_runs` gives
the runs with the chosen parameters. A tuned run has the additional parameter ``tuned``, the number
of trials.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Self

import numpy as np

from oasis.arrays import Rows
from oasis.codes import Codes, pack
from oasis.datasets.dataset import Dataset
from oasis.errors import FormatError, InputError, OasisError
from oasis.experiments.run.definition import Run, runbook_for
from oasis.experiments.run.methods import Method, Value, method_named
from oasis.hashers.protocol import OnlineHasher
from oasis.metrics import chance_map, mean_average_precision
from oasis.store import replacing
from oasis.streams import rounds

TUNING = "tuning"
"""Subfolder of tuning records in a results folder."""

N_TRIALS = 24
TUNED = "tuned"

_FORMAT = "oasis-tuning"
_VERSION = 1
_SCALINGS: tuple[Value, ...] = ("raw", "unit", "zscore")
_WIDTHS: tuple[Value, ...] = ("mean", "half-mean", "double-mean")
_TENS: tuple[Value, ...] = (0.01, 0.1, 1.0, 10.0, 100.0)

Parameters = tuple[tuple[str, Value], ...]

GRIDS: Mapping[str, Mapping[str, tuple[Value, ...]]] = {
    "oasis": {"delta": (*_TENS, 1000.0, 0.3, 3.0), "scaling": _SCALINGS},
    "oasis-paper": {
        "alpha": (0.1, 1.0, 10.0, 1000.0),
        "beta": (0.01, 1.0, 100.0),
        "gamma": (0.01, 1.0, 100.0),
        "delta": (0.1, 1.0, 10.0, 100.0),
        "labels": ("default", "orthogonal"),
        "scaling": _SCALINGS,
    },
    "lemon": {
        "alpha": (1e2, 1e4, 1e6),
        "beta": (1.0, 1e2, 1e4),
        "gamma": (0.1, 1.0, 10.0),
        "xi": (0.1, 1.0, 10.0, 100.0),
        "scaling": _SCALINGS,
    },
    "thor": {
        "alpha": (0.1, 1.0, 10.0),
        "beta": (1e-3, 0.1, 10.0, 100.0),
        "gamma": (10.0, 100.0, 1000.0),
        "theta": (0.01, 0.1, 1.0),
        "scaling": _SCALINGS,
    },
    "iw-omh": {
        "alpha": (1.0, 100.0, 1e4),
        "theta": (0.1, 1.0, 10.0, 100.0),
        "delta": (0.1, 1.0, 10.0),
        "scaling": _SCALINGS,
    },
    "fomh": {
        "alpha": (1e-7, 1e-5, 1e-3),
        "beta": (1e-4, 1e-2, 0.1),
        "gamma": (1e-3, 1e-2, 0.1),
        "rho": (0.01, 0.1, 1.0),
        "sigma": _WIDTHS,
        "scaling": _SCALINGS,
    },
    "omh-dq": {
        "alpha": (1e-4, 1e-3, 1e-2),
        "beta": (1e-5, 1e-3, 1e-2),
        "delta": (1e-3, 0.1),
        "lam": (10.0, 1e3, 1e5),
        "query_weights": ("published", "inverse"),
        "sigma": _WIDTHS,
        "scaling": _SCALINGS,
    },
    "sapmh": {
        "theta": (1e-7, 1e-5, 1e-4),
        "rho": (1e-6, 1e-5, 1e-4),
        "lam": (1e-3, 1.0, 100.0),
        "k": (128, 500),
        "w_weight": ("mu", "rho"),
        "sigma": _WIDTHS,
        "scaling": _SCALINGS,
    },
    "random-projection": {"scaling": _SCALINGS},
    "pca-sign": {"scaling": _SCALINGS},
    "itq": {"scaling": _SCALINGS, "n_iter": (10, 50, 100)},
    "itq-refit": {"scaling": _SCALINGS, "n_iter": (10, 50, 100)},
}
"""The grid of each method: the weights that its paper tunes, the kernel width, and the scaling of
features. A method with fewer combinations than trials tries them all."""


@dataclass(frozen=True)
class TuningTrial:
    """One setting of the parameters: MAP of the validation queries, or why there is none."""

    parameters: Parameters
    map: float | None
    seconds: float
    error: str = ""


@dataclass(frozen=True)
class TuningRecord:
    """The trials of one method on one stream, and the choice.

    Attributes
    ----------
    dataset, setting, method, n_bits : of the stream and the method
    grid : parameter -> values
    n_learned, n_queries : samples that a trial learned from, and was evaluated with
    chance : MAP of a random order
    trials : the first has the published parameters
    """

    dataset: str
    setting: str
    method: str
    n_bits: int
    grid: Mapping[str, tuple[Value, ...]]
    n_learned: int
    n_queries: int
    chance: float
    trials: tuple[TuningTrial, ...]

    @property
    def published(self) -> TuningTrial:
        """The trial with the published parameters."""
        return self.trials[0]

    @property
    def chosen(self) -> TuningTrial:
        """The trial with the highest MAP; the first one if there are several."""
        return max(self.trials, key=lambda trial: -1.0 if trial.map is None else trial.map)

    @property
    def run_parameters(self) -> Parameters:
        """Parameters of the tuned run: the chosen ones and the number of trials."""
        return tuple(sorted((*self.chosen.parameters, (TUNED, len(self.trials)))))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, from which `parse` makes an equal record."""
        values = asdict(self)
        for trial in values["trials"]:
            trial["parameters"] = dict(trial["parameters"])
        return {"format": _FORMAT, "version": _VERSION, **values}

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Return the record that `as_dict` described."""
        if values.get("format") != _FORMAT or values.get("version") != _VERSION:
            raise FormatError("it is not a record of tuning that this version can read")
        try:
            plain = {k: v for k, v in values.items() if k not in ("format", "version", "trials")}
            trials = tuple(
                TuningTrial(
                    tuple(sorted(each["parameters"].items())),
                    each["map"],
                    each["seconds"],
                    each["error"],
                )
                for each in values["trials"]
            )
            grid = {name: tuple(found) for name, found in plain.pop("grid").items()}
            return cls(**plain, grid=grid, trials=trials)
        except (LookupError, TypeError, AttributeError) as error:
            raise FormatError(f"it is damaged: {error!r}") from error


@dataclass(frozen=True, eq=False)
class ValidationPart:
    """Rows to learn from, round by round, and rows of queries."""

    train: tuple[Rows, ...]
    queries: Rows


def validation_part(
    dataset: Dataset,
    dataset_name: str,
    setting: str,
    *,
    n_seeds: int,
    n_rounds: int,
    n_samples: int,
) -> ValidationPart:
    """Return a part of a stream's first rounds without the queries of the table's seeds.

    Parameters
    ----------
    n_seeds : seeds of the table, from 0; the stream is that of seed 0
    n_rounds : rounds from the beginning
    n_samples : maximum number of samples in total; a fifth of them, at most 500, are queries
    """
    book = runbook_for(dataset_name, setting)
    asked = [each.queries for seed in range(n_seeds) for each in rounds(dataset, book, seed)]
    forbidden = np.unique(np.concatenate(asked))
    rng = np.random.default_rng([0, 2])
    stream = rounds(dataset, book, 0)[:n_rounds]
    free = [each.train[~np.isin(each.train, forbidden)] for each in stream]
    share = min(1.0, n_samples / max(1, sum(map(len, free))))
    kept = [rng.permutation(rows)[: max(1, round(share * len(rows)))] for rows in free]
    total = sum(map(len, kept))
    query_share = min(0.2, 500 / max(1, total))
    cuts = [round(query_share * len(rows)) for rows in kept]
    train = tuple(rows[cut:] for rows, cut in zip(kept, cuts, strict=True) if len(rows) > cut)
    queries = np.concatenate([rows[:cut] for rows, cut in zip(kept, cuts, strict=True)])
    if not train or not len(queries):
        raise InputError(
            f"the first {n_rounds} rounds of {dataset_name}, {setting}, leave {total} samples that "
            "are no query: too few to tune on; take more rounds"
        )
    return ValidationPart(train, queries)


def trial_parameters(method: str, n_trials: int = N_TRIALS) -> list[Parameters]:
    """Return the parameters of the trials: the published ones, then distinct draws from the grid.

    >>> sorted(trial_parameters("random-projection"))
    [(), (('scaling', 'unit'),), (('scaling', 'zscore'),)]
    """
    grid = grid_of(method)
    published = _published(method)
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


def grid_of(method: str) -> Mapping[str, tuple[Value, ...]]:
    """Return the declared grid of a method; only the scaling for a method without one.

    A class of another package declares it as its attribute ``tuning_grid``; the scaling is added.
    """
    entry = method_named(method)
    if not entry.has_codes:
        raise InputError(f"{method!r} has no codes and is not tuned")
    return GRIDS[method] if method in GRIDS else {"scaling": _SCALINGS, **_declared(entry)}


def _declared(entry: Method) -> dict[str, tuple[Value, ...]]:
    """Return the grid that a class of another package declares, checked."""
    grid = entry.tuning_grid
    if not isinstance(grid, Mapping):
        raise InputError(f"{entry.name}: tuning_grid is {grid!r}, expected a dict")
    for name, values in grid.items():
        if name not in entry.parameters:
            raise InputError(
                f"{entry.name}: tuning_grid has {name!r}, which is no parameter; known are "
                f"{', '.join(sorted(entry.parameters))}"
            )
        listed = isinstance(values, (list, tuple)) and len(values) > 0
        if not listed or not all(isinstance(value, (bool, int, float, str)) for value in values):
            raise InputError(
                f"{entry.name}: tuning_grid has {name}={values!r}, expected a list of numbers, "
                "texts, True and False"
            )
    return {name: tuple(values) for name, values in grid.items()}


def tune(
    run: Run,
    dataset: Dataset,
    part: ValidationPart,
    n_trials: int = N_TRIALS,
    progress: Callable[[int, int], None] | None = None,
) -> TuningRecord:
    """Search the grid of a run's method on a part of its stream.

    A trial that raises an `OasisError` or `LinAlgError` is recorded with it and not chosen.
    """
    if run.n_bits is None:
        raise InputError(f"{run.method!r} has no codes and is not tuned")
    wanted = trial_parameters(run.method, n_trials)
    learned = np.concatenate(part.train)
    query_labels, base_labels = dataset.L[part.queries], dataset.L[learned]
    trials = []
    for number, parameters in enumerate(wanted, 1):
        start = time.perf_counter()
        try:
            codes, queries = _coded(run, dataset, part, parameters)
            value = mean_average_precision(queries, codes, query_labels, base_labels)
            trials.append(TuningTrial(parameters, value, time.perf_counter() - start))
        except (OasisError, np.linalg.LinAlgError) as error:
            seconds = time.perf_counter() - start
            trials.append(
                TuningTrial(parameters, None, seconds, f"{type(error).__name__}: {error}")
            )
        if progress is not None:
            progress(number, len(wanted))
    if all(trial.map is None for trial in trials):
        raise InputError(f"no trial of {run.method} succeeded: {trials[0].error}")
    return TuningRecord(
        run.key.parts[0],
        run.key.parts[1],
        run.method,
        run.n_bits,
        grid_of(run.method),
        len(learned),
        len(part.queries),
        chance_map(query_labels, base_labels),
        tuple(trials),
    )


def record_path(out: Path, run: Run) -> Path:
    """Return the path of the record of a run's method."""
    dataset, setting, *_ = run.key.parts
    name = run.method.replace(":", "~")
    return out / TUNING / dataset / setting / name / f"{run.n_bits}.json"


def write_record(path: Path, record: TuningRecord) -> None:
    """Write a record, atomically; folders are created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(record.as_dict(), indent=1) + "\n", "utf-8")


def read_record(path: Path) -> TuningRecord:
    """Read one record."""
    try:
        return TuningRecord.parse(json.loads(path.read_text("utf-8")))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"{path} is damaged: {error}") from error
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error


def read_records(folder: Path) -> list[TuningRecord]:
    """Read all records of a results folder, or of the parent of a folder of summaries."""
    inner = folder / TUNING if (folder / TUNING).is_dir() else folder.parent / TUNING
    return [read_record(path) for path in sorted(inner.rglob("*.json"))] if inner.is_dir() else []


def tuned_runs(runs: Sequence[Run], out: Path) -> Iterator[Run]:
    """Yield the tuned run of every run whose method was tuned on the same data and setting.

    If a code length was not tuned, the parameters of another length are used.
    """
    for run in runs:
        if run.n_bits is None or run.parameters:
            continue
        exact = record_path(out, run)
        others = sorted(exact.parent.glob("*.json"), key=lambda path: abs(int(path.stem) - 64))
        found = exact if exact.is_file() else next(iter(others), None)
        if found is not None:
            yield replace(run, parameters=read_record(found).run_parameters)


def _published(method: str) -> dict[str, Value]:
    entry = method_named(method)
    return {**entry.parameters, **entry.fixed}


def _coded(
    run: Run, dataset: Dataset, part: ValidationPart, parameters: Parameters
) -> tuple[Codes, Codes]:
    """Return the codes of everything learned, and of the queries."""
    method = method_named(run.method)
    model = method.model(run.n_bits, 0, dataset, dict(parameters))
    if not isinstance(model, OnlineHasher):
        raise InputError(f"{run.method!r} has no codes and is not tuned")
    if method.kind == "batch":
        rows = np.concatenate(part.train)
        model.partial_fit(dataset.take(rows), dataset.labels(rows))
        codes = [np.asarray(getattr(model, "all_codes_", model.codes_))]
    else:
        codes = []
        for rows in part.train:
            model.partial_fit(dataset.take(rows), dataset.labels(rows))
            codes.append(model.codes_.copy())
    return np.concatenate(codes), pack(model.project(dataset.take(part.queries)))
