"""How far the modalities are from what they should give: what their weights are made of."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from oasis.arrays import Array

LEAST_RESIDUAL = 1e-12
"""A modality that fits exactly has no error, and its weight would be infinite or none."""


def residuals(B: Array, projections: Iterable[Array]) -> Array:
    """Return ``|B - P_m|`` for the projections P_m (n, r) of each modality, at least 1e-12.

    >>> import numpy as np
    >>> B = np.array([[3.0, -4.0]])
    >>> residuals(B, [np.zeros((1, 2)), B])
    array([5.e+00, 1.e-12])
    """
    return np.array([max(float(np.linalg.norm(B - P)), LEAST_RESIDUAL) for P in projections])
