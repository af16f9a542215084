"""LEMON: label embedding online hashing (ACM Multimedia 2020)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve

from oasis.arrays import Array, random_signs, unit_rows
from oasis.baselines.shared.linear import ClassSums, GramSums, LinearHasher
from oasis.baselines.shared.signs import random_rotation, signs
from oasis.model.hash_functions import LinearMap
from oasis.model.updates import v_step


class LEMON(LinearHasher[ClassSums]):
    """Label embedding online hashing: the online method closest to OASIS, without word vectors.

    Published for cross-modal search. Here a query uses the sum of the projections of its
    modalities, so that it may have any of them.

    Parameters
    ----------
    n_bits : int
        Length of a code, a positive multiple of 8.
    alpha, beta : float
        Weights of similarity and of the label embedding.
    gamma, xi : float
        Ridges of the label embedding and of the hash functions.
    n_iter : int
        Iterations per round.
    random_state : int, numpy Generator or None
        Seed of the random start of every round.

    Attributes
    ----------
    codes_ : (n, n_bits / 8) uint8
        The last chunk's codes, to be stored as they are.
    classes_ : tuple of str
        Class names in order of arrival; new ones may come in any chunk.
    n_seen_ : int
        Samples seen.

    Notes
    -----
    L are the 0/1 labels, G their rows at unit length; an unlabelled sample has rows of zeros. The
    published terms in the vector of ones are omitted: V sums to zero, so they are 0; in floating
    point they would only multiply rounding error by alpha r.

    Cost of a round: O(n r^2) per iteration, then per modality n d^2 for the sum X'X and its
    Cholesky factorisation.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = {"image": rng.random((4, 20)), "text": rng.random((4, 10))}
    >>> model = LEMON(16, random_state=0).partial_fit(X, [["sky"], ["sea"], ["sky"], ["cat"]])
    >>> model.classes_, model.codes_.shape, model.encode({"text": X["text"]}).shape
    (('sky', 'sea', 'cat'), (4, 2), (4, 2))
    """

    _weights = ("alpha", "beta")
    _ridges = ("gamma", "xi")

    def __init__(
        self,
        n_bits: int = 64,
        alpha: float = 1e4,
        beta: float = 1e4,
        gamma: float = 0.1,
        xi: float = 1.0,
        n_iter: int = 5,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.alpha = alpha
        self.beta = beta
        self.gamma = gamma
        self.xi = xi
        self.n_iter = n_iter
        self.random_state = random_state

    def _first(self, rng: np.random.Generator) -> ClassSums:
        return ClassSums.zero(self.n_bits, ("VV", "BV"), ("LV", "GV", "GB"))

    def _solved(self, own: ClassSums, features: Mapping[str, GramSums]) -> LinearMap:
        xi = float(self.xi)
        return LinearMap({name: sums.weights(xi, "xi") for name, sums in features.items()})

    def _codes(
        self,
        own: ClassSums,
        L: sp.csr_array,
        classes: tuple[str, ...],
        rng: np.random.Generator,
    ) -> tuple[Array, ClassSums]:
        """Return the codes of one round, see docs/formulas.md.

        Draws B, V, R and the completion of V, in that order.
        """
        n, r = L.shape[0], self.n_bits
        sums = own.widened(len(classes))
        G = sp.csr_array(unit_rows(L))  # (n, c)
        B = random_signs(rng, (n, r))
        V = rng.standard_normal((n, r))
        R = random_rotation(rng, r)
        noise = rng.standard_normal((n, max(0, min(r, n - 1))))
        weight = 2 * self.alpha * r
        for _ in range(self.n_iter):
            VV = sums["VV"] + V.T @ V + self.gamma * np.eye(r)
            P = cho_solve(cho_factor(VV, lower=True), (sums["LV"] + L.T @ V).T)  # (r, c)
            Z = B @ R.T + self.beta * (L @ P.T) + weight * (G @ (sums["GB"] + G.T @ B))  # (n, r)
            V = v_step(Z, noise)
            left, _, right = np.linalg.svd(sums["BV"] + B.T @ V)
            R = right.T @ left.T  # the rotation that brings V closest to B
            B = signs(weight * (G @ (sums["GV"] + G.T @ V)) + V @ R)
        chunk = {"VV": V.T @ V, "BV": B.T @ V, "LV": L.T @ V, "GV": G.T @ V, "GB": G.T @ B}
        return B, sums.plus(**chunk)
