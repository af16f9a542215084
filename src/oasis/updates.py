"""The block updates of one round, one pure function per equation.

Samples are rows. In every formula ``sum`` means the stored sum plus this chunk's term. Letters:
G (n, f) semantic representation, B (n, r) codes as +1/-1, V (n, r) relaxed codes with
``V'V = nI`` and ``1'V = 0``, U (f, r), Z (n, r). The W step is the ridge regression of
`oasis.ridge`. Everything here is float64 and small: no array depends on the number of features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve

Array: TypeAlias = npt.NDArray[np.float64]

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
        return Sums(self.BG + B.T @ G, self.GV + G.T @ V, self.VV + V.T @ V, self.n + len(B))


@dataclass(frozen=True)
class Iterate:
    """The variables after one iteration of a round."""

    B: Array
    V: Array
    U: Array


class Pull(Protocol):
    """How a chunk's samples are drawn towards what a sum says of their classes."""

    def __call__(self, T: Array, /) -> Array:
        """Map a sum T (f, r), such as ``sum G'V``, to the samples, (n, r)."""


def plain_pull(G: Array) -> Pull:
    """Return ``T -> G T``, the published formula."""
    return lambda T: np.asarray(G @ T)


def balanced_pull(L: sp.csr_array, K: Array) -> Pull:
    """Return the pull in which every class has the same say, however many samples it had.

    A class pulls towards its row of ``K T``, at unit length instead of a length that grows with
    its samples; a sample's pull is the sum over its classes, divided by the root of their number.

    Parameters
    ----------
    L : (n, c) labels as 0 and 1
    K : (c, f) unit vectors of the classes
    """
    n = L.shape[0]
    per_sample = 1.0 / np.sqrt(np.maximum(L.sum(axis=1), 1.0))

    def pull(T: Array) -> Array:
        rows = K @ T  # (c, r)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        rows = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
        return np.asarray(n * per_sample[:, None] * (L @ rows))

    return pull


def no_prediction(B: Array) -> Array:
    """Return zeros: the W term of a hash function that does not predict codes."""
    return np.zeros_like(B)


def iterate(
    sums: Sums,
    G: Array,
    pull: Pull,
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
    pull : `plain_pull` of G, or `balanced_pull`
    predict : maps the codes B (n, r) to ``sum_m X_m W_m'`` (n, r), with W solved from the sums
        that include B. Asked for only when another B step follows.
    rng : the source of the random start; always draws B, U and the completion of V, in that order
    """
    n, n_bits = len(G), len(sums.VV)
    B = np.where(rng.random((n, n_bits)) < 0.5, -1.0, 1.0)  # (n, r)
    U = rng.standard_normal((G.shape[1], n_bits))  # (f, r)
    noise = rng.standard_normal((n, max(0, min(n_bits, n - 1))))  # (n, min(r, n-1))
    XW = np.zeros((n, n_bits))  # W starts at zero, so the first B step has no W term
    for step in range(n_iter):
        if step:
            XW = predict(B)
        Z = z_target(pull((sums.BG + B.T @ G).T), G, B, U, weights)
        V = v_step(Z, noise)
        GV = sums.GV + G.T @ V  # (f, r)
        U = u_step(GV, sums.VV + V.T @ V, weights)
        B = b_step(pull(GV), V, XW, weights)
        yield Iterate(B, V, U)


def z_target(pulled: Array, G: Array, B: Array, U: Array, weights: Weights) -> Array:
    """Return ``Z = a r G (sum B'G)' + B + b G U``, (n, r): V maximises tr(Z'V).

    ``pulled`` (n, r) is ``G (sum B'G)'``, or its balanced form.
    """
    n_bits = B.shape[1]
    # The paper prints gamma for the weight of GU; the derivation gives beta.
    Z: Array = weights.alpha * n_bits * pulled + weights.beta * (G @ U) + B
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
    rank = min(n_bits, n - 1)
    if rank <= 0:
        return np.zeros_like(Z)
    # Twice: the first pass leaves a mean of the size of Z's rounding error, which is not small
    # against JZ when a chunk's rows are nearly alike.
    JZ = Z - Z.mean(axis=0)
    JZ -= JZ.mean(axis=0)
    # The vector of ones goes first, so that the other columns of the basis are orthogonal to it
    # to machine precision even where a singular value is tiny.
    ones = np.full((n, 1), n**-0.5)
    basis, R = np.linalg.qr(np.hstack([ones, JZ]))  # (n, min(n, r + 1)), (min(n, r + 1), r + 1)
    left, s, Qt = np.linalg.svd(R[1:, 1:], full_matrices=True)
    k = int(np.count_nonzero(s > max(n, n_bits) * _EPS * s[0]))
    P = basis[:, 1:] @ left[:, :k]  # (n, k)
    if k < rank:
        P = np.hstack([P, _complete(np.hstack([ones, P]), noise[:, : rank - k])])
    V: Array = np.sqrt(n) * (P @ Qt[:rank])
    return V


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


def b_step(pulled: Array, V: Array, XW: Array, weights: Weights) -> Array:
    """Return ``B = sign(a r G (sum G'V) + V + g sum_m X_m W_m')``, (n, r); zero counts as -1.

    ``pulled`` (n, r) is ``G (sum G'V)``, or its balanced form.
    """
    n_bits = V.shape[1]
    Q = weights.alpha * n_bits * pulled + V + weights.gamma * XW
    return np.where(Q > 0, 1.0, -1.0)
