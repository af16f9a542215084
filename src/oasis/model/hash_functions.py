"""Hash functions: linear ones, and one that goes through predicted labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array, Matrix, has_row, inverse_norms
from oasis.errors import InputError
from oasis.hashers.chunk import (
    check_finite,
)
from oasis.model.codewords import (
    likely_codes,
)
from oasis.model.readout import Readout

MOST_EXPLAINED = 0.95
"""No modality is taken to explain more of a class: what it predicts of its own samples flatters."""

SHARPNESS = 1.75
"""Power to which predicted labels are raised before they are weighed against each other."""


@dataclass(frozen=True)
class LinearMap:
    """``x -> sum_m (x_m W_m' - o_m)`` over the modalities that a sample has.

    A modality that is absent, or that is a row of zeros, adds nothing: no offset either.

    Attributes
    ----------
    weights : modality name -> W_m (r, d_m)
    offsets : modality name -> o_m (r,); a modality without one has none
    normalize : whether rows are scaled to unit length first
    """

    weights: Mapping[str, Array]
    offsets: Mapping[str, Array] = field(default_factory=dict)
    normalize: bool = False

    @property
    def widths(self) -> dict[str, int]:
        return {name: int(W.shape[1]) for name, W in self.weights.items()}

    @cached_property
    def _single(self) -> dict[str, npt.NDArray[np.float32]]:
        return {name: W.astype(np.float32) for name, W in self.weights.items()}

    def project(self, X: Mapping[str, Matrix]) -> npt.NDArray[np.float32]:
        """Return the (n, r) float32 projections of a non-empty subset of the modalities.

        Values are checked on the result: NaN or infinity in a row is an `InputError`.
        """
        with np.errstate(all="ignore"):
            parts = [self._part(name, matrix) for name, matrix in X.items()]
            total = np.asarray(sum(parts[1:], start=parts[0])).astype(np.float32, copy=False)
        if not np.isfinite(total).all():
            for name, matrix in X.items():
                check_finite(matrix, name)
            raise InputError("the projections overflow: features this large cannot be used")
        return total

    def _part(self, name: str, matrix: Matrix) -> npt.NDArray[Any]:
        W = self._single[name] if matrix.dtype == np.float32 else self.weights[name]
        part: npt.NDArray[Any] = matrix @ W.T  # (n, r)
        if self.normalize:
            part *= inverse_norms(matrix)[:, None]
        if name in self.offsets:
            part -= np.outer(has_row(matrix), self.offsets[name]).astype(part.dtype, copy=False)
        return part


@dataclass(frozen=True)
class LabelMap:
    """``x -> D w``: predict the labels of a sample, and go where codes with such labels are.

    Every modality predicts each class by a linear map. What a prediction ``p_m`` has beyond the
    share ``q`` of samples with the class is evidence, and evidence adds up:

        ``p = q + sum_m a_m (p_m - q)``  with  ``a_m = 1 / ((1 - R_m) (1 + sum_k R_k / (1 - R_k)))``

    where ``R_m`` is how much of the class modality m explains. These are the coefficients of a
    regression on the predictions of all modalities, if these are related through the class alone;
    the sums over single modalities then tell what a regression over all of them would need their
    products for. A modality alone has ``a = 1``. ``w`` is the positive part of p to a power that
    favours what is predicted clearly.

    Attributes
    ----------
    predictors : modality name -> map to c values, near 1 for the classes of a sample
    explained : modality name -> R (c,), from 0 to `MOST_EXPLAINED`
    shares : q (c,), of all samples, those with each class
    readout : where codes with given labels are
    """

    predictors: Mapping[str, LinearMap]
    explained: Mapping[str, Array]
    shares: Array
    readout: Readout

    @property
    def widths(self) -> dict[str, int]:
        return {name: map_.widths[name] for name, map_ in self.predictors.items()}

    def project(self, X: Mapping[str, Matrix]) -> npt.NDArray[np.float32]:
        """Return the (n, r) float32 projections of a non-empty subset of the modalities.

        A row of zeros is a modality that the sample lacks.
        """
        return self.readout.project(sharpened(self.predict(X)))

    def predict(self, X: Mapping[str, Matrix]) -> npt.NDArray[np.float32]:
        """Return the (n, c) float32 predictions of the labels."""
        shares = self.shares.astype(np.float32)
        evidence: npt.NDArray[Any] = np.zeros((1, len(shares)), dtype=np.float32)
        odds: npt.NDArray[Any] = np.zeros_like(evidence)
        has_any = np.zeros((1, 1), dtype=np.bool_)
        for name, matrix in X.items():
            prediction = self.predictors[name].project({name: matrix})  # (n, c)
            R = self.explained[name].astype(np.float32)
            has_modality = prediction.any(axis=1, keepdims=True)
            prediction -= has_modality * shares
            prediction /= 1 - R
            evidence = evidence + prediction
            odds = odds + has_modality * (R / (1 - R))
            has_any = has_any | has_modality
        evidence /= 1 + odds
        evidence += has_any * shares
        return evidence


@dataclass(frozen=True)
class LabelCoder:
    """``x -> w C``: predict the labels of a sample, and give it the code that they make.

    For samples that are stored, where a `LabelMap` is for those that search.

    Attributes
    ----------
    labels : what predicts the labels
    codewords : C (c, r), see `oasis.model.codewords`
    n_owned : the last so many bits are owned by classes
    """

    labels: LabelMap
    codewords: Array
    n_owned: int

    @property
    def widths(self) -> dict[str, int]:
        return self.labels.widths

    def project(self, X: Mapping[str, Matrix]) -> npt.NDArray[np.float32]:
        """Return (n, r) float32 values whose signs are the codes."""
        weights = sharpened(self.labels.predict(X))
        return likely_codes(weights, self.codewords, self.n_owned)


def sharpened(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return label values weighed against each other: what is clear counts for more.

    >>> sharpened(np.array([1.0, 0.5, -0.2])).round(2)
    array([1. , 0.3, 0. ])
    """
    return np.asarray(np.maximum(labels, 0) ** SHARPNESS)
