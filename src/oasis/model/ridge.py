"""Streaming ridge regression: the W step, ``W = (sum B'X)(sum X'X + de I)^-1``.

One `Ridge` holds the sums of one modality. It is immutable: a round (`oasis.model.ridge_round`)
ends with a new `Ridge`.

Precision
    Sums are float64. Where the data are float32 and its rounding is far below the ridge, the Gram
    matrix and the factor are computed in float32, and the final W is refined against the float64
    sums until it is right to about nine digits. Everything else is done in float64.

What is kept of small chunks
    ``tail``, a triangular root R of their Gram matrix (R'R = X'X, chunk by chunk). It is a sum in
    factored form, at most d / 8 rows, and goes into the full matrix when it would grow past that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array, LowerTriangle, Matrix, has_row, in_range, is_sparse
from oasis.errors import FormatError, InputError
from oasis.model.factor import Factor, Identity, cholesky, symmetric_product
from oasis.model.gram import lower_zeros
from oasis.model.threads import in_threads

MAX_FEATURES = 8192
"""Widest modality that is accepted: its Gram matrix takes 0.5 GB."""

MOST_BYTES = 1e9
"""Most memory of the regressions of all modalities."""

WEAKER = 10.0 ** (-np.arange(9) / 2)
"""Factors of the ridge that are tried: 1 to 0.0001."""

MOST_CHOSEN = 1024
"""Most features of a modality whose ridge is chosen: its sums are decomposed once."""

MARGIN = 1.01
"""The strongest ridge is taken whose error is at most so many times the least."""

# a square on the diagonal is copied: above it the sum is not defined
_COLUMNS = 256
_ROWS = 256
_REFINED = 1e-9
_MAX_REFINEMENTS = 8


def check_width(n_features: int) -> None:
    """Refuse a modality whose Gram matrix would be too large."""
    if n_features > MAX_FEATURES:
        raise InputError(
            f"{n_features} features need a dense {n_features} x {n_features} sum "
            f"({n_features**2 * 8 / 1e9:.1f} GB); at most {MAX_FEATURES} are accepted. "
            "Hash or project them into fewer dimensions first (text: 2048 is plenty)"
        )


def check_targets(n_targets: int, widths: Collection[int]) -> None:
    """Refuse so many targets that the regressions would be too large."""
    n_bytes = 16 * n_targets * sum(widths)  # sum B'X and W, in float64
    if n_bytes > MOST_BYTES:
        raise InputError(
            f"{n_targets} classes at {sum(widths)} features need regressions of "
            f"{n_bytes / 1e9:.1f} GB; at most {MOST_BYTES / 1e9:.0f} GB are accepted. Give fewer "
            "classes, or features of fewer dimensions"
        )


def with_constant(X: Matrix) -> Matrix:
    """Return rows (n, d + 1) that end with a 1, whose weight is the intercept of a regression.

    A row of zeros lacks the modality and stays a row of zeros.

    >>> with_constant(np.array([[0.6, 0.8], [0.0, 0.0]]))
    array([[0.6, 0.8, 1. ],
           [0. , 0. , 0. ]])
    """
    there = has_row(X)
    if is_sparse(X):
        n, d = X.shape
        ends = X.indptr[1:][there]
        # not sp.hstack: its checks take longer than a row
        return type(X)(
            (
                np.insert(X.data, ends, 1),
                np.insert(X.indices, ends, d),
                X.indptr + np.concatenate([[0], np.cumsum(there)]),
            ),
            shape=(n, d + 1),
        )
    return np.hstack([X, there.astype(X.dtype)[:, None]])


def unit_rows_with_constant(X: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return `with_constant` of rows scaled to unit length (n, d + 1), in several threads.

    >>> unit_rows_with_constant(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8, 1. ],
           [0. , 0. , 0. ]])
    """
    n, d = X.shape
    wide = np.empty((n, d + 1), dtype=X.dtype)

    def work(rows: slice) -> None:
        given, scale = in_range(X[rows])
        np.multiply(np.asarray(given), scale[:, None], out=wide[rows, :d])
        wide[rows, d] = scale > 0

    in_threads(work, [slice(start, start + _ROWS) for start in range(0, n, _ROWS)])
    return wide


class _Solver(Protocol):
    def __call__(self, target: Array, /) -> Array: ...


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
    _known_factor: Factor | None = field(default=None, compare=False, repr=False)

    @classmethod
    def zero(cls, n_targets: int, n_features: int, delta: float) -> Ridge:
        """Return the regression that has seen nothing; its W is zero."""
        nothing = np.zeros((n_targets, n_features))
        empty = np.zeros((0, n_features))
        return cls(delta, nothing, nothing, None, empty, empty.T.copy(), False)

    @property
    def n_features(self) -> int:
        return int(self.BX.shape[1])

    @property
    def n_constant(self) -> float:
        """Rows in the sums, where each has a constant as its last feature (`with_constant`)."""
        base = 0.0 if self.base is None else float(self.base[-1, -1])
        return base + float(np.square(self.tail[:, -1]).sum())

    def sum_of_rows(self) -> Array:
        """Return the sum of all rows (d,), where each has a constant as its last feature."""
        small = self.tail[:, -1] @ self.tail
        return small if self.base is None else small + self.base[-1]

    def square_along(self, x: Array) -> float:
        """Return ``x' (sum X'X) x`` for x (d,): without SciPy, which searches do not load."""
        total = float(np.square(self.tail @ x).sum())
        if self.base is None:
            return total
        for start in range(0, self.n_features, _COLUMNS):
            stop = start + _COLUMNS
            columns, part = self.base[:, start:stop], x[start:stop]
            square = np.tril(columns[start:stop])
            total += float(2 * part @ (square @ part) - np.square(part) @ np.diagonal(square))
            total += float(2 * x[stop:] @ (columns[stop:] @ part))
        return total

    @cached_property
    def factor(self) -> Factor:
        """The factor of ``base + delta I``, made anew, by the same operations, after a load."""
        if self._known_factor is not None:
            return self._known_factor
        if self.base is None:
            return Identity(self.delta)
        return cholesky(self.base, self.delta, self.single)

    def gram(self) -> Array:
        """Return the whole symmetric (d, d) sum of X'X."""
        full = self.tail.T @ self.tail
        if self.base is not None:
            lower = np.tril(self.base)
            full += lower + np.tril(lower, -1).T
        return full

    def check_shapes(self, name: str) -> None:
        """Raise ValueError unless the arrays fit each other, as those of a damaged file do not."""
        (n_targets, d), k = self.BX.shape, len(self.tail)
        for key, array, shape in (
            ("BX", self.BX, (n_targets, d)),
            ("W", self.W, (n_targets, d)),
            ("tail", self.tail, (k, d)),
            ("half", self.half, (d, k)),
        ):
            if array.shape != shape or array.dtype != np.float64:
                raise ValueError(
                    f"{name}/{key} is {array.dtype} {array.shape}, expected float64 {shape}"
                )

    def widened(self, n_targets: int) -> Ridge:
        """Return the regression with more targets, which were zero for all samples so far."""
        if n_targets == len(self.BX):
            return self
        more = ((0, n_targets - len(self.BX)), (0, 0))
        return replace(self, BX=np.pad(self.BX, more), W=np.pad(self.W, more))

    def first(self, n_targets: int) -> Ridge:
        """Return the regression of the first targets alone."""
        return replace(self, BX=self.BX[:n_targets].copy(), W=self.W[:n_targets].copy())

    def last(self, n_targets: int) -> Ridge:
        """Return the regression of the last targets alone."""
        start = len(self.BX) - n_targets
        return replace(self, BX=self.BX[start:].copy(), W=self.W[start:].copy())

    def led_by(self, n_targets: int) -> Ridge:
        """Return the regression with more targets in front, zero for all samples so far."""
        more = ((n_targets, 0), (0, 0))
        return replace(self, BX=np.pad(self.BX, more), W=np.pad(self.W, more))

    def cleared(self, targets: slice) -> Ridge:
        """Return the regression in which some targets were zero for all samples so far."""
        BX, W = self.BX.copy(), self.W.copy()
        BX[targets] = W[targets] = 0
        return replace(self, BX=BX, W=W)

    def with_delta(self, delta: float) -> Ridge:
        """Return the regression of the same sums with another ridge, solved anew in float64."""
        return replace(self, delta=delta)._solved(np.asfortranarray(np.tril(self.gram())))

    def _solved(self, base: Array) -> Ridge:
        """Return the regression whose sum of X'X is ``base`` alone, solved anew in float64."""
        empty = np.zeros((0, self.n_features))
        new = replace(
            self, base=base, tail=empty, half=empty.T.copy(), single=False, _known_factor=None
        )
        Wt = new.factor.upper(new.factor.lower(self.BX.T))  # (d, r)
        return replace(new, W=np.ascontiguousarray(Wt.T), _known_factor=new.factor)

    def without(self, X: Matrix, targets: Array) -> Ridge:
        """Return the regression without rows X (n, d) that were learned with targets (n, r).

        The solution for the sums that remain is computed anew in float64.
        """
        from scipy.linalg import blas

        rows = (X.toarray() if is_sparse(X) else X).astype(np.float64, copy=False)
        base = np.asfortranarray(np.tril(self.gram()))
        base = blas.dsyrk(-1.0, rows.T, beta=1.0, c=base, lower=1, overwrite_c=1)
        return replace(self, BX=self.BX - targets.T @ rows)._solved(base)

    def leverages(self, X: Matrix) -> Array:
        """Return ``x' (sum X'X + delta I)^-1 x`` (n,) of rows x."""
        rows = (X.toarray() if is_sparse(X) else X).astype(np.float64, copy=False)
        lowered = self.factor.lower(rows.T)  # (d, n)
        squares: Array = np.square(lowered).sum(axis=0)
        if len(self.tail):
            inner = np.eye(len(self.tail)) + self.half.T @ self.half
            part = self.half.T @ lowered
            squares -= np.vecdot(np.linalg.solve(inner, part).T, part.T)
        return squares

    @property
    def may_be_chosen(self) -> bool:
        """Whether there are rows enough to choose the ridge, or it is never chosen."""
        return self.n_constant >= 2 * self.n_features or self.n_features > MOST_CHOSEN

    def chosen(self, n_others: int) -> Ridge:
        """Return the regression with a ridge chosen by generalised cross-validation of its labels.

        With ``sum X'X = U diag(s) U'`` and ``Z = (sum L'X) U`` the squared error of a regression
        with ridge delta and its degrees of freedom f are, over n rows,

            ``|L|^2 - sum Z^2 (s + 2 delta) / (s + delta)^2``  and  ``sum s / (s + delta)``

        and of `WEAKER` times the present delta the largest is taken whose error over ``(n - f)^2``
        is within `MARGIN` of the least. With fewer than two rows a feature, or more than
        `MOST_CHOSEN` features, the ridge stays as it is.

        Parameters
        ----------
        n_others : so many of the first targets are no labels
        """
        n, labels = self.n_constant, self.BX[n_others:]
        if not self.may_be_chosen or self.n_features > MOST_CHOSEN:
            return self
        values, U = np.linalg.eigh(self.gram())
        s, Z = np.maximum(values, 0), np.square(labels @ U).sum(axis=0)
        tried = self.delta * WEAKER
        squares = np.array(
            [labels[:, -1].sum() - (Z * (s + 2 * x) / np.square(s + x)).sum() for x in tried]
        )
        freedom = np.array([n - (s / (s + x)).sum() for x in tried])
        errors = np.maximum(squares, 0) / np.square(freedom)  # 0 by rounding if the fit is exact
        delta = float(tried[np.flatnonzero(errors <= MARGIN * errors.min())[0]])
        return self if delta == self.delta else self.with_delta(delta)

    def product(self, C: Array) -> Array:
        """Return ``(sum X'X + delta I) C`` for C (d, m)."""
        out = self.delta * C
        if self.base is not None:
            out += symmetric_product(self.base, C)
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

    def state(self) -> dict[str, npt.NDArray[Any] | LowerTriangle]:
        """Return the arrays that `from_state` needs; of the lower triangle its columns."""
        arrays: dict[str, npt.NDArray[Any] | LowerTriangle] = {
            "BX": self.BX,
            "W": self.W,
            "tail": self.tail,
            "half": np.ascontiguousarray(self.half.T),
            "single": np.array([self.single]),
            "delta": np.array([self.delta]),
        }
        if self.base is not None:
            arrays["XX"] = LowerTriangle(self.base)
        return arrays

    @classmethod
    def from_state(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Ridge:
        """Return the regression that `state` described, bit for bit."""
        BX = arrays["BX"]
        base = None
        if "XX" in arrays:
            d = BX.shape[1]
            if arrays["XX"].shape != (d * (d + 1) // 2,) or arrays["XX"].dtype != np.float64:
                raise FormatError(f"XX does not hold the lower triangle of a {d} x {d} matrix")
            base = lower_zeros(d, np.float64)
            ends = np.cumsum(np.arange(d, 0, -1))
            for j, column in enumerate(np.split(arrays["XX"], ends[:-1])):
                base[j:, j] = column
        delta = float(arrays["delta"][0])
        if not 0 < delta < np.inf:
            raise FormatError(f"a ridge of {delta}")
        return cls(
            delta,
            BX,
            arrays["W"],
            base,
            arrays["tail"],
            np.asfortranarray(arrays["half"].T),
            bool(arrays["single"][0]),
        )


def _norm(C: Array) -> float:
    # without BLAS: NumPy's threads would spin for a while, beside those of SciPy that do the work
    return float(np.sqrt(np.einsum("ij,ij->", C, C)))
