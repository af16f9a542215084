"""Tables of text; rows as cells: one setting, method and code length over its seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from scipy.special import stdtrit

from oasis.arrays import Array
from oasis.errors import InputError
from oasis.experiments.measure import unpacked_values
from oasis.experiments.methods import place_of
from oasis.experiments.results import Results
from oasis.experiments.task import SETTINGS, Row

LEVEL = 0.95
"""Level of all intervals."""

CHANCE_MARGIN = 1.1
"""A method is marked if its MAP is below this multiple of chance."""

_RESAMPLES = 1000
_CELLS = 1 << 22
_PREFERRED_BITS = 64
_LEAST_SWEEP = 3


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds; ``half`` is half of its 95 % interval, None for a single seed.

    >>> str(Estimate.of([0.5, 0.52])), str(Estimate.of([0.5]))
    ('0.510 ± 0.127', '0.500')
    """

    mean: float
    half: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        n, mean = len(values), math.fsum(values) / len(values)
        if n < 2:
            return cls(mean)
        deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
        return cls(mean, float(stdtrit(n - 1, (1 + LEVEL) / 2)) * deviation / math.sqrt(n))

    def __str__(self) -> str:
        return f"{self.mean:.3f}" + ("" if self.half is None else f" ± {self.half:.3f}")


@dataclass(frozen=True)
class Line:
    """A line of a table before it is text.

    Attributes
    ----------
    names : texts of the first columns
    values : figures: an `Estimate`, a number, a text, several of them (shown as ``a / b``), or None
    group : lines of one group compete for the best figure of each column; None: not compared
    """

    names: tuple[str, ...]
    values: Sequence[Any]
    group: str | None = None


@dataclass(frozen=True)
class Table:
    """Cells of text under a heading; ``n_names`` first columns are names, the rest are figures.

    In a cell, ``*`` at the start marks the best of its column, ``~`` the second best.
    """

    title: str
    note: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    n_names: int = 2

    @classmethod
    def of(
        cls,
        title: str,
        note: str,
        names: Sequence[str],
        figures: Sequence[str],
        lines: Iterable[Line],
        *,
        intervals: bool = False,
    ) -> Self:
        """Return a table of lines, without lines that have no figure, best and second marked.

        >>> lines = [Line((name,), (value,), "") for name, value in zip("abc", (0.1, 0.3, 0.2))]
        >>> Table.of("", "", ["name"], ["MAP"], lines).rows
        (('a', '0.100'), ('b', '*0.300'), ('c', '~0.200'))
        """
        kept = [(line, [_text(value, intervals) for value in line.values]) for line in lines]
        kept = [(line, texts) for line, texts in kept if any(texts)]
        for column in range(len(figures)):
            groups: dict[str, list[tuple[float, int]]] = {}
            for number, (line, _) in enumerate(kept):
                value = _number(line.values[column])
                if line.group is not None and value is not None:
                    groups.setdefault(line.group, []).append((value, number))
            for found in groups.values():
                for mark, (_, number) in zip("*~", sorted(found, reverse=True), strict=False):
                    kept[number][1][column] = mark + kept[number][1][column]
        rows = tuple((*line.names, *texts) for line, texts in kept)
        return cls(title, note, (*names, *figures), rows, len(names))


def _text(value: Any, intervals: bool) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, tuple):
        return " / ".join(filter(None, (_text(each, intervals) for each in value)))
    if isinstance(value, Estimate):
        return str(value) if intervals else f"{value.mean:.3f}"
    return f"{value:.3f}" if isinstance(value, float) else f"{value:,}"


def _number(value: Any) -> float | None:
    if isinstance(value, tuple):
        return _number(value[0]) if value else None
    if isinstance(value, Estimate):
        return value.mean
    return float(value) if isinstance(value, (int, float)) else None


@dataclass(frozen=True)
class Drawing:
    """A finished figure."""

    name: str
    title: str
    caption: str
    svg: str
    png: bytes


@dataclass(frozen=True)
class Part:
    """A part of a report on a data set: a heading, some lines, figures and tables.

    Tables after the first ``n_open`` are collapsed on the page.
    """

    name: str
    lines: tuple[str, ...] = ()
    drawings: tuple[Drawing, ...] = ()
    tables: tuple[Table, ...] = ()
    n_open: int = 1


Key: TypeAlias = tuple[str, str, int | None]
"""Setting, method with its parameters, code length."""


@dataclass(frozen=True)
class Cell:
    """All seeds of one setting, method and code length, as rows, with the facts of the first."""

    rows: tuple[Row, ...]
    facts: Mapping[str, Any]

    @property
    def method(self) -> Mapping[str, Any]:
        """What is recorded about the method."""
        found: Mapping[str, Any] = self.facts.get("method", {})
        return found

    @property
    def kind(self) -> str:
        """Kind of the method: online, batch or ranker."""
        return str(self.method.get("kind", "online"))

    @property
    def n_bits(self) -> int | None:
        found: int | None = self.rows[0]["n_bits"]
        return found

    @property
    def round_numbers(self) -> list[int]:
        return [each["number"] for each in self.rows[0]["rounds"]]

    def estimate(self, value: Callable[[Row], float | None]) -> Estimate | None:
        """Return the mean of a figure over seeds; None if a seed does not have it."""
        values = [value(row) for row in self.rows]
        known = [each for each in values if each is not None]
        return Estimate.of(known) if known and len(known) == len(values) else None

    def figure(self, *path: str | int) -> Estimate | None:
        """Return the figure at a place of the rows, such as ``("lookup", "new", "tied")``."""
        return self.estimate(lambda row: value_at(row, *path))

    def last(self, queries: str, figure: str, t: int = -1) -> Estimate | None:
        """Return a figure after the last round (or that at position t): of new, old or all."""
        return self.figure("rounds", t, queries, figure)

    def by_round(self, queries: str, figure: str) -> list[Estimate | None]:
        """Return a figure after every round."""
        return [self.last(queries, figure, t) for t in range(len(self.round_numbers))]

    def marks(self) -> list[str]:
        """Return defects of the codes: constant bits, or MAP within 10 % of chance."""
        found = []
        constant = max((row.get("codes", {}).get("n_constant", 0) for row in self.rows), default=0)
        if constant:
            found.append(f"{constant} of {self.n_bits} bits are the same for all stored items")
        value, chance = self.last("all", "expected"), self.last("all", "chance")
        if value is not None and chance is not None and value.mean <= CHANCE_MARGIN * chance.mean:
            found.append(f"MAP {value.mean:.3f} is within 10 % of chance, {chance.mean:.3f}")
        return found

    def shares_queries(self) -> bool:
        """Return whether all rounds have the same queries."""
        last = self.rows[0]["rounds"][-1]
        return not last.get("old") and bool(last.get("new"))


def value_at(row: Any, *path: str | int) -> Any:
    """Return the value at a place of nested dicts and lists; None if there is none.

    >>> value_at({"rounds": [{"new": None}, {"new": {"n": 3}}]}, "rounds", -1, "new", "n")
    3
    """
    for step in path:
        if not row:
            return None
        row = row[step] if isinstance(step, int) else row.get(step)
    return row


def mean_over_rounds(row: Row) -> float | None:
    """Return MAP of each round's own queries right after it, the mean over rounds."""
    values = [value_at(each, "new", "expected") for each in row["rounds"]]
    known = [each for each in values if each is not None]
    return sum(known) / len(known) if known else None


@dataclass(frozen=True)
class Cells:
    """The cells of one data set, in the order in which reports list them.

    At least three values of one parameter of a method are a sweep: those cells are in ``sweeps``,
    (setting, method, parameter, bits) -> value -> cell, and not in ``cells``.
    """

    dataset: str
    cells: dict[Key, Cell]
    sweeps: dict[tuple[str, str, str, int | None], dict[float, Cell]]

    @classmethod
    def of(cls, results: Results, dataset: str, rows: Sequence[Row]) -> Cells:
        """Group rows; seeds of one cell must come from the same data and rounds."""
        groups: dict[Key, list[Row]] = {}
        for row in rows:
            groups.setdefault((row["setting"], variant_of(row), row["n_bits"]), []).append(row)
        cells = {}
        for key in sorted(groups, key=_order):
            group = sorted(groups[key], key=lambda row: row["seed"] or 0)
            if len({(r["of"].get("data"), r["of"].get("runbook")) for r in group}) > 1:
                raise InputError(
                    f"the seeds of {dataset}/{'/'.join(map(str, key))} come from different data or "
                    "rounds; run them again on the same"
                )
            cells[key] = Cell(tuple(group), results.facts_of(group[0]))
        sweeps = _sweeps(cells)
        swept = {id(cell) for values in sweeps.values() for cell in values.values()}
        kept = {k: c for k, c in cells.items() if "+" not in k[1] or id(c) not in swept}
        return cls(dataset, kept, sweeps)

    @property
    def settings(self) -> list[str]:
        return list(dict.fromkeys(key[0] for key in self.cells))

    @property
    def variants(self) -> list[str]:
        return sorted({key[1] for key in self.cells}, key=lambda each: (place_of(each), each))

    @property
    def bits(self) -> list[int]:
        return sorted({key[2] for key in self.cells if key[2] is not None})

    @property
    def shown_bits(self) -> int | None:
        """The code length of tables that show only one: 64, or else the longest."""
        return _PREFERRED_BITS if _PREFERRED_BITS in self.bits else max(self.bits, default=None)

    def cell(self, setting: str, variant: str, n_bits: int | None) -> Cell | None:
        """Return a cell; a method without code length has one for all."""
        return self.cells.get((setting, variant, n_bits)) or self.cells.get(
            (setting, variant, None)
        )

    def at(self, setting: str, n_bits: int | None) -> dict[str, Cell]:
        """Return the cells of a setting at one code length by variant."""
        found = {variant: self.cell(setting, variant, n_bits) for variant in self.variants}
        return {variant: cell for variant, cell in found.items() if cell is not None}


def variant_of(row: Row) -> str:
    """Return the line of a table that a row belongs to.

    Tuned parameters differ between settings; a tuned method is one line for all of them.

    >>> variant_of({"method": "thor", "parameters": {"beta": 0.1, "tuned": 24}})
    'thor+tuned=24'
    """
    given = row["parameters"]
    shown = {"tuned": given["tuned"]} if "tuned" in given else given
    return "+".join([row["method"], *(f"{name}={shown[name]}" for name in sorted(shown))])


def _sweeps(cells: dict[Key, Cell]) -> dict[tuple[str, str, str, int | None], dict[float, Cell]]:
    """Return the sweeps; the default value is in each, with the seeds that all have."""
    found: dict[tuple[str, str, str, int | None], dict[float, Cell]] = {}
    for (setting, _, n_bits), cell in cells.items():
        for name, value in cell.rows[0]["parameters"].items():
            single = len(cell.rows[0]["parameters"]) == 1 and name != "tuned"
            if single and isinstance(value, (int, float)) and not isinstance(value, bool):
                place = setting, cell.rows[0]["method"], name, n_bits
                found.setdefault(place, {})[float(value)] = cell
    found = {key: values for key, values in found.items() if len(values) >= _LEAST_SWEEP}
    for (setting, method, name, n_bits), values in found.items():
        plain = cells.get((setting, method, n_bits))
        default = None if plain is None else plain.method.get("defaults", {}).get(name)
        if plain is not None and isinstance(default, (int, float)):
            seeds = set.intersection(*({r["seed"] for r in c.rows} for c in values.values()))
            common = tuple(row for row in plain.rows if row["seed"] in seeds)
            if common and float(default) not in values:
                values[float(default)] = Cell(common, plain.facts)
    return {key: dict(sorted(values.items())) for key, values in found.items()}


def _order(key: Key) -> tuple[object, ...]:
    setting, variant, n_bits = key
    place = SETTINGS.index(setting) if setting in SETTINGS else len(SETTINGS)
    return place, setting, place_of(variant), variant, n_bits or 0


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences of average precision, and its bootstrap interval.

    Attributes
    ----------
    mean, low, high : the difference and the bounds of its 95 % interval
    n_queries, n_seeds : number of pairs
    """

    mean: float
    low: float
    high: float
    n_queries: int
    n_seeds: int

    @property
    def verdict(self) -> str:
        """Whether the first method is better, worse, or the interval contains 0."""
        return "better" if self.low > 0 else "worse" if self.high < 0 else "undecided"


def paired_difference(
    ours: Cell, theirs: Cell, figure: str = "expected", *, last: bool = False
) -> Difference | None:
    """Compare two methods query by query, over the seeds that both have.

    Parameters
    ----------
    figure : "expected" (by Hamming distance) or "asymmetric" (by projections)
    last : the last round's queries only, as in the paper; otherwise those of all rounds

    Returns
    -------
    The difference ``ours - theirs``, or None if no seed has both figures for the same queries.

    Notes
    -----
    The mean over seeds of the means over queries. Bootstrap: seeds are drawn with replacement, and
    then the queries of each; it is seeded. Rows of older reports have no values by query.
    """
    others = {row["seed"]: row.get("queries", {}) for row in theirs.rows}
    pairs = []
    for row in ours.rows:
        a, b = row.get("queries", {}), others.get(row["seed"], {})
        if figure in a and figure in b and a["rows"] == b["rows"] and a["n"] == b["n"]:
            values = unpacked_values(a[figure]) - unpacked_values(b[figure])
            pairs.append(values[-a["n"][-1] :] if last and a["n"][-1] else values)
    if not pairs or not all(map(len, pairs)):
        return None
    rng = np.random.default_rng(0)
    means = np.stack([_resampled_means(values, rng) for values in pairs])  # (s, b)
    picked = rng.integers(len(pairs), size=means.shape)
    # a seed that is drawn twice gets two independent draws of its queries
    drawn = means[picked, rng.integers(_RESAMPLES, size=means.shape)].mean(axis=0)
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    mean = float(np.mean([values.mean() for values in pairs]))
    return Difference(mean, float(low), float(high), sum(map(len, pairs)), len(pairs))


def _resampled_means(values: Array, rng: np.random.Generator) -> Array:
    """Return the means of resamples of the values, (b,), in blocks of draws."""
    means = np.empty(_RESAMPLES)
    size = max(1, _CELLS // len(values))
    for start in range(0, _RESAMPLES, size):
        n = min(size, _RESAMPLES - start)
        means[start : start + n] = values[rng.integers(len(values), size=(n, len(values)))].mean(1)
    return means
