"""Measures of a ranking with ties: the mean over all orders of the tied items.

A ranking is a row of tied groups, best first: ``counts[i, j]`` items in group j of query i, of
which ``hits[i, j]`` are similar to the query. Groups may be empty. Every figure is a closed form
over the groups, exact to rounding; nothing is sampled or enumerated.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from oasis.arrays import Array
from oasis.errors import InputError

Ties: TypeAlias = Literal["expected", "stable"]
"""How items at equal distance are ordered: the mean over all orders, or the older item first."""


def check_ties(ties: Any) -> Ties:
    """Return ``ties``; raise unless it is 'expected' or 'stable'."""
    for known in get_args(Ties):
        if isinstance(ties, str) and ties == known:
            return known  # type: ignore[no-any-return]
    raise InputError(f"ties must be 'expected' or 'stable', got {ties!r}")


def check_places(k: Any, name: str) -> int:
    """Return ``k``; raise unless it is an integer of at least 1."""
    if isinstance(k, (bool, np.bool_)) or not isinstance(k, (int, np.integer)) or k < 1:
        raise InputError(f"{name} must be a whole number of at least 1, got {k!r}")
    return int(k)


def check_has_queries(n_queries: int) -> None:
    """Raise if there are no queries to take a mean over."""
    if n_queries == 0:
        raise InputError("there are no queries; a mean needs at least one")


def mean_over_queries(values: Array) -> float:
    """Return the mean of one value per query, over at least one query."""
    check_has_queries(len(values))
    return float(values.mean())


def harmonic_numbers(n: int) -> Array:
    """Return H_0 to H_n, where H_j = 1 + 1/2 + ... + 1/j.

    >>> harmonic_numbers(2).tolist()
    [0.0, 1.0, 1.5]
    """
    table = np.zeros(n + 1)
    np.cumsum(1.0 / np.arange(1, n + 1), out=table[1:])
    return table


def expected_average_precision(
    counts: Array, hits: Array, harmonic: Array, topk: int | None = None
) -> Array:
    """Return each query's average precision, averaged over all orders of tied items.

    Parameters
    ----------
    counts, hits : (n_queries, n_groups)
        Whole numbers, groups from best to worst.
    harmonic : (at least n_base + 1,)
        `harmonic_numbers`.
    topk : int, optional
        Only the first ``topk`` places count, and R becomes min(R, topk).

    Notes
    -----
    A group of g items, q similar, after t items of which s similar, adds
    ``sum_{i=1..h} (q/g) (s + 1 + (i-1) a) / (t+i)`` with ``a = (q-1)/(g-1)``, where h is the number
    of its places that count (g, unless topk cuts the group). The sum over i is
    ``h a + (s + 1 - (t+1) a) (H_{t+h} - H_t)``.

    >>> import numpy as np
    >>> two_tied_one_similar = np.array([[2.0]]), np.array([[1.0]])
    >>> expected_average_precision(*two_tied_one_similar, harmonic_numbers(2))
    array([0.75])
    """
    t = np.cumsum(counts, axis=1) - counts
    s = np.cumsum(hits, axis=1) - hits
    h = counts if topk is None else np.clip(topk - t, 0.0, counts)
    a = np.divide(hits - 1.0, counts - 1.0, out=np.zeros_like(counts), where=counts > 1.0)
    share = np.divide(hits, counts, out=np.zeros_like(counts), where=counts > 0.0)
    reciprocals = harmonic[(t + h).astype(np.intp)] - harmonic[t.astype(np.intp)]
    total = (share * (h * a + (s + 1.0 - (t + 1.0) * a) * reciprocals)).sum(axis=1)
    n_similar = hits.sum(axis=1)
    best = n_similar if topk is None else np.minimum(n_similar, topk)
    result: Array = np.divide(total, best, out=np.zeros_like(total), where=best > 0.0)
    return result


def expected_sum(counts: Array, totals: Array, weight_sums: Array, k: int) -> Array:
    """Return the weighted sum over the first k places, averaged over all orders of tied items.

    Parameters
    ----------
    counts, totals : (n_queries, n_groups)
        Items in each group, and the sum of their values.
    weight_sums : (at least min(n_base, k) + 1,)
        ``weight_sums[j]`` is the sum of the weights of the first j places.

    >>> import numpy as np
    >>> expected_sum(np.array([[1.0, 4.0]]), np.array([[1.0, 2.0]]), np.arange(6.0), 3)
    array([2.])
    """
    mean = np.divide(totals, counts, out=np.zeros_like(totals), where=counts > 0.0)
    end = np.cumsum(counts, axis=1)
    stop = np.minimum(end, k).astype(np.intp)
    start = np.minimum(end - counts, k).astype(np.intp)
    result: Array = (mean * (weight_sums[stop] - weight_sums[start])).sum(axis=1)
    return result
