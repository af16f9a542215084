"""Every measure against literal functions: bit loops, enumerated orders, printed formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from literal_metrics import (
    Problem,
    make_problem,
    places,
    printed_expected_ap,
    slow_ap,
    slow_measure,
    slow_ndcg,
    slow_precision,
    slow_success,
    small_problems,
    ties_values,
)

from oasis.metrics import (
    asymmetric_average_precision,
    average_precision,
    average_precision_from_scores,
    chance_map,
    mean_average_precision,
    ndcg_at_k,
    precision_at_k,
    precision_within,
    success_at_k,
)

AT_K = {
    "precision": (precision_at_k, slow_precision),
    "success": (success_at_k, slow_success),
    "ndcg": (ndcg_at_k, slow_ndcg),
}


# ---------------------------------------------------------------- cases computed by hand


def test_average_precision_of_three_tied_items_computed_by_hand() -> None:
    base = np.array([[1], [2], [4]], dtype=np.uint8)
    query = np.zeros((1, 1), dtype=np.uint8)
    labels = [[0], [1], [1]]
    # the dissimilar item comes first, second or third
    by_hand = ((1 / 2 + 2 / 3) / 2 + (1 + 2 / 3) / 2 + (1 + 1) / 2) / 3
    assert mean_average_precision(query, base, [[1]], labels) == pytest.approx(by_hand, abs=1e-15)
    stable = mean_average_precision(query, base, [[1]], labels, ties="stable")
    assert stable == pytest.approx((1 / 2 + 2 / 3) / 2, abs=1e-15)


def test_ndcg_of_very_many_labels_is_finite() -> None:
    codes = np.array([[0], [1]], dtype=np.uint8)
    labels = np.ones((2, 1100), dtype=bool)
    labels[0, 1000:] = False
    result = ndcg_at_k(codes[:1], codes, labels[1:], labels, 2)
    # the gain of the first item is 2^-100 of the other's
    assert result == pytest.approx([(1 / math.log2(3)) / (1 / math.log2(2))])


def test_all_ones_and_all_zeros_are_64_bits_apart() -> None:
    """A byte that differs in all its bits counts 8."""
    base, query = np.array([[255] * 8], dtype=np.uint8), np.zeros((1, 8), dtype=np.uint8)
    found = [precision_within(query, base, [[1]], [[1]], radius) for radius in (55, 63, 64)]
    assert np.concatenate(found).tolist() == [0, 0, 1]


# ---------------------------------------------------------------- against enumeration


@settings(max_examples=150, deadline=None)
@given(small_problems, ties_values, st.none() | places)
def test_average_precision_equals_the_enumerated_orders(
    problem: Problem, ties: str, topk: int | None
) -> None:
    truth = [
        slow_measure(slow_ap, problem.keys(q), problem.shared(q), topk or 10**9, ties)
        for q in range(len(problem.query_codes))
    ]
    result = average_precision(*problem.arrays, ties=ties, topk=topk)
    np.testing.assert_allclose(result, truth, rtol=1e-12, atol=1e-14)
    mean = mean_average_precision(*problem.arrays, ties=ties, topk=topk)
    assert mean == pytest.approx(np.mean(truth), rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("name", AT_K)
@settings(max_examples=80, deadline=None)
@given(problem=small_problems, k=places)
def test_measures_at_k_equal_the_enumerated_orders(name: str, problem: Problem, k: int) -> None:
    fast, slow = AT_K[name]
    truth = [
        slow_measure(slow, problem.keys(q), problem.shared(q), k, "expected")
        for q in range(len(problem.query_codes))
    ]
    np.testing.assert_allclose(fast(*problem.arrays, k), truth, rtol=1e-12, atol=1e-14)


@settings(max_examples=60, deadline=None)
@given(small_problems, st.integers(0, 20))
def test_precision_within_a_radius_equals_counting(problem: Problem, radius: int) -> None:
    found = precision_within(*problem.arrays, radius)
    for q in range(len(problem.query_codes)):
        pairs = zip(problem.keys(q), problem.shared(q), strict=True)
        inside = [m > 0 for key, m in pairs if key <= radius]
        assert found[q] == pytest.approx(np.mean(inside) if inside else 0)


@settings(max_examples=60, deadline=None)
@given(small_problems, st.none() | places)
def test_chance_equals_the_mean_over_all_orders(problem: Problem, topk: int | None) -> None:
    truth = [
        slow_measure(slow_ap, [0.0] * len(shared), shared, topk or 10**9, "expected")
        for shared in map(problem.shared, range(len(problem.query_codes)))
    ]
    result = chance_map(problem.query_labels, problem.base_labels, topk)
    assert result == pytest.approx(np.mean(truth), rel=1e-12, abs=1e-14)


@settings(max_examples=100, deadline=None)
@given(small_problems, ties_values, st.none() | places, st.data())
def test_scores_equal_the_enumerated_orders(
    problem: Problem, ties: str, topk: int | None, data: st.DataObject
) -> None:
    n_queries, n_base = len(problem.query_codes), len(problem.base_codes)
    score = st.sampled_from([-np.inf, -1.5, -0.0, 0.0, 2.0, np.inf])
    scores = np.array(
        [[data.draw(score) for _ in range(n_base)] for _ in range(n_queries)]
    ).reshape(n_queries, n_base)
    truth = [
        slow_measure(slow_ap, list(-scores[q]), problem.shared(q), topk or 10**9, ties)
        for q in range(n_queries)
    ]
    labels = problem.query_labels, problem.base_labels
    result = average_precision_from_scores(scores, *labels, ties=ties, topk=topk)
    np.testing.assert_allclose(result, truth, rtol=1e-12, atol=1e-14)
    one_by_one = (scores[q : q + 1] for q in range(n_queries))
    blocked = average_precision_from_scores(one_by_one, *labels, ties=ties, topk=topk)
    np.testing.assert_array_equal(blocked, result)


@settings(max_examples=100, deadline=None)
@given(small_problems, ties_values, st.none() | places, st.data())
def test_asymmetric_average_precision_equals_the_enumerated_orders(
    problem: Problem, ties: str, topk: int | None, data: st.DataObject
) -> None:
    n_queries, n_bytes = problem.query_codes.shape
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    # whole numbers, so that different codes tie as well and the products are exact
    dtype = data.draw(st.sampled_from([np.float32, np.float64, np.int64]))
    projections = rng.integers(-2, 3, (n_queries, 8 * n_bytes)).astype(dtype)
    signs = np.array(
        [
            [1 if int(byte) >> bit & 1 else -1 for byte in code for bit in range(8)]
            for code in problem.base_codes
        ],
        dtype=np.int64,
    ).reshape(-1, 8 * n_bytes)
    truth = [
        slow_measure(
            slow_ap,
            [-float(projections[q] @ row) for row in signs],
            problem.shared(q),
            topk or 10**9,
            ties,
        )
        for q in range(n_queries)
    ]
    result = asymmetric_average_precision(
        projections,
        problem.base_codes,
        problem.query_labels,
        problem.base_labels,
        ties=ties,
        topk=topk,
    )
    np.testing.assert_allclose(result, truth, rtol=1e-12, atol=1e-14)


# ---------------------------------------------------------------- larger sets


def numpy_distances(problem: Problem) -> np.ndarray:
    left = np.unpackbits(problem.query_codes, axis=1)
    right = np.unpackbits(problem.base_codes, axis=1)
    return np.array([(row != right).sum(axis=1) for row in left]).reshape(len(left), len(right))


@pytest.mark.parametrize("n_bytes", [1, 2, 3, 4, 5, 8, 12, 16, 17, 32, 40])
def test_average_precision_equals_the_printed_sum_and_a_stable_sort(n_bytes: int) -> None:
    problem = make_problem(n_bytes, n_bytes, 5, 400, 6, 300, density=0.1)
    distances = numpy_distances(problem)
    shared = problem.query_labels @ problem.base_labels.T
    expected = average_precision(*problem.arrays)
    stable = average_precision(*problem.arrays, ties="stable")
    for q in range(5):
        printed = printed_expected_ap(distances[q].tolist(), shared[q].tolist())
        assert expected[q] == pytest.approx(printed, rel=1e-11)
        order = np.argsort(distances[q], kind="stable")
        assert stable[q] == pytest.approx(slow_ap(shared[q][order].tolist(), 10**9), rel=1e-12)


@pytest.mark.parametrize("n_codes", [7, 5000])
def test_many_queries_are_measured_as_one_by_one(n_codes: int) -> None:
    """Equal items are merged for many queries, where there are enough of them, never for one."""
    problem = make_problem(1, 9, 1100, 300, 3, n_codes)
    for measure in (
        average_precision,
        lambda *arrays: ndcg_at_k(*arrays, 20),
        lambda *arrays: precision_at_k(*arrays, 20),
    ):
        together = measure(*problem.arrays)
        for q in (0, 1, 500, 1023, 1024, 1099):
            alone = measure(
                problem.query_codes[q : q + 1],
                problem.base_codes,
                problem.query_labels[q : q + 1],
                problem.base_labels,
            )
            assert together[q] == pytest.approx(alone[0], rel=1e-12)


def test_a_base_of_several_blocks_equals_a_stable_sort() -> None:
    problem = make_problem(5, 8, 2, 150_001, 4, 150_001)
    stable = average_precision(*problem.arrays, ties="stable")
    expected = average_precision(*problem.arrays)
    for q, distances in enumerate(numpy_distances(problem)):
        similar = problem.base_labels @ problem.query_labels[q] > 0
        order = np.argsort(distances, kind="stable")
        ranks = np.flatnonzero(similar[order]) + 1
        assert stable[q] == pytest.approx(np.mean(np.arange(1, len(ranks) + 1) / ranks))
        printed = printed_expected_ap(distances.tolist(), similar.astype(int).tolist())
        assert expected[q] == pytest.approx(printed, rel=1e-9)


def test_grouped_scores_equal_scores_of_every_item() -> None:
    problem = make_problem(9, 8, 20, 500, 4, 90)
    rng = np.random.default_rng(4)
    groups = rng.integers(0, 90, 500)
    scores = rng.integers(0, 40, (20, 95)).astype(np.float32)  # five columns hold no item
    labels = problem.query_labels, problem.base_labels
    for ties in ("expected", "stable"):
        grouped = average_precision_from_scores(
            [scores[:7], scores[7:]], *labels, ties=ties, base_groups=groups
        )
        plain = average_precision_from_scores(scores[:, groups], *labels, ties=ties)
        np.testing.assert_allclose(grouped, plain, rtol=1e-12)
