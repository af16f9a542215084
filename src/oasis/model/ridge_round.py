"""One round of `oasis.model.ridge`: a chunk is learned.

Cost of a round with n samples and d features
    A large chunk pays one ``syrk`` and one Cholesky factorisation, and nothing else of that order.
    A small one (n at most d / 8, together with the small ones before it) pays neither: with A the
    old matrix and ``E = A^-1 X'`` (d, n), the new solution is

        ``W_new' = W' + E (I + X E)^-1 (B - X W')``

    and A^-1 comes from the last factor and, by Woodbury's formula, the small chunks since.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from oasis.arrays import Array, Matrix, is_sparse
from oasis.errors import InputError
from oasis.model.factor import centred_trace
from oasis.model.gram import EPS32, GramSum, product, transposed_product
from oasis.model.ridge import Ridge
from oasis.model.threads import one_thread

if TYPE_CHECKING:
    import scipy.sparse as sp

# the factor is float32 while its rounding error, bounded by eps times the trace of what is
# factored, stays this far below delta: then refinement contracts, and refines the error away
_FACTOR_MARGIN = 5e-2


def start_round(ridge: Ridge, X: Matrix) -> RidgeRound:
    """Start a round on the chunk X (n, d)."""
    small = len(ridge.tail) + X.shape[0] <= ridge.n_features // 8
    return (small and _SmallRound.start(ridge, X)) or _LargeRound(ridge, X)


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


def _check_sums(are_finite: bool | np.bool_) -> None:
    if not are_finite:
        raise InputError(
            "the sums X'X and X'B overflow: features this large cannot be used as they are; scale "
            "them first"
        )
