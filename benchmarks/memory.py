"""How much memory a stream of NUS-WIDE's shape takes: 193,834 x (4,096 dense + 5,018 sparse).

The first setting: 19 rounds of 10,000 samples and one of 3,834, generated chunk by chunk, learned
by OASIS as published at 64 bits, 2,000 queries coded after each round. It runs in a process of its
own, so that the peak is its own. The bar is 4 GB.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from typing import Any

from benchmarks.timing import Row, resident_bytes, row
from oasis.datasets import load
from oasis.model import OASIS
from oasis.streams import rounds, runbook

N_BITS = 64
BAR_BYTES = 4e9


def run(n_rounds: int | None = None) -> list[Row]:
    """Return one row for each measurement; ``n_rounds`` for the first so many rounds only."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        times, memory, peak, n_samples = pool.apply(_stream, (n_rounds,))
    early, late = max(memory[1:4]), max(memory[-3:])
    return [
        row(
            f"peak of {len(times)} rounds, {n_samples:,} samples",
            sum(times),
            peak / BAR_BYTES,
            f"of the bar; {peak / 1e9:.2f} GB resident at most, bar 4 GB",
        ),
        row(
            "held after the last rounds",
            times[-1],
            late / early,
            f"of what is held after rounds 2 to 4; {late / 1e9:.2f} GB",
        ),
    ]


def _stream(n_rounds: int | None) -> tuple[list[float], list[int], int, int]:
    data = load("synthetic-nuswide", lazy=True)
    stream = rounds(data, runbook("nuswide-first"), 0)[:n_rounds]
    model = OASIS.paper(N_BITS, "orthogonal", random_state=0)
    queries: dict[str, Any] = data.take(stream[0].queries)
    times: list[float] = []
    memory: list[int] = []
    for each in stream:
        X = data.take(each.train)
        start = time.perf_counter()
        model.partial_fit(X, data.labels(each.train))
        model.encode(queries)
        times.append(time.perf_counter() - start)
        del X
        memory.append(resident_bytes())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return times, memory, peak, sum(len(each.train) for each in stream)
