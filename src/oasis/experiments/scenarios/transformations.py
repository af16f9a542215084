"""Scenarios: hard streams by name, each a seeded transformation of any data set, given as data.

A scenario defines how samples are divided into rounds (a runbook) and how they are corrupted: it
withholds classes, subsamples them, hides or swaps labels, drops modalities. `deal` applies it. The
learner gets the corrupted data; it is evaluated with the true labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from oasis.arrays import Indicator, Matrix, Rows
from oasis.datasets.dataset import (
    Dataset,
)
from oasis.errors import InputError
from oasis.experiments.run.definition import SETTINGS, runbook_for
from oasis.streams import Runbook, class_order, rounds

N_SAMPLES = 8000
"""Default number of samples of a larger data set that are used."""

_LEAST_HELD_OUT = 10
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
    held_out : int
        Number of classes, at most a quarter of all, that are removed from the label sets and
        searched by name.
    joint : bool
        Whether to compare with all data in one round.
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
    held_out: int = 0
    joint: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.book, str) and self.book not in SETTINGS:
            raise InputError(
                f"scenario {self.name!r}: {self.book!r} is not a setting; known are "
                f"{', '.join(SETTINGS)}, or give a Runbook"
            )
        for field in ("returning", "wrong", "unlabelled", "missing"):
            if not 0 <= getattr(self, field) <= 1:
                raise InputError(
                    f"scenario {self.name!r}: {field} must be a share from 0 to 1, got "
                    f"{getattr(self, field)!r}"
                )
        if self.skew < 1 or self.held_out < 0:
            raise InputError(
                f"scenario {self.name!r}: skew must be at least 1 and held_out at least 0, got "
                f"{self.skew!r} and {self.held_out!r}"
            )


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
            "the second setting, against all data in one round",
            "second",
            joint=True,
        ),
        Scenario(
            "new-classes",
            "the third setting, against all data in one round",
            "third",
            joint=True,
        ),
        Scenario(
            "unseen-words",
            "ten classes are in no label set and are asked for by name",
            _chunks("five-rounds", n_rounds=5),
            held_out=10,
        ),
    )
}
"""The scenarios by name."""


def scenario_named(name: str) -> Scenario:
    """Return a scenario by name.

    >>> scenario_named("wrong-labels").wrong
    0.1
    """
    if name not in SCENARIOS:
        raise InputError(f"unknown scenario {name!r}; known are {', '.join(SCENARIOS)}")
    return SCENARIOS[name]


@dataclass(frozen=True, eq=False)
class ScenarioStream:
    """The data of a learner, round by round, and the true labels for the evaluation.

    Attributes
    ----------
    seen : Dataset
        Features and labels as the learner gets them.
    truth : (n, c) uint8
        The true labels.
    train : tuple of (n_t,) int64
        Rows to learn from in each round; no round is empty.
    queries : tuple of (q_t,) int64
        Rows of queries, by their round; queries that rounds share belong to the last.
    held_out : tuple of str
        Classes that no label set has.
    """

    seen: Dataset
    truth: Indicator
    train: tuple[Rows, ...]
    queries: tuple[Rows, ...]
    held_out: tuple[str, ...] = ()

    def joined(self) -> ScenarioStream:
        """Return the same stream with all data in one round; queries keep their rounds."""
        return replace(self, train=(np.concatenate(self.train),))


def deal(
    dataset: Dataset, scenario: Scenario, seed: int, n_samples: int = N_SAMPLES
) -> ScenarioStream:
    """Apply a scenario to a data set; deterministic given data, scenario, seed and size.

    Unlabelled samples of the data set are left out, because their true labels are not known.

    Parameters
    ----------
    n_samples : int
        Maximum number of samples, drawn at random.

    Examples
    --------
    >>> from oasis.datasets import load
    >>> data = load("synthetic-coco79", n_samples=300)
    >>> stream = deal(data, scenario_named("half-unlabelled"), seed=0)
    >>> len(stream.train), len(stream.queries[-1])
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
    held_out: tuple[str, ...] = ()
    if scenario.held_out:
        seen, held_out = _withhold(seen, scenario.held_out, learned, rng)
    return ScenarioStream(seen, truth, tuple(train), tuple(queries), held_out)


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


def _withhold(
    data: Dataset, n: int, learned: Rows, rng: np.random.Generator
) -> tuple[Dataset, tuple[str, ...]]:
    """Remove classes with enough samples for an evaluation from all label sets."""
    enough = np.flatnonzero(data.L[learned].sum(axis=0, dtype=np.int64) >= _LEAST_HELD_OUT)
    columns = np.sort(rng.permutation(enough)[: min(n, len(data.classes) // 4)])
    if not len(columns):
        raise InputError(
            f"{data.name} has no class to hold out: a quarter of its classes at most, each with "
            f"{_LEAST_HELD_OUT} samples at least"
        )
    L = data.L.copy()
    L[:, columns] = 0
    return replace(data, L=L), tuple(data.classes[column] for column in columns)
