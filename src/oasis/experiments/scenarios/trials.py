"""Trials: one method in one scenario, from the stream to its scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from oasis.arrays import Indicator
from oasis.baselines import Probe
from oasis.codes import Codes, pack
from oasis.datasets.dataset import (
    Dataset,
)
from oasis.errors import InputError
from oasis.experiments.run.definition import parse_variant
from oasis.experiments.scenarios.transformations import (
    N_SAMPLES,
    Scenario,
    ScenarioStream,
    deal,
)
from oasis.hashers.protocol import (
    OnlineHasher,
)
from oasis.metrics import (
    asymmetric_average_precision,
    average_precision,
    average_precision_from_scores,
    chance_map,
)

Projections = npt.NDArray[np.float32]
Progress = Callable[[int, int], None]
"""Called within a trial with the number of steps done and of all steps."""


@runtime_checkable
class _AnswersNames(Protocol):
    def project_words(self, names: Sequence[str]) -> Projections: ...


@dataclass(frozen=True)
class Score:
    """MAP of some queries with expected ties: by codes, by projections, and of a random order."""

    n: int
    hamming: float
    asymmetric: float
    chance: float

    @classmethod
    def mean(cls, scores: Sequence[Score]) -> Score:
        """Return the score of all queries together.

        >>> Score.mean([Score(1, 0.5, 0.5, 0.25), Score(3, 1.0, 0.5, 0.25)]).hamming
        0.875
        """
        n = [each.n for each in scores]
        values = [[each.hamming, each.asymmetric, each.chance] for each in scores]
        hamming, asymmetric, chance = np.average(values, axis=0, weights=n).tolist()
        return cls(sum(n), hamming, asymmetric, chance)


@dataclass(frozen=True)
class Trial:
    """One method in one scenario on one data set with one seed, and its scores.

    Attributes
    ----------
    scenario, dataset, method : str
        The method with its parameters, as in ``oasis-paper+alpha=1``.
    n_bits, seed : int
    rounds : tuple of Score
        The queries of each round that has some, evaluated at the end of the stream. If queries are
        class names, one score over all names.
    joint : tuple of Score
        The same queries after all data in one round; empty if the scenario does not compare them.
    probe : float or None
        If queries are class names: MAP of a regression that was trained with those classes and
        ranks items by their features.
    """

    scenario: str
    dataset: str
    method: str
    n_bits: int
    seed: int
    rounds: tuple[Score, ...]
    joint: tuple[Score, ...] = ()
    probe: float | None = None

    @property
    def last(self) -> Score:
        """The queries of the last round that has some."""
        return self.rounds[-1]

    @property
    def all(self) -> Score:
        """The queries of all rounds together."""
        return Score.mean(self.rounds)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "last": asdict(self.last), "all": asdict(self.all)}


def applies(scenario: Scenario, method: str) -> bool:
    """Return whether a method supports a scenario: not every method answers class names.

    >>> from oasis.experiments.scenarios.transformations import scenario_named
    >>> applies(scenario_named("unseen-words"), "lemon")
    False
    """
    entry, _ = parse_variant(method)
    if entry.kind != "online":
        raise InputError(
            f"method {method!r} cannot take part in scenarios; expected one whose codes stand for "
            "ever, such as oasis, oasis-paper, lemon or fomh"
        )
    return not scenario.held_out or entry.answers_names


def carry_out(
    dataset: Dataset,
    scenario: Scenario,
    method: str,
    n_bits: int = 64,
    seed: int = 0,
    n_samples: int = N_SAMPLES,
    progress: Progress | None = None,
) -> Trial:
    """Stream a scenario through a method and measure its codes at the end.

    Examples
    --------
    >>> from oasis.datasets import load
    >>> from oasis.experiments.scenarios.transformations import scenario_named
    >>> data = load("synthetic-coco79", n_samples=300)
    >>> trial = carry_out(data, scenario_named("wrong-labels"), "random-projection", n_bits=16)
    >>> trial.all.hamming > trial.all.chance
    True
    """
    tell = progress or (lambda done, of: None)
    if not applies(scenario, method):
        raise InputError(f"method {method!r} does not answer names; {scenario.name!r} needs it")
    stream = deal(dataset, scenario, seed, n_samples)
    what = scenario.name, dataset.name, method, n_bits, seed
    # steps for progress: each round, each set of queries, one round with all data, and the rest
    n_steps = len(stream.train) + 1 + (2 if scenario.joint else 0)
    model, base = _learned(stream, method, n_bits, seed, lambda done: tell(done, n_steps))
    if scenario.held_out:
        columns = [stream.seen.classes.index(label) for label in stream.held_out]
        labels = stream.truth[np.concatenate(stream.train)][:, columns]
        score = _score(_words(model, stream.held_out), base, np.eye(len(columns)), labels)
        return Trial(*what, (score,), probe=_probed(stream, columns))
    scores = _scores(model, base, stream)
    if not scenario.joint:
        return Trial(*what, scores)
    tell(n_steps - 2, n_steps)
    joined = stream.joined()
    model, base = _learned(joined, method, n_bits, seed)
    tell(n_steps - 1, n_steps)
    return Trial(*what, scores, _scores(model, base, joined))


def _learned(
    stream: ScenarioStream,
    method: str,
    n_bits: int,
    seed: int,
    progress: Callable[[int], None] | None = None,
) -> tuple[OnlineHasher, Codes]:
    entry, parameters = parse_variant(method)
    model = entry.model(n_bits, seed, stream.seen, dict(parameters))
    if not isinstance(model, OnlineHasher):
        raise InputError(f"method {method!r} has no codes")
    base = []
    for number, rows in enumerate(stream.train, 1):
        model.partial_fit(stream.seen.take(rows), stream.seen.labels(rows))
        base.append(model.codes_.copy())
        if progress is not None:
            progress(number)
    return model, np.concatenate(base)


def _scores(model: OnlineHasher, base: Codes, stream: ScenarioStream) -> tuple[Score, ...]:
    labels = stream.truth[np.concatenate(stream.train)]
    return tuple(
        _score(model.project(stream.seen.take(rows)), base, stream.truth[rows], labels)
        for rows in stream.queries
        if len(rows)
    )


def _score(
    projections: Projections, base: Codes, query_labels: npt.NDArray[Any], base_labels: Indicator
) -> Score:
    hamming = average_precision(pack(projections), base, query_labels, base_labels)
    asymmetric = asymmetric_average_precision(projections, base, query_labels, base_labels)
    chance = chance_map(query_labels, base_labels)
    return Score(len(projections), float(hamming.mean()), float(asymmetric.mean()), chance)


def _words(model: OnlineHasher, names: Sequence[str]) -> Projections:
    if not isinstance(model, _AnswersNames):
        raise InputError(f"{type(model).__name__} does not answer names; expected project_words")
    projections: Projections = model.project_words(list(names))
    return projections


def _probed(stream: ScenarioStream, columns: list[int]) -> float:
    """Return MAP of items ranked by a regression that was trained on the other half of them."""
    rows = np.concatenate(stream.train)
    truth = Dataset("truth", stream.seen.X, stream.truth, stream.seen.classes)
    scores = np.zeros((len(columns), len(rows)))
    for half in (0, 1):
        taught, ranked = rows[half::2], rows[1 - half :: 2]
        probe = Probe().partial_fit(truth.take(taught), truth.labels(taught))
        predicted = probe.state_.label_map.project(truth.take(ranked))
        for number, column in enumerate(columns):
            label = truth.classes[column]
            if label in probe.classes_:
                at = probe.classes_.index(label)
                scores[number, 1 - half :: 2] = predicted[:, at]
    labels = stream.truth[rows][:, columns]
    return float(average_precision_from_scores(scores, np.eye(len(columns)), labels).mean())
