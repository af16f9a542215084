"""The block updates of one round, one pure function per equation.

Samples are rows. In every formula ``sum`` means the stored sum plus this chunk's term. Letters:
G (n, f) semantic representation, B (n, r) codes as +1/-1, V (n, r) relaxed codes with
``V'V = nI`` and ``1'V = 0``, U (f, r), Z (n, r). The W step is the ridge regression of
`oasis.model.ridge`. Everything here is float64 and small: no array depends on the number of
features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oasis.arrays import Array
from oasis.model.threads import one_thread

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Weights:
    """The weights of the loss: alpha (similarity), beta and theta (semantics), gamma (features)."""

    alpha: float
    beta: float
    gamma: float
    theta: float


@dataclass(frozen=True)
class SemanticSums:
    """Sums over all samples learned so far, except those of their features.

    Attributes
    ----------
    BG : (r, f), sum of B'G
    GV : (f, r), sum of G'V
    VV : (r, r), sum of V'V
    n : number of samples in the sums
    """

    BG: Array
    GV: Array
    VV: Array
    n: int

    @classmethod
    def zero(cls, n_bits: int) -> SemanticSums:
        """Return the sums over no samples and no semantic dimensions."""
        return cls(np.zeros((n_bits, 0)), np.zeros((0, n_bits)), np.zeros((n_bits, n_bits)), 0)

    def widened(self, n_semantic: int) -> SemanticSums:
        """Return the sums with f grown to ``n_semantic``: old samples have zeros there."""
        more = n_semantic - self.BG.shape[1]
        if more == 0:
            return self
        return SemanticSums(
            np.pad(self.BG, ((0, 0), (0, more))),
            np.pad(self.GV, ((0, more), (0, 0))),
            self.VV,
            self.n,
        )

    def joined(self, other: SemanticSums) -> SemanticSums:
        """Return the sums over the samples of both."""
        return SemanticSums(
            self.BG + other.BG, self.GV + other.GV, self.VV + other.VV, self.n + other.n
        )


def feasible_rank(n: int, n_bits: int) -> int:
    """Return the rank of a feasible V: n_bits, or n - 1 where n is not larger."""
    return max(0, min(n_bits, n - 1))


@one_thread()
def z_target(BG: Array, G: Array, B: Array, U: Array, weights: Weights) -> Array:
    """Return ``Z = a r G (sum B'G)' + B + b G U``, (n, r): V maximises tr(Z'V).

    ``BG`` (r, f) is ``sum B'G``.
    """
    n_bits = B.shape[1]
    # The paper prints gamma for the weight of GU; the derivation gives beta.
    Z: Array = weights.alpha * n_bits * (G @ BG.T) + weights.beta * (G @ U) + B
    return Z


@one_thread()
def v_step(Z: Array, noise: Array) -> Array:
    """Return the feasible V, (n, r), that maximises tr(Z'V); ``V'V = nI`` and ``1'V = 0``.

    With ``JZ = P S Q'`` the SVD of the column-centred Z, cut to the singular values above
    ``max(n, r) eps s_1``, V is ``sqrt(n) [P P0] [Q Q0]'`` with min(r, n - 1) columns in each
    bracket. For n <= r its rank is n - 1, for n = 1 it is zero.

    Parameters
    ----------
    noise : (n, min(r, n - 1)) random normal, from which P0 is computed
    """
    n, n_bits = Z.shape
    if feasible_rank(n, n_bits) == 0:
        return np.zeros_like(Z)
    # Twice: the first pass leaves a mean of the size of Z's rounding error, which is not small
    # compared with JZ when the rows of a chunk are nearly equal.
    JZ = Z - Z.mean(axis=0)
    JZ -= JZ.mean(axis=0)
    basis, R = np.linalg.qr(after_ones(JZ, n))  # (n, min(n, r + 1)), (min(n, r + 1), r + 1)
    left, right = turns(R, n)
    P = basis[:, 1:] @ left  # (n, k)
    missing = len(right) - left.shape[1]
    if missing:
        P = np.hstack([P, _complete(after_ones(P, n), noise[:, :missing])])
    V: Array = np.sqrt(n) * (P @ right)
    return V


def after_ones(columns: Array, n: int) -> Array:
    """Return ``[1 / sqrt(n), columns]``: the unit vector of ones before the given columns.

    The vector of ones comes first, so that the other columns of an orthonormal basis are
    orthogonal to it to machine precision even if a singular value is tiny.
    """
    return np.hstack([np.full((len(columns), 1), n**-0.5), columns])


@one_thread()
def turns(R: Array, n: int) -> tuple[Array, Array]:
    """Return the matrix that maps the basis of JZ to P, and ``[Q Q0]'``: the small SVD of V's step.

    Parameters
    ----------
    R : (min(n, r + 1), r + 1), the triangular factor of JZ after the vector of ones

    Returns
    -------
    (min(n, r + 1) - 1, k) and (min(r, n - 1), r); k is the number of singular values above
    ``max(n, r) eps s_1``.
    """
    n_bits = R.shape[1] - 1
    left, s, Qt = np.linalg.svd(R[1:, 1:], full_matrices=True)
    k = int(np.count_nonzero(s > max(n, n_bits) * _EPS * s[0]))
    return left[:, :k], Qt[: feasible_rank(n, n_bits)]


def _complete(basis: Array, noise: Array) -> Array:
    """Return orthonormal columns, made from ``noise``, that are orthogonal to ``basis``."""
    noise = noise - basis @ (basis.T @ noise)
    noise -= basis @ (basis.T @ noise)  # again, to remove the rounding error of the first pass
    Q, _ = np.linalg.qr(np.hstack([basis, noise]))
    return Q[:, basis.shape[1] :]


@one_thread()
def u_step(GV: Array, VV: Array, weights: Weights) -> Array:
    """Return ``U = (sum G'V)(sum V'V + th I)^-1``, (f, r)."""
    A = VV + weights.theta * np.eye(len(VV))
    return np.ascontiguousarray(np.linalg.solve(A, GV.T).T)


@one_thread()
def b_step(G: Array, GV: Array, V: Array, XW: Array, weights: Weights) -> Array:
    """Return ``B = sign(a r G (sum G'V) + V + g sum_m X_m W_m')``, (n, r); zero counts as -1.

    ``GV`` (f, r) is ``sum G'V``.
    """
    n_bits = V.shape[1]
    Q = weights.alpha * n_bits * (G @ GV) + V + weights.gamma * XW
    return np.where(Q > 0, 1.0, -1.0)
