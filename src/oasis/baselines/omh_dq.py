"""OMH-DQ: online multi-modal hashing with dynamic query adaption (SIGIR 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve

from oasis.arrays import Array, GeneratorState, Matrix, generator_at, random_signs, state_of
from oasis.baselines.shared.batch import BatchHasher, BatchState, KernelRows
from oasis.baselines.shared.classes import similarity_between, similarity_times
from oasis.baselines.shared.kernel import AnchorKernel, Width, blocks
from oasis.baselines.shared.parameters import check_choice, check_count, check_weight
from oasis.baselines.shared.signs import random_rotation, residuals, signs
from oasis.baselines.shared.solvers import ridge_factor

QueryWeights: TypeAlias = Literal["published", "inverse"]

PUBLISHED_WIDTHS = {"image": 60.0, "text": 80.0}
"""The authors' kernel widths, for features with distances of this size."""

_ENCODING_PASSES = 4


@dataclass(frozen=True)
class DynamicQueries:
    """The hash function: kernel regressions whose weights are fitted to a batch of queries.

    Attributes
    ----------
    kernels : modality name -> kernel
    W : modality name -> (p, r)
    generator : the state from which every encoding draws its random start
    weights : whether a modality is weighted by its error or by the inverse of it
    """

    kernels: dict[str, AnchorKernel]
    W: dict[str, Array]
    generator: GeneratorState
    weights: QueryWeights

    def project(self, X: Mapping[str, Matrix]) -> npt.NDArray[np.float32]:
        parts = {}
        for name, matrix in X.items():
            W = self.W[name]
            parts[name] = np.empty((matrix.shape[0], W.shape[1]))
            for rows in blocks(matrix.shape[0]):
                block = KernelRows.of(self.kernels[name], (matrix[rows],))
                parts[name][rows] = block.times(W)
        return self.weighted(parts)

    def weighted(self, parts: Mapping[str, Array]) -> npt.NDArray[np.float32]:
        """Return the weighted sum of the modalities' ``phi W`` (n, r), whose signs are the codes.

        From random signs B, four times mu_m in proportion to ``|B - phi_m W_m|`` (or its inverse),
        and ``B = sign(sum mu_m phi_m W_m)``.
        """
        first = next(iter(parts.values()))
        B = random_signs(generator_at(self.generator), (first.shape[0], first.shape[1]))
        for _ in range(_ENCODING_PASSES):
            mu = residuals(B, parts.values())
            if self.weights == "inverse":
                mu = 1 / mu
            mu /= mu.sum()
            total = np.asarray(sum(m * part for m, part in zip(mu, parts.values(), strict=True)))
            B = signs(total)
        return total.astype(np.float32)


class OMHDQ(BatchHasher):
    """Online multi-modal hashing with dynamic query adaption: a batch method.

    At each chunk it is retrained on everything seen. Encoding works on a whole set at once: the
    weights of the modalities are fitted to all rows of a call together, so a code depends slightly
    on its batch. ``all_codes_`` is the encoding of everything seen in one batch.

    Parameters
    ----------
    n_bits : int
        Length of a code, a positive multiple of 8.
    n_anchors : int
        Number of anchors of the kernel, drawn from everything seen (all rows if there are fewer);
        the same rows for every modality.
    sigma : None, "mean", float, or a mapping of modality name to "mean" or float
        Kernel width. None: the published 60 for "image" and 80 for "text", which suit features
        with distances of this size; a width that is off by a factor of 5 gives a warning.
        "mean": the root mean squared distance between everything seen and the anchors.
    alpha, beta, delta, lam : float
        Weights of similarity, rotation, ridge, and of the multipliers (the paper's lambda).
    n_iter : int
        Iterations of a training.
    query_weights : {"published", "inverse"}
        Weight of a modality in encoding: as published, proportional to its error, which favours the
        worse one; or proportional to the inverse of its error.
    random_state : int, numpy Generator or None
        Seed of anchors and random starts. Every training and every encoding uses the same draws.

    Attributes
    ----------
    codes_ : (n, n_bits / 8) uint8
        The last chunk's codes.
    all_codes_ : (n_seen_, n_bits / 8) uint8
        The codes of everything seen, in order of arrival, which replace the stored ones.
    classes_, n_seen_
        Classes seen in order of arrival, and the number of samples.

    Notes
    -----
    The similarity ``S = 2LL' - 11'`` is never formed; unlabelled samples are similar to nothing.
    With M modalities the weights start at 1 / M (published for two). A row of zeros is a sample
    that lacks the modality; its kernel features are zero.

    Cost of a training on n samples with p anchors, per modality: n p d for the kernel and n p^2 for
    its Gram matrix, then per iteration one Cholesky factorisation of (p, p) and two products of
    n p r. Memory: the features, n p numbers per modality, and about a dozen (n, r) arrays. Measured
    for 500 + 1,000 float32 features, 1,000 anchors and 128 bits, 193,834 samples take 5.2 GB; with
    float64 features 1.6 GB more.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = {"image": rng.random((6, 20)), "text": rng.random((6, 10))}
    >>> y = [["sky"], ["sky"], ["sea"], ["sea", "sky"], ["cat"], ["cat"]]
    >>> model = OMHDQ(n_bits=16, n_anchors=4, sigma="mean", random_state=0).partial_fit(X, y)
    >>> model.partial_fit(X, y).codes_.shape, model.all_codes_.shape
    ((6, 2), (12, 2))
    """

    _bias: ClassVar[bool] = True
    _published_widths: ClassVar[Mapping[str, float]] = PUBLISHED_WIDTHS

    def __init__(
        self,
        n_bits: int = 64,
        n_anchors: int = 1000,
        sigma: Width | Mapping[str, Width] | None = None,
        alpha: float = 1e-3,
        beta: float = 1e-5,
        delta: float = 1e-3,
        lam: float = 1e5,
        n_iter: int = 9,
        query_weights: QueryWeights = "published",
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_anchors = n_anchors
        self.sigma = sigma
        self.alpha = alpha
        self.beta = beta
        self.delta = delta
        self.lam = lam
        self.n_iter = n_iter
        self.query_weights = query_weights
        self.random_state = random_state

    def _check_parameters(self, state: BatchState | None) -> None:
        super()._check_parameters(state)
        check_count("n_iter", self.n_iter)
        for name in ("alpha", "lam"):
            check_weight(name, getattr(self, name))
        for name in ("beta", "delta"):
            check_weight(name, getattr(self, name), positive=True)
        check_choice("query_weights", self.query_weights, ("published", "inverse"))

    def _train(
        self, X: dict[str, KernelRows], L: sp.csr_array, rng: np.random.Generator
    ) -> tuple[DynamicQueries, npt.NDArray[np.float32]]:
        """Run the iterations of docs/formulas.md; draws B, Zb, R and Zr, in that order."""
        alpha, beta, lam, r = self.alpha, self.beta, self.lam, self.n_bits
        n = int(L.shape[0])
        B, Zb = random_signs(rng, (n, r)), random_signs(rng, (n, r))
        R, Zr = random_rotation(rng, r), random_rotation(rng, r)
        Gb, Gr = B - Zb, R - Zr
        BR = B @ R  # (n, r)
        H = (beta * BR + alpha * r * similarity_times(L, BR)) / (beta + alpha)  # (n, r)
        regressions = [_Regression(rows, float(self.delta), 1 / len(X)) for rows in X.values()]
        for each in regressions:
            each.w_step(H)
        for _ in range(self.n_iter):
            errors = residuals(B, [each.projections for each in regressions])
            for each, mu in zip(regressions, errors / errors.sum(), strict=True):
                each.mu = float(mu)
                each.w_step(H)
            BB, HH = B.T @ B, H.T @ H  # (r, r)
            R = _polar(
                2 * beta * (B.T @ H)
                + 2 * alpha * r * similarity_between(L, B, H)
                - alpha * (BB @ Zr @ HH)
                + lam * Zr
                - Gr
            )
            BR = B @ R
            target = beta * BR + alpha * r * similarity_times(L, BR)
            for each in regressions:
                target += each.projections / each.mu
            weight = sum(1 / each.mu for each in regressions) + beta
            A = weight * np.eye(r) + alpha * (BR.T @ BR)
            H = np.ascontiguousarray(cho_solve(cho_factor(A, lower=True), target.T).T)
            HR = H @ R.T  # (n, r), the published R H
            pull = lam * np.eye(r) - alpha * (HR.T @ HR)  # (r, r)
            B = signs(2 * beta * HR + 2 * alpha * r * similarity_times(L, HR) + Zb @ pull - Gb)
            Zb = signs(B @ pull + Gb)
            Zr = _polar(lam * R - alpha * (B.T @ B @ R @ (H.T @ H)) + Gr)
            Gb, Gr = B - Zb, R - Zr
        encoder = DynamicQueries(
            {name: rows.kernel for name, rows in X.items()},
            {name: each.W for name, each in zip(X, regressions, strict=True)},
            state_of(rng),
            self.query_weights,
        )
        parts = {name: each.projections for name, each in zip(X, regressions, strict=True)}
        return encoder, encoder.weighted(parts)


class _Regression:
    """The regression of H on the kernel features of one modality."""

    def __init__(self, rows: KernelRows, delta: float, mu: float) -> None:
        self.mu = mu
        self._rows, self._delta, self._gram = rows, delta, rows.gram()
        self.W: Array = np.empty((0, 0))  # (p, r)
        self.projections: Array = np.empty((0, 0))  # (n, r), phi W

    def w_step(self, H: Array) -> None:
        """Solve ``W = (phi'phi / mu + delta I)^-1 (phi'H / mu)`` and project everything."""
        factor = ridge_factor(self._gram, self._delta * self.mu, "delta mu")
        self.W = cho_solve(factor, self._rows.transposed_times(H))
        self.projections = self._rows.times(self.W)


def _polar(M: Array) -> Array:
    """Return the orthogonal matrix closest to M (r, r)."""
    left, _, right = np.linalg.svd(M)
    nearest: Array = left @ right
    return nearest
