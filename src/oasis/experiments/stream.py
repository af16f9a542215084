"""The kind of study ``stream``: a method learns a stream round by round, and is asked after each.

A setting is one of the paper's three, a runbook, numbers, or a scenario; with ``/joint`` all its
data come in one round. The option ``neighbours`` adds recall of float neighbours, ``samples``
limits the samples of a scenario.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from oasis.arrays import Indicator, Rows
from oasis.baselines import FloatCosine, Probe
from oasis.codes import pack
from oasis.datasets.dataset import Dataset
from oasis.errors import DataError, InputError
from oasis.experiments import overview, scenarios
from oasis.experiments.brought import Ranker
from oasis.experiments.measure import (
    Outcome,
    QuerySet,
    Ranked,
    Round,
    by_codes_and_values,
    measures,
    score_measures,
    score_slices,
)
from oasis.experiments.methods import method_named
from oasis.experiments.results import Results, rounded
from oasis.experiments.scenarios import Stream
from oasis.experiments.tables import Part, value_at
from oasis.experiments.task import Row, Task, load_dataset, runbook_for
from oasis.hashers.protocol import OnlineHasher
from oasis.metrics import neighbour_recall

Progress = Callable[[int, int], None]
"""Called after each step with the number of steps done and of all steps."""

NEIGHBOURS = 10
"""Recall is measured of so many nearest items by float cosine."""

_MOST_NEIGHBOUR_QUERIES = 500
_JOINT = "/joint"
_NOT_LEARNED = ("codes_", "all_codes_", "all_codes", "__dict__", "__weakref__")


def check_setting(dataset: str, setting: str) -> None:
    """Raise if there is no such setting on a data set."""
    if not scenarios.is_scenario(setting):
        runbook_for(dataset, setting)


def facts(task: Task, data: Path | None) -> dict[str, Any]:
    """Return what a row depends on besides its task, as plain values."""
    dataset, method = load_dataset(task.dataset, data), method_named(task.method)
    if not dataset.L.any():
        raise DataError(f"{dataset.name} has no labels: no sample has one, so nothing can be asked")
    name = task.setting.removesuffix(_JOINT)
    if name in scenarios.SCENARIOS:
        digest = scenarios.SCENARIOS[name].digest(dataset.name)
    else:
        digest = runbook_for(task.dataset, name).digest()
    return {
        "data": dataset.describe(),
        "method": method.facts(dataset, dict(task.parameters)),
        "runbook": digest,
    }


def work(task: Task, data: Path | None, progress: Progress) -> Row:
    """Return the measures of a task."""
    stream = deal(task, load_dataset(task.dataset, data))
    model, outcome = carry_out(task, stream, progress)
    row = measures(outcome)
    row["model_bytes"] = learned_bytes(model)
    if isinstance(model, OnlineHasher):
        own = outcome.rounds[-1].own
        row |= rounded(_one_modality(model, stream, [outcome.sets[i] for i in own], outcome))
        row |= rounded(_neighbours(task, data, outcome, own))
    return row


def carry_out(task: Task, stream: Stream, progress: Progress) -> tuple[Any, Outcome]:
    """Stream the rounds through a method; return the model and what is measured.

    After each round the queries of all rounds so far are encoded, separately for each round (FOMH's
    codes depend on their batch). Rounds that share their queries share one query set. A batch
    method that is measured only at some rounds learns all chunks since the previous one as a
    single chunk: its state does not depend on how samples are divided into chunks.
    """
    method, parameters = method_named(task.method), dict(task.parameters)
    model = method.model(task.n_bits, task.seed, stream.seen, parameters)
    sets, of_round = _query_sets(stream)
    learned = np.concatenate(stream.train)
    truth = stream.truth[learned]
    found: list[Round] = []
    projections: list[Any] = []
    begin = end = 0
    stops = method.stops(len(stream.train), parameters)
    for t in stops:
        begin, end = end, sum(map(len, stream.train[: t + 1]))
        X, y = stream.seen.take(learned[begin:end]), stream.seen.labels(learned[begin:end])
        start = time.perf_counter()
        model.partial_fit(X, y)
        taken = time.perf_counter() - start
        del X, y
        common: Row = {
            "number": stream.numbers[t],
            "n_train": end - begin,
            "n_classes": int(truth[:end].any(axis=0).sum()),
            "own": of_round[t],
            "train_seconds": taken,
        }
        arrived = sets[: max((max(each) for each in of_round[: t + 1] if each), default=-1) + 1]
        if isinstance(model, OnlineHasher):
            asked = [stream.seen.take(each.rows) for each in arrived]
            none = np.empty((0, model.n_bits), np.float32)
            start = time.perf_counter()
            projections = [
                model.project(X) if len(q) else none for X, q in zip(asked, arrived, strict=True)
            ]
            common["encode_seconds"] = time.perf_counter() - start
            codes = getattr(model, "all_codes_", None) if method.kind == "batch" else model.codes_
            packed = tuple(pack(each) for each in projections)
            found.append(Round(**common, codes=np.array(codes), query_codes=packed))
        else:
            last = t == stops[-1]
            ranked = tuple(_ranked(model, stream.seen, q, truth[:end], last) for q in arrived)
            found.append(Round(**common, encode_seconds=0.0, ranked=ranked))
        progress(t + 1, len(stream.train))
    is_batch = method.kind == "batch"
    return model, Outcome(truth, tuple(sets), tuple(found), tuple(projections), is_batch)


def deal(task: Task, dataset: Dataset) -> Stream:
    """Return the stream of a task."""
    name = task.setting.removesuffix(_JOINT)
    if name in scenarios.SCENARIOS:
        most = int(task.option("samples", scenarios.N_SAMPLES))
        stream = scenarios.deal(dataset, scenarios.SCENARIOS[name], task.seed, most)
    else:
        stream = Stream.of(dataset, runbook_for(task.dataset, name), task.seed)
    return stream.joint() if task.setting.endswith(_JOINT) else stream


def _query_sets(stream: Stream) -> tuple[list[QuerySet], list[list[int]]]:
    """Return the distinct query sets in order of arrival, and the set numbers of each round."""
    found: list[QuerySet] = []
    numbers: list[list[int]] = [[] for _ in stream.train]
    for t, rows in enumerate(stream.queries):
        if not (found and np.array_equal(found[-1].rows, rows)):
            found.append(QuerySet(rows, stream.truth[rows]))
        numbers[min(t, len(numbers) - 1)].append(len(found) - 1)
    return found, [list(dict.fromkeys(each)) for each in numbers]


def _ranked(
    model: Ranker, dataset: Dataset, queries: QuerySet, base: Indicator, last: bool
) -> Ranked:
    """Return what a ranker's scores give; the probe's are scores of groups of items."""
    is_probe = isinstance(model, Probe)
    score = model.group_scores if is_probe else model.scores
    blocks = (
        (rows, score(dataset.take(queries.rows[rows])))
        for rows in score_slices(len(queries), len(base))
    )
    groups = model.groups_ if is_probe else None
    return score_measures(blocks, queries.labels, base, groups, last)


def _one_modality(
    model: OnlineHasher, stream: Stream, last: Sequence[QuerySet], outcome: Outcome
) -> Row:
    """Return MAP of the last round's queries with one of their modalities only."""
    rows = np.concatenate([each.rows for each in last])
    if len(stream.seen.X) < 2 or not len(rows):
        return {}
    base, labels = outcome.base_codes(), outcome.train_labels
    found: dict[str, Row] = {}
    for name, matrix in stream.seen.take(rows).items():
        try:
            values = model.project({name: matrix})
        except InputError as error:  # a published method may need all of them
            found[name] = {"empty": str(error)}
            continue
        both = by_codes_and_values(values, base, stream.truth[rows], labels)
        found[name] = dict(zip(("hamming", "projections"), both, strict=True))
    return {"one_modality": found}


def _neighbours(task: Task, data: Path | None, outcome: Outcome, own: Sequence[int]) -> Row:
    """Return the share of the nearest items by float cosine that the first hits have."""
    if not task.option("neighbours", False) or not own:
        return {}
    nearest = _nearest(task.dataset, task.setting, task.seed, data)
    codes = np.concatenate([outcome.rounds[-1].query_codes[i] for i in own])[: len(nearest)]
    values = np.concatenate([outcome.projections[i] for i in own])[: len(nearest)]
    base = outcome.base_codes()
    return {
        "neighbours": {
            "n": len(nearest),
            "hamming": neighbour_recall(nearest, base, codes=codes),
            "projections": neighbour_recall(nearest, base, projections=values),
        }
    }


@lru_cache(maxsize=1)
def _nearest(dataset: str, setting: str, seed: int, data: Path | None) -> Rows:
    """Return the positions of the nearest items by float cosine, for queries of the last round."""
    loaded = load_dataset(dataset, data)
    stream = deal(Task("stream", dataset, setting, "float-cosine", None, seed), loaded)
    ranker = FloatCosine()
    for rows in stream.train:
        ranker.partial_fit(stream.seen.take(rows), stream.seen.labels(rows))
    asked = stream.queries[-1][:_MOST_NEIGHBOUR_QUERIES]
    scores = ranker.scores(stream.seen.take(asked))
    return np.argsort(-scores, axis=1, kind="stable")[:, :NEIGHBOURS]


def learned_bytes(model: object) -> int:
    """Return the bytes of all arrays of a model, each buffer once, without codes.

    >>> import numpy as np
    >>> from types import SimpleNamespace
    >>> W = np.zeros((4, 8))
    >>> learned_bytes(SimpleNamespace(state={"W": W, "again": W[:2]}, codes_=np.zeros(99)))
    256
    """
    buffers: dict[int, int] = {}
    visited: set[int] = set()
    waiting: list[Any] = [model]
    while waiting:
        each = waiting.pop()
        if isinstance(each, np.ndarray):
            while isinstance(each.base, np.ndarray):
                each = each.base
            buffers[id(each)] = each.nbytes
        elif id(each) not in visited and not isinstance(each, (str, bytes, int, float, type)):
            visited.add(id(each))
            if isinstance(each, (list, tuple, set, frozenset)):
                waiting += each
                continue
            slots = {name for cls in type(each).__mro__ for name in getattr(cls, "__slots__", ())}
            held = {name: getattr(each, name, None) for name in slots - {*_NOT_LEARNED}}
            held |= each if isinstance(each, Mapping) else getattr(each, "__dict__", {})
            waiting += [value for name, value in held.items() if name not in _NOT_LEARNED]
    return sum(buffers.values())


def cells(row: Row) -> dict[str, float]:
    """Return the figures that two files are compared by: MAP at the end of the stream."""
    found = {
        f"{queries} {figure}": value_at(row, "rounds", -1, queries, figure)
        for queries in ("new", "all")
        for figure in ("expected", "stable", "asymmetric")
    }
    return {name: value for name, value in found.items() if value is not None}


def parts(results: Results, dataset: str, rows: Sequence[Row]) -> list[Part]:
    """Return the part of a report on these rows, scenarios last."""
    # scenarios in reports of earlier versions have means over seeds, and no numbers of rounds
    hard = [r for r in rows if scenarios.is_scenario(r["setting"]) or "seeds" in r]
    plain = [row for row in rows if row not in hard]
    found = overview.parts(results, dataset, plain) if plain else []
    return [*found, *scenarios.parts(results, dataset, hard)]
