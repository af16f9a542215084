"""Symmetric systems: with a ridge, possibly singular, and Sylvester's ``B W + gamma W X = Y``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh, lapack

from oasis.arrays import Array
from oasis.errors import InputError

# Below this reciprocal condition a solution is rounding error; a ridge then improves the condition.
_LEAST_CONDITION = 1e-13
_RIDGE = 1e-11
_ROWS = 8192
# An eigenvalue of the small matrix below this share of the largest is rounding error.
_RANK_CUT = 1e-12


def ridge_factor(gram: Array, ridge: float, name: str) -> tuple[Array, bool]:
    """Return the Cholesky factor of ``gram + ridge I`` for `scipy.linalg.cho_solve`.

    Parameters
    ----------
    gram : (d, d), only the lower triangle is read
    name : of the ridge, for the `InputError` if it is lost in rounding

    >>> import numpy as np
    >>> factor, lower = ridge_factor(np.array([[3.0, 0.0], [2.0, 4.0]]), 1.0, "theta")
    >>> np.tril(factor), lower
    (array([[2., 0.], [1., 2.]]), True)
    """
    A = gram.copy(order="F")
    A[np.diag_indices(len(A))] += ridge
    try:
        return cho_factor(A, lower=True, overwrite_a=True)[0], True
    except LinAlgError as error:
        raise InputError(
            f"the sum X'X + {name} I is singular in float64: {name}={ridge:g} is too small beside "
            f"a trace of {np.trace(gram):.3g}; scale the features or raise {name}"
        ) from error


@dataclass(frozen=True)
class PSDFactor:
    """The Cholesky factor of a positive semidefinite A (k, k).

    If LAPACK's estimate of the reciprocal condition of A is below 1e-13, a ridge of 1e-11 times its
    norm is added first; otherwise A is used unchanged.

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
        """Replace Y (n, k) by ``Y A^-1``, in place, in blocks of rows."""
        for start in range(0, len(Y), _ROWS):
            rows = slice(start, start + _ROWS)
            Y[rows] = self.solve(Y[rows].T).T


def pinv_solve(A: Array, Y: Array) -> Array:
    """Return ``pinv(A) Y`` for a positive semidefinite A (k, k) and Y (k, m).

    Only the lower triangle of A is read. Cost: a Cholesky factorisation; if A is singular to
    working precision, an eigendecomposition, cut at k eps times the largest eigenvalue.

    >>> import numpy as np
    >>> pinv_solve(np.ones((2, 2)), np.ones((2, 1))).round(6)
    array([[0.5],
           [0.5]])
    """
    if not len(A):
        return Y
    cut = len(A) * float(np.finfo(np.float64).eps)
    L, failed = lapack.dpotrf(A, lower=1)
    if not failed and lapack.dpocon(L, float(np.trace(A)), uplo="L")[0] > cut:
        return np.asarray(cho_solve((L, True), Y))
    s, Q = eigh(A, lower=True)
    kept = Q[:, s > cut * max(s[-1], 0.0)]
    solution: Array = kept @ ((kept.T @ Y) / s[len(s) - kept.shape[1] :, None])
    return solution


def solve_sylvester(BB: Array, XX: Array, Y: Array, gamma: float) -> Array:
    """Return W (r, d) with ``BB W + gamma W XX = Y``.

    With ``BB = Q diag(s) Q'``, row i of ``Q'W`` solves ``(s_i I + gamma XX) w = (Q'Y)_i``. All r of
    these share one reduction of XX to tridiagonal form, after which each costs O(d).

    Parameters
    ----------
    BB : (r, r) symmetric, positive semidefinite
    XX : (d, d) symmetric, positive semidefinite; only the lower triangle is read
    Y : (r, d), with rows in the range of BB
    gamma : positive

    Notes
    -----
    If s_i is zero, ``(Q'Y)_i`` is zero too, and so is that row of the minimum-norm solution.

    Cost: 4/3 d^3 for the reduction, 4 d^2 r to rotate Y there and back. An eigendecomposition of XX
    takes about 2.5 times as long; r Cholesky factorisations, r d^3 / 3, take more than ten times as
    long at 64 bits.

    >>> import numpy as np
    >>> BB, XX = np.diag([1.0, 3.0]), np.diag([0.0, 2.0])
    >>> solve_sylvester(BB, XX, np.ones((2, 2)), 0.5).round(6)
    array([[1.      , 0.5     ],
           [0.333333, 0.25    ]])
    """
    d = len(XX)
    s, Q = np.linalg.eigh(BB)
    targets = np.ascontiguousarray(Q.T @ Y)  # (r, d)
    size, _ = lapack.dsytrd_lwork(d, lower=1)
    A, diagonal, beside, tau, _ = lapack.dsytrd(XX, lower=1, lwork=int(size))
    # The reflectors are below the subdiagonal, like those of a QR factorisation one size smaller.
    reflectors = np.asfortranarray(A[1:, :-1])
    rotated = _reflect(reflectors, tau, targets.T, "T")  # (d, r)
    solution = np.zeros((d, len(s)), order="F")
    for i in np.flatnonzero(s > _RANK_CUT * s[-1]):
        shifted = gamma * diagonal + s[i]
        if d == 1:
            solution[:, i] = rotated[:, i] / shifted
            continue
        _, _, column, failed = lapack.dptsv(shifted, gamma * beside, rotated[:, i])
        if failed:
            raise InputError(
                f"gamma={gamma} times sum X'X, with a trace of {np.trace(XX):.3g}, leaves nothing "
                f"of sum B'B in float64; scale the features or lower gamma"
            )
        solution[:, i] = column.ravel()
    W: Array = Q @ _reflect(reflectors, tau, solution, "N").T
    return W


def _reflect(reflectors: Array, tau: Array, Y: Array, trans: str) -> Array:
    """Return Y (d, r) multiplied from the left by the reduction's rotation, or its transpose."""
    if len(Y) == 1:
        return Y
    rest = np.asfortranarray(Y[1:])
    _, work, _ = lapack.dormqr("L", trans, reflectors, tau, rest, -1)
    rotated, _, _ = lapack.dormqr("L", trans, reflectors, tau, rest, int(work[0]))
    return np.vstack([Y[:1], rotated])
