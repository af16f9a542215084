"""Linear hash functions, and the prediction of labels from several of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array, Matrix, Single, has_row, in_range
from oasis.errors import InputError
from oasis.hashers.chunk import (
    check_finite,
)

Mask: TypeAlias = npt.NDArray[np.bool_]
"""Which rows are meant, (n,)."""

MOST_EXPLAINED = 0.95
"""Cap on R²: predictions of training samples are optimistic."""

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
    def _single(self) -> dict[str, Single]:
        return {name: W.astype(np.float32) for name, W in self.weights.items()}

    def arrays(self) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        """Yield everything that the projections depend on, by name."""
        yield f"normalize {self.normalize}", np.zeros(0)
        for kind, arrays in (("weights", self.weights), ("offsets", self.offsets)):
            yield from ((f"{kind} {name}", array) for name, array in arrays.items())

    def project(self, X: Mapping[str, Matrix]) -> Single:
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
        part: npt.NDArray[Any]  # (n, r)
        if self.normalize:
            matrix, scale = in_range(matrix)
            part = matrix @ W.T
            part *= scale[:, None]
        else:
            part = matrix @ W.T
        if name in self.offsets:
            part -= np.outer(has_row(matrix), self.offsets[name]).astype(part.dtype, copy=False)
        return part


@dataclass(frozen=True)
class LabelMap:
    """Predict the labels of a sample.

    Every modality predicts each class by a linear map. What a prediction ``p_m`` has beyond the
    share ``q`` of samples with the class is evidence, and the evidence of modalities adds up:

        ``p = q + sum_m a_m (p_m - q)``  with  ``a_m = 1 / ((1 - R_m) (1 + sum_k R_k / (1 - R_k)))``

    where ``R_m`` is how much of the class modality m explains. These are the coefficients of a
    regression on the predictions of all modalities, assuming modalities independent given the
    class, so no cross-modality Gram matrix is needed. A modality alone has ``a = 1``.

    Attributes
    ----------
    predictors : modality name -> map to c values, near 1 for the classes of a sample
    explained : modality name -> R (c,), from 0 to `MOST_EXPLAINED`
    shares : q (c,), of all samples, those with each class
    """

    predictors: Mapping[str, LinearMap]
    explained: Mapping[str, Array]
    shares: Array

    @property
    def widths(self) -> dict[str, int]:
        return {name: map_.widths[name] for name, map_ in self.predictors.items()}

    def predict(self, X: Mapping[str, Matrix]) -> Single:
        """Return the (n, c) float32 predictions of the labels.

        A row of zeros is a modality that the sample lacks; a sample without any modality gets 0.
        """
        return self.combined(
            {name: self.predictors[name].project({name: matrix}) for name, matrix in X.items()},
            {name: has_row(matrix) for name, matrix in X.items()},
        )

    def combined(self, predictions: Mapping[str, Single], has: Mapping[str, Mask]) -> Single:
        """Return one prediction (n, c) from those of each modality, and which rows have it."""
        parts = [(each, has[name], self.explained[name]) for name, each in predictions.items()]
        return added_evidence(parts, self.shares.astype(np.float32))


def added_evidence(parts: Sequence[tuple[Single, Mask, Array]], prior: Single) -> Single:
    """Return one prediction (n, c) from those of several modalities, as in `LabelMap`.

    Parameters
    ----------
    parts : per modality its predictions (n, c), which rows have the modality (n,), and R (c,)
    prior : (c,), what is predicted without any evidence
    """
    n = len(parts[0][0])
    evidence = np.zeros((n, len(prior)), dtype=np.float32)
    odds = np.zeros((1, len(prior)), dtype=np.float32)
    has_any = np.zeros((n, 1), dtype=np.bool_)
    for prediction, has, explained in parts:
        R, mask = explained.astype(np.float32), has[:, None]
        evidence += mask * (prediction - prior) / (1 - R)
        odds = odds + mask * (R / (1 - R))
        has_any |= mask
    evidence /= 1 + odds
    evidence += has_any * prior
    return evidence


def sharpened(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the positive part of label values to the power `SHARPNESS`.

    >>> sharpened(np.array([1.0, 0.5, -0.2])).round(2)
    array([1. , 0.3, 0. ])
    """
    return np.asarray(np.maximum(labels, 0) ** SHARPNESS)
