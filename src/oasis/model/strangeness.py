"""How strange a query is: how much less it is like the mean sample than samples are.

Labels are predicted by regressions on samples. Of a query that is unlike all samples, as one word
is where samples are captions, they may be predicted with confidence all the same. So it is compared
with the mean sample: with rows x of unit length, m the direction of their mean and c = x'm,

    ``t = (mean(c) - c) / sqrt(var(c) + 1 / n)``

is its distance from what is usual, in standard deviations, where ``1 / n`` is for what n samples
leave open. The sums of a regression with a constant, X'X with the sum of x in its last row, have
all of this: ``mean(c) = |mean(x)|`` and ``mean(c²) = m' X'X m / n``.
"""

from __future__ import annotations

import numpy as np

from oasis.model.hash_functions import LinearMap
from oasis.model.ridge import Ridge


def strangeness(name: str, ridge: Ridge) -> LinearMap:
    """Return the map of a modality to t (n, 1), which is negative where a row is more than usual.

    Parameters
    ----------
    ridge : its regression, with a constant as its last feature
    """
    d, n = ridge.n_features - 1, ridge.n_constant
    total = ridge.sum_of_rows()[:d] if n else np.zeros(d)
    size = float(np.linalg.norm(total))
    if size == 0.0:
        return LinearMap({name: np.zeros((1, d))}, {name: np.zeros(1)}, normalize=True)
    direction, usual = total / size, size / n
    square = ridge.square_along(np.append(direction, 0.0)) / n
    deviation = np.sqrt(max(square - usual * usual, 0.0) + 1 / n)
    weights, offset = -direction[None] / deviation, np.array([-usual / deviation])
    return LinearMap({name: weights}, {name: offset}, normalize=True)
