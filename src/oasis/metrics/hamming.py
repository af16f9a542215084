"""Measures of a ranking by Hamming distance, over packed codes and label indicators.

All take the same four arrays: ``query_codes`` (n_queries, n_bits / 8) and ``base_codes``
(n_base, n_bits / 8), uint8; ``query_labels`` (n_queries, n_classes) and ``base_labels``
(n_base, n_classes), zeros and ones, dense or sparse. Base items are in order of arrival.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from oasis.arrays import Array
from oasis.errors import InputError
from oasis.metrics.comparison import Comparison
from oasis.metrics.relevance import check_label_sets
from oasis.metrics.ties import (
    AveragePrecision,
    Ties,
    check_has_queries,
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


def per_class_average_precision(
    query_codes: Any, base_codes: Any, query_labels: Any, base_labels: Any
) -> Array:
    """MAP of each class alone: of the queries that have it, with the base items that have it.

    Unlike in `average_precision`, sharing another label does not make an item similar, so the
    figure of a rare class does not depend on frequent classes that occur with it.

    Returns
    -------
    (n_classes,) float64
        NaN for a class that no query has, 0 for one that no base item has.

    Examples
    --------
    >>> import numpy as np
    >>> codes = np.array([[0], [3]], dtype=np.uint8)
    >>> per_class_average_precision(codes[:1], codes, [[1, 1, 0]], [[0, 1, 0], [1, 1, 0]])
    array([0.5, 1. , nan])
    """
    comparison = Comparison.of(query_codes, base_codes, query_labels, base_labels)
    queries = check_label_sets(query_labels, "query_labels")
    n_classes = queries.n_classes
    single = check_label_sets(np.eye(n_classes, dtype=np.bool_), "classes")
    rows_of = [np.flatnonzero(queries.similar_to(single, label)) for label in range(n_classes)]
    n_rows = np.array([len(rows) for rows in rows_of], dtype=np.intp)
    classes = np.repeat(np.arange(n_classes), n_rows)
    result = np.full(n_classes, np.nan)
    if len(classes):
        # every query once for each of its classes, with only this class as label
        repeated = comparison.with_queries(np.concatenate(rows_of), single.take(classes))
        values = _per_query(repeated, AveragePrecision(comparison.n_base).expected)
        np.divide(np.bincount(classes, values, n_classes), n_rows, out=result, where=n_rows > 0)
    return result


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


class PrecisionRecall(NamedTuple):
    """Precision and recall of all items within a Hamming radius, for the radii 0 to n_bits.

    Each is (n_bits + 1,). ``retrieved`` is the mean number of items within the radius; where it is
    0, so is the precision.
    """

    radius: npt.NDArray[np.int64]
    precision: Array
    recall: Array
    retrieved: Array


def precision_recall_curve(
    query_codes: Any,
    base_codes: Any,
    query_labels: Any,
    base_labels: Any,
    average: Literal["micro", "macro"] = "micro",
) -> PrecisionRecall:
    """Precision and recall of a look-up within each Hamming radius; ties do not matter here.

    Parameters
    ----------
    average : {"micro", "macro"}
        "micro" pools the retrieved items of all queries: the share of them that is similar, and
        the share of all similar pairs that is retrieved. "macro" takes the mean over the queries,
        where a query that retrieves nothing has precision 0 and one without a similar item has
        recall 0.

    Examples
    --------
    >>> import numpy as np
    >>> codes = np.array([[0], [3]], dtype=np.uint8)
    >>> curve = precision_recall_curve(codes[:1], codes, [[1]], [[1], [0]])
    >>> curve.precision[:4].tolist(), curve.recall[:4].tolist()
    ([1.0, 1.0, 0.5, 0.5], [1.0, 1.0, 1.0, 1.0])
    """
    if average not in ("micro", "macro"):
        raise InputError(f"average must be 'micro' or 'macro', got {average!r}")
    comparison = Comparison.of(query_codes, base_codes, query_labels, base_labels)
    check_has_queries(comparison.n_queries)
    # items and similar items within the radius, precision, recall: sums over the queries
    sums = np.zeros((4, comparison.n_bits + 1))
    for _, joint in comparison.histograms(2):
        found = np.cumsum(joint.sum(axis=1), axis=1)
        hits = np.cumsum(joint[:, 1], axis=1)
        total = np.broadcast_to(hits[:, -1:], hits.shape)
        every = found, hits, ratio(hits, found), ratio(hits, total)
        sums += [each.sum(axis=0) for each in every]
    retrieved, similar, precision, recall = sums / comparison.n_queries
    if average == "micro":
        precision, recall = (
            ratio(similar, retrieved),
            ratio(similar, np.full_like(similar, similar[-1])),
        )
    return PrecisionRecall(np.arange(len(retrieved)), precision, recall, retrieved)


def _per_query(comparison: Comparison, of: Callable[[Array, Array], Array]) -> Array:
    """Return a measure of each query, of the number of items and similar items by distance."""
    result = np.zeros(comparison.n_queries)
    for rows, joint in comparison.histograms(2):
        result[rows] = of(joint.sum(axis=1), joint[:, 1])
    return result
