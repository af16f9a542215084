"""Symmetric matrices of features: the sum of X'X, its products, its Cholesky factor.

Only the lower triangle is computed, in Fortran order and float64. Where rows are float32 and the
rounding error of their product is far below the ridge, it is computed in float32 and added in
float64.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array, FloatArray, Matrix, is_sparse
from oasis.errors import InputError
from oasis.model.threads import in_threads

if TYPE_CHECKING:
    import scipy.sparse as sp

EPS32 = float(np.finfo(np.float32).eps)

# a product is float32 while its rounding error is at most so many times the ridge; the errors of
# rounds add up
_MARGIN = 5e-4
_ROWS = 4096
_COLUMNS = 256
_LEAST_MAPPED = 1 << 22
_PACKED_COLUMNS = 64  # 2 MB of a matrix of 4,096 columns
# BLAS packs the (d, d) matrix before a solution with several columns, which takes about as long as
# so many solutions with one
_COLUMNS_ONE_BY_ONE = 4

Block: TypeAlias = tuple[slice, slice]
"""Rows and columns."""


@dataclass(frozen=True)
class LowerTriangle:
    """A symmetric (d, d) matrix; what stands above the diagonal of ``matrix`` has no meaning.

    As an array to be written (`oasis.store`) it has the lower triangle alone, column by column.

    Examples
    --------
    >>> triangle = LowerTriangle(np.array([[1.0, 9.0], [2.0, 3.0]], order="F"))
    >>> triangle.shape, np.asarray(triangle).tolist()
    ((3,), [1.0, 2.0, 3.0])
    >>> triangle.product(np.array([[1.0], [10.0]])).tolist()
    [[21.0], [32.0]]
    """

    matrix: Array

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.matrix.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        d = len(self.matrix)
        return (d * (d + 1) // 2,)

    def blocks(self) -> Iterator[Array]:
        """Yield the entries, one-dimensional, in order; a new array for every few columns."""
        d = len(self.matrix)
        # one call for a block: copying column by column would take the interpreter's lock for each
        lower = ~np.tri(min(_PACKED_COLUMNS, d), d, -1, dtype=np.bool_)
        for start in range(0, d, _PACKED_COLUMNS):
            columns = self.matrix.T[start : start + _PACKED_COLUMNS, start:]
            yield columns[lower[: len(columns), : d - start]]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("joining columns makes a copy")
        return np.concatenate(list(self.blocks())).astype(dtype or self.dtype, copy=False)

    @classmethod
    def unpacked(cls, entries: Array) -> LowerTriangle:
        """Return the matrix whose lower triangle has these entries, column by column."""
        d = int(np.sqrt(2 * entries.size))
        if entries.dtype != np.float64 or entries.shape != (d * (d + 1) // 2,):
            raise ValueError(f"{entries.dtype} {entries.shape} holds no lower triangle")
        matrix = lower_zeros(d, np.float64)
        ends = np.cumsum(np.arange(d, 0, -1))
        for j, column in enumerate(np.split(entries, ends[:-1])):
            matrix[j:, j] = column
        return cls(matrix)

    def whole(self) -> Array:
        """Return the symmetric matrix, a copy."""
        lower = np.tril(self.matrix)
        full: Array = lower + np.tril(lower, -1).T
        return full

    def line(self, h: int) -> Array:
        """Return row h, (d,)."""
        return np.concatenate([self.matrix[h, :h], self.matrix[h:, h]])

    def product(self, C: Array) -> Array:
        """Return ``A C`` (d, m); without SciPy, which searches do not load."""
        out = np.zeros(C.shape)
        for rows, columns in lower_blocks(len(self.matrix)):
            block = self.matrix[rows, columns]  # of a symmetric square, then what is below it
            size = block.shape[1]
            square = np.tril(block[:size])
            out[columns] += square @ C[columns] + np.tril(square, -1).T @ C[columns]
            below = slice(columns.stop, rows.stop)
            out[columns] += block[size:].T @ C[below]
            out[below] += block[size:] @ C[columns]
        return out


class GramSum:
    """``start + sum X'X``, lower triangle.

    Attributes
    ----------
    lower : (d, d) float64, Fortran order; entries above the diagonal have no meaning
    single : whether all rows so far were float32

    Parameters
    ----------
    n_features : d
    delta : the ridge, to which rounding errors are compared
    start : sum to start from, not modified; None for zero

    Notes
    -----
    Memory: one (d, d) float64 matrix, and a few columns at a time of a product.

    Examples
    --------
    >>> total = GramSum(2, delta=1.0)
    >>> for piece in (np.array([[1.0, 2.0]]), np.array([[3.0, 0.0], [0.0, 1.0]])):
    ...     total.add(piece)
    >>> np.tril(total.lower)
    array([[10.,  0.],
           [ 2.,  5.]])
    """

    def __init__(self, n_features: int, delta: float, start: LowerTriangle | None = None) -> None:
        self._d, self._delta = n_features, delta
        self._start = None if start is None else start.matrix
        self._own: Array | None = None
        self.single = True

    @property
    def lower(self) -> Array:
        if self._own is None:
            self._own, start = lower_zeros(self._d, np.float64), self._start
            if start is not None:
                copy_lower(start, self._own)
            self._start = None  # not needed any more: free it, and do not pickle it
        return self._own

    def __reduce__(self) -> tuple[Callable[..., GramSum], tuple[Any, ...]]:
        """Pickle the columns of the lower triangle: half of the bytes of the whole matrix."""
        panels = [np.asfortranarray(self.lower[block]) for block in lower_blocks(self._d)]
        return _from_panels, (self._d, self._delta, self.single, panels)

    def add(self, X: Matrix) -> None:
        """Add X'X for the rows X (n, d)."""
        from scipy.linalg import blas

        self.single = self.single and X.dtype == np.float32
        if is_sparse(X):
            exact = X.astype(np.float64, copy=False)
            products = (exact.T @ exact).tocoo()
            below = products.row >= products.col
            self.lower[products.row[below], products.col[below]] += products.data[below]
            return
        for first in range(0, len(X), _ROWS):
            part = X[first : first + _ROWS]
            if X.dtype == np.float32 and rounding(part) <= _MARGIN * self._delta:
                self._add_single(part)
            else:  # also where squares overflow: in float64 they are in range
                wide = part.astype(np.float64, copy=False)
                total = blas.dsyrk(1.0, wide.T, beta=1.0, c=self.lower, lower=1, overwrite_c=1)
                self._own = total

    def _add_single(self, X: npt.NDArray[Any]) -> None:
        self._add_blocks(lambda rows, columns: (X[:, columns].T @ X[:, rows]).T)

    def merge(self, other: GramSum) -> None:
        """Add another sum over the same number of features."""
        self.single = self.single and other.single
        term = other.lower
        self._add_blocks(lambda rows, columns: term[rows, columns])

    def joined(self, other: GramSum) -> GramSum:
        """Return the sum of both, in new memory."""
        total = GramSum(self._d, self._delta, start=LowerTriangle(self.lower))
        total.single = self.single
        total.merge(other)
        return total

    def _add_blocks(self, term: Callable[[slice, slice], npt.NDArray[Any]]) -> None:
        """Add ``term(rows, columns)`` block by block, without a second (d, d) matrix."""
        start = self._start if self._own is None else self._own
        if self._own is None:
            self._own, self._start = lower_zeros(self._d, np.float64), None
        own = self._own

        def work(block: Block) -> None:
            if start is None:
                own[block] = term(*block)
            else:
                np.add(start[block], term(*block), out=own[block])

        in_threads(work, lower_blocks(self._d))


def _from_panels(d: int, delta: float, single: bool, panels: list[Array]) -> GramSum:
    """Return the sum that `GramSum.__reduce__` took apart."""
    total = GramSum(d, delta)
    total.single = single
    for block, panel in zip(lower_blocks(d), panels, strict=True):
        total.lower[block] = panel
    return total


def rounding(X: npt.NDArray[Any]) -> float:
    """Estimate the norm of the rounding error of X'X in float32; infinite where it overflows.

    An entry (i, j) is rounded by about ``eps |x_i| |x_j|``, with x_i the columns, and rounding
    errors are independent: the norm of a row of them is at most ``eps |x_i| |X|``. Measured on
    features of eight kinds, the error was 0.1 to 1.5 times this estimate.
    """
    with np.errstate(over="ignore"):
        squares = np.einsum("ij,ij->j", X, X).astype(np.float64)
    return EPS32 * float(np.sqrt(squares.max(initial=0.0) * squares.sum()))


@dataclass(frozen=True)
class Factor:
    """A triangular L with ``L L' = A + delta I``.

    Attributes
    ----------
    L : (d, d), Fortran order, float32 or float64; None for A = 0
    """

    delta: float
    L: FloatArray | None = None

    def lower(self, Y: Array) -> Array:
        """Return ``L^-1 Y``."""
        return self._solve(Y, trans=0)

    def upper(self, Y: Array) -> Array:
        """Return ``L^-T Y``."""
        return self._solve(Y, trans=1)

    def _solve(self, Y: Array, trans: int) -> Array:
        from scipy.linalg import blas

        if self.L is None or not Y.size:  # BLAS refuses nothing
            return np.asarray(Y / np.sqrt(self.delta))
        is_single = self.L.dtype == np.float32
        Y = np.asfortranarray(Y, dtype=self.L.dtype)
        if Y.shape[1] <= _COLUMNS_ONE_BY_ONE:
            trsv = blas.strsv if is_single else blas.dtrsv
            solution = np.empty(Y.shape, order="F")
            for j in range(Y.shape[1]):
                solution[:, j] = trsv(self.L, Y[:, j], lower=1, trans=trans)
            return solution
        trsm = blas.strsm if is_single else blas.dtrsm
        return np.asarray(trsm(1.0, self.L, Y, lower=1, trans_a=trans), dtype=np.float64)


def factored(A: LowerTriangle, delta: float, single: bool) -> Factor:
    """Return the factor of ``A + delta I``; where float32 fails, it is float64."""
    from scipy.linalg import lapack

    L = lower_zeros(len(A.matrix), np.float32 if single else np.float64)
    copy_lower(A.matrix, L)
    L[np.diag_indices(len(L))] += delta
    potrf = lapack.spotrf if single else lapack.dpotrf
    L, failed = potrf(L, lower=1, overwrite_a=1, clean=0)
    if not failed:
        return Factor(delta, L)
    if single:
        return factored(A, delta, single=False)
    raise InputError(
        f"the sum X'X + delta I is singular in float64: delta={delta} is too small for features "
        f"with a sum of squares of {np.trace(A.matrix):.3g}; scale the features or raise delta"
    )


def lower_zeros(d: int, dtype: type[np.float32] | type[np.float64]) -> npt.NDArray[Any]:
    """Return zeros (d, d) in Fortran order, for a matrix of which only the lower triangle is used.

    Memory above the diagonal is not allocated as long as it is not touched. NumPy asks for huge
    pages for large arrays, and every huge page would hold a part of the lower triangle, so large
    matrices get small pages, where the system has this option. Small pages take long to allocate:
    one by one, as long as a tenth of the product X'X. So the first third of the columns, which has
    5/9 of the lower triangle, has huge pages: they add at most 1/18 of the matrix.
    """
    n_bytes = d * d * np.dtype(dtype).itemsize
    if n_bytes < _LEAST_MAPPED or not hasattr(mmap, "MADV_NOHUGEPAGE"):
        return np.zeros((d, d), dtype=dtype, order="F")
    memory = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    first = n_bytes // 3 // mmap.PAGESIZE * mmap.PAGESIZE
    with suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE, 0, first)
        memory.madvise(mmap.MADV_NOHUGEPAGE, first)
    return np.frombuffer(memory, dtype=dtype).reshape((d, d), order="F")


def copy_lower(source: FloatArray, target: FloatArray) -> None:
    """Copy the lower triangle of one (d, d) matrix into another, whatever their precisions."""

    def work(block: Block) -> None:
        target[block] = source[block]

    in_threads(work, lower_blocks(len(source)))


def lower_blocks(d: int) -> list[Block]:
    """Return the (rows, columns) of blocks that cover the lower triangle of a (d, d) matrix."""
    return [(slice(j, d), slice(j, min(j + _COLUMNS, d))) for j in range(0, d, _COLUMNS)]


def product(X: Matrix, Wt: Array) -> Array:
    """Return ``X W'`` (n, r), computed in the precision of X."""
    return np.asarray(X @ Wt.astype(X.dtype, copy=False), dtype=np.float64)


def transposed_product(X: Matrix, B: FloatArray | sp.csr_array) -> Array:
    """Return ``X'B`` (d, r), computed in the precision of X.

    For sparse B, such as labels, the cost is its number of non-zeros times d.
    """
    if is_sparse(B):
        return _sparse_targets_product(X, B)
    with np.errstate(over="ignore", invalid="ignore"):  # the sum is checked where it is used
        return np.asarray(X.T @ B.astype(X.dtype, copy=False), dtype=np.float64)


def _sparse_targets_product(X: Matrix, B: sp.csr_array) -> Array:
    if is_sparse(X):
        return np.asarray((X.T @ B).toarray(), dtype=np.float64)
    total = np.zeros((B.shape[1], X.shape[1]))
    values = B.astype(X.dtype)
    # by blocks: the sum over a block is rounded in float32, sums over blocks are float64
    for start in range(0, len(X), _ROWS):
        rows = slice(start, start + _ROWS)
        total += values[rows].T @ X[rows]
    return total.T
