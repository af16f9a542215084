"""The block updates of one round, one pure function per equation.

Samples are rows. In every formula ``sum`` means the stored sum plus this chunk's term. Letters:
G (n, f) semantic representation, B (n, r) codes as +1/-1, V (n, r) relaxed codes with
``V'V = nI`` and ``1'V = 0``, U (f, r), Z (n, r). The W step is the ridge regression of
`oasis.model.ridge`. Everything here is float64 and small: no array depends on the number of
features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from oasis.arrays import Array

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Weights:
    """The weights of the loss: alpha (similarity), beta and theta (semantics), gamma (features)."""

    alpha: float
    beta: float
    gamma: float
    theta: float


@dataclass(frozen=True)
class Sums:
    """What is remembered of all samples learned so far, apart from their features.

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
    def zero(cls, n_bits: int) -> Sums:
        """Return the sums over no samples and no semantic dimensions."""
        return cls(np.zeros((n_bits, 0)), np.zeros((0, n_bits)), np.zeros((n_bits, n_bits)), 0)

    def widened(self, n_semantic: int) -> Sums:
        """Return the sums with f grown to ``n_semantic``: old samples have zeros there."""
        more = n_semantic - self.BG.shape[1]
        if more == 0:
            return self
        return Sums(
            np.pad(self.BG, ((0, 0), (0, more))),
            np.pad(self.GV, ((0, more), (0, 0))),
            self.VV,
            self.n,
        )

    def plus(self, B: Array, G: Array, V: Array) -> Sums:
        """Return the sums with one chunk added."""
        return self.joined(Sums(B.T @ G, G.T @ V, V.T @ V, len(B)))

    def joined(self, other: Sums) -> Sums:
        """Return the sums over the samples of both."""
        return Sums(self.BG + other.BG, self.GV + other.GV, self.VV + other.VV, self.n + other.n)


@dataclass(frozen=True)
class Iterate:
    """The variables after one iteration of a round."""

    B: Array
    V: Array
    U: Array


def no_prediction(B: Array) -> Array:
    """Return zeros: the W term of a hash function that does not predict codes."""
    return np.zeros_like(B)


def iterate(
    sums: Sums,
    G: Array,
    predict: Callable[[Array], Array],
    weights: Weights,
    n_iter: int,
    rng: np.random.Generator,
) -> Iterator[Iterate]:
    """Run one round's iterations on one chunk and yield each of them.

    Parameters
    ----------
    sums : the sums over all earlier chunks, as wide as G
    G : (n, f) semantic representation of the chunk
    predict : maps the codes B (n, r) to ``sum_m X_m W_m'`` (n, r), with W solved from the sums
        that include B. Asked for only when another B step follows.
    rng : the source of the random start; always draws B, U and the completion of V, in that order
    """
    n, n_bits = len(G), len(sums.VV)
    B = random_signs(rng, n, n_bits)  # (n, r)
    U = rng.standard_normal((G.shape[1], n_bits))  # (f, r)
    noise = rng.standard_normal((n, feasible_rank(n, n_bits)))  # (n, min(r, n-1))
    rows = _Whole(G, predict, weights, B, noise)
    for solved in alternate(rows, sums, U, weights, n_iter):
        yield Iterate(rows.B, rows.V, solved)


class Rows(Protocol):
    """The rows of a chunk, wherever they are: steps go row by row, and sums come back.

    B starts as random signs, and ``X W'`` as zero.
    """

    def coded(self) -> Array:
        """Return ``B'G`` (r, f) of the chunk as it stands."""

    def predict(self) -> None:
        """Let ``sum_m X_m W_m'`` follow B, with W solved from the sums that include it."""

    def relax(self, BG: Array, U: Array) -> tuple[Array, Array]:
        """Do the V step, given ``sum B'G`` (r, f); return the chunk's ``G'V`` and ``V'V``."""

    def code(self, GV: Array) -> None:
        """Do the B step, given ``sum G'V`` (f, r)."""


def alternate(rows: Rows, sums: Sums, U: Array, weights: Weights, n_iter: int) -> Iterator[Array]:
    """Run one round's iterations on the rows of a chunk and yield the U (f, r) of each."""
    for step in range(n_iter):
        if step:  # W starts at zero, so the first B step has no W term
            rows.predict()
        chunk_GV, chunk_VV = rows.relax(sums.BG + rows.coded(), U)
        GV = sums.GV + chunk_GV  # (f, r)
        U = u_step(GV, sums.VV + chunk_VV, weights)
        rows.code(GV)
        yield U


class _Whole:
    """All rows of a chunk, here."""

    def __init__(
        self,
        G: Array,
        predict: Callable[[Array], Array],
        weights: Weights,
        B: Array,
        noise: Array,
    ) -> None:
        self._G, self._predict = G, predict
        self._weights, self._noise = weights, noise
        self.B, self.V, self._XW = B, np.zeros_like(B), np.zeros_like(B)

    def coded(self) -> Array:
        return self.B.T @ self._G

    def predict(self) -> None:
        self._XW = self._predict(self.B)

    def relax(self, BG: Array, U: Array) -> tuple[Array, Array]:
        Z = z_target(BG, self._G, self.B, U, self._weights)
        self.V = v_step(Z, self._noise)
        return self._G.T @ self.V, self.V.T @ self.V

    def code(self, GV: Array) -> None:
        self.B = b_step(self._G, GV, self.V, self._XW, self._weights)


def random_signs(rng: np.random.Generator, n: int, n_bits: int) -> Array:
    """Return the B (n, r) that a round starts from: one draw for each sign, row by row."""
    return np.where(rng.random((n, n_bits)) < 0.5, -1.0, 1.0)


def feasible_rank(n: int, n_bits: int) -> int:
    """Return the rank of a feasible V: n_bits, or n - 1 where n is not larger."""
    return max(0, min(n_bits, n - 1))


def z_target(BG: Array, G: Array, B: Array, U: Array, weights: Weights) -> Array:
    """Return ``Z = a r G (sum B'G)' + B + b G U``, (n, r): V maximises tr(Z'V).

    ``BG`` (r, f) is ``sum B'G``.
    """
    n_bits = B.shape[1]
    # The paper prints gamma for the weight of GU; the derivation gives beta.
    Z: Array = weights.alpha * n_bits * (G @ BG.T) + weights.beta * (G @ U) + B
    return Z


def v_step(Z: Array, noise: Array) -> Array:
    """Return the feasible V, (n, r), that maximises tr(Z'V); ``V'V = nI`` and ``1'V = 0``.

    With ``JZ = P S Q'`` the SVD of the column-centred Z, cut to the singular values above
    ``max(n, r) eps s_1``, V is ``sqrt(n) [P P0] [Q Q0]'`` with min(r, n - 1) columns in each
    bracket. For n <= r its rank is n - 1, for n = 1 it is zero.

    Parameters
    ----------
    noise : (n, min(r, n - 1)) random normal, the raw material of P0
    """
    n, n_bits = Z.shape
    if feasible_rank(n, n_bits) == 0:
        return np.zeros_like(Z)
    # Twice: the first pass leaves a mean of the size of Z's rounding error, which is not small
    # against JZ when a chunk's rows are nearly alike.
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
    """Return rows of the unit vector of ones of a chunk of n samples, and after it ``columns``.

    The vector of ones goes first, so that the other columns of a basis made from both are
    orthogonal to it to machine precision even where a singular value is tiny.
    """
    return np.hstack([np.full((len(columns), 1), n**-0.5), columns])


def turns(R: Array, n: int) -> tuple[Array, Array]:
    """Return what turns the basis of JZ into P, and ``[Q Q0]'``: the small part of the V step.

    Parameters
    ----------
    R : (min(n, r + 1), r + 1), the triangular factor of JZ after the vector of ones

    Returns
    -------
    (min(n, r + 1) - 1, k) and (min(r, n - 1), r); k is how many singular values are above
    ``max(n, r) eps s_1``.
    """
    n_bits = R.shape[1] - 1
    left, s, Qt = np.linalg.svd(R[1:, 1:], full_matrices=True)
    k = int(np.count_nonzero(s > max(n, n_bits) * _EPS * s[0]))
    return left[:, :k], Qt[: feasible_rank(n, n_bits)]


def _complete(basis: Array, noise: Array) -> Array:
    """Return orthonormal columns, made from ``noise``, that are orthogonal to ``basis``."""
    noise = noise - basis @ (basis.T @ noise)
    noise -= basis @ (basis.T @ noise)  # once more, for what the first pass left by rounding
    Q, _ = np.linalg.qr(np.hstack([basis, noise]))
    return Q[:, basis.shape[1] :]


def u_step(GV: Array, VV: Array, weights: Weights) -> Array:
    """Return ``U = (sum G'V)(sum V'V + th I)^-1``, (f, r)."""
    A = VV + weights.theta * np.eye(len(VV))
    return np.ascontiguousarray(cho_solve(cho_factor(A, lower=True), GV.T).T)


def b_step(G: Array, GV: Array, V: Array, XW: Array, weights: Weights) -> Array:
    """Return ``B = sign(a r G (sum G'V) + V + g sum_m X_m W_m')``, (n, r); zero counts as -1.

    ``GV`` (f, r) is ``sum G'V``.
    """
    n_bits = V.shape[1]
    Q = weights.alpha * n_bits * (G @ GV) + V + weights.gamma * XW
    return np.where(Q > 0, 1.0, -1.0)
