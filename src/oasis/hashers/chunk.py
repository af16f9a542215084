"""A chunk of a stream, and the checks that it must pass before anything learns from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from oasis.arrays import Matrix
from oasis.errors import InputError
from oasis.hashers.protocol import Labels


@dataclass(frozen=True)
class Chunk:
    """A chunk that has passed every check."""

    X: dict[str, Matrix]
    labels: list[tuple[str, ...]]

    @property
    def n_samples(self) -> int:
        return len(self.labels)


def check_chunk(X: Mapping[str, Any], y: Labels, widths: Mapping[str, int] | None) -> Chunk:
    """Check a chunk to learn from: all modalities, finite, one label set per sample.

    Parameters
    ----------
    X : mapping of modality name to an (n, d) array or sparse matrix
    y : one iterable of class names per sample
    widths : modality name -> number of features, as learned; None before the first chunk
    """
    features = check_samples(X, widths)
    return Chunk(features, check_labels(y, _n_rows(next(iter(features.values())))))


def check_samples(
    X: Mapping[str, Any], widths: Mapping[str, int] | None, first_row: int = 0
) -> dict[str, Matrix]:
    """Check samples to learn from: all modalities, at least one row, finite.

    Parameters
    ----------
    widths : modality name -> number of features, as learned; None before the first chunk
    first_row : where in the chunk they stand, for the text of errors
    """
    features = check_features(X, widths)
    if widths is not None:
        missing = [name for name in widths if name not in features]
        if missing:
            raise InputError(
                f"the chunk lacks modality {missing[0]!r}; every chunk to learn from has all of "
                f"{sorted(widths)} (a sample without it is a row of zeros)"
            )
    if _n_rows(next(iter(features.values()))) == 0:
        raise InputError("the chunk is empty; expected at least one sample")
    for name, matrix in features.items():
        check_finite(matrix, name, first_row)
    return features


def check_features(X: Mapping[str, Any], widths: Mapping[str, int] | None) -> dict[str, Matrix]:
    """Check names, shapes and types of a non-empty subset of the modalities.

    Values are not looked at: whether they are finite is checked by `check_finite`, or on the
    product that is made from them. The order of the result is that of ``widths``.
    """
    if not isinstance(X, Mapping):
        raise InputError(
            f"X must map modality names to arrays, such as {{'image': array}}, got {_kind(X)}"
        )
    if not X:
        raise InputError("X has no modality; expected at least one")
    features: dict[str, Matrix] = {}
    for name, values in X.items():
        if not isinstance(name, str):
            raise InputError(f"modality names are strings, got {name!r}")
        if widths is not None and name not in widths:
            raise InputError(f"modality {name!r} is unknown; this model learned {sorted(widths)}")
        features[name] = _as_matrix(values, name)
    n_rows = {name: _n_rows(matrix) for name, matrix in features.items()}
    if len(set(n_rows.values())) > 1:
        raise InputError(f"modalities differ in their number of samples: {n_rows}")
    for name, matrix in features.items():
        if matrix.shape[1] == 0:
            raise InputError(f"modality {name!r} has no features")
        if widths is not None and matrix.shape[1] != widths[name]:
            raise InputError(
                f"modality {name!r} has {matrix.shape[1]} features, this model learned "
                f"{widths[name]}"
            )
    if widths is not None:
        features = {name: features[name] for name in widths if name in features}
    return features


def check_finite(matrix: Matrix, name: str, first_row: int = 0) -> None:
    """Raise when a modality holds NaN or infinity, and say where, counting from ``first_row``."""
    values = matrix.data if isinstance(matrix, sp.csr_array) else matrix
    with np.errstate(all="ignore"):
        # one fast pass: any NaN or infinity makes the sum so; an overflow falls through to the
        # careful look below and is let pass there
        if np.isfinite(values.sum()):
            return
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        if isinstance(matrix, sp.csr_array):
            row = int(np.searchsorted(matrix.indptr, bad[0][0], side="right") - 1)
            column = int(matrix.indices[bad[0][0]])
            value = values[bad[0][0]]
        else:
            row, column = (int(i) for i in bad[0])
            value = values[row, column]
        raise InputError(
            f"modality {name!r} holds {value} at row {first_row + row}, column {column}; "
            "expected finite numbers"
        )


def check_labels(y: Labels, n_samples: int) -> list[tuple[str, ...]]:
    """Return one tuple of distinct class names per sample, in the order given."""
    if isinstance(y, (str, bytes)) or not isinstance(y, Iterable):
        raise InputError(
            f"y must hold one iterable of class names per sample, got {_kind(y)}; "
            "for one sample with one class write [['sky']]"
        )
    labels: list[tuple[str, ...]] = []
    for row, names in enumerate(y):
        if names is None:
            labels.append(())
            continue
        if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
            raise InputError(
                f"labels of sample {row} must be an iterable of class names, got {_kind(names)}; "
                "write ['sky'] for one class"
            )
        distinct = tuple(dict.fromkeys(names))
        for name in distinct:
            if not isinstance(name, str):
                raise InputError(f"class names are strings, sample {row} has {name!r}")
            if not name.strip():
                raise InputError(f"sample {row} has an empty class name")
        labels.append(tuple(str(name) for name in distinct))
    if len(labels) != n_samples:
        raise InputError(f"got labels for {len(labels)} samples, but features for {n_samples}")
    return labels


def _as_matrix(values: Any, name: str) -> Matrix:
    if sp.issparse(values):
        return _as_csr(values, name)
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InputError(f"modality {name!r} is not a rectangular array: {error}") from error
    _check_numeric(array.dtype, name)
    if array.ndim != 2:
        raise InputError(
            f"modality {name!r} must have shape (n_samples, n_features), got {array.shape}"
        )
    if _float_type(array.dtype) is np.float32:
        return np.ascontiguousarray(array, dtype=np.float32)
    return np.ascontiguousarray(array, dtype=np.float64)


def _as_csr(values: Any, name: str) -> sp.csr_array:
    if values.ndim != 2:
        raise InputError(f"modality {name!r} must be two-dimensional, got shape {values.shape}")
    _check_numeric(values.dtype, name)
    return sp.csr_array(values.astype(_float_type(values.dtype), copy=False))


def _check_numeric(dtype: np.dtype[Any], name: str) -> None:
    if dtype.kind not in "fiub":
        raise InputError(f"modality {name!r} must hold real numbers, got dtype {dtype}")


def _float_type(dtype: np.dtype[Any]) -> type[np.float32] | type[np.float64]:
    # float32 holds every value of these types exactly; anything wider goes to float64
    return np.float32 if dtype.itemsize <= 2 or dtype == np.float32 else np.float64


def _n_rows(matrix: Matrix) -> int:
    return int(matrix.shape[0])


def _kind(value: object) -> str:
    return f"{type(value).__name__} {value!r}" if isinstance(value, str) else type(value).__name__
