"""Measures of a ranking without ties: one order of the base."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array


def order_average_precision(
    similar: npt.NDArray[np.bool_], places: Array, topk: int | None = None
) -> float:
    """Return the average precision of one query, given which items are similar, best first.

    Parameters
    ----------
    similar : (n_base,) bool
    places : (n_base,)
        1.0, 2.0, 3.0, ..., made once for all queries.
    topk : int, optional
        Only the first ``topk`` places count, and the sum is divided by min(R, topk).

    >>> import numpy as np
    >>> order_average_precision(np.array([True, False, True]), np.arange(1.0, 4.0))
    0.8333333333333333
    """
    n_similar = int(np.count_nonzero(similar))
    best = n_similar if topk is None else min(n_similar, topk)
    if best == 0:
        return 0.0
    found_at = places[:topk].compress(similar[:topk])
    precisions = np.divide(places[: len(found_at)], found_at, out=found_at)
    return float(precisions.sum()) / best
