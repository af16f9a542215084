"""FOMH: flexible online multi-modal hashing (ACM Multimedia 2019)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.linalg import blas, cho_factor, cho_solve

from oasis.arrays import Array, GeneratorState, Matrix, generator_at, random_signs, state_of
from oasis.baselines.shared.classes import (
    check_announced,
    grown,
    indicator_of,
    refuse_unannounced,
    similarity_times,
)
from oasis.baselines.shared.kernel import AnchorKernel, Width, check_widths
from oasis.baselines.shared.parameters import (
    check_count,
    check_unchanged,
    check_weight,
    first_state,
)
from oasis.baselines.shared.signs import residuals, signs
from oasis.baselines.shared.solvers import ridge_factor
from oasis.codes import Codes, check_n_bits, pack
from oasis.hashers.chunk import (
    Chunk,
    check_features,
    check_finite,
)
from oasis.hashers.learner import (
    Learner,
)

PUBLISHED_WIDTHS = {"image": 140.0, "text": 60.0}
"""The authors' kernel widths, for features with distances of this size."""

_ENCODING_PASSES = 5
_ENCODING_ROWS = 1000


@dataclass(frozen=True)
class FOMHRegression:
    """The hash function of one modality, and the sums it is solved from.

    Attributes
    ----------
    kernel : maps features to phi (n, p)
    BK : (p, r), sum of phi'B
    KK : (p, p), sum of phi'phi, Fortran order, lower triangle only
    W : (p, r)
    mu : the modality's share of the error
    """

    kernel: AnchorKernel
    BK: Array
    KK: Array
    W: Array
    mu: float

    @classmethod
    def zero(cls, kernel: AnchorKernel, n_bits: int, mu: float) -> FOMHRegression:
        """Return the regression that has seen nothing."""
        p = kernel.n_features
        nothing = np.zeros((p, n_bits))
        return cls(kernel, nothing, np.zeros((p, p), order="F"), nothing, mu)


@dataclass(frozen=True)
class FOMHVariables:
    """Codes, multipliers and relaxed codes, (n, r): the start of a next chunk of the same size.

    ``Gm`` are the multipliers of the constraint ``B = Z``.
    """

    B: Array
    Z: Array
    Gm: Array
    D: Array

    @classmethod
    def random(cls, n_samples: int, n_bits: int, rng: np.random.Generator) -> FOMHVariables:
        """Draw B, Z and D, in that order."""
        shape = (n_samples, n_bits)
        B, Z = random_signs(rng, shape), random_signs(rng, shape)
        return cls(B, Z, B - Z, rng.standard_normal(shape))


@dataclass(frozen=True)
class FOMHState:
    """The state of FOMH; its size depends on the size of a chunk, not on the stream."""

    regressions: dict[str, FOMHRegression]
    variables: FOMHVariables
    classes: tuple[str, ...]
    n_seen: int
    generator: GeneratorState

    @property
    def widths(self) -> dict[str, int]:
        return {name: each.kernel.width for name, each in self.regressions.items()}


class FOMH(Learner[FOMHState]):
    """Flexible online multi-modal hashing: kernel regressions, weighted by their errors.

    The codes of a chunk, as those of queries, are encoded with the W of the round. Encoding is not
    row by row: as in the authors' program, the weights of the modalities are fitted to 1,000 rows
    at a time and carried over to the next 1,000, so a code depends slightly on its batch.

    Parameters
    ----------
    n_bits : int
        Length of a code, a positive multiple of 8.
    n_anchors : int
        Anchors of the kernel, drawn from the first chunk (all of its rows when it has fewer); the
        same rows for every modality.
    sigma : None, "mean", float, or a mapping of modality name to "mean" or float
        Kernel width. None: the published 140 for "image" and 60 for "text", which suit features
        with distances of this size; a width that is off by a factor of 5 gives a warning.
        "mean": the root mean squared distance between the first chunk and the anchors,
        for any features. The width is set by the first chunk.
    alpha, beta, gamma, rho : float
        Weights of similarity, relaxation, ridge, and of the multipliers' step.
    n_iter : int
        Iterations per round.
    classes : list of str, optional
        All classes of the stream, announced in advance; a chunk with any other class is refused.
        None accepts every class. The result does not depend on it: the formulas compare samples
        only within one chunk.
    random_state : int, numpy Generator or None
        Seed of the anchors and of the random starts.

    Attributes
    ----------
    codes_ : (n, n_bits / 8) uint8
        The last chunk's codes, to be stored as they are.
    classes_ : tuple of str
        The announced classes, or those seen in order of arrival.
    n_seen_ : int
        Samples seen.

    Notes
    -----
    B, Z, D and the multipliers of a chunk are the start of the next one if it has the same number
    of samples; otherwise they are drawn again. The similarity ``S = 2LL' - 11'`` is never formed.
    Unlabelled samples are learned from as in the formulas: they are similar to nothing. If few
    pairs share a label, S is nearly -1 everywhere and drives all samples to the same bits; the
    method suits data whose samples often share labels.

    With M modalities the weights start at 1 / M (published for two, 1/2). If a query lacks a
    modality, the weights of the others sum to 1. A row of zeros is a sample that lacks the
    modality, also in a chunk, and adds nothing to any sum.

    Cost of a round with n samples and p anchors, per modality: n p d for the kernel, n p^2 for its
    Gram matrix, then per iteration one Cholesky factorisation of (p, p) and products of n p r.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = {"image": rng.random((6, 20)), "text": rng.random((6, 10))}
    >>> y = [["sky"], ["sky"], ["sea"], ["sea", "sky"], ["cat"], ["cat"]]
    >>> model = FOMH(n_bits=16, n_anchors=4, sigma="mean", random_state=0).partial_fit(X, y)
    >>> model.codes_.shape, model.classes_
    ((6, 2), ('sky', 'sea', 'cat'))
    >>> bool((model.encode(X) == model.codes_).all())
    True
    """

    def __init__(
        self,
        n_bits: int = 64,
        n_anchors: int = 1000,
        sigma: Width | Mapping[str, Width] | None = None,
        alpha: float = 1e-5,
        beta: float = 0.1,
        gamma: float = 1e-3,
        rho: float = 0.1,
        n_iter: int = 10,
        classes: Collection[str] | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_anchors = n_anchors
        self.sigma = sigma
        self.alpha = alpha
        self.beta = beta
        self.gamma = gamma
        self.rho = rho
        self.n_iter = n_iter
        self.classes = classes
        self.random_state = random_state

    def project(self, X: Mapping[str, Any]) -> npt.NDArray[np.float32]:
        """Return ``sum_m mu_m phi_m W_m`` over the modalities that X has, (n, n_bits) float32.

        The mu of a batch sum to 1. They depend on the other rows of the batch; see the class.
        """
        state = self.learned
        features = check_features(X, state.widths)
        for name, matrix in features.items():
            check_finite(matrix, name)
        n_samples = next(iter(features.values())).shape[0]
        projections = {name: np.empty((n_samples, self.n_bits)) for name in features}
        for start in range(0, n_samples, _ENCODING_ROWS):
            rows = slice(start, start + _ENCODING_ROWS)
            for name, matrix in features.items():
                regression = state.regressions[name]
                projections[name][rows] = regression.kernel.features(matrix[rows]) @ regression.W
        return _weighted(projections)

    def _check_parameters(self, state: FOMHState | None) -> None:
        n_bits = check_n_bits(self.n_bits)
        check_count("n_anchors", self.n_anchors)
        check_count("n_iter", self.n_iter)
        for name in ("alpha", "rho"):
            check_weight(name, getattr(self, name))
        for name in ("beta", "gamma"):
            check_weight(name, getattr(self, name), positive=True)
        check_announced(self.classes)
        if state is not None:
            check_unchanged("n_bits", n_bits, state.variables.B.shape[1])

    def _check_chunk(self, chunk: Chunk, state: FOMHState | None) -> None:
        announced = check_announced(self.classes)
        if announced is not None:
            way_out = "name every class of the stream in classes, or pass classes=None"
            refuse_unannounced(chunk.labels, announced, way_out)

    def _start(self, chunk: Chunk) -> FOMHState:
        classes = check_announced(self.classes) or ()
        widths = check_widths(self.sigma, chunk.X, PUBLISHED_WIDTHS)
        rng = generator_at(first_state(self.random_state))
        n_anchors = min(self.n_anchors, chunk.n_samples)
        anchors = rng.choice(chunk.n_samples, size=n_anchors, replace=False)
        regressions = {
            name: FOMHRegression.zero(
                AnchorKernel.at((matrix,), anchors, widths[name], bias=True, name=name),
                self.n_bits,
                1 / len(chunk.X),
            )
            for name, matrix in chunk.X.items()
        }
        variables = FOMHVariables.random(chunk.n_samples, self.n_bits, rng)
        return FOMHState(regressions, variables, classes, 0, state_of(rng))

    def _learn(self, old: FOMHState | None, chunk: Chunk) -> tuple[FOMHState, Codes]:
        state = old or self._start(chunk)
        rng = generator_at(state.generator)
        variables = state.variables
        if len(variables.B) != chunk.n_samples:
            variables = FOMHVariables.random(chunk.n_samples, self.n_bits, rng)
        classes = grown(state.classes, chunk.labels)
        L = indicator_of(chunk.labels, classes)  # (n, c)
        rounds = {
            name: _RegressionRound(state.regressions[name], matrix, float(self.gamma))
            for name, matrix in chunk.X.items()
        }
        for _ in range(self.n_iter):
            for each in rounds.values():
                each.w_step(variables.B)
            variables = self._step(variables, L, list(rounds.values()))
            _mu_step(variables.B, list(rounds.values()))
        learned = FOMHState(
            {name: each.regression for name, each in rounds.items()},
            variables,
            classes,
            state.n_seen + chunk.n_samples,
            state_of(rng),
        )
        codes = pack(_weighted({name: each.projections for name, each in rounds.items()}))
        return learned, codes

    def _step(
        self, old: FOMHVariables, L: sp.csr_array, rounds: list[_RegressionRound]
    ) -> FOMHVariables:
        """Return B, D, Z and the multipliers after one iteration; see docs/formulas.md."""
        alpha, beta, rho, r = self.alpha, self.beta, self.rho, self.n_bits
        Q = 2 * alpha * r * similarity_times(L, old.D) + 2 * beta * old.D - old.Gm  # (n, r)
        Q += old.Z @ (rho * np.eye(r) - alpha * (old.D.T @ old.D))
        for each in rounds:
            Q += 2 / each.regression.mu * each.projections
        B = signs(Q)
        A = alpha * (B.T @ B) + beta * np.eye(r)
        target = alpha * r * similarity_times(L, B) + beta * B  # (n, r)
        D = cho_solve(cho_factor(A, lower=True), target.T).T
        Z = signs(B @ (rho * np.eye(r) - alpha * (D.T @ D)) + old.Gm)
        return FOMHVariables(B, Z, old.Gm + rho * (B - Z), np.ascontiguousarray(D))


class _RegressionRound:
    """One modality of one chunk being learned."""

    def __init__(self, old: FOMHRegression, X: Matrix, gamma: float) -> None:
        self._old_BK, self._gamma = old.BK, gamma
        self._phi = old.kernel.features(X)  # (n, p)
        KK = blas.dsyrk(1.0, self._phi.T, beta=1.0, c=old.KK, lower=1)  # (p, p)
        self.regression = replace(old, KK=KK)
        self.projections: Array = np.empty((0, 0))  # (n, r), phi W

    def w_step(self, B: Array) -> None:
        """Solve ``W = (sum phi'phi / mu + gamma I)^-1 (sum phi'B / mu)`` and project the chunk."""
        old = self.regression
        BK = self._old_BK + self._phi.T @ B  # (p, r)
        W = cho_solve(ridge_factor(old.KK, self._gamma * old.mu, "gamma mu"), BK)  # (p, r)
        self.regression = replace(old, BK=BK, W=W)
        self.projections = self._phi @ W


def _mu_step(B: Array, rounds: list[_RegressionRound]) -> None:
    """Set each modality's mu to its share of the errors."""
    errors = residuals(B, [each.projections for each in rounds])
    for each, mu in zip(rounds, errors / errors.sum(), strict=True):
        each.regression = replace(each.regression, mu=float(mu))


def _weighted(projections: Mapping[str, Array]) -> npt.NDArray[np.float32]:
    """Return the weighted sum of the modalities' projections, (n, r), whose signs are the codes.

    Batches of 1,000 rows; in each, five times ``B = sign(sum mu_m P_m)`` and mu_m in proportion to
    ``1 / |B - P_m|``. Only ratios of the mu matter, so they are kept at a sum of 1.
    """
    parts = list(projections.values())
    total = np.empty(parts[0].shape, dtype=np.float32)
    mu = np.full(len(parts), 1 / len(parts))
    for start in range(0, len(total), _ENCODING_ROWS):
        rows = slice(start, start + _ENCODING_ROWS)
        for _ in range(_ENCODING_PASSES):
            weighted = sum(weight * part[rows] for weight, part in zip(mu, parts, strict=True))
            B = signs(np.asarray(weighted))
            mu = 1 / residuals(B, [part[rows] for part in parts])
            mu /= mu.sum()
        total[rows] = weighted
    return total
