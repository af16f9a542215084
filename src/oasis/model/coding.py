"""How `OASIS` codes: queries by what is predicted of them, items by what is known of them.

A projection has two parts, one for the label bits and one for the content bits. Each is divided by
the standard deviation of its inner products with stored codes, so that a weight means the same on
every data set: with weight w of content

    ``[(1 - w) confidence l / sd(l),  w c / sd(c)]``

where ``sd(l) = sqrt(l' Cov l)`` with Cov the covariance of the label bits of stored codes, and
``sd(c)`` the same with the content bits. Where a deviation is 0, as that of labels is if all items
have the same ones, the part is divided by its largest value.

The confidence depends on the largest predicted label beyond its share (`LabelMap.above_shares`),
divided by a low value for classes that samples have (`Calibration.low_hit`, of samples with all
modalities or with the only one of the query) and capped at 1, which is s, on the strangeness t of
the query (`oasis.model.strangeness`) and on its novelty u (`oasis.model.novelty`), both at least 0:

    ``confidence = s² / ((1 + t²) (1 + (u / 1.5)²))``

If no known class fits a query, or it is unlike all samples, or its content is unlike that of every
class, the content bits decide.

The doubt bit (`oasis.model.codewords`) has the value

    ``confidence min(l_d, -v) + (1 - confidence) v``  with  ``v = 0.1 max(0, max l)``

where l_d is what the readout says of it, and the largest is over the owned bits. An item without a
sure label ranks behind items with given labels for a confident query, the more the less such labels
are true, and before them for an unsure one, which may be of a class without labels.

Unless asked otherwise ``w = 0.009 sqrt(r_c)`` with r_c content bits: a content bit weighs the same
however many there are.

Hamming distance knows no weights: there the content bits of a query would hide its labels. So the
signs of content bits are those of

    ``c + 0.3 confidence t``  with  ``t = p U``, scaled to mean square 1

with p the weights of predicted labels and U (c, r_c) the directions in which classes are read from
content bits (`ContentSums.directions`). Where this changes a sign, the value is next to 0, so that
asymmetric scores hardly change. With a weight w of the user's the signs are those of the values, as
they are in a model without label bits, where content hides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
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
from oasis.model.hash_functions import LabelMap, LinearMap, Mask, sharpened
from oasis.model.novelty import Novelty
from oasis.model.readout import Readout, set_signs
from oasis.model.threads import in_threads
from oasis.model.weighing import (
    BIT_WEIGHT,
    CLASS_CONTENT,
    DOUBT_WEIGHT,
    LIKE_WEIGHT,
    NOVEL,
    PRIOR_SHARE,
    STRANGE,
    confidence,
    deviations,
    least,
    scaled,
)

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
    strange : (n,), in standard deviations, at least 0; by the modality in which it is least
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
    """

    values: Mapping[str, Single]
    has: Mapping[str, Mask]

    @property
    def n(self) -> int:
        return len(next(iter(self.values.values())))

    def rows(self, block: slice) -> RowValues:
        """Return those of some queries."""
        return RowValues(
            {name: each[block] for name, each in self.values.items()},
            {name: each[block] for name, each in self.has.items()},
        )


@dataclass(frozen=True)
class QueryMap:
    """The hash function of `OASIS`: features to projections.

    Attributes
    ----------
    labels : predicts labels
    readout : how labels are read from the label bits of stored codes
    covariance : (r_l, r_l) of the label bits of stored codes
    content : maps features to content values
    content_covariance : (r_c, r_c) of the content bits of stored codes
    class_content : (c, r_c), the direction in which each class is read from content bits
    sureness : what is predicted of classes that samples have
    n_owned, n_doubt : the last label bits are owned ones, and the doubt bit if there is one
    strange : how strange a query is (n, 1) by each modality, see `oasis.model.strangeness`
    novelty : how far its content is from that of every class, see `oasis.model.novelty`; None
        without content bits
    """

    labels: LabelMap
    readout: Readout
    covariance: Array
    content: ContentMap
    content_covariance: Array
    class_content: Array
    sureness: Sureness
    n_owned: int
    n_doubt: int
    strange: Mapping[str, LinearMap]
    novelty: Novelty | None

    @property
    def widths(self) -> dict[str, int]:
        return self.labels.widths

    def project(self, X: Mapping[str, Matrix], weight: float | None = None) -> Single:
        """Return the (n, r) float32 projections of a non-empty subset of the modalities."""
        return self.of_rows(lambda parts: (self.joined(parts, weight),), X)[0]

    def codes(self, X: Mapping[str, Matrix]) -> Codes:
        """Return the packed signs of projections, (n, r / 8)."""
        return self.of_rows(lambda parts: (self._codes(parts),), X)[0]

    def _codes(self, parts: QueryParts) -> Codes:
        if parts.content.shape[1]:
            return pack(self.joined(parts))
        return pack(self.readout.sign_values(self._label_weights(parts)))

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
        if self._sizes:
            own = {name: values[name][:, self._own(name)] for name in X if name in self._sizes}
            self.content.complete(own, X, has)
        return RowValues(values, has)

    def _parts(self, rows: RowValues) -> QueryParts:
        values, has, n_classes = rows.values, rows.has, len(self.labels.shares)
        labels = self.labels.combined({k: each[:, :n_classes] for k, each in values.items()}, has)
        if not self._sizes:
            nothing = np.zeros((len(labels), 0), dtype=np.float32)
            return QueryParts(labels, nothing, np.zeros(len(labels), dtype=np.float32), has)
        start = {name: self._own(name).stop for name in values}
        content = []
        for name, size in self._sizes.items():
            if name in values:
                content.append(values[name][:, self._own(name)])
                continue
            predicted = {}
            for k, each in values.items():
                predicted[k] = each[:, start[k] : start[k] + size], has[k]
                start[k] += size
            content.append(self.content.joined_predictions(name, predicted, len(labels)))
        strange = least({k: each[:, -1] for k, each in values.items()}, has)
        return QueryParts(labels, np.hstack(content), strange, has)

    @cached_property
    def _sizes(self) -> dict[str, int]:
        """Content bits of each modality that has some."""
        return self.content.content.sizes

    def _own(self, name: str) -> slice:
        """Columns of the content values of a modality, behind its predictions of labels."""
        n_classes = len(self.labels.shares)
        return slice(n_classes, n_classes + self._sizes.get(name, 0))

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
        if self._sizes:
            own = self.content.content.own
            parts += [own[name]] if name in own else []
            parts += [self.content.pairs[name, each] for each in own if each not in present]
            parts.append(self.strange[name])
        W = np.vstack([each.weights[name] for each in parts])
        offset = np.concatenate([each.offsets[name] for each in parts])
        return LinearMap({name: W}, {name: offset}, normalize=True)

    def joined(self, parts: QueryParts, weight: float | None = None) -> Single:
        """Return the projections (n, r)."""
        if self.novelty is not None:
            low_hits = self.sureness.low_hits(parts.has)
            sure = confidence(self.labels.above_shares(parts.labels), low_hits)
            sure /= 1 + np.square(parts.strange / np.float32(STRANGE))
            novel = np.maximum(self.novelty.of(parts.content), 0)
            sure /= 1 + np.square(novel / np.float32(NOVEL))
        else:  # all bits are those of labels
            sure = np.ones(len(parts.labels), dtype=np.float32)
        return self._joined(self._label_weights(parts), sure, parts.content, weight)

    def _label_weights(self, parts: QueryParts) -> Single:
        """Return the weights (n, c) of labels: predictions beyond what is usual, sharpened."""
        return sharpened(parts.labels - self._usual_labels)

    @cached_property
    def _usual_labels(self) -> Single:
        """What is subtracted from predicted labels, (c,)."""
        q = self.labels.shares.astype(np.float32)
        usual: Single = np.float32(PRIOR_SHARE) * q * (1 - q) ** 2
        return usual

    def project_labels(self, weights: Single) -> Single:
        """Return the projections (n, r) of weights of labels (n, c), without any content."""
        nothing = np.zeros((len(weights), len(self.content_covariance)), dtype=np.float32)
        sure = confidence(weights, np.float32(self.sureness.together.low_hit))
        return self._joined(sharpened(weights), sure, nothing, 0.0)

    def _joined(
        self, weights: Single, sure: Single, content: Single, weight: float | None
    ) -> Single:
        kind = self.readout.project(weights)  # (n, r_l)
        if self.n_doubt:
            v = np.float32(DOUBT_WEIGHT) * kind[:, -self.n_owned - 1 : -1].max(axis=1, initial=0.0)
            kind[:, -1] = sure * np.minimum(kind[:, -1], -v) + (1 - sure) * v
        if weight is not None:
            return self._weighed(kind, content, weight, sure)
        w = min(BIT_WEIGHT * content.shape[1] ** 0.5, 1.0)
        projections = self._weighed(kind, content, w, sure)
        if content.shape[1] and kind.shape[1]:
            signs = content + self._usual_content(weights, sure)
            set_signs(projections[:, -content.shape[1] :], signs)
        return projections

    def _usual_content(self, weights: Single, sure: Single) -> Single:
        """Return what weights of labels (n, c) add to content values where only signs count."""
        usual: Single = weights @ self._single_class_content  # (n, r_c)
        target = np.float32(CLASS_CONTENT * usual.shape[1] ** 0.5) * sure
        return scaled(usual, np.sqrt(np.vecdot(usual, usual)), target)

    @cached_property
    def _single_class_content(self) -> Single:
        return self.class_content.astype(np.float32)

    def project_codes(self, codes: Codes, weight: float | None = None) -> Single:
        """Return the signs of stored codes, weighed as projections (n, r) of confidence 1."""
        signs, n_label = unpack(codes).astype(np.float32), len(self.covariance)
        if self.n_doubt:  # doubt about an item is nothing that others should share
            signs[:, n_label - 1] = 0
        w = LIKE_WEIGHT if weight is None else weight
        sure = np.ones(len(signs), dtype=np.float32)
        return self._weighed(signs[:, :n_label], signs[:, n_label:], w, sure)

    def _weighed(self, kind: Single, content: Single, w: float, sure: Single) -> Single:
        if not content.shape[1]:
            return kind
        kind = scaled(kind, deviations(kind, self.covariance), (1 - w) * sure)
        spread = deviations(content, self.content_covariance)
        thing = scaled(content, spread, np.full(len(content), w))
        return np.hstack([kind, thing])

    def arrays(self) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        """Yield everything that the projections depend on, by name."""
        for kind, maps in (("labels", self.labels), ("content", self.content)):
            for name, map_ in maps.predictors.items():
                yield from ((f"{kind} {name} {key}", array) for key, array in map_.arrays())
            yield from ((f"{kind} explained {k}", R) for k, R in maps.explained.items())
        for kind, own in (("own", self.content.content.own), ("strange", self.strange)):
            for name, map_ in own.items():
                yield from ((f"{kind} {name} {key}", array) for key, array in map_.arrays())
        yield "shares", self.labels.shares
        yield "values", self.readout.values
        yield "signs", self.readout.signs
        yield "covariance", self.covariance
        yield "content covariance", self.content_covariance
        yield "class content", self.class_content
        yield "label bits", np.array([self.n_owned, self.n_doubt])
        for name, each in {"": self.sureness.together, **self.sureness.alone}.items():
            yield f"low hit {name}", np.array(each.low_hit)
        if self.novelty is not None:
            yield "usual novelty", np.array(self.novelty.usual)
            yield "whitening of content", self.novelty.classes.whitening
            yield "content of classes", self.novelty.classes.centres


@dataclass(frozen=True)
class LabelCoder:
    """Give items that are stored without labels the label bits that their predicted labels make.

    Attributes
    ----------
    labels : predicts labels
    sureness : how sure predicted labels are
    codewords : C (c, r_l), see `oasis.model.codewords`
    n_owned, n_doubt : as in `QueryMap`
    """

    labels: LabelMap
    sureness: Sureness
    codewords: Array
    n_owned: int
    n_doubt: int

    @property
    def widths(self) -> dict[str, int]:
        return self.labels.widths

    def project(self, X: Mapping[str, Matrix]) -> Single:
        """Return (n, r_l) float32 values whose signs are the label bits."""
        return self.of_predictions(*self.labels.parts(X))

    def of_predictions(self, predictions: Mapping[str, Single], has: Mapping[str, Mask]) -> Single:
        """Return the same for predictions (n, c) by each modality; which rows have it, (n,)."""
        predicted = self.labels.combined(predictions, has)
        sure = self.sureness.of(self.labels.above_shares(predicted), has)
        w = sharpened(predicted)
        return likely_codes(w, sure, self.codewords, self.n_owned, self.n_doubt)
