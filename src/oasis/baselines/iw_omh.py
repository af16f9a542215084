"""IW-OMH: online hashing with a code per class and weights per query, later known as HCFW."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_solve

from oasis.arrays import Array, Matrix, generator_at, has_row, random_signs
from oasis.baselines.shared.classes import check_announced, indicator_of, refuse_unannounced
from oasis.baselines.shared.gram_sums import GramSums
from oasis.baselines.shared.parameters import (
    check_choice,
    check_count,
    check_unchanged,
    check_weight,
    first_state,
)
from oasis.baselines.shared.solvers import PSDFactor, ridge_factor
from oasis.codes import Codes, check_n_bits, pack
from oasis.errors import InputError
from oasis.hashers.chunk import (
    Chunk,
    check_features,
    check_finite,
)
from oasis.hashers.learner import (
    Learner,
)
from oasis.labels import LabelSpace

RidgeOn: TypeAlias = Literal["diagonal", "entries"]


def class_codes(E: Array, alpha: float, n_iter: int, ridge_on: RidgeOn, start: Array) -> Array:
    """Return C (r, c), a code of +1 and -1 for each class; see docs/formulas.md.

    Parameters
    ----------
    E : (c, f), unit vectors of the classes
    start : (r, c), random signs
    """
    C = start.copy()
    ridge = alpha * np.eye(len(C)) if ridge_on == "diagonal" else alpha
    for _ in range(n_iter):
        Q = PSDFactor.of(C @ C.T + ridge).solve(C @ E)  # (r, f)
        QE, QQ = Q @ E.T, Q @ Q.T  # (r, c), (r, r)
        np.fill_diagonal(QQ, 0)
        for bit in range(len(C)):
            C[bit] = np.where(QE[bit] - QQ[bit] @ C > 0, 1.0, -1.0)
    return C


@dataclass(frozen=True)
class IWOMHRegression:
    """One modality: its sums, its hash function, and the predictor of the hash function's error.

    Attributes
    ----------
    sums : sum X'X and sum B'X
    W : (r, d)
    R : (d, r), ``X R`` is the predicted error of ``X W'``
    """

    sums: GramSums
    W: Array
    R: Array

    @classmethod
    def solved(
        cls, sums: GramSums, theta: float, delta: float, ridge_on: RidgeOn
    ) -> IWOMHRegression:
        """Solve both. Cost: two Cholesky factorisations of (d, d), or one if theta is delta."""
        factor = _ridge_factor(sums.XX, theta, "theta")
        Wt = cho_solve(factor, sums.BX.T)  # (d, r)
        # sum X'B - (sum X'X) W' is theta W', as W solves its own equation
        if ridge_on == "entries":
            XX = np.tril(sums.XX) + np.tril(sums.XX, -1).T
            R = PSDFactor.of(XX + delta).solve(theta * Wt)
        else:
            if delta != theta:
                factor = _ridge_factor(sums.XX, delta, "delta")
            R = cho_solve(factor, theta * Wt)
        return cls(sums, np.ascontiguousarray(Wt.T), R)


@dataclass(frozen=True)
class IWOMHState:
    """The state of IW-OMH; its size depends on classes and features, not on samples."""

    C: Array
    classes: tuple[str, ...]
    regressions: dict[str, IWOMHRegression]
    n_seen: int

    @property
    def widths(self) -> dict[str, int]:
        return {name: each.sums.n_features for name, each in self.regressions.items()}


class IWOMH(Learner[IWOMHState]):
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

    def project(self, X: Mapping[str, Any]) -> npt.NDArray[np.float32]:
        """Return ``sum_m (h_max - h_m) X_m W_m'``, (n, n_bits) float32.

        ``h_m`` is the predicted error of a sample in a modality, the sum over bits of
        ``|X_m R_m|``, and ``h_max`` is the maximum over X, so the projections of a sample depend on
        the other samples. The sum runs over the modalities that X has.
        """
        state = self.learned
        features = check_features(X, state.widths)
        for name, matrix in features.items():
            check_finite(matrix, name)
        errors = {
            name: np.abs(_product(matrix, state.regressions[name].R)).sum(axis=1)
            for name, matrix in features.items()
        }
        largest = max((float(each.max(initial=0.0)) for each in errors.values()), default=0.0)
        present = {name: has_row(matrix).astype(np.float64) for name, matrix in features.items()}
        weights = {name: present[name] * (largest - errors[name]) for name in features}
        lost = np.sum(list(weights.values()), axis=0) == 0
        total = np.zeros((len(lost), len(state.C)))
        for name, matrix in features.items():
            weight = np.where(lost, present[name], weights[name])
            total += weight[:, None] * _product(matrix, state.regressions[name].W.T)
        with np.errstate(over="ignore"):
            projections = total.astype(np.float32)
        if not np.isfinite(projections).all():
            raise InputError("the projections overflow: features this large cannot be used")
        return projections

    def _check_parameters(self, state: IWOMHState | None) -> None:
        n_bits = check_n_bits(self.n_bits)
        check_count("n_iter", self.n_iter)
        for name in ("alpha", "theta", "delta"):
            check_weight(name, getattr(self, name), positive=True)
        check_choice("ridge_on", self.ridge_on, ("diagonal", "entries"))
        classes = self._announced()
        if state is not None:
            check_unchanged("n_bits", n_bits, len(state.C))
            check_unchanged("classes", classes, state.classes)

    def _announced(self) -> tuple[str, ...]:
        classes = check_announced(self.classes)
        if not classes:
            raise InputError(
                "IWOMH must know all classes of the stream in advance; name them in classes"
            )
        return classes

    def _check_chunk(self, chunk: Chunk, state: IWOMHState | None) -> None:
        way_out = "IWOMH must know all classes in advance and cannot learn a new one"
        refuse_unannounced(chunk.labels, self._announced(), way_out)

    def _start(self, chunk: Chunk) -> IWOMHState:
        classes = self._announced()
        rng = generator_at(first_state(self.random_state))
        E = LabelSpace.of(self.labels).grown(classes).represent([[name] for name in classes])
        start = random_signs(rng, (self.n_bits, len(classes)))
        C = class_codes(E, float(self.alpha), self.n_iter, self.ridge_on, start)
        nothing = {
            name: GramSums.zero(self.n_bits, int(matrix.shape[1]))
            for name, matrix in chunk.X.items()
        }
        regressions = {
            name: IWOMHRegression(sums, sums.BX, sums.BX.T) for name, sums in nothing.items()
        }
        return IWOMHState(C, classes, regressions, 0)

    def _learn(self, old: IWOMHState | None, chunk: Chunk) -> tuple[IWOMHState, Codes]:
        state = old or self._start(chunk)
        B = np.sign(
            indicator_of(chunk.labels, state.classes) @ state.C.T
        )  # (n, r), 0 where undecided
        regressions = {
            name: IWOMHRegression.solved(
                state.regressions[name].sums.plus(matrix, B),
                float(self.theta),
                float(self.delta),
                self.ridge_on,
            )
            for name, matrix in chunk.X.items()
        }
        n_seen = state.n_seen + chunk.n_samples
        return IWOMHState(state.C, state.classes, regressions, n_seen), pack(B)


def _ridge_factor(XX: Array, ridge: float, name: str) -> tuple[Array, bool]:
    """Return the Cholesky factor of ``XX + ridge I``; ``name`` is the ridge's name, for errors."""
    if_singular = (
        f"the sum X'X + {name} I is singular in float64: {name}={ridge} is too small for "
        f"features with a sum of squares of {np.trace(XX):.3g}; scale the features or raise {name}"
    )
    return ridge_factor(XX, ridge, if_singular)


def _product(matrix: Matrix, right: Array) -> Array:
    """Return ``X right`` (n, r), in float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(matrix @ right, dtype=np.float64)
