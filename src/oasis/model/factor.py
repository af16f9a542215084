"""The Cholesky factor of a ridge regression's matrix, and products with its lower triangle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from oasis.arrays import Array, FloatArray
from oasis.errors import InputError
from oasis.model.gram import Block, copy_lower, lower_zeros, on_blocks

# BLAS packs the (d, d) matrix before a product with several columns, which takes about as long as
# so many products with one
_COLUMNS_ONE_BY_ONE = 4
# so many columns of a (d, d) matrix are in the cache while they are worked on
_CACHED_COLUMNS = 32


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

        if not Y.size:  # BLAS refuses it
            return np.zeros(Y.shape)
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


@dataclass(frozen=True)
class Centred:
    """A factor whose last feature, usually a constant, was eliminated first and in float64.

    With s the last diagonal entry, m the rest of its row over s, and L the factor of the others'
    ``A - s m m'``, it is ``[[L, m sqrt(s)], [0, sqrt(s)]]``. For a constant, m holds the means of
    the features, so that L is the factor of centred features, whose rounding errors are smaller.
    """

    rest: Cholesky
    m: Array  # (d - 1,)
    s: float

    def lower(self, Y: Array) -> Array:
        out = np.empty(Y.shape, order="F")
        out[:-1] = self.rest.lower(Y[:-1] - np.multiply.outer(self.m, Y[-1]))
        out[-1] = Y[-1] / np.sqrt(self.s)
        return out

    def upper(self, Y: Array) -> Array:
        out = np.empty(Y.shape, order="F")
        out[:-1] = self.rest.upper(Y[:-1])
        out[-1] = Y[-1] / np.sqrt(self.s) - self.m @ out[:-1]
        return out


def cholesky(base: Array, delta: float, single: bool) -> Factor:
    """Return the factor of ``base + delta I``; where float32 fails, it is float64."""
    if single:
        factor = _centred(base, delta)
        return cholesky(base, delta, single=False) if factor is None else factor
    A = lower_zeros(len(base), np.float64)
    copy_lower(base, A)
    L = _root(A, delta)
    if L is not None:
        return Cholesky(L)
    raise InputError(
        f"the sum X'X + delta I is singular in float64: delta={delta} is too small for features "
        f"with a sum of squares of {np.trace(base):.3g}; scale the features or raise delta"
    )


def centred_trace(base: Array) -> float:
    """Return the trace of what `cholesky` factors in float32: without the last feature's share."""
    trace, s = float(np.trace(base)), float(base[-1, -1])
    return trace - float(np.square(base[-1]).sum()) / s if s > 0 else trace


def _centred(base: Array, delta: float) -> Centred | None:
    d = len(base) - 1
    s = float(base[-1, -1]) + delta
    m = base[-1, :-1] / s
    A = lower_zeros(d, np.float32)
    sm = s * m

    def work(block: Block) -> None:
        rows, columns = block
        for start in range(columns.start, columns.stop, _CACHED_COLUMNS):
            part = slice(start, min(start + _CACHED_COLUMNS, columns.stop))
            shares = np.multiply.outer(m[part], sm[rows])
            np.subtract(base[rows, part].T, shares, out=A[rows, part].T, casting="same_kind")

    on_blocks(work, d)
    L = _root(A, delta)
    return None if L is None else Centred(Cholesky(L), m, s)


def _root(A: FloatArray, delta: float) -> FloatArray | None:
    """Return the Cholesky factor of ``A + delta I``, in the memory of A; None where it fails."""
    from scipy.linalg import lapack

    A[np.diag_indices(len(A))] += delta
    potrf = lapack.spotrf if A.dtype == np.float32 else lapack.dpotrf
    L, failed = potrf(A, lower=1, overwrite_a=1, clean=0)
    return None if failed else L


def symmetric_product(lower: Array, C: Array) -> Array:
    """Return ``A C`` (d, m), where A is symmetric and given by its lower triangle."""
    from scipy.linalg import blas

    if C.shape[1] > _COLUMNS_ONE_BY_ONE:
        return np.asarray(blas.dsymm(1.0, lower, C, lower=1))
    out = np.empty(C.shape, order="F")
    for j in range(C.shape[1]):
        out[:, j] = blas.dsymv(1.0, lower, C[:, j], lower=1)
    return out
