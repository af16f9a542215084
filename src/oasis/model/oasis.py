"""OASIS: online enhanced semantic hashing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np

from oasis.arrays import Array, Single, indicator, state_of
from oasis.codes import Codes, check_codes, pack, unpack
from oasis.errors import InputError
from oasis.hashers.chunk import check_chunk, check_features
from oasis.hashers.protocol import Labels
from oasis.labels import LabelSpace
from oasis.model.base import Model, ModelState, check_count
from oasis.model.calibration import SAMPLES, Calibration
from oasis.model.codewords import sample_codes
from oasis.model.content import ENOUGH_ROWS, SAMPLE_ROWS, Content, check_guess, shared_bits
from oasis.model.hash_functions import Mask
from oasis.model.paper import PublishedOASIS
from oasis.model.query import QueryMap, QueryParts
from oasis.model.readout import BitSums, Codebook, CodeSums
from oasis.model.ridge import Ridge, check_targets, check_width
from oasis.model.round import ChunkRows, RowsInMemory, evenly_spaced
from oasis.model.state import CodewordState

NEAR_COSINE = 0.35
"""Cosine of two word vectors above which names are near: of random nine-letter words 1 to 3 % reach
it with one of 70 or 80 classes; ship and boat have 0.41."""


class OASIS(Model[CodewordState]):
    """Learn binary codes from a stream of multi-modal chunks; classes may arrive in any chunk.

    Stored codes never change, an update needs the features of the new chunk only, and classes may
    arrive in any round. ``OASIS(n_bits)`` is a code of labels, for Hamming distance;
    `OASIS.for_search` makes a code for search by projections; `OASIS.paper` is the method as
    published.

    A code has two parts. **Label bits** say which classes a sample has: every class has a codeword,
    learned when the class arrives and kept from then on, and the label bits are the sign of the sum
    of a sample's codewords (`oasis.model.codewords`). **Content bits** say what the labels do not:
    each modality has its share (`oasis.model.content`).

    Parameters
    ----------
    n_bits : int
        Length of a code, a positive multiple of 8.
    content : int, optional
        How many of the bits are content bits: 0 for label bits alone, ``n_bits`` for a model that
        needs no labels. With label bits alone, all samples that come before the first label have
        one and the same code, for ever.
    labels : optional
        What class names mean: a mapping name -> vector, "orthogonal", "wordllama", the path of a
        word2vec or GloVe file, or a `LabelSpace` that blends them. None: a blend of WordLlama's
        words with an axis of its own for each class.
    delta : float
        Ridge of the regressions from features, which are scaled to unit length and have an
        intercept. Where features are dense and a weaker ridge predicts better, down to a
        ten-thousandth of it is used (`oasis.model.ridge.Ridge.chosen`).
    owned : int or None
        How many of the label bits are owned by classes: such a bit says whether a sample has one
        of its owners. Owned bits serve search by projections, the others Hamming distance. None:
        by the number of the first classes (`oasis.model.state.n_owned_for`).
    guess : pair of modalities (present, missing), optional
        Samples that lack the second have content bits of a guess from the first, and regressions
        over samples with both correct the guess: they shrink towards it instead of towards zero.
        The first has features of `oasis.features.image.EfficientNetLite0`, the second those of
        `oasis.features.meaning.Meaning`; the guess is `oasis.features.picture_meaning`.
    random_state : int, numpy Generator or None
        Seed of the codewords and of the content bits.

    Attributes
    ----------
    codes_ : (n, n_bits / 8) uint8
        The last chunk's codes, to be stored as they are.
    classes_ : tuple of str
        Class names in order of arrival.
    n_seen_ : int
        Samples seen.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> image, text = rng.random((4, 20)), rng.random((4, 10))
    >>> model = OASIS(n_bits=16, random_state=0)
    >>> model = model.partial_fit(
    ...     {"image": image, "text": text}, [["sky"], ["sky", "sea"], ["cat"], ["cat"]]
    ... )
    >>> model.classes_, model.codes_.shape
    (('sky', 'sea', 'cat'), (4, 2))
    >>> model.encode({"text": text[:1]}).shape
    (1, 2)
    """

    kind: ClassVar[str] = "oasis"
    state_type: ClassVar[type[ModelState]] = CodewordState
    unit_length: ClassVar[bool] = True
    may_add: ClassVar[bool] = True

    def __init__(
        self,
        n_bits: int = 64,
        content: int = 0,
        labels: LabelSpace | Mapping[str, Any] | str | PathLike[str] | None = None,
        delta: float = 1.0,
        owned: int | None = 0,
        guess: tuple[str, str] | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.content = content
        self.labels = labels
        self.delta = delta
        self.owned = owned
        self.guess = guess
        self.random_state = random_state

    @staticmethod
    def paper(
        n_bits: int = 64,
        labels: LabelSpace | Mapping[str, Any] | str | PathLike[str] = "wordllama",
        **parameters: Any,
    ) -> PublishedOASIS:
        """Return the method as published, nothing added: see `PublishedOASIS`."""
        return PublishedOASIS(n_bits, labels, **parameters)

    @classmethod
    def for_search(cls, n_bits: int = 256, **parameters: Any) -> Self:
        """Return a model for search by projections, which `oasis.Collection` uses.

        The first 80 bits are label bits, and beyond 192 bits every eighth; the others are content
        bits. Label bits are owned where the classes of the first chunk with labels are no more than
        they, otherwise learned.

        >>> model = OASIS.for_search(256)
        >>> model.n_label_bits, model.n_content_bits
        (88, 168)
        """
        n_content = max(0, n_bits - 80 - 8 * max(0, (n_bits - 192) // 64))
        return cls(n_bits, **{"content": n_content, "owned": None, **parameters})

    @property
    def n_content_bits(self) -> int:
        """How many bits of a code are content bits, the last ones."""
        return int(self.content)

    @property
    def n_label_bits(self) -> int:
        """How many bits of a code are label bits, the first ones."""
        return self.n_bits - self.n_content_bits

    def rows_used(self, label_sets: Sequence[tuple[str, ...]]) -> Mask:
        """Return which rows of the next chunk change the state: some, if without content.

        Others only count: queries read label bits the more carefully the more items have no labels.
        """
        if self.n_content_bits:
            return super().rows_used(label_sets)
        return np.array([bool(names) for names in label_sets], dtype=np.bool_)

    @property
    def content_since_(self) -> int:
        """Samples seen before the content bits were made for good, or made at all.

        Codes of these first samples, at most `oasis.model.content.ENOUGH_ROWS` of each modality,
        were computed with provisional content bits: `recode` gives them new ones.
        """
        return self.learned.content_since

    def forget(self, X: Mapping[str, Any], y: Labels | None, codes: Any) -> Self:
        """Take out of every sum what samples taught, and return the model.

        Followed by `partial_fit` of the same rows with corrected labels, the model is what it would
        be if these had been given at first, up to rounding. Codewords, content bits and classes
        stay as they are, and so does the calibration, which knows how well samples were predicted
        before they were learned. ``codes_`` stays that of the last chunk learned.

        Parameters
        ----------
        X, y : features and labels with which they were learned, as in `partial_fit`; y is None if
            no sample had labels
        codes : (n, n_bits / 8) uint8, their stored codes

        Samples that were learned before `content_since_` must have been given to `recode`: their
        content was learned with provisional content bits, of which nothing remains.

        Everything is checked before anything is changed. Cost: one Cholesky factorisation in
        float64 for each modality.
        """
        state = self.learned
        stored = check_codes(codes, self.n_bits)
        chunk = check_chunk(X, [None] * len(stored) if y is None else y, state.widths)
        if len(stored) != chunk.n_samples:
            raise InputError(f"got {len(stored)} codes for {chunk.n_samples} samples")
        B = unpack(stored).astype(np.float64)
        self.state_ = state.without(chunk.X, chunk.labels, B)
        return self

    def recode(self, before: Self, X: Mapping[str, Any], y: Labels | None, codes: Any) -> Codes:
        """Return new codes of samples whose content bits were provisional, and learn their content.

        To be called once, with the samples that were learned before `content_since_`: the
        regressions that predict content of missing modalities know nothing of them until then.

        Parameters
        ----------
        before : a copy of the model from before the chunk in which the content bits were made
        X, y : features and labels with which the samples were learned, as in `partial_fit`
        codes : (n, n_bits / 8) uint8, their stored codes

        Label bits of samples with labels stay as they are. Everything is checked before anything is
        changed. Cost: one Cholesky factorisation in float64 for each modality.
        """
        state = self.learned
        stored = check_codes(codes, self.n_bits)
        chunk = check_chunk(X, [None] * len(stored) if y is None else y, state.widths)
        if len(stored) != chunk.n_samples:
            raise InputError(f"got {len(stored)} codes for {chunk.n_samples} samples")
        labelled = np.array([bool(names) for names in chunk.labels])
        rows, label_bits = RowsInMemory(chunk.X, True), stored[:, : self.n_label_bits // 8]
        state = state.with_content_of(chunk.X, labelled, before.learned.content)
        made = self._codes(state, rows, labelled, label_bits[labelled])
        if self.n_content_bits:
            old, new = (BitSums.of(unpack(each)) for each in (stored, made))
            state = replace(state, stored=state.stored.less(old).joined(new))
        self.state_ = state
        return made

    def hash_function(self) -> QueryMap:
        return self.learned.query_map

    def project(self, X: Mapping[str, Any], content: float | None = None) -> Single:
        """Return the real values whose signs are the codes, (n, n_bits) float32.

        Parameters
        ----------
        X : any of the modalities. Content values of a modality that a row lacks are predicted.
        content : float from 0 to 1, optional
            Weight of the content bits: 0 asks for the kind alone, 1 for content alone. None: a
            weight at which label MAP loses less than a point.
        """
        state = self.learned
        weight = _check_weight(content)
        return state.query_map.project(check_features(X, state.widths), weight)

    def for_hamming(self, projections: Single) -> Single:
        """Return projections (n, n_bits) whose signs serve search by Hamming distance.

        Hamming distance weighs all bits alike, so the signs of `project` lose what is in their
        sizes. These are ``P S (S + I / 2)^-1`` with S the covariance of stored codes; without
        content bits `project` gives such values already.
        """
        return self.learned.query_map.for_hamming(projections)

    def encode(self, X: Mapping[str, Any]) -> Codes:
        """Return the (n, n_bits / 8) packed codes of samples that are not learned from."""
        state = self.learned
        return state.query_map.codes(check_features(X, state.widths))

    def project_with_evidence(
        self, X: Mapping[str, Any], content: float | None = None
    ) -> tuple[Single, Single]:
        """Return `project` and `evidence` of the same queries, at the cost of the first."""
        state = self.learned
        weight = _check_weight(content)
        map_ = state.query_map

        def both(parts: QueryParts) -> tuple[Single, Single]:
            return map_.joined(parts, weight), self._evidence(parts)

        projections, evidence = map_.of_rows(both, check_features(X, state.widths))
        return projections, evidence

    def project_codes(self, codes: Any, content: float | None = None) -> Single:
        """Return the signs of packed codes as projections, (n, n_bits) float32, to search with.

        Parameters
        ----------
        codes : (n, n_bits / 8) uint8
        content : float from 0 to 1, optional
            Weight of the content bits, as in `project`; None: 0.5, kind and content alike.
        """
        weight = _check_weight(content)
        return self.learned.query_map.project_codes(check_codes(codes, self.n_bits), weight)

    def predict_labels(self, X: Mapping[str, Any]) -> Single:
        """Return how likely a sample has each class, (n, c) float32, in the order of ``classes_``.

        Values are near 1 for the classes of a sample and near 0 for others; as predictions of a
        regression they may lie outside [0, 1].
        """
        state = self.learned
        return state.label_map.predict(check_features(X, state.widths))

    def predict_proba(self, X: Mapping[str, Any]) -> Single:
        """Return how sure each predicted label is, (n, c) float32 from 0 to 1.

        At 0.5 a prediction lies as many standard deviations below the mean for classes that samples
        have as above the mean for the likeliest class that they lack (`oasis.model.calibration`).
        Queries with one modality are compared with predictions by that modality alone.
        """
        state = self.learned
        predictions, has = state.label_map.parts(check_features(X, state.widths))
        above = state.label_map.above_usual(state.label_map.combined(predictions, has))
        return state.query_map.sureness.of(above, has)

    def evidence(self, X: Mapping[str, Any]) -> Single:
        """Return how sure it is that queries are near to something learned, (n,), from 0 to 1.

        The largest of `predict_proba`, on the same scale for every data set. Below 0.5 no known
        class fits: noise, an unknown word, a thing of another kind. A model without classes
        returns 1, or 0 for queries whose modalities no sample had.
        """
        state = self.learned
        map_ = state.query_map
        return map_.of_rows(
            lambda parts: (self._evidence(parts),), check_features(X, state.widths)
        )[0]

    def _evidence(self, parts: QueryParts) -> Single:
        state = self.learned
        if len(state.codewords):
            return state.query_map.evidence(parts)
        known = [rows for name, rows in parts.has.items() if state.of_all[name].n_constant]
        none = np.zeros(len(parts.labels), dtype=np.bool_)
        any_known: Single = np.logical_or.reduce([none, *known]).astype(np.float32)
        return any_known

    def predict(self, X: Mapping[str, Any]) -> list[tuple[str, ...]]:
        """Return the classes that each sample is predicted to have: those of at least 0.5."""
        likely = self.predict_labels(X) >= 0.5
        names = np.array(self.classes_, dtype=object)
        return [tuple(names[row]) for row in likely]

    def project_words(self, names: Iterable[str]) -> Single:
        """Return the projections of class names, seen or never seen, (n, n_bits) float32.

        The projection is the sum of those of the classes, weighted by their nearness to the name in
        the label space, which must have words. Content bits are 0.
        """
        return self.project_words_with_evidence(names)[0]

    def project_words_with_evidence(self, names: Iterable[str]) -> tuple[Single, Single]:
        """Return `project_words`, and how near each name is to a class, (n,), from 0 to 1.

        The latter is the largest cosine of its word vector with that of a class over
        ``2 * NEAR_COSINE``, at most 1, which the name of a class has. Below 0.5 no class is near.
        """
        nearness, near = self.nearness_of_words(names)
        return self.project_nearness(nearness), near

    def project_nearness(self, nearness: Array) -> Single:
        """Return the projections (n, n_bits) of names by `nearness_of_words`."""
        return self.learned.query_map.project_labels(nearness.astype(np.float32))

    def nearness_of_words(self, names: Iterable[str]) -> tuple[Array, Single]:
        """Return the inner products (n, c) of names with classes, and how near each name is.

        The latter as in `project_words_with_evidence`.
        """
        nearness, meant = self.learned.labels.nearness(names)
        near = np.maximum(meant, nearness).max(axis=1, initial=0.0)  # a class is near itself
        return nearness, np.clip(near / (2 * NEAR_COSINE), 0, 1).astype(np.float32)

    def start(self, widths: Mapping[str, int]) -> CodewordState:
        delta, n_label = float(self.delta), self.n_label_bits
        for width in widths.values():
            check_width(width)
        return CodewordState(
            self._learned_with(),
            LabelSpace.of(self.labels),
            {name: Ridge.zero(0, width + 1, delta) for name, width in widths.items()},
            0,
            self._first_generator(),
            {},
            np.empty((0, n_label)),
            -1 if self.owned is None else int(self.owned),
            Codebook.zero(n_label),
            CodeSums.zero(n_label),
            Content({}, {}, {}, check_guess(self.guess, widths)),
            np.zeros((0, 0)),
            BitSums.zero(self.n_bits if self.n_content_bits else 0),
            0,
            Calibration.none(),
            {name: Calibration.none() for name in widths},
            False,
        )

    def opened(self, state: CodewordState, widths: Mapping[str, int]) -> CodewordState:
        for width in widths.values():
            check_width(width)
        check_guess(state.content.guess, widths)
        return state.with_modalities(widths, float(self.delta))

    def run_round(
        self, state: CodewordState, label_sets: list[tuple[str, ...]], rows: ChunkRows
    ) -> tuple[CodewordState, Codes]:
        rng = state.rng()
        n, n_label = len(label_sets), self.n_label_bits
        labelled = np.array([bool(names) for names in label_sets])
        everything = np.ones(n, dtype=np.bool_)
        labels = state.labels.grown(dict.fromkeys(chain.from_iterable(label_sets)))
        L = labels.indicator(each for each in label_sets if each)  # (n_labelled, c)
        check_targets(L.shape[1], state.widths.values())
        n_known, begins = len(state.codewords), not len(state.codewords)
        seen = evenly_spaced(np.arange(L.shape[0]), SAMPLES)
        if labelled.any() and not begins:
            predicted = state.label_map.parts(rows.sample(SAMPLES, labelled))
            state = state.with_predictions(*predicted, L[seen][:, :n_known])
        if self.n_content_bits:
            state = self._with_content(state, rows, n, rng)
        given = np.zeros((0, n_label // 8), dtype=np.uint8)
        before = state
        if labelled.any():
            state = replace(state, labels=labels).grown(L.shape[1]).with_codewords(L, rng)
            ridges = rows.regress(state.ridges, labelled, L, state.content_targets)
            B = sample_codes(L, state.codewords)  # (n_labelled, r_l)
            state = replace(state, ridges=ridges, codebook=state.codebook.plus(B, L))
            state = state.with_chosen_ridges(rows.sample(SAMPLES, labelled))
            given = pack(B)
            if begins and state.codebook.bits.covariance().any():
                state = state.with_left_out(rows.sample(SAMPLES, labelled), L[seen])
        if self.n_content_bits and (before.everything or not labelled.all()):
            before = before.with_everything()
            none = indicator([()] * n, 0)  # no targets but content
            ridges = rows.regress(before.everything, everything, none, before.content_targets)
            state = replace(state, everything=ridges)
        state = replace(state, n_seen=state.n_seen + n, generator=state_of(rng))
        codes = self._codes(state, rows, labelled, given)
        if self.n_content_bits:
            bits = BitSums.of(unpack(codes))
            state = replace(state, stored=state.stored.joined(bits))
        return state, codes

    def _codes(
        self, state: CodewordState, rows: ChunkRows, labelled: Mask, label_bits: Codes
    ) -> Codes:
        """Return the codes to be stored, given the label bits of the samples with labels."""
        n, n_label = len(labelled), self.n_label_bits
        codes = np.zeros((n, self.n_bits // 8), dtype=np.uint8)
        codes[labelled, : n_label // 8] = label_bits
        if n_label and len(state.codewords) and not labelled.all():
            codes[~labelled, : n_label // 8] = rows.codes(state.label_coder, n_label, ~labelled)
        if self.n_content_bits:
            everything = np.ones(n, dtype=np.bool_)
            codes[:, n_label // 8 :] = rows.codes(
                state.content_map, self.n_content_bits, everything
            )
        return codes

    def _with_content(
        self, state: CodewordState, rows: ChunkRows, n: int, rng: np.random.Generator
    ) -> CodewordState:
        """Return the state whose content bits have functions, made anew where it is time."""
        known = state.content
        if state.n_seen >= ENOUGH_ROWS and not state.unsettled:
            return state
        sampled = rows.sample(SAMPLE_ROWS, np.ones(n, dtype=np.bool_))
        settles = state.n_seen + n >= ENOUGH_ROWS > state.n_seen
        if not known.sizes or (settles and known.sizes.keys() != sampled.keys()):
            state = state.with_sizes(shared_bits(self.n_content_bits, sampled))
        return state.with_content(sampled, rng)

    def _check_parameters(self, state: CodewordState | None) -> None:
        super()._check_parameters(state)
        check_count("content", self.content, 0, self.n_bits)
        if self.content % 8:
            raise InputError(f"content must be a multiple of 8, got {self.content!r}")
        if self.owned is not None:
            check_count("owned", self.owned, 0, self.n_label_bits)
        check_guess(self.guess, {} if state is None else state.widths)


def _check_weight(content: Any) -> float | None:
    if content is None:
        return None
    number = isinstance(content, (int, float, np.number)) and not isinstance(content, bool)
    if not number or not 0 <= content <= 1:
        raise InputError(f"content must be None or a number from 0 to 1, got {content!r}")
    return float(content)
