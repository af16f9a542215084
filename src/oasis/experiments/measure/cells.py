"""Summaries by cell: one data set, setting, method and code length, over all seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from oasis.errors import InputError
from oasis.experiments.measure.paper import published_map
from oasis.experiments.measure.summaries import Summary
from oasis.experiments.run.definition import SETTINGS, Run
from oasis.experiments.run.methods import Method, place_of, recorded_method, title_of_method

CHANCE_MARGIN = 1.1
"""A method is marked if its MAP is below this multiple of chance."""

_PREFERRED_BITS = 64
_LEAST_SWEEP = 3


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds; ``spread`` is the standard deviation, None for a single seed.

    >>> str(Estimate.of([0.5, 0.52])), str(Estimate.of([0.5]))
    ('0.510 ± 0.014', '0.500')
    """

    mean: float
    spread: float | None
    n_seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        n, mean = len(values), math.fsum(values) / len(values)
        if n < 2:
            return cls(mean, None, n)
        return cls(mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1)), n)

    def __str__(self) -> str:
        spread = "" if self.spread is None else f" ± {self.spread:.3f}"
        return f"{self.mean:.3f}{spread}"


@dataclass(frozen=True)
class Cell:
    """All seeds of one data set, setting, method and code length."""

    summaries: tuple[Summary, ...]

    @property
    def method(self) -> Method:
        """The method as recorded in its first result; it need not be installed."""
        first = self.summaries[0]
        return recorded_method(first.run.method, first.about["method"])

    @property
    def n_bits(self) -> int | None:
        return self.summaries[0].run.n_bits

    @property
    def n_rounds(self) -> int:
        return len(self.summaries[0].rounds)

    def estimate(self, value: Callable[[Summary], float | None]) -> Estimate | None:
        """Return the mean of a figure over seeds; None if a seed does not have it."""
        values = [value(summary) for summary in self.summaries]
        known = [each for each in values if each is not None]
        return Estimate.of(known) if len(known) == len(values) else None

    def last(self, queries: str, figure: str) -> Estimate | None:
        """Return a figure of `QueryMeasures` after the last round."""
        return self.estimate(lambda summary: _figure(summary, -1, queries, figure))

    def by_round(self, queries: str, figure: str) -> list[Estimate | None]:
        """Return a figure of `QueryMeasures` after every round."""
        return [
            self.estimate(lambda summary, t=t: _figure(summary, t, queries, figure))  # type: ignore[misc]
            for t in range(self.n_rounds)
        ]

    def round_numbers(self) -> list[int]:
        return [each.number for each in self.summaries[0].rounds]

    def marks(self) -> list[str]:
        """Return defects of the codes: constant bits, or MAP within 10 % of chance."""
        found = []
        lookups = [each.lookup for each in self.summaries if each.lookup is not None]
        constant = max((each.n_constant for each in lookups), default=0)
        if constant:
            found.append(f"{constant} of {self.n_bits} bits are the same for all stored items")
        value, chance = self.last("all", "expected"), self.last("all", "chance")
        if value is not None and chance is not None and value.mean <= CHANCE_MARGIN * chance.mean:
            found.append(f"MAP {value.mean:.3f} is within 10 % of chance, {chance.mean:.3f}")
        return found

    def shares_queries(self) -> bool:
        """Return whether all rounds have the same queries."""
        last = self.summaries[0].last
        return last.old is None and last.new is not None

    def published(self) -> float | None:
        """Return the paper's figure, if every seed is the paper's cell."""
        found = {published_map(summary) for summary in self.summaries}
        return found.pop() if len(found) == 1 else None


def _figure(summary: Summary, t: int, queries: str, figure: str) -> float | None:
    measures = summary.rounds[t].of(queries)
    value: float | None = None if measures is None else getattr(measures, figure)
    return value


Key: TypeAlias = tuple[str, str, str, int | None]
"""Data set, setting, method with its parameters, code length."""


@dataclass(frozen=True)
class Sweep:
    """One parameter of a method at several values, with the others fixed."""

    dataset: str
    setting: str
    method: str
    parameter: str
    n_bits: int | None
    cells: dict[float, Cell]

    @property
    def default(self) -> float:
        """The default value of the parameter."""
        cell = next(iter(self.cells.values()))
        return float(cell.method.parameters[self.parameter])


@dataclass(frozen=True)
class Results:
    """All summaries of a report, by cell, in the order in which reports list them.

    If a data set has at least three values of one parameter of a method, those cells are a sweep:
    they are in ``sweeps``, by value, and not in ``cells``.
    """

    cells: dict[Key, Cell]
    sweeps: tuple[Sweep, ...] = ()

    @classmethod
    def of(cls, summaries: Sequence[Summary]) -> Results:
        """Group summaries; seeds of one cell must come from the same data and rounds."""
        groups: dict[Key, list[Summary]] = {}
        for summary in summaries:
            run = summary.run
            dataset, setting, *_ = run.key.parts
            groups.setdefault((dataset, setting, shown_variant(run), run.n_bits), []).append(
                summary
            )
        for key, group in groups.items():
            group.sort(key=lambda summary: summary.run.seed)
            kinds = {
                (repr(each.about["dataset"]), each.about["runbook"]["digest"]) for each in group
            }
            if len(kinds) > 1:
                raise InputError(
                    f"the seeds of {'/'.join(map(str, key))} come from different data or rounds; "
                    "run them again on the same"
                )
        cells = {key: Cell(tuple(groups[key])) for key in sorted(groups, key=_order)}
        swept, sweeps = _sweeps(cells)
        return cls({key: cell for key, cell in cells.items() if key not in swept}, sweeps)

    @property
    def datasets(self) -> list[str]:
        return list(dict.fromkeys(key[0] for key in self.cells))

    def settings(self, dataset: str) -> list[str]:
        return list(dict.fromkeys(key[1] for key in self.cells if key[0] == dataset))

    def variants(self, dataset: str, setting: str) -> list[str]:
        return list(dict.fromkeys(key[2] for key in self.cells if key[:2] == (dataset, setting)))

    def bits(self, dataset: str) -> list[int]:
        """Return the code lengths of a data set, sorted."""
        found = {key[3] for key in self.cells if key[0] == dataset and key[3] is not None}
        return sorted(each for each in found if each is not None)

    def shown_bits(self, dataset: str) -> int | None:
        """Return the code length of figures that show only one: 64, or else the longest."""
        bits = self.bits(dataset)
        return _PREFERRED_BITS if _PREFERRED_BITS in bits else max(bits, default=None)

    def at(self, dataset: str, setting: str, n_bits: int | None) -> dict[str, Cell]:
        """Return the cells of a setting at one code length, rankers included, by variant."""
        found = {
            variant: self.cell(dataset, setting, variant, n_bits)
            for variant in self.variants(dataset, setting)
        }
        return {variant: cell for variant, cell in found.items() if cell is not None}

    def has_rankers(self, dataset: str) -> bool:
        """Return whether there is a method without codes."""
        return any(key[0] == dataset and key[3] is None for key in self.cells)

    def cell(self, dataset: str, setting: str, variant: str, n_bits: int | None) -> Cell | None:
        """Return a cell; for a ranker the code length is ignored."""
        found = self.cells.get((dataset, setting, variant, n_bits))
        return found or self.cells.get((dataset, setting, variant, None))


def _sweeps(cells: dict[Key, Cell]) -> tuple[set[Key], tuple[Sweep, ...]]:
    """Return the keys that belong to sweeps, and the sweeps; default values are in both."""
    values: dict[tuple[str, str, str], set[float]] = {}
    single: dict[Key, tuple[str, float]] = {}
    for key, cell in cells.items():
        parameters = cell.summaries[0].run.parameters
        if len(parameters) == 1 and isinstance(parameters[0][1], (int, float)):
            name, value = parameters[0]
            single[key] = name, float(value)
            values.setdefault((key[0], cell.method.name, name), set()).add(float(value))
    swept: set[Key] = set()
    found: dict[tuple[str, str, str, str, int | None], dict[float, Cell]] = {}
    for key, (name, value) in single.items():
        method = cells[key].method
        if len(values[key[0], method.name, name]) < _LEAST_SWEEP:
            continue
        swept.add(key)
        place = (key[0], key[1], method.name, name, key[3])
        found.setdefault(place, {})[value] = cells[key]
        plain = cells.get((key[0], key[1], method.name, key[3]))
        if plain is not None:
            found[place].setdefault(float(method.parameters[name]), plain)
    return swept, tuple(
        Sweep(*place, _with_common_seeds(dict(sorted(by_value.items()))))
        for place, by_value in found.items()
    )


def _with_common_seeds(cells: dict[float, Cell]) -> dict[float, Cell]:
    """Return the cells with only the seeds that all have: seeds differ by more than values do.

    If there are no such seeds, the cells are returned unchanged.
    """
    common = set.intersection(*({s.run.seed for s in cell.summaries} for cell in cells.values()))
    if not common:
        return cells
    return {
        value: Cell(tuple(s for s in cell.summaries if s.run.seed in common))
        for value, cell in cells.items()
    }


def shown_variant(run: Run) -> str:
    """Return the row of a table that a run belongs to.

    Tuned parameters differ between settings; a tuned method is one row for all of them.

    >>> shown_variant(Run("coco79", "first", "thor", 64, 0, (("beta", 0.1), ("tuned", 24))))
    'thor+tuned=24'
    """
    tuned = dict(run.parameters).get("tuned")
    return run.variant if tuned is None else f"{run.method}+tuned={tuned}"


def title_of(variant: str) -> str:
    """Return the title of a method with its parameters.

    >>> title_of("oasis-paper+alpha=1"), title_of("mypackage.hashing:MyHasher")
    ('OASIS (paper), alpha=1', 'MyHasher')
    """
    name, *parameters = variant.split("+")
    shown = ["tuned" if each.startswith("tuned=") else each for each in parameters]
    return ", ".join([title_of_method(name), *shown])


def _order(key: Key) -> tuple[object, ...]:
    dataset, setting, variant, n_bits = key
    place = SETTINGS.index(setting) if setting in SETTINGS else len(SETTINGS)
    return dataset, place, setting, place_of(variant), variant, n_bits or 0
