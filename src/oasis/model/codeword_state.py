"""What `OASIS` remembers of a stream, and the hash functions that follow from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from oasis.arrays import Array, Matrix, Single, unit_rows
from oasis.model.base import ModelState
from oasis.model.calibration import HELD_WEIGHT, SAMPLES, Calibration, Sureness
from oasis.model.codewords import grown_codewords
from oasis.model.coding import LabelCoder, QueryMap
from oasis.model.content import PRIOR_ROWS, Content, ContentMap, OtherContent
from oasis.model.hash_functions import MOST_EXPLAINED, LabelMap, LinearMap, Mask
from oasis.model.leave_one_out import HeldOut, ridge_by_sums
from oasis.model.novelty import ContentSums
from oasis.model.readout import Codebook, CodeSums
from oasis.model.round import ChunkRows, evenly_spaced
from oasis.model.strangeness import strangeness

if TYPE_CHECKING:
    import scipy.sparse as sp


@dataclass(frozen=True)
class CodewordState(ModelState):
    """What `OASIS` remembers. A code has r_l label bits, then r_c content bits.

    Attributes
    ----------
    codewords : (c, r_l), what each class adds to the label bits of a code
    n_owned : so many label bits are owned by classes; those before them are learned
    n_doubt : 1 if the last label bit is the doubt bit (`oasis.model.codewords`), else 0
    codebook : sums of label bits and labels
    guesses : the same of samples as if they had no labels, see `oasis.model.readout`
    content : the functions of the content bits; None before the first chunk, and without any
    content_sums : sums over the content bits of the samples that were learned
    n_regressed : samples in the sums of features
    calibration : how well samples were predicted before they were learned
    alone : modality name -> the same by that modality alone, for queries that have no other
    """

    codewords: Array
    n_owned: int
    n_doubt: int
    codebook: Codebook
    guesses: CodeSums
    content: Content | None
    content_sums: ContentSums
    n_regressed: int
    calibration: Calibration
    alone: Mapping[str, Calibration]

    @property
    def widths(self) -> dict[str, int]:
        # the last feature of a ridge is the constant
        return {name: ridge.n_features - 1 for name, ridge in self.ridges.items()}

    @property
    def n_content_bits(self) -> int:
        """Content bits of a code."""
        return len(self.content_sums.bits.B1)

    @property
    def code_matrices(self) -> dict[str, Array]:
        return {"codewords": self.codewords}

    def grown(self, label_sets: Iterable[Iterable[str]]) -> CodewordState:
        """Return the state that also knows the classes of these label sets; sums grow by zeros.

        Calibration sums from fewer classes lose weight: those predictions were easier.
        """
        labels = self.labels.grown(dict.fromkeys(chain.from_iterable(label_sets)))
        n = len(labels.names)
        share = len(self.codewords) / max(n, 1)
        ridges = {
            name: ridge.widened(self.n_content_targets(name) + n)
            for name, ridge in self.ridges.items()
        }
        return replace(
            self,
            labels=labels,
            ridges=ridges,
            calibration=self.calibration.faded(share),
            alone={name: each.faded(share) for name, each in self.alone.items()},
        )

    def with_calibration(
        self, label_sets: Sequence[tuple[str, ...]], labelled: Mask, rows: ChunkRows
    ) -> CodewordState:
        """Return the state that knows how well some samples of a new chunk are predicted."""
        # a label space may already have classes that the next chunk brings: they are not learned
        n_learned = len(self.codewords)
        known = set(self.classes[:n_learned])
        sampled = [label_sets[row] for row in evenly_spaced(np.flatnonzero(labelled), SAMPLES)]
        kept = [tuple(name for name in names if name in known) for names in sampled]
        if not any(kept):
            return self
        predictions, has = self.label_map.parts(rows.sample(SAMPLES, labelled))
        return self._calibrated(predictions, has, self.labels.indicator(kept)[:, :n_learned])

    def with_deltas(self, deltas: Mapping[str, float]) -> CodewordState:
        """Return the state with ridges of these strengths, before anything is regressed."""
        ridges = {name: replace(ridge, delta=deltas[name]) for name, ridge in self.ridges.items()}
        return replace(self, ridges=ridges)

    def with_deltas_by_sums(self, names: Iterable[str]) -> CodewordState:
        """Return the state in which the ridges of some modalities are chosen from their sums."""
        ridges = dict(self.ridges)
        for name in names:
            delta = ridge_by_sums(ridges[name], self.n_content_targets(name))
            if delta != ridges[name].delta:
                ridges[name] = ridges[name].with_delta(delta)
        return replace(self, ridges=ridges)

    def with_held_out(self, held: HeldOut) -> CodewordState:
        """Return the state that knows how well samples of its first chunk are predicted."""
        return self._calibrated(held.predictions, held.has, held.L, HELD_WEIGHT)

    def _calibrated(
        self,
        predictions: Mapping[str, Single],
        has: Mapping[str, Mask],
        L: sp.csr_array,
        most: float = np.inf,
    ) -> CodewordState:
        """Return the state that also knows how samples with labels L (n, c) were predicted.

        And which label bits they would have had without labels. Predictions are by each modality
        (n, c), with the rows that have it (n,).
        """
        label_map = self.label_map
        together = label_map.above_shares(label_map.combined(predictions, has))
        alone = {}
        for name, each in predictions.items():
            there, of_these = has[name], L
            if not there.all():
                rows = np.flatnonzero(there)
                each, there, of_these = each[rows], there[rows], L[rows]
            single = label_map.combined({name: each}, {name: there})
            alone[name] = self.alone[name].plus(label_map.above_shares(single), of_these, most)
        made = replace(self, calibration=self.calibration.plus(together, L, most), alone=alone)
        values = made.label_coder_of(label_map).of_predictions(predictions, has)
        return replace(made, guesses=self.guesses.plus(np.where(values > 0, 1.0, -1.0), L))

    def with_codewords(self, L: sp.csr_array, rng: np.random.Generator) -> CodewordState:
        """Return the state in which all classes of a chunk's labels L (n, c) have codewords."""
        if L.shape[1] == len(self.codewords):
            return self
        book = self.codebook
        grown = grown_codewords(
            self.codewords, book.counts, book.pairs.matrix(), L, self.n_owned, rng, self.n_doubt
        )
        return replace(self, codewords=grown)

    def with_content_bits(
        self, B: Array, label_sets: Sequence[tuple[str, ...]], sampled: Mapping[str, Matrix]
    ) -> CodewordState:
        """Return the state that knows the content bits of the samples of a chunk that it learned.

        Parameters
        ----------
        B : (n, r_c) as +1 and -1
        label_sets : of these n samples
        sampled : features of `SAMPLES` of those with labels, evenly spaced
        """
        L = self.labels.indicator(label_sets)[:, : len(self.codebook.counts)]
        sums = self.content_sums.plus(B, L)
        labelled = L[np.flatnonzero(np.diff(L.indptr))]
        if labelled.shape[0]:
            has = labelled[evenly_spaced(np.arange(labelled.shape[0]), SAMPLES)]
            values = self.content_map.project(sampled)
            sums = sums.measured(self.codebook.counts, values, has.toarray())
        return replace(self, content_sums=sums)

    def with_content(self, content: Content) -> CodewordState:
        """Return the state with these content bits, before anything is learned."""
        made = replace(self, content=content)
        ridges = {
            name: ridge.widened(made.n_content_targets(name)) for name, ridge in self.ridges.items()
        }
        return replace(made, ridges=ridges)

    def n_content_targets(self, name: str) -> int:
        """Return how many targets of a modality's ridge are content values of the others."""
        return 0 if self.content is None else self.content.without(name).n_values

    @property
    def content_targets(self) -> dict[str, OtherContent]:
        """Modality -> what gives the content values that its ridge predicts."""
        if self.content is None:
            return {}
        return {name: self.content.without(name) for name in self.ridges}

    @cached_property
    def class_vectors(self) -> Array:
        """Vectors of the classes in the label space, (c, n_features), of unit length."""
        return self.labels.vectors()

    @cached_property
    def class_words(self) -> Array:
        """Word vectors of the classes, (c, width), of unit length."""
        return np.asarray(unit_rows(self.labels.word_vectors))

    @cached_property
    def label_map(self) -> LabelMap:
        """What predicts labels.

        The part of a class that a modality explains is where its mean prediction over the samples
        of that class, computed from the sums, lies between the mean over all samples (0) and 1.
        """
        counts = np.maximum(self.codebook.counts, 1.0)
        shares = self.codebook.counts / max(self.codebook.bits.n, 1)
        explained, predictors = {}, {}
        for name, ridge in self.ridges.items():
            first = self.n_content_targets(name)
            W, BX = ridge.W[first:], ridge.BX[first:]
            means = np.vecdot(W, BX) / counts
            R = (means - shares) / np.maximum(1 - shares, 1e-9)
            explained[name] = np.clip(R, 0.0, MOST_EXPLAINED)
            predictors[name] = _with_intercept(name, W)
        return LabelMap(predictors, explained, shares)

    @cached_property
    def content_map(self) -> ContentMap:
        """What maps features to content values, predicted ones for missing modalities."""
        content = self.content or Content({})
        predictors, explained = {}, {}
        for name, ridge in self.ridges.items():
            n = self.n_content_targets(name)
            W, BX = ridge.W[:n], ridge.BX[:n]
            # targets have mean square 1, so the explained share is that of their number
            R = np.vecdot(W, BX) / max(self.n_regressed, 1)
            explained[name] = np.clip(R, 0.0, MOST_EXPLAINED)
            predictors[name] = _with_intercept(name, W)
        return ContentMap(content, predictors, explained)

    @cached_property
    def query_map(self) -> QueryMap:
        """The hash function."""
        others = self.n_owned + self.n_doubt
        n_learned = self.codewords.shape[1] - others
        learned = np.pad(self.codewords[:, :n_learned], ((0, 0), (0, others)))
        stored = self.codebook.stored(self.guesses, self.n_seen - self.codebook.bits.n)
        strange: dict[str, LinearMap] = {}
        novelty = None
        if self.content is not None:
            strange = {name: strangeness(name, ridge) for name, ridge in self.ridges.items()}
            novelty = self.content_sums.novelty(self.codebook.counts)
        return QueryMap(
            self.label_map,
            self.codebook.readout(learned, stored),
            stored.bits.covariance,
            self.content_map,
            self.content_sums.bits.shrunk_covariance(PRIOR_ROWS),
            self.content_sums.directions(self.codebook.counts),
            self._sureness,
            self.n_owned,
            self.n_doubt,
            strange,
            novelty,
        )

    def evidence(self, predictions: Single, has: Mapping[str, Mask]) -> Single:
        """Return how sure the strongest of predicted labels (n, c) of rows is, (n,).

        ``has`` says which rows have a modality, (n,). Without classes it is 1 for rows that have
        one of which samples were learned.
        """
        if not predictions.shape[1]:
            known = [rows for name, rows in has.items() if self.ridges[name].n_constant]
            none = np.zeros(len(predictions), dtype=np.bool_)
            any_known: Single = np.logical_or.reduce([none, *known]).astype(np.float32)
            return any_known
        # the calibration is monotone: the surest is the largest
        strongest: Single = self.sure(predictions, has).max(axis=1)
        return strongest

    def sure(self, predictions: Single, has: Mapping[str, Mask]) -> Single:
        """Return how sure each of predicted labels (n, c) is, from 0 to 1; ``has`` as above."""
        return self._sureness.of(self.label_map.above_shares(predictions), has)

    @property
    def _sureness(self) -> Sureness:
        return Sureness(self.calibration, self.alone)

    @cached_property
    def label_coder(self) -> LabelCoder:
        """What gives unlabelled samples that are stored their label bits."""
        return self.label_coder_of(self.label_map)

    def label_coder_of(self, label_map: LabelMap) -> LabelCoder:
        """Return the same for labels that ``label_map`` predicts."""
        return LabelCoder(label_map, self._sureness, self.codewords, self.n_owned, self.n_doubt)


def _with_intercept(name: str, W: Array) -> LinearMap:
    """Return the map of a regression on unit features and a constant, W (k, d + 1)."""
    return LinearMap({name: W[:, :-1]}, {name: -W[:, -1]}, normalize=True)
