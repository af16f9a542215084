"""Streaming ridge regression: the W step, ``W = (sum B'X)(sum X'X + de I)^-1``.

One `Ridge` holds the sums of one modality. It is immutable: a round starts with `Ridge.round`,
asks for predictions as B changes, and ends with a new `Ridge`.

Cost of a round with n samples and d features
    A large chunk pays one ``syrk`` and one Cholesky factorisation, and nothing else of that order.
    A small one (n at most d / 8, together with the small ones before it) pays neither: with A the
    old matrix and ``E = A^-1 X'`` (d, n), the new solution is

        ``W_new' = W' + E (I + X E)^-1 (B - X W')``

    and A^-1 comes from the last factor and, by Woodbury's formula, the small chunks since.

Precision
    Sums are float64. Where the data are float32 and its rounding is far below the ridge, the Gram
    matrix and the factor are computed in float32, and the final W is refined against the float64
    sums until it is right to about nine digits. Everything else is done in float64.

What is kept of small chunks
    ``tail``, a triangular root R of their Gram matrix (R'R = X'X, chunk by chunk). It is a sum in
    factored form, at most d / 8 rows, and goes into the full matrix when it would grow past that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.linalg import blas, cho_factor, cho_solve, lapack

from oasis.errors import FormatError, InputError

Array: TypeAlias = npt.NDArray[np.float64]
FloatArray: TypeAlias = npt.NDArray[np.float32] | npt.NDArray[np.float64]
Matrix: TypeAlias = FloatArray | sp.csr_array

MAX_FEATURES = 8192
"""Widest modality that is accepted: its Gram matrix takes 0.5 GB."""

_EPS32 = float(np.finfo(np.float32).eps)
# float32 is used while its rounding error, bounded by eps times the trace, stays this far below
# delta: for the Gram matrix of a chunk, whose errors add up over rounds, and for the factor, whose
# errors are refined away as long as refinement contracts.
_GRAM_MARGIN = 1e-3
_FACTOR_MARGIN = 5e-2
_REFINED = 1e-9
_MAX_REFINEMENTS = 8
_COLUMNS = 64


@dataclass(frozen=True)
class Ridge:
    """Ridge regression of r targets on d features, learned from a stream.

    Attributes
    ----------
    delta : the ridge
    BX : (r, d), sum of B'X
    W : (r, d), the solution for the sums
    base : (d, d), sum of X'X without the tail, Fortran order, lower triangle only; None while zero
    tail : (k, d), a root of the Gram matrix of the small chunks since ``base`` was last changed
    half : (d, k), ``L^-1 tail'`` with L the factor of ``base + delta I``
    single : whether that factor is float32
    """

    delta: float
    BX: Array
    W: Array
    base: Array | None
    tail: Array
    half: Array
    single: bool
    _known_factor: _Factor | None = field(default=None, compare=False, repr=False)

    @classmethod
    def zero(cls, n_targets: int, n_features: int, delta: float) -> Ridge:
        """Return the regression that has seen nothing; its W is zero."""
        if n_features > MAX_FEATURES:
            raise InputError(
                f"{n_features} features need a dense {n_features} x {n_features} sum "
                f"({n_features**2 * 8 / 1e9:.1f} GB); at most {MAX_FEATURES} are accepted. "
                "Hash or project them into fewer dimensions first (text: 2048 is plenty)"
            )
        nothing = np.zeros((n_targets, n_features))
        empty = np.zeros((0, n_features))
        return cls(delta, nothing, nothing, None, empty, empty.T.copy(), False)

    @property
    def n_features(self) -> int:
        return int(self.BX.shape[1])

    @cached_property
    def factor(self) -> _Factor:
        """The factor of ``base + delta I``, made anew, by the same operations, after a load."""
        if self._known_factor is not None:
            return self._known_factor
        if self.base is None:
            return _Identity(self.delta)
        return _cholesky(self.base, self.delta, self.single)

    def gram(self) -> Array:
        """Return the whole symmetric (d, d) sum of X'X."""
        full = self.tail.T @ self.tail
        if self.base is not None:
            lower = np.tril(self.base)
            full += lower + np.tril(lower, -1).T
        return full

    def widened(self, n_targets: int) -> Ridge:
        """Return the regression with more targets, which were zero for all samples so far."""
        more = ((0, n_targets - len(self.BX)), (0, 0))
        return replace(self, BX=np.pad(self.BX, more), W=np.pad(self.W, more))

    def round(self, X: Matrix) -> RidgeRound:
        """Start a round on the chunk X (n, d)."""
        small = len(self.tail) + X.shape[0] <= self.n_features // 8
        return (small and _SmallRound.start(self, X)) or _LargeRound(self, X)

    def product(self, C: Array) -> Array:
        """Return ``(sum X'X + delta I) C`` for C (d, m)."""
        out = self.delta * C
        if self.base is not None:
            out += blas.dsymm(1.0, self.base, C, lower=1)
        if len(self.tail):
            out += self.tail.T @ (self.tail @ C)
        return out

    def refine(self, C: Array, target: Array, approximate: _Solver) -> Array | None:
        """Improve C (d, m) until ``(sum X'X + delta I) C = target``; None when it cannot be.

        The error falls by a constant factor a step, so its size after a step is predicted from
        the last two corrections.
        """
        if not C.size:
            return C
        size = _norm(C)
        last = size
        for _ in range(_MAX_REFINEMENTS):
            correction = approximate(target - self.product(C))
            C = C + correction
            now = _norm(correction)
            if now * now <= _REFINED * size * last or now == 0.0:
                return C
            if now > 0.5 * last:
                return None
            last = now
        return None

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays that `from_state` needs; the lower triangle is packed."""
        arrays: dict[str, npt.NDArray[Any]] = {
            "BX": self.BX,
            "W": self.W,
            "tail": self.tail,
            "half": np.ascontiguousarray(self.half.T),
            "single": np.array([self.single]),
        }
        if self.base is not None:
            # column by column: LAPACK's own packing takes ten times as long
            arrays["XX"] = np.concatenate([self.base[j:, j] for j in range(self.n_features)])
        return arrays

    @classmethod
    def from_state(cls, delta: float, arrays: Mapping[str, npt.NDArray[Any]]) -> Ridge:
        """Return the regression that `state` described, bit for bit."""
        BX = arrays["BX"]
        base = None
        if "XX" in arrays:
            d = BX.shape[1]
            if arrays["XX"].shape != (d * (d + 1) // 2,) or arrays["XX"].dtype != np.float64:
                raise FormatError(f"XX does not hold the lower triangle of a {d} x {d} matrix")
            base = np.zeros((d, d), order="F")
            ends = np.cumsum(np.arange(d, 0, -1))
            for j, column in enumerate(np.split(arrays["XX"], ends[:-1])):
                base[j:, j] = column
        return cls(
            delta,
            BX,
            arrays["W"],
            base,
            arrays["tail"],
            np.asfortranarray(arrays["half"].T),
            bool(arrays["single"][0]),
        )


class RidgeRound(Protocol):
    """One chunk being learned: what the W of the codes B would predict, and the sums after it."""

    def predict(self, B: Array) -> Array:
        """Return ``X W'`` (n, r), with W solved from the sums that include B (n, r)."""

    def finish(self, B: Array) -> Ridge:
        """Return the regression whose sums include the chunk with codes B (n, r)."""


class _Factor(Protocol):
    """L with ``L L' = base + delta I``."""

    def lower(self, Y: Array) -> Array:
        """Return ``L^-1 Y``."""

    def upper(self, Y: Array) -> Array:
        """Return ``L^-T Y``."""


class _Solver(Protocol):
    def __call__(self, target: Array, /) -> Array: ...


@dataclass(frozen=True)
class _Identity:
    """The factor of ``delta I``, before anything has gone into ``base``."""

    delta: float

    def lower(self, Y: Array) -> Array:
        return np.asarray(Y / np.sqrt(self.delta))

    upper = lower


@dataclass(frozen=True)
class _Cholesky:
    L: FloatArray  # Fortran order; what stands above the diagonal is never read

    def lower(self, Y: Array) -> Array:
        return self._solve(Y, trans=0)

    def upper(self, Y: Array) -> Array:
        return self._solve(Y, trans=1)

    def _solve(self, Y: Array, trans: int) -> Array:
        trsm = blas.strsm if self.L.dtype == np.float32 else blas.dtrsm
        Y = np.asfortranarray(Y, dtype=self.L.dtype)
        solution = trsm(1.0, self.L, Y, lower=1, trans_a=trans)
        return np.asarray(solution, dtype=np.float64)


class _LargeRound:
    """A round that adds the chunk's Gram matrix to the sum and factors it once."""

    def __init__(self, ridge: Ridge, X: Matrix) -> None:
        self._BX, self._X = ridge.BX, X
        trace = _sum_of_squares(X)
        total = trace + _sum_of_squares(ridge.tail)
        if ridge.base is not None:
            total += float(np.trace(ridge.base))
        is_single = X.dtype == np.float32
        empty = np.zeros((0, ridge.n_features))
        self._new = replace(
            ridge,
            base=_add_gram(ridge, X, is_single and trace * _EPS32 <= _GRAM_MARGIN * ridge.delta),
            tail=empty,
            half=empty.T.copy(),
            single=is_single and total * _EPS32 <= _FACTOR_MARGIN * ridge.delta,
            _known_factor=None,
        )
        self._B: Array | None = None  # the codes that W fits
        self._target = np.zeros_like(ridge.BX.T)  # (d, r), sum X'B
        self._Wt = np.zeros_like(self._target)  # (d, r)

    def predict(self, B: Array) -> Array:
        self._fit(B)
        return _product(self._X, self._Wt)

    def finish(self, B: Array) -> Ridge:
        self._fit(B)
        if self._new.single:
            refined = self._new.refine(self._Wt, self._target, self._approximate)
            if refined is None:
                self._new = replace(self._new, single=False)
                refined = self._approximate(self._target)
            self._Wt = refined
        return replace(
            self._new,
            BX=np.ascontiguousarray(self._target.T),
            W=np.ascontiguousarray(self._Wt.T),
            _known_factor=self._new.factor,
        )

    def _fit(self, B: Array) -> None:
        if self._B is not None and np.array_equal(B, self._B):
            return
        # B changes little from one iteration to the next, so only the difference is solved for:
        # the error of a float32 solution then shrinks with it.
        target = self._BX.T + _transposed_product(self._X, B)
        self._Wt = self._Wt + self._approximate(target - self._target)
        self._B, self._target = B, target

    def _approximate(self, target: Array) -> Array:
        if not target.size:
            return target
        factor = self._new.factor
        return factor.upper(factor.lower(target))


class _SmallRound:
    """A round that leaves the sum's factor alone and corrects the last W."""

    def __init__(self, ridge: Ridge, X: Array, lowered: Array, E: Array) -> None:
        self._old, self._X, self._lowered, self._E = ridge, X, lowered, E
        self._XE = X @ E  # (n, n)
        self._gain = cho_factor(np.eye(len(X)) + self._XE, lower=True)
        self._before = X @ ridge.W.T  # (n, r)

    @classmethod
    def start(cls, ridge: Ridge, X: Matrix) -> _SmallRound | None:
        """Return the round, or None when the old factor is too coarse to be refined."""
        dense = X.toarray() if isinstance(X, sp.csr_array) else X
        dense = dense.astype(np.float64, copy=False)
        half, factor = ridge.half, ridge.factor
        inner = cho_factor(np.eye(half.shape[1]) + half.T @ half, lower=True)

        def woodbury(lowered: Array) -> Array:  # A^-1 Y from L^-1 Y, with A = L L' + tail' tail
            return factor.upper(lowered - half @ cho_solve(inner, half.T @ lowered))

        lowered = factor.lower(dense.T)  # (d, n), L^-1 X'
        E = woodbury(lowered)  # (d, n), A^-1 X'
        if not ridge.single:
            return cls(ridge, dense, lowered, E)
        refined = ridge.refine(E, dense.T, lambda target: woodbury(factor.lower(target)))
        return None if refined is None else cls(ridge, dense, lowered, refined)

    def predict(self, B: Array) -> Array:
        return self._before + self._XE @ self._change(B)

    def finish(self, B: Array) -> Ridge:
        old = self._old
        Q, R = np.linalg.qr(self._X)  # (n, n), (n, d): R'R = X'X
        return replace(
            old,
            BX=old.BX + B.T @ self._X,
            W=old.W + (self._E @ self._change(B)).T,
            tail=np.vstack([old.tail, R]),
            half=np.hstack([old.half, self._lowered @ Q]),  # L^-1 R' = L^-1 X'Q
            _known_factor=old.factor,
        )

    def _change(self, B: Array) -> Array:
        return cho_solve(self._gain, B - self._before)  # (n, r)


def _add_gram(ridge: Ridge, X: Matrix, in_single: bool) -> Array:
    """Return ``base`` with X'X and the tail's Gram matrix added, lower triangle, float64."""
    d = ridge.n_features
    base = _lower(d, np.float64)
    gram = blas.ssyrk(1.0, X.T, lower=1) if in_single and not sp.issparse(X) else None
    for block in _lower_blocks(d):
        if ridge.base is not None and gram is not None:
            np.add(ridge.base[block], gram[block], out=base[block])
        elif ridge.base is not None:
            base[block] = ridge.base[block]
        elif gram is not None:
            base[block] = gram[block]
    if isinstance(X, sp.csr_array):
        products = (X.T @ X).tocoo()
        base[products.row, products.col] += products.data
    elif gram is None:
        wide = X.astype(np.float64, copy=False)
        base = blas.dsyrk(1.0, wide.T, beta=1.0, c=base, lower=1, overwrite_c=1)
    if len(ridge.tail):
        base = blas.dsyrk(1.0, ridge.tail.T, beta=1.0, c=base, lower=1, overwrite_c=1)
    return base


def _cholesky(base: Array, delta: float, single: bool) -> _Cholesky:
    d = len(base)
    A = _lower(d, np.float32 if single else np.float64)
    for block in _lower_blocks(d):
        A[block] = base[block]
    A[np.diag_indices(d)] += delta
    potrf = lapack.spotrf if single else lapack.dpotrf
    L, failed = potrf(A, lower=1, overwrite_a=1, clean=0)
    if not failed:
        return _Cholesky(L)
    if single:
        return _cholesky(base, delta, single=False)
    raise InputError(
        f"the sum X'X + delta I is singular in float64: delta={delta} is too small for features "
        f"with a sum of squares of {np.trace(base):.3g}; scale the features or raise delta"
    )


def _lower(d: int, dtype: type[np.float32] | type[np.float64]) -> npt.NDArray[Any]:
    """Return a (d, d) matrix in Fortran order, to be filled below the diagonal; zeros elsewhere.

    Not by ``np.zeros``: what it returns is mapped page by page, which takes as long as the work.
    """
    matrix = np.empty((d, d), dtype=dtype, order="F")
    matrix.fill(0)
    return matrix


def _lower_blocks(d: int) -> list[tuple[slice, slice]]:
    """Return the (rows, columns) of blocks that cover the lower triangle of a (d, d) matrix."""
    return [(slice(j, d), slice(j, min(j + _COLUMNS, d))) for j in range(0, d, _COLUMNS)]


def _product(X: Matrix, Wt: Array) -> Array:
    """Return ``X W'`` (n, r), computed in the precision of X."""
    if isinstance(X, sp.csr_array):
        return np.asarray(X @ Wt, dtype=np.float64)
    return np.asarray(X @ Wt.astype(X.dtype, copy=False), dtype=np.float64)


def _transposed_product(X: Matrix, B: Array) -> Array:
    """Return ``X'B`` (d, r), computed in the precision of X."""
    if isinstance(X, sp.csr_array):
        return np.asarray(X.T @ B, dtype=np.float64)
    return np.asarray(X.T @ B.astype(X.dtype, copy=False), dtype=np.float64)


def _sum_of_squares(X: Matrix) -> float:
    flat = X.data if isinstance(X, sp.csr_array) else X.ravel()
    return float(np.dot(flat, flat))


def _norm(C: Array) -> float:
    return float(np.sqrt(_sum_of_squares(C)))
