"""From raw results to measures.

Expensive measures are computed least often. After every round: MAP with expected ties for all
queries so far, which needs no sort, and MAP with the older item first for the round's own queries,
as in the paper. Only after the last round: by projections, per class, by radius and at depth k.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array
from oasis.codes import Codes
from oasis.experiments.measure.queries import QueryScores
from oasis.experiments.measure.summaries import (
    ClassMeasures,
    Curve,
    LookupMeasures,
    QueryMeasures,
    RoundMeasures,
    Summary,
)
from oasis.experiments.run.results import (
    RawResult,
)
from oasis.metrics import (
    asymmetric_average_precision,
    average_precision,
    chance_map,
    code_statistics,
    forgetting,
    mean_average_precision,
    ndcg_at_k,
    per_class_average_precision,
    precision_recall_curve,
    tied_at_k,
)

DEPTH = 100
"""Depth k of MAP@k and nDCG@k, and the rank at which ties are counted."""


def measure(result: RawResult, raw_sha256: str) -> tuple[Summary, QueryScores]:
    """Return the measures of a run, and the average precision of each query after the last round.

    Parameters
    ----------
    result : raw result of the run
    raw_sha256 : checksum of its file, which links the summary to it
    """
    start = time.perf_counter()
    rounds: list[RoundMeasures] = []
    values: list[list[Array]] = []  # [round][query set], average precision of each query
    n_classes = 0
    for t, each in enumerate(result.rounds):
        n_classes += len(each.new_classes)
        measured = _RoundScores(result, t)
        values.append(measured.expected)
        own, arrived = [each.query_set], range(len(measured.expected))
        rounds.append(
            RoundMeasures(
                number=each.number,
                n_train=each.n_train,
                n_base=measured.n_base,
                n_classes=n_classes,
                train_seconds=each.train_seconds,
                encode_seconds=each.encode_seconds,
                n_encoded=sum(len(result.query_sets[i]) for i in arrived),
                new=measured.of(own),
                old=measured.of([i for i in arrived if i != each.query_set]),
                all=measured.of(arrived),
            )
        )
    history = _history(result, values)
    classes, curve, lookup = _last_round(result)
    summary = Summary(
        result.run,
        {**result.about, "runbook": _named(result.about["runbook"])},
        raw_sha256,
        time.perf_counter() - start,
        tuple(rounds),
        tuple(tuple(row[: t + 1]) for t, row in enumerate(history.tolist())),
        tuple(forgetting(history).tolist()) if len(history) > 1 else (),
        classes,
        curve,
        lookup,
    )
    return summary, measured.by_query(result)


class _RoundScores:
    """Average precisions after one round, by query set."""

    def __init__(self, result: RawResult, t: int) -> None:
        each = result.rounds[t]
        self.n_base = result.n_base(t)
        n_sets = len(each.ranked) or len(each.query_codes)
        sets = result.query_sets[:n_sets]
        base_labels = result.train_labels[: self.n_base]
        self._chance = [
            chance_map(queries.labels, base_labels) if len(queries) else 0.0 for queries in sets
        ]
        self.asymmetric: dict[int, Array] = {}
        own = each.query_set
        if each.ranked:
            self.expected = [ranked.expected for ranked in each.ranked]
            self.stable = {own: each.ranked[own].stable}
            return
        base = result.base_codes(t)
        labels = [queries.labels for queries in sets]
        self.expected = _by_set(each.query_codes, labels, base, base_labels)
        self.stable = {
            own: average_precision(
                each.query_codes[own], base, labels[own], base_labels, ties="stable"
            )
        }
        if t == len(result.rounds) - 1:
            self.asymmetric = {
                i: asymmetric_average_precision(projections, base, labels[i], base_labels)
                for i, projections in enumerate(result.last_projections)
            }

    def by_query(self, result: RawResult) -> QueryScores:
        """Return the average precision of every query so far."""
        sets = range(len(self.expected))
        asymmetric = [self.asymmetric[i] for i in sets if i in self.asymmetric]
        return QueryScores(
            np.concatenate([result.query_sets[i].rows for i in sets]),
            np.concatenate([np.full(len(self.expected[i]), i) for i in sets]),
            np.concatenate(self.expected),
            np.concatenate(asymmetric) if len(asymmetric) == len(sets) else np.empty(0),
        )

    def of(self, sets: Sequence[int]) -> QueryMeasures | None:
        """Return the measures of some query sets together; None if they have no query."""
        sizes = [len(self.expected[i]) for i in sets]
        if not sum(sizes):
            return None
        return QueryMeasures(
            n=sum(sizes),
            expected=float(np.concatenate([self.expected[i] for i in sets]).mean()),
            chance=float(np.average([self._chance[i] for i in sets], weights=sizes)),
            stable=_mean(self.stable, sets),
            asymmetric=_mean(self.asymmetric, sets),
        )


def _last_round(
    result: RawResult,
) -> tuple[tuple[ClassMeasures, ...], Curve | None, LookupMeasures | None]:
    """Measure classes, radii and first hits with the queries of all rounds; not for rankers."""
    last = len(result.rounds) - 1
    arrived = result.rounds[last].query_codes
    if not sum(len(codes) for codes in arrived):
        return (), None, None
    codes = np.concatenate(arrived)
    labels = np.concatenate([each.labels for each in result.query_sets[: len(arrived)]])
    base, base_labels = result.base_codes(last), result.train_labels
    precisions = per_class_average_precision(codes, base, labels, base_labels)
    n_base, n_queries = base_labels.sum(axis=0), labels.sum(axis=0)
    classes = tuple(
        ClassMeasures(name, int(n_base[j]), int(n_queries[j]), float(precisions[j]))
        for j, name in enumerate(result.class_names())
        if name and n_queries[j]
    )
    found = precision_recall_curve(codes, base, labels, base_labels)
    some = found.retrieved > 0
    curve = Curve(tuple(found.precision[some].tolist()), tuple(found.recall[some].tolist()))
    given = codes, base, labels, base_labels
    k = min(DEPTH, len(base))
    statistics = code_statistics(base)
    lookup = LookupMeasures(
        k,
        mean_average_precision(*given, topk=k),
        float(np.mean(ndcg_at_k(*given, k))),
        float(precision_recall_curve(*given, average="macro").precision[2]),
        tied_at_k(codes, base, k),
        statistics.n_distinct,
        statistics.n_constant,
    )
    return classes, curve, lookup


def _by_set(
    query_codes: Sequence[Codes],
    labels: Sequence[npt.NDArray[np.uint8]],
    base: Codes,
    base_labels: npt.NDArray[np.uint8],
) -> list[Array]:
    """Measure all sets in one pass, because the search for equal base items is then done once."""
    together = average_precision(
        np.concatenate(query_codes), base, np.concatenate(labels), base_labels
    )
    return np.split(together, np.cumsum([len(codes) for codes in query_codes])[:-1])


def _mean(values: dict[int, Array], sets: Sequence[int]) -> float | None:
    if any(i not in values for i in sets):
        return None
    return float(np.concatenate([values[i] for i in sets]).mean())


def _named(runbook: Mapping[str, Any]) -> dict[str, Any]:
    """Return what identifies a runbook; the raw result has all of it."""
    return {key: runbook[key] for key in ("name", "digest")}


def _history(result: RawResult, values: list[list[Array]]) -> Array:
    """Return MAP of the queries of round i after round t, for rounds with queries of their own.

    Empty if rounds share their queries.
    """
    sets = [each.query_set for each in result.rounds]
    if len(set(sets)) < len(sets):
        return np.zeros((0, 0))
    kept = [t for t, i in enumerate(sets) if len(result.query_sets[i])]
    history = np.full((len(kept), len(kept)), np.nan)
    for row, t in enumerate(kept):
        for column, earlier in enumerate(kept[: row + 1]):
            history[row, column] = values[t][sets[earlier]].mean()
    return history
