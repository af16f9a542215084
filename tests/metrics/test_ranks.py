"""The rank of one relevant item, and diagnostics of codes, against loops over items."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from literal_metrics import slow_distance

from oasis.codes import pack, unpack
from oasis.errors import InputError
from oasis.metrics import (
    asymmetric_item_ranks,
    code_statistics,
    found_at_k,
    item_ranks,
    item_ranks_from_scores,
    mean_reciprocal_rank,
    tied_at_k,
)


@dataclass(frozen=True)
class Known:
    """Queries that are after one item each."""

    queries: np.ndarray
    base: np.ndarray
    items: np.ndarray
    projections: np.ndarray


@st.composite
def problems(draw: st.DrawFn) -> Known:
    n_bytes = draw(st.sampled_from([1, 2, 9]))
    n_base, n_queries = draw(st.integers(1, 12)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    high = draw(st.sampled_from([1, 3, 255]))  # few distinct codes, and many
    base = rng.integers(0, high, (n_base, n_bytes), endpoint=True, dtype=np.uint8)
    queries = rng.integers(0, high, (n_queries, n_bytes), endpoint=True, dtype=np.uint8)
    # small whole numbers: sums are exact, so ties between different codes are exact too
    projections = rng.integers(-2, 3, (n_queries, 8 * n_bytes)).astype(np.float32)
    return Known(queries, base, rng.integers(0, n_base, n_queries), projections)


def slow_rank(keys: list[float], item: int) -> float:
    """From the keys of all items, lowest first, to the rank of one."""
    above = sum(key < keys[item] for key in keys)
    tied = sum(key == keys[item] for key in keys) - 1
    return 1 + above + tied / 2


def slow_tied(keys: list[float], k: int) -> bool:
    return keys.count(sorted(keys)[k - 1]) > 1


def hamming_keys(problem: Known, query: int) -> list[float]:
    return [slow_distance(problem.queries[query], code) for code in problem.base]


def asymmetric_keys(problem: Known, query: int) -> list[float]:
    signs = unpack(problem.base)
    return [
        -sum(float(p) * int(s) for p, s in zip(problem.projections[query], row, strict=True))
        for row in signs
    ]


@given(problems())
def test_item_ranks_equal_a_loop_over_the_base(problem: Known) -> None:
    n = len(problem.queries)
    by_loop = [slow_rank(hamming_keys(problem, i), problem.items[i]) for i in range(n)]
    assert item_ranks(problem.queries, problem.base, problem.items).tolist() == by_loop


@given(problems())
def test_asymmetric_item_ranks_equal_a_loop_over_the_base(problem: Known) -> None:
    n = len(problem.queries)
    by_loop = [slow_rank(asymmetric_keys(problem, i), problem.items[i]) for i in range(n)]
    ranks = asymmetric_item_ranks(problem.projections, problem.base, problem.items)
    assert ranks.tolist() == by_loop


@given(problems(), st.integers(1, 3))
def test_item_ranks_from_scores_equal_a_loop_in_blocks_of_any_size(
    problem: Known, size: int
) -> None:
    n = len(problem.queries)
    scores = np.array([[-key for key in asymmetric_keys(problem, i)] for i in range(n)])
    by_loop = [slow_rank(asymmetric_keys(problem, i), problem.items[i]) for i in range(n)]

    def blocks() -> Iterator[np.ndarray]:
        for start in range(0, n, size):
            yield scores[start : start + size]

    assert item_ranks_from_scores(scores, problem.items).tolist() == by_loop
    assert item_ranks_from_scores(blocks(), problem.items).tolist() == by_loop


@given(problems(), st.data())
def test_ties_at_k_equal_a_loop_over_the_base(problem: Known, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(problem.base)))
    n = len(problem.queries)
    hamming = [slow_tied(hamming_keys(problem, i), k) for i in range(n)]
    assert tied_at_k(problem.queries, problem.base, k) == sum(hamming) / n


@given(problems())
def test_code_statistics_equal_counts_of_rows_and_bits(problem: Known) -> None:
    found = code_statistics(problem.base)
    codes = Counter(row.tobytes() for row in problem.base)
    assert found.n_distinct == len(codes)
    assert found.largest_group == max(codes.values())
    assert found.n_codes == len(problem.base)
    for bit in range(8 * problem.base.shape[1]):
        share = np.mean([int(row[bit // 8]) >> bit % 8 & 1 for row in problem.base])
        parts = [p for p in (share, 1 - share) if p > 0]
        entropy = -sum(p * math.log2(p) for p in parts)
        assert found.bit_entropy[bit] == pytest.approx(entropy, abs=1e-12)
    assert found.n_constant == int((found.bit_entropy == 0).sum())
    assert found.as_dict()["entropy"] == pytest.approx(found.bit_entropy.mean())


def test_ranks_of_more_queries_and_items_than_a_block_holds() -> None:
    rng = np.random.default_rng(0)
    base = rng.integers(0, 4, (70_000, 1), dtype=np.uint8)
    queries = rng.integers(0, 4, (1_500, 1), dtype=np.uint8)
    items = rng.integers(0, len(base), len(queries))
    counts = np.bincount(base[:, 0], minlength=4)

    def by_counts(query: int, item: int) -> float:
        distance = [(query ^ code).bit_count() for code in range(4)]
        own = distance[item]
        above = sum(int(n) for n, d in zip(counts, distance, strict=True) if d < own)
        tied = sum(int(n) for n, d in zip(counts, distance, strict=True) if d == own)
        return 1 + above + (tied - 1) / 2

    wanted = [by_counts(int(q), int(base[i, 0])) for q, i in zip(queries[:, 0], items, strict=True)]
    assert item_ranks(queries, base, items).tolist() == wanted


def test_equal_codes_are_tied_whatever_rounding_does() -> None:
    rng = np.random.default_rng(1)
    code = pack(rng.standard_normal((1, 128)))
    base = np.repeat(code, 1001, axis=0)
    queries = rng.standard_normal((3, 128)).astype(np.float32)
    assert asymmetric_item_ranks(queries, base, [0, 500, 1000]).tolist() == [501.0] * 3


def test_mean_reciprocal_rank_and_share_found_computed_by_hand() -> None:
    ranks = [1.0, 1.5, 4.0, 10.5]
    assert mean_reciprocal_rank(ranks) == pytest.approx((1 + 2 / 3 + 1 / 4 + 2 / 21) / 4)
    assert [found_at_k(ranks, k) for k in (1, 2, 10, 11)] == [0.25, 0.5, 0.75, 1.0]


def test_what_cannot_be_measured_is_refused() -> None:
    codes = np.zeros((2, 1), dtype=np.uint8)
    with pytest.raises(InputError, match="items holds 2; expected rows of the base, from 0 to 1"):
        item_ranks(codes, codes, [0, 2])
    with pytest.raises(InputError, match="items holds -1"):
        asymmetric_item_ranks(np.ones((1, 8)), codes, [-1])
    with pytest.raises(InputError, match="items must be 2 integers"):
        item_ranks(codes, codes, [0.0, 1.0])
    with pytest.raises(InputError, match="scores have more than 1 rows; expected 1"):
        item_ranks_from_scores(np.ones((2, 3)), [0])
    with pytest.raises(InputError, match="scores have 1 rows; expected 2"):
        item_ranks_from_scores(np.ones((1, 3)), [0, 1])
    with pytest.raises(InputError, match="NaN"):
        item_ranks_from_scores(np.array([[np.nan]]), [0])
    with pytest.raises(InputError, match="expected the same width"):
        item_ranks(codes, np.zeros((2, 2), dtype=np.uint8), [0, 0])
    with pytest.raises(InputError, match="ranks must be at least 1, got 0"):
        mean_reciprocal_rank([0.0])
    with pytest.raises(InputError, match="no queries"):
        mean_reciprocal_rank(np.zeros(0))
    with pytest.raises(InputError, match="k is 3, but the base has 2 items"):
        tied_at_k(codes, codes, 3)
    with pytest.raises(InputError, match="there are no codes"):
        code_statistics(np.zeros((0, 8), dtype=np.uint8))
