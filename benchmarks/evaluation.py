"""How fast and in how much memory MAP is measured, against the plain way in the same run.

2,000 queries against 193,834 base codes of 64 bits and 21 labels, the size of NUS-WIDE. The plain
way takes, query by query, int64 distances, ``argsort(kind="stable")``, an integer product of the
labels and the running precision of the whole ranking. What is slow is timed on a part of the
queries and scaled up; every time is the best of several, taken in turns, in seconds of the
processor: both ways use one core, and the ratios hold on a busy machine.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.timing import Row, row
from oasis.codes import unpack
from oasis.metrics import asymmetric_average_precision, average_precision

N_QUERIES, N_BASE, N_BITS, N_CLASSES = 2_000, 193_834, 64, 21
_REPEATS = 3
_PLAIN_QUERIES, _STABLE_QUERIES, _ASYMMETRIC_QUERIES = 12, 400, 24


class _Workload(NamedTuple):
    query_codes: npt.NDArray[np.uint8]
    base_codes: npt.NDArray[np.uint8]
    query_labels: npt.NDArray[np.bool_]
    base_labels: npt.NDArray[np.bool_]

    def first(self, n_queries: int) -> _Workload:
        return self._replace(
            query_codes=self.query_codes[:n_queries], query_labels=self.query_labels[:n_queries]
        )


def run() -> list[Row]:
    """Return one row for each measurement: name, seconds for all queries, ratio, note.

    The ratio is the plain way's time divided by ours, so that higher is better.
    """
    rows: list[Row] = []
    for name, repeats in (("random codes", 1), ("one distinct code in 4", 4)):
        rows += _measure(name, _workload(repeats))
    return rows


def _workload(repeats: int) -> _Workload:
    """Draw codes and labels; pairs of code and label set come ``repeats`` times on average."""
    rng = np.random.default_rng(0)
    frequencies = np.geomspace(0.38, 0.025, N_CLASSES)  # two labels a sample, as in NUS-WIDE
    n_pairs = N_BASE // repeats
    codes = rng.integers(0, 256, (n_pairs, N_BITS // 8), dtype=np.uint8)
    labels = rng.random((n_pairs, N_CLASSES)) < frequencies
    picked = rng.integers(0, n_pairs, N_BASE) if repeats > 1 else np.arange(N_BASE)
    return _Workload(
        rng.integers(0, 256, (N_QUERIES, N_BITS // 8), dtype=np.uint8),
        codes[picked],
        rng.random((N_QUERIES, N_CLASSES)) < frequencies,
        labels[picked],
    )


def _measure(name: str, work: _Workload) -> list[Row]:
    projections = np.random.default_rng(1).standard_normal((N_QUERIES, N_BITS), dtype=np.float32)
    part = work.first(_ASYMMETRIC_QUERIES)
    integer_labels = work.base_labels.astype(np.int64)
    places = np.arange(1, N_BASE + 1)
    words = work.base_codes.view(np.uint64)[:, 0]
    signs = unpack(work.base_codes).astype(np.float32)

    def plain_distances(query: int) -> npt.NDArray[Any]:
        xor = words ^ work.query_codes[query].view(np.uint64)[0]
        distances: npt.NDArray[Any] = np.bitwise_count(xor).astype(np.int64)
        return distances

    def plain_scores(query: int) -> npt.NDArray[Any]:
        scores: npt.NDArray[Any] = signs @ projections[query]
        return -scores

    def plain(keys: Callable[[int], npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
        values = []
        for query in range(_PLAIN_QUERIES):
            order = np.argsort(keys(query), kind="stable")
            shared = integer_labels @ work.query_labels[query].astype(np.int64)
            similar = shared[order] > 0
            precision = np.cumsum(similar) / places
            values.append(precision[similar].mean() if similar.any() else 0.0)
        return np.array(values)

    def asymmetric() -> npt.NDArray[np.float64]:
        return asymmetric_average_precision(projections[:_ASYMMETRIC_QUERIES], *part[1:])

    tasks: dict[str, tuple[Callable[[], Any], int]] = {
        "plain": (lambda: plain(plain_distances), _PLAIN_QUERIES),
        "expected": (lambda: average_precision(*work), N_QUERIES),
        "stable": (
            lambda: average_precision(*work.first(_STABLE_QUERIES), ties="stable"),
            _STABLE_QUERIES,
        ),
        "plain asymmetric": (lambda: plain(plain_scores), _PLAIN_QUERIES),
        "asymmetric": (asymmetric, _ASYMMETRIC_QUERIES),
    }
    seconds = dict.fromkeys(tasks, float("inf"))
    results: dict[str, Any] = {}
    for _ in range(_REPEATS):
        for task, (call, n_queries) in tasks.items():
            start = time.process_time()
            results[task] = call()
            elapsed = (time.process_time() - start) * N_QUERIES / n_queries
            seconds[task] = min(seconds[task], elapsed)
    np.testing.assert_allclose(results["stable"][:_PLAIN_QUERIES], results["plain"], rtol=1e-9)
    peak = _peak_bytes(tasks["expected"][0])
    notes = {
        "plain": f"timed on {_PLAIN_QUERIES} queries",
        "expected": f"peak memory {peak / 1e6:.0f} MB beyond the inputs",
        "stable": f"timed on {_STABLE_QUERIES} queries; equal to the plain way",
        "plain asymmetric": f"float32 product, timed on {_PLAIN_QUERIES} queries",
        "asymmetric": f"timed on {_ASYMMETRIC_QUERIES} queries",
    }
    return [
        row(
            f"MAP {task}, {name}",
            seconds[task],
            seconds["plain asymmetric" if "asymmetric" in task else "plain"] / seconds[task],
            f"{seconds[task] / N_QUERIES * 1e3:.2f} ms a query; {notes[task]}",
            goal=">= 30" if task in ("expected", "stable") else "",
        )
        for task in tasks
    ]


def _peak_bytes(call: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
