"""Streaming ridge regression: the W step, ``W = (sum B'X)(sum X'X + de I)^-1``.

One `Ridge` holds the sums of one modality. It is immutable: a round (`start_round`) ends with a new
`Ridge`.

Cost of a round with n samples and d features
    A large chunk pays one ``syrk`` and one Cholesky factorisation, and nothing else of that order.
    A small one (n at most d / 8, together with the small ones before it) pays neither: with A the
    old matrix and ``E = A^-1 X'`` (d, n), the new solution is

        ``W_new' = W' + E (I + X E)^-1 (B - X W')``

    and A^-1 comes from the last factor and, by Woodbury's formula, the small chunks since. What is
    kept of these is ``tail``, a triangular root R of their Gram matrix (R'R = X'X, chunk by chunk):
    a sum in factored form, which goes into the full matrix when it would grow past d / 8 rows.

Precision
    Sums are float64. Where the data are float32 and its rounding is far below the ridge, the Gram
    matrix and the factor are computed in float32, and the final W is refined against the float64
    sums until it is right to about nine digits. Everything else is done in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from oasis.arrays import Array, Matrix, Rows, has_row, is_sparse
from oasis.errors import InputError
from oasis.model.file import check_shapes
from oasis.model.gram import (
    EPS32,
    Factor,
    GramSum,
    LowerTriangle,
    factored,
    product,
    transposed_product,
)
from oasis.model.threads import one_thread

if TYPE_CHECKING:
    import scipy.sparse as sp

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

Solver: TypeAlias = Callable[[Array], Array]
"""Solves a system approximately, for targets (d, m)."""

_TARGETS = 512
_SMALL = 8  # a chunk is small up to d / 8 rows
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


@dataclass(frozen=True)
class Ridge:
    """Ridge regression of r targets on d features, learned from a stream.

    Attributes
    ----------
    delta : the ridge
    BX : (r, d), sum of B'X
    W : (r, d), the solution for the sums
    base : (d, d), sum of X'X without the tail; None while zero
    tail : (k, d), a root of the Gram matrix of the small chunks since ``base`` was last changed
    half : (k, d), ``tail L'^-1`` with L the factor of ``base + delta I``
    single : whether that factor is float32
    """

    delta: float
    BX: Array
    W: Array
    base: LowerTriangle | None
    tail: Array
    half: Array
    single: bool
    _known_factor: Factor | None = field(default=None, compare=False, repr=False)

    @classmethod
    def zero(cls, n_targets: int, n_features: int, delta: float) -> Ridge:
        """Return the regression that has seen nothing; its W is zero."""
        nothing, empty = np.zeros((n_targets, n_features)), np.zeros((0, n_features))
        return cls(delta, nothing, nothing, None, empty, empty, False)

    @property
    def n_features(self) -> int:
        return int(self.BX.shape[1])

    @property
    def n_constant(self) -> float:
        """Rows in the sums, where each has a constant as its last feature (`with_constant`)."""
        return float(self.sum_of_rows()[-1])

    def sum_of_rows(self) -> Array:
        """Return the sum of all rows (d,), where each has a constant as its last feature."""
        small = self.tail[:, -1] @ self.tail
        return small if self.base is None else small + self.base.line(self.n_features - 1)

    def product(self, C: Array) -> Array:
        """Return ``(sum X'X + delta I) C`` for C (d, m)."""
        out = self.delta * C + self.tail.T @ (self.tail @ C)
        return out if self.base is None else out + self.base.product(C)

    def square_along(self, x: Array) -> float:
        """Return ``x' (sum X'X) x`` for x (d,)."""
        return float(x @ self.product(x[:, None])[:, 0] - self.delta * (x @ x))

    def gram(self) -> Array:
        """Return the whole symmetric (d, d) sum of X'X."""
        full = self.tail.T @ self.tail
        return full if self.base is None else full + self.base.whole()

    @cached_property
    def factor(self) -> Factor:
        """The factor of ``base + delta I``, made anew, by the same operations, after a load."""
        if self._known_factor is not None:
            return self._known_factor
        if self.base is None:
            return Factor(self.delta)
        return factored(self.base, self.delta, self.single)

    def check(self, name: str) -> None:
        """Raise ValueError unless the arrays fit each other, as those of a damaged file do not."""
        (r, d), k = self.BX.shape, len(self.tail)
        shapes = {"W": (self.W, (r, d)), "tail": (self.tail, (k, d)), "half": (self.half, (k, d))}
        if self.base is not None:
            shapes["base"] = (self.base.matrix, (d, d))
        check_shapes({f"{name}/{key}": pair for key, pair in shapes.items()})
        if not 0 < self.delta < np.inf:
            raise ValueError(f"{name} has a ridge of {self.delta}")

    def taking(self, targets: Rows) -> Ridge:
        """Return the regression of these targets; -1 is one that was zero for all samples."""

        def taken(matrix: Array) -> Array:
            out = np.zeros((len(targets), self.n_features))
            out[targets >= 0] = matrix[targets[targets >= 0]]
            return out

        return replace(self, BX=taken(self.BX), W=taken(self.W))

    def resized(self, n_targets: int) -> Ridge:
        """Return the regression of the first targets; further ones were zero for all samples."""
        rows = np.arange(n_targets)
        return self.taking(np.where(rows < len(self.BX), rows, -1))

    def towards(self, targets: slice, W0: Array) -> Ridge:
        """Return the regression of which some targets shrink towards W0 (k, d) instead of zero.

        All samples so far count as if their targets had been what W0 predicts.
        """
        BX, W = self.BX.copy(), self.W.copy()
        BX[targets], W[targets] = self.product(np.ascontiguousarray(W0.T)).T, W0
        return replace(self, BX=BX, W=W)

    def cleared(self, targets: slice) -> Ridge:
        """Return the regression in which some targets were zero for all samples so far."""
        rows = np.arange(len(self.BX))
        rows[targets] = -1
        return self.taking(rows)

    def with_delta(self, delta: float) -> Ridge:
        """Return the regression of the same sums with another ridge, solved anew in float64."""
        return replace(self, delta=delta)._solved(np.asfortranarray(np.tril(self.gram())))

    def _solved(self, base: Array) -> Ridge:
        """Return the regression whose sum of X'X is ``base`` alone, solved anew in float64."""
        factor, empty = factored(LowerTriangle(base), self.delta, False), self.tail[:0]
        Wt = factor.upper(factor.lower(self.BX.T))  # (d, r)
        return Ridge(
            self.delta, self.BX, _rows(Wt.T), LowerTriangle(base), empty, empty, False, factor
        )

    def without(self, X: Matrix, targets: Array) -> Ridge:
        """Return the regression without rows X (n, d) that were learned with targets (n, r).

        The solution for the sums that remain is computed anew in float64.
        """
        from scipy.linalg import blas

        rows = _dense(X)
        base = np.asfortranarray(np.tril(self.gram()))
        base = blas.dsyrk(-1.0, rows.T, beta=1.0, c=base, lower=1, overwrite_c=1)
        return replace(self, BX=self.BX - targets.T @ rows)._solved(base)

    def with_targets(self, X: Matrix, targets: Array) -> Ridge:
        """Return the regression whose rows X (n, d) had these first targets (n, m), instead of 0.

        The solution is computed anew in float64.
        """
        BX = self.BX.copy()
        BX[: targets.shape[1]] += targets.T @ _dense(X)
        return replace(self, BX=BX)._solved(np.asfortranarray(np.tril(self.gram())))

    def leverages(self, X: Matrix) -> Array:
        """Return ``x' (sum X'X + delta I)^-1 x`` (n,) of rows x."""
        rows = _dense(X)
        leverages: Array = np.vecdot(rows, self.solved(self.factor.lower(rows.T)).T)
        return leverages

    def solved(self, lowered: Array) -> Array:
        """Return ``A^-1 Y`` from ``L^-1 Y`` (d, m), with ``A = L L' + tail' tail``, by Woodbury."""
        half = self.half
        inner = np.eye(len(half)) + half @ half.T
        return self.factor.upper(lowered - half.T @ np.linalg.solve(inner, half @ lowered))

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

    def refine(self, C: Array, target: Array, approximate: Solver) -> Array | None:
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


def _dense(X: Matrix) -> Array:
    """Return rows as a dense float64 array."""
    return (X.toarray() if is_sparse(X) else X).astype(np.float64, copy=False)


def _rows(matrix: Array) -> Array:
    # in the order in memory that a loaded array has: another one rounds products differently
    return np.ascontiguousarray(matrix)


def _norm(C: Array) -> float:
    # without BLAS: NumPy's threads would spin for a while, beside those of SciPy that do the work
    return float(np.sqrt(np.einsum("ij,ij->", C, C)))


def start_round(ridge: Ridge, X: Matrix) -> LargeRound | SmallRound:
    """Start a round on the chunk X (n, d).

    It has ``predict(B)``, which returns ``X W'`` (n, r) with W solved from the sums that include B,
    and ``finish(*targets)``, which returns the `Ridge` whose sums include the chunk. Targets are
    (n, r_1), (n, r_2), ..., side by side the targets B (n, r); labels may be sparse.
    """
    small = len(ridge.tail) + X.shape[0] <= ridge.n_features // _SMALL
    return (small and SmallRound.start(ridge, X)) or LargeRound(ridge, X)


class RidgeFit:
    """W for sums that include a chunk, solved anew whenever the chunk's codes change.

    It needs of the chunk its Gram matrix and, for each B, the product X'B: not its rows, which may
    be anywhere.

    Parameters
    ----------
    ridge : the regression before the chunk
    base : (d, d), lower triangle of ``ridge.base`` plus the chunk's Gram matrix; overwritten
    is_single : whether the chunk's features are float32
    """

    def __init__(self, ridge: Ridge, base: Array, is_single: bool) -> None:
        from scipy.linalg import blas

        if len(ridge.tail):
            base = blas.dsyrk(1.0, ridge.tail.T, beta=1.0, c=base, lower=1, overwrite_c=1)
        total = float(np.trace(base))
        _check_sums(np.isfinite(total))  # no product is larger than the squares it is made of
        single, empty = is_single and total * EPS32 <= _FACTOR_MARGIN * ridge.delta, ridge.tail[:0]
        base_ = LowerTriangle(base)
        self._new = Ridge(ridge.delta, ridge.BX, ridge.W, base_, empty, empty, single)
        self._was_single = single
        # (d, r): sum X'B, and what was solved for it; column by column, so that some are a view
        self._target, self._Wt = np.zeros(ridge.BX.shape).T, np.zeros(ridge.BX.shape).T

    def solve(self, XB: Array) -> Array:
        """Return W' (d, r) for the chunk's X'B (d, r); the next call overwrites it."""
        # B changes little from one iteration to the next, so only the difference is solved for:
        # the error of a float32 solution then shrinks with it.
        target = self._new.BX.T + XB
        _check_sums(np.isfinite(target).all())
        if not np.array_equal(target, self._target):
            for some in self._blocks:
                self._Wt[:, some] += self._approximate(target[:, some] - self._target[:, some])
            self._target = target
        return self._Wt

    def finish(self) -> Ridge:
        """Return the regression whose sums include the chunk, with the codes last solved for."""
        for some in self._blocks:
            target = self._target[:, some]
            if self._new.single:
                refined = self._new.refine(self._Wt[:, some], target, self._approximate)
                if refined is None:
                    self._new = replace(self._new, single=False)
                    return self.finish()
                self._Wt[:, some] = refined
            elif self._was_single:
                self._Wt[:, some] = self._approximate(target)
        BX, W = _rows(self._target.T), _rows(self._Wt.T)
        return replace(self._new, BX=BX, W=W, _known_factor=self._new.factor)

    @property
    def _blocks(self) -> list[slice]:
        """Targets that are solved for together: memory grows with them, not with all targets."""
        starts = range(0, len(self._new.BX), _TARGETS)
        return [slice(start, start + _TARGETS) for start in starts]

    def _approximate(self, target: Array) -> Array:
        factor = self._new.factor
        return factor.upper(factor.lower(target))


class LargeRound:
    """A round that adds the chunk's Gram matrix to the sum and factors it once."""

    def __init__(self, ridge: Ridge, X: Matrix) -> None:
        self._X = X
        gram = GramSum(ridge.n_features, ridge.delta, start=ridge.base)
        gram.add(X)
        self._fit = RidgeFit(ridge, gram.lower, gram.single)

    def predict(self, B: Array) -> Array:
        return product(self._X, self._fit.solve(transposed_product(self._X, B)))

    def finish(self, *targets: Array | sp.csr_array) -> Ridge:
        products = [transposed_product(self._X, each) for each in targets]
        self._fit.solve(products[0] if len(products) == 1 else np.hstack(products))
        return self._fit.finish()


class SmallRound:
    """A round that leaves the sum's factor alone and corrects the last W.

    Its matrices are small: BLAS threads would gain nothing from more, and those of NumPy and SciPy
    would wait for each other.
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
    def start(cls, ridge: Ridge, X: Matrix) -> SmallRound | None:
        """Return the round, or None when the old factor is too coarse to be refined."""
        dense, lower = _dense(X), ridge.factor.lower
        lowered = lower(dense.T)  # (d, n), L^-1 X'
        E = ridge.solved(lowered)  # (d, n), A^-1 X'
        if not ridge.single:
            return cls(ridge, dense, lowered, E)
        refined = ridge.refine(E, dense.T, lambda target: ridge.solved(lower(target)))
        return None if refined is None else cls(ridge, dense, lowered, refined)

    @one_thread()
    def predict(self, B: Array) -> Array:
        return self._before + self._XE @ self._change(B)

    @one_thread()
    def finish(self, *targets: Array | sp.csr_array) -> Ridge:
        B = np.hstack([each.toarray() if is_sparse(each) else each for each in targets])
        old = self._old
        Q, R = np.linalg.qr(self._X)  # (n, n), (n, d): R'R = X'X
        half = np.vstack([old.half, (self._lowered @ Q).T])  # R L'^-1 = Q' X L'^-1
        return replace(
            old,
            BX=_rows(old.BX + B.T @ self._X),
            W=_rows(old.W + (self._E @ self._change(B)).T),
            tail=np.vstack([old.tail, R]),
            half=half,
            _known_factor=old.factor,
        )

    def _change(self, B: Array) -> Array:
        from scipy.linalg import cho_solve

        return cho_solve(self._gain, B - self._before)  # (n, r)


def _check_sums(are_finite: bool | np.bool_) -> None:
    if not are_finite:
        raise InputError(
            "the sums X'X and X'B overflow: features this large cannot be used as they are; scale "
            "them first"
        )
