"""Queries and unlabelled items: from predicted labels and content values to projections and codes.

A projection has two parts, one for the label bits and one for the content bits. With weight w of
content they are

    ``[11 (1 - w) confidence D p / (p'a),  w c / sd(c)]``

**Labels.** D is the readout (`oasis.model.readout`), so the inner product of ``D p`` with a stored
code is the share of the query's predicted labels that the item has, where each can be read: a_c is
what is read of class c from its own code, near 1 unless classes are many for the bits. p holds the
`LIKELIEST` predictions beyond what is usual, less the largest of the others, to the power 7/4: with
thousands of classes the sum over all others would hide the few that are there. A code of labels
alone has the projection D p without a factor.

**Content.** The values c are divided by ``sd(c) = sqrt(c' Cov c)``, the standard deviation of their
inner products with stored codes, Cov being the covariance of content bits. Unless asked otherwise
``w = 0.009 sqrt(r_c)`` with r_c content bits: a content bit weighs the same however many there are.

**Confidence** is ``evidence n / (n + 100) / (1 + t²)``. The evidence is how sure the surest label
is and n how many samples say so (`oasis.model.calibration`): while few labels are known, content
decides. t is how unlike the samples the query is. With rows x of unit length, m the direction of
their mean and ``c = x'm``,

    ``t = max(0, mean(c) - c) / sqrt(var(c) + 1 / n)``

by the modality in which it is least: regressions may be sure of one word where samples are
captions. The sums of a regression with a constant are enough to compute it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array, Matrix, Single
from oasis.codes import Codes, pack, unpack
from oasis.errors import InputError
from oasis.hashers.chunk import check_finite
from oasis.model.calibration import Sureness
from oasis.model.codewords import likely_codes
from oasis.model.content import ContentMap
from oasis.model.hash_functions import LabelMap, LinearMap, Mask
from oasis.model.readout import for_hamming
from oasis.model.ridge import Ridge
from oasis.model.threads import in_threads

BIT_WEIGHT = 0.009
"""Weight of content, over the root of the number of content bits, unless asked otherwise: label MAP
at 128 bits loses less than a point."""

PRIOR_SHARE = 0.5
"""Part of the share of a class in all samples that is subtracted from its prediction, because a
query without information is predicted to have every class by its share."""

LIKELIEST = 10
"""Predicted labels of a query that count, at most."""

LABEL_WEIGHT = 11.0
"""Weight of a sure label that a query and an item share, in standard deviations of content."""

_LEAST_WEIGHT = 1e-20
"""Weight of all predicted labels of a query that is more than none."""

_LEAST_SPREAD = 1e-6
"""Standard deviation of scores, over the largest value of a query, that is more than rounding."""

# values are computed from features for so many cells at a time, and projections from the values of
# so many rows
_MOST_VALUES = 1 << 24
_BLOCK_ROWS = 4096


class QueryParts(NamedTuple):
    """What the projections of n queries are made from.

    Attributes
    ----------
    labels : (n, c), predicted
    content : (n, r_c), content values
    strange : (n,), t of the formula
    has : modality name -> which queries have it, (n,)
    """

    labels: Single
    content: Single
    strange: Single
    has: Mapping[str, Mask]


class RowValues(NamedTuple):
    """All that is computed from the features of n queries.

    Attributes
    ----------
    values : modality name -> (n, m), see `QueryMap`
    has : modality name -> which queries have it, (n,)
    guessed : modality that all lack -> its guessed content values, (n, r_m)
    """

    values: Mapping[str, Single]
    has: Mapping[str, Mask]
    guessed: Mapping[str, Single]

    @property
    def n(self) -> int:
        return len(next(iter(self.values.values())))

    def rows(self, block: slice) -> RowValues:
        """Return those of some queries."""
        return RowValues(
            {name: each[block] for name, each in self.values.items()},
            {name: each[block] for name, each in self.has.items()},
            {name: each[block] for name, each in self.guessed.items()},
        )


@dataclass(frozen=True)
class QueryMap:
    """The hash function of `OASIS`: features to projections.

    Attributes
    ----------
    labels : predicts labels
    readout : (c, r_l), how labels are read from the label bits of stored codes
    responses : (c,), what is read of a class from its own code
    covariance : (r, r) of stored codes
    content : maps features to content values
    sureness : how sure predicted labels are
    strange : modality name -> map to t (n, 1), negative for rows more usual than the mean
    n_content : r_c
    """

    labels: LabelMap
    readout: Array
    responses: Single
    covariance: Array
    content: ContentMap
    sureness: Sureness
    strange: Mapping[str, LinearMap]
    n_content: int

    @property
    def widths(self) -> dict[str, int]:
        return self.labels.widths

    def project(self, X: Mapping[str, Matrix], weight: float | None = None) -> Single:
        """Return the (n, r) float32 projections of a non-empty subset of the modalities."""
        return self.of_rows(lambda parts: (self.joined(parts, weight),), X)[0]

    def codes(self, X: Mapping[str, Matrix]) -> Codes:
        """Return the packed signs of projections, (n, r / 8)."""
        return self.of_rows(lambda parts: (pack(self.joined(parts)),), X)[0]

    def of_rows(
        self,
        function: Callable[[QueryParts], tuple[npt.NDArray[Any], ...]],
        X: Mapping[str, Matrix],
    ) -> tuple[npt.NDArray[Any], ...]:
        """Return arrays with a row for each sample, computed block by block, in several threads.

        Features are read once, for all products with them; ``function`` is given what follows.
        Small arrays take longer in several threads than in one, since Python runs one thread at a
        time, so its blocks have thousands of rows.
        """
        n = next(iter(X.values())).shape[0]
        if n <= _BLOCK_ROWS:
            return function(self.parts(X))
        n_values = sum(len(map_.weights[name]) for name, map_ in self._maps(X).items())
        size = max(_MOST_VALUES // max(n_values, 1), _BLOCK_ROWS)
        results: dict[int, tuple[npt.NDArray[Any], ...]] = {}
        for first in range(0, n, size):
            try:
                values = self._values({name: x[first : first + size] for name, x in X.items()})
            except InputError:
                for name, matrix in X.items():  # the error above counts from the first of these
                    check_finite(matrix, name)
                raise

            def work(start: int, first: int = first, values: RowValues = values) -> None:
                block = values.rows(slice(start, start + _BLOCK_ROWS))
                results[first + start] = function(self._parts(block))

            in_threads(work, range(0, values.n, _BLOCK_ROWS))
        blocks = [results[start] for start in sorted(results)]
        return tuple(np.concatenate(each) for each in zip(*blocks, strict=True))

    def parts(self, X: Mapping[str, Matrix]) -> QueryParts:
        """Return what projections are `joined` from."""
        return self._parts(self._values(X))

    def _values(self, X: Mapping[str, Matrix]) -> RowValues:
        """Return everything that depends on the features themselves."""
        maps = self._maps(X)
        values, has = {}, {}
        for name, matrix in X.items():
            values[name], has[name] = maps[name].project_rows(name, matrix)
        own = {name: values[name][:, self._own(name)] for name in X if name in self._functions}
        self.content.complete(own, X, has)
        lacking = {name: self.content.guesses(name, X) for name in self._functions if name not in X}
        guessed = {name: each for name, each in lacking.items() if each is not None}
        return RowValues(values, has, guessed)

    def _parts(self, rows: RowValues) -> QueryParts:
        values, has, n_classes = rows.values, rows.has, len(self.labels.usual)
        labels = self.labels.combined({k: each[:, :n_classes] for k, each in values.items()}, has)
        content = [np.zeros((len(labels), 0), dtype=np.float32)]
        start = {name: self._own(name).stop for name in values}
        for name, size in self.content.content.sizes.items():
            if name in values and name in self._functions:
                content.append(values[name][:, self._own(name)])
                continue
            predicted = {}
            for k, each in values.items():
                if (k, name) in self.content.pairs:
                    predicted[k] = each[:, start[k] : start[k] + size], has[k]
                    start[k] += size
            guessed = rows.guessed.get(name)
            content.append(self.content.joined_predictions(name, predicted, len(labels), guessed))
        strange = np.zeros(len(labels), dtype=np.float32)
        if self.strange:
            strange = _least({k: each[:, -1] for k, each in values.items()}, has)
        return QueryParts(labels, np.hstack(content), strange, has)

    @property
    def _functions(self) -> Mapping[str, LinearMap]:
        return self.content.content.own

    def _own(self, name: str) -> slice:
        """Columns of the content values of a modality, behind its predictions of labels."""
        n_classes = len(self.labels.usual)
        size = self.content.content.sizes[name] if name in self._functions else 0
        return slice(n_classes, n_classes + size)

    def _maps(self, X: Mapping[str, Matrix]) -> dict[str, LinearMap]:
        """Return a map for each modality of X, to all values that are computed from it.

        These are predicted labels and, where there is content, its own content values, predicted
        ones of each modality that X lacks, and its strangeness. All of it is one product.
        """
        present = frozenset(X)
        if present not in self._known_maps:
            self._known_maps[present] = {name: self._map(name, present) for name in X}
        return self._known_maps[present]

    @cached_property
    def _known_maps(self) -> dict[frozenset[str], dict[str, LinearMap]]:
        return {}

    def _map(self, name: str, present: frozenset[str]) -> LinearMap:
        parts = [self.labels.predictors[name]]
        parts += [self._functions[name]] if name in self._functions else []
        parts += [
            self.content.pairs[name, each]
            for each in self.content.content.sizes
            if each not in present and (name, each) in self.content.pairs
        ]
        parts += [self.strange[name]] if self.strange else []
        W = np.vstack([each.weights[name] for each in parts])
        offset = np.concatenate([each.offsets[name] for each in parts])
        return LinearMap({name: W}, {name: offset}, normalize=True)

    def evidence(self, parts: QueryParts) -> Single:
        """Return how sure the surest label of each query is, (n,); see `OASIS.evidence`."""
        # the calibration is monotone: the surest is the largest
        largest = self.labels.above_usual(parts.labels).max(axis=1, initial=0.0)
        return self.sureness.of(largest, parts.has)

    def joined(self, parts: QueryParts, weight: float | None = None) -> Single:
        """Return the projections (n, r)."""
        q = self.labels.usual.astype(np.float32)
        usual = np.float32(PRIOR_SHARE) * q * (1 - q) ** 2
        weights = likeliest_weights(parts.labels - usual)
        if not parts.content.shape[1]:
            return self._read(weights)
        sure = self.evidence(parts) / (1 + np.square(parts.strange))
        sure *= np.float32(self.sureness.together.told)
        w = min(BIT_WEIGHT * parts.content.shape[1] ** 0.5, 1.0) if weight is None else weight
        return self._both(weights, parts.content, w, sure)

    def project_labels(self, weights: Single) -> Single:
        """Return the projections (n, r) of weights of labels (n, c), without any content."""
        weights = likeliest_weights(weights)
        nothing = np.zeros((len(weights), self.n_content), dtype=np.float32)
        return self._both(weights, nothing, 0.0, np.ones(len(weights), dtype=np.float32))

    def _both(self, weights: Single, content: Single, w: float, sure: Single) -> Single:
        if not content.shape[1]:
            return self._read(weights)
        total = weights @ self.responses
        shares = np.divide(sure, total, out=np.zeros_like(total), where=total > _LEAST_WEIGHT)
        kind = self._read(weights) * (np.float32(LABEL_WEIGHT * (1 - w)) * shares)[:, None]
        return np.hstack([kind, _scaled(content, self._covariance_of(content), w)])

    def for_hamming(self, projections: Single) -> Single:
        """Return projections whose signs are what Hamming distance should be measured from."""
        if not self.n_content:  # the readout is made for it
            return projections
        return for_hamming(projections.astype(np.float64), self.covariance).astype(np.float32)

    def _covariance_of(self, content: Single) -> Array:
        """Return the block of the content bits."""
        start = len(self.covariance) - content.shape[1]
        return self.covariance[start:, start:]

    def _read(self, weights: Single) -> Single:
        read: Single = weights @ self._single_readout
        return read

    @cached_property
    def _single_readout(self) -> Single:
        return self.readout.astype(np.float32)

    def project_codes(self, codes: Codes, weight: float | None = None) -> Single:
        """Return the signs of stored codes, weighed as projections (n, r) of confidence 1."""
        signs = unpack(codes).astype(np.float32)
        n_label = signs.shape[1] - self.n_content
        w = 0.5 if weight is None else weight
        kind, content = signs[:, :n_label], signs[:, n_label:]
        if not content.shape[1]:
            return kind
        kind = _scaled(kind, self.covariance[:n_label, :n_label], 1 - w)
        return np.hstack([kind, _scaled(content, self._covariance_of(content), w)])

    def arrays(self) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        """Yield everything that the projections depend on, by name."""
        for kind, maps in (("labels", self.labels), ("content", self.content)):
            for name, map_ in maps.predictors.items():
                yield from ((f"{kind} {name} {key}", array) for key, array in map_.arrays())
            yield from ((f"{kind} explained {k}", R) for k, R in maps.explained.items())
        for kind, own in (("own", self._functions), ("strange", self.strange)):
            for name, map_ in own.items():
                yield from ((f"{kind} {name} {key}", array) for key, array in map_.arrays())
        yield from ((f"mean {name}", mean) for name, mean in self.labels.means.items())
        yield "usual", self.labels.usual
        yield "readout", self.readout
        yield "responses", self.responses
        yield "covariance", self.covariance
        for name, each in {"": self.sureness.together, **self.sureness.alone}.items():
            yield f"calibration {name}", np.array([*each.line, each.share_right])


@dataclass(frozen=True)
class LabelCoder:
    """Give items that are stored without labels the label bits that their predicted labels make.

    Attributes
    ----------
    labels : predicts labels
    sureness : how sure predicted labels are
    codewords : C (c, r_l), see `oasis.model.codewords`
    n_owned : so many of the label bits are owned, the last ones
    """

    labels: LabelMap
    sureness: Sureness
    codewords: Array
    n_owned: int

    @property
    def widths(self) -> dict[str, int]:
        return self.labels.widths

    def project(self, X: Mapping[str, Matrix]) -> Single:
        """Return (n, r_l) float32 values whose signs are the label bits."""
        return self.of_predictions(*self.labels.parts(X))

    def of_predictions(self, predictions: Mapping[str, Single], has: Mapping[str, Mask]) -> Single:
        """Return the same for predictions (n, c) by each modality; which rows have it, (n,)."""
        above = self.labels.above_usual(self.labels.combined(predictions, has))
        sure = self.sureness.of(above, has)
        return likely_codes(likeliest_weights(above), sure, self.codewords, self.n_owned)


def likeliest_weights(labels: Single) -> Single:
    """Return the weights (n, c) of label values: the positive part, to the power 7/4.

    Of more than `LIKELIEST` classes, those with the largest values count, less the next one.

    >>> likeliest_weights(np.array([[1.0, 0.5, -0.2]], dtype=np.float32)).round(2)
    array([[1. , 0.3, 0. ]], dtype=float32)
    """
    if labels.shape[1] > LIKELIEST:
        place = labels.shape[1] - LIKELIEST - 1
        next_one = np.partition(labels, place, axis=1)[:, place : place + 1]
        labels = labels - np.maximum(next_one, 0)
    positive = np.maximum(labels, 0)
    root = np.sqrt(positive)
    sharp = positive * root  # 7/4 = 1 + 1/2 + 1/4: square roots are five times as fast as a power
    sharp *= np.sqrt(root, out=root)
    return np.asarray(sharp)


def strangeness(name: str, ridge: Ridge) -> LinearMap:
    """Return the map of a modality to t (n, 1), negative for rows with a larger cosine than usual.

    Parameters
    ----------
    ridge : its regression, with a constant as its last feature
    """
    d, n = ridge.n_features - 1, ridge.n_constant
    total = ridge.sum_of_rows()[:d] if n else np.zeros(d)
    size = float(np.linalg.norm(total))
    if size == 0.0:
        return LinearMap({name: np.zeros((1, d))}, {name: np.zeros(1)}, normalize=True)
    direction, usual = total / size, size / n
    square = ridge.square_along(np.append(direction, 0.0)) / n
    deviation = np.sqrt(max(square - usual * usual, 0.0) + 1 / n)
    weights, offset = -direction[None] / deviation, np.array([-usual / deviation])
    return LinearMap({name: weights}, {name: offset}, normalize=True)


def _least(strange: Mapping[str, Single], has: Mapping[str, Mask]) -> Single:
    """Return the least of values (n,) over the modalities that a row has, from 0 on."""
    infinite = np.float32(np.inf)
    least = reduce(
        np.minimum,
        [x if has[k].all() else np.where(has[k], x, infinite) for k, x in strange.items()],
    )
    positive: Single = np.maximum(least, np.float32(0))
    positive[np.isinf(positive)] = 0
    return positive


def _scaled(values: Single, covariance: Array, weight: float) -> Single:
    """Return rows times a weight over the standard deviation of their inner products with codes.

    For a deviation of 0 the largest value of a row takes its place, so that the label bits of a
    query keep their signs where all stored items have the same labels.
    """
    sizes = np.sqrt(np.maximum(np.vecdot(values @ covariance, values), 0))
    largest = np.abs(values).max(axis=1, initial=0.0)
    sizes = np.where(sizes > _LEAST_SPREAD * largest, sizes, largest)
    factors = np.divide(weight, sizes, out=np.zeros(len(sizes)), where=sizes > 0)
    scaled: Single = values * factors.astype(np.float32)[:, None]
    return scaled
