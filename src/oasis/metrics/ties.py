"""Measures of one ranking: with ties, the mean over all orders of the tied items, or one order.

A ranking with ties is a row of tied groups, best first: ``counts[i, j]`` items in group j of query
i, of which ``hits[i, j]`` are similar to the query. Groups may be empty. Every figure is a closed
form over the groups, exact to rounding; nothing is sampled or enumerated.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

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


def check_places(k: Any, name: str = "k") -> int:
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


def ratio(part: Array, whole: Array) -> Array:
    """Return part / whole, and 0 where the whole is 0."""
    result: Array = np.divide(part, whole, out=np.zeros_like(part), where=whole > 0.0)
    return result


class AveragePrecision:
    """Average precision over a base of ``n_base`` items, cut after ``topk`` places if given.

    Then the sum of precisions is divided by min(R, topk), R being the number of similar items.

    >>> import numpy as np
    >>> measure = AveragePrecision(3)
    >>> measure.of_order(np.array([True, False, True]))
    0.8333333333333333
    >>> two_tied_one_similar = np.array([[2.0]]), np.array([[1.0]])
    >>> measure.expected(*two_tied_one_similar)
    array([0.75])
    """

    def __init__(self, n_base: int, topk: int | None = None) -> None:
        self.topk = None if topk is None else check_places(topk, "topk")
        self._places = np.arange(1.0, n_base + 1.0)
        self._reciprocals = 1 / self._places
        self._harmonic = np.concatenate([[0.0], np.cumsum(self._reciprocals)])  # H_0 to H_n

    def expected(self, counts: Array, hits: Array) -> Array:
        """Return each query's average precision, averaged over all orders of tied items.

        Parameters
        ----------
        counts, hits : (n_queries, n_groups)
            Whole numbers, groups from best to worst.

        Notes
        -----
        A group of g items, q similar, after t items of which s similar, adds
        ``sum_{i=1..h} (q/g) (s + 1 + (i-1) a) / (t+i)`` with ``a = (q-1)/(g-1)``, where h is the
        number of its places that count (g, unless topk cuts the group). The sum over i is
        ``h a + (s + 1 - (t+1) a) (H_{t+h} - H_t)``.
        """
        t = np.cumsum(counts, axis=1) - counts
        s = np.cumsum(hits, axis=1) - hits
        h = counts if self.topk is None else np.clip(self.topk - t, 0.0, counts)
        a = np.divide(hits - 1.0, counts - 1.0, out=np.zeros_like(counts), where=counts > 1.0)
        reciprocals = self._harmonic[(t + h).astype(np.intp)] - self._harmonic[t.astype(np.intp)]
        total = (ratio(hits, counts) * (h * a + (s + 1.0 - (t + 1.0) * a) * reciprocals)).sum(
            axis=1
        )
        n_similar = hits.sum(axis=1)
        return ratio(total, n_similar if self.topk is None else np.minimum(n_similar, self.topk))

    def of_order(self, similar: npt.NDArray[np.bool_]) -> float:
        """Return that of one query, given which of the base items are similar, best first."""
        n_similar = int(np.count_nonzero(similar))
        best = n_similar if self.topk is None else min(n_similar, self.topk)
        if best == 0:
            return 0.0
        # a reciprocal and a product are faster than a quotient; both round, by 1e-16.
        # mode="clip" skips a check of the positions, which are all valid
        found = np.flatnonzero(similar[: self.topk])
        reciprocals = self._reciprocals.take(found, mode="clip")
        # without BLAS, which would use several threads for so short a sum
        return float(np.einsum("i,i->", self._places[: len(found)], reciprocals)) / best


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
    end = np.cumsum(counts, axis=1)
    stop = np.minimum(end, k).astype(np.intp)
    start = np.minimum(end - counts, k).astype(np.intp)
    result: Array = (ratio(totals, counts) * (weight_sums[stop] - weight_sums[start])).sum(axis=1)
    return result
