"""Linear hash functions, and the prediction of labels from several of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array, FloatArray, Matrix, Single, has_row, in_range, is_sparse
from oasis.errors import InputError
from oasis.hashers.chunk import check_finite
from oasis.model.threads import in_threads

Mask: TypeAlias = npt.NDArray[np.bool_]
"""A boolean for each row, (n,)."""

MOST_EXPLAINED = 0.95
"""Cap on R²: predictions of training samples are optimistic."""

# a thread takes so many cells at a time, 2 MB, which are still in the cache for a second pass; but
# at least so many rows for a column of W: every product packs W anew
_BLOCK_CELLS = 1 << 19
_ROWS_A_COLUMN = 4
_SPARSE_ROWS = 2048
# BLAS does not divide a product of so few cells among threads
_FEW_CELLS = 1 << 16


@dataclass(frozen=True)
class LinearMap:
    """``x -> sum_m (x_m W_m' - o_m)`` over the modalities that a sample has.

    A modality that is absent, or that is a row of zeros, contributes nothing, not even its offset.

    Attributes
    ----------
    weights : modality name -> W_m (r, d_m)
    offsets : modality name -> o_m (r,); no entry means no offset
    normalize : whether rows are scaled to unit length first
    """

    weights: Mapping[str, Array]
    offsets: Mapping[str, Array] = field(default_factory=dict)
    normalize: bool = False

    @property
    def widths(self) -> dict[str, int]:
        return {name: int(W.shape[1]) for name, W in self.weights.items()}

    @cached_property
    def _single(self) -> dict[str, Single]:
        """W_m' (d_m, r) in C order, which products with few rows pack faster than W_m."""
        return {
            name: np.ascontiguousarray(W.T, dtype=np.float32) for name, W in self.weights.items()
        }

    @cached_property
    def _single_offsets(self) -> dict[str, Single]:
        return {name: offset.astype(np.float32) for name, offset in self.offsets.items()}

    def arrays(self) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        """Yield everything that the projections depend on, by name."""
        yield f"normalize {self.normalize}", np.zeros(0)
        for kind, arrays in (("weights", self.weights), ("offsets", self.offsets)):
            yield from ((f"{kind} {name}", array) for name, array in arrays.items())

    def project(self, X: Mapping[str, Matrix]) -> Single:
        """Return the (n, r) float32 projections of a non-empty subset of the modalities.

        Values are checked on the result: NaN or infinity in a row is an `InputError`.
        """
        parts = [self._part(name, matrix)[0] for name, matrix in X.items()]
        return _checked(np.asarray(sum(parts[1:], start=parts[0])), X)

    def project_rows(self, name: str, matrix: Matrix) -> tuple[Single, Mask]:
        """Return the projections (n, r) of one modality, and which rows have it, (n,)."""
        part, has = self._part(name, matrix)
        return _checked(part, {name: matrix}), has_row(matrix) if has is None else has

    def _part(self, name: str, matrix: Matrix) -> tuple[npt.NDArray[Any], Mask | None]:
        """Return the projections, and which rows have the modality if row lengths are computed."""
        Wt = self._single[name] if matrix.dtype == np.float32 else self.weights[name].T
        has: Mask | None = None
        with np.errstate(all="ignore"):
            if self.normalize:
                part, has = _unit_product(matrix, Wt)
            else:
                part = np.asarray(matrix @ Wt)
            if name in self.offsets:
                has = has_row(matrix) if has is None else has
                single = part.dtype == np.float32
                offset = (self._single_offsets if single else self.offsets)[name]
                part -= offset if has.all() else np.outer(has, offset)
        return part, has


def _unit_product(matrix: Matrix, Wt: FloatArray) -> tuple[npt.NDArray[Any], Mask]:
    """Return ``X W'`` (n, r) of rows scaled to unit length, and which rows are not all zeros.

    The product is scaled, not the features.
    """
    (n, d), r = matrix.shape, Wt.shape[1]
    size = max(_BLOCK_CELLS // max(d, 1), _ROWS_A_COLUMN * r, 1)
    if is_sparse(matrix):
        size = max(size, _SPARSE_ROWS)
    if n <= size and (is_sparse(matrix) or n * d <= _FEW_CELLS):
        return _scaled_product(matrix, Wt)
    part = np.empty((n, r), dtype=np.result_type(matrix.dtype, Wt.dtype))
    has = np.empty(n, dtype=np.bool_)

    def work(block: slice) -> None:
        part[block], has[block] = _scaled_product(matrix[block], Wt)

    in_threads(work, [slice(start, start + size) for start in range(0, n, size)])
    return part, has


def _scaled_product(matrix: Matrix, Wt: FloatArray) -> tuple[npt.NDArray[Any], Mask]:
    with np.errstate(all="ignore"):
        # first: the product finds the rows in the cache
        squares = None if is_sparse(matrix) else np.vecdot(matrix, matrix)
        rows, scale = in_range(matrix, squares)  # differ in rows of extreme length alone
        product = np.asarray(rows @ Wt)
        product *= scale[:, None]
    return product, scale > 0


def _checked(part: npt.NDArray[Any], X: Mapping[str, Matrix]) -> Single:
    """Return projections as float32; raise an error that names the feature that is not finite."""
    with np.errstate(over="ignore"):
        total = part.astype(np.float32, copy=False)
    if not np.isfinite(total).all():
        for name, matrix in X.items():
            check_finite(matrix, name)
        raise InputError("the projections overflow: features this large cannot be used")
    return total


@dataclass(frozen=True)
class LabelMap:
    """Predict the labels of a sample.

    Every modality predicts each class by a linear map. With ``q_m`` its mean prediction over all
    items, those without labels included, ``q`` the mean of these, and ``p_m`` its prediction of a
    sample, the joint prediction is

        ``p = q + sum_m a_m (p_m - q_m)`` with ``a_m = 1 / ((1 - R_m) (1 + sum_k R_k / (1 - R_k)))``

    where ``R_m`` is the R² of modality m for the class. These are the coefficients of a regression
    on the predictions of all modalities, assuming modalities independent given the class, so no
    cross-modality Gram matrix is needed. With a single modality ``a = 1``.

    Attributes
    ----------
    predictors : modality name -> map to c values, near 1 for the classes of a sample
    explained : modality name -> R² (c,), from 0 to `MOST_EXPLAINED`
    means : modality name -> q_m (c,)
    usual : q (c,): the share of items that have each class, as far as it is known
    """

    predictors: Mapping[str, LinearMap]
    explained: Mapping[str, Array]
    means: Mapping[str, Array]
    usual: Array

    @property
    def widths(self) -> dict[str, int]:
        return {name: map_.widths[name] for name, map_ in self.predictors.items()}

    def predict(self, X: Mapping[str, Matrix]) -> Single:
        """Return the (n, c) float32 predictions of the labels.

        A row of zeros means that the sample lacks the modality; without any modality it gets 0.
        """
        return self.combined(*self.parts(X))

    def parts(self, X: Mapping[str, Matrix]) -> tuple[dict[str, Single], dict[str, Mask]]:
        """Return the predictions (n, c) of each modality, and which rows have it (n,)."""
        both = {
            name: self.predictors[name].project_rows(name, matrix) for name, matrix in X.items()
        }
        return (
            {name: prediction for name, (prediction, _) in both.items()},
            {name: has for name, (_, has) in both.items()},
        )

    def combined(self, predictions: Mapping[str, Single], has: Mapping[str, Mask]) -> Single:
        """Return one prediction (n, c) from those of each modality; ``has`` is as in `has_row`."""
        parts = [
            (each, self._single_means[name], has[name], self.explained[name])
            for name, each in predictions.items()
        ]
        return added_evidence(parts, self._single_usual)

    def above_usual(self, predictions: Single) -> Single:
        """Return ``(p - q) / (1 - q)``, at least 0: what predictions say beyond what is usual.

        A sample without information is predicted to have each class by its share, and gets 0.
        """
        usual, rest = self._capped_usual
        above: Single = np.maximum(predictions - usual, 0) / rest
        return above

    @cached_property
    def _single_means(self) -> dict[str, Single]:
        return {name: mean.astype(np.float32) for name, mean in self.means.items()}

    @cached_property
    def _single_usual(self) -> Single:
        return self.usual.astype(np.float32)

    @cached_property
    def _capped_usual(self) -> tuple[Single, Single]:
        """q, at most 0.99, and 1 less it."""
        usual = np.clip(self.usual, 0, 0.99).astype(np.float32)
        return usual, 1 - usual


def added_evidence(parts: Sequence[tuple[Single, Single, Mask, Array]], prior: Single) -> Single:
    """Return one prediction (n, c) from those of several modalities, as in `LabelMap`.

    Parameters
    ----------
    parts : per modality its predictions (n, c), their means (c,), which rows have the modality
        (n,), and R² (c,)
    prior : (c,), the prediction for a sample without information
    """
    n = len(parts[0][0])
    evidence = np.zeros((n, len(prior)), dtype=np.float32)
    odds = np.zeros((1, len(prior)), dtype=np.float32)
    has_any = np.zeros((n, 1), dtype=np.bool_)
    for prediction, mean, has, explained in parts:
        R, mask = explained.astype(np.float32), has[:, None]
        part = prediction - mean
        part /= 1 - R
        ratio = R / (1 - R)
        if not has.all():  # otherwise the factor is 1
            part *= mask
            ratio = mask * ratio
        evidence += part
        odds = odds + ratio
        has_any |= mask
    evidence /= 1 + odds
    evidence += prior if has_any.all() else has_any * prior
    return evidence
