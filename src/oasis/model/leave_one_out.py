"""How strong the ridge of a modality is: chosen once, by leave-one-out errors on the first chunk.

If all labels of the first chunk are alike there is nothing to predict. The ridge is then chosen
from the sums (`ridge_by_sums`) in the round in which other labels arrive.

A ridge of 1 on rows of unit length suits embeddings and words, which have many features. It is far
too strong where a few columns carry nearly all of the length, as with measurements in different
units: the variance that separates the classes is then small compared with 1. So for dense features
weaker ridges are tried on a sample of the first chunk that has labels. Words all have the same
unit, and a small first chunk with few classes would choose too weak a ridge for them.

With ``K = X X'`` and ``H = K (K + delta I)^-1`` the prediction of row i by a regression on all
other rows is, for every delta from one eigendecomposition of K,

    ``(H L - diag(h) L)_i / (1 - h_i)``  with  ``h = diag(H)``
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from oasis.arrays import Array, Matrix, Single, has_row, is_sparse
from oasis.model.content import has_few_features
from oasis.model.hash_functions import Mask
from oasis.model.ridge import Ridge, with_constant
from oasis.model.round import evenly_spaced
from oasis.model.threads import one_thread

if TYPE_CHECKING:
    import scipy.sparse as sp

HELD_ROWS = 512
"""Rows of the first chunk, at most, on which ridges are compared."""

FEWEST_ROWS = 20
"""With fewer rows the ridge is left as it is."""

WEAKER = 10.0 ** (-np.arange(9) / 2)
"""Factors of the ridge that are tried: 1 to 0.0001."""

SUM_FEATURES = 1024
"""Most features of a modality whose ridge is chosen from its sums, which are decomposed once."""

MARGIN = 1.01
"""The strongest ridge is taken whose error is at most so many times the least."""


class HeldOut(NamedTuple):
    """What regressions on the other rows of a sample predict of each of its rows.

    Attributes
    ----------
    deltas : modality name -> the ridge that was chosen
    predictions : modality name -> (n, c) float32
    has : modality name -> which rows have it, (n,)
    L : (n, c), the labels of the rows as 0 and 1
    """

    deltas: Mapping[str, float]
    predictions: Mapping[str, Single]
    has: Mapping[str, Mask]
    L: sp.csr_array

    @classmethod
    def of(cls, X: Mapping[str, Matrix], L: sp.csr_array, delta: float) -> HeldOut:
        """Choose ridges of at most ``delta``.

        Parameters
        ----------
        X : rows of unit length: `HELD_ROWS` of a chunk, evenly spaced, or all
        L : (n_chunk, c), the labels of all rows of the chunk
        """
        n = next(iter(X.values())).shape[0]
        L = L[evenly_spaced(np.arange(L.shape[0]), n)]
        labels = L.toarray().astype(np.float64)
        chosen = {name: chosen_ridge(matrix, labels, delta) for name, matrix in X.items()}
        return cls(
            {name: each for name, (each, _) in chosen.items()},
            {name: each for name, (_, each) in chosen.items()},
            {name: has_row(matrix) for name, matrix in X.items()},
            L,
        )


@one_thread()
def chosen_ridge(X: Matrix, L: Array, delta: float) -> tuple[float, Single]:
    """Return the ridge for a modality, at most ``delta``, and leave-one-out predictions (n, c).

    Parameters
    ----------
    X : (n, d) rows of unit length; rows of zeros lack the modality
    L : (n, c) labels as 0 and 1

    Examples
    --------
    A column that carries the length hides one that carries the label:

    >>> rng = np.random.default_rng(0)
    >>> label = rng.integers(0, 2, 200)
    >>> X = np.column_stack([np.ones(200), 0.01 * (label + 0.1 * rng.standard_normal(200))])
    >>> chosen_ridge(X, label[:, None].astype(float), delta=1.0)[0] < 0.01
    True
    """
    rows = np.flatnonzero(has_row(X))
    predictions = np.zeros(L.shape, dtype=np.float32)
    if len(rows) < FEWEST_ROWS:
        return delta, predictions
    tried = delta * (WEAKER[:1] if has_few_features(X[rows]) else WEAKER)
    there = np.flatnonzero(L[rows].any(axis=0))  # of other classes the predictions are 0
    sample = _Sample.of(with_constant(X[rows]), L[np.ix_(rows, there)])
    # one at a time: with many classes predictions are large
    errors = np.array([np.square(sample.predicted(each) - sample.L).sum() for each in tried])
    chosen = float(tried[np.flatnonzero(errors <= MARGIN * errors.min())[0]])
    predictions[np.ix_(rows, there)] = sample.predicted(chosen)
    return chosen, predictions


def ridge_by_sums(ridge: Ridge, n_others: int) -> float:
    """Return the ridge for a modality, at most its present one, by generalised cross-validation.

    With ``sum X'X = U diag(s) U'`` and ``Z = (sum L'X) U`` the squared error of a regression with
    ridge delta and its degrees of freedom f are, over n rows,

        ``|L|^2 - sum Z^2 (s + 2 delta) / (s + delta)^2``  and  ``sum s / (s + delta)``

    and the least error over ``(n - f)^2`` is sought. With fewer than two rows a feature, or more
    than `SUM_FEATURES` features, the ridge stays as it is.

    Parameters
    ----------
    ridge : its last feature is the constant; the first ``n_others`` targets are no labels
    """
    n, d = ridge.n_constant, ridge.n_features
    if n < 2 * d or d > SUM_FEATURES:
        return ridge.delta
    labels = ridge.BX[n_others:]
    values, U = np.linalg.eigh(ridge.gram())
    s, Z = np.maximum(values, 0), np.square(labels @ U).sum(axis=0)
    tried = ridge.delta * WEAKER
    errors = np.array(
        [
            (labels[:, -1].sum() - (Z * (s + 2 * each) / np.square(s + each)).sum())
            / (n - (s / (s + each)).sum()) ** 2
            for each in tried
        ]
    )
    return float(tried[np.flatnonzero(errors <= MARGIN * errors.min())[0]])


class _Sample(NamedTuple):
    """Rows with their labels L (n, c), ``K = X X' = U diag(values) U'``, and ``U'L``."""

    values: Array
    U: Array
    L: Array
    UL: Array

    @classmethod
    def of(cls, X: Matrix, L: Array) -> _Sample:
        wide = (X.toarray() if is_sparse(X) else X).astype(np.float64)
        values, U = np.linalg.eigh(wide @ wide.T)
        return cls(np.maximum(values, 0), U, L, U.T @ L)

    def predicted(self, delta: float) -> Array:
        """Return the leave-one-out predictions (n, c)."""
        share = self.values / (self.values + delta)
        h = np.minimum(np.square(self.U) @ share, 1 - 1e-9)[:, None]
        fitted = self.U @ (share[:, None] * self.UL)
        held: Array = (fitted - h * self.L) / (1 - h)
        return held
