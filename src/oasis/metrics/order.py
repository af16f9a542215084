"""Measures of a ranking without ties: one order of the base."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array


class Places(NamedTuple):
    """The places of a ranking, made once for all queries.

    Attributes
    ----------
    numbers : (n_base,), 1.0, 2.0, 3.0, ...
    reciprocals : (n_base,), one over these
    """

    numbers: Array
    reciprocals: Array

    @classmethod
    def of(cls, n_base: int) -> Places:
        """Return the places of so many items."""
        numbers = np.arange(1.0, n_base + 1.0)
        return cls(numbers, 1 / numbers)


def order_average_precision(
    similar: npt.NDArray[np.bool_], places: Places, topk: int | None = None
) -> float:
    """Return the average precision of one query, given which items are similar, best first.

    Parameters
    ----------
    similar : (n_base,) bool
    places : those of n_base items
    topk : int, optional
        Only the first ``topk`` places count, and the sum is divided by min(R, topk).

    >>> import numpy as np
    >>> order_average_precision(np.array([True, False, True]), Places.of(3))
    0.8333333333333333
    """
    n_similar = int(np.count_nonzero(similar))
    best = n_similar if topk is None else min(n_similar, topk)
    if best == 0:
        return 0.0
    # a reciprocal and a product are faster than a quotient; both round, by 1e-16 of a precision.
    # mode="clip" skips a check of the positions, which are all valid
    found = np.flatnonzero(similar[:topk])
    reciprocals = places.reciprocals.take(found, mode="clip")
    # without BLAS, which would use several threads for so short a sum
    return float(np.einsum("i,i->", places.numbers[: len(found)], reciprocals)) / best
