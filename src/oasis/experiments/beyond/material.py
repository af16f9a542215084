"""The input of the measures: a data set, the texts of its items, and finer labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from oasis.arrays import Indicator, Matrix, Rows
from oasis.datasets.coco import SUPER_CATEGORIES, super_category_of
from oasis.datasets.dataset import Dataset, label_indicator
from oasis.datasets.texts import Texts, meaning, texts_of, with_meaning
from oasis.errors import InputError
from oasis.experiments.run.definition import load_dataset

N_WORDS = 3
"""Number of words of an item's text that form a query for it."""

OWN = "own"
"""The data set's own modalities."""

_TEXT_MODALITIES = ("text", "meaning")
_LEAST_OF_A_TERM = 2


class NoTextsError(InputError):
    """The modality ``meaning`` was requested for a data set whose texts are not known."""


@dataclass(frozen=True, eq=False)
class Grades:
    """Coarse labels, which are given to a learner, and finer labels, which are not.

    Attributes
    ----------
    coarse, fine : (n, c) uint8
    coarse_names : tuple of str
        One for each column of ``coarse``.
    """

    coarse: Indicator
    coarse_names: tuple[str, ...]
    fine: Indicator


@dataclass(frozen=True, eq=False)
class Material:
    """A data set with its texts and finer labels.

    Attributes
    ----------
    dataset : Dataset
        With the modalities that are used.
    features : str
        Names of these: ``own``, or names joined by ``+``.
    grades : Grades or None
        None if there are no finer labels.
    texts : Texts or None
        None if the items' texts are not known.
    """

    dataset: Dataset
    features: str
    grades: Grades | None
    texts: Texts | None

    @property
    def text_modalities(self) -> tuple[str, ...]:
        """The modalities that are computed from a text."""
        return tuple(name for name in _TEXT_MODALITIES if name in self.dataset.X)

    def text_features(self, texts: Sequence[str]) -> dict[str, Matrix] | None:
        """Return the features of texts in every modality that is computed from a text.

        None if it is not known how to compute them.
        """
        if self.texts is None or not self.text_modalities:
            return None
        make = {"text": self.texts.words, "meaning": meaning}
        return {name: make[name](texts) for name in self.text_modalities}

    def described(self, rows: Rows) -> dict[str, Matrix]:
        """Return the text modalities of items, as stored."""
        return {name: self.dataset.X[name][rows] for name in self.text_modalities}

    def can_be_asked(self) -> Rows:
        """Return the items for which there is a query by words; may be empty.

        The query for an item is its title, or `N_WORDS` of its words if it has no title.
        """
        if not self.text_modalities:
            return np.zeros(0, dtype=np.int64)
        if self.texts is not None and self.texts.titles:
            return np.arange(self.dataset.n_samples)
        words = self._word_rows()
        if words is None or ("meaning" in self.dataset.X and self.texts is None):
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero(np.diff(words.indptr) >= N_WORDS)

    def few_words(self, rows: Rows, rng: np.random.Generator) -> dict[str, Matrix]:
        """Return queries for items: the title, or `N_WORDS` drawn from the words of their text."""
        if self.texts is not None and self.texts.titles:
            found = self.text_features([self.texts.titles[row] for row in rows])
            if found is None:
                raise InputError(f"{self.dataset.name} has no modality that is made of a text")
            return found
        words = self._word_rows()
        if words is None:
            raise InputError(f"{self.dataset.name} has no words to draw from")
        drawn = [
            np.sort(
                rng.choice(
                    words.indices[words.indptr[row] : words.indptr[row + 1]], N_WORDS, replace=False
                )
            )
            for row in rows
        ]
        queries: dict[str, Matrix] = {}
        if "text" in self.dataset.X:
            queries["text"] = sp.csr_array(
                (
                    np.ones(N_WORDS * len(rows), dtype=np.float32),
                    np.concatenate([*drawn, np.zeros(0, dtype=np.int32)]).astype(np.int32),
                    np.arange(0, N_WORDS * len(rows) + 1, N_WORDS, dtype=np.int32),
                ),
                shape=(len(rows), words.shape[1]),
            )
        if "meaning" in self.dataset.X and self.texts is not None:
            vocabulary = self.texts.vocabulary
            queries["meaning"] = meaning([" ".join(vocabulary[i] for i in each) for each in drawn])
        return queries

    def _word_rows(self) -> sp.csr_array | None:
        """Return which words each item's text has, if columns are words."""
        if self.texts is not None and self.texts.vocabulary:
            return sp.csr_array(self.texts.words(self.texts.described))
        matrix = self.dataset.X.get("text")
        if isinstance(matrix, sp.csr_array) and (matrix.data > 0).all():
            return matrix
        return None


def load_material(name: str, folder: Path | None = None, features: str = OWN) -> Material:
    """Load a data set with its texts and finer labels.

    Parameters
    ----------
    name : as in `oasis.experiments.run.definition`
    folder : folder of data files
    features : str
        ``own``: the data set's modalities. Else names joined by ``+``, of those and ``meaning``:
        the meaning of each item's text by WordLlama, 256 values.

    Examples
    --------
    >>> load_material("synthetic@200").dataset.widths
    {'image': 1280, 'text': 1025}
    """
    return material_of(load_dataset(name, folder), folder, features)


def material_of(dataset: Dataset, folder: Path | None = None, features: str = OWN) -> Material:
    """Return a loaded data set with its texts and finer labels; see `load_material`."""
    texts = texts_of(dataset, folder)
    picked = list(dataset.X) if features == OWN else features.split("+")
    if "meaning" in picked and "meaning" not in dataset.X:
        if texts is None:
            raise NoTextsError(
                f"the texts of {dataset.name} are not known, so they have no meaning; known are "
                "those of coco79, coco40k and icons"
            )
        dataset = with_meaning(dataset, texts)
    unknown = [each for each in picked if each not in dataset.X]
    if unknown:
        raise InputError(
            f"{dataset.name} has no modality {unknown[0]!r}; it has {', '.join(dataset.X)}, and "
            "meaning where texts are known"
        )
    # counted before modalities are removed: words are drawn from texts that may not be used
    dataset = replace(dataset, X={each: dataset.X[each] for each in picked})
    return Material(dataset, features, _grades(dataset), texts)


def _grades(dataset: Dataset) -> Grades | None:
    known = {name for names in SUPER_CATEGORIES.values() for name in names}
    if known >= set(dataset.classes):
        of = super_category_of(dataset.classes)
        names = tuple(key for key in SUPER_CATEGORIES if key in of)
        coarse = np.stack(
            [dataset.L[:, [each == name for each in of]].any(axis=1) for name in names], axis=1
        )
        return Grades(coarse.astype(np.uint8), names, dataset.L)
    if dataset.name == "icons":
        sets = [text.split(", ") if text else [] for text in dataset.payload["terms"].tolist()]
        counts: dict[str, int] = {}
        for each in sets:
            for term in set(each):
                counts[term] = counts.get(term, 0) + 1
        shared = sorted(term for term, n in counts.items() if n >= _LEAST_OF_A_TERM)
        kept = set(shared)
        fine = label_indicator([[term for term in each if term in kept] for each in sets], shared)
        return Grades(dataset.L, dataset.classes, fine)
    return None
