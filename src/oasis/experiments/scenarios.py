"""Scenarios: hard streams by name, each a seeded transformation of any data set.

A scenario says how samples are divided into rounds, and a change of that stream: classes are held
back or subsampled, labels hidden or swapped, modalities dropped. The learner gets the changed data;
it is evaluated with the true labels. As a setting of the kind `stream` a scenario is named;
``joining-classes/joint`` is the same stream in one round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from statistics import fmean

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from oasis.arrays import Indicator, Matrix, Rows
from oasis.datasets.dataset import Dataset
from oasis.errors import InputError
from oasis.experiments.methods import title_of
from oasis.experiments.results import Results, checksum
from oasis.experiments.tables import Cell, Cells, Line, Part, Table
from oasis.experiments.task import Row, runbook_for
from oasis.streams import Runbook, class_order, rounds

N_SAMPLES = 8000
"""Default number of samples of a larger data set that are used."""

_TRIES = 100


@dataclass(frozen=True)
class Stream:
    """A data set as it arrives.

    Attributes
    ----------
    seen : what learners get; with a scenario it may be corrupted
    truth : (n, c) true labels, with which everything is measured
    train, queries : rows to learn from and to search with, round by round
    numbers : of the rounds
    """

    seen: Dataset
    truth: Indicator
    train: tuple[Rows, ...]
    queries: tuple[Rows, ...]
    numbers: tuple[int, ...]

    @classmethod
    def of(cls, data: Dataset, book: Runbook, seed: int) -> Stream:
        """Return a data set dealt by a runbook."""
        dealt = rounds(data, book, seed)
        train, queries = tuple(r.train for r in dealt), tuple(r.queries for r in dealt)
        return cls(data, data.L, train, queries, tuple(r.number for r in dealt))

    def joint(self) -> Stream:
        """Return the same stream with all its data in one round."""
        return replace(self, train=(np.concatenate(self.train),), numbers=(1,))


@dataclass(frozen=True)
class Scenario:
    """A hard stream.

    Attributes
    ----------
    about : one line for people
    book : how samples are divided into rounds; the name of a setting means the data set's own
    change : a function of the stream, an amount and a generator; None for a stream as dealt
    amount : a share of the samples or classes, or a ratio
    n_samples : upper bound of the number of samples
    """

    about: str
    book: Runbook | str
    change: Callable[[Stream, float, np.random.Generator], Stream] | None = None
    amount: float = 0.0
    n_samples: int | None = None

    def digest(self, dataset: str) -> str:
        """Return a checksum of everything that determines the stream on a data set."""
        name = "" if self.change is None else self.change.__name__
        return checksum([self.runbook(dataset).digest(), name, self.amount, self.n_samples])

    def runbook(self, dataset: str) -> Runbook:
        """Return the runbook for a data set."""
        return runbook_for(dataset, self.book) if isinstance(self.book, str) else self.book


def deal(dataset: Dataset, scenario: Scenario, seed: int, n_samples: int = N_SAMPLES) -> Stream:
    """Apply a scenario to a data set; deterministic given data, scenario, seed and size.

    Unlabelled samples of the data set are left out, because their true labels are not known.
    Queries that rounds share belong to the last round.

    Parameters
    ----------
    n_samples : int
        Maximum number of samples, drawn at random.

    Examples
    --------
    >>> from oasis.datasets import load
    >>> data = load("synthetic-coco79", n_samples=300)
    >>> stream = deal(data, SCENARIOS["half-unlabelled"], seed=0)
    >>> len(stream.train), len(stream.queries[-1])
    (10, 30)
    """
    limit = min(n_samples, scenario.n_samples or n_samples)
    if limit < 1:
        raise InputError(f"n_samples must be a positive integer, got {n_samples}")
    labelled = np.flatnonzero(dataset.L.any(axis=1))
    drawn = np.random.default_rng([seed, 0]).permutation(labelled)[:limit]
    data = dataset.select(np.sort(drawn))
    book = scenario.runbook(dataset.name)
    stream = Stream.of(data, book, seed)
    if book.rule == "chunks":
        none = tuple(each[:0] for each in stream.queries[:-1])
        stream = replace(stream, queries=(*none, stream.queries[-1]))
    if scenario.change is not None:
        stream = scenario.change(stream, scenario.amount, np.random.default_rng([seed, 1]))
    filled = [t for t, rows in enumerate(stream.train) if len(rows)]
    if not any(len(stream.queries[t]) for t in filled):
        raise InputError(
            f"{dataset.name} with {data.n_samples:,} samples is too small for the scenario: no "
            "round has both samples and queries"
        )
    train, queries = (tuple(each[t] for t in filled) for each in (stream.train, stream.queries))
    return replace(stream, train=train, queries=queries, numbers=tuple(range(1, len(train) + 1)))


def returning_classes(stream: Stream, share: float, rng: np.random.Generator) -> Stream:
    """Move a share of the classes to the first and last round; their queries belong to the last."""
    data, train = stream.seen, list(stream.train)
    if len(train) < 2:
        raise InputError(f"{data.name} has {len(train)} round; a class returns in a second one")
    columns = rng.permutation(len(data.classes))[: max(1, round(share * len(data.classes)))]
    returns = np.asarray(data.L[:, columns].any(axis=1))
    moved = rng.permutation(np.concatenate([rows[returns[rows]] for rows in train]))
    train = [rows[~returns[rows]] for rows in train]
    half = len(moved) // 2
    train[0] = rng.permutation(np.concatenate([train[0], moved[:half]]))
    train[-1] = rng.permutation(np.concatenate([train[-1], moved[half:]]))
    asked = np.concatenate(stream.queries)
    none = (asked[:0],) * (len(train) - 2)
    queries = (asked[~returns[asked]], *none, asked[returns[asked]])
    return replace(stream, train=tuple(train), queries=queries)


def skewed_classes(stream: Stream, ratio: float, rng: np.random.Generator) -> Stream:
    """Subsample the rows; a sample is kept with the share of its rarest class.

    ``ratio`` is that of the shares of the most frequent and the rarest class; shares in between
    decrease geometrically. Queries are not subsampled.
    """
    data = stream.seen
    order = class_order(data, "frequency")
    kept = np.empty(len(order))
    kept[order] = ratio ** -np.linspace(0, 1, len(order))
    share = np.where(data.L > 0, kept, 1.0).min(axis=1)
    keep = rng.random(data.n_samples) < share
    return replace(stream, train=tuple(rows[keep[rows]] for rows in stream.train))


def wrong_labels(stream: Stream, share: float, rng: np.random.Generator) -> Stream:
    """Give a share of the samples the label set of another one with no label in common."""
    L, rows = stream.truth, np.concatenate(stream.train)
    found = L.copy()
    waiting = rng.permutation(rows)[: round(share * len(rows))]
    for _ in range(_TRIES):
        donors = rng.choice(rows, len(waiting))
        fits = ~(L[waiting] & L[donors]).any(axis=1)
        found[waiting[fits]] = L[donors[fits]]
        waiting = waiting[~fits]
    if len(waiting):
        raise InputError(
            "labels cannot be made wrong: no sample was found that has no label in common with "
            f"sample {int(waiting[0])}; expected data with more classes"
        )
    return replace(stream, seen=replace(stream.seen, L=found))


def unlabelled(stream: Stream, share: float, rng: np.random.Generator) -> Stream:
    """Hide the labels of a share of the samples."""
    L, rows = stream.truth.copy(), np.concatenate(stream.train)
    L[rng.permutation(rows)[: round(share * len(rows))]] = 0
    return replace(stream, seen=replace(stream.seen, L=L))


def missing_modality(stream: Stream, share: float, rng: np.random.Generator) -> Stream:
    """Set one modality to zeros in a share of the samples, queries too; not with a single one."""
    seen = stream.seen
    n, X = seen.n_samples, seen.take(np.arange(seen.n_samples))
    if len(X) == 1:
        return stream
    lacking = rng.integers(len(X), size=n)
    lacking[rng.permutation(n)[round(share * n) :]] = -1
    masked = {name: _masked(X[name], lacking != number) for number, name in enumerate(X)}
    return replace(stream, seen=replace(seen, X=masked))


def _masked(matrix: Matrix, keep: npt.NDArray[np.bool_]) -> Matrix:
    if not isinstance(matrix, sp.csr_array):
        return np.where(keep[:, None], matrix, 0)
    masked = matrix.copy()
    masked.data[~np.repeat(keep, np.diff(matrix.indptr))] = 0
    masked.eliminate_zeros()
    return masked


_TEN = Runbook("ten-rounds", rule="chunks", query_share=0.1, n_rounds=10)

SCENARIOS: Mapping[str, Scenario] = {
    "single-class-rounds": Scenario(
        "every round has one class, and every sample one label",
        Runbook("single-class", rule="groups", order="columns", per_round=1, query_share=0.1),
    ),
    "returning-classes": Scenario(
        "a tenth of the classes comes in the first and the tenth round, and not between",
        *(_TEN, returning_classes, 0.1),
    ),
    "tiny-rounds": Scenario(
        "100 rounds of 50 samples",
        Runbook("tiny-rounds", rule="chunks", query_share=0.1, chunk=50),
        n_samples=5555,
    ),
    "skewed-classes": Scenario(
        "frequent classes 30 times more frequent against rare ones than they are",
        *(_TEN, skewed_classes, 30.0),
    ),
    "wrong-labels": Scenario(
        "one sample in ten has labels that are all wrong", _TEN, wrong_labels, 0.1
    ),
    "half-unlabelled": Scenario("every other sample has no labels", _TEN, unlabelled, 0.5),
    "half-missing": Scenario(
        "every other sample, queries too, lacks a modality", _TEN, missing_modality, 0.5
    ),
    "joining-classes": Scenario("the second setting", "second"),
    "new-classes": Scenario("the third setting", "third"),
}
"""The scenarios by name."""

JOINT = ("joining-classes/joint", "new-classes/joint")
"""Settings with all data in one round, which two scenarios are compared with."""


def settings_of(names: Sequence[str]) -> list[str]:
    """Return the settings of scenarios by name, all by default, with those to compare with.

    >>> settings_of(["new-classes"])
    ['new-classes', 'new-classes/joint']
    """
    for name in names:
        if name not in SCENARIOS:
            raise InputError(f"unknown scenario {name!r}; known are {', '.join(SCENARIOS)}")
    chosen = list(names) or list(SCENARIOS)
    return [*chosen, *(each for each in JOINT if each.removesuffix("/joint") in chosen)]


def is_scenario(setting: str) -> bool:
    """Return whether a setting is a scenario, or one with all data in one round.

    >>> is_scenario("wrong-labels"), is_scenario("new-classes/joint"), is_scenario("first")
    (True, True, False)
    """
    return setting.removesuffix("/joint") in SCENARIOS


def parts(results: Results, dataset: str, rows: Sequence[Row]) -> list[Part]:
    """Return the part of a report on scenarios, one for each code length."""
    cells = Cells.of(results, dataset, rows)
    return [
        Part(
            f"Hard streams, {n_bits} bits",
            tables=(_map_table(cells, n_bits), _lost_table(cells, n_bits)),
            n_open=2,
        )
        for n_bits in cells.bits
    ]


def _map_table(cells: Cells, n_bits: int) -> Table:
    columns = [(q, f) for q in ("new", "all") for f in ("expected", "asymmetric")]
    lines = []
    for name in SCENARIOS:
        for variant, cell in cells.at(name, n_bits).items():
            chance = str(cell.last("all", "chance") or "").partition(" ")[0]  # a text: not compared
            values = [*(cell.last(*column) for column in columns), chance]
            lines.append(Line((name, title_of(variant)), values, name))
    return Table.of(
        "MAP at the end of the stream",
        "Expected ties; queries of the last round, and of all, by Hamming distance and by "
        "projections.",
        ("scenario", "method"),
        ("last", "by projections", "all", "by projections", "chance"),
        lines,
    )


def _lost_table(cells: Cells, n_bits: int) -> Table:
    lines = []
    for setting in JOINT:
        name = setting.removesuffix("/joint")
        for variant, cell in cells.at(name, n_bits).items():
            joint = cells.cell(setting, variant, n_bits)
            values = [each for way in (1, 2) for each in _lost(cell, joint, way)]
            lines.append(Line((name, title_of(variant)), values))
    return Table.of(
        "Lost against all data in one round",
        "MAP of the same queries after one round with all data, less MAP at the end of the stream: "
        "over all queries, and of the round that lost most in the mean over seeds; by Hamming "
        "distance and by projections.",
        ("scenario", "method"),
        ("all", "worst", "all, proj.", "worst, proj."),
        lines,
    )


def _lost(cell: Cell, joint: Cell | None, way: int) -> tuple[float | None, float | None]:
    """Return what all queries, and those of the worst round, lose; ``sets`` of rows have both."""
    kept = cell.rows[0].get("lost")
    if kept:  # figures of older reports
        return kept[way - 1]["all"], kept[way - 1]["worst"]
    others = {} if joint is None else {row["seed"]: row.get("sets") for row in joint.rows}
    lost: list[list[float]] = []
    overall = []
    for row in cell.rows:
        now, then = row.get("sets"), others.get(row["seed"])
        if not now or not then or len(now) != len(then):
            return None, None
        lost.append([b[way] - a[way] for a, b in zip(now, then, strict=True)])
        overall.append(float(np.average(lost[-1], weights=[n for n, *_ in now])))
    by_round = ([e for e in each if e is not None] for each in zip_longest(*lost))
    return fmean(overall), max(map(fmean, by_round))
