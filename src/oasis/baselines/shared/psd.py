"""Positive semidefinite systems that may be singular: a small ridge is added where they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, lapack

from oasis.arrays import Array
from oasis.errors import InputError

# Below this reciprocal condition a solution is rounding error; the ridge brings it back above.
_LEAST_CONDITION = 1e-13
_RIDGE = 1e-11
_ROWS = 8192


@dataclass(frozen=True)
class PSDFactor:
    """The Cholesky factor of a symmetric A (k, k) with no negative eigenvalue.

    Where the reciprocal condition of A, as LAPACK estimates it, is below 1e-13, a ridge of 1e-11
    times its norm is added first; elsewhere A is taken as it is.

    >>> import numpy as np
    >>> PSDFactor.of(np.diag([2.0, 4.0])).solve(np.array([[1.0], [1.0]]))
    array([[0.5 ],
           [0.25]])
    >>> PSDFactor.of(np.ones((2, 2))).solve(np.ones((2, 1))).round(6)
    array([[0.5],
           [0.5]])
    """

    L: Array | None

    @classmethod
    def of(cls, A: Array) -> PSDFactor:
        norm = float(np.abs(A).sum(axis=0).max(initial=0.0))
        if norm == 0:
            return cls(None)
        failed = not np.isfinite(norm)
        if not failed:
            L, failed = lapack.dpotrf(A, lower=1)
            if failed or lapack.dpocon(L, norm, uplo="L")[0] < _LEAST_CONDITION:
                L, failed = lapack.dpotrf(A + _RIDGE * norm * np.eye(len(A)), lower=1)
        if failed:
            raise InputError(
                f"a system of {len(A)} equations with a norm of {norm:.3g} cannot be solved in "
                "float64; scale the features, or bring the weights closer to each other"
            )
        return cls(L)

    def solve(self, Y: Array) -> Array:
        """Return ``A^-1 Y`` for Y (k, m); zeros if A is zero."""
        return np.zeros_like(Y) if self.L is None else np.asarray(cho_solve((self.L, True), Y))

    def solve_rows(self, Y: Array) -> None:
        """Replace Y (n, k) by ``Y A^-1``, in place, a block of rows at a time."""
        for start in range(0, len(Y), _ROWS):
            rows = slice(start, start + _ROWS)
            Y[rows] = self.solve(Y[rows].T).T
