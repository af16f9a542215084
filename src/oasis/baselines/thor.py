"""THOR: online hashing with a frozen codeword per class (2022)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve, hadamard

from oasis.arrays import Array, random_signs, unit_rows
from oasis.baselines.shared.linear import ClassSums, GramSums, LinearHasher
from oasis.baselines.shared.signs import signs
from oasis.baselines.shared.solvers import solve_sylvester
from oasis.errors import InputError
from oasis.labels import LabelSpace
from oasis.model.hash_functions import LinearMap
from oasis.model.updates import v_step

MAX_CLASSES = 128
"""Columns of the Hadamard matrix from which the codewords are computed: one per class."""

NUSWIDE: dict[str, float] = {"theta": 0.1, "beta": 0.001, "gamma": 1000.0, "alpha": 1.0}
"""The published parameters for NUS-WIDE; the defaults are those for MIRFlickr."""


@dataclass(frozen=True)
class THORCodewords:
    """One codeword per class, in order of arrival; none ever changes.

    Attributes
    ----------
    P : (r, 128), maps columns of the Hadamard matrix to r dimensions
    C : (r, c), the codewords
    labels : the label space, grown by the c classes
    """

    P: Array
    C: Array
    labels: LabelSpace

    @classmethod
    def start(cls, n_bits: int, labels: LabelSpace, rng: np.random.Generator) -> THORCodewords:
        """Draw P; if the code has the length of a column, P is the identity."""
        if n_bits == MAX_CLASSES:
            P = np.eye(MAX_CLASSES)
        else:
            P = rng.standard_normal((n_bits, MAX_CLASSES))
        return cls(P, np.zeros((n_bits, 0)), labels)

    def grown(self, classes: tuple[str, ...], alpha: float) -> THORCodewords:
        """Return the codewords with new classes added at the end; docs/formulas.md has C_n.

        Parameters
        ----------
        classes : the known classes, then the new ones
        """
        r, old = self.C.shape
        if len(classes) == old:
            return self
        labels = self.labels.grown(classes[old:])
        T = self.P @ hadamard(MAX_CLASSES)[:, : len(classes)]  # (r, c)
        new = T[:, old:]
        names = labels.represent([[name] for name in classes])  # (c, f), unit rows
        # as published, the first classes have the weight alpha instead of r
        weight = r if old else alpha
        target = weight * (T @ (names @ names[old:].T)) + alpha * new  # (r, c_new)
        factor = cho_factor(T @ T.T + alpha * np.eye(r), lower=True)
        return THORCodewords(self.P, np.hstack([self.C, cho_solve(factor, target)]), labels)


@dataclass(frozen=True)
class THORKept:
    """What THOR keeps: codewords, and sums over the samples."""

    codewords: THORCodewords
    sums: ClassSums


class THOR(LinearHasher[THORKept]):
    """Online hashing with a frozen codeword per class, which the codes of its samples approach.

    Published for cross-modal search. Here a query uses the sum of the projections of its
    modalities, so that it may have any of them.

    Parameters
    ----------
    n_bits : int
        Length of a code, a positive multiple of 8.
    labels : optional
        Source of the class vectors: a mapping name -> vector, "orthogonal", "wordllama", the path
        of a word2vec or GloVe file, or a `LabelSpace`. Classes with similar vectors get similar
        codewords.
    alpha : float
        Weight of the column of the Hadamard matrix in a codeword.
    beta, theta : float
        Weights of similarity and of the relaxed codes.
    gamma : float
        Weight of the hash functions' own regression.
    n_iter : int
        Iterations per round.
    random_state : int, numpy Generator or None
        Seed of the codewords, once, and of the random start of every round.

    The defaults are those published for MIRFlickr; `NUSWIDE` holds the others.

    Attributes
    ----------
    codes_ : (n, n_bits / 8) uint8
        The last chunk's codes, to be stored as they are.
    classes_ : tuple of str
        Class names in order of arrival: any number of new ones per chunk, at most 128 in total.
    n_seen_ : int
        Samples seen.

    Notes
    -----
    L are the 0/1 labels, G their rows at unit length; an unlabelled sample has rows of zeros. The
    published terms in the vector of ones are omitted: V sums to zero, so they are 0; in floating
    point they would only multiply rounding error.

    Cost of a round: O(n r^2) per iteration, then per modality n d^2 for the sum X'X and 4/3 d^3 for
    the Sylvester equation; see
    `oasis.baselines.shared.solvers`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = {"image": rng.random((4, 20)), "text": rng.random((4, 10))}
    >>> model = THOR(16, "orthogonal", random_state=0)
    >>> model = model.partial_fit(X, [["sky"], ["sea"], ["sky"], ["cat"]])
    >>> model.classes_, model.codes_.shape, model.encode({"text": X["text"]}).shape
    (('sky', 'sea', 'cat'), (4, 2), (4, 2))
    """

    _weights = ("beta", "theta")
    _ridges = ("alpha", "gamma")

    def __init__(
        self,
        n_bits: int = 64,
        labels: LabelSpace | Mapping[str, Any] | str | PathLike[str] = "wordllama",
        alpha: float = 10.0,
        beta: float = 100.0,
        gamma: float = 10.0,
        theta: float = 0.1,
        n_iter: int = 1,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.labels = labels
        self.alpha = alpha
        self.beta = beta
        self.gamma = gamma
        self.theta = theta
        self.n_iter = n_iter
        self.random_state = random_state

    def _first(self, rng: np.random.Generator) -> THORKept:
        codewords = THORCodewords.start(self.n_bits, LabelSpace.of(self.labels), rng)
        return THORKept(codewords, ClassSums.zero(self.n_bits, ("BB",), ("GB", "GV")))

    def _solved(self, own: THORKept, features: Mapping[str, GramSums]) -> LinearMap:
        gamma = float(self.gamma)
        return LinearMap(
            {
                name: solve_sylvester(own.sums["BB"], each.XX, (1 + gamma) * each.BX, gamma)
                for name, each in features.items()
            }
        )

    def _codes(
        self,
        own: THORKept,
        L: sp.csr_array,
        classes: tuple[str, ...],
        rng: np.random.Generator,
    ) -> tuple[Array, THORKept]:
        """Return the codes of one round, see docs/formulas.md.

        Draws B and the completion of V, in that order.
        """
        known = own.codewords.C.shape[1]
        if len(classes) > MAX_CLASSES:
            raise InputError(
                f"THOR has codewords for {MAX_CLASSES} classes: {known} have come "
                f"and the chunk brings {len(classes) - known} more"
            )
        codewords = own.codewords.grown(classes, float(self.alpha))
        sums = own.sums.widened(len(classes))
        G = sp.csr_array(unit_rows(L))  # (n, c)
        n, r = L.shape[0], self.n_bits
        target = r * (L @ codewords.C.T)  # (n, r)
        B = random_signs(rng, (n, r))
        noise = rng.standard_normal((n, max(0, min(r, n - 1))))
        weight = 2 * self.beta * r
        for _ in range(self.n_iter):
            V = v_step(weight * (G @ (sums["GB"] + G.T @ B)) + self.theta * B, noise)
            B = signs(target + weight * (G @ (sums["GV"] + G.T @ V)) + self.theta * V)
        return B, THORKept(codewords, sums.plus(BB=B.T @ B, GB=G.T @ B, GV=G.T @ V))
