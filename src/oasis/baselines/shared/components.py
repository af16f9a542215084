"""Principal components of several modalities together; CSR is not converted to dense."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from oasis.arrays import Array, Matrix, has_row

_PASSES = 6
_SPARE = 16


@dataclass(frozen=True)
class Centred:
    """The centred concatenation of the modalities, (n, d), as an operator; it is never formed.

    The mean of a modality is taken over the rows that have it. A row of zeros stays zero, as if the
    missing modality were equal to the mean.
    """

    X: Mapping[str, Matrix]

    @property
    def n_samples(self) -> int:
        return int(next(iter(self.X.values())).shape[0])

    @property
    def n_features(self) -> int:
        return sum(int(matrix.shape[1]) for matrix in self.X.values())

    @cached_property
    def present(self) -> dict[str, Array]:
        """Modality name -> (n,), 1 where a sample has it and 0 elsewhere."""
        return {name: has_row(matrix).astype(np.float64) for name, matrix in self.X.items()}

    @cached_property
    def means(self) -> dict[str, Array]:
        """Modality name -> (d_m,)."""
        return {
            name: np.asarray(matrix.sum(axis=0, dtype=np.float64)).ravel()
            / max(1.0, self.present[name].sum())
            for name, matrix in self.X.items()
        }

    def split(self, columns: Array) -> dict[str, Array]:
        """Split the rows of a (d, m) array by modality."""
        ends = np.cumsum([matrix.shape[1] for matrix in self.X.values()])
        return dict(zip(self.X, np.split(columns, ends[:-1]), strict=True))

    def times(self, right: Array) -> Array:
        """Return the product with ``right`` (d, m), (n, m)."""
        product = np.zeros((self.n_samples, right.shape[1]))
        for name, part in self.split(right).items():
            product += self.X[name] @ part.astype(self.X[name].dtype, copy=False)
            product -= np.outer(self.present[name], self.means[name] @ part)
        return product

    def transposed_times(self, right: Array) -> Array:
        """Return the product of the transpose with ``right`` (n, m), (d, m)."""
        return np.vstack(
            [
                matrix.T @ right.astype(matrix.dtype, copy=False)
                - np.outer(self.means[name], self.present[name] @ right)
                for name, matrix in self.X.items()
            ]
        )


def principal_axes(data: Centred, n_axes: int, rng: np.random.Generator) -> Array:
    """Return the principal axes, (d, k) orthonormal columns, in order of decreasing variance.

    k is the smaller of ``n_axes`` and the rank of the data. The largest entry of an axis is
    positive. Method: subspace iteration on ``2 n_axes + 16`` random directions, which is exact if
    this number reaches min(n, d), and close otherwise.

    Cost: 14 products of the data with these directions.
    """
    n, d = data.n_samples, data.n_features
    size = min(n, d, 2 * n_axes + _SPARE)
    basis = _orthonormal(data.times(rng.standard_normal((d, size))))  # (n, size)
    for _ in range(_PASSES):
        basis = _orthonormal(data.times(_orthonormal(data.transposed_times(basis))))
    axes, s, _ = np.linalg.svd(data.transposed_times(basis), full_matrices=False)
    dtype = np.result_type(*(matrix.dtype for matrix in data.X.values()))
    # for data without variance the remainder is rounding error, proportional to the means
    lengths = sum(float(np.vdot(mean, mean)) for mean in data.means.values())
    floor = np.finfo(dtype).eps * np.sqrt(max(n, d) * (n * lengths + float(np.vdot(s, s))))
    k = min(n_axes, int(np.count_nonzero(s > floor)))
    axes = axes[:, :k]
    largest = axes[np.abs(axes).argmax(axis=0), np.arange(k)]
    oriented: Array = axes * np.where(largest < 0, -1.0, 1.0)
    return oriented


def _orthonormal(columns: Array) -> Array:
    return np.linalg.qr(columns)[0]
