"""What every room shares about arrays: aliases, unit rows, label indicators, random generators.

SciPy is imported where a sparse matrix is made, so that a search of dense features does not load
it: `is_sparse` tells a CSR matrix from an array without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from oasis.errors import InputError

if TYPE_CHECKING:
    import scipy.sparse as sp
    from typing_extensions import TypeIs

Array: TypeAlias = npt.NDArray[np.float64]
Single: TypeAlias = npt.NDArray[np.float32]
FloatArray: TypeAlias = npt.NDArray[np.float32] | npt.NDArray[np.float64]
Matrix: TypeAlias = "FloatArray | sp.csr_array"
"""One modality of a chunk: (n, d), dense or CSR, float32 or float64."""

Rows: TypeAlias = npt.NDArray[np.int64]
"""Positions of samples, (n,)."""

Indicator: TypeAlias = npt.NDArray[np.uint8]
"""Labels of samples, (n, c): 1 where a sample has a class, 0 elsewhere."""

GeneratorState: TypeAlias = Mapping[str, Any]
"""State of a PCG64 generator, as JSON can hold it."""


def is_sparse(matrix: Matrix) -> TypeIs[sp.csr_array]:
    """Return whether a checked matrix is CSR; the alternative is a dense array.

    >>> is_sparse(np.eye(2))
    False
    """
    return not isinstance(matrix, np.ndarray)


def checked_vector(value: Any, width: int | None = None) -> npt.NDArray[Any]:
    """Return a (d,) array of finite real numbers, or raise an `InputError` that says what is wrong.

    Half, single and double precision and integers stay as they are. The message lacks its subject,
    which the caller puts before it.

    >>> checked_vector([1, 2.5]), checked_vector(np.ones(3, dtype=np.float16)).dtype
    (array([1. , 2.5]), dtype('float16'))
    >>> checked_vector([1, 2], width=3)
    Traceback (most recent call last):
        ...
    oasis.errors.InputError: has 2 values, expected 3
    """
    try:
        vector = np.asarray(value)
    except (TypeError, ValueError) as error:  # lists of different lengths in it
        raise InputError("is no list of numbers") from error
    if vector.dtype.kind not in "fiu" or vector.ndim != 1:
        if isinstance(value, (list, np.ndarray)):
            raise InputError(
                f"has shape {vector.shape} and type {vector.dtype}, expected a list of numbers"
            )
        raise InputError(f"is of type {type(value).__name__}, expected a list of numbers")
    if not len(vector):
        raise InputError("is an empty list, expected numbers")
    if width is not None and len(vector) != width:
        raise InputError(f"has {len(vector)} values, expected {width}")
    if vector.dtype.kind == "f" and not np.isfinite(vector).all():
        at = int(np.argmin(np.isfinite(vector)))
        raise InputError(f"holds {vector[at]} at position {at}, expected finite numbers")
    return vector


def unit_rows(matrix: Matrix) -> Matrix:
    """Return a copy with every row scaled to unit length; a row of zeros stays so."""
    scale = inverse_norms(matrix)
    if is_sparse(matrix):
        data = matrix.data * np.repeat(scale, np.diff(matrix.indptr))
        return type(matrix)((data, matrix.indices, matrix.indptr), shape=matrix.shape)
    return matrix * scale[:, None]


def inverse_norms(matrix: Matrix) -> FloatArray:
    """Return one over the length of each row, in the precision of the matrix; 0 for a zero row."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if is_sparse(matrix):
            squares = np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel()
        else:
            squares = np.vecdot(matrix, matrix)
            if not np.isfinite(squares).all():  # finite features whose squares overflow
                squares = np.vecdot(matrix.astype(np.float64), matrix)
        tiny = np.finfo(matrix.dtype).tiny
        return np.where(squares > tiny, squares**-0.5, 0).astype(matrix.dtype, copy=False)


def has_row(matrix: Matrix) -> npt.NDArray[np.bool_]:
    """Return which rows are not all zeros: the samples that have this modality, (n,)."""
    if is_sparse(matrix):
        filled = matrix.data != 0
        counts = np.concatenate([[0], np.cumsum(filled)])
        return np.asarray(counts[matrix.indptr[1:]] > counts[matrix.indptr[:-1]])
    return np.asarray(matrix.any(axis=1))


def inner_products(X: Matrix, Y: Matrix) -> npt.NDArray[Any]:
    """Return the dense (n, m) inner products ``X Y'`` of rows, either of them dense or CSR.

    >>> import numpy as np, scipy.sparse as sp
    >>> inner_products(np.eye(2), sp.csr_array([[3.0, 4.0]]))
    array([[3.],
           [4.]])
    """
    if is_sparse(X):
        return (X @ Y.T).toarray() if is_sparse(Y) else np.asarray(X @ Y.T)
    if is_sparse(Y):
        return np.asarray((Y @ X.T).T)
    return np.asarray(X @ Y.T)


def indicator(sets: Sequence[Iterable[int]], n_classes: int) -> sp.csr_array:
    """Return L (n, c) float64: 1 where a sample has a class, given as class numbers.

    >>> indicator([(2, 0), ()], 3).toarray()
    array([[1., 0., 1.],
           [0., 0., 0.]])
    """
    import scipy.sparse as sp

    # sorted, so that sums are rounded in the same way whatever the order of a sample's classes
    rows = [sorted(row) for row in sets]
    indptr = np.cumsum([0, *map(len, rows)])
    indices = np.array([number for row in rows for number in row], dtype=np.int64)
    return sp.csr_array((np.ones(len(indices)), indices, indptr), shape=(len(rows), n_classes))


def random_signs(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Return +1 and -1 with equal chances, one draw for each, row by row.

    >>> random_signs(np.random.default_rng(0), (2, 3))
    array([[ 1., -1., -1.],
           [-1.,  1.,  1.]])
    """
    return np.where(rng.random(shape) < 0.5, -1.0, 1.0)


def generator_at(state: GeneratorState) -> np.random.Generator:
    """Return a generator that goes on from a state.

    >>> state = state_of(np.random.Generator(np.random.PCG64(0)))
    >>> generator_at(state).random() == generator_at(state).random()
    True
    """
    bits = np.random.PCG64()
    bits.state = state  # type: ignore[assignment]
    return np.random.Generator(bits)


def state_of(rng: np.random.Generator) -> GeneratorState:
    """Return the state from which `generator_at` goes on."""
    return dict(rng.bit_generator.state)
