"""Measures: from the codes of a stream to the figures of a row.

After every round: MAP with expected ties for the queries of all rounds so far, and with the older
item first for the round's own queries, as in the paper. After the last round: by projections, per
class, by radius, and the measures of `FIRST_HITS` and `BY_SCORES`. To add one, add a line there:
tables take their columns from them.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array, Indicator, Rows, Single
from oasis.codes import Codes, pack
from oasis.experiments.results import checksum, rounded
from oasis.experiments.task import Row
from oasis.metrics import (
    asymmetric_average_precision,
    asymmetric_hits,
    average_precision,
    average_precision_from_scores,
    chance_map,
    code_statistics,
    hits_from_scores,
    mean_average_precision,
    ndcg_at_k,
    precision_at_k,
    precision_within,
    success_at_k,
    tied_at_k,
)

DEPTH, DEEP = 100, 5000
"""Depths k of MAP, nDCG and precision, and of MAP where the base has as many items."""

_SCORE_CELLS = 1 << 24
_PRECISION = 65535  # of an average precision in `packed_values`


@dataclass(frozen=True, eq=False)
class QuerySet:
    """Queries that belong to one round, or to all of them: rows (q,) and true labels (q, c)."""

    rows: Rows
    labels: Indicator

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, eq=False)
class Ranked:
    """What a ranker gives for a query set: average precisions, and which first hits are similar."""

    expected: Array
    stable: Array
    hits: npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Round:
    """What a method gave after one round.

    Attributes
    ----------
    number, n_train, n_classes : of the round; samples learned since the last recorded one; classes
        so far
    own : numbers of the query sets that belong to the round
    train_seconds, encode_seconds : time to learn the chunk, and to project all queries so far
    codes : the chunk's codes; a batch method's codes of everything; None for a ranker
    query_codes : codes of query sets 0, 1, ... so far; empty for a ranker
    ranked : of a ranker instead
    """

    number: int
    n_train: int
    n_classes: int
    own: Sequence[int]
    train_seconds: float
    encode_seconds: float
    codes: Codes | None = None
    query_codes: tuple[Codes, ...] = ()
    ranked: tuple[Ranked, ...] = ()


@dataclass(frozen=True, eq=False)
class Outcome:
    """Everything that is measured of a stream: codes, queries and true labels.

    Attributes
    ----------
    train_labels : (n, c), in order of arrival
    sets : query sets in order of arrival
    rounds : in order
    projections : of each query set after the last round; empty if there are none
    is_batch : whether each round's codes are those of everything seen
    """

    train_labels: Indicator
    sets: tuple[QuerySet, ...]
    rounds: tuple[Round, ...]
    projections: tuple[Single, ...] = ()
    is_batch: bool = False

    def base_codes(self, t: int = -1) -> Codes:
        """Return the codes that are stored after the round at position t."""
        rounds = self.rounds[t:][:1] if self.is_batch else self.rounds[: len(self.rounds[:t]) + 1]
        return np.concatenate([each.codes for each in rounds if each.codes is not None])


@dataclass(frozen=True)
class Measure:
    """A column of the tables: its key in a row, its heading, and the function that computes it.

    The function returns None where the measure has no meaning.
    """

    key: str
    title: str
    of: Callable[..., Any]

    def value(self, *given: Any) -> float | None:
        """Return the measure as a plain number."""
        found = self.of(*given)
        return None if found is None else float(found)


def _depth(base: Codes) -> int:
    return min(DEPTH, len(base))


FIRST_HITS = (
    Measure(
        "map_at_k",
        "MAP@100",
        lambda q, b, y, z: mean_average_precision(q, b, y, z, topk=_depth(b)),
    ),
    Measure("ndcg_at_k", "nDCG@100", lambda q, b, y, z: ndcg_at_k(q, b, y, z, _depth(b)).mean()),
    Measure(
        "precision_at_k", "P@100", lambda q, b, y, z: precision_at_k(q, b, y, z, _depth(b)).mean()
    ),
    Measure("precision_at_10", "P@10", lambda q, b, y, z: precision_at_k(q, b, y, z, 10).mean()),
    Measure("success_at_10", "success@10", lambda q, b, y, z: success_at_k(q, b, y, z, 10).mean()),
    Measure(
        "map_at_5000",
        "MAP@5000",
        lambda q, b, y, z: (
            mean_average_precision(q, b, y, z, topk=DEEP) if len(b) >= DEEP else None
        ),
    ),
    Measure(
        "precision_at_2",
        "radius 2",
        lambda q, b, y, z: precision_within(q, b, y, z, 2).mean(),
    ),
    Measure("tied", "tied at 100", lambda q, b, y, z: tied_at_k(q, b, _depth(b))),
)
"""Measures by Hamming distance after the last round: of codes of queries and base, and labels."""

BY_SCORES = (
    Measure("precision_at_k", "P@100", lambda hits: hits.mean()),
    Measure("precision_at_10", "P@10", lambda hits: hits[:, :10].mean()),
    Measure("success_at_10", "success@10", lambda hits: hits[:, :10].any(axis=1).mean()),
)
"""Measures by projections, and of rankers, after the last round: of similar first hits."""


def measures(outcome: Outcome) -> Row:
    """Return the measures of a stream as plain values.

    ``rounds`` has n, expected, chance, stable and asymmetric for the round's own queries (``new``),
    those of older rounds (``old``) and both (``all``); ``history[t][i]`` is MAP of the queries of
    round i after round t; ``queries`` has the average precision of each query after the last one.
    """
    start = time.perf_counter()
    rounds: list[Row] = []
    values: list[list[Array]] = []  # [round][query set]
    n_base = 0
    for t, each in enumerate(outcome.rounds):
        n_base += each.n_train
        found = _precisions(outcome, t, n_base)
        values.append([found["expected"][i] for i in range(len(found["expected"]))])
        arrived = range(len(values[-1]))
        summary = partial(_summary, found, outcome.sets, outcome.train_labels[:n_base])
        rounds.append(
            {
                "number": each.number,
                "n_train": each.n_train,
                "n_base": n_base,
                "n_classes": each.n_classes,
                "train_seconds": each.train_seconds,
                "encode_seconds": each.encode_seconds,
                "n_encoded": sum(len(outcome.sets[i]) for i in arrived),
                "new": summary(each.own),
                "old": summary([i for i in arrived if i not in each.own]),
                "all": summary(arrived),
            }
        )
    row: Row = rounded(
        {
            "rounds": rounds,
            "history": _history(outcome, values),
            **_by_query(outcome, found),
            **_last_round(outcome),
        }
    )
    return {**row, "measure_seconds": round(time.perf_counter() - start, 3)}


def score_measures(
    blocks: Iterable[tuple[slice, Single]],
    labels: Indicator,
    base_labels: Indicator,
    groups: Any = None,
    deep: bool = True,
) -> Ranked:
    """Return what the scores of a query set give; ``deep`` includes the first hits."""
    n = len(labels)
    expected, stable = np.empty(n), np.empty(n)
    hits = np.zeros((n, min(DEPTH, len(base_labels)) if deep else 0), dtype=np.bool_)
    for rows, scores in blocks:
        given = scores, labels[rows], base_labels
        expected[rows] = average_precision_from_scores(*given, base_groups=groups)
        stable[rows] = average_precision_from_scores(*given, ties="stable", base_groups=groups)
        if deep:
            hits[rows] = hits_from_scores(*given, DEPTH, base_groups=groups)
    return Ranked(expected, stable, hits)


def score_slices(n_queries: int, n_base: int) -> Iterator[slice]:
    """Yield the queries whose scores are computed together, because all do not fit into memory."""
    size = max(1, _SCORE_CELLS // max(1, n_base))
    return (slice(start, start + size) for start in range(0, n_queries, size))


def by_codes_and_values(
    values: Single, base: Codes, labels: Indicator, base_labels: Indicator
) -> tuple[float, float]:
    """Return MAP of projections (q, n_bits), by Hamming distance and by projections."""
    by_codes = average_precision(pack(values), base, labels, base_labels)
    by_values = asymmetric_average_precision(values, base, labels, base_labels)
    return float(by_codes.mean()), float(by_values.mean())


def packed_values(values: Array) -> str:
    """Return numbers from 0 to 1 as text, rounded to 1/65535.

    >>> unpacked_values(packed_values(np.array([0.0, 1.0]))).tolist()
    [0.0, 1.0]
    """
    rounded_values = np.round(np.asarray(values) * _PRECISION).astype("<u2")
    return base64.b64encode(rounded_values.tobytes()).decode()


def unpacked_values(text: str) -> Array:
    """Return the numbers of `packed_values`."""
    return np.frombuffer(base64.b64decode(text), dtype="<u2") / _PRECISION


def _precisions(outcome: Outcome, t: int, n_base: int) -> dict[str, dict[int, Array]]:
    """Return the average precisions after a round, by measure and query set."""
    each = outcome.rounds[t]
    if each.ranked:
        stable = {i: each.ranked[i].stable for i in each.own}
        return {"expected": dict(enumerate(r.expected for r in each.ranked)), "stable": stable}
    base, base_labels = outcome.base_codes(t), outcome.train_labels[:n_base]
    sets = outcome.sets[: len(each.query_codes)]
    # all sets in one pass, because the search for equal base items is then done once
    codes, labels = np.concatenate(each.query_codes), np.concatenate([q.labels for q in sets])
    together = average_precision(codes, base, labels, base_labels)
    found = {
        "expected": dict(enumerate(np.split(together, np.cumsum([len(q) for q in sets])[:-1]))),
        "stable": {
            i: average_precision(
                each.query_codes[i], base, sets[i].labels, base_labels, ties="stable"
            )
            for i in each.own
        },
    }
    if t == len(outcome.rounds) - 1 and outcome.projections:
        found["asymmetric"] = {
            i: asymmetric_average_precision(values, base, sets[i].labels, base_labels)
            for i, values in enumerate(outcome.projections)
        }
    return found


def _summary(
    found: dict[str, dict[int, Array]],
    sets: Sequence[QuerySet],
    base_labels: Indicator,
    chosen: Sequence[int],
) -> Row | None:
    """Return the measures of some query sets together; None if they have no query."""
    chosen = [i for i in chosen if len(sets[i])]
    if not chosen:
        return None
    sizes = [len(sets[i]) for i in chosen]
    chance = [chance_map(sets[i].labels, base_labels) for i in chosen]
    row: Row = {"n": sum(sizes), "chance": float(np.average(chance, weights=sizes))}
    for name, values in found.items():
        if all(i in values for i in chosen):
            row[name] = float(np.concatenate([values[i] for i in chosen]).mean())
    return row


def _by_query(outcome: Outcome, found: dict[str, dict[int, Array]]) -> Row:
    """Return the average precision of every query, and the mean of each set by both distances."""
    sets = range(len(found["expected"]))
    rows = np.concatenate([outcome.sets[i].rows for i in sets])
    queries: Row = {"rows": checksum(rows.tolist()), "n": [len(outcome.sets[i]) for i in sets]}
    for name in found.keys() - {"stable"}:
        queries[name] = packed_values(np.concatenate([found[name][i] for i in sets]))
    row: Row = {"queries": queries}
    if len(sets) > 1 and "asymmetric" in found:
        row["sets"] = [
            [len(outcome.sets[i]), *(float(found[n][i].mean()) for n in ("expected", "asymmetric"))]
            for i in sets
            if len(outcome.sets[i])
        ]
    return row


def _history(outcome: Outcome, values: list[list[Array]]) -> list[list[float]] | None:
    """Return MAP of the queries of round i after round t; None if rounds share their queries."""
    own = [each.own[0] if len(each.own) == 1 else -1 for each in outcome.rounds]
    if -1 in own or len(set(own)) < len(own):
        return None
    kept = [t for t, i in enumerate(own) if len(outcome.sets[i])]
    return [[float(values[t][own[i]].mean()) for i in kept[: n + 1]] for n, t in enumerate(kept)]


def _last_round(outcome: Outcome) -> Row:
    """Measure first hits of the last round's and of all queries, and the codes."""
    last, labels = outcome.rounds[-1], outcome.train_labels
    found: Row = {"lookup": {}, "by_scores": {}}
    for name, arrived in (("new", last.own), ("all", range(len(last.ranked or last.query_codes)))):
        chosen = [i for i in arrived if len(outcome.sets[i])]
        if not chosen:
            continue
        hits: npt.NDArray[np.bool_] | None = None
        if last.ranked:
            hits = np.concatenate([last.ranked[i].hits for i in chosen])
        else:
            base = outcome.base_codes()
            truth = np.concatenate([outcome.sets[i].labels for i in chosen])
            given = np.concatenate([last.query_codes[i] for i in chosen]), base, truth, labels
            measured = {measure.key: measure.value(*given) for measure in FIRST_HITS}
            found["lookup"][name] = {"k": _depth(base), **measured}
            if outcome.projections:
                values = np.concatenate([outcome.projections[i] for i in chosen])
                hits = asymmetric_hits(values, base, truth, labels, DEPTH)
        if hits is not None:
            found["by_scores"][name] = {each.key: each.value(hits) for each in BY_SCORES}
    if not last.ranked:
        statistics = code_statistics(outcome.base_codes())
        found["codes"] = {
            "n_distinct": statistics.n_distinct,
            "n_constant": statistics.n_constant,
        }
    return {key: value for key, value in found.items() if value}
