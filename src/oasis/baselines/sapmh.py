"""SAPMH: supervised adaptive partial multi-view hashing (IEEE Transactions on Multimedia)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from oasis.arrays import Array, random_signs, state_of
from oasis.baselines.shared.batch import BatchHasher, BatchState, KernelRows
from oasis.baselines.shared.classes import similarity_between, similarity_squared, similarity_times
from oasis.baselines.shared.kernel import Width
from oasis.baselines.shared.parameters import check_choice, check_count, check_weight
from oasis.baselines.shared.partial_views import MuFeatures, PartialViews, modality_weight
from oasis.baselines.shared.signs import signs
from oasis.baselines.shared.solvers import PSDFactor

WWeight: TypeAlias = Literal["mu", "rho"]

NUSWIDE: dict[str, Any] = {"sigma": 88.0, "k": 500, "theta": 1e-7, "rho": 1e-5, "lam": 1e-3}
"""The published parameters for NUS-WIDE; the defaults are those for MIRFlickr."""

_STOP_FROM = 4
_LEAST_FALL = 0.01


@dataclass(frozen=True)
class SAPMHWeights:
    """The weights of the objective: theta (codes), rho (similarity), lam (ridge of U)."""

    theta: float
    rho: float
    lam: float


class SAPMHTraining:
    """The variables of one training, and a method for each step; see docs/formulas.md.

    ``F = sum_m mu_m |phi_m - H U_m|^2 + theta |B - HW|^2 + rho |S - B(HW)'|^2 + lam sum_m |U_m|^2``

    The steps of H and U minimise F exactly, and so does that of W with ``w_weight="rho"``: none of
    these increases F. The steps of B, Z and the multipliers Gm solve an augmented problem, and the
    step of mu changes the weights of F.

    Attributes
    ----------
    B, Z, Gm : (n, r)
    H : (n, k)
    U : modality name -> (k, p)
    W : (k, r)
    mu : modality name -> weight
    """

    def __init__(
        self,
        X: Mapping[str, KernelRows],
        L: sp.csr_array,
        weights: SAPMHWeights,
        shape: tuple[int, int],
        w_weight: WWeight,
        rng: np.random.Generator,
    ) -> None:
        """Start from random B, Z and H, drawn in that order; ``shape`` is (k, r)."""
        n, (k, r) = int(L.shape[0]), shape
        self._X, self._L, self._weights, self._w_weight = X, L, weights, w_weight
        self._squares = {name: rows.squares() for name, rows in X.items()}
        self._S2 = similarity_squared(L)
        self.mu = {name: 1 / len(X) for name in X}
        self.B, self.Z = random_signs(rng, (n, r)), random_signs(rng, (n, r))
        self.Gm = self.B - self.Z
        self._take(rng.standard_normal((n, k)))
        self.u_step()
        self.w_step()

    def _take(self, H: Array) -> None:
        self.H = H
        self._HH = H.T @ H  # (k, k)
        self._Hphi = {name: rows.transposed_times(H).T for name, rows in self._X.items()}  # (k, p)

    def h_step(self) -> None:
        """Minimise F over H."""
        theta, rho = self._weights.theta, self._weights.rho
        A = (theta * self.W + rho * (self.W @ (self.B.T @ self.B))) @ self.W.T  # (k, k)
        target = theta * self.B + rho * similarity_times(self._L, self.B)  # (n, r)
        H = np.matmul(target, self.W.T, out=self.H)  # in place: the largest array of the training
        for name, rows in self._X.items():
            mu, U = self.mu[name], self.U[name]
            A += mu * (U @ U.T)
            rows.add_times(mu * U.T, H)
        PSDFactor.of(A).solve_rows(H)
        self._take(H)

    def u_step(self) -> None:
        """Minimise F over U."""
        ridge = self._weights.lam * np.eye(len(self._HH))
        self.U = {
            name: PSDFactor.of(mu * self._HH + ridge).solve(mu * self._Hphi[name])
            for name, mu in self.mu.items()
        }

    def w_step(self) -> None:
        """Solve ``W = (H'H)^-1 (theta H'B + rho H'SB)(theta I + w B'B)^-1``.

        With ``w = rho`` this is the minimiser of F over W. The authors' program has the weight of
        the last modality as w; see ``w_weight`` of `SAPMH`.
        """
        theta, rho = self._weights.theta, self._weights.rho
        target = theta * (self.H.T @ self.B) + rho * similarity_between(self._L, self.H, self.B)
        weight = list(self.mu.values())[-1] if self._w_weight == "mu" else rho
        A = theta * np.eye(self.B.shape[1]) + weight * (self.B.T @ self.B)  # (r, r)
        self.W = PSDFactor.of(A).solve(PSDFactor.of(self._HH).solve(target).T).T

    def b_step(self) -> None:
        """Renew B, Z and the multipliers."""
        theta, rho, r = self._weights.theta, self._weights.rho, self.B.shape[1]
        D = self.H @ self.W  # (n, r)
        DD = rho * (D.T @ D)
        Q = 2 * theta * D + 2 * rho * r * similarity_times(self._L, D)
        Q += 0.01 * self.Z - self.Z @ DD - self.Gm
        self.B = signs(Q)
        self.Z = signs(0.1 * self.B - self.B @ DD + self.Gm)
        self.Gm += 0.1 * (self.B - self.Z)

    def mu_step(self) -> None:
        """Weigh each modality by the inverse of its error."""
        self.mu = {name: modality_weight(self._residual(name)) for name in self._X}

    def objective(self) -> float:
        """Return F, with every square expanded."""
        theta, rho, lam = self._weights.theta, self._weights.rho, self._weights.lam
        D = self.H @ self.W  # (n, r)
        between = float(np.vdot(self.B, similarity_times(self._L, D)))
        similarity = self._S2 - 2 * between + float(np.vdot(self.B.T @ self.B, D.T @ D))
        F = theta * float(np.square(self.B - D).sum()) + rho * similarity
        for name, U in self.U.items():
            F += self.mu[name] * self._residual(name) + lam * float(np.vdot(U, U))
        return F

    def _residual(self, name: str) -> float:
        """Return ``|phi - HU|^2``."""
        U = self.U[name]
        fitted = float(np.vdot(self._HH @ U - 2 * self._Hphi[name], U))
        return max(0.0, self._squares[name] + fitted)


class SAPMH(BatchHasher):
    """Supervised adaptive partial multi-view hashing: a batch method.

    At each chunk it is retrained on everything seen. Encoding fits a set of samples as a whole (the
    weights of the modalities are common to all rows of a call), so a code depends slightly on its
    batch. ``all_codes_`` is the encoding of everything seen in one batch.

    Parameters
    ----------
    n_bits : int
        Length of a code, a positive multiple of 8.
    n_anchors : int
        Number of anchors of the kernel, drawn from everything seen (all rows if there are fewer);
        the same rows for every modality.
    sigma : "mean", float, or a mapping of modality name to "mean" or float
        Kernel width. The published widths suit features with distances of this size; a width that
        is off by a factor of 5 gives a warning. "mean": the root mean squared distance between
        everything seen and the anchors.
    k : int
        Dimensions of the common representation H.
    theta, rho, lam : float
        Weights of the codes, of similarity, and the ridge of U (the paper's lambda). The defaults
        are those published for MIRFlickr; `NUSWIDE` holds the others: ``SAPMH(64, **NUSWIDE)``.
    max_iter : int
        Maximum number of iterations of a training. From the fourth on, it stops when the objective
        decreases by less than 0.01.
    w_weight : {"mu", "rho"}
        Weight w of B'B in ``W = (H'H)^-1 (theta H'B + rho H'SB)(theta I + w B'B)^-1``. "mu": the
        weight mu of the last modality, as in the authors' program; rho remains in the target.
        "rho": rho in both places, as in the derivation.
    mu_features : {"own", "first"}
        Kernel features from which the weights in encoding are computed: each modality's own, or the
        first modality's for all, as in the authors' program. With ``w_weight="mu"`` and "first"
        the codes equal those of the program.
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
    that lacks the modality: in training its kernel features are zero, and in encoding only the
    present modalities are fitted. A singular system gets a small ridge; see `PSDFactor`.

    Cost of a training on n samples with p anchors, per modality: n p d for the kernel, then per
    iteration two products of n p k. Memory: the features, n p numbers per modality, three (n, k)
    and about eight (n, r) arrays. Measured for 500 + 1,000 float32 features, 500 anchors, k = 500
    and 128 bits, 193,834 samples take 3.7 GB.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = {"image": rng.random((6, 20)), "text": rng.random((6, 10))}
    >>> y = [["sky"], ["sky"], ["sea"], ["sea", "sky"], ["cat"], ["cat"]]
    >>> model = SAPMH(16, n_anchors=4, sigma="mean", k=3, random_state=0).partial_fit(X, y)
    >>> model.partial_fit(X, y).codes_.shape, model.all_codes_.shape
    ((6, 2), (12, 2))
    """

    _bias: ClassVar[bool] = False

    def __init__(
        self,
        n_bits: int = 64,
        n_anchors: int = 500,
        sigma: Width | Mapping[str, Width] = 100.0,
        k: int = 128,
        theta: float = 1e-4,
        rho: float = 1e-6,
        lam: float = 100.0,
        max_iter: int = 99,
        w_weight: WWeight = "mu",
        mu_features: MuFeatures = "own",
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_anchors = n_anchors
        self.sigma = sigma
        self.k = k
        self.theta = theta
        self.rho = rho
        self.lam = lam
        self.max_iter = max_iter
        self.w_weight = w_weight
        self.mu_features = mu_features
        self.random_state = random_state

    def _check_parameters(self, state: BatchState | None) -> None:
        super()._check_parameters(state)
        for name in ("k", "max_iter"):
            check_count(name, getattr(self, name))
        check_weight("rho", self.rho)
        for name in ("theta", "lam"):
            check_weight(name, getattr(self, name), positive=True)
        check_choice("w_weight", self.w_weight, ("mu", "rho"))
        check_choice("mu_features", self.mu_features, ("own", "first"))

    def _train(
        self, X: dict[str, KernelRows], L: sp.csr_array, rng: np.random.Generator
    ) -> tuple[PartialViews, npt.NDArray[np.float32]]:
        U, W = self._iterate(X, L, rng)
        encoder = PartialViews(
            {name: rows.kernel for name, rows in X.items()},
            U,
            W,
            float(self.theta),
            state_of(rng),
            self.mu_features,
        )
        return encoder, encoder.project_rows(X)

    def _iterate(
        self, X: dict[str, KernelRows], L: sp.csr_array, rng: np.random.Generator
    ) -> tuple[dict[str, Array], Array]:
        """Return the U and W of the last iteration."""
        weights = SAPMHWeights(float(self.theta), float(self.rho), float(self.lam))
        training = SAPMHTraining(X, L, weights, (self.k, self.n_bits), self.w_weight, rng)
        before = np.inf
        for step in range(1, self.max_iter + 1):
            training.h_step()
            training.u_step()
            training.w_step()
            training.b_step()
            training.mu_step()
            F = training.objective()
            if step >= _STOP_FROM and before - F < _LEAST_FALL:
                break
            before = F
        return training.U, training.W
