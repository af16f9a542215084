"""Measures of a ranking by real-valued scores: rankers, and asymmetric search.

Higher is better. Scores are processed block by block. Items with the same code have the same score,
so each distinct code is scored once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array
from oasis.codes import Codes, check_codes, unpack
from oasis.errors import InputError
from oasis.metrics.relevance import LabelSets, Rows, check_label_pair, group_equal_rows, to_columns
from oasis.metrics.ties import (
    AveragePrecision,
    Ties,
    check_places,
    check_ties,
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
    is_stable = check_ties(ties) == "stable"
    queries, base = check_label_pair(query_labels, base_labels)
    measure = AveragePrecision(len(base), topk)
    columns = None if base_groups is None else _checked_groups(base_groups, len(base))
    result = np.zeros(len(queries))
    for start, block in checked_blocks(scores, len(queries), len(base), columns):
        n = block.shape[1]
        counts = np.ones(n) if columns is None else _sums(columns, None, n)
        for rows, similar in _similar(queries, base, start, len(block)):
            hits = similar if columns is None else _sums(columns, similar, n)
            for row in rows:
                ranks = _dense_ranks(block[row])
                if is_stable:
                    of_items = ranks if columns is None else ranks[columns]
                    # a stable sort of the narrowest type: of at most 16 bits it is a radix sort
                    narrow = of_items.astype(np.min_scalar_type(int(of_items.max(initial=0))))
                    value = measure.of_order(similar[np.argsort(narrow, kind="stable")])
                else:
                    groups = _sums(ranks, counts)[None], _sums(ranks, hits)[None]
                    value = measure.expected(*groups)[0]
                result[start + row] = value
    return result


def hits_from_scores(
    scores: npt.NDArray[Any] | Iterable[npt.NDArray[Any]],
    query_labels: Any,
    base_labels: Any,
    k: int,
    base_groups: npt.NDArray[np.integer[Any]] | None = None,
) -> npt.NDArray[np.bool_]:
    """Return which of the first k items by scores are similar, (n_queries, min(k, n_base)).

    Highest first; the older of two items with the same score goes first. The mean over columns is
    precision at k, ``any`` is success at k. Parameters are those of
    `average_precision_from_scores`.

    >>> import numpy as np
    >>> hits_from_scores(np.array([[0.1, 0.9]]), [[1, 0]], [[1, 0], [0, 1]], 2)
    array([[False,  True]])
    """
    places = check_places(k)
    queries, base = check_label_pair(query_labels, base_labels)
    columns = None if base_groups is None else _checked_groups(base_groups, len(base))
    n = min(places, len(base))
    found = np.zeros((len(queries), n), dtype=np.bool_)
    for start, block in checked_blocks(scores, len(queries), len(base), columns):
        order = first_of_scores(block if columns is None else block[:, columns], n)
        for rows, similar in _similar(queries, base, start, len(block)):
            found[start + rows] = similar[order[rows]]
    return found


def chance_map(query_labels: Any, base_labels: Any, topk: int | None = None) -> float:
    """Return the mean of MAP over all orders of the base, which does not depend on codes.

    For a query with R similar items among N it is ``(H_N + (R-1)/(N-1) (N - H_N)) / N``, H_N the
    harmonic number: the whole base as one tied group. With ``topk``: chance of MAP@k.

    Examples
    --------
    One similar item among two comes first or second.

    >>> chance_map([[1, 0]], [[1, 0], [0, 1]])
    0.75
    """
    queries, base = check_label_pair(query_labels, base_labels)
    measure = AveragePrecision(len(base), topk)
    n_similar = np.zeros((len(queries), 1))
    for rows, similar in _similar(queries, base, 0, len(queries)):
        n_similar[rows] = np.count_nonzero(similar)
    every = np.full_like(n_similar, len(base))
    return mean_over_queries(measure.expected(every, n_similar))


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
    values, distinct = check_projections(projections, base_codes)
    blocks = asymmetric_scores(values, distinct.codes)
    return average_precision_from_scores(
        blocks, query_labels, base_labels, ties, topk, distinct.columns
    )


def asymmetric_hits(
    projections: npt.NDArray[Any], base_codes: Any, query_labels: Any, base_labels: Any, k: int
) -> npt.NDArray[np.bool_]:
    """Return `hits_from_scores` of queries' projections with the signs of the base's codes.

    >>> import numpy as np
    >>> query = np.array([[0.9, 0.1, -1, -1, -1, -1, -1, -1]])
    >>> asymmetric_hits(query, np.array([[1], [2]], dtype=np.uint8), [[1, 0]], np.eye(2), 2)
    array([[ True, False]])
    """
    values, distinct = check_projections(projections, base_codes)
    blocks = asymmetric_scores(values, distinct.codes)
    return hits_from_scores(blocks, query_labels, base_labels, k, distinct.columns)


class DistinctCodes(NamedTuple):
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


def check_projections(projections: Any, base_codes: Any) -> tuple[npt.NDArray[Any], DistinctCodes]:
    """Check the projections of queries and the codes of a base, and find the distinct codes."""
    codes = check_codes(base_codes)
    values = np.asarray(projections)
    n_bits = codes.shape[1] * 8
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
    order, starts = group_equal_rows(to_columns(codes))
    sizes = np.diff(starts, append=len(order))
    columns = np.empty(len(codes), dtype=np.intp)
    columns[order] = np.repeat(np.arange(len(starts)), sizes)
    distinct = DistinctCodes(codes[order[starts]], columns, sizes.astype(np.float64))
    is_float = values.dtype in (np.float32, np.float64)
    return values if is_float else values.astype(np.float64), distinct


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


def first_of_scores(scores: npt.NDArray[Any], n: int) -> Rows:
    """Return the columns of the n highest scores of each row, the first of equal ones first."""
    if n < scores.shape[1]:
        # the n-th highest score bounds what can be among the first; ties with it are few
        bound = np.partition(scores, scores.shape[1] - n, axis=1)[:, -n]
        found = np.empty((len(scores), n), dtype=np.intp)
        for row, least in enumerate(bound):
            some = np.flatnonzero(scores[row] >= least)
            found[row] = some[np.argsort(-scores[row, some], kind="stable")[:n]]
        return found
    return np.argsort(-scores, axis=1, kind="stable")[:, :n]


def checked_blocks(
    scores: Any, n_queries: int, n_base: int | None, columns: Rows | None = None
) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Yield the first query and the scores of each block; raise unless there is a row for each."""
    n_columns = n_base if columns is None else None
    done = 0
    for block in [scores] if isinstance(scores, np.ndarray) else scores:
        checked = np.asarray(block)
        if checked.dtype.kind not in "iuf" or checked.ndim != 2:
            raise InputError(
                "scores must be real numbers of shape (n_queries, n_columns), got "
                f"{checked.dtype} {checked.shape}"
            )
        if n_columns is not None and checked.shape[1] != n_columns:
            raise InputError(
                f"scores have {checked.shape[1]} columns from row {done} on, expected {n_columns}; "
                "without base_groups there is one column for each base item"
            )
        if np.isnan(checked).any():
            row, column = (int(i) for i in np.argwhere(np.isnan(checked))[0])
            raise InputError(f"scores hold NaN at row {done + row}, column {column}")
        n_columns = checked.shape[1]
        if columns is not None and columns.size and columns.max() >= n_columns:
            raise InputError(
                f"base_groups holds {columns.max()}, but scores have {n_columns} columns, from 0"
            )
        done += len(checked)
        if done > n_queries:
            break
        yield done - len(checked), checked
    if done != n_queries:
        raise InputError(
            f"scores have {'more than ' * (done > n_queries)}{min(done, n_queries)} rows; expected "
            f"{n_queries}, one for each query"
        )


def _similar(
    queries: LabelSets, base: LabelSets, start: int, n: int
) -> Iterator[tuple[Rows, npt.NDArray[np.bool_]]]:
    """Yield queries of equal labels, counted from ``start``, and which base items are similar."""
    labels = queries.take(slice(start, start + n))
    for rows in labels.groups():
        yield rows, base.similar_to(labels, int(rows[0]))


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


def _checked_groups(base_groups: Any, n_base: int) -> Rows:
    columns = np.asarray(base_groups)
    if columns.shape != (n_base,):
        raise InputError(
            f"base_labels has {n_base} rows, expected one for each base item of {columns.shape}"
        )
    if columns.dtype.kind not in "iu" or (columns.size and columns.min() < 0):
        raise InputError("base_groups must be columns of scores, integers from 0")
    return columns.astype(np.intp)
