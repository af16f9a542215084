"""What IW-OMH and its successor HCFW share: codes of classes, and queries weighted by modality."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_solve

from oasis.arrays import Array, Matrix, has_row
from oasis.baselines.shared.linear import GramSums, LinearHasher, LinearState
from oasis.baselines.shared.parameters import check_choice
from oasis.baselines.shared.signs import signs
from oasis.baselines.shared.solvers import pinv_solve, ridge_factor
from oasis.errors import InputError
from oasis.hashers.chunk import check_finite

RidgeOn: TypeAlias = Literal["diagonal", "entries"]

T = TypeVar("T")


@dataclass(frozen=True)
class ClassCodes:
    """A code of +1 and -1 for each class, and the unit vectors they were learned from.

    Attributes
    ----------
    C : (r, c), one column per class
    E : (c, f), one row per class
    """

    C: Array
    E: Array

    def plus(self, E: Array, start: Array, n_iter: int, ridge: Array | float = 0.0) -> ClassCodes:
        """Return the codes with those of new classes added; see docs/formulas.md.

        Parameters
        ----------
        E : (c_new, f), unit vectors of the new classes; f has grown for the known ones by zeros
        start : (r, c_new), random signs
        ridge : added to the matrix of the regression, a number to every entry
        """
        known = np.pad(self.E, ((0, 0), (0, E.shape[1] - self.E.shape[1])))
        gram, target = self.C @ self.C.T + ridge, self.C @ known
        C = start.copy()
        for _ in range(n_iter):
            Q = pinv_solve(gram + C @ C.T, target + C @ E)  # (r, f)
            QE, QQ = Q @ E.T, Q @ Q.T  # (r, c_new), (r, r)
            np.fill_diagonal(QQ, 0)
            for bit in range(len(C)):
                C[bit] = signs(QE[bit] - QQ[bit] @ C)
        return ClassCodes(np.hstack([self.C, C]), np.vstack([known, E]))


class ClassCodeHasher(LinearHasher[T], Generic[T]):
    """A method with a code for each class, the sign of whose sum is the code of a sample."""

    theta: float
    delta: float
    ridge_on: RidgeOn

    def _check_parameters(self, state: LinearState[T] | None) -> None:
        super()._check_parameters(state)
        check_choice("ridge_on", self.ridge_on, ("diagonal", "entries"))

    def _solved(self, own: T, features: Mapping[str, GramSums]) -> WeightedMap:
        return WeightedMap.solved(features, float(self.theta), float(self.delta), self.ridge_on)


@dataclass(frozen=True)
class WeightedMap:
    """Hash functions whose weight in a query depends on their predicted error.

    Attributes
    ----------
    W : modality name -> (d, r)
    R : modality name -> (d, r), ``X R`` is the predicted error of ``X W``
    """

    W: dict[str, Array]
    R: dict[str, Array]

    @classmethod
    def solved(
        cls, features: Mapping[str, GramSums], theta: float, delta: float, ridge_on: RidgeOn
    ) -> WeightedMap:
        """Solve both. Cost: two Cholesky factorisations of (d, d), or one if theta is delta."""
        W, R = {}, {}
        for name, sums in features.items():
            factor = ridge_factor(sums.XX, theta, "theta")
            W[name] = cho_solve(factor, sums.BX.T)
            # sum X'B - (sum X'X) W is theta W, as W solves its own equation
            if ridge_on == "entries":
                R[name] = pinv_solve(sums.XX + delta, theta * W[name])
            else:
                if delta != theta:
                    factor = ridge_factor(sums.XX, delta, "delta")
                R[name] = cho_solve(factor, theta * W[name])
        return cls(W, R)

    def project(self, X: Mapping[str, Matrix]) -> npt.NDArray[np.float32]:
        """Return ``sum_m (h_max - h_m) X_m W_m``, (n, r).

        ``h_m`` is the predicted error of a sample in a modality, the sum over bits of
        ``|X_m R_m|``, and ``h_max`` is the maximum over X, so the projections of a sample depend on
        the other samples. The sum runs over the modalities that X has. A sample that has the
        largest error in all its modalities would get zeros; it gets equal weights.
        """
        for name, matrix in X.items():
            check_finite(matrix, name)
        with np.errstate(over="ignore", invalid="ignore"):
            errors = {
                name: np.abs(_product(each, self.R[name])).sum(axis=1) for name, each in X.items()
            }
        largest = max((float(each.max(initial=0.0)) for each in errors.values()), default=0.0)
        present = {name: has_row(matrix).astype(np.float64) for name, matrix in X.items()}
        with np.errstate(over="ignore", invalid="ignore"):
            weights = {name: present[name] * (largest - errors[name]) for name in X}
            lost = np.sum(list(weights.values()), axis=0) == 0
            total = sum(
                np.where(lost, present[name], weights[name])[:, None] * _product(each, self.W[name])
                for name, each in X.items()
            )
            projections = np.asarray(total, dtype=np.float32)
        if not np.isfinite(projections).all():
            raise InputError("the projections overflow: features this large cannot be used")
        return projections


def _product(matrix: Matrix, right: Array) -> Array:
    """Return ``X right`` (n, r), in float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(matrix @ right, dtype=np.float64)
