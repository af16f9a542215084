"""Measures of a ranking by Hamming distance, over packed codes and label indicators.

All take the same four arrays: ``query_codes`` (n_queries, n_bits / 8) and ``base_codes``
(n_base, n_bits / 8), uint8; ``query_labels`` (n_queries, n_classes) and ``base_labels``
(n_base, n_classes), zeros and ones, dense or sparse. Base items are in order of arrival.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import gammaln

from oasis.arrays import Array
from oasis.errors import InputError
from oasis.metrics.comparison import Comparison
from oasis.metrics.relevance import check_label_sets
from oasis.metrics.ties import (
    AveragePrecision,
    Ties,
    check_places,
    check_ties,
    expected_sum,
    mean_over_queries,
    ratio,
)


def average_precision(
    query_codes: Any,
    base_codes: Any,
    query_labels: Any,
    base_labels: Any,
    ties: Ties = "expected",
    topk: int | None = None,
) -> Array:
    """Average precision of each query over the whole base; its mean is MAP.

    Parameters
    ----------
    query_codes, base_codes, query_labels, base_labels
        Two samples are similar when they share a label.
    ties : {"expected", "stable"}
        Base items at equal distance: the mean over all their orders, in closed form, or the item
        that comes first in the base goes first.
    topk : int, optional
        Count the first ``topk`` places only (AP@k). The sum of precisions is then divided by
        min(R, topk), R being the number of similar items in the whole base, so that the maximum
        is 1.

    Returns
    -------
    (n_queries,) float64
        In [0, 1]; 0 for a query without a similar item, and for every query of an empty base.

    Notes
    -----
    Cost: for each query one pass over the base (over its distinct pairs of code and label set,
    where items repeat), and for "stable" a counting sort. Memory: a few arrays over the base.

    Examples
    --------
    The two base items are tied, and one of them is similar: precision 1 or 1/2.

    >>> import numpy as np
    >>> query, base = np.array([[0]], dtype=np.uint8), np.array([[1], [2]], dtype=np.uint8)
    >>> average_precision(query, base, [[1, 0]], [[0, 1], [1, 0]])
    array([0.75])
    >>> average_precision(query, base, [[1, 0]], [[0, 1], [1, 0]], ties="stable")
    array([0.5])
    """
    is_stable = check_ties(ties) == "stable"
    comparison = Comparison.of(query_codes, base_codes, query_labels, base_labels)
    measure = AveragePrecision(comparison.n_base, topk)
    if not is_stable:
        return _per_query(comparison, measure.expected)
    result = np.zeros(comparison.n_queries)
    for rows, similar in comparison.similar():
        for row in rows:
            result[row] = measure.of_order(comparison.ranked(int(row), similar))
    return result


def mean_average_precision(
    query_codes: Any,
    base_codes: Any,
    query_labels: Any,
    base_labels: Any,
    ties: Ties = "expected",
    topk: int | None = None,
) -> float:
    """MAP, the mean of `average_precision` over at least one query.

    Parameters, ties, ``topk`` (denominator min(R, topk)) and cost are those of
    `average_precision`. An empty base gives 0. Print `oasis.metrics.chance_map` beside it.

    Examples
    --------
    >>> import numpy as np
    >>> codes = np.array([[0], [3], [255]], dtype=np.uint8)
    >>> mean_average_precision(codes[:1], codes, [[1]], [[1], [0], [1]])
    0.8333333333333333
    """
    return mean_over_queries(
        average_precision(query_codes, base_codes, query_labels, base_labels, ties, topk)
    )


def precision_at_k(
    query_codes: Any, base_codes: Any, query_labels: Any, base_labels: Any, k: int
) -> Array:
    """Share of similar items among the first k, for each query; the mean over tied orders.

    The divisor is k, also where the base has fewer items.

    Examples
    --------
    >>> import numpy as np
    >>> codes = np.array([[0], [3], [255]], dtype=np.uint8)
    >>> precision_at_k(codes[:1], codes, [[1]], [[1], [0], [1]], 2)
    array([0.5])
    """
    places = check_places(k)
    comparison = Comparison.of(query_codes, base_codes, query_labels, base_labels)
    numbers = np.arange(comparison.n_base + 1, dtype=np.float64)
    return _per_query(comparison, lambda c, h: expected_sum(c, h, numbers, places) / places)


def success_at_k(
    query_codes: Any, base_codes: Any, query_labels: Any, base_labels: Any, k: int
) -> Array:
    """Share of orders of tied items in which the first k have a similar one, for each query.

    Examples
    --------
    One of two tied items is similar.

    >>> import numpy as np
    >>> query, base = np.array([[0]], dtype=np.uint8), np.array([[1], [2]], dtype=np.uint8)
    >>> success_at_k(query, base, [[1, 0]], [[0, 1], [1, 0]], 1)
    array([0.5])
    """
    places = check_places(k)

    def success(counts: Array, hits: Array) -> Array:
        before = np.cumsum(counts, axis=1) - counts
        free = np.clip(places - before, 0, counts)  # places that each group fills
        misses = counts - hits
        # no hit among the free places of a group: C(misses, free) / C(counts, free)
        possible = misses >= free
        log_none = (
            gammaln(misses + 1)
            - gammaln(np.where(possible, misses - free, 0) + 1)
            - gammaln(counts + 1)
            + gammaln(counts - free + 1)
        )
        found: Array = 1 - np.where(possible, np.exp(log_none), 0.0).prod(axis=1)
        return found

    comparison = Comparison.of(query_codes, base_codes, query_labels, base_labels)
    return _per_query(comparison, success)


def ndcg_at_k(
    query_codes: Any, base_codes: Any, query_labels: Any, base_labels: Any, k: int
) -> Array:
    """Normalised discounted cumulative gain of the first k places, for each query.

    The gain of an item that shares m labels with the query is ``2^m - 1``, the discount of place i
    (from 1) is ``1 / log2(i + 1)``, and the sum is divided by that of the best order of the base.
    It is the mean over all orders of items at equal distance.

    Returns
    -------
    (n_queries,) float64
        In [0, 1]; 0 for a query without a similar item.

    Examples
    --------
    >>> import numpy as np
    >>> codes = np.array([[0], [3]], dtype=np.uint8)
    >>> ndcg_at_k(codes[:1], codes, [[1, 1]], [[1, 0], [1, 1]], 1)
    array([0.33333333])
    """
    places = check_places(k)
    comparison = Comparison.of(query_codes, base_codes, query_labels, base_labels)
    n_places = min(places, comparison.n_base)
    discounts = np.concatenate([[0.0], np.cumsum(1.0 / np.log2(np.arange(2, n_places + 2)))])
    most = check_label_sets(query_labels, "query_labels").max_labels()
    # 2^m - 1, scaled so that it does not overflow; the ratio is the same
    gains = np.exp2(np.arange(-most, 1.0)) - np.exp2(-float(most))
    result = np.zeros(comparison.n_queries)
    for rows, joint in comparison.histograms(most + 1):  # joint is (b, shared labels, distances)
        ideal = joint.sum(axis=2)[:, ::-1]  # most shared labels first
        best = expected_sum(ideal, ideal * gains[::-1], discounts, n_places)
        gained = np.einsum("bmd,m->bd", joint, gains)
        result[rows] = ratio(expected_sum(joint.sum(axis=1), gained, discounts, n_places), best)
    return result


def precision_within(
    query_codes: Any, base_codes: Any, query_labels: Any, base_labels: Any, radius: int
) -> Array:
    """Share of similar items among those within a Hamming radius, for each query.

    0 for a query without an item within the radius. Ties do not matter here.

    Examples
    --------
    >>> import numpy as np
    >>> codes = np.array([[0], [3], [255]], dtype=np.uint8)
    >>> precision_within(codes[:1], codes, [[1]], [[1], [0], [1]], 2)
    array([0.5])
    """
    if isinstance(radius, bool) or not isinstance(radius, int) or radius < 0:
        raise InputError(f"radius must be a whole number of at least 0, got {radius!r}")
    comparison = Comparison.of(query_codes, base_codes, query_labels, base_labels)

    def within(counts: Array, hits: Array) -> Array:
        return ratio(*(each[:, : radius + 1].sum(axis=1) for each in (hits, counts)))

    return _per_query(comparison, within)


def _per_query(comparison: Comparison, of: Callable[[Array, Array], Array]) -> Array:
    """Return a measure of each query, of the number of items and similar items by distance."""
    result = np.zeros(comparison.n_queries)
    for rows, joint in comparison.histograms(2):
        result[rows] = of(joint.sum(axis=1), joint[:, 1])
    return result
