"""Average precision of a ranking by real-valued scores: rankers, and asymmetric search.

Higher is better. Scores are processed block by block. Items with the same code have the same score,
so each distinct code is scored once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array
from oasis.codes import Codes, check_codes, unpack
from oasis.errors import InputError
from oasis.metrics.columns import Rows, group_equal_rows, to_columns
from oasis.metrics.order import Places, order_average_precision
from oasis.metrics.relevance import LabelSets, check_label_pair
from oasis.metrics.ties import (
    Ties,
    check_places,
    check_ties,
    expected_average_precision,
    harmonic_numbers,
    mean_over_queries,
)

_SCORE_CELLS = 1 << 23
_SIGN_CELLS = 1 << 20


def average_precision_from_scores(
    scores: npt.NDArray[Any] | Iterable[npt.NDArray[Any]],
    query_labels: Any,
    base_labels: Any,
    ties: Ties = "expected",
    topk: int | None = None,
    base_groups: npt.NDArray[np.integer[Any]] | None = None,
) -> Array:
    """Average precision of each query when the base is ranked by scores, highest first.

    Parameters
    ----------
    scores : (n_queries, n_columns) array, or an iterable of blocks (b, n_columns)
        Blocks of consecutive queries, in order; a generator keeps only one of them in memory.
        Infinity is a score, NaN is not.
    query_labels, base_labels : (n_queries, n_classes) and (n_base, n_classes)
        Zeros and ones, dense or sparse. Two samples are similar when they share a label.
    ties : {"expected", "stable"}
        Items of equal score: the mean over all their orders, or the older item first.
    topk : int, optional
        Count the first ``topk`` places only; the denominator is then min(R, topk).
    base_groups : (n_base,) integers, optional
        The column that holds each base item's score. Without it, column j is base item j.

    Returns
    -------
    (n_queries,) float64
        In [0, 1]; 0 for a query without a similar item, and for every query of an empty base.

    Notes
    -----
    Cost: for each query a sort of its columns; for "stable" one of the base as well.

    Examples
    --------
    >>> import numpy as np
    >>> average_precision_from_scores(np.array([[0.1, 0.9]]), [[1, 0]], [[1, 0], [0, 1]])
    array([0.5])
    """
    ties = check_ties(ties)
    places = None if topk is None else check_places(topk, "topk")
    queries, base = check_label_pair(query_labels, base_labels)
    columns = None if base_groups is None else _check_groups(base_groups, len(base))
    blocks = [scores] if isinstance(scores, np.ndarray) else scores
    return _average_precision(blocks, queries, base, columns, ties, places)


def mean_average_precision_from_scores(
    scores: npt.NDArray[Any] | Iterable[npt.NDArray[Any]],
    query_labels: Any,
    base_labels: Any,
    ties: Ties = "expected",
    topk: int | None = None,
    base_groups: npt.NDArray[np.integer[Any]] | None = None,
) -> float:
    """MAP by scores: the mean of `average_precision_from_scores`, over at least one query.

    Examples
    --------
    >>> import numpy as np
    >>> blocks = (np.array([[0.1, score]]) for score in (0.9, 0.0))
    >>> mean_average_precision_from_scores(blocks, [[1, 0], [1, 0]], [[1, 0], [0, 1]])
    0.75
    """
    return mean_over_queries(
        average_precision_from_scores(scores, query_labels, base_labels, ties, topk, base_groups)
    )


def asymmetric_average_precision(
    projections: npt.NDArray[Any],
    base_codes: Any,
    query_labels: Any,
    base_labels: Any,
    ties: Ties = "expected",
    topk: int | None = None,
) -> Array:
    """Average precision of each query when its projection is compared with the base's signs.

    The score of a base item is the inner product of the query's real-valued projection with the
    +1 and -1 of the item's code. Items with the same code are always tied.

    Parameters
    ----------
    projections : (n_queries, n_bits) float32 or float64
        Finite numbers; the product is computed in their type.
    base_codes : (n_base, n_bits / 8) uint8
    query_labels, base_labels, ties, topk
        As in `average_precision_from_scores`.

    Returns
    -------
    (n_queries,) float64

    Notes
    -----
    Cost: a matrix product of the queries with the distinct codes, in blocks, and for each query a
    sort of the distinct codes.

    Examples
    --------
    Bit 0 weighs more than bit 1, so the first base item ranks higher, although each of them differs
    from the query's signs in one bit.

    >>> import numpy as np
    >>> query = np.array([[0.9, 0.1, -1, -1, -1, -1, -1, -1]])
    >>> base = np.array([[1], [2]], dtype=np.uint8)
    >>> asymmetric_average_precision(query, base, [[1, 0]], [[1, 0], [0, 1]])
    array([1.])
    """
    ties = check_ties(ties)
    places = None if topk is None else check_places(topk, "topk")
    codes = check_codes(base_codes)
    values = check_projections(projections, codes.shape[1] * 8)
    queries, base = check_label_pair(query_labels, base_labels, len(values), len(codes))
    distinct = DistinctCodes.of(codes)
    blocks = asymmetric_scores(values, distinct.codes)
    return _average_precision(blocks, queries, base, distinct.columns, ties, places)


@dataclass(frozen=True, eq=False)
class DistinctCodes:
    """The distinct codes of some items, so that equal codes get the same score.

    Attributes
    ----------
    codes : (n_distinct, n_bits / 8) uint8
    columns : (n,)
        Row of each item's code in ``codes``.
    counts : (n_distinct,) float64
        Number of items with each code.
    """

    codes: Codes
    columns: Rows
    counts: Array

    @classmethod
    def of(cls, codes: Codes) -> Self:
        """Find the distinct ones among checked codes. Cost: one sort."""
        order, starts = group_equal_rows(to_columns(codes))
        sizes = np.diff(starts, append=len(order))
        columns = np.empty(len(codes), dtype=np.intp)
        columns[order] = np.repeat(np.arange(len(starts)), sizes)
        return cls(codes[order[starts]], columns, sizes.astype(np.float64))


def asymmetric_scores(values: npt.NDArray[Any], codes: Codes) -> Iterator[npt.NDArray[Any]]:
    """Yield the scores of blocks of queries against all codes, signs unpacked block by block."""
    n_codes, n_bits = len(codes), values.shape[1]
    n_rows, n_signs = max(1, _SCORE_CELLS // max(1, n_codes)), max(1, _SIGN_CELLS // n_bits)
    for start in range(0, len(values), n_rows):
        part = values[start : start + n_rows]
        scores = np.empty((len(part), n_codes), dtype=values.dtype)
        for first in range(0, n_codes, n_signs):
            signs = unpack(codes[first : first + n_signs]).astype(values.dtype)
            scores[:, first : first + n_signs] = part @ signs.T
        yield scores


def _average_precision(
    blocks: Iterable[npt.NDArray[Any]],
    queries: LabelSets,
    base: LabelSets,
    columns: Rows | None,
    ties: Ties,
    topk: int | None,
) -> Array:
    result = np.zeros(len(queries))
    harmonic = harmonic_numbers(len(base))
    places = Places.of(len(base))
    n_columns = len(base) if columns is None else None
    done = 0
    for block in blocks:
        scores = check_score_block(block, done, n_columns)
        n_columns = scores.shape[1]
        _check_columns_exist(columns, n_columns)
        labels = queries.take(slice(done, done + len(scores)))
        if len(labels) < len(scores):
            raise InputError(
                f"scores go on after row {len(queries)}; expected {len(queries)}, "
                "one for each row of query_labels"
            )
        counts = np.ones(n_columns) if columns is None else _sums(columns, None, n_columns)
        for rows in labels.groups():
            similar = base.similar_to(labels, int(rows[0]))
            hits = similar if columns is None else _sums(columns, similar, n_columns)
            for row in rows:
                ranks = _dense_ranks(scores[row])
                if ties == "expected":
                    value = expected_average_precision(
                        _sums(ranks, counts)[None, :],
                        _sums(ranks, hits)[None, :],
                        harmonic,
                        topk,
                    )[0]
                else:
                    item_ranks = ranks if columns is None else ranks[columns]
                    order = np.argsort(_narrow(item_ranks), kind="stable")
                    value = order_average_precision(similar[order], places, topk)
                result[done + row] = value
        done += len(scores)
    if done != len(queries):
        raise InputError(
            f"scores have {done} rows; expected {len(queries)}, one for each row of query_labels"
        )
    return result


def _sums(groups: Rows, values: npt.NDArray[Any] | None, n_groups: int = 0) -> Array:
    """Return the sum of the values, or the number of items, in each group."""
    sums: npt.NDArray[Any] = np.bincount(groups, values, minlength=n_groups)
    return sums.astype(np.float64, copy=False)


def _dense_ranks(scores: npt.NDArray[Any]) -> Rows:
    """Return 0 for every highest score, 1 for every second highest, and so on."""
    order = np.argsort(scores)[::-1]
    in_order = scores[order]
    ranks = np.zeros(len(scores), dtype=np.intp)
    ranks[order[1:]] = np.cumsum(in_order[1:] != in_order[:-1])
    return ranks


def _narrow(ranks: Rows) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Return ranks in the narrowest type: a stable sort of at most 16 bits is a radix sort."""
    return ranks.astype(np.min_scalar_type(int(ranks.max(initial=0))))


def check_score_block(block: Any, start: int, n_columns: int | None) -> npt.NDArray[Any]:
    scores = np.asarray(block)
    if scores.dtype.kind not in "iuf":
        raise InputError(f"scores must be real numbers, got dtype {scores.dtype}")
    if scores.ndim != 2:
        raise InputError(f"scores must have shape (n_queries, n_columns), got {scores.shape}")
    if n_columns is not None and scores.shape[1] != n_columns:
        raise InputError(
            f"scores have {scores.shape[1]} columns from row {start} on, expected {n_columns}; "
            "without base_groups there is one column for each base item"
        )
    if np.isnan(scores).any():
        row, column = (int(i) for i in np.argwhere(np.isnan(scores))[0])
        raise InputError(f"scores hold NaN at row {start + row}, column {column}")
    return scores


def _check_groups(base_groups: Any, n_base: int) -> Rows:
    columns = np.asarray(base_groups)
    if columns.dtype.kind not in "iu" or columns.shape != (n_base,):
        raise InputError(
            f"base_groups must be {n_base} integers, one for each base item, got "
            f"{columns.dtype} of shape {columns.shape}"
        )
    if columns.size and columns.min() < 0:
        raise InputError(f"base_groups holds {columns.min()}; expected columns of scores, from 0")
    return columns.astype(np.intp)


def _check_columns_exist(columns: Rows | None, n_columns: int) -> None:
    if columns is not None and columns.size and columns.max() >= n_columns:
        raise InputError(
            f"base_groups holds {columns.max()}, but scores have {n_columns} columns, from 0"
        )


def check_projections(projections: Any, n_bits: int) -> npt.NDArray[Any]:
    values = np.asarray(projections)
    if values.dtype.kind not in "iuf":
        raise InputError(f"projections must be real numbers, got dtype {values.dtype}")
    if values.ndim != 2 or values.shape[1] != n_bits:
        raise InputError(
            f"projections must have shape (n_queries, {n_bits}) for base_codes of {n_bits} bits, "
            f"got {values.shape}"
        )
    if not np.isfinite(values).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(values))[0])
        raise InputError(
            f"projections hold {values[row, column]} at row {row}, column {column}; "
            "expected finite numbers"
        )
    return values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)
