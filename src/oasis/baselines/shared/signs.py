"""Signs of real values and their distance from projections, and random rotations."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from oasis.arrays import Array

LEAST_RESIDUAL = 1e-12
"""Lower bound of an error, because weights are divided by errors and an exact fit has error 0."""


def signs(values: Array) -> Array:
    """Return +1 where a value is positive, -1 elsewhere: zero counts as -1.

    >>> import numpy as np
    >>> signs(np.array([0.5, 0.0, -2.0]))
    array([ 1., -1., -1.])
    """
    return np.where(values > 0, 1.0, -1.0)


def residuals(B: Array, projections: Iterable[Array]) -> Array:
    """Return ``|B - P_m|`` for the projections P_m (n, r) of each modality, at least 1e-12.

    >>> import numpy as np
    >>> B = np.array([[3.0, -4.0]])
    >>> residuals(B, [np.zeros((1, 2)), B])
    array([5.e+00, 1.e-12])
    """
    return np.array([max(float(np.linalg.norm(B - P)), LEAST_RESIDUAL) for P in projections])


def random_rotation(rng: np.random.Generator, size: int) -> Array:
    """Return an orthogonal (size, size) matrix, uniformly distributed.

    >>> import numpy as np
    >>> R = random_rotation(np.random.default_rng(0), 5)
    >>> bool(np.allclose(R @ R.T, np.eye(5)))
    True
    """
    Q, upper = np.linalg.qr(rng.standard_normal((size, size)))
    # QR alone is not uniform; the signs of the diagonal make the distribution uniform
    rotation: Array = Q * np.where(np.diag(upper) < 0, -1.0, 1.0)
    return rotation
