"""Measures at their borders: nothing similar, nothing at all, and bad input."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
from literal_metrics import make_problem

from oasis.errors import InputError
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


@pytest.mark.parametrize("ties", ["expected", "stable"])
def test_a_query_without_a_similar_item_counts_zero(ties: str) -> None:
    codes = np.array([[0], [1]], dtype=np.uint8)
    labels = [[1, 0, 0], [0, 1, 0]]
    queries = [[1, 0, 0], [0, 0, 1], [0, 0, 0]]
    arrays = np.zeros((3, 1), dtype=np.uint8), codes, queries, labels
    assert average_precision(*arrays, ties=ties).tolist() == [1, 0, 0]
    assert mean_average_precision(*arrays, ties=ties) == pytest.approx(1 / 3)
    assert success_at_k(*arrays, 1).tolist() == [1, 0, 0]
    assert ndcg_at_k(*arrays, 1).tolist() == [1, 0, 0]


@pytest.mark.parametrize("ties", ["expected", "stable"])
def test_an_empty_base_gives_zero(ties: str) -> None:
    problem = make_problem(0, 2, 3, 0, 4, 1)
    labels = problem.query_labels, problem.base_labels
    assert mean_average_precision(*problem.arrays, ties=ties) == 0
    assert mean_average_precision(*problem.arrays, ties=ties, topk=5) == 0
    assert precision_at_k(*problem.arrays, 3).tolist() == [0, 0, 0]
    assert success_at_k(*problem.arrays, 3).tolist() == [0, 0, 0]
    assert ndcg_at_k(*problem.arrays, 3).tolist() == [0, 0, 0]
    assert chance_map(*labels) == 0
    projections = np.ones((3, 16), dtype=np.float32)
    asymmetric = asymmetric_average_precision(projections, *problem.arrays[1:], ties=ties)
    assert asymmetric.tolist() == [0, 0, 0]
    by_scores = average_precision_from_scores(np.zeros((3, 0)), *labels, ties=ties)
    assert by_scores.tolist() == [0, 0, 0]
    assert precision_within(*problem.arrays, 16).tolist() == [0, 0, 0]


def test_no_queries_have_no_mean() -> None:
    problem = make_problem(0, 2, 0, 5, 3, 2)
    assert average_precision(*problem.arrays).shape == (0,)
    assert average_precision(*problem.arrays, ties="stable").shape == (0,)
    assert ndcg_at_k(*problem.arrays, 2).shape == (0,)
    assert precision_at_k(*problem.arrays, 2).shape == (0,)
    with pytest.raises(InputError, match="no queries"):
        mean_average_precision(*problem.arrays)
    with pytest.raises(InputError, match="no queries"):
        chance_map(problem.query_labels, problem.base_labels)


def test_labels_without_classes_make_nothing_similar() -> None:
    codes = np.zeros((2, 1), dtype=np.uint8)
    labels = np.zeros((2, 0))
    assert mean_average_precision(codes, codes, labels, labels) == 0


@pytest.mark.parametrize(
    "convert",
    [
        lambda labels: labels.astype(bool),
        lambda labels: labels.astype(np.float32),
        lambda labels: labels.astype(np.uint8),
        lambda labels: labels.tolist(),
        np.asfortranarray,
        sp.csr_array,
        sp.csr_matrix,
        sp.coo_array,
    ],
)
def test_labels_of_any_kind_give_the_same(convert: Callable[[np.ndarray], object]) -> None:
    problem = make_problem(6, 3, 5, 40, 70, 9, density=0.02)
    query_codes, base_codes, query_labels, base_labels = problem.arrays
    result = average_precision(query_codes, base_codes, convert(query_labels), convert(base_labels))
    np.testing.assert_array_equal(result, average_precision(*problem.arrays))


# ---------------------------------------------------------------- bad input

CODES = np.zeros((2, 1), dtype=np.uint8)
LABELS = np.ones((2, 3), dtype=int)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query_codes": np.zeros((2, 1))}, "query_codes: codes must be uint8"),
        ({"base_codes": np.zeros(2, dtype=np.uint8)}, r"base_codes: .* got \(2,\)"),
        ({"base_codes": np.zeros((2, 2), dtype=np.uint8)}, "8 bits, base_codes have 16"),
        ({"query_labels": LABELS[:1]}, "query_labels has 1 rows, expected 2"),
        ({"base_labels": LABELS[:1]}, "base_labels has 1 rows, expected 2"),
        ({"base_labels": LABELS[:, :2]}, "3 classes, base_labels has 2"),
        ({"query_labels": LABELS[0]}, r"n_classes\), got \(3,\)"),
        ({"query_labels": LABELS * 2}, "query_labels holds 2 at row 0, column 0; expected 0 or 1"),
        ({"base_labels": LABELS * -1}, "base_labels holds -1 at row 0"),
        ({"base_labels": LABELS * 0.5}, "base_labels holds 0.5 at row 0"),
        ({"base_labels": LABELS * np.nan}, "base_labels holds nan at row 0"),
        ({"base_labels": sp.csr_array(LABELS * 3)}, "base_labels holds 3 at row 0"),
        ({"base_labels": [["sky"], ["sea"]]}, "zeros and ones .* got dtype <U3"),
        ({"base_labels": [[1], [1, 0]]}, "not a rectangular array"),
        ({"ties": "random"}, "'expected' or 'stable', got 'random'"),
        ({"ties": None}, "'expected' or 'stable', got None"),
        ({"topk": 0}, "topk must be a whole number of at least 1, got 0"),
        ({"topk": -3}, "got -3"),
        ({"topk": 2.0}, "got 2.0"),
        ({"topk": True}, "got True"),
    ],
)
def test_bad_input_is_refused(change: dict[str, object], message: str) -> None:
    arguments = {
        "query_codes": CODES,
        "base_codes": CODES,
        "query_labels": LABELS,
        "base_labels": LABELS,
    }
    with pytest.raises(InputError, match=message):
        mean_average_precision(**(arguments | change))


@pytest.mark.parametrize("measure", [precision_at_k, success_at_k, ndcg_at_k])
@pytest.mark.parametrize("k", [0, -1, 1.5, "3", None, True, [2]])
def test_bad_k_is_refused(measure: Callable[..., object], k: object) -> None:
    with pytest.raises(InputError, match="k must be a whole number of at least 1"):
        measure(CODES, CODES, LABELS, LABELS, k)


def test_bad_radius_is_refused() -> None:
    for radius in (-1, 1.5, True):
        with pytest.raises(InputError, match="radius must be a whole number of at least 0"):
            precision_within(CODES, CODES, LABELS, LABELS, radius)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scores", "options", "message"),
    [
        (np.zeros((2, 3)), {}, "3 columns from row 0 on, expected 2"),
        (np.zeros((3, 2)), {}, "more than 2 rows; expected 2"),
        (np.zeros((1, 2)), {}, "scores have 1 rows; expected 2"),
        (np.zeros(2), {}, r"got float64 \(2,\)"),
        ([np.zeros((1, 2)), np.zeros((1, 1))], {}, "1 columns from row 1 on, expected 2"),
        ([np.zeros((1, 2)), np.full((1, 2), np.nan)], {}, "NaN at row 1, column 0"),
        (np.array([["a", "b"]] * 2), {}, "scores must be real numbers"),
        (np.zeros((2, 2)), {"base_groups": [0, 2]}, "base_groups holds 2, but scores have 2"),
        (np.zeros((2, 2)), {"base_groups": [0, -1]}, "base_groups must be columns"),
        (np.zeros((2, 2)), {"base_groups": [0]}, "base_labels has 2 rows, expected one for each"),
        (
            np.zeros((2, 2)),
            {"base_groups": [0.0, 1.0]},
            "base_groups must be columns of scores, integers",
        ),
        (np.zeros((2, 2)), {"ties": "none"}, "ties must be"),
        (np.zeros((2, 2)), {"topk": 0}, "topk must be"),
    ],
)
def test_bad_scores_are_refused(scores: object, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        average_precision_from_scores(scores, LABELS, LABELS, **options)


@pytest.mark.parametrize(
    ("projections", "message"),
    [
        (np.zeros((2, 7)), r"\(n_queries, 8\) for base_codes of 8 bits, got \(2, 7\)"),
        (np.zeros(8), r"got \(8,\)"),
        (np.full((2, 8), np.nan), "hold nan at row 0, column 0"),
        (np.full((2, 8), np.inf), "hold inf"),
        (np.zeros((3, 8)), "scores have more than 2 rows; expected 2"),
        (np.zeros((2, 8), dtype=complex), "real numbers"),
    ],
)
def test_bad_projections_are_refused(projections: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        asymmetric_average_precision(projections, CODES, LABELS, LABELS)
