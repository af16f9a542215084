"""The rank of one relevant item, by codes or by scores, and recall of float neighbours.

The rank of an item is ``1 + a + t / 2``, where a items are nearer to the query and t other items
are at the same distance: the mean over all orders of the tied items. So a rank is an integer, or an
integer plus 1/2.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array
from oasis.codes import check_codes
from oasis.errors import InputError
from oasis.metrics.comparison import Comparison
from oasis.metrics.relevance import Rows
from oasis.metrics.scores import (
    asymmetric_scores,
    check_projections,
    checked_blocks,
    first_of_scores,
)
from oasis.metrics.ties import check_places, mean_over_queries, ratio


def item_ranks(query_codes: Any, base_codes: Any, items: Any) -> Array:
    """Rank, by Hamming distance, of the one item that is relevant to each query.

    Parameters
    ----------
    query_codes, base_codes : (n_queries, n_bits / 8) and (n_base, n_bits / 8) uint8
        Packed codes.
    items : (n_queries,) integers
        The row of the base that is relevant to each query.

    Returns
    -------
    (n_queries,) float64
        From 1 to n_base; half of a tie counts as nearer. Cost: one pass over the base per query.

    Examples
    --------
    The item and one other are at distance 1, none is nearer.

    >>> import numpy as np
    >>> base = np.array([[1], [2], [255]], dtype=np.uint8)
    >>> item_ranks(np.array([[0]], dtype=np.uint8), base, [1])
    array([1.5])
    """
    comparison = Comparison.of(query_codes, base_codes)
    rows = _checked_items(items, comparison.n_queries, comparison.n_base)
    differing = np.asarray(query_codes) ^ np.asarray(base_codes)[rows]
    distances = np.bitwise_count(differing).sum(axis=1, dtype=np.intp)
    ranks = np.empty(len(rows))
    for block, joint in comparison.histograms():
        counts, at = joint[:, 0], (np.arange(len(joint)), distances[block])
        own = counts[at]
        ranks[block] = 1 + (np.cumsum(counts, axis=1)[at] - own) + (own - 1) / 2
    return ranks


def asymmetric_item_ranks(projections: npt.NDArray[Any], base_codes: Any, items: Any) -> Array:
    """Rank of each query's item when projections are compared with the base's signs.

    The score is the inner product of a query's projection with the +1 and -1 of an item's code.
    Items with the same code are always tied. Parameters as in `item_ranks`.

    >>> import numpy as np
    >>> query = np.array([[0.9, 0.1, -1, -1, -1, -1, -1, -1]])
    >>> asymmetric_item_ranks(query, np.array([[1], [2], [1]], dtype=np.uint8), [1])
    array([3.])
    """
    values, distinct = check_projections(projections, base_codes)
    rows = _checked_items(items, len(values), len(distinct.columns))
    columns = distinct.columns[rows]
    parts, done = [np.empty(0)], 0
    for scores in asymmetric_scores(values, distinct.codes):
        parts.append(_ranks(scores, columns[done : done + len(scores)], distinct.counts))
        done += len(scores)
    return np.concatenate(parts)


def item_ranks_from_scores(
    scores: npt.NDArray[Any] | Iterable[npt.NDArray[Any]], items: Any
) -> Array:
    """Rank of each query's item by scores, highest first.

    ``scores`` are (n_queries, n_base), or blocks of consecutive queries, in order; ``items`` the
    column that is relevant to each query. Infinity is a score, NaN is not.

    >>> import numpy as np
    >>> item_ranks_from_scores(np.array([[0.5, 0.5, 0.9]]), [0])
    array([2.5])
    """
    given, parts = np.asarray(items), [np.empty(0)]
    for start, block in checked_blocks(scores, len(given), None):
        n, n_base = block.shape
        rows = _checked_items(given[start : start + n], n, n_base)
        parts.append(_ranks(block, rows, np.ones(n_base)))
    return np.concatenate(parts)


def mean_reciprocal_rank(ranks: Any) -> float:
    """Return the mean of 1 / rank over at least one query.

    >>> mean_reciprocal_rank([1.0, 2.0])
    0.75
    """
    return mean_over_queries(1 / _checked_ranks(ranks))


def found_at_k(ranks: Any, k: int) -> float:
    """Return the share of queries whose item is among the first k: recall at k of one item.

    >>> found_at_k([1.0, 10.5, 3.0], 10)
    0.6666666666666666
    """
    places = check_places(k)
    return mean_over_queries((_checked_ranks(ranks) <= places).astype(np.float64))


def neighbour_recall(
    nearest: npt.NDArray[np.integer[Any]],
    base_codes: Any,
    *,
    codes: Any = None,
    projections: npt.NDArray[Any] | None = None,
) -> float:
    """Share of the nearest k items of each query that are among its first k hits.

    By Hamming distance (``codes`` of the queries), the mean over all orders of tied items; or by
    ``projections``, the older of two tied items first.

    Parameters
    ----------
    nearest : (n_queries, k) positions of the items that are nearest by another measure

    Examples
    --------
    >>> import numpy as np
    >>> base = np.array([[1], [2], [255]], dtype=np.uint8)
    >>> neighbour_recall(np.array([[1]]), base, codes=np.array([[0]], dtype=np.uint8))
    0.5
    """
    k = nearest.shape[1]
    if projections is not None:
        values, distinct = check_projections(projections, base_codes)
        blocks = asymmetric_scores(values, distinct.codes)
        first = np.concatenate([first_of_scores(each[:, distinct.columns], k) for each in blocks])
        return float((first[:, :, None] == nearest[:, None, :]).any(axis=1).mean())
    comparison, base = Comparison.of(codes, base_codes), check_codes(base_codes)
    shares = np.empty(len(nearest))
    for rows, joint in comparison.histograms():
        counts = joint[:, 0]
        before = np.cumsum(counts, axis=1) - counts
        share = ratio(np.clip(k - before, 0, counts), counts)  # found at each distance
        differing = codes[rows][:, None, :] ^ base[nearest[rows]]
        distances = np.bitwise_count(differing).sum(axis=2, dtype=np.intp)
        shares[rows] = np.take_along_axis(share, distances, axis=1).mean(axis=1)
    return float(shares.mean())


def _ranks(scores: npt.NDArray[Any], columns: Rows, counts: Array) -> Array:
    """Return the ranks of the items in ``columns`` when column j stands for counts[j] items."""
    own = scores[np.arange(len(scores)), columns][:, None]
    above = (scores > own) @ counts
    tied = (scores == own) @ counts - 1
    return np.asarray(1 + above + tied / 2, dtype=np.float64)


def _checked_items(items: Any, n_queries: int, n_base: int) -> Rows:
    rows = np.asarray(items)
    if rows.size == 0:
        rows = rows.astype(np.intp)
    if rows.dtype.kind not in "iu" or rows.shape != (n_queries,):
        raise InputError(
            f"items must be {n_queries} integers, one row of the base for each query, got "
            f"{rows.dtype} of shape {rows.shape}"
        )
    if rows.size and (rows.min() < 0 or rows.max() >= n_base):
        wrong = int(rows.min() if rows.min() < 0 else rows.max())
        raise InputError(f"items holds {wrong}; expected rows of the base, from 0 to {n_base - 1}")
    return rows.astype(np.intp)


def _checked_ranks(ranks: Any) -> Array:
    values = np.asarray(ranks)
    if values.ndim != 1 or values.dtype.kind not in "iuf":
        raise InputError(f"ranks must be a list of numbers, got {values.dtype} {values.shape}")
    if values.size and not values.min() >= 1:
        raise InputError(f"ranks must be at least 1, got {values.min()}")
    return values.astype(np.float64)
