"""The scoreboard of scenarios: trials, averaged over seeds, as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import fmean

import numpy as np

from oasis.experiments.report.table import Table
from oasis.experiments.scenarios.transformations import (
    SCENARIOS,
)
from oasis.experiments.scenarios.trials import Score, Trial


@dataclass(frozen=True)
class _Group:
    """The trials that differ only in their seeds."""

    trials: tuple[Trial, ...]

    def names(self) -> tuple[str, str]:
        return self.trials[0].scenario, self.trials[0].method

    def mean(self, figure: Callable[[Trial], float]) -> str:
        return f"{np.mean([figure(trial) for trial in self.trials]):.3f}"


def scoreboard(trials: Sequence[Trial]) -> list[Table]:
    """Return up to three tables for each data set and code length, means over seeds.

    MAP at the end of the stream, of the queries of its last round and of all rounds; the loss
    compared with all data in one round; and search by names of classes that no label set has.

    Examples
    --------
    >>> score = Score(10, 0.5, 0.6, 0.1)
    >>> table, = scoreboard([Trial("tiny-rounds", "toy", "oasis", 64, 0, (score,))])
    >>> table.title, table.rows
    ('toy, 64 bits', (('tiny-rounds', 'oasis', '*0.500', '*0.600', '*0.500', '*0.600', '0.100'),))
    """
    tables = []
    for dataset, n_bits in dict.fromkeys((each.dataset, each.n_bits) for each in trials):
        here = [each for each in trials if (each.dataset, each.n_bits) == (dataset, n_bits)]
        groups = [
            _Group(tuple(each for each in here if (each.scenario, each.method) == key))
            for key in dict.fromkeys((each.scenario, each.method) for each in here)
        ]
        order = list(SCENARIOS)
        groups.sort(key=lambda group: order.index(group.names()[0]))
        title = f"{dataset}, {n_bits} bits"
        by_words = [group for group in groups if group.trials[0].probe is not None]
        by_items = [group for group in groups if group not in by_words]
        both_ways = [group for group in groups if group.trials[0].joint]
        tables += [_map_table(title, by_items)] if by_items else []
        tables += [_lost_table(title, both_ways)] if both_ways else []
        tables += [_words_table(title, by_words)] if by_words else []
    return tables


def _map_table(title: str, groups: list[_Group]) -> Table:
    figures = [
        (
            group.mean(lambda trial: trial.last.hamming),
            group.mean(lambda trial: trial.last.asymmetric),
            group.mean(lambda trial: trial.all.hamming),
            group.mean(lambda trial: trial.all.asymmetric),
        )
        for group in groups
    ]
    rows = [
        (*group.names(), *cells, group.mean(lambda trial: trial.all.chance))
        for group, cells in zip(groups, _marked(groups, figures), strict=True)
    ]
    return Table(
        title,
        "MAP at the end of the stream, expected ties; queries of the last round, and of all.",
        ("scenario", "method", "last", "last, asym.", "all", "all, asym.", "chance"),
        tuple(rows),
    )


def _marked(groups: list[_Group], figures: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Mark the best of each column within a scenario."""
    marked = []
    for group, cells in zip(groups, figures, strict=True):
        peers = [
            other
            for each, other in zip(groups, figures, strict=True)
            if each.names()[0] == group.names()[0]
        ]
        best = [max(column) for column in zip(*peers, strict=True)]
        marked.append(
            tuple(
                f"*{cell}" if cell == top else cell for cell, top in zip(cells, best, strict=True)
            )
        )
    return marked


def _lost_table(title: str, groups: list[_Group]) -> Table:
    def lost(trial: Trial, kind: str) -> list[float]:
        pairs = zip(trial.joint, trial.rounds, strict=True)
        return [getattr(joint, kind) - getattr(now, kind) for joint, now in pairs]

    def worst(group: _Group, kind: str) -> str:
        by_round = zip_longest(*(lost(trial, kind) for trial in group.trials))
        means = (fmean(each for each in seeds if each is not None) for seeds in by_round)
        return f"{max(means):.3f}"

    def overall(trial: Trial, kind: str) -> float:
        return float(getattr(Score.mean(trial.joint), kind) - getattr(trial.all, kind))

    rows = [
        (
            *group.names(),
            group.mean(lambda trial: overall(trial, "hamming")),
            worst(group, "hamming"),
            group.mean(lambda trial: overall(trial, "asymmetric")),
            worst(group, "asymmetric"),
        )
        for group in groups
    ]
    return Table(
        f"{title}: lost against all data in one round",
        "MAP of the same queries after one round with all data, less MAP at the end of the stream: "
        "over all queries, and of the round that lost most in the mean over seeds.",
        ("scenario", "method", "all", "worst", "all, asym.", "worst, asym."),
        tuple(rows),
    )


def _words_table(title: str, groups: list[_Group]) -> Table:
    rows = [
        (
            *group.names(),
            group.mean(lambda trial: trial.all.hamming),
            group.mean(lambda trial: trial.all.asymmetric),
            group.mean(lambda trial: trial.all.chance),
            group.mean(lambda trial: trial.probe or 0.0),
        )
        for group in groups
    ]
    return Table(
        f"{title}: search by a word never seen",
        "MAP of items that truly have the class, which no label set has; the probe was taught it.",
        ("scenario", "method", "Hamming", "asymmetric", "chance", "probe"),
        tuple(rows),
    )
