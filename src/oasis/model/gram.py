"""The sum of X'X over rows that come in pieces: the Gram matrix of a ridge regression.

Only the lower triangle is computed, in Fortran order and float64. If a piece is float32 and its
rounding error is far below the ridge, its product is computed in float32 and added in float64.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array, FloatArray, Matrix, is_sparse
from oasis.model.threads import in_threads

if TYPE_CHECKING:
    import scipy.sparse as sp

EPS32 = float(np.finfo(np.float32).eps)
# float32 is used if its rounding error, estimated by `rounding`, is below _MARGIN * delta; the
# errors of pieces add up, as those of rounds do
_MARGIN = 5e-4
# columns with more than this share of the trace, such as a constant, are always summed in float64
_HEAVY = 1 / 8
_LEAST_ROWS = 1024
_COLUMNS = 256
_LEAST_BLOCKS = 4
_LEAST_MAPPED = 1 << 22

Block: TypeAlias = tuple[slice, slice]
"""Rows and columns."""


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
    start : (d, d) lower triangle to start from, not modified; None for zero

    Notes
    -----
    Memory: one (d, d) float64 matrix, and a few columns at a time of a product in float32.

    Examples
    --------
    >>> import numpy as np
    >>> total = GramSum(2, delta=1.0)
    >>> for piece in (np.array([[1.0, 2.0]]), np.array([[3.0, 0.0], [0.0, 1.0]])):
    ...     total.add(piece)
    >>> np.tril(total.lower)
    array([[10.,  0.],
           [ 2.,  5.]])
    """

    def __init__(self, n_features: int, delta: float, start: Array | None = None) -> None:
        self._d, self._delta, self._start = n_features, delta, start
        self._own: Array | None = None
        self.single = True

    @property
    def lower(self) -> Array:
        if self._own is None:
            self._own = lower_zeros(self._d, np.float64)
            if self._start is not None:
                copy_lower(self._start, self._own)
            self._start = None  # not needed any more: free it, and do not pickle it
        return self._own

    def __reduce__(self) -> tuple[Callable[..., GramSum], tuple[Any, ...]]:
        """Pickle the columns of the lower triangle: half of the bytes of the whole matrix."""
        lower = self.lower
        panels = [np.asfortranarray(lower[block]) for block in lower_blocks(self._d)]
        return _from_panels, (self._d, self._delta, self.single, panels)

    def add(self, X: Matrix) -> None:
        """Add X'X for the rows X (n, d)."""
        is_single = X.dtype == np.float32
        self.single = self.single and is_single
        if is_sparse(X):
            exact = X.astype(np.float64, copy=False)
            products = (exact.T @ exact).tocoo()
            below = products.row >= products.col
            self.lower[products.row[below], products.col[below]] += products.data[below]
        elif is_single:
            self._add_float32(X)
        else:
            self._add_double(X)

    def _add_float32(self, X: npt.NDArray[Any]) -> None:
        """Add float32 rows in the fewest pieces whose products can be computed in float32.

        All rows together may exceed the error bound while smaller pieces do not. Each piece costs
        one pass over the (d, d) matrix, so if pieces would be too small, the sum is float64.
        """
        squares = column_squares(X)
        heavy = np.flatnonzero(squares > _HEAVY * squares.sum())
        parts = rounding(np.delete(squares, heavy)) / (_MARGIN * self._delta)
        if parts <= 1:
            self._add_single(X, heavy)
        elif parts <= len(X) / _LEAST_ROWS:
            # one more piece than needed, as rows differ in length
            for piece in np.array_split(X, math.ceil(parts) + 1):
                self._add_float32(piece)
        else:  # also if it is infinite: in float64 the squares are in range
            self._add_double(X)

    def _add_single(self, X: npt.NDArray[Any], heavy: npt.NDArray[np.intp]) -> None:
        """Add X'X computed in float32, the lines of the heavy columns in float64."""
        start = self._start if self._own is None else self._own
        lines = _lines(X, heavy)
        if len(heavy) and start is not None:
            lines += [_line(start, h) for h in heavy]
        self._add_blocks(lambda rows, columns: (X[:, columns].T @ X[:, rows]).T)
        for h, line in zip(heavy, lines, strict=True):
            self.lower[h, :h], self.lower[h:, h] = line[:h], line[h:]

    def _add_double(self, X: npt.NDArray[Any]) -> None:
        from scipy.linalg import blas

        wide = X.astype(np.float64, copy=False)
        self._own = blas.dsyrk(1.0, wide.T, beta=1.0, c=self.lower, lower=1, overwrite_c=1)

    def merge(self, other: GramSum) -> None:
        """Add another sum over the same number of features."""
        self.single = self.single and other.single
        self._add_lower(other.lower)

    def joined(self, other: GramSum) -> GramSum:
        """Return the sum of both, in new memory."""
        total = GramSum(self._d, self._delta, start=self.lower)
        total.single = self.single
        total.merge(other)
        return total

    def _add_lower(self, term: FloatArray) -> None:
        self._add_blocks(lambda rows, columns: term[rows, columns])

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

        on_blocks(work, self._d)


def _from_panels(d: int, delta: float, single: bool, panels: list[Array]) -> GramSum:
    """Return the sum that `GramSum.__reduce__` took apart."""
    total = GramSum(d, delta)
    total.single = single
    for block, panel in zip(lower_blocks(d), panels, strict=True):
        total.lower[block] = panel
    return total


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

    on_blocks(work, len(source))


def on_blocks(work: Callable[[Block], None], d: int) -> None:
    """Call ``work`` on the `lower_blocks`, in several threads if there are enough of them.

    Sums and copies outside BLAS then run in parallel too, and products of a few columns, which BLAS
    hardly divides among its threads, one beside the other.
    """
    blocks = lower_blocks(d)
    if len(blocks) < _LEAST_BLOCKS:
        for block in blocks:
            work(block)
    else:
        in_threads(work, blocks)


def lower_blocks(d: int) -> list[Block]:
    """Return the (rows, columns) of blocks that cover the lower triangle of a (d, d) matrix."""
    return [(slice(j, d), slice(j, min(j + _COLUMNS, d))) for j in range(0, d, _COLUMNS)]


def product(X: Matrix, Wt: Array) -> Array:
    """Return ``X W'`` (n, r), computed in the precision of X."""
    if is_sparse(X):
        return np.asarray(X @ Wt, dtype=np.float64)
    weights: npt.NDArray[Any] = Wt.astype(X.dtype, copy=False)
    out = np.empty((len(X), Wt.shape[1]))

    def work(rows: slice) -> None:
        out[rows] = X[rows] @ weights

    in_threads(work, _slices(len(X)))
    return out


def transposed_product(X: Matrix, B: FloatArray | sp.csr_array) -> Array:
    """Return ``X'B`` (d, r), computed in the precision of X.

    For sparse B, such as labels, the cost is its number of non-zeros times d.
    """
    if is_sparse(B):
        return _sparse_targets_product(X, B)
    if is_sparse(X):
        return np.asarray(X.T @ B, dtype=np.float64)
    targets: npt.NDArray[Any] = B.astype(X.dtype, copy=False)
    out = np.empty((X.shape[1], B.shape[1]))

    def work(columns: slice) -> None:
        with np.errstate(over="ignore", invalid="ignore"):  # the sum is checked where it is used
            out[columns] = X[:, columns].T @ targets

    in_threads(work, _slices(X.shape[1]))
    return out


def _slices(n: int) -> list[slice]:
    return [slice(start, start + _LEAST_ROWS) for start in range(0, n, _LEAST_ROWS)]


def _sparse_targets_product(X: Matrix, B: sp.csr_array) -> Array:
    if is_sparse(X):
        return np.asarray((X.T @ B).toarray(), dtype=np.float64)
    total = np.zeros((B.shape[1], X.shape[1]))
    values = B.astype(X.dtype)
    # by blocks: the sum over a block is rounded in float32, sums over blocks are float64
    for start in range(0, len(X), _LEAST_ROWS):
        rows = slice(start, start + _LEAST_ROWS)
        block = values[rows].T @ X[rows]
        total += block
    return total.T


def column_squares(X: npt.NDArray[Any]) -> Array:
    """Return the diagonal of X'X, (d,); infinity where it overflows in the precision of X."""
    out = np.empty(X.shape[1])

    def work(columns: slice) -> None:
        with np.errstate(over="ignore"):
            out[columns] = np.einsum("ij,ij->j", X[:, columns], X[:, columns])

    in_threads(work, _slices(X.shape[1]))
    return out


def rounding(squares: Array) -> float:
    """Estimate the norm of the rounding error of X'X in float32, from its diagonal (d,).

    An entry (i, j) is rounded by about ``eps |x_i| |x_j|``, with x_i the columns, and rounding
    errors are independent: the norm of a row of them is at most ``eps |x_i| |X|``. Measured on
    features of eight kinds, the error was 0.1 to 1.5 times this estimate.
    """
    return EPS32 * float(np.sqrt(squares.max(initial=0.0)) * np.sqrt(squares.sum()))


def _lines(X: npt.NDArray[Any], columns: npt.NDArray[np.intp]) -> Array:
    """Return the products of k columns of X with all columns, (k, d), in float64."""
    blocks = _slices(len(X)) if len(columns) else []
    parts = np.empty((len(blocks), len(columns), X.shape[1]))

    def work(at: int) -> None:
        rows = X[blocks[at]].astype(np.float64)
        parts[at] = rows[:, columns].T @ rows

    in_threads(work, range(len(blocks)))
    lines: Array = parts.sum(axis=0)
    return lines


def _line(lower: Array, h: int) -> Array:
    """Return row h of a symmetric matrix, given its lower triangle."""
    return np.concatenate([lower[h, :h], lower[h:, h]])
