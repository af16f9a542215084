"""Measures of a ranking by Hamming distance, over packed codes and label indicators.

All take the same four arrays: ``query_codes`` (n_queries, n_bits / 8) and ``base_codes``
(n_base, n_bits / 8), uint8; ``query_labels`` (n_queries, n_classes) and ``base_labels``
(n_base, n_classes), zeros and ones, dense or sparse. Base items are in order of arrival.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array
from oasis.errors import InputError
from oasis.metrics.comparison import Comparison, check_comparison
from oasis.metrics.order import Places, order_average_precision
from oasis.metrics.relevance import check_label_sets
from oasis.metrics.ties import (
    Ties,
    check_has_queries,
    check_places,
    check_ties,
    expected_average_precision,
    expected_sum,
    harmonic_numbers,
    mean_over_queries,
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
    query_codes, base_codes : (n_queries, n_bits / 8) and (n_base, n_bits / 8) uint8
        Packed codes.
    query_labels, base_labels : (n_queries, n_classes) and (n_base, n_classes)
        Zeros and ones, dense or sparse. Two samples are similar when they share a label.
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
    ties = check_ties(ties)
    places = None if topk is None else check_places(topk, "topk")
    comparison = check_comparison(query_codes, base_codes, query_labels, base_labels)
    return _average_precision(comparison, ties, places)


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
    query_codes: Any,
    base_codes: Any,
    query_labels: Any,
    base_labels: Any,
    ties: Ties = "expected",
    topk: int | None = None,
) -> Array:
    """MAP of each class alone: of the queries that have it, with the base items that have it.

    Unlike in `average_precision`, sharing another label does not make an item similar, so the
    figure of a rare class does not depend on frequent classes that occur with it. For the mean of
    the ordinary average precision over the queries of a class, index `average_precision` by class.

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
    ties = check_ties(ties)
    places = None if topk is None else check_places(topk, "topk")
    comparison = check_comparison(query_codes, base_codes, query_labels, base_labels)
    n_classes = comparison.base_labels.n_classes
    single = check_label_sets(np.eye(n_classes, dtype=np.bool_), "classes")
    result = np.full(n_classes, np.nan)
    rows_of = [
        np.flatnonzero(comparison.query_labels.similar_to(single, label))
        for label in range(n_classes)
    ]
    n_rows = np.array([len(rows) for rows in rows_of], dtype=np.intp)
    classes = np.repeat(np.arange(n_classes), n_rows)
    if len(classes):
        # every query once for each of its classes, with only this class as label
        repeated = comparison.with_queries(np.concatenate(rows_of), single.take(classes))
        sums = np.bincount(classes, _average_precision(repeated, ties, places), n_classes)
        np.divide(sums, n_rows, out=result, where=n_rows > 0)
    return result


def precision_at_k(
    query_codes: Any,
    base_codes: Any,
    query_labels: Any,
    base_labels: Any,
    k: int | Sequence[int],
    ties: Ties = "expected",
) -> Array:
    """Share of similar items among the first k, for each query.

    The divisor is k, also where the base has fewer items. ``k`` is a number or several.

    Returns
    -------
    (n_queries,) float64, or (n_queries, len(k)) for several k
        Take the mean over axis 0 for the usual figure. "expected" is the mean over all orders of
        items at equal distance, also for the group of ties at place k.

    Examples
    --------
    >>> import numpy as np
    >>> codes = np.array([[0], [3], [255]], dtype=np.uint8)
    >>> precision_at_k(codes[:1], codes, [[1]], [[1], [0], [1]], [1, 2])
    array([[1. , 0.5]])
    """
    hits, _, places = _hits_at_k(query_codes, base_codes, query_labels, base_labels, k, ties)
    return (hits / places).reshape(len(hits), *np.shape(k))


def recall_at_k(
    query_codes: Any,
    base_codes: Any,
    query_labels: Any,
    base_labels: Any,
    k: int | Sequence[int],
    ties: Ties = "expected",
) -> Array:
    """Share of all similar items that are among the first k, for each query.

    A query without a similar item has 0. Shapes and ties are those of `precision_at_k`.

    Examples
    --------
    >>> import numpy as np
    >>> codes = np.array([[0], [3], [255]], dtype=np.uint8)
    >>> recall_at_k(codes[:1], codes, [[1]], [[1], [0], [1]], 2)
    array([0.5])
    """
    hits, n_similar, _ = _hits_at_k(query_codes, base_codes, query_labels, base_labels, k, ties)
    total = np.broadcast_to(n_similar[:, None], hits.shape)
    recall = np.divide(hits, total, out=np.zeros_like(hits), where=total > 0.0)
    return recall.reshape(len(hits), *np.shape(k))


def ndcg_at_k(
    query_codes: Any,
    base_codes: Any,
    query_labels: Any,
    base_labels: Any,
    k: int,
    ties: Ties = "expected",
) -> Array:
    """Normalised discounted cumulative gain of the first k places, for each query.

    The gain of an item that shares m labels with the query is ``2^m - 1``, the discount of place i
    (from 1) is ``1 / log2(i + 1)``, and the sum is divided by that of the best order of the base.
    "expected" is the mean over all orders of items at equal distance.

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
    ties = check_ties(ties)
    places = check_places(k, "k")
    comparison = check_comparison(query_codes, base_codes, query_labels, base_labels)
    n_places = min(places, comparison.n_base)
    discounts = 1.0 / np.log2(np.arange(2, n_places + 2))
    discount_sums = np.concatenate([[0.0], np.cumsum(discounts)])
    most = comparison.query_labels.max_labels()
    # 2^m - 1, scaled so that it does not overflow; the ratio is the same
    gain_of_shared = np.exp2(np.arange(-most, 1.0)) - np.exp2(-float(most))
    gain, ideal = np.zeros(comparison.n_queries), np.zeros(comparison.n_queries)
    if ties == "expected":
        for part in comparison.gain_groups(gain_of_shared):
            best = part.ideal_counts * gain_of_shared[::-1]
            ideal[part.rows] = expected_sum(part.ideal_counts, best, discount_sums, n_places)
            gain[part.rows] = expected_sum(part.counts, part.gains, discount_sums, n_places)
    else:
        for rows in comparison.query_labels.groups():
            shared = comparison.base_labels.n_shared_with(comparison.query_labels, int(rows[0]))
            gains = gain_of_shared[shared]
            ideal[rows] = np.sort(gains)[::-1][:n_places] @ discounts
            for row in rows:
                gain[row] = comparison.ranked(int(row), gains)[:n_places] @ discounts
    return np.divide(gain, ideal, out=np.zeros_like(gain), where=ideal > 0.0)


class PrecisionRecall(NamedTuple):
    """Precision and recall of all items within a Hamming radius, for the radii 0 to n_bits.

    Attributes
    ----------
    radius : (n_bits + 1,) int64
    precision, recall : (n_bits + 1,) float64
    retrieved : (n_bits + 1,) float64
        Mean number of items within the radius; where it is 0, so is the precision.
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
    comparison = check_comparison(query_codes, base_codes, query_labels, base_labels)
    check_has_queries(comparison.n_queries)
    width = comparison.n_bits + 1
    retrieved, precision, recall = np.zeros(width), np.zeros(width), np.zeros(width)
    n_similar = 0.0
    for part in comparison.tie_groups():
        found, hits = np.cumsum(part.counts, axis=1), np.cumsum(part.hits, axis=1)
        retrieved += found.sum(axis=0)
        if average == "micro":
            precision += hits.sum(axis=0)
            recall += hits.sum(axis=0)
            n_similar += float(hits[:, -1].sum())
        else:
            total = np.broadcast_to(hits[:, -1:], hits.shape)
            precision += _ratio(hits, found).sum(axis=0)
            recall += _ratio(hits, total).sum(axis=0)
    n_queries = float(comparison.n_queries)
    if average == "micro":
        precision = _ratio(precision, retrieved)
        recall = _ratio(recall, np.full(width, n_similar))
    else:
        precision /= n_queries
        recall /= n_queries
    return PrecisionRecall(np.arange(width), precision, recall, retrieved / n_queries)


def _average_precision(comparison: Comparison, ties: Ties, topk: int | None) -> Array:
    result = np.zeros(comparison.n_queries)
    if ties == "expected":
        harmonic = harmonic_numbers(comparison.n_base)
        for part in comparison.tie_groups():
            result[part.rows] = expected_average_precision(part.counts, part.hits, harmonic, topk)
    else:
        places = Places.of(comparison.n_base)
        for rows in comparison.query_labels.groups():
            similar = comparison.base_labels.similar_to(comparison.query_labels, int(rows[0]))
            for row in rows:
                ranked = comparison.ranked(int(row), similar)
                result[row] = order_average_precision(ranked, places, topk)
    return result


def _hits_at_k(
    query_codes: Any,
    base_codes: Any,
    query_labels: Any,
    base_labels: Any,
    k: int | Sequence[int],
    ties: Ties,
) -> tuple[Array, Array, npt.NDArray[np.intp]]:
    """Return the similar items among the first k, (n_queries, n_k), their total, and the k."""
    ties = check_ties(ties)
    several = [k] if np.ndim(k) == 0 else list(cast("Sequence[int]", k))
    places = np.array([check_places(one, "k") for one in several], dtype=np.intp)
    comparison = check_comparison(query_codes, base_codes, query_labels, base_labels)
    hits = np.zeros((comparison.n_queries, len(places)))
    n_similar = np.zeros(comparison.n_queries)
    if ties == "expected":
        place_counts = np.arange(comparison.n_base + 1, dtype=np.float64)
        for part in comparison.tie_groups():
            n_similar[part.rows] = part.hits.sum(axis=1)
            for column, one in enumerate(places):
                hits[part.rows, column] = expected_sum(
                    part.counts, part.hits, place_counts, int(one)
                )
    else:
        for rows in comparison.query_labels.groups():
            similar = comparison.base_labels.similar_to(comparison.query_labels, int(rows[0]))
            n_similar[rows] = np.count_nonzero(similar)
            for row in rows:
                found = np.flatnonzero(comparison.ranked(int(row), similar))
                hits[row] = np.searchsorted(found, places)
    return hits, n_similar, places


def _ratio(part: Array, whole: Array) -> Array:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0.0)
