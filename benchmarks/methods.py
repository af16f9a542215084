"""Every method of the paper's Table 2, and the later ones, side by side at MIRFlickr's shapes.

Rounds of 2,000 samples, 16 bits, as in the paper; features are generated. What an online method
takes does not depend on the round, so that its second round is timed, several times in turns with
the others, and the best time counts. Batch methods train on everything seen: one time a round. The
bar: OASIS takes at most 1.5 times as long as FOMH.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from benchmarks.timing import Row, best_of, row, seconds
from oasis.datasets import load
from oasis.datasets.dataset import (
    Dataset,
)
from oasis.experiments.methods import METHODS
from oasis.experiments.overview import published_seconds

N_SAMPLES, N_BITS = 2_000, 16
QUICK = ("fomh", "oasis-paper", "oasis", "lemon", "iw-omh")
SLOW = ("thor",)
BATCH = ("omh-dq", "sapmh")
_REPEATS, _BATCH_ROUNDS = 4, 3

Chunk = tuple[dict[str, Any], list[Any]]


def run() -> list[Row]:
    """Return one row for each method."""
    dataset = load("synthetic-mirflickr", n_samples=N_SAMPLES * _BATCH_ROUNDS)
    chunks = [_chunk(dataset, t) for t in range(_BATCH_ROUNDS)]
    best = _online(dataset, QUICK, chunks, _REPEATS) | _online(dataset, SLOW, chunks, 1)
    rows = [
        row(
            f"{METHODS[name].title}, a round",
            taken,
            taken / best["fomh"],
            _note(name, "of FOMH" + (", bar 1.5" if name.startswith("oasis") else "")),
        )
        for name, taken in best.items()
    ]
    for name in BATCH:
        model: Any = METHODS[name].model(N_BITS, 0, dataset, {})
        for t, chunk in enumerate(chunks):
            taken = seconds(lambda model=model, chunk=chunk: model.partial_fit(*chunk))  # type: ignore[misc]
            seen = f"of FOMH; trained on {(t + 1) * N_SAMPLES:,}"
            title = f"{METHODS[name].title}, round {t + 1}"
            rows.append(row(title, taken, taken / best["fomh"], _note(name, seen, t)))
    return rows


def _online(
    dataset: Dataset, names: tuple[str, ...], chunks: list[Chunk], repeats: int
) -> dict[str, float]:
    models: dict[str, Any] = {
        name: METHODS[name].model(N_BITS, 0, dataset, {}).partial_fit(*chunks[0]) for name in names
    }

    def way(model: Any) -> Callable[[], Any]:
        # a copy learns, and leaves the model as it was
        return lambda: copy.copy(model).partial_fit(*chunks[1])

    return best_of(repeats, {name: way(model) for name, model in models.items()})


def _chunk(dataset: Dataset, t: int) -> Chunk:
    rows = np.arange(t * N_SAMPLES, (t + 1) * N_SAMPLES)
    return dict(dataset.take(rows)), list(dataset.labels(rows))


def _note(name: str, text: str, t: int | None = None) -> str:
    papers, fomh = published_seconds(name), published_seconds("fomh")
    if not papers:
        return text
    ours = median(papers) if t is None else papers[t]
    return f"{text}; paper {ours:.2f} s, {ours / median(fomh):.1f} times FOMH"
