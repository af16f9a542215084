"""IW-OMH: online hashing with a code per class, all classes known, and weights per query."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from os import PathLike
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from oasis.arrays import Array, random_signs
from oasis.baselines.shared.class_codes import ClassCodeHasher, ClassCodes, RidgeOn
from oasis.baselines.shared.classes import check_announced, refuse_unannounced
from oasis.baselines.shared.linear import LinearState
from oasis.baselines.shared.parameters import check_unchanged
from oasis.errors import InputError
from oasis.hashers.chunk import Chunk
from oasis.labels import LabelSpace


class IWOMH(ClassCodeHasher[ClassCodes]):
    """Online hashing with a code for each class, computed in advance from the words of all classes.

    The code of a sample is the sign of the sum of its classes' codes. In a query, the weight of a
    modality is the largest predicted error of the whole batch minus its own predicted error. So a
    code depends on its batch, as published.

    Parameters
    ----------
    n_bits : int
        Length of a code, a positive multiple of 8.
    classes : list of str
        All classes of the stream. They must be known in advance; a chunk with any other is refused.
    labels : optional
        Source of the class vectors: a mapping name -> vector, "orthogonal", "wordllama", the path
        of a word2vec or GloVe file, or a `LabelSpace`.
    alpha : float
        Ridge of the class codes.
    theta, delta : float
        Ridges of the hash functions and of their predicted errors.
    n_iter : int
        Iterations over the class codes, before the first chunk.
    ridge_on : {"diagonal", "entries"}
        Where alpha and delta are added: to the diagonal, or to every entry of the matrix as in the
        authors' program, which leaves the random class codes as they were drawn.
    random_state : int, numpy Generator or None
        Seed of the class codes.

    Attributes
    ----------
    codes_ : (n, n_bits / 8) uint8
        The last chunk's codes, to be stored as they are.
    classes_ : tuple of str
        The announced classes.
    n_seen_ : int
        Samples seen.

    Notes
    -----
    A bit on which the codes of a sample's classes cancel is 0 in the sums and stored as a clear
    bit, as published; an unlabelled sample has only zeros. A row of zeros in a query is a sample
    that lacks the modality. If a sample has the largest error of the batch in all its modalities,
    all its weights would be zero and its signs undefined; then equal weights are used. A query of
    one sample and one modality is such a case.

    Cost of a round, per modality: n d^2 for the sum X'X, and a Cholesky factorisation of it.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = {"image": rng.random((3, 20)), "text": rng.random((3, 10))}
    >>> model = IWOMH(16, ["sky", "sea", "cat"], "orthogonal", random_state=0)
    >>> model.partial_fit(X, [["sky"], ["sea"], ["sky"]]).codes_.shape
    (3, 2)
    >>> bool((model.codes_[0] == model.codes_[2]).all())
    True
    """

    needs_classes: ClassVar[bool] = True
    _ridges = ("alpha", "theta", "delta")

    def __init__(
        self,
        n_bits: int = 64,
        classes: Collection[str] | None = None,
        labels: LabelSpace | Mapping[str, Any] | str | PathLike[str] = "wordllama",
        alpha: float = 100.0,
        theta: float = 1.0,
        delta: float = 1.0,
        n_iter: int = 5,
        ridge_on: RidgeOn = "diagonal",
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.classes = classes
        self.labels = labels
        self.alpha = alpha
        self.theta = theta
        self.delta = delta
        self.n_iter = n_iter
        self.ridge_on = ridge_on
        self.random_state = random_state

    def _announced_classes(self) -> tuple[str, ...]:
        classes = check_announced(self.classes)
        if not classes:
            raise InputError(
                "IWOMH must know all classes of the stream in advance; name them in classes"
            )
        return classes

    def _check_parameters(self, state: LinearState[ClassCodes] | None) -> None:
        super()._check_parameters(state)
        classes = self._announced_classes()
        if state is not None:
            check_unchanged("classes", classes, state.classes)

    def _check_chunk(self, chunk: Chunk, state: LinearState[ClassCodes] | None) -> None:
        way_out = "IWOMH must know all classes in advance and cannot learn a new one"
        refuse_unannounced(chunk.labels, self._announced_classes(), way_out)

    def _first(self, rng: np.random.Generator) -> ClassCodes:
        classes, r = self._announced_classes(), self.n_bits
        E = LabelSpace.of(self.labels).grown(classes).represent([[name] for name in classes])
        start = random_signs(rng, (r, len(classes)))
        alpha = float(self.alpha)
        ridge = alpha * np.eye(r) if self.ridge_on == "diagonal" else alpha
        nothing = ClassCodes(np.zeros((r, 0)), np.zeros((0, E.shape[1])))
        return nothing.plus(E, start, self.n_iter, ridge)

    def _codes(
        self,
        own: ClassCodes,
        L: sp.csr_array,
        classes: tuple[str, ...],
        rng: np.random.Generator,
    ) -> tuple[Array, ClassCodes]:
        return np.sign(L @ own.C.T), own  # (n, r), 0 where undecided
