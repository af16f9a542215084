"""MAP of a random ranking: the baseline to print beside MAP."""

from __future__ import annotations

from typing import Any

import numpy as np

from oasis.metrics.columns import group_equal_rows
from oasis.metrics.relevance import check_label_pair
from oasis.metrics.ties import (
    check_places,
    expected_average_precision,
    harmonic_numbers,
    mean_over_queries,
)


def chance_map(query_labels: Any, base_labels: Any, topk: int | None = None) -> float:
    """Return the mean of MAP over all orders of the base, which does not depend on codes.

    Parameters
    ----------
    query_labels, base_labels : (n_queries, n_classes) and (n_base, n_classes)
        Zeros and ones, dense or sparse; at least one query.
    topk : int, optional
        Chance of MAP@k, with the denominator min(R, topk).

    Returns
    -------
    float
        For a query with R similar items among N it is
        ``(H_N + (R-1)/(N-1) (N - H_N)) / N``, H_N the harmonic number: the whole base as
        one tied group. 0 where R is 0.

    Notes
    -----
    Cost: one pass over the distinct label sets of the base per distinct label set of the queries.

    Examples
    --------
    One similar item among two comes first or second.

    >>> chance_map([[1, 0]], [[1, 0], [0, 1]])
    0.75
    """
    places = None if topk is None else check_places(topk, "topk")
    queries, base = check_label_pair(query_labels, base_labels)
    order, starts = group_equal_rows(base.columns)
    distinct, counts = base.take(order[starts]), np.diff(starts, append=len(order))
    n_similar = np.zeros(len(queries))
    for rows in queries.groups():
        n_similar[rows] = counts[distinct.similar_to(queries, int(rows[0]))].sum()
    values = expected_average_precision(
        np.full((len(queries), 1), float(len(base))),
        n_similar[:, None],
        harmonic_numbers(len(base)),
        places,
    )
    return mean_over_queries(values)
