"""HCFW: high-level codes, fine-grained weights (2024), by the authors of OASIS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import scipy.sparse as sp

from oasis.arrays import Array, random_signs
from oasis.baselines.shared.class_codes import ClassCodeHasher, ClassCodes, RidgeOn
from oasis.labels import LabelSpace


@dataclass(frozen=True)
class HCFWKept:
    """The codes of the classes seen so far, none of which ever changes, and their vectors."""

    codes: ClassCodes
    labels: LabelSpace


class HCFW(ClassCodeHasher[HCFWKept]):
    """Online hashing with a frozen code for each class, learned when the class arrives.

    The code of a sample is the sign of the sum of its classes' codes. In a query, the weight of a
    modality is the largest predicted error of the whole batch minus its own predicted error. So a
    code depends on its batch, as published.

    Parameters
    ----------
    n_bits : int
        Length of a code, a positive multiple of 8.
    labels : optional
        Source of the class vectors: a mapping name -> vector, "orthogonal", "wordllama", the path
        of a word2vec or GloVe file, or a `LabelSpace`.
    theta, delta : float
        Ridges of the hash functions and of their predicted errors.
    n_iter : int
        Iterations over the codes of new classes.
    ridge_on : {"entries", "diagonal"}
        Where delta is added: to every entry of the matrix as in the authors' program, or to its
        diagonal as in IW-OMH's formulas.
    random_state : int, numpy Generator or None
        Seed of the class codes.

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
    While there are at most n_bits classes, the regression of the words on the class codes has no
    residual, so that the random start of the codes already solves it: the words have no effect.

    A bit on which the codes of a sample's classes cancel is 0 in the sums and stored as a clear
    bit, as published; an unlabelled sample has only zeros. A row of zeros in a query is a sample
    that lacks the modality.

    Cost of a round, per modality: n d^2 for the sum X'X, and Cholesky factorisations of it.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = {"image": rng.random((3, 20)), "text": rng.random((3, 10))}
    >>> model = HCFW(16, "orthogonal", random_state=0).partial_fit(X, [["sky"], ["sea"], ["sky"]])
    >>> model.partial_fit(X, [["cat"], ["sea"], []]).classes_
    ('sky', 'sea', 'cat')
    """

    _ridges = ("theta", "delta")

    def __init__(
        self,
        n_bits: int = 64,
        labels: LabelSpace | Mapping[str, Any] | str | PathLike[str] = "wordllama",
        theta: float = 1.0,
        delta: float = 1.0,
        n_iter: int = 5,
        ridge_on: RidgeOn = "entries",
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.labels = labels
        self.theta = theta
        self.delta = delta
        self.n_iter = n_iter
        self.ridge_on = ridge_on
        self.random_state = random_state

    def _first(self, rng: np.random.Generator) -> HCFWKept:
        nothing = ClassCodes(np.zeros((self.n_bits, 0)), np.zeros((0, 0)))
        return HCFWKept(nothing, LabelSpace.of(self.labels))

    def _codes(
        self,
        own: HCFWKept,
        L: sp.csr_array,
        classes: tuple[str, ...],
        rng: np.random.Generator,
    ) -> tuple[Array, HCFWKept]:
        new = classes[own.codes.C.shape[1] :]
        if new:
            labels = own.labels.grown(new)
            E = labels.represent([[name] for name in new])  # (c_new, f), unit rows
            start = random_signs(rng, (self.n_bits, len(new)))
            own = HCFWKept(own.codes.plus(E, start, self.n_iter), labels)
        return np.sign(L @ own.codes.C.T), own  # (n, r), 0 where undecided
