"""The measures as bit loops, enumerated orders and printed formulas, and problems to measure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

# ---------------------------------------------------------------- the slow truth

OrderMeasure = Callable[[list[int], int], float]
"""From the numbers of shared labels in ranked order, and k, to a figure."""


def slow_distance(a: np.ndarray, b: np.ndarray) -> int:
    return sum(
        (int(x) >> bit & 1) != (int(y) >> bit & 1)
        for x, y in zip(a, b, strict=True)
        for bit in range(8)
    )


def slow_shared(a: np.ndarray, b: np.ndarray) -> int:
    return sum(bool(x) and bool(y) for x, y in zip(a, b, strict=True))


def slow_ap(shared: list[int], k: int) -> float:
    total, found = 0.0, 0
    for place, m in enumerate(shared[:k], start=1):
        if m > 0:
            found += 1
            total += found / place
    best = min(sum(m > 0 for m in shared), k)
    return total / best if best else 0.0


def slow_precision(shared: list[int], k: int) -> float:
    return sum(m > 0 for m in shared[:k]) / k


def slow_success(shared: list[int], k: int) -> float:
    return float(any(m > 0 for m in shared[:k]))


def slow_dcg(shared: list[int], k: int) -> float:
    return sum((2**m - 1) / math.log2(place + 1) for place, m in enumerate(shared[:k], start=1))


def slow_ndcg(shared: list[int], k: int) -> float:
    ideal = slow_dcg(sorted(shared, reverse=True), k)
    return slow_dcg(shared, k) / ideal if ideal else 0.0


def stable_order(keys: list[float]) -> list[int]:
    return sorted(range(len(keys)), key=lambda item: keys[item])


def tied_orders(keys: list[float]) -> Iterator[list[int]]:
    """Every order of the items by key, all orders of equal keys included."""
    groups = [[item for item in range(len(keys)) if keys[item] == key] for key in sorted(set(keys))]
    for parts in itertools.product(*(itertools.permutations(group) for group in groups)):
        yield list(itertools.chain.from_iterable(parts))


def slow_measure(
    measure: OrderMeasure, keys: list[float], shared: list[int], k: int, ties: str
) -> float:
    orders = [stable_order(keys)] if ties == "stable" else list(tied_orders(keys))
    return sum(measure([shared[item] for item in order], k) for order in orders) / len(orders)


def printed_expected_ap(keys: list[float], shared: list[int]) -> float:
    """The sum over tied groups as printed, term by term."""
    total, t, s = 0.0, 0, 0
    for key in sorted(set(keys)):
        group = [shared[item] > 0 for item in range(len(keys)) if keys[item] == key]
        g, q = len(group), sum(group)
        for i in range(1, g + 1):
            slope = (i - 1) * (q - 1) / (g - 1) if g > 1 else 0.0
            total += q / g * (s + 1 + slope) / (t + i)
        t, s = t + g, s + q
    return total / s if s else 0.0


# ---------------------------------------------------------------- problems to measure


@dataclass(frozen=True)
class Problem:
    query_codes: np.ndarray
    base_codes: np.ndarray
    query_labels: np.ndarray
    base_labels: np.ndarray

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        return self.query_codes, self.base_codes, self.query_labels, self.base_labels

    def keys(self, query: int) -> list[float]:
        return [slow_distance(self.query_codes[query], code) for code in self.base_codes]

    def shared(self, query: int) -> list[int]:
        return [slow_shared(self.query_labels[query], labels) for labels in self.base_labels]


def make_problem(
    seed: int,
    n_bytes: int,
    n_queries: int,
    n_base: int,
    n_classes: int,
    n_codes: int,
    density: float = 0.35,
) -> Problem:
    """Codes drawn from few, so that there are ties, and random labels."""
    rng = np.random.default_rng(seed)
    pool = rng.integers(0, 256, (n_codes, n_bytes), dtype=np.uint8)
    return Problem(
        rng.integers(0, 256, (n_queries, n_bytes), dtype=np.uint8),
        pool[rng.integers(0, n_codes, n_base)],
        (rng.random((n_queries, n_classes)) < density).astype(np.int64),
        (rng.random((n_base, n_classes)) < density).astype(np.int64),
    )


small_problems = st.builds(
    make_problem,
    seed=st.integers(0, 2**32 - 1),
    n_bytes=st.integers(1, 17),
    n_queries=st.integers(1, 3),
    n_base=st.integers(0, 6),
    n_classes=st.sampled_from([1, 2, 3, 9, 70]),
    n_codes=st.integers(1, 4),
    density=st.sampled_from([0.05, 0.3, 0.6]),
)
ties_values = st.sampled_from(["expected", "stable"])
places = st.integers(1, 8)
