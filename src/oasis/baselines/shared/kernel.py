"""Kernel features: similarities of a sample to a fixed set of anchors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from oasis.arrays import Array, Matrix, has_row, inner_products
from oasis.baselines.shared.parameters import check_weight
from oasis.errors import InputError

Width: TypeAlias = float | Literal["mean"]


@dataclass(frozen=True)
class AnchorKernel:
    """``phi(x) = [exp(-|x - a_j|^2 / (2 sigma^2))]_j``, with a constant 1 at the end if asked for.

    A row of zeros stands for a sample that lacks the modality: its features are all zero, the
    constant included, so that it adds nothing to any sum.

    Attributes
    ----------
    anchors : (p, d), dense or CSR, as the chunk they were drawn from
    sigma : the kernel's width
    bias : whether there is a constant
    """

    anchors: Matrix
    sigma: float
    bias: bool

    @classmethod
    def at(cls, X: Matrix, rows: npt.NDArray[np.intp], sigma: Width, *, bias: bool) -> AnchorKernel:
        """Return the kernel whose anchors are rows of X.

        With ``sigma="mean"``, sigma^2 is the mean squared distance between the rows of X that are
        not zero and the anchors; 1 when all of them coincide.
        """
        anchors: Matrix = X[rows]
        if sigma == "mean":
            squares = _squared_distances(X, anchors)[has_row(X)]
            mean = float(squares.mean()) if squares.size else 0.0
            sigma = np.sqrt(mean) if mean > 0 else 1.0
        return cls(anchors, float(sigma), bias)

    @property
    def n_anchors(self) -> int:
        return int(self.anchors.shape[0])

    @property
    def width(self) -> int:
        """Number of features of a sample before the kernel, d."""
        return int(self.anchors.shape[1])

    @property
    def n_features(self) -> int:
        """Number of kernel features, p or p + 1."""
        return self.n_anchors + self.bias

    def features(self, X: Matrix) -> Array:
        """Return phi (n, n_features), float64; distances are taken in the precision of X.

        Cost: one product of X with the anchors and n p exponentials. CSR rows are not densified.
        """
        phi = np.empty((X.shape[0], self.n_features))
        similarities = phi[:, : self.n_anchors]
        np.multiply(_squared_distances(X, self.anchors), -0.5 / self.sigma**2, out=similarities)
        np.exp(similarities, out=similarities)
        if self.bias:
            phi[:, -1] = 1
        phi[~has_row(X)] = 0
        return phi


def check_widths(
    sigma: Any, modalities: Mapping[str, Any], published: Mapping[str, float]
) -> dict[str, Width]:
    """Return a width per modality.

    Parameters
    ----------
    sigma : None for the published widths, a number or "mean" for all modalities, or a mapping of
        modality name to one of these two
    modalities : what the chunk has
    published : modality name -> the width that the method's authors used
    """
    if sigma is None:
        sigma = published
    elif not isinstance(sigma, Mapping):
        sigma = dict.fromkeys(modalities, sigma)
    widths: dict[str, Width] = {}
    for name in modalities:
        if name not in sigma:
            raise InputError(
                f"there is no kernel width for modality {name!r}, only for {sorted(sigma)}; pass "
                f"sigma='mean', or sigma={{{name!r}: ...}} with a width per modality"
            )
        value = sigma[name]
        if isinstance(value, str):
            if value != "mean":
                raise InputError(
                    f"sigma of {name!r} must be a positive number or 'mean', got {value!r}"
                )
            widths[name] = "mean"
        else:
            widths[name] = check_weight(f"sigma of {name!r}", value, positive=True)
    return widths


def _squared_distances(X: Matrix, anchors: Matrix) -> npt.NDArray[Any]:
    with np.errstate(over="ignore", invalid="ignore"):
        squares = inner_products(X, anchors)  # (n, p)
        squares *= -2
        squares += _squares(X)[:, None]
        squares += _squares(anchors)
    if not np.isfinite(squares).all():
        raise InputError("the squared distances overflow: features this large cannot be used")
    np.maximum(squares, 0, out=squares)
    return squares


def _squares(X: Matrix) -> npt.NDArray[Any]:
    if isinstance(X, sp.csr_array):
        return np.asarray(X.multiply(X).sum(axis=1)).ravel()
    return np.asarray(np.vecdot(X, X))
