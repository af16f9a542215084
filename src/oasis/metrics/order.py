"""Measures of a ranking without ties: one order of the base."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def order_average_precision(similar: npt.NDArray[np.bool_], topk: int | None = None) -> float:
    """Return the average precision of one query whose ranking is similar or not, best first.

    Only the first ``topk`` places count, and the sum is divided by min(R, topk).

    >>> import numpy as np
    >>> order_average_precision(np.array([True, False, True]))
    0.8333333333333333
    """
    ranks = np.flatnonzero(similar[:topk]) + 1
    n_similar = int(np.count_nonzero(similar))
    best = n_similar if topk is None else min(n_similar, topk)
    return float((np.arange(1, len(ranks) + 1) / ranks).sum()) / best if best else 0.0
