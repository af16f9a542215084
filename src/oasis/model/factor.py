"""The Cholesky factor of a ridge regression's matrix, and products with its lower triangle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from oasis.arrays import Array, FloatArray
from oasis.errors import InputError
from oasis.model.gram import copy_lower, lower_empty

# BLAS packs the (d, d) matrix before a product with several columns, which takes about as long as
# so many products with one
_COLUMNS_ONE_BY_ONE = 4


class Factor(Protocol):
    """L with ``L L' = base + delta I``."""

    def lower(self, Y: Array) -> Array:
        """Return ``L^-1 Y``."""

    def upper(self, Y: Array) -> Array:
        """Return ``L^-T Y``."""


@dataclass(frozen=True)
class Identity:
    """The factor of ``delta I``, before anything has gone into ``base``."""

    delta: float

    def lower(self, Y: Array) -> Array:
        return np.asarray(Y / np.sqrt(self.delta))

    upper = lower


@dataclass(frozen=True)
class Cholesky:
    """A triangular L."""

    L: FloatArray  # Fortran order; what stands above the diagonal is never read

    def lower(self, Y: Array) -> Array:
        return self._solve(Y, trans=0)

    def upper(self, Y: Array) -> Array:
        return self._solve(Y, trans=1)

    def _solve(self, Y: Array, trans: int) -> Array:
        from scipy.linalg import blas

        is_single = self.L.dtype == np.float32
        Y = np.asfortranarray(Y, dtype=self.L.dtype)
        if Y.shape[1] <= _COLUMNS_ONE_BY_ONE:
            trsv = blas.strsv if is_single else blas.dtrsv
            solution = np.empty(Y.shape, order="F")
            for j in range(Y.shape[1]):
                solution[:, j] = trsv(self.L, Y[:, j], lower=1, trans=trans)
            return solution
        trsm = blas.strsm if is_single else blas.dtrsm
        return np.asarray(trsm(1.0, self.L, Y, lower=1, trans_a=trans), dtype=np.float64)


def cholesky(base: Array, delta: float, single: bool) -> Cholesky:
    """Return the factor of ``base + delta I``; where float32 fails, it is float64."""
    from scipy.linalg import lapack

    d = len(base)
    A = lower_empty(d, np.float32 if single else np.float64)
    copy_lower(base, A)
    A[np.diag_indices(d)] += delta
    potrf = lapack.spotrf if single else lapack.dpotrf
    L, failed = potrf(A, lower=1, overwrite_a=1, clean=0)
    if not failed:
        return Cholesky(L)
    if single:
        return cholesky(base, delta, single=False)
    raise InputError(
        f"the sum X'X + delta I is singular in float64: delta={delta} is too small for features "
        f"with a sum of squares of {np.trace(base):.3g}; scale the features or raise delta"
    )


def symmetric_product(lower: Array, C: Array) -> Array:
    """Return ``A C`` (d, m), where A is symmetric and given by its lower triangle."""
    from scipy.linalg import blas

    if C.shape[1] > _COLUMNS_ONE_BY_ONE:
        return np.asarray(blas.dsymm(1.0, lower, C, lower=1))
    out = np.empty(C.shape, order="F")
    for j in range(C.shape[1]):
        out[:, j] = blas.dsymv(1.0, lower, C[:, j], lower=1)
    return out
