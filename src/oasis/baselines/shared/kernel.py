"""Kernel features: similarities of a sample to a fixed set of anchors."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from oasis.arrays import Array, Matrix, has_row, inner_products
from oasis.baselines.shared.parameters import check_weight
from oasis.errors import InputError, KernelWidthWarning

Width: TypeAlias = float | Literal["mean", "half-mean", "double-mean"]
"""A number, or the root mean squared distance between samples and anchors times 1, 1/2 or 2."""

_MEANS = {"mean": 1.0, "half-mean": 0.5, "double-mean": 2.0}

MOST_RATIO = 5.0
"""A kernel width gives a warning if it differs from the mean distance by more than this factor."""

_ROWS = 4096


@dataclass(frozen=True)
class AnchorKernel:
    """``phi(x) = [exp(-|x - a_j|^2 / (2 sigma^2))]_j``, with a constant 1 at the end if ``bias``.

    A row of zeros is a sample that lacks the modality: its features are all zero, including the
    constant, so that it adds nothing to any sum.

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
    def at(
        cls,
        chunks: tuple[Matrix, ...],
        rows: npt.NDArray[np.intp],
        sigma: Width,
        *,
        bias: bool,
        name: str = "",
    ) -> AnchorKernel:
        """Return the kernel whose anchors are rows of the chunks; ``name`` is the modality.

        With ``sigma="mean"``, sigma^2 is the mean squared distance between their nonzero rows and
        the anchors; 1 if all of them coincide.
        """
        parts, start = [], 0
        for matrix in chunks:
            inside = rows[(rows >= start) & (rows < start + matrix.shape[0])]
            parts.append(matrix[inside - start])
            start += matrix.shape[0]
        anchors = stacked(parts)
        return cls(anchors, chosen_width(sigma, mean_squared_distance(chunks, anchors), name), bias)

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
        """Return phi (n, n_features), float64; distances are computed in the precision of X.

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
            if value not in _MEANS:
                raise InputError(
                    f"sigma of {name!r} must be a positive number or 'mean', got {value!r}; "
                    "'half-mean' and 'double-mean' are known as well"
                )
            widths[name] = cast(Width, value)
        else:
            widths[name] = check_weight(f"sigma of {name!r}", value, positive=True)
    return widths


def chosen_width(sigma: Width, mean: float, name: str) -> float:
    """Return the width of a kernel on data with this mean squared distance to the anchors.

    A width given as a number is compared with the root mean squared distance. If it is more than 5
    times larger, the features phi are all above 0.98 and nearly the same for every sample. If it is
    more than 5 times smaller, most of them are below 4e-6. Both cases give a warning.

    >>> chosen_width("mean", 9.0, "image"), chosen_width("half-mean", 9.0, "image")
    (3.0, 1.5)
    """
    root = float(np.sqrt(mean))
    if isinstance(sigma, str):
        return _MEANS[sigma] * root if mean > 0 else 1.0
    width = float(sigma)
    if mean > 0 and not 1 / MOST_RATIO <= width / root <= MOST_RATIO:
        effect = "hardly differ between samples" if width > root else "are nearly zero"
        warnings.warn(
            f"kernel width {width:g} of modality {name!r} is far from the root mean squared "
            f"distance {root:.3g} between samples and anchors: the kernel features {effect}; pass "
            "sigma='mean', or scale the features",
            KernelWidthWarning,
            stacklevel=2,
        )
    return width


def stacked(parts: Sequence[Matrix]) -> Matrix:
    """Return chunks on top of each other: dense or CSR like the first one."""
    if isinstance(parts[0], sp.csr_array):
        return sp.csr_array(sp.vstack([sp.csr_array(each) for each in parts]))
    dense: list[Any] = [each.toarray() if sp.issparse(each) else each for each in parts]
    return np.vstack(dense)


def blocks(n_samples: int) -> Iterator[slice]:
    """Yield the blocks of rows in which products over many samples are computed.

    >>> list(blocks(5000))
    [slice(0, 4096, None), slice(4096, 5000, None)]
    """
    for start in range(0, n_samples, _ROWS):
        yield slice(start, min(start + _ROWS, n_samples))


def mean_squared_distance(chunks: tuple[Matrix, ...], anchors: Matrix) -> float:
    """Return the mean of ``|x - a|^2`` over the nonzero rows x and the anchors a."""
    count, squares = 0, 0.0
    total = np.zeros(anchors.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        for matrix in chunks:
            count += int(has_row(matrix).sum())
            squares += _sum_of_squares(matrix)
            total += np.asarray(matrix.sum(axis=0, dtype=np.float64)).ravel()
        if count == 0:
            return 0.0
        n_anchors = int(anchors.shape[0])
        centre = np.asarray(anchors.sum(axis=0, dtype=np.float64)).ravel() / n_anchors
        between = float(total @ centre) / count
        lengths = squares / count + _sum_of_squares(anchors) / n_anchors
    if not np.isfinite(lengths):
        raise InputError("the squared distances overflow: features this large cannot be used")
    limits = np.finfo(anchors.dtype)
    if lengths < float(limits.tiny / limits.eps):
        raise InputError(
            "the squared distances underflow: features this small cannot be used as they are; "
            "scale them first"
        )
    mean = lengths - 2 * between
    # for rows that coincide the remainder is rounding error, proportional to their lengths
    return mean if mean > float(np.finfo(anchors.dtype).eps) * lengths else 0.0


def _sum_of_squares(matrix: Matrix) -> float:
    if isinstance(matrix, sp.csr_array):
        wide = matrix.astype(np.float64)
        return float(wide.multiply(wide).sum())  # an entry may be split in several
    return sum(
        float(np.square(matrix[rows], dtype=np.float64).sum()) for rows in blocks(len(matrix))
    )


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
