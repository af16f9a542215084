"""Bars of quality: a measurement with the least that it has to be, and a table of them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

Bars = Iterator[tuple[str, float | None, float | None, str]]
"""What is measured, value, least wanted, what that is or why there is no value."""


class Bar(NamedTuple):
    """One measurement: its stream and data, the value, the least wanted, and what that is."""

    stream: str
    data: str
    what: str
    value: float | None
    least: float | None = None
    note: str = ""

    @property
    def key(self) -> str:
        return f"{self.stream} | {self.data} | {self.what}"

    @property
    def reached(self) -> bool | None:
        """Return whether the value is what it has to be; None where nothing is wanted.

        >>> Bar("a stream", "icons", "MAP", 0.5, 0.4).reached
        True
        """
        if self.least is None:
            return None
        return self.value is not None and self.value >= self.least


def mean(found: Sequence[Bar]) -> Bar:
    """Return the mean of one bar over seeds; notes are those of the first seed."""
    values, leasts = (
        [getattr(each, field) for each in found if getattr(each, field) is not None]
        for field in ("value", "least")
    )
    return found[0]._replace(
        value=float(np.mean(values)) if values else None,
        least=float(np.mean(leasts)) if leasts else None,
    )


def table(found: Sequence[Bar], beside: Mapping[str, float | None] | None = None) -> Table:
    """Return the bars as a table, one row each."""
    earlier = () if beside is None else ("earlier",)
    out = Table("stream", "data", "measured", "value", *earlier, "at least", "", "of what")

    def figure(value: float | None) -> str:
        return "-" if value is None else f"{value:.3f}"

    for bar in found:
        before = [figure(beside.get(bar.key)) for beside in (beside,) if beside is not None]
        reached = {None: "", True: "reached", False: "missed"}[bar.reached]
        cells = [figure(bar.value), *before, figure(bar.least) if bar.least else "", reached]
        out.add_row(bar.stream, bar.data, bar.what, *cells, bar.note)
    return out


def options(suite: str, about: str | None, beside: bool = False) -> argparse.ArgumentParser:
    """Return the options that every suite of quality has."""
    parser = argparse.ArgumentParser(
        f"python -m benchmarks {suite}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = "names as in oasis.datasets.load, or words: pictures of coco79 with words as labels"
    parser.add_argument("--data", default="coco79,icons,wiki", help=names)
    parser.add_argument("--seeds", type=int, default=1, help="how many; figures are means")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    if beside:
        parser.add_argument("--beside", type=Path, help="show the values of an earlier --json too")
    return parser


def report(asked: argparse.Namespace, measure: Callable[[int], Iterable[Bar]]) -> int:
    """Measure with every seed that is asked for, and print the means."""
    found: dict[str, list[Bar]] = {}
    for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
        for bar in measure(seed):
            found.setdefault(bar.key, []).append(bar)
    means = [mean(each) for each in found.values()]
    if asked.json:
        asked.json.write_text(json.dumps({bar.key: bar.value for bar in means}, indent=1) + "\n")
    beside = json.loads(asked.beside.read_text()) if asked.beside else None
    Console(width=None if sys.stdout.isatty() else 160).print(table(means, beside))
    return 0
