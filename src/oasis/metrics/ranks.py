"""The rank of one relevant item: known-item search, by codes or by scores.

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
from oasis.metrics.columns import Rows, to_columns
from oasis.metrics.comparison import check_code_pair, distance_histograms
from oasis.metrics.scores import (
    DistinctCodes,
    asymmetric_scores,
    check_projections,
    check_score_block,
)
from oasis.metrics.ties import check_places, mean_over_queries


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
        From 1 to n_base; half of a tie counts as nearer.

    Notes
    -----
    Cost: one pass over the base per query. Memory: a few arrays over the base.

    Examples
    --------
    The item and one other are at distance 1, none is nearer.

    >>> import numpy as np
    >>> base = np.array([[1], [2], [255]], dtype=np.uint8)
    >>> item_ranks(np.array([[0]], dtype=np.uint8), base, [1])
    array([1.5])
    """
    queries, base = check_code_pair(query_codes, base_codes)
    rows = _check_items(items, len(queries), len(base))
    distances = np.bitwise_count(queries ^ base[rows]).sum(axis=1, dtype=np.intp)
    ranks = np.empty(len(queries))
    columns = to_columns(base)
    for block, counts in distance_histograms(to_columns(queries), columns, base.shape[1] * 8):
        at = np.arange(len(counts))
        own = counts[at, distances[block]]
        up_to = np.cumsum(counts, axis=1)[at, distances[block]]
        ranks[block] = 1 + (up_to - own) + (own - 1) / 2
    return ranks


def asymmetric_item_ranks(projections: npt.NDArray[Any], base_codes: Any, items: Any) -> Array:
    """Rank of each query's item when projections are compared with the base's signs.

    The score is the inner product of a query's projection with the +1 and -1 of an item's code.
    Items with the same code are always tied.

    Parameters
    ----------
    projections : (n_queries, n_bits) float32 or float64
        Finite numbers; the product is computed in their type.
    base_codes, items
        As in `item_ranks`.

    Returns
    -------
    (n_queries,) float64

    Examples
    --------
    >>> import numpy as np
    >>> query = np.array([[0.9, 0.1, -1, -1, -1, -1, -1, -1]])
    >>> asymmetric_item_ranks(query, np.array([[1], [2], [1]], dtype=np.uint8), [1])
    array([3.])
    """
    codes = check_codes(base_codes)
    values = check_projections(projections, codes.shape[1] * 8)
    rows = _check_items(items, len(values), len(codes))
    distinct = DistinctCodes.of(codes)
    columns, counts = distinct.columns[rows], distinct.counts
    ranks = np.empty(len(values))
    done = 0
    for scores in asymmetric_scores(values, distinct.codes):
        part = slice(done, done + len(scores))
        ranks[part] = _ranks(scores, columns[part], counts)
        done = part.stop
    return ranks


def item_ranks_from_scores(
    scores: npt.NDArray[Any] | Iterable[npt.NDArray[Any]], items: Any
) -> Array:
    """Rank of each query's item by scores, highest first.

    Parameters
    ----------
    scores : (n_queries, n_base) array, or an iterable of blocks (b, n_base)
        Blocks of consecutive queries, in order; a generator keeps only one of them in memory.
        Infinity is a score, NaN is not.
    items : (n_queries,) integers
        The column that is relevant to each query.

    Examples
    --------
    >>> import numpy as np
    >>> item_ranks_from_scores(np.array([[0.5, 0.5, 0.9]]), [0])
    array([2.5])
    """
    given = np.asarray(items)
    ranks = np.empty(given.shape[:1])
    n_columns: int | None = None
    done = 0
    for block in [scores] if isinstance(scores, np.ndarray) else scores:
        checked = check_score_block(block, done, n_columns)
        n_columns = checked.shape[1]
        if n_columns and done + len(checked) <= len(given):
            part = slice(done, done + len(checked))
            rows = _check_items(given[part], len(checked), n_columns)
            ranks[part] = _ranks(checked, rows, np.ones(n_columns))
        done += len(checked)
    _check_items(given, done, n_columns or 0)
    return ranks


def mean_reciprocal_rank(ranks: Any) -> float:
    """Return the mean of 1 / rank over at least one query.

    >>> mean_reciprocal_rank([1.0, 2.0])
    0.75
    """
    return mean_over_queries(1 / _check_ranks(ranks))


def found_at_k(ranks: Any, k: int) -> float:
    """Return the share of queries whose item is among the first k: recall at k of one item.

    >>> found_at_k([1.0, 10.5, 3.0], 10)
    0.6666666666666666
    """
    places = check_places(k, "k")
    return mean_over_queries((_check_ranks(ranks) <= places).astype(np.float64))


def _ranks(scores: npt.NDArray[Any], columns: Rows, counts: Array) -> Array:
    """Return the ranks of the items in ``columns`` when column j stands for counts[j] items."""
    own = scores[np.arange(len(scores)), columns][:, None]
    above = (scores > own) @ counts
    tied = (scores == own) @ counts - 1
    return np.asarray(1 + above + tied / 2, dtype=np.float64)


def _check_items(items: Any, n_queries: int, n_base: int) -> Rows:
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


def _check_ranks(ranks: Any) -> Array:
    values = np.asarray(ranks)
    if values.ndim != 1 or values.dtype.kind not in "iuf":
        raise InputError(f"ranks must be a list of numbers, got {values.dtype} {values.shape}")
    if values.size and not values.min() >= 1:
        raise InputError(f"ranks must be at least 1, got {values.min()}")
    return values.astype(np.float64)
