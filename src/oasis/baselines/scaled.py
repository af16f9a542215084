"""Scaling of features for a method: unit length, or standardised by the first chunk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias, get_args

import numpy as np
import scipy.sparse as sp

from oasis.arrays import Matrix, Single, has_row, unit_rows
from oasis.codes import Codes
from oasis.errors import InputError
from oasis.hashers.chunk import check_features
from oasis.hashers.protocol import Labels, OnlineHasher

Scaling: TypeAlias = Literal["raw", "unit", "zscore"]
SCALINGS: tuple[str, ...] = get_args(Scaling)
"""Unchanged; rows of unit length; columns with mean 0 and variance 1 in the first chunk."""

# columns that vary less than this share of the largest count as constant
_LEAST_DEVIATION = 1e-6


@dataclass(frozen=True)
class ColumnScale:
    """Mean and inverse standard deviation of each column, over the nonzero rows.

    A sparse modality is only divided, not centred, so that it stays sparse. A row of zeros is a
    sample that lacks the modality and is not changed.
    """

    mean: Single
    factor: Single

    @classmethod
    def of(cls, X: Matrix) -> ColumnScale:
        """Return the scale of a chunk. Cost: two passes over it.

        >>> import numpy as np
        >>> scale = ColumnScale.of(np.array([[1.0, 5.0], [3.0, 5.0], [0.0, 0.0]]))
        >>> scale.apply(np.array([[1.0, 5.0], [0.0, 0.0]]))
        array([[-1.,  0.],
               [ 0.,  0.]])
        """
        rows = X[has_row(X)]
        n = max(1, int(rows.shape[0]))
        mean = np.asarray(rows.sum(axis=0, dtype=np.float64)).ravel() / n
        squares = rows.multiply(rows) if isinstance(rows, sp.csr_array) else np.square(rows)
        variance = np.asarray(squares.sum(axis=0, dtype=np.float64)).ravel() / n - mean**2
        deviation = np.sqrt(np.maximum(variance, 0))
        varies = deviation > _LEAST_DEVIATION * max(float(deviation.max(initial=0.0)), 1e-300)
        factor = np.where(varies, 1 / np.where(varies, deviation, 1.0), 0.0)
        if isinstance(X, sp.csr_array):
            mean = np.zeros_like(mean)
        return cls(mean.astype(np.float32), factor.astype(np.float32))

    def apply(self, X: Matrix) -> Matrix:
        """Return scaled features, in the precision of X."""
        if isinstance(X, sp.csr_array):
            values = X.data * self.factor[X.indices].astype(X.dtype)
            return sp.csr_array((values, X.indices, X.indptr), shape=X.shape)
        scaled = (X - self.mean.astype(X.dtype)) * self.factor.astype(X.dtype)
        scaled[~has_row(X)] = 0
        return np.asarray(scaled)


class ScaledHasher(OnlineHasher):
    """A hasher whose features are scaled first.

    Parameters
    ----------
    inner : the hasher
    scaling : {"raw", "unit", "zscore"}
        Unchanged; every row of a modality to unit length; every column by mean and standard
        deviation of the first chunk.
    """

    def __init__(self, inner: OnlineHasher, scaling: Scaling) -> None:
        self.inner = inner
        self.scaling = scaling
        self.n_bits = inner.n_bits

    def partial_fit(self, X: Any, y: Labels, classes: Sequence[str] | None = None) -> Self:
        features = check_features(X, None)
        if self.scaling == "zscore" and not hasattr(self, "scales_"):
            scales = {name: ColumnScale.of(matrix) for name, matrix in features.items()}
            self.inner.partial_fit(
                {name: scales[name].apply(matrix) for name, matrix in features.items()}, y, classes
            )
            self.scales_ = scales
        else:
            self.inner.partial_fit(self._scaled(features), y, classes)
        self.codes_ = self.inner.codes_
        return self

    @property
    def all_codes_(self) -> Codes:
        """The codes of everything seen, of a batch method."""
        codes: Codes = getattr(self.inner, "all_codes_")  # noqa: B009
        return codes

    def project(self, X: Any) -> Single:
        return self.inner.project(self._scaled(check_features(X, None)))

    @property
    def project_words(self) -> Callable[[Sequence[str]], Single]:
        """The function from class names to projections; absent if the hasher has none."""
        found: Callable[[Sequence[str]], Single] = getattr(self.inner, "project_words")  # noqa: B009
        return found

    def _scaled(self, X: Mapping[str, Matrix]) -> dict[str, Matrix]:
        if self.scaling == "unit":
            return {name: unit_rows(matrix) for name, matrix in X.items()}
        if self.scaling == "zscore":
            return {name: self.scales_[name].apply(matrix) for name, matrix in X.items()}
        return dict(X)


def check_scaling(value: Any, method: str) -> None:
    """Raise unless a scaling is known.

    >>> check_scaling("unit", "lemon")
    """
    if value not in SCALINGS:
        raise InputError(f"scaling={value} of {method!r}: expected one of {', '.join(SCALINGS)}")
