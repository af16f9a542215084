"""Execute one run: stream the rounds through a method and return the raw result."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from oasis.baselines import Probe
from oasis.codes import pack
from oasis.datasets.dataset import (
    Dataset,
)
from oasis.experiments.run.definition import Run, runbook_for
from oasis.experiments.run.machine import machine, versions
from oasis.experiments.run.methods import NOT_RECORDED, Method, Ranker, method_named
from oasis.experiments.run.results import (
    QuerySet,
    RankedQueries,
    RawResult,
    RoundResult,
)
from oasis.hashers.protocol import (
    OnlineHasher,
)
from oasis.metrics import Ties, average_precision_from_scores
from oasis.streams import Round, rounds

Progress = Callable[[int, int], None]
"""Called after each round with the number of rounds done and of all rounds."""

_SCORE_CELLS = 1 << 24
_NOT_LEARNED = ("codes_", "all_codes_", "all_codes", "__dict__", "__weakref__")


def describe(run: Run, dataset: Dataset) -> dict[str, Any]:
    """Return what a run's result depends on besides its definition, as plain values.

    Two results of the same run are comparable only if these agree.
    """
    book = runbook_for(run.dataset, run.setting)
    return {
        "dataset": dataset.describe(),
        "runbook": {**book.as_dict(), "digest": book.digest()},
        "method": _about_method(run, method_named(run.method), dataset),
    }


def carry_out(run: Run, dataset: Dataset, progress: Progress | None = None) -> RawResult:
    """Stream a data set through a method and return the raw result.

    After each round the queries of all rounds so far are encoded, separately for each round (FOMH's
    codes depend on their batch). Rounds that share their queries share one query set. A ranker has
    no codes: its average precisions are stored instead of the (queries, base) scores.

    A method that is measured only at some rounds learns all chunks since the previous one as a
    single chunk: the state of a batch method does not depend on how samples are divided into
    chunks.
    """
    method = method_named(run.method)
    parameters = dict(run.parameters)
    model = method.model(run.n_bits, run.seed, dataset, parameters)
    stream = rounds(dataset, runbook_for(run.dataset, run.setting), run.seed)
    query_sets, set_of_round = _query_sets(dataset, stream)
    results: list[RoundResult] = []
    projections: list[npt.NDArray[np.float32]] = []
    begin = 0
    for t in method.stops(len(stream), parameters):
        group = stream[begin : t + 1]
        begin = t + 1
        rows = np.concatenate([each.train for each in group])
        X, y = dataset.take(rows), dataset.labels(rows)
        start = time.perf_counter()
        model.partial_fit(X, y)
        result = RoundResult(
            stream[t].number,
            len(rows),
            _new_classes(dataset, group),
            set_of_round[t],
            time.perf_counter() - start,
            0.0,
        )
        del X, y
        arrived = query_sets[: max(set_of_round[: t + 1]) + 1]
        if isinstance(model, OnlineHasher):
            seconds, projections = _project(model, dataset, arrived)
            codes = cast(Any, model).all_codes_ if method.kind == "batch" else model.codes_
            result = replace(
                result,
                encode_seconds=seconds,
                codes=codes.copy(),
                query_codes=tuple(pack(each) for each in projections),
            )
        else:
            base_labels = np.concatenate([dataset.L[r.train] for r in stream[: t + 1]])
            result = replace(result, ranked=_rank(model, dataset, arrived, base_labels))
        results.append(result)
        if progress is not None:
            progress(t + 1, len(stream))
    train_rows = np.concatenate([each.train for each in stream])
    return RawResult(
        run,
        {
            **describe(run, dataset),
            "machine": machine(),
            "versions": versions(),
            "model_bytes": learned_bytes(model),
        },
        train_rows,
        dataset.L[train_rows],
        tuple(query_sets),
        tuple(results),
        tuple(projections),
    )


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
            if isinstance(each, Mapping):
                waiting += each.values()
            elif isinstance(each, (list, tuple, set, frozenset)):
                waiting += each
            else:
                names = [slot for cls in type(each).__mro__ for slot in _slots(cls)]
                held = {name: getattr(each, name, None) for name in names}
                held |= getattr(each, "__dict__", {})
                waiting += [value for name, value in held.items() if name not in _NOT_LEARNED]
    return sum(buffers.values())


def _slots(cls: type) -> tuple[str, ...]:
    slots = cls.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _about_method(run: Run, method: Method, dataset: Dataset) -> dict[str, Any]:
    about: dict[str, Any] = {
        "title": method.title,
        "kind": method.kind,
        "told_classes": method.told_classes,
        "label_vectors": method.label_vectors(dataset),
        "parameters": dict(run.parameters),
        "fixed": method.fixed_for(dataset.name),
        "defaults": {k: v for k, v in method.parameters.items() if k not in NOT_RECORDED},
    }
    if method.source_sha256:
        about["source_sha256"] = method.source_sha256
    if method.thrice and "rounds" not in about["parameters"]:
        about["rounds"] = "first, middle and last"
    return about


def _new_classes(dataset: Dataset, group: list[Round]) -> tuple[str, ...]:
    new = {name for each in group for name in each.new_classes}
    return tuple(name for name in dataset.classes if name in new)


def _query_sets(dataset: Dataset, stream: list[Round]) -> tuple[list[QuerySet], list[int]]:
    """Return the distinct query sets in order of arrival, and the set number of each round."""
    found: list[QuerySet] = []
    numbers: list[int] = []
    for each in stream:
        if not (found and np.array_equal(found[-1].rows, each.queries)):
            found.append(QuerySet(each.queries, dataset.L[each.queries]))
        numbers.append(len(found) - 1)
    return found, numbers


def _project(
    model: OnlineHasher, dataset: Dataset, query_sets: list[QuerySet]
) -> tuple[float, list[npt.NDArray[np.float32]]]:
    seconds = 0.0
    projections = []
    for queries in query_sets:
        X = dataset.take(queries.rows)
        start = time.perf_counter()
        projections.append(
            model.project(X) if len(queries) else np.empty((0, model.n_bits), np.float32)
        )
        seconds += time.perf_counter() - start
    return seconds, projections


def _rank(
    model: Ranker, dataset: Dataset, query_sets: list[QuerySet], base_labels: npt.NDArray[np.uint8]
) -> tuple[RankedQueries, ...]:
    groups = model.groups_ if isinstance(model, Probe) else None
    score = model.group_scores if isinstance(model, Probe) else model.scores
    size = max(1, _SCORE_CELLS // len(base_labels))
    ranked = []
    for queries in query_sets:
        expected, stable = np.empty(len(queries)), np.empty(len(queries))
        for start in range(0, len(queries), size):
            rows = slice(start, start + size)
            scores, labels = score(dataset.take(queries.rows[rows])), queries.labels[rows]
            for ties, values in (("expected", expected), ("stable", stable)):
                values[rows] = average_precision_from_scores(
                    scores, labels, base_labels, ties=cast(Ties, ties), base_groups=groups
                )
        ranked.append(RankedQueries(expected, stable))
    return tuple(ranked)
