"""The encoding of SAPMH, which fits each sample with the modalities that it has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array, GeneratorState, Matrix, generator_at, random_signs
from oasis.baselines.shared.batch import KernelRows
from oasis.baselines.shared.kernel import AnchorKernel, blocks
from oasis.baselines.shared.signs import LEAST_RESIDUAL, signs
from oasis.baselines.shared.solvers import PSDFactor

MuFeatures: TypeAlias = Literal["own", "first"]

_STOP_FROM = 4
_LEAST_FALL = 0.001
_PASSES = 9


def modality_weight(squared_error: float) -> float:
    """Return ``1 / (2 e)`` for a modality whose error is e, at least 1e-12.

    >>> modality_weight(4.0)
    0.25
    """
    return 1 / (2 * max(float(np.sqrt(squared_error)), LEAST_RESIDUAL))


class FittedModality:
    """Products of some samples' kernel features with one modality's U, from which H is fitted.

    Attributes
    ----------
    phiU : (n, k), ``phi U'``
    UU : (k, k), ``U U'``
    present : (n,), which samples have the modality: their phi is not all zeros
    """

    def __init__(self, n_samples: int, U: Array) -> None:
        self._U, self._squares = U, 0.0
        self.UU = U @ U.T
        self.phiU = np.empty((n_samples, len(U)))
        self.present = np.zeros(n_samples, dtype=bool)

    def fill(self, rows: slice, part: KernelRows) -> None:
        """Set the products of these rows from their kernel features."""
        self.phiU[rows] = part.times(self._U.T)
        self.present[rows] = part.phi.any(axis=1)
        self._squares += part.squares()

    def error(self, H: Array) -> float:
        """Return ``|phi - HU|^2`` over the samples that have the modality."""
        phiU = self.phiU
        if not self.present.all():
            H, phiU = H[self.present], phiU[self.present]
        fitted = float(np.vdot(H.T @ H, self.UU)) - 2 * float(np.vdot(phiU, H))
        return max(0.0, self._squares + fitted)


@dataclass(frozen=True)
class PartialViews:
    """The hash function: H is fitted to the views that a sample has, and ``HW`` gives its code.

    Attributes
    ----------
    kernels : modality name -> kernel
    U : modality name -> (k, p)
    W : (k, r)
    theta : weight of the codes
    generator : the state from which every encoding draws its random start
    mu_features : from whose kernel features the weight of a modality is computed
    """

    kernels: dict[str, AnchorKernel]
    U: dict[str, Array]
    W: Array
    theta: float
    generator: GeneratorState
    mu_features: MuFeatures

    def project(self, X: Mapping[str, Matrix]) -> npt.NDArray[np.float32]:
        n = int(next(iter(X.values())).shape[0])
        parts = (
            (
                rows,
                {
                    name: KernelRows.of(self.kernels[name], (matrix[rows],))
                    for name, matrix in X.items()
                },
            )
            for rows in blocks(n)
        )
        return self._fitted(n, list(X), parts)

    def project_rows(self, X: Mapping[str, KernelRows]) -> npt.NDArray[np.float32]:
        """Return the projections of samples, given their kernel features."""
        n = len(next(iter(X.values())).phi)
        parts = (
            (rows, {name: KernelRows(each.kernel, each.phi[rows]) for name, each in X.items()})
            for rows in blocks(n)
        )
        return self._fitted(n, list(X), parts)

    def _fitted(
        self, n: int, names: list[str], parts: Iterable[tuple[slice, dict[str, KernelRows]]]
    ) -> npt.NDArray[np.float32]:
        """Return ``HW`` (n, r), whose signs are the codes; SAPMH in docs/formulas.md.

        Draws B and H, in that order. A sample is fitted with the modalities that it has; one
        without any projects to zero.
        """
        views = {name: FittedModality(n, self.U[name]) for name in names}
        weighed = dict(views)
        if self.mu_features == "first":
            weighed |= {name: FittedModality(n, self.U[name]) for name in names[1:]}
        for rows, part in parts:
            for name in names:
                views[name].fill(rows, part[name])
                if weighed[name] is not views[name]:
                    weighed[name].fill(rows, part[names[0]])
        rng = generator_at(self.generator)
        B = random_signs(rng, (n, self.W.shape[1]))
        H = rng.standard_normal((n, len(self.W)))
        patterns = _patterns([view.present for view in views.values()])
        before = np.inf
        for step in range(1, _PASSES + 1):
            mu = {name: modality_weight(view.error(H)) for name, view in weighed.items()}
            self._h_step(H, B, mu, views, patterns)
            D = H @ self.W  # (n, r)
            B = signs(D)
            F = self.theta * float(np.square(B - D).sum())
            F += sum(
                modality_weight(weighed[name].error(H)) * views[name].error(H) for name in names
            )
            if step >= _STOP_FROM and before - F < _LEAST_FALL:
                break
            before = F
        return D.astype(np.float32)

    def _h_step(
        self,
        H: Array,
        B: Array,
        mu: Mapping[str, float],
        views: Mapping[str, FittedModality],
        patterns: list[tuple[npt.NDArray[np.bool_], npt.NDArray[np.intp]]],
    ) -> None:
        """Replace H (n, k) in place by the fit to B and the views."""
        np.matmul(B, self.theta * self.W.T, out=H)
        for name, view in views.items():
            for rows in blocks(len(H)):
                H[rows] += mu[name] * view.phiU[rows]
        for has, lines in patterns:
            A = self.theta * (self.W @ self.W.T)  # (k, k)
            for here, (name, view) in zip(has, views.items(), strict=True):
                if here:
                    A += mu[name] * view.UU
            if len(lines) == len(H) and has.any():
                PSDFactor.of(A).solve_rows(H)
            else:
                part = H[lines]
                PSDFactor.of(A).solve_rows(part)
                H[lines] = part if has.any() else 0


def _patterns(
    present: list[npt.NDArray[np.bool_]],
) -> list[tuple[npt.NDArray[np.bool_], npt.NDArray[np.intp]]]:
    """Return each combination of modalities that occurs, and its rows."""
    combinations, which = np.unique(np.column_stack(present), axis=0, return_inverse=True)
    return [(has, np.flatnonzero(which.ravel() == i)) for i, has in enumerate(combinations)]
