"""Labels asked for by `Collection.next_to_label` against labels at random: label MAP.

A collection begins with items of a data set without any label. In ten rounds a hundredth of them
each is labelled by `Collection.update`: those that the collection asks for, or as many drawn at
random. Then queries that were kept aside are ranked against the codes that the model gives all
items. The interval is Student's, 95 %, of the differences by seed.

``python -m benchmarks next [--seeds N] [--rows N] [data set ...]``
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import stats

from benchmarks import samples
from oasis import Collection

DATA = ("coco79", "icons", "wiki")
ROUNDS = 10
MEASURED = (2, 5, 10)
"""Rounds, each of a hundredth of the items, after which label MAP is measured."""


def maps(s: samples.Sample, seed: int, asks: bool) -> list[float]:
    """Return label MAP after the rounds of `MEASURED`; ``asks`` for the collection's choice."""
    data, rng = s.data, np.random.default_rng([seed, 40])
    X, y = data.take(s.rows), data.labels(s.rows)
    asked, n = data.take(s.queries), len(s.rows) // 100
    rest = rng.permutation(len(s.rows)).tolist()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        model = samples.search_model(seed)
        with Collection.open(f"{folder}/c", model=model, keep_features=True) as c:
            c.ingest(X, None, range(len(s.rows)))
            for done in range(1, ROUNDS + 1):
                if asks:
                    ids = [each.id for each in c.next_to_label(n)]
                else:
                    ids, rest = rest[:n], rest[n:]
                c.update(ids, labels=[y[int(each)] for each in ids])
                if done in MEASURED:
                    learned = c.model
                    codes = learned.encode(X)
                    relevance = s.relevance(s.rows)
                    found.append(samples.label_map(learned.project(asked), codes, relevance))
    return found


def main(arguments: Sequence[str]) -> int:
    """Measure, and print a table; always 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks next", description=__doc__)
    parser.add_argument("data", nargs="*", default=DATA)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=2000)
    told = parser.parse_args(arguments)
    table = Table("data set", "labelled", "at random", "asked for", "difference", "95 % interval")
    for name in told.data:
        data = samples.load_data(name)
        found = np.array(
            [
                [
                    maps(samples.sample(data, seed, told.rows, 300), seed, asks)
                    for asks in (False, True)
                ]
                for seed in range(told.seeds)
            ]
        )
        for at, share in enumerate(MEASURED):
            apart = found[:, 1, at] - found[:, 0, at]
            mean, half = apart.mean(), stats.sem(apart) * stats.t.ppf(0.975, len(apart) - 1)
            table.add_row(
                name,
                f"{share} %",
                *(f"{each:.3f}" for each in found[:, :, at].mean(axis=0)),
                f"{mean:+.3f}",
                f"{mean - half:+.3f} to {mean + half:+.3f}",
            )
    Console().print(table)
    return 0
