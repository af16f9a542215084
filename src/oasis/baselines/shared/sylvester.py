"""``B W + gamma W X = Y`` for a small and a large symmetric matrix with no negative eigenvalue."""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from oasis.arrays import Array
from oasis.errors import InputError

# An eigenvalue of the small matrix below this part of the largest is zero but for rounding.
_RANK_CUT = 1e-12


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
    Where s_i is zero, Y has nothing in that direction either, and the solution of least length is
    zero there.

    Cost: 4/3 d^3 for the reduction, 4 d^2 r to rotate Y there and back. An eigendecomposition of XX
    takes about 2.5 times as long, and r Cholesky factorisations, r d^3 / 3, more than ten times at
    64 bits.

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
    # The reflectors stand below the subdiagonal, as those of a QR factorisation one size smaller.
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
