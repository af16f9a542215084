"""A ranker by cosine of features that predicts missing modalities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.linalg as sl
import scipy.sparse as sp

from oasis.arrays import Array, Matrix, has_row, inner_products, unit_rows
from oasis.baselines.rankers import Scores
from oasis.baselines.shared.parameters import check_weight
from oasis.errors import InputError, NotFittedError
from oasis.hashers.chunk import check_chunk, check_features, check_finite
from oasis.hashers.protocol import Estimator, Labels

_MAX_FEATURES = 8192
# rows have unit length and are kept in float32: a difference below this is rounding
_ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class JointSums:
    """Sums over the samples that have every modality; unit rows, concatenated.

    Attributes
    ----------
    widths : modality -> number of features, in order
    n : int
    s : (d,), sum of rows
    S : (d, d), sum of outer products
    """

    widths: Mapping[str, int]
    n: int
    s: Array
    S: Array

    @classmethod
    def zero(cls, widths: Mapping[str, int]) -> Self:
        """Return sums over nothing."""
        d = sum(widths.values())
        if d > _MAX_FEATURES:
            raise InputError(
                f"the modalities have {d} features together; their joint sums need {d} x {d} "
                f"values, and at most {_MAX_FEATURES} features are allowed"
            )
        return cls(dict(widths), 0, np.zeros(d), np.zeros((d, d)))

    def plus(self, X: Mapping[str, Matrix]) -> JointSums:
        """Return the sums with more samples, whose rows have unit length."""
        Z = np.hstack([_dense(X[name]) for name in self.widths])
        return JointSums(self.widths, self.n + len(Z), self.s + Z.sum(axis=0), self.S + Z.T @ Z)

    def span(self, name: str) -> slice:
        """Return the columns of a modality."""
        names = list(self.widths)
        start = sum(self.widths[each] for each in names[: names.index(name)])
        return slice(start, start + self.widths[name])

    def mean(self, name: str) -> Array:
        """Return the mean row of a modality; zeros if there was no sample."""
        return np.asarray(self.s[self.span(name)] / max(1, self.n))

    def predict(self, X: Mapping[str, Matrix], name: str, delta: float) -> Array:
        """Return a modality (n, d), predicted by ridge regression from the modalities of X."""
        n_rows = int(next(iter(X.values())).shape[0])
        if self.n == 0:
            return np.zeros((n_rows, self.widths[name]))
        have = np.concatenate([np.arange(len(self.s))[self.span(each)] for each in X])
        want = np.arange(len(self.s))[self.span(name)]
        centred = self.S - np.outer(self.s, self.s) / self.n
        gram = centred[np.ix_(have, have)]
        gram[np.diag_indices_from(gram)] += delta
        weights = sl.solve(gram, centred[np.ix_(have, want)], assume_a="pos")  # (d_have, d_want)
        Z = np.hstack([_dense(X[each]) - self.mean(each) for each in X])
        return np.asarray(self.mean(name) + Z @ weights)


class CompletedCosine(Estimator):
    """Rank by the cosine of centred features; missing modalities are predicted.

    When an item arrives, each missing modality is predicted from the present ones by a streaming
    ridge regression, which is learned from the samples that have all modalities. So a text query
    finds pictures without text. This is the float reference of search across modalities, as
    `FloatCosine` is of search within them. Labels are checked but not used.

    Parameters
    ----------
    delta : float
        The ridge. Features are scaled to unit length and centred.

    Attributes
    ----------
    n_base_ : int
        Number of base items.

    Notes
    -----
    Keeps the features of all items and one (d, d) sum over all modalities, d at most 8,192.

    Examples
    --------
    The third item lacks a text; its image is that of the first.

    >>> import numpy as np
    >>> image = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    >>> text = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    >>> ranker = CompletedCosine(delta=0.1)
    >>> ranker = ranker.partial_fit({"image": image, "text": text}, [(), (), ()])
    >>> ranker.scores({"text": text[:1]}).round(2)
    array([[ 1., -1.,  1.]], dtype=float32)
    """

    def __init__(self, delta: float = 10.0) -> None:
        self.delta = delta

    @property
    def n_base_(self) -> int:
        return sum(int(next(iter(chunk.values())).shape[0]) for chunk in self._learned()[1])

    def partial_fit(self, X: Mapping[str, Any], y: Labels) -> Self:
        """Learn from a chunk and add it to the base; all is checked before anything is changed."""
        delta = check_weight("delta", self.delta, positive=True)
        old: tuple[JointSums, list[dict[str, Matrix]]] | None = getattr(self, "state_", None)
        chunk = check_chunk(X, y, dict(old[0].widths) if old else None)
        units = {name: unit_rows(matrix) for name, matrix in chunk.X.items()}
        widths = {name: int(matrix.shape[1]) for name, matrix in units.items()}
        sums, base = old or (JointSums.zero(widths), [])
        has = {name: has_row(matrix) for name, matrix in units.items()}
        whole = np.flatnonzero(np.logical_and.reduce(list(has.values())))
        if len(whole):
            sums = sums.plus({name: matrix[whole] for name, matrix in units.items()})
        self.state_ = sums, [*base, _completed(sums, units, has, delta)]
        return self

    def scores(self, X: Mapping[str, Any]) -> Scores:
        """Return the (n_queries, n_base) sums of cosines over the modalities of the queries."""
        sums, base = self._learned()
        features = check_features(X, dict(sums.widths))
        n_queries = int(next(iter(features.values())).shape[0])
        scores = np.zeros((n_queries, self.n_base_), dtype=np.float32)
        for name, matrix in features.items():
            check_finite(matrix, name)
            mean = sums.mean(name)
            queries = _dense(unit_rows(matrix)) - mean
            queries *= _inverse(np.linalg.norm(queries, axis=1))[:, None]
            queries[~has_row(matrix)] = 0
            start = 0
            for chunk in base:
                products, lengths = _centred(queries, chunk[name], mean)
                columns = slice(start, start + len(lengths))
                scores[:, columns] += products * _inverse(lengths)
                start = columns.stop
        return scores

    def _learned(self) -> tuple[JointSums, list[dict[str, Matrix]]]:
        state: tuple[JointSums, list[dict[str, Matrix]]] | None = getattr(self, "state_", None)
        if state is None:
            raise NotFittedError("this ranker has no base yet; call partial_fit first")
        return state


def _completed(
    sums: JointSums,
    X: Mapping[str, Matrix],
    has: Mapping[str, npt.NDArray[np.bool_]],
    delta: float,
) -> dict[str, Matrix]:
    """Return the modalities of a chunk, float32, with missing rows predicted.

    Rows are grouped by the modalities that they have; a row without any gets the mean.
    """
    filled: dict[str, Matrix] = {}
    patterns = np.stack([has[name] for name in X], axis=1)  # (n, n_modalities)
    for name, matrix in X.items():
        if has[name].all():
            filled[name] = matrix.astype(np.float32)
            continue
        values = _dense(matrix).astype(np.float32)
        lacking = np.flatnonzero(~has[name])
        for pattern in np.unique(patterns[lacking], axis=0):
            rows = lacking[(patterns[lacking] == pattern).all(axis=1)]
            known = {
                each: X[each][rows] for each, present in zip(X, pattern, strict=True) if present
            }
            values[rows] = sums.predict(known, name, delta) if known else sums.mean(name)
        filled[name] = values
    return filled


def _dense(matrix: Matrix) -> Array:
    dense = matrix.toarray() if isinstance(matrix, sp.csr_array) else matrix
    return dense.astype(np.float64)


def _centred(queries: Array, items: Matrix, mean: Array) -> tuple[Array, Array]:
    """Return the products of queries with centred items, and the lengths of the centred items."""
    if isinstance(items, sp.csr_array):
        exact = items.astype(np.float64)
        squares = np.asarray(exact.multiply(exact).sum(axis=1)).ravel()
        squares += mean @ mean - 2 * np.asarray(exact @ mean)
        products = inner_products(queries, exact) - (queries @ mean)[:, None]
        return products, np.sqrt(np.maximum(squares, 0))
    centred = items - mean
    return queries @ centred.T, np.linalg.norm(centred, axis=1)


def _inverse(lengths: Array) -> Array:
    return np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > _ROUNDING)
