"""What each part of the model is worth: every measure with a part taken out, less with all parts.

A part is taken out by a small function that puts something plainer in its place, in this benchmark
only (`benchmarks.parts`). The first row of a table has the whole model; differences are points of
a hundred. Less than half a point is noise; a part earns its place by a point or more on two data
sets.
`benchmarks.measures` says what is measured.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import samples
from benchmarks.bars import options
from benchmarks.measures import measured
from benchmarks.parts import PARTS

WHOLE = "the whole model"
Figures = dict[str, list[dict[str, float]]]
"""What was measured without each part, seed by seed."""


def figures(
    name: str, parts: Sequence[str], n_bits: int, seeds: range, n_rows: int = samples.N_ROWS
) -> Figures:
    """Measure a data set with all parts, and without each of some."""
    data = samples.load_data(name)
    found: Figures = {}
    for seed in seeds:
        s = samples.sample(data, seed, n_rows)
        for part in (WHOLE, *parts):
            with PARTS.get(part, nullcontext)():
                found.setdefault(part, []).append(measured(s, seed, n_bits))
    return found


def table(title: str, found: Figures) -> Table:
    """Return the figures of the whole model, then what each part taken out adds to them.

    >>> table("icons", {WHOLE: [{"A": 0.5}], "content": [{"A": 0.25}]}).row_count
    2
    """
    measures = list(found[WHOLE][0])
    out = Table("taken out", *measures, title=title, title_justify="left")
    whole = {key: np.array([each[key] for each in found[WHOLE]]) for key in measures}
    out.add_row(WHOLE, *(f"{values.mean():.3f}" for values in whole.values()))
    for part, rows in found.items():
        if part != WHOLE:
            less = (100 * np.mean([row[key] for row in rows] - whole[key]) for key in measures)
            out.add_row(part, *(f"{points:+.1f}" for points in less))
    return out


def main(arguments: Sequence[str]) -> int:
    parser = options("ablation", __doc__)
    parser.add_argument("--bits", type=int, default=128)
    parser.add_argument("--rows", type=int, default=samples.N_ROWS, help="of a larger data set")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    asked = parser.parse_args(arguments)
    parts = [part for part in asked.parts.split(",") if part]
    if unknown := set(parts) - set(PARTS):
        parser.error(f"unknown part {sorted(unknown)[0]!r}; known: {', '.join(PARTS)}")
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    console = Console(width=None if sys.stdout.isatty() else 160)
    kept = {}
    for name in asked.data.split(","):
        kept[name] = figures(name, parts, asked.bits, seeds, asked.rows)
        title = f"{Path(name).stem}, {asked.bits} bits, {len(seeds)} seeds from {seeds[0]}"
        console.print(table(title, kept[name]))
    if asked.json:
        asked.json.write_text(json.dumps(kept, indent=1) + "\n")
    return 0
