"""OASIS: online enhanced semantic hashing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, ClassVar

import numpy as np

from oasis.arrays import Array, Single, state_of, unit_rows
from oasis.codes import Codes, check_codes, pack, unpack
from oasis.errors import InputError
from oasis.hashers.chunk import check_features
from oasis.labels import LabelSpace
from oasis.model.base import Model, ModelState, check_count
from oasis.model.bit_shares import usual_content, usual_owned
from oasis.model.calibration import SAMPLES, Calibration
from oasis.model.codeword_file import from_file, to_file
from oasis.model.codeword_state import CodewordState
from oasis.model.codewords import sample_codes
from oasis.model.coding import QueryMap, QueryParts
from oasis.model.content import SAMPLE_ROWS, has_few_features, make_content
from oasis.model.file import ModelFile, Stored
from oasis.model.hash_functions import Mask
from oasis.model.leave_one_out import HELD_ROWS, HeldOut
from oasis.model.novelty import ContentSums
from oasis.model.paper import PublishedOASIS
from oasis.model.readout import Codebook, CodeSums
from oasis.model.ridge import Ridge, check_width
from oasis.model.round import ChunkRows

NEAR_COSINE = 0.35
"""Cosine of two word vectors above which names are near: of random nine-letter words 1 to 3 % reach
it with one of 70 or 80 classes; ship and boat have 0.41."""


class OASIS(Model[CodewordState]):
    """Learn binary codes from a stream of multi-modal chunks; classes may arrive in any chunk.

    Stored codes never change, an update needs the features of the new chunk only, and classes may
    arrive in any round. ``OASIS()`` is the best configuration known; `OASIS.paper` is the method
    as published, nothing added.

    A code has two parts. **Label bits** say which classes a sample has: every class has a codeword,
    learned when the class arrives and kept from then on, and the label bits are the sign of the sum
    of a sample's codewords (`oasis.model.codewords`). **Content bits** say what the labels do not:
    each modality has its share, fixed before the first code is stored (`oasis.model.content`).

    Parameters
    ----------
    n_bits : int
        Length of a code, a positive multiple of 8.
    content : int, optional
        How many of the bits are content bits: 0 for label bits alone, ``n_bits`` for a model that
        needs no labels. None: see `usual_content`.
    labels : optional
        What class names mean: a mapping name -> vector, "orthogonal", "wordllama", the path of a
        word2vec or GloVe file, or a `LabelSpace` that blends them. None: a blend of WordLlama's
        words with an axis of its own for each class.
    delta : float
        Ridge of the regressions from features, which are scaled to unit length and have an
        intercept. Where features are dense and a weaker ridge predicts the first chunk better, down
        to a ten-thousandth of it is used (`oasis.model.leave_one_out`).
    owned : int, optional
        How many of the label bits are owned by classes: such a bit says whether a sample has one
        of its owners. Owned bits serve asymmetric search, the others plain Hamming search. None:
        see `usual_owned`. Beside content bits one label bit marks unlabelled items of which no
        predicted label is sure.
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
    unit_length: ClassVar[bool] = True

    def __init__(
        self,
        n_bits: int = 64,
        content: int | None = None,
        labels: LabelSpace | Mapping[str, Any] | str | PathLike[str] | None = None,
        delta: float = 1.0,
        owned: int | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.content = content
        self.labels = labels
        self.delta = delta
        self.owned = owned
        self.random_state = random_state

    @staticmethod
    def paper(
        n_bits: int = 64,
        labels: LabelSpace | Mapping[str, Any] | str | PathLike[str] = "wordllama",
        **parameters: Any,
    ) -> PublishedOASIS:
        """Return the method as published, nothing added: see `PublishedOASIS`."""
        return PublishedOASIS(n_bits, labels, **parameters)

    @property
    def n_content_bits(self) -> int:
        """How many bits of a code are content bits, the last ones."""
        state: CodewordState | None = getattr(self, "state_", None)
        if state is not None:
            return state.n_content_bits
        return usual_content(self.n_bits) if self.content is None else int(self.content)

    @property
    def n_label_bits(self) -> int:
        """How many bits of a code are label bits, the first ones."""
        return self.n_bits - self.n_content_bits

    def rows_used(self, label_sets: Sequence[tuple[str, ...]]) -> Mask:
        """Return which rows of the next chunk change the state: those with labels.

        Others only count: queries read label bits the more carefully the more items have no labels.
        Of a first chunk all rows are used where content bits are made from it. While there is no
        class at all, and in a model without label bits, all rows are used as well.
        """
        state: CodewordState | None = getattr(self, "state_", None)
        labelled = np.array([bool(names) for names in label_sets], dtype=np.bool_)
        begins = self.n_content_bits > 0 and (state is None or state.content is None)
        classes = labelled.any() or (state is not None and state.classes)
        if begins or not classes or not self.n_label_bits:
            return np.ones(len(label_sets), dtype=np.bool_)
        return labelled

    def hash_function(self) -> QueryMap:
        return self.learned.query_map

    def project(self, X: Mapping[str, Any], content: float | None = None) -> Single:
        """Return the real values whose signs are the codes, (n, n_bits) float32.

        Parameters
        ----------
        X : any of the modalities. Content values of a modality that a row lacks are predicted.
        content : float from 0 to 1, optional
            Weight of the content bits: 0 asks for the kind alone, 1 for content alone. None: a
            weight at which label MAP loses less than a point; only then are the signs of content
            bits those of `encode`, see `oasis.model.coding`.
        """
        state = self.learned
        weight = _check_weight(content)
        return state.query_map.project(check_features(X, state.widths), weight)

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
            return map_.joined(parts, weight), state.evidence(parts.labels, parts.has)

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
        return state.sure(state.label_map.combined(predictions, has), has)

    def evidence(self, X: Mapping[str, Any]) -> Single:
        """Return how sure it is that queries are near to something learned, (n,), from 0 to 1.

        The largest of `predict_proba`, on the same scale for every data set. Below 0.5 no known
        class fits: noise, an unknown word, a thing of another kind. A model without classes
        returns 1, or 0 for queries whose modalities no sample had.
        """
        state = self.learned
        predictions, has = state.label_map.parts(check_features(X, state.widths))
        return state.evidence(state.label_map.combined(predictions, has), has)

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
        state = self.learned
        vectors, words = state.labels.query_vectors(names), state.class_words
        nearness = vectors @ state.class_vectors.T  # (n, c)
        # axes of classes, on which other names are zero, do not count; a class is near itself
        meant = unit_rows(vectors[:, : words.shape[1]]) @ words.T  # (n, c)
        near = np.maximum(np.asarray(meant), nearness).max(axis=1, initial=0.0)
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
            np.empty((0, n_label)),
            self._n_owned,
            self._n_doubt,
            Codebook.zero(n_label),
            CodeSums.zero(n_label),
            None,
            ContentSums.zero(self.n_content_bits),
            0,
            Calibration.none(),
            {name: Calibration.none() for name in widths},
        )

    def run_round(
        self, state: CodewordState, label_sets: list[tuple[str, ...]], rows: ChunkRows
    ) -> tuple[CodewordState, Codes]:
        rng = state.rng()
        n, n_label = len(label_sets), self.n_label_bits
        labelled = np.array([bool(names) for names in label_sets])
        if not (self.n_content_bits or labelled.any() or state.classes):
            raise InputError(
                "no sample of the first chunk has a label, and a model with content=0 has nothing "
                "else to tell samples apart by; give labels, or a model with content bits"
            )
        if state.classes and labelled.any():
            state = state.with_calibration(label_sets, labelled, rows)
        if state.content is None and self.n_content_bits:
            sampled = rows.sample(SAMPLE_ROWS, np.ones(n, dtype=np.bool_))
            made = make_content(sampled, self.n_content_bits, rng)
            state = state.with_content(made)
        # unlabelled samples are no examples of "none of the classes", so they are left out of the
        # regressions, unless there is no class to regress on
        no_class = not (state.classes or labelled.any())
        learns = np.ones(n, dtype=np.bool_) if no_class or not n_label else labelled
        codes = np.zeros((n, self.n_bits // 8), dtype=np.uint8)
        if learns.any():
            chosen = [label_sets[row] for row in np.flatnonzero(learns)]
            state = state.grown(chosen)
            L = state.labels.indicator(chosen)  # (n, c)
            state = state.with_codewords(L, rng)
            held: HeldOut | None = None
            if not state.n_regressed and len(set(chosen)) > 1:
                held = HeldOut.of(rows.sample(HELD_ROWS, learns), L, float(self.delta))
                state = state.with_deltas(held.deltas)
            begins, alike = not state.n_regressed, state.codebook.is_uniform
            others = state.content_targets
            state = replace(
                state,
                ridges=rows.regress(state.ridges, learns, L, others),
                n_regressed=state.n_regressed + len(chosen),
            )
            if not no_class:
                B = sample_codes(L, state.codewords)  # (n, r_l)
                state = replace(state, codebook=state.codebook.plus(B, L))
                codes[learns, : n_label // 8] = pack(B)
                if alike and not begins and not state.codebook.is_uniform:
                    sample = rows.sample(HELD_ROWS, learns)
                    dense = [name for name, x in sample.items() if not has_few_features(x)]
                    state = state.with_deltas_by_sums(dense)
            if held is not None:
                state = state.with_held_out(held)
        state = replace(state, n_seen=state.n_seen + n, generator=state_of(rng))
        if n_label and state.classes and not learns.all():
            codes[~learns, : n_label // 8] = rows.codes(state.label_coder, n_label, ~learns)
        if self.n_content_bits:
            everything = np.ones(n, dtype=np.bool_)
            content = rows.codes(state.content_map, self.n_content_bits, everything)
            codes[:, n_label // 8 :] = content
            state = state.with_content_bits(
                unpack(content[learns]).astype(np.float64),
                [label_sets[row] for row in np.flatnonzero(learns)],
                rows.sample(SAMPLES, labelled),
            )
        return state, codes

    @property
    def _n_owned(self) -> int:
        if self.owned is not None:
            return int(self.owned)
        return usual_owned(self.n_label_bits, self.n_content_bits)

    @property
    def _n_doubt(self) -> int:
        """1 if codes have a doubt bit: learned label bits show doubt by themselves, owned ones do
        not, and a model that was asked to own all label bits has no room."""
        return int(self.n_content_bits > 0 and 0 < self._n_owned < self.n_label_bits)

    def _check_parameters(self, state: CodewordState | None) -> None:
        super()._check_parameters(state)
        if self.content is not None:
            check_count("content", self.content, 0, self.n_bits)
            if self.content % 8:
                raise InputError(f"content must be a multiple of 8, got {self.content!r}")
        if self.owned is not None:
            check_count("owned", self.owned, 0, self.n_label_bits)

    def _to_file(self, state: CodewordState) -> tuple[dict[str, Any], Stored]:
        return to_file(state)

    def _from_file(self, common: ModelState, file: ModelFile) -> CodewordState:
        return from_file(common, file, self.n_bits, self.content)


def _check_weight(content: Any) -> float | None:
    if content is None:
        return None
    number = isinstance(content, (int, float, np.number)) and not isinstance(content, bool)
    if not number or not 0 <= content <= 1:
        raise InputError(f"content must be None or a number from 0 to 1, got {content!r}")
    return float(content)
