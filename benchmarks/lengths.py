"""MAP of codes by length: the code of labels, the code of a collection, and LEMON.

Settings of the paper on 8,000 rows at most of a data set; queries of all rounds at the end of the
stream, with both modalities. The bar of the code of labels is LEMON's MAP by Hamming distance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks import samples
from benchmarks.bars import Bar, options, report
from oasis import OASIS
from oasis.baselines import LEMON
from oasis.datasets import Dataset
from oasis.streams import rounds, runbook

SETTINGS = ("first", "second", "third")
SEARCH_BITS = 128
"""Bits from which on the code of a collection is measured."""


def mean_average_precisions(
    model: Any, data: Dataset, setting: str, seed: int
) -> tuple[float, float]:
    """Return MAP by Hamming distance and by projections after the stream of a setting."""
    drawn = np.random.default_rng([seed, 36]).permutation(data.n_samples)[: samples.N_ROWS]
    data = data.select(np.sort(drawn))
    dealt = [each for each in rounds(data, runbook(f"any-{setting}"), seed) if len(each.train)]
    codes = samples.learn(model, samples.chunks_of(data, [each.train for each in dealt]))
    # the first setting asks the same queries in every round
    asked = dealt[-1:] if setting == "first" else dealt
    queries = np.concatenate([each.queries for each in asked])
    X = data.take(queries)
    labels = data.L[queries], data.L[np.concatenate([each.train for each in dealt])]
    by_codes = samples.hamming_map(model.encode(X), codes, labels)
    return by_codes, samples.label_map(model.project(X), codes, labels)


def bars(
    data: Sequence[str], settings: Sequence[str], bits: Sequence[int], seed: int
) -> Iterator[Bar]:
    """Measure every method at every length, on each data set in each setting."""
    for name in data:
        loaded = samples.load_data(name)
        for setting in settings:
            for n_bits in bits:
                models: dict[str, Any] = {
                    "LEMON": LEMON(n_bits, random_state=seed),
                    "labels alone": OASIS(n_bits, content=0, owned=0, random_state=seed),
                }
                if n_bits >= SEARCH_BITS:
                    models["search code"] = samples.search_model(seed, n_bits)
                rival: float | None = None
                for title, model in models.items():
                    found = mean_average_precisions(model, loaded, setting, seed)
                    least = rival if title == "labels alone" else None
                    rival = found[0] if rival is None else rival
                    for way, value in zip(("Hamming", "projections"), found, strict=True):
                        note = "" if least is None else "LEMON"
                        what = f"{n_bits} bits, {way}, {title}"
                        yield Bar(setting, name, what, value, least, note)
                        least = None


def main(arguments: Sequence[str]) -> int:
    parser = options("lengths", __doc__, beside=True)
    parser.add_argument("--bits", default="16,32,64,128,256")
    parser.add_argument("--settings", default=",".join(SETTINGS))
    asked = parser.parse_args(arguments)
    bits = [int(each) for each in asked.bits.split(",")]
    settings = asked.settings.split(",")
    return report(asked, lambda seed: bars(asked.data.split(","), settings, bits, seed))
