"""Strangeness of a query: how far its cosine with the mean sample is below the usual one.

Labels are predicted by regressions on samples. A query unlike all samples, such as one word where
samples are captions, may still get confident predictions. It is therefore compared with the mean
sample. With rows x of unit length, m the direction of their mean and c = x'm,

    ``t = (mean(c) - c) / sqrt(var(c) + 1 / n)``

is the difference in standard deviations; ``1 / n`` accounts for the uncertainty of n samples. The
sums of a regression with a constant, X'X with the sum of x in its last row, are enough to compute
it: ``mean(c) = |mean(x)|`` and ``mean(c²) = m' X'X m / n``.
"""

from __future__ import annotations

import numpy as np

from oasis.model.hash_functions import LinearMap
from oasis.model.ridge import Ridge


def strangeness(name: str, ridge: Ridge) -> LinearMap:
    """Return the map of a modality to t (n, 1), negative for rows with a larger cosine than usual.

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
