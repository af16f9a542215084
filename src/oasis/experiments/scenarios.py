"""Scenarios: hard streams by name, each a seeded transformation of any data set, given as data.

A scenario defines how samples are divided into rounds (a runbook) and how they are corrupted: it
holds classes back, subsamples them, hides or swaps labels, drops modalities. `deal` applies it. The
learner gets the corrupted data; it is evaluated with the true labels. As a setting of the kind
`stream` a scenario is named; ``joining-classes/joint`` is the same stream in one round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from statistics import fmean

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from oasis.arrays import Indicator, Matrix, Rows
from oasis.datasets.dataset import (
    Dataset,
)
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
class Scenario:
    """A hard stream, as data.

    Attributes
    ----------
    name, about : str
    book : Runbook, or the name of a setting
        How samples are divided into rounds; a setting means the data set's own runbook for it.
    n_samples : int or None
        Upper bound of the number of samples.
    returning : float
        Share of the classes, at least one, that come only in the first and in the last round.
    skew : float
        Ratio of the kept shares of the most frequent and the rarest class, in addition to the skew
        of the data; shares in between decrease geometrically. Queries are not subsampled.
    wrong : float
        Share of the samples that get the label set of another sample with no label in common.
    unlabelled : float
        Share of the samples without labels.
    missing : float
        Share of the samples, including queries, that lack one of their modalities.
    """

    name: str
    about: str
    book: Runbook | str
    n_samples: int | None = None
    returning: float = 0.0
    skew: float = 1.0
    wrong: float = 0.0
    unlabelled: float = 0.0
    missing: float = 0.0

    def digest(self, dataset: str) -> str:
        """Return a checksum of everything that determines the stream on a data set."""
        book = runbook_for(dataset, self.book) if isinstance(self.book, str) else self.book
        plain = {**asdict(self), "book": book.digest()}
        return checksum({k: v for k, v in plain.items() if k not in ("name", "about")})


def _chunks(name: str, *, n_rounds: int | None = None, chunk: int | None = None) -> Runbook:
    return Runbook(name, rule="chunks", query_share=0.1, n_rounds=n_rounds, chunk=chunk)


SCENARIOS: Mapping[str, Scenario] = {
    each.name: each
    for each in (
        Scenario(
            "single-class-rounds",
            "every round has one class, and every sample one label",
            Runbook("single-class", rule="groups", order="columns", per_round=1, query_share=0.1),
        ),
        Scenario(
            "returning-classes",
            "a tenth of the classes comes in the first and the tenth round, and not between",
            _chunks("ten-rounds", n_rounds=10),
            returning=0.1,
        ),
        Scenario(
            "tiny-rounds",
            "100 rounds of 50 samples",
            _chunks("tiny-rounds", chunk=50),
            n_samples=5555,
        ),
        Scenario(
            "skewed-classes",
            "frequent classes 30 times more frequent against rare ones than they are",
            _chunks("ten-rounds", n_rounds=10),
            skew=30.0,
        ),
        Scenario(
            "wrong-labels",
            "one sample in ten has labels that are all wrong",
            _chunks("ten-rounds", n_rounds=10),
            wrong=0.1,
        ),
        Scenario(
            "half-unlabelled",
            "every other sample has no labels",
            _chunks("ten-rounds", n_rounds=10),
            unlabelled=0.5,
        ),
        Scenario(
            "half-missing",
            "every other sample, queries too, lacks a modality",
            _chunks("ten-rounds", n_rounds=10),
            missing=0.5,
        ),
        Scenario(
            "joining-classes",
            "the second setting",
            "second",
        ),
        Scenario(
            "new-classes",
            "the third setting",
            "third",
        ),
    )
}
"""The scenarios by name."""


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


JOINT = ("joining-classes/joint", "new-classes/joint")
"""Settings with all data in one round, which two scenarios are compared with."""


def deal(
    dataset: Dataset, scenario: Scenario, seed: int, n_samples: int = N_SAMPLES
) -> tuple[Dataset, Indicator, tuple[Rows, ...], tuple[Rows, ...]]:
    """Apply a scenario to a data set; deterministic given data, scenario, seed and size.

    Unlabelled samples of the data set are left out, because their true labels are not known.

    Parameters
    ----------
    n_samples : int
        Maximum number of samples, drawn at random.

    Returns
    -------
    seen, truth : the data as the learner gets them, and the true labels, (n, c)
    train, queries : rows of each round; no round of ``train`` is empty; queries that rounds share
        belong to the last

    Examples
    --------
    >>> from oasis.datasets import load
    >>> data = load("synthetic-coco79", n_samples=300)
    >>> _, _, train, queries = deal(data, SCENARIOS["half-unlabelled"], seed=0)
    >>> len(train), len(queries[-1])
    (10, 30)
    """
    limit = min(n_samples, scenario.n_samples or n_samples)
    if limit < 1:
        raise InputError(f"n_samples must be a positive integer, got {n_samples}")
    labelled = np.flatnonzero(dataset.L.any(axis=1))
    drawn = np.random.default_rng([seed, 0]).permutation(labelled)[:limit]
    data = dataset.select(np.sort(drawn))
    book = scenario.book
    if isinstance(book, str):
        book = runbook_for(dataset.name, book)
    dealt = rounds(data, book, seed)
    train = [each.train for each in dealt]
    queries = [each.queries for each in dealt]
    if book.rule == "chunks":
        queries[:-1] = [each[:0] for each in queries[:-1]]
    rng = np.random.default_rng([seed, 1])
    if scenario.returning:
        train, queries = _hold_back(data, train, queries, scenario.returning, rng)
    if scenario.skew > 1:
        train = _thin(data, train, scenario.skew, rng)
    filled = [t for t, rows in enumerate(train) if len(rows)]
    if not filled or not any(len(queries[t]) for t in filled):
        raise InputError(
            f"{dataset.name} with {data.n_samples:,} samples is too small for the scenario "
            f"{scenario.name!r}: no round has both samples and queries"
        )
    train, queries = [train[t] for t in filled], [queries[t] for t in filled]
    learned = np.concatenate(train)
    seen, truth = data, data.L
    if scenario.wrong:
        seen = replace(seen, L=_swap(seen.L, learned, scenario.wrong, rng))
    if scenario.unlabelled:
        seen = replace(seen, L=_hide(seen.L, learned, scenario.unlabelled, rng))
    if scenario.missing:
        seen = replace(seen, X=_drop(seen.take(np.arange(seen.n_samples)), scenario.missing, rng))
    return seen, truth, tuple(train), tuple(queries)


def _hold_back(
    data: Dataset, train: list[Rows], queries: list[Rows], share: float, rng: np.random.Generator
) -> tuple[list[Rows], list[Rows]]:
    """Move some classes to the first and last round; their queries belong to the last round."""
    if len(train) < 2:
        raise InputError(f"{data.name} has {len(train)} round; a class returns in a second one")
    n_classes = len(data.classes)
    columns = rng.permutation(n_classes)[: max(1, round(share * n_classes))]
    returns = np.asarray(data.L[:, columns].any(axis=1))
    stays = [rows[~returns[rows]] for rows in train]
    moved = rng.permutation(np.concatenate([rows[returns[rows]] for rows in train]))
    half = len(moved) // 2
    stays[0] = rng.permutation(np.concatenate([stays[0], moved[:half]]))
    stays[-1] = rng.permutation(np.concatenate([stays[-1], moved[half:]]))
    asked = np.concatenate(queries)
    none = asked[:0]
    return stays, [asked[~returns[asked]], *([none] * (len(train) - 2)), asked[returns[asked]]]


def _thin(data: Dataset, train: list[Rows], skew: float, rng: np.random.Generator) -> list[Rows]:
    """Subsample the rows; a sample is kept with the share of its rarest class."""
    order = class_order(data, "frequency")
    kept = np.empty(len(order))
    kept[order] = skew ** -np.linspace(0, 1, len(order))
    share = np.where(data.L > 0, kept, 1.0).min(axis=1)
    keep = rng.random(data.n_samples) < share
    return [rows[keep[rows]] for rows in train]


def _swap(L: Indicator, rows: Rows, share: float, rng: np.random.Generator) -> Indicator:
    """Give some rows the label set of another row that has no label in common."""
    result = L.copy()
    waiting = rng.permutation(rows)[: round(share * len(rows))]
    for _ in range(_TRIES):
        donors = rng.choice(rows, len(waiting))
        fits = ~(L[waiting] & L[donors]).any(axis=1)
        result[waiting[fits]] = L[donors[fits]]
        waiting = waiting[~fits]
    if len(waiting):
        raise InputError(
            "labels cannot be made wrong: no sample was found that has no label in common with "
            f"sample {int(waiting[0])}; expected data with more classes"
        )
    return result


def _hide(L: Indicator, rows: Rows, share: float, rng: np.random.Generator) -> Indicator:
    result = L.copy()
    result[rng.permutation(rows)[: round(share * len(rows))]] = 0
    return result


def _drop(X: Mapping[str, Matrix], share: float, rng: np.random.Generator) -> dict[str, Matrix]:
    """Set one modality to zeros in some rows; with a single modality nothing can be dropped."""
    names = list(X)
    if len(names) == 1:
        return dict(X)
    n = int(X[names[0]].shape[0])
    lacking = rng.integers(len(names), size=n)
    lacking[rng.permutation(n)[round(share * n) :]] = -1
    return {name: _masked(X[name], lacking != number) for number, name in enumerate(names)}


def _masked(matrix: Matrix, keep: npt.NDArray[np.bool_]) -> Matrix:
    weight = keep.astype(matrix.dtype)
    if isinstance(matrix, sp.csr_array):
        masked = sp.csr_array(
            (
                matrix.data * np.repeat(weight, np.diff(matrix.indptr)),
                matrix.indices,
                matrix.indptr,
            ),
            shape=matrix.shape,
        )
        masked.eliminate_zeros()
        return masked
    return np.asarray(matrix * weight[:, None])


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
    lines = [
        Line(
            (name, title_of(variant)),
            [cell.last(*column) for column in (*columns, ("all", "chance"))],
            name,
        )
        for name in SCENARIOS
        for variant, cell in cells.at(name, n_bits).items()
    ]
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
