"""Measures of the first hits: success at k, hits by scores, and recall of float neighbours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from oasis.arrays import Array
from oasis.codes import check_codes
from oasis.errors import InputError
from oasis.metrics.columns import to_columns
from oasis.metrics.comparison import check_code_pair, check_comparison, distance_histograms
from oasis.metrics.relevance import check_label_pair
from oasis.metrics.scores import asymmetric_scores, check_projections, check_score_block
from oasis.metrics.ties import check_places


def success_at_k(
    query_codes: Any, base_codes: Any, query_labels: Any, base_labels: Any, k: int
) -> Array:
    """Share of orders of tied items in which the first k hits have a similar one, for each query.

    By Hamming distance. Without ties it is 0 or 1.

    Returns
    -------
    (n_queries,) float64

    Examples
    --------
    One of two tied items is similar.

    >>> import numpy as np
    >>> query, base = np.array([[0]], dtype=np.uint8), np.array([[1], [2]], dtype=np.uint8)
    >>> success_at_k(query, base, [[1, 0]], [[0, 1], [1, 0]], 1)
    array([0.5])
    """
    places = check_places(k, "k")
    comparison = check_comparison(query_codes, base_codes, query_labels, base_labels)
    found = np.zeros(comparison.n_queries)
    for part in comparison.tie_groups():
        before = np.cumsum(part.counts, axis=1) - part.counts
        free = np.clip(places - before, 0, part.counts)  # places that each group fills
        whole = (part.hits > 0) & (free >= part.counts)
        misses = part.counts - part.hits
        # no hit among the free places of a group: C(misses, free) / C(counts, free)
        possible = misses >= free
        log_none = (
            gammaln(misses + 1)
            - gammaln(np.where(possible, misses - free, 0) + 1)
            - gammaln(part.counts + 1)
            + gammaln(part.counts - free + 1)
        )
        none = np.where(possible, np.exp(log_none), 0.0)
        found[part.rows] = 1 - np.where(whole, 0.0, none).prod(axis=1)
    return found


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
    places = check_places(k, "k")
    queries, base = check_label_pair(query_labels, base_labels)
    n = min(places, len(base))
    found = np.zeros((len(queries), n), dtype=np.bool_)
    done = 0
    for block in [scores] if isinstance(scores, np.ndarray) else scores:
        values = check_score_block(block, done, None if base_groups is not None else len(base))
        if base_groups is not None:
            values = values[:, base_groups]
        order = _first(values, n)
        labels = queries.take(slice(done, done + len(values)))
        for rows in labels.groups():
            found[done + rows] = base.similar_to(labels, int(rows[0]))[order[rows]]
        done += len(values)
    if done != len(queries):
        raise InputError(f"scores have {done} rows; expected {len(queries)}")
    return found


def asymmetric_hits(
    projections: npt.NDArray[Any], base_codes: Any, query_labels: Any, base_labels: Any, k: int
) -> npt.NDArray[np.bool_]:
    """Return `hits_from_scores` of queries' projections with the signs of the base's codes.

    >>> import numpy as np
    >>> query = np.array([[0.9, 0.1, -1, -1, -1, -1, -1, -1]])
    >>> asymmetric_hits(query, np.array([[1], [2]], dtype=np.uint8), [[1, 0]], np.eye(2), 2)
    array([[ True, False]])
    """
    codes = check_codes(base_codes)
    values = check_projections(projections, codes.shape[1] * 8)
    return hits_from_scores(asymmetric_scores(values, codes), query_labels, base_labels, k)


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
        stored = check_codes(base_codes)
        values = check_projections(projections, stored.shape[1] * 8)
        first = np.concatenate([_first(each, k) for each in asymmetric_scores(values, stored)])
        return float((first[:, :, None] == nearest[:, None, :]).any(axis=1).mean())
    queries, base = check_code_pair(codes, base_codes)
    shares = np.empty(len(queries))
    columns = to_columns(base)
    for rows, counts in distance_histograms(to_columns(queries), columns, base.shape[1] * 8):
        before = np.cumsum(counts, axis=1) - counts
        share = np.clip(k - before, 0, counts) / np.maximum(counts, 1)  # found at each distance
        differing = queries[rows][:, None, :] ^ base[nearest[rows]]
        distances = np.bitwise_count(differing).sum(axis=2, dtype=np.intp)
        shares[rows] = np.take_along_axis(share, distances, axis=1).mean(axis=1)
    return float(shares.mean())


def _first(scores: npt.NDArray[Any], n: int) -> npt.NDArray[np.intp]:
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
