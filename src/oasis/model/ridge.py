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
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array, Matrix, Pieces, has_row, is_sparse
from oasis.errors import FormatError, InputError
from oasis.model.factor import Factor, Identity, centred_trace, cholesky, symmetric_product
from oasis.model.gram import (
    EPS32,
    GramSum,
    product,
    transposed_product,
)
from oasis.model.threads import one_thread

if TYPE_CHECKING:
    import scipy.sparse as sp

MAX_FEATURES = 8192
"""Widest modality that is accepted: its Gram matrix takes 0.5 GB."""

# the factor is float32 while its rounding error, bounded by eps times the trace of what is
# factored, stays this far below delta: then refinement contracts, and refines the error away
_FACTOR_MARGIN = 5e-2
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


def with_constant(X: Matrix) -> Matrix:
    """Return rows (n, d + 1) that end with a 1, whose weight is the intercept of a regression.

    A row of zeros lacks the modality and stays a row of zeros.

    >>> with_constant(np.array([[0.6, 0.8], [0.0, 0.0]]))
    array([[0.6, 0.8, 1. ],
           [0. , 0. , 0. ]])
    """
    ones = has_row(X).astype(X.dtype)[:, None]
    if is_sparse(X):
        import scipy.sparse as sp

        wide: Matrix = sp.hstack([X, sp.csr_array(ones)], format="csr")
        return wide
    return np.hstack([X, ones])


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

    def round(self, X: Matrix) -> RidgeRound:
        """Start a round on the chunk X (n, d)."""
        small = len(self.tail) + X.shape[0] <= self.n_features // 8
        return (small and _SmallRound.start(self, X)) or _LargeRound(self, X)

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

    def state(self) -> dict[str, npt.NDArray[Any] | Pieces]:
        """Return the arrays that `from_state` needs; of the lower triangle its columns."""
        arrays: dict[str, npt.NDArray[Any] | Pieces] = {
            "BX": self.BX,
            "W": self.W,
            "tail": self.tail,
            "half": np.ascontiguousarray(self.half.T),
            "single": np.array([self.single]),
            "delta": np.array([self.delta]),
        }
        if self.base is not None:
            arrays["XX"] = Pieces([self.base[j:, j] for j in range(self.n_features)])
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
            base = np.zeros((d, d), order="F")
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


class RidgeRound(Protocol):
    """One chunk being learned: what the W of the codes B would predict, and the sums after it."""

    def predict(self, B: Array) -> Array:
        """Return ``X W'`` (n, r), with W solved from the sums that include B (n, r)."""

    def finish(self, *targets: Array | sp.csr_array) -> Ridge:
        """Return the regression whose sums include the chunk.

        Parameters
        ----------
        targets : (n, r_1), (n, r_2), ...: side by side, the targets B (n, r); labels may be sparse
        """


class _Solver(Protocol):
    def __call__(self, target: Array, /) -> Array: ...


class RidgeFit:
    """W for sums that include a chunk, solved anew whenever the chunk's codes change.

    It needs of the chunk its Gram matrix and, for each B, the product X'B: not its rows, which may
    be anywhere.

    Parameters
    ----------
    ridge : the regression before the chunk
    base : (d, d), ``ridge.base`` plus the chunk's Gram matrix; overwritten
    is_single : whether the chunk's features are float32
    """

    def __init__(self, ridge: Ridge, base: Array, is_single: bool) -> None:
        from scipy.linalg import blas

        self._BX = ridge.BX
        if len(ridge.tail):
            base = blas.dsyrk(1.0, ridge.tail.T, beta=1.0, c=base, lower=1, overwrite_c=1)
        empty = np.zeros((0, ridge.n_features))
        total = float(np.trace(base))
        _check_sums(np.isfinite(total))  # no product is larger than the squares it is made of
        self._new = replace(
            ridge,
            base=base,
            tail=empty,
            half=empty.T.copy(),
            single=is_single and centred_trace(base) * EPS32 <= _FACTOR_MARGIN * ridge.delta,
            _known_factor=None,
        )
        self._target = np.zeros_like(ridge.BX.T)  # (d, r), sum X'B
        self._Wt = np.zeros_like(self._target)  # (d, r)

    def solve(self, XB: Array) -> Array:
        """Return W' (d, r) for the chunk's X'B (d, r)."""
        # B changes little from one iteration to the next, so only the difference is solved for:
        # the error of a float32 solution then shrinks with it.
        target = self._BX.T + XB
        _check_sums(np.isfinite(target).all())
        self._Wt = self._Wt + self._approximate(target - self._target)
        self._target = target
        return self._Wt

    def finish(self) -> Ridge:
        """Return the regression whose sums include the chunk, with the codes last solved for."""
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

    def _approximate(self, target: Array) -> Array:
        if not target.size:
            return target
        factor = self._new.factor
        return factor.upper(factor.lower(target))


class _LargeRound:
    """A round that adds the chunk's Gram matrix to the sum and factors it once."""

    def __init__(self, ridge: Ridge, X: Matrix) -> None:
        self._X = X
        gram = GramSum(ridge.n_features, ridge.delta, start=ridge.base)
        gram.add(X)
        self._fit = RidgeFit(ridge, gram.lower, gram.single)
        self._B: Array | None = None  # the codes that W fits
        self._Wt: Array | None = None

    def predict(self, B: Array) -> Array:
        return product(self._X, self._solve(B))

    def finish(self, *targets: Array | sp.csr_array) -> Ridge:
        if len(targets) == 1 and not is_sparse(targets[0]):
            self._solve(targets[0])
        else:
            self._fit.solve(np.hstack([transposed_product(self._X, each) for each in targets]))
        return self._fit.finish()

    def _solve(self, B: Array) -> Array:
        if self._Wt is None or self._B is None or not np.array_equal(B, self._B):
            self._Wt = self._fit.solve(transposed_product(self._X, B))
            self._B = B
        return self._Wt


class _SmallRound:
    """A round that leaves the sum's factor alone and corrects the last W.

    It is done in one thread: products of a few rows gain nothing from more, and those of NumPy and
    SciPy would wait for each other.
    """

    def __init__(self, ridge: Ridge, X: Array, lowered: Array, E: Array) -> None:
        from scipy.linalg import cho_factor

        self._old, self._X, self._lowered, self._E = ridge, X, lowered, E
        with np.errstate(over="ignore", invalid="ignore"):
            self._XE = X @ E  # (n, n)
        _check_sums(np.isfinite(self._XE).all())
        self._gain = cho_factor(np.eye(len(X)) + self._XE, lower=True)
        self._before = X @ ridge.W.T  # (n, r)

    @classmethod
    @one_thread()
    def start(cls, ridge: Ridge, X: Matrix) -> _SmallRound | None:
        """Return the round, or None when the old factor is too coarse to be refined."""
        from scipy.linalg import cho_factor, cho_solve

        dense = X.toarray() if is_sparse(X) else X
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

    @one_thread()
    def predict(self, B: Array) -> Array:
        return self._before + self._XE @ self._change(B)

    @one_thread()
    def finish(self, *targets: Array | sp.csr_array) -> Ridge:
        B = np.hstack([each.toarray() if is_sparse(each) else each for each in targets])
        old = self._old
        Q, R = np.linalg.qr(self._X)  # (n, n), (n, d): R'R = X'X
        # the orders in memory that `from_state` gives: another one rounds products differently
        return replace(
            old,
            BX=np.ascontiguousarray(old.BX + B.T @ self._X),
            W=np.ascontiguousarray(old.W + (self._E @ self._change(B)).T),
            tail=np.vstack([old.tail, R]),
            half=np.asfortranarray(np.hstack([old.half, self._lowered @ Q])),  # L^-1 R' = L^-1 X'Q
            _known_factor=old.factor,
        )

    def _change(self, B: Array) -> Array:
        from scipy.linalg import cho_solve

        return cho_solve(self._gain, B - self._before)  # (n, r)


def _norm(C: Array) -> float:
    # without BLAS: NumPy's threads would spin for a while, beside those of SciPy that do the work
    return float(np.sqrt(np.einsum("ij,ij->", C, C)))


def _check_sums(are_finite: bool | np.bool_) -> None:
    if not are_finite:
        raise InputError(
            "the sums X'X and X'B overflow: features this large cannot be used as they are; scale "
            "them first"
        )
