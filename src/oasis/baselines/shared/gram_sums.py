"""Sums of a linear regression over a stream: ``sum X'X`` and ``sum B'X``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.linalg import blas

from oasis.arrays import Array, Matrix
from oasis.errors import InputError
from oasis.model.ridge import MAX_FEATURES

_ROWS = 4096


@dataclass(frozen=True)
class GramSums:
    """The sums of one modality.

    Attributes
    ----------
    XX : (d, d), sum of X'X, Fortran order, lower triangle only
    BX : (r, d), sum of B'X

    >>> import numpy as np
    >>> sums = GramSums.zero(1, 2).plus(np.array([[1.0, 2.0]]), np.array([[-1.0]]))
    >>> sums.XX, sums.BX
    (array([[1., 0.], [2., 4.]]), array([[-1., -2.]]))
    """

    XX: Array
    BX: Array

    @classmethod
    def zero(cls, n_targets: int, n_features: int) -> GramSums:
        """Return the sums over no samples."""
        if n_features > MAX_FEATURES:
            raise InputError(
                f"{n_features} features need a dense {n_features} x {n_features} sum "
                f"({n_features**2 * 8 / 1e9:.1f} GB); at most {MAX_FEATURES} are accepted. "
                "Hash or project them into fewer dimensions first (text: 2048 is plenty)"
            )
        return cls(np.zeros((n_features, n_features), order="F"), np.zeros((n_targets, n_features)))

    @property
    def n_features(self) -> int:
        return len(self.XX)

    def plus(self, X: Matrix, B: Array) -> GramSums:
        """Return the sums with the chunk X (n, d) and its targets B (n, r) added. Cost: n d^2."""
        XX, BX = self.XX.copy(order="F"), self.BX.copy()
        with np.errstate(over="ignore", invalid="ignore"):
            if isinstance(X, sp.csr_array):
                wide = X.astype(np.float64)
                products = sp.tril(wide.T @ wide).tocoo()
                XX[products.row, products.col] += products.data
                BX += (wide.T @ B).T
            else:
                for start in range(0, len(X), _ROWS):
                    rows = slice(start, start + _ROWS)
                    block = X[rows].astype(np.float64, copy=False)
                    XX = blas.dsyrk(1.0, block.T, beta=1.0, c=XX, lower=1, overwrite_c=1)
                    BX += B[rows].T @ block
        if not np.isfinite(np.trace(XX)):
            raise InputError("the sum X'X overflows: features this large cannot be used")
        return GramSums(XX, BX)
