"""What `OASIS` remembers of a stream, and the hash functions that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from oasis.arrays import Array, Matrix, Single, has_row, unit_rows
from oasis.errors import InputError
from oasis.model.base import ModelState
from oasis.model.calibration import Calibration, Sureness
from oasis.model.codewords import grown_codewords, sample_codes
from oasis.model.content import (
    ENOUGH_ROWS,
    PRIOR_ROWS,
    Content,
    ContentMap,
    check_guess,
    guessed_features,
    has_few_features,
    with_functions,
)
from oasis.model.file import check_shapes
from oasis.model.hash_functions import MOST_EXPLAINED, LabelMap, LinearMap, Mask
from oasis.model.query import LabelCoder, QueryMap, strangeness
from oasis.model.readout import BitSums, Codebook, CodeSums, for_hamming, unit_directions
from oasis.model.ridge import Ridge, with_constant

if TYPE_CHECKING:
    import scipy.sparse as sp


@dataclass(frozen=True)
class CodewordState(ModelState):
    """What `OASIS` remembers. A code has r_l label bits, then r_c content bits.

    ``ridges`` are over the samples with labels. The first targets of each are the content values of
    all other modalities, the others the classes. The last feature is a constant.

    Attributes
    ----------
    everything : modality name -> the same over all samples, without the classes; empty while it
        would be the same, and without content bits
    codewords : (c, r_l), what each class adds to the label bits of a code
    n_owned : so many of the label bits are owned by classes, the last ones; -1 before the first
        class where it follows from the number of classes
    codebook : sums of label bits and labels
    guesses : the same of samples as if they had no labels, see `oasis.model.readout`
    content : the functions of the content bits
    guessed : (257, 257), sums over guessed features with a constant while content bits of that
        modality are not made for good, else (0, 0)
    stored : sums over the stored codes of all samples, where there are content bits
    content_since : samples seen before the functions of the content bits were made for good
    calibration : how well samples were predicted before they were learned
    alone : modality name -> the same by that modality alone, for queries that have no other
    chosen : whether the strength of every ridge was chosen, as far as it is
    """

    everything: Mapping[str, Ridge]
    codewords: Array
    n_owned: int
    codebook: Codebook
    guesses: CodeSums
    content: Content
    guessed: Array
    stored: BitSums
    content_since: int
    calibration: Calibration
    alone: Mapping[str, Calibration]
    chosen: bool

    @property
    def widths(self) -> dict[str, int]:
        # the last feature of a ridge is the constant
        return {name: ridge.n_features - 1 for name, ridge in self.ridges.items()}

    def check(self) -> None:
        super().check()
        book, guesses, (c, r) = self.codebook, self.guesses, self.codewords.shape
        c_guessed, r_c = len(guesses.counts), self.n_content_bits
        shapes = {
            "BB": (book.bits.BB, (r, r)),
            "B1": (book.bits.B1, (r,)),
            "LB": (book.LB, (c, r)),
            "counts": (book.counts, (c,)),
            "guesses/BB": (guesses.bits.BB, (r, r)),
            "guesses/B1": (guesses.bits.B1, (r,)),
            "guesses/LB": (guesses.LB, (c_guessed, r)),
            "stored/BB": (self.stored.BB, (len(self.stored.B1),) * 2),
        }
        for each in (self.calibration, *self.alone.values()):
            check_shapes({"calibration": (each.sums, (8,))})
        for name, map_ in self.content.own.items():
            n, d = self.content.sizes[name], self.widths[name]
            shapes[f"content/{name}/P"] = (map_.weights[name], (n, d))
            shapes[f"content/{name}/o"] = (map_.offsets[name], (n,))
        for name, ridge in self.ridges.items():
            n = self.n_others(name)
            shapes[f"{name}/BX"] = (ridge.BX, (n + c, ridge.n_features))
            if self.everything:
                self.everything[name].check(name)
                BX = self.everything[name].BX
                shapes[f"everything/{name}/BX"] = (BX, (n, ridge.n_features))
        book.pairs.check(c)
        if r + r_c != self.parameters["n_bits"] or c > len(self.classes) or c_guessed > c:
            raise ValueError(f"{r} and {r_c} bits, {c} and {c_guessed} classes")
        check_guess(self.content.guess, self.widths)
        shapes["guessed"] = (self.guessed, (257, 257) if len(self.guessed) else (0, 0))
        check_shapes(shapes)
        sizes, known = self.content.sizes, self.ridges.keys()
        if sizes and (sum(sizes.values()) != r_c or not sizes.keys() <= known):
            raise ValueError(f"{sizes} content bits, expected {r_c}")
        if not -1 <= self.n_owned <= r or (self.everything and self.everything.keys() != known):
            raise ValueError(f"{self.n_owned} owned bits, regressions of {list(self.everything)}")

    @property
    def n_content_bits(self) -> int:
        """Content bits of a code."""
        return max(len(self.stored.B1) - int(self.codewords.shape[1]), 0)

    @property
    def n_labelled(self) -> int:
        """Samples learned with labels."""
        return self.codebook.bits.n

    @property
    def code_matrices(self) -> dict[str, Array]:
        return {"codewords": self.codewords}

    @property
    def of_all(self) -> Mapping[str, Ridge]:
        """The regressions over all samples, or over those with labels if there are no others."""
        return self.everything or self.ridges

    def with_modalities(self, widths: Mapping[str, int], delta: float) -> CodewordState:
        """Return the state that also knows these modalities, which no sample had so far."""
        new = [name for name in widths if name not in self.ridges]
        if not new:
            return self
        made = {}
        for name in new:
            n_targets = self.n_others(name) + len(self.codewords)
            made[name] = Ridge.zero(n_targets, widths[name] + 1, delta)
        more = {name: ridge.resized(self.n_others(name)) for name, ridge in made.items()}
        return replace(
            self,
            ridges={**self.ridges, **made},
            everything={**self.everything, **more} if self.everything else {},
            alone={**self.alone, **{name: Calibration.none() for name in new}},
        )

    def with_sizes(self, sizes: Mapping[str, int]) -> CodewordState:
        """Return the state whose modalities have so many content bits, of no function yet."""
        made = replace(
            self,
            content=replace(self.content, sizes=sizes, own={}, rows={}),
        )
        new = {name: np.full(made.n_others(name), -1) for name in self.ridges}
        ridges = {}
        for name, ridge in self.ridges.items():
            labels = np.arange(self.n_others(name), len(ridge.BX))
            ridges[name] = ridge.taking(np.append(new[name], labels))
        everything = {name: ridge.taking(new[name]) for name, ridge in self.everything.items()}
        return replace(made, ridges=ridges, everything=everything)

    def with_content(self, X: Mapping[str, Matrix], rng: np.random.Generator) -> CodewordState:
        """Return the state whose content functions are made from what has come, where it is time.

        That is in the first chunk that has a modality, and once more when `ENOUGH_ROWS` have come.

        Parameters
        ----------
        X : rows of unit length of the chunk that comes
        """
        content, made = self.content, []
        for name, x in content.completed(X).items():
            if not content.sizes.get(name) or content.rows.get(name, 0) >= ENOUGH_ROWS:
                continue
            past = self._past(name)
            n_new, n_before = int(np.count_nonzero(has_row(x))), past[-1, -1] if len(past) else 0
            first = name not in content.own
            if n_new and (first or n_new + n_before >= ENOUGH_ROWS):
                content = with_functions(content, name, x, past if n_before else None, rng)
                made.append(name)
        if not made:
            return self.with_guessed(X)
        state = replace(self, content=content, content_since=self.n_seen)
        for name in made:
            state = state._without_target(name)
        return state.with_guessed(X)

    def _past(self, name: str) -> Array:
        """Return X'X (d + 1, d + 1) of all earlier rows of a modality, guessed ones included."""
        ridge, guess = self.of_all[name], self.content.guess
        past = ridge.gram() if ridge.n_constant else np.zeros((0, 0))
        if guess is None or name != guess[1] or not len(self.guessed):
            return past
        return self.guessed + past if len(past) else self.guessed

    def with_guessed(self, X: Mapping[str, Matrix]) -> CodewordState:
        """Return the state that also has the sums over guessed features of rows X, while needed."""
        guess = self.content.guess
        if guess is None or not set(guess) <= X.keys():
            return self
        if self.content.rows.get(guess[1], 0) >= ENOUGH_ROWS:
            return replace(self, guessed=np.zeros((0, 0)))
        sums = _guessed_sums(X, *guess)
        return replace(self, guessed=self.guessed + sums if len(self.guessed) else sums)

    def _without_target(self, name: str) -> CodewordState:
        """Return the state whose regressions know no content values of a modality."""

        def cleared(ridges: Mapping[str, Ridge]) -> dict[str, Ridge]:
            return {
                k: ridge if k == name else ridge.cleared(self.content.without(k).place(name))
                for k, ridge in ridges.items()
            }

        return replace(self, ridges=cleared(self.ridges), everything=cleared(self.everything))

    def with_everything(self) -> CodewordState:
        """Return the state that also has regressions over all samples, before others come."""
        if self.everything:
            return self
        everything = {k: ridge.resized(self.n_others(k)) for k, ridge in self.ridges.items()}
        return replace(self, everything=everything)

    def grown(self, n_classes: int) -> CodewordState:
        """Return the state with so many classes; sums grow by zeros.

        Calibration sums from fewer classes lose weight: those predictions were easier.
        """
        share = len(self.codewords) / max(n_classes, 1)
        ridges = {
            name: ridge.resized(self.n_others(name) + n_classes)
            for name, ridge in self.ridges.items()
        }
        return replace(
            self,
            ridges=ridges,
            calibration=self.calibration.faded(share),
            alone={name: each.faded(share) for name, each in self.alone.items()},
        )

    def with_codewords(self, L: sp.csr_array, rng: np.random.Generator) -> CodewordState:
        """Return the state in which all classes of a chunk's labels L (n, c) have codewords."""
        if L.shape[1] == len(self.codewords):
            return self
        n_label, n_owned = self.codewords.shape[1], self.n_owned
        if n_owned < 0:
            n_owned = n_owned_for(n_label, L.shape[1])
        book = self.codebook
        grown = grown_codewords(self.codewords, book.counts, book.pairs.matrix(), L, n_owned, rng)
        return replace(self, codewords=grown, n_owned=n_owned)

    def with_predictions(
        self, predictions: Mapping[str, Single], has: Mapping[str, Mask], L: sp.csr_array
    ) -> CodewordState:
        """Return the state that also knows how samples with labels L (n, c) were predicted.

        And which label bits they would have had without labels. Predictions are by each modality
        (n, c), with the rows that have it (n,).
        """
        label_map = self.label_map
        together = label_map.above_usual(label_map.combined(predictions, has))
        alone = {}
        for name, each in predictions.items():
            rows = np.flatnonzero(has[name])
            there = np.ones(len(rows), dtype=np.bool_)
            single = label_map.combined({name: each[rows]}, {name: there})
            alone[name] = self.alone[name].plus(label_map.above_usual(single), L[rows])
        made = replace(self, calibration=self.calibration.plus(together, L), alone=alone)
        values = made.label_coder_of(label_map).of_predictions(predictions, has)
        return replace(made, guesses=self.guesses.plus(np.where(values > 0, 1.0, -1.0), L))

    def with_left_out(self, X: Mapping[str, Matrix], L: sp.csr_array) -> CodewordState:
        """Return the state that knows how samples that it learned would have been predicted.

        With ``h = x' (sum X'X + delta I)^-1 x`` the prediction of a regression that has not learned
        a sample is ``(p - h l) / (1 - h)``, with p the prediction of the one that has.

        Parameters
        ----------
        X : rows of unit length
        L : (n, c), their labels as 0 and 1
        """
        predictions, has = self.label_map.parts(X)
        wide = L.toarray()
        for name, p in predictions.items():
            h = np.minimum(self.ridges[name].leverages(with_constant(X[name])), 1 - 1e-6)[:, None]
            predictions[name] = ((p - h * wide) / (1 - h)).astype(np.float32)
        return self.with_predictions(predictions, has, L)

    def with_chosen_ridges(self, sampled: Mapping[str, Matrix]) -> CodewordState:
        """Return the state in which ridges of dense features are chosen, once label sets differ.

        ``sampled`` are rows of the chunk; words keep their ridge, as all have the same unit.
        """
        if self.chosen or not self.codebook.bits.covariance().any():
            return self
        ridges = {
            name: ridge if has_few_features(sampled[name]) else ridge.chosen(self.n_others(name))
            for name, ridge in self.ridges.items()
        }
        ready = all(ridge.may_be_chosen for ridge in ridges.values())
        return replace(self, ridges=ridges, chosen=ready)

    @property
    def unsettled(self) -> bool:
        """Whether content functions of a modality are still to be made for good."""
        return any(
            size and self.content.rows.get(name, 0) < ENOUGH_ROWS
            for name, size in self.content.sizes.items()
        )

    def without(
        self, X: Mapping[str, Matrix], label_sets: list[tuple[str, ...]], B: Array
    ) -> CodewordState:
        """Return the state without what some samples taught, see `OASIS.forget`.

        Parameters
        ----------
        X : checked features of the samples
        label_sets : the labels that they were learned with
        B : (n, r), their codes as +1 and -1
        """
        n, known = len(label_sets), set(self.classes[: len(self.codewords)])
        unknown = next((name for names in label_sets for name in names if name not in known), None)
        if unknown is not None:
            raise InputError(f"class {unknown!r} was never learned, so no sample of it can go")
        labelled = np.flatnonzero([bool(names) for names in label_sets])
        L = self.labels.indicator([label_sets[row] for row in labelled])[:, : len(self.codewords)]
        counts, book = np.asarray(L.sum(axis=0)).ravel(), self.codebook
        if n > self.n_seen or len(labelled) > self.n_labelled:
            raise InputError(f"{n} samples cannot go, {self.n_seen} were seen")
        if (counts > book.counts).any():
            over = int(np.argmax(counts - book.counts))
            raise InputError(
                f"{int(counts[over])} samples of class {self.classes[over]!r} cannot go, "
                f"{int(book.counts[over])} were learned"
            )
        units = {name: unit_rows(matrix) for name, matrix in X.items()}
        ridges, everything = dict(self.ridges), dict(self.everything)
        for name, x in units.items():
            T = self.content.without(name).values(units).astype(np.float64)
            rows = with_constant(x)
            if everything:
                everything[name] = everything[name].without(rows, T)
            if len(labelled):
                targets = np.hstack([T[labelled], L.toarray()])
                ridges[name] = ridges[name].without(rows[labelled], targets)
        guess, guessed = self.content.guess, self.guessed
        if guess is not None and len(guessed) and set(guess) <= X.keys():
            guessed = guessed - _guessed_sums(units, *guess)
        return replace(
            self,
            n_seen=self.n_seen - n,
            guessed=guessed,
            ridges=ridges,
            everything=everything,
            codebook=book.less(sample_codes(L, self.codewords), L),
            stored=self.stored.less(BitSums.of(B)) if self.n_content_bits else self.stored,
        )

    def with_content_of(
        self, X: Mapping[str, Matrix], labelled: Mask, before: Content
    ) -> CodewordState:
        """Return the state that learned the content of samples X, of which some are labelled (n,).

        ``before`` has the functions with which they were learned; what did not change is known.
        """
        units = {name: unit_rows(matrix) for name, matrix in X.items()}
        same = {name for name, map_ in self.content.own.items() if map_ is before.own.get(name)}
        ridges, everything = dict(self.ridges), dict(self.everything)
        for name, x in units.items():
            others = self.content.without(name)
            T = others.values(units).astype(np.float64)
            for each in others.own.keys() & same:
                T[:, others.place(each)] = 0
            if not T.any():
                continue
            rows, chosen = with_constant(x), np.flatnonzero(labelled)
            ridges[name] = ridges[name].with_targets(rows[chosen], T[chosen])
            if everything:
                everything[name] = everything[name].with_targets(rows, T)
        return replace(self, ridges=ridges, everything=everything)

    def n_others(self, name: str) -> int:
        """Return how many targets of a modality's ridge are content values of the others."""
        return self.content.without(name).n_values

    @property
    def content_targets(self) -> dict[str, Content]:
        """Modality -> what gives the content values that its ridge predicts."""
        return {name: self.content.without(name) for name in self.ridges if self.n_others(name)}

    @cached_property
    def label_map(self) -> LabelMap:
        """What predicts labels.

        The part of a class that a modality explains is where its mean prediction over the samples
        of that class, computed from the sums, lies between its mean over all items (0) and 1.
        """
        counts = self.codebook.counts
        explained, predictors, means, sizes = {}, {}, {}, {}
        for name, ridge in self.ridges.items():
            first = self.n_others(name)
            W, BX = ridge.W[first:], ridge.BX[first:]
            total, sizes[name] = counts, float(self.n_labelled)
            if self.everything:  # what is predicted of items without labels
                bare = self.everything[name].sum_of_rows() - ridge.sum_of_rows()
                total, sizes[name] = total + W @ bare, sizes[name] + max(float(bare[-1]), 0.0)
            means[name] = total / max(sizes[name], 1.0)
            own = np.vecdot(W, BX) / np.maximum(counts, 1.0)
            R = (own - means[name]) / np.maximum(1 - means[name], 1e-9)
            explained[name] = np.clip(R, 0.0, MOST_EXPLAINED)
            predictors[name] = _with_intercept(name, W)
        weights = list(sizes.values()) if sum(sizes.values()) else [1.0] * len(sizes)
        usual = np.average(list(means.values()), axis=0, weights=weights)
        return LabelMap(predictors, explained, means, usual)

    @cached_property
    def content_map(self) -> ContentMap:
        """What maps features to content values, predicted ones for missing modalities."""
        predictors, explained = {}, {}
        for name, ridge in self.of_all.items():
            n = self.n_others(name)
            W, BX = ridge.W[:n], ridge.BX[:n]
            # targets have mean square 1, so the explained share is that of their number
            R = np.vecdot(W, BX) / max(ridge.n_constant, 1)
            explained[name] = np.clip(R, 0.0, MOST_EXPLAINED)
            predictors[name] = _with_intercept(name, W)
        return ContentMap(self.content, predictors, explained)

    @cached_property
    def query_map(self) -> QueryMap:
        """The hash function."""
        book = self.codebook
        everything = book.stored(self.guesses, self.n_seen - self.n_labelled)
        D = book.readout(everything, self.codewords)
        strange: dict[str, LinearMap] = {}
        if self.n_content_bits:
            strange = {name: strangeness(name, ridge) for name, ridge in self.of_all.items()}
            covariance = self.stored.covariance(PRIOR_ROWS)
        else:
            covariance = everything.bits.covariance(PRIOR_ROWS)
            D = unit_directions(for_hamming(D, covariance))
        return QueryMap(
            self.label_map,
            D,
            book.responses(self.codewords),
            covariance,
            self.content_map,
            Sureness(self.calibration, self.alone),
            strange,
            self.n_content_bits,
        )

    @cached_property
    def label_coder(self) -> LabelCoder:
        """What gives unlabelled samples that are stored their label bits."""
        return self.label_coder_of(self.label_map)

    def label_coder_of(self, label_map: LabelMap) -> LabelCoder:
        """Return the same for labels that ``label_map`` predicts."""
        sureness = Sureness(self.calibration, self.alone)
        return LabelCoder(label_map, sureness, self.codewords, self.n_owned)


def n_owned_for(n_label: int, n_classes: int) -> int:
    """Return how many label bits are owned in a code for search by projections.

    Seven of ten, all but 9 from 88 on, where the first classes are at most two a bit; otherwise
    none: bits that many classes share are worse than learned ones.

    >>> n_owned_for(80, 79), n_owned_for(88, 20), n_owned_for(88, 400)
    (56, 79, 0)
    """
    if n_classes > 2 * n_label:
        return 0
    return n_label - 9 if n_label >= 88 else 7 * n_label // 10


def _guessed_sums(X: Mapping[str, Matrix], present: str, missing: str) -> Array:
    """Return the sums over guessed features, with a constant, of the rows that lack a modality."""
    bare = np.flatnonzero(~has_row(X[missing]) & has_row(X[present]))
    features = np.asarray(with_constant(guessed_features(X[present][bare])), np.float64)
    sums: Array = features.T @ features
    return sums


def _with_intercept(name: str, W: Array) -> LinearMap:
    """Return the map of a regression on unit features and a constant, W (k, d + 1)."""
    return LinearMap({name: W[:, :-1]}, {name: -W[:, -1]}, normalize=True)
