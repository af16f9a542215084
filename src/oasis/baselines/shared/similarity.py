"""The similarity of samples by shared classes, ``S = 2LL' - 11'``, in products; never formed."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from oasis.arrays import Array


def similarity_times(L: sp.csr_array, M: Array) -> Array:
    """Return ``S M`` (n, r) for 0/1 labels L (n, c) and M (n, r). Cost: n r per label.

    >>> import numpy as np, scipy.sparse as sp
    >>> similarity_times(sp.csr_array([[1.0, 0.0], [1.0, 1.0]]), np.eye(2))
    array([[1., 1.],
           [1., 3.]])
    """
    product: Array = 2 * (L @ (L.T @ M)) - M.sum(axis=0)
    return product


def similarity_between(L: sp.csr_array, left: Array, right: Array) -> Array:
    """Return ``left' S right`` (k, r) for left (n, k) and right (n, r). Cost: as above, and k r c.

    >>> import numpy as np, scipy.sparse as sp
    >>> similarity_between(sp.csr_array([[1.0, 0.0], [1.0, 1.0]]), np.eye(2), np.eye(2))
    array([[1., 1.],
           [1., 3.]])
    """
    product: Array = 2 * (L.T @ left).T @ (L.T @ right)
    product -= np.outer(left.sum(axis=0), right.sum(axis=0))
    return product


def similarity_squared(L: sp.csr_array) -> float:
    """Return ``|S|^2``, the sum of the squares of all its entries.

    >>> import scipy.sparse as sp
    >>> similarity_squared(sp.csr_array([[1.0, 0.0], [1.0, 1.0]]))
    12.0
    """
    counts = np.asarray(L.sum(axis=0)).ravel()
    return 4 * float((L.T @ L).power(2).sum()) - 4 * float(counts @ counts) + L.shape[0] ** 2
