"""CHOICE: online cross-modal hashing of samples whose classes are related (OH-CMH)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas, cho_solve

from oasis.arrays import (
    Array,
    GeneratorState,
    Matrix,
    generator_at,
    has_row,
    random_signs,
    state_of,
    unit_rows,
)
from oasis.baselines.shared.classes import grown, indicator_of
from oasis.baselines.shared.kernel import AnchorKernel, chosen_width, mean_squared_distance
from oasis.baselines.shared.linear import ClassSums
from oasis.baselines.shared.parameters import (
    check_choice,
    check_count,
    check_unchanged,
    check_weight,
    first_state,
)
from oasis.baselines.shared.signs import signs
from oasis.baselines.shared.solvers import pinv_solve, ridge_factor
from oasis.codes import Codes, check_n_bits, pack
from oasis.hashers.chunk import Chunk, check_features, check_finite
from oasis.hashers.learner import Learner
from oasis.labels import LabelSpace
from oasis.model.updates import v_step

Centre: TypeAlias = Literal["batch", "first"]


@dataclass(frozen=True)
class CHOICEView:
    """One modality: its kernel, sums over its kernel features phi (n, p), and its hash function.

    Attributes
    ----------
    kernel : maps features to similarities to anchors; its width is that of the first chunk
    mean : (p,), mean similarities of the first chunk
    KK : (p, p), sum of phi'phi, Fortran order, lower triangle only
    BK : (p, r), sum of phi'B
    GK : (p, c), sum of phi'G
    W : (p, r)
    """

    kernel: AnchorKernel
    mean: Array
    KK: Array
    BK: Array
    GK: Array
    W: Array

    @classmethod
    def start(cls, X: Matrix, rows: npt.NDArray[np.intp], n_bits: int, name: str) -> CHOICEView:
        """Return the view that has seen nothing; its anchors are rows of the first chunk X."""
        kernel = AnchorKernel.at((X,), rows, "mean", bias=False, name=name)
        p = kernel.n_features
        nothing = np.zeros((p, n_bits))
        mean = _mean(kernel.features(X), X)
        return cls(kernel, mean, np.zeros((p, p), order="F"), nothing, np.zeros((p, 0)), nothing)

    def features(self, X: Matrix, centre: Centre) -> Array:
        """Return phi (n, p), centred; a row of zeros, which lacks the modality, stays zeros."""
        kernel, mean = self.kernel, self.mean
        if centre == "batch":
            width = chosen_width("mean", mean_squared_distance((X,), kernel.anchors), "")
            kernel = replace(kernel, sigma=width)
        phi = kernel.features(X)
        phi -= _mean(phi, X) if centre == "batch" else mean
        phi[~has_row(X)] = 0
        return phi


@dataclass(frozen=True)
class CHOICEState:
    """The state of CHOICE; its size depends on anchors and classes, not on samples.

    ``sums`` are those of V'V (r, r), G'V and G'B (c, r); ``GG`` is the sum of G'G (c, c).
    """

    sums: ClassSums
    GG: Array
    views: dict[str, CHOICEView]
    labels: LabelSpace
    classes: tuple[str, ...]
    n_seen: int
    generator: GeneratorState

    @property
    def widths(self) -> dict[str, int]:
        return {name: view.kernel.width for name, view in self.views.items()}


class CHOICE(Learner[CHOICEState]):
    """Online cross-modal hashing with kernels, for classes that are related to each other.

    Published for labels in two layers, with a given matrix of relations between all classes. Here
    the relation of two classes is the cosine of their vectors; with ``labels="orthogonal"``, the
    default, a class is related to itself only. Published for cross-modal search; here a query uses
    the sum of the projections of its modalities, so that it may have any of them.

    Parameters
    ----------
    n_bits : int
        Length of a code, a positive multiple of 8.
    labels : optional
        Source of the class vectors: a mapping name -> vector, "orthogonal", "wordllama", the path
        of a word2vec or GloVe file, or a `LabelSpace`.
    n_anchors : int
        Anchors of the kernel, drawn from the first chunk (all of its rows when it has fewer); the
        same rows for every modality.
    alpha, beta, eta, gamma : float
        Weights of similarity, of the regression of codes on labels, of the hash functions, and of
        their agreement with the labels.
    xi : float
        Ridge of the hash functions.
    rho : float
        Weight of the multipliers' step.
    n_iter : int
        Iterations per round.
    centre : {"first", "batch"}
        Whether the kernel's width and the mean of its features are those of the first chunk, or
        those of each batch of samples or queries, as published. With the latter a code depends on
        its batch, and a lone query has the code of zeros.
    random_state : int, numpy Generator or None
        Seed of the anchors, once, and of the random start of every round.

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
    G has one column for each class seen so far, and old samples have zeros in the columns of new
    ones. The hash functions are those of the last W step, which is before the last B step.

    Cost of a round with n samples and p anchors, per modality: n p d for the kernel, n p^2 for its
    Gram matrix, a Cholesky factorisation of (p, p), then products of n p r per iteration.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = {"image": rng.random((4, 20)), "text": rng.random((4, 10))}
    >>> model = CHOICE(16, random_state=0).partial_fit(X, [["sky"], ["sea"], ["sky"], ["cat"]])
    >>> model.classes_, model.codes_.shape, model.encode({"text": X["text"]}).shape
    (('sky', 'sea', 'cat'), (4, 2), (4, 2))
    """

    def __init__(
        self,
        n_bits: int = 64,
        labels: LabelSpace | Mapping[str, Any] | str | PathLike[str] = "orthogonal",
        n_anchors: int = 2000,
        alpha: float = 1e-3,
        beta: float = 1e4,
        eta: float = 1.0,
        gamma: float = 1.0,
        xi: float = 1e-4,
        rho: float = 0.1,
        n_iter: int = 7,
        centre: Centre = "first",
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.labels = labels
        self.n_anchors = n_anchors
        self.alpha = alpha
        self.beta = beta
        self.eta = eta
        self.gamma = gamma
        self.xi = xi
        self.rho = rho
        self.n_iter = n_iter
        self.centre = centre
        self.random_state = random_state

    def project(self, X: Mapping[str, Any]) -> npt.NDArray[np.float32]:
        """Return ``sum_m phi_m W_m`` over the modalities that X has, (n, n_bits) float32."""
        state = self.learned
        features = check_features(X, state.widths)
        for name, matrix in features.items():
            check_finite(matrix, name)
        parts = [
            state.views[name].features(matrix, self.centre) @ state.views[name].W
            for name, matrix in features.items()
        ]
        return np.asarray(sum(parts[1:], start=parts[0]), dtype=np.float32)

    def _check_parameters(self, state: CHOICEState | None) -> None:
        n_bits = check_n_bits(self.n_bits)
        check_count("n_anchors", self.n_anchors)
        check_count("n_iter", self.n_iter)
        for name in ("alpha", "eta", "gamma", "rho"):
            check_weight(name, getattr(self, name))
        for name in ("beta", "xi"):
            check_weight(name, getattr(self, name), positive=True)
        check_choice("centre", self.centre, ("first", "batch"))
        if state is not None:
            check_unchanged("n_bits", n_bits, len(state.sums["VV"]))

    def _start(self, chunk: Chunk) -> CHOICEState:
        r, n = self.n_bits, chunk.n_samples
        rng = generator_at(first_state(self.random_state))
        rows = rng.choice(n, size=min(self.n_anchors, n), replace=False)
        views = {name: CHOICEView.start(matrix, rows, r, name) for name, matrix in chunk.X.items()}
        sums, labels = ClassSums.zero(r, ("VV",), ("GV", "GB")), LabelSpace.of(self.labels)
        return CHOICEState(sums, np.zeros((0, 0)), views, labels, (), 0, state_of(rng))

    def _learn(self, old: CHOICEState | None, chunk: Chunk) -> tuple[CHOICEState, Codes]:
        state = old or self._start(chunk)
        rng = generator_at(state.generator)
        classes = grown(state.classes, chunk.labels)
        labels = state.labels.grown(classes[len(state.classes) :])
        E = labels.represent([[name] for name in classes])  # (c, f), unit rows
        G = np.asarray(unit_rows(indicator_of(chunk.labels, classes) @ (E @ E.T)))  # (n, c)
        rounds = {
            name: _ViewRound(state.views[name], matrix, G, self) for name, matrix in chunk.X.items()
        }
        more = len(classes) - len(state.GG)
        GG = np.pad(state.GG, ((0, more), (0, more))) + G.T @ G  # (c, c)
        old_sums = state.sums.widened(len(classes))
        B, sums = self._iterate(old_sums, GG, G, list(rounds.values()), rng)
        learned = CHOICEState(
            sums,
            GG,
            {name: each.finish(B) for name, each in rounds.items()},
            labels,
            classes,
            state.n_seen + chunk.n_samples,
            state_of(rng),
        )
        return learned, pack(B)

    def _iterate(
        self,
        old: ClassSums,
        GG: Array,
        G: Array,
        rounds: list[_ViewRound],
        rng: np.random.Generator,
    ) -> tuple[Array, ClassSums]:
        """Return the codes of one round, see docs/formulas.md, and the sums after it.

        Draws B and the completion of V, in that order.
        """
        n, r = len(G), self.n_bits
        alpha, beta, weight = float(self.alpha), float(self.beta), float(self.eta * self.gamma)
        B = random_signs(rng, (n, r))
        noise = rng.standard_normal((n, max(0, min(r, n - 1))))
        Z, Q = B, np.zeros((n, r))
        for _ in range(self.n_iter):
            GB = old["GB"] + G.T @ B  # (c, r)
            V = v_step(B + alpha * r * (G @ GB), noise)
            VV, GV = old["VV"] + V.T @ V, old["GV"] + G.T @ V
            target = beta * GB + weight * sum(each.GK.T @ each.W for each in rounds)
            P = pinv_solve(GG, target) / (beta + weight)  # (c, r)
            total = 2 * V - alpha * (Z @ VV) + 2 * (G @ (alpha * r * GV + beta * P))
            for each in rounds:
                total += 2 * self.eta * each.step(B, P)
            B = signs(total + self.rho * Z - Q)
            Z = signs(self.rho * B + Q - alpha * (B @ VV))
            Q = Q + self.rho * (B - Z)
        return B, old.plus(VV=V.T @ V, GV=G.T @ V, GB=G.T @ B)


class _ViewRound:
    """One modality of one chunk being learned."""

    def __init__(self, old: CHOICEView, X: Matrix, G: Array, model: CHOICE) -> None:
        self._old, self._gamma = old, float(model.gamma)
        self._phi = old.features(X, model.centre)  # (n, p)
        self._KK = blas.dsyrk(1.0, self._phi.T, beta=1.0, c=old.KK, lower=1)
        grown_by = G.shape[1] - old.GK.shape[1]
        self.GK = np.pad(old.GK, ((0, 0), (0, grown_by))) + self._phi.T @ G  # (p, c)
        self.W = np.zeros_like(old.W)  # (p, r)
        self._factor = ridge_factor((1 + self._gamma) * self._KK, float(model.xi), "xi")

    def step(self, B: Array, P: Array) -> Array:
        """Solve W for the codes B (n, r) and P (c, r), and return ``phi W`` (n, r)."""
        target = self._old.BK + self._phi.T @ B + self._gamma * (self.GK @ P)
        self.W = cho_solve(self._factor, target)
        return self._phi @ self.W

    def finish(self, B: Array) -> CHOICEView:
        """Return the view whose sums include the chunk with the codes B."""
        BK = self._old.BK + self._phi.T @ B
        return replace(self._old, KK=self._KK, BK=BK, GK=self.GK, W=self.W)


def _mean(phi: Array, X: Matrix) -> Array:
    """Return the mean (p,) of the kernel features of the samples that have the modality."""
    mean: Array = phi.sum(axis=0) / max(1, int(has_row(X).sum()))
    return mean
