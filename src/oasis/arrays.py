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

    Half, single and double precision and integers keep their type. The message has no subject; the
    caller prepends it.

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


def checked_csr(values: Any) -> sp.csr_array:
    """Return a SciPy sparse matrix of any format as CSR, or raise an `InputError`.

    SciPy's routines trust the indices: one that is out of range reads or writes past the end of an
    array. Entries may be unsorted or duplicate, as SciPy allows; they are not reordered or summed.
    The arrays of CSR are not copied, and ``values`` is not modified. The message has no subject;
    the caller prepends it. Cost: one pass over the indices.

    >>> import scipy.sparse as sp
    >>> matrix = sp.csr_array(([1.0, 2.0, 3.0], [2, 0, 2], [0, 3]), shape=(1, 3))
    >>> checked_csr(matrix).toarray()
    array([[2., 0., 4.]])
    >>> matrix.indices[0] = 3
    >>> checked_csr(matrix)
    Traceback (most recent call last):
        ...
    oasis.errors.InputError: has column index 3, expected 0 to 2
    """
    import scipy.sparse as sp

    if values.ndim != 2:
        raise InputError(f"must be two-dimensional, got shape {values.shape}")
    if getattr(values, "format", None) != "csr":
        values = _to_csr(values)
    n, d = values.shape
    _check_compressed(values, n, d, ("row", "column"))
    # a new object: the cached flags (has_sorted_indices, ...) may not match the arrays any more
    return sp.csr_array((values.data, values.indices, values.indptr), shape=(n, d))


def _to_csr(values: Any) -> Any:
    n, d = values.shape
    kind = getattr(values, "format", None)
    if kind == "csc":
        _check_compressed(values, d, n, ("column", "row"))
    elif kind == "bsr":
        height, width = values.blocksize
        _check_compressed(values, n // height, d // width, ("block row", "block column"))
    elif kind == "coo":
        for what, indices, size in zip(("row", "column"), values.coords, (n, d), strict=True):
            _check_indices(indices, size, what)
            if len(indices) != len(values.data):
                raise InputError(
                    f"has {len(indices)} {what} indices, expected one for each of its "
                    f"{len(values.data)} values"
                )
    return values.tocsr()


def _check_compressed(values: Any, n_rows: int, n_columns: int, names: tuple[str, str]) -> None:
    """Check the arrays of CSR; also of CSC (rows and columns swapped) and BSR (in blocks)."""
    row, column = names
    indptr, indices, data = values.indptr, values.indices, values.data
    _check_vector(indptr, "indptr")
    _check_vector(indices, f"{column} indices")
    if len(indptr) != n_rows + 1:
        raise InputError(f"has indptr of length {len(indptr)}, expected {n_rows + 1}")
    if indptr[0] != 0:
        raise InputError(f"has indptr that begins with {indptr[0]}, expected 0")
    falls = indptr[1:] < indptr[:-1]
    if falls.any():
        raise InputError(f"has indptr that decreases after {row} {int(np.argmax(falls))}")
    n_entries = int(indptr[-1])
    if n_entries > min(len(indices), len(data)):
        raise InputError(
            f"has indptr that ends with {n_entries}, but {len(indices)} indices and {len(data)} "
            "values"
        )
    _check_indices(indices[:n_entries], n_columns, column)


def _check_indices(indices: Any, size: int, what: str) -> None:
    _check_vector(indices, f"{what} indices")
    if not len(indices):
        return
    # one pass: read as unsigned, a negative index is a large one
    unsigned = indices.view(indices.dtype.str.replace("i", "u"))
    if unsigned.max() >= size:
        bad = indices[(indices < 0) | (indices >= size)][0]
        raise InputError(f"has {what} index {bad}, expected 0 to {size - 1}")


def _check_vector(values: Any, what: str) -> None:
    if not isinstance(values, np.ndarray) or values.ndim != 1 or values.dtype.kind not in "iu":
        raise InputError(f"has {what} that are not a vector of integers")


def unit_rows(matrix: Matrix) -> Matrix:
    """Return a copy with every row scaled to unit length; rows of zeros are unchanged.

    >>> unit_rows(np.array([[3e-30, 4e-30], [3e30, 4e30]], dtype=np.float32)).round(3)
    array([[0.6, 0.8],
           [0.6, 0.8]], dtype=float32)
    """
    matrix, scale = in_range(matrix)
    if is_sparse(matrix):
        data = matrix.data * np.repeat(scale, np.diff(matrix.indptr))
        return type(matrix)((data, matrix.indices, matrix.indptr), shape=matrix.shape)
    return matrix * scale[:, None]


# range of squared lengths in which 1 / sqrt is accurate: below tiny / eps, terms of the sum may
# have underflowed; above max, the sum has overflowed
_SQUARES = {
    np.dtype(each).char: (np.finfo(each).tiny / np.finfo(each).eps, np.finfo(each).max)
    for each in (np.float32, np.float64)
}


def in_range(matrix: Matrix, squares: FloatArray | None = None) -> tuple[Matrix, FloatArray]:
    """Return a matrix whose squared row lengths are in range, and 1 / length of each row.

    ``squares`` (n,) are the squared lengths in the precision of the matrix, if they are known.

    A row whose squared length under- or overflows is multiplied by a power of two, which changes
    only its length. Without such a row the matrix itself is returned. The second result has the
    precision of the matrix; it is 0 for a row of zeros.

    >>> rows, scale = in_range(np.array([[3e-200, 4e-200], [0.6, 0.8]]))
    >>> np.round(rows * scale[:, None], 3)
    array([[0.6, 0.8],
           [0.6, 0.8]])
    """
    squares = _squares(matrix) if squares is None else squares
    low, high = _SQUARES[matrix.dtype.char]
    if len(squares) == 1 and low <= squares[0] <= high:
        return matrix, squares**-0.5  # most queries: short enough to notice the checks
    if len(squares) and not (squares.min() >= low and squares.max() <= high):
        exponents = _exponents(matrix, np.flatnonzero(~((squares >= low) & (squares <= high))))
        if exponents.any():
            matrix = _times_power_of_two(matrix, exponents)
            squares = _squares(matrix)
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = np.where(squares >= low, squares**-0.5, 0)
    return matrix, scale.astype(matrix.dtype, copy=False)


def _squares(matrix: Matrix) -> FloatArray:
    """Return the squared length of each row, (n,), in the precision of the matrix."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if is_sparse(matrix):
            if not matrix.has_canonical_format:  # entries at the same place are added first
                sums: Any = matrix.multiply(matrix).sum(axis=1)
                return np.asarray(sums).ravel()
            # not by SciPy: its checks take longer than a row
            starts, n_entries = matrix.indptr[:-1], matrix.indptr[-1]
            filled = starts < matrix.indptr[1:]
            squares = np.zeros(len(starts), dtype=matrix.dtype)
            squares[filled] = np.add.reduceat(np.square(matrix.data[:n_entries]), starts[filled])
            return squares
        return np.asarray(np.vecdot(matrix, matrix))


def _exponents(matrix: Matrix, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intc]:
    """Return e (n,) such that ``2^e`` scales the largest value of each of these rows to about 1.

    e is 0 for all other rows, for rows of zeros, and for rows that hold NaN or infinity.
    """
    exponents = np.zeros(matrix.shape[0], dtype=np.intc)
    if not matrix.shape[1]:
        return exponents
    chosen = matrix[rows]
    if is_sparse(chosen):
        peaks = np.asarray(abs(chosen).max(axis=1).todense()).ravel()
    else:
        # most of these are rows of zeros; a maximum over their bits finds them in one fast pass
        filled = chosen.view(f"u{chosen.itemsize}").max(axis=1) > 0
        rows, chosen = rows[filled], chosen[filled]
        peaks = np.maximum(chosen.max(axis=1), -chosen.min(axis=1))
    exponents[rows] = np.where(np.isfinite(peaks), -np.frexp(peaks)[1], 0)
    return exponents


def _times_power_of_two(matrix: Matrix, exponents: npt.NDArray[np.intc]) -> Matrix:
    if is_sparse(matrix):
        data = np.ldexp(matrix.data, np.repeat(exponents, np.diff(matrix.indptr)))
        return type(matrix)((data, matrix.indices, matrix.indptr), shape=matrix.shape)
    scaled = matrix.copy()
    rows = np.flatnonzero(exponents)
    scaled[rows] = np.ldexp(matrix[rows], exponents[rows, None])
    return scaled


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

    # sorted, so that rounding of sums does not depend on the order of a sample's classes
    rows = [sorted(row) for row in sets]
    indptr = np.cumsum([0, *map(len, rows)])
    indices = np.array([number for row in rows for number in row], dtype=np.int64)
    return sp.csr_array((np.ones(len(indices)), indices, indptr), shape=(len(rows), n_classes))


def random_signs(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Return +1 and -1 with equal probability, one draw per entry, row by row.

    >>> random_signs(np.random.default_rng(0), (2, 3))
    array([[ 1., -1., -1.],
           [-1.,  1.,  1.]])
    """
    return np.where(rng.random(shape) < 0.5, -1.0, 1.0)


def generator_at(state: GeneratorState) -> np.random.Generator:
    """Return a generator that continues from a state.

    >>> state = state_of(np.random.Generator(np.random.PCG64(0)))
    >>> generator_at(state).random() == generator_at(state).random()
    True
    """
    bits = np.random.PCG64()
    bits.state = state  # type: ignore[assignment]
    return np.random.Generator(bits)


def state_of(rng: np.random.Generator) -> GeneratorState:
    """Return the state from which `generator_at` continues."""
    return dict(rng.bit_generator.state)
