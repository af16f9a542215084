"""Streams and questions beyond the labels, as data: what is stored, and questions with answers.

An episode is a stream and the questions that are asked after it. There are five kinds; `KINDS` has
the function of each.

``labels``
    All labels are given. Questions: items that share a label (the label measure, for comparison),
    and **the item itself** by a few words of its text or by its title.
``finer``
    Coarse labels are given. Questions: items that share a coarse label, and items that share a fine
    label. The second needs codes with more information than the given labels.
``never-labelled``
    A quarter of the classes is held out, and the stream is learned from items without these
    classes. Then items with held-out classes arrive without labels and are stored. Questions, with
    further such items as queries: items that share a held-out class (Sablayrolles, Douze, Usunier
    and Jegou 2017); and each held-out class **by its name**, among everything stored.
``unnamed``
    All items are in the stream, but a quarter of the classes is never given as a label. Question:
    each of these classes by its name, among everything stored. The four episodes of a seed divide
    the classes among them, so every class is asked for once.
``across``
    After the stream, items arrive that have neither labels nor a text. Question: each of them by
    its text.

Everything is determined by the material, the seed and the sizes.

Examples
--------
>>> found = episode(load_material("synthetic@600"), "never-labelled-0", seed=0, sizes=QUICK)
>>> [len(rows) for rows in found.rounds], len(found.later[0]), len(found.held_out)
([156, 156], 260, 20)
>>> [question.name for question in found.questions]
['never-labelled', 'word', 'word-as-text']
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from oasis.arrays import Indicator, Matrix, Rows
from oasis.datasets.coco import SUPER_CATEGORIES, super_category_of
from oasis.datasets.dataset import Dataset, label_indicator
from oasis.datasets.texts import Texts, meaning, texts_of, with_meaning
from oasis.errors import InputError
from oasis.experiments.task import load_dataset

N_WORDS = 3
"""Number of words of an item's text that form a query for it."""

QUARTERS = 4
"""Episodes of the kind ``unnamed``."""

LabelNames = list[tuple[str, ...]]
_TEXT_MODALITIES = ("text", "meaning")
_LEAST_OF_A_TERM = 2


@dataclass(frozen=True, eq=False)
class Grades:
    """Coarse labels, which are given to a learner, and finer labels, which are not; (n, c) each."""

    coarse: Indicator
    coarse_names: tuple[str, ...]
    fine: Indicator


@dataclass(frozen=True, eq=False)
class Material:
    """A data set, with the modalities that are used, its finer labels and its texts, if known."""

    dataset: Dataset
    grades: Grades | None
    texts: Texts | None

    @property
    def text_modalities(self) -> tuple[str, ...]:
        """The modalities that are computed from a text."""
        return tuple(name for name in _TEXT_MODALITIES if name in self.dataset.X)

    def text_features(self, texts: Sequence[str]) -> dict[str, Matrix] | None:
        """Return texts in every modality that is made of a text; None if it is not known how."""
        if self.texts is None or not self.text_modalities:
            return None
        make = {"text": self.texts.words, "meaning": meaning}
        return {name: make[name](texts) for name in self.text_modalities}

    def few_words(
        self, stored: Rows, n: int, rng: np.random.Generator
    ) -> tuple[Rows, dict[str, Matrix]]:
        """Draw stored items and return a query by words for each.

        A query is the item's title, or `N_WORDS` drawn from the words of its text.

        Returns
        -------
        positions of the items in ``stored``, and the queries; empty if no item has words
        """
        titles = () if self.texts is None else self.texts.titles
        words = self._word_rows()
        able = np.arange(0)
        if titles and self.text_modalities:
            able = np.arange(len(stored))
        elif words is not None and ("meaning" not in self.dataset.X or self.texts is not None):
            able = np.flatnonzero(np.diff(words.indptr)[stored] >= N_WORDS)
        items = rng.permutation(able)[:n]
        rows = stored[items]
        if titles and self.text_modalities:
            return items, self.text_features([titles[row] for row in rows]) or {}
        if words is None or not len(items):
            return items, {}
        of = [words.indices[words.indptr[row] : words.indptr[row + 1]] for row in rows]
        drawn = [np.sort(rng.choice(each, N_WORDS, replace=False)) for each in of]
        queries: dict[str, Matrix] = {}
        if "text" in self.dataset.X:
            ones = np.ones(N_WORDS * len(rows), dtype=np.float32)
            starts = np.arange(0, N_WORDS * len(rows) + 1, N_WORDS, dtype=np.int32)
            columns = np.concatenate(drawn).astype(np.int32)
            shape = len(rows), words.shape[1]
            queries["text"] = sp.csr_array((ones, columns, starts), shape=shape)
        if "meaning" in self.dataset.X and self.texts is not None:
            vocabulary = self.texts.vocabulary
            queries["meaning"] = meaning([" ".join(vocabulary[i] for i in each) for each in drawn])
        return items, queries

    def _word_rows(self) -> sp.csr_array | None:
        """Return which words each item's text has, if columns are words of a text."""
        if not self.text_modalities:
            return None
        if self.texts is not None and self.texts.vocabulary:
            return sp.csr_array(self.texts.words(self.texts.described))
        matrix = self.dataset.X.get("text")
        is_count = isinstance(matrix, sp.csr_array) and (matrix.data > 0).all()
        return matrix if is_count else None  # type: ignore[return-value]


def load_material(name: str, folder: Path | None = None, features: str = "own") -> Material:
    """Load a data set with its texts and finer labels.

    Parameters
    ----------
    name : as in `oasis.experiments.task`
    folder : folder of data files
    features : ``own``: the data set's modalities. Else names joined by ``+``, of those and
        ``meaning``: the meaning of each item's text by WordLlama, 256 values.

    Examples
    --------
    >>> load_material("synthetic@200").dataset.widths
    {'image': 1280, 'text': 1025}
    """
    return material_of(load_dataset(name, folder), folder, features)


def material_of(dataset: Dataset, folder: Path | None = None, features: str = "own") -> Material:
    """Return a loaded data set with its texts and finer labels; see `load_material`."""
    texts = texts_of(dataset, folder)
    picked = list(dataset.X) if features == "own" else features.split("+")
    if "meaning" in picked and "meaning" not in dataset.X:
        if texts is None:
            raise InputError(
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
    dataset = replace(dataset, X={each: dataset.X[each] for each in picked})
    return Material(dataset, _grades(dataset), texts)


def _grades(dataset: Dataset) -> Grades | None:
    known = {name for names in SUPER_CATEGORIES.values() for name in names}
    if known >= set(dataset.classes):
        of = super_category_of(dataset.classes)
        names = tuple(key for key in SUPER_CATEGORIES if key in of)
        coarse = [dataset.L[:, [each == name for each in of]].any(axis=1) for name in names]
        return Grades(np.stack(coarse, axis=1).astype(np.uint8), names, dataset.L)
    if dataset.name == "icons":
        sets = [text.split(", ") if text else [] for text in dataset.payload["terms"].tolist()]
        counts = Counter(term for each in sets for term in set(each))
        shared = sorted(term for term, n in counts.items() if n >= _LEAST_OF_A_TERM)
        kept = set(shared)
        fine = label_indicator([[term for term in each if term in kept] for each in sets], shared)
        return Grades(dataset.L, dataset.classes, fine)
    return None


@dataclass(frozen=True)
class Sizes:
    """How much of a data set is used; a smaller data set is used completely.

    Attributes
    ----------
    n_rounds, chunk : rounds of the stream, and samples per round
    n_queries : at most a tenth of the samples
    draws : of the classes that are never labelled
    across : numbers of items without a text, which are searched by their texts
    """

    n_rounds: int = 5
    chunk: int = 4000
    n_queries: int = 500
    draws: int = 5
    across: tuple[int, ...] = (1000, 5000)

    def queries_of(self, n_samples: int) -> int:
        """Return the number of queries for a number of samples."""
        return min(self.n_queries, n_samples // 10)

    def rounds_of(self, rows: Rows) -> tuple[Rows, ...]:
        """Divide rows into rounds of equal size."""
        size = min(self.chunk, len(rows) // self.n_rounds)
        if size < 1:
            raise InputError(f"{len(rows)} samples are too few for {self.n_rounds} rounds")
        return tuple(rows[t * size : (t + 1) * size] for t in range(self.n_rounds))

    def chunks_of(self, rows: Rows) -> tuple[Rows, ...]:
        """Divide rows into chunks of the size of a round; the last one may be smaller."""
        return tuple(np.split(rows, np.arange(self.chunk, len(rows), self.chunk)))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {**vars(self), "across": list(self.across)}


FULL = Sizes()
"""The sizes of the published tables: 5 rounds of 4,000, 500 queries, 5 draws."""

QUICK = Sizes(n_rounds=2, chunk=1000, n_queries=100, draws=2, across=(200, 1000))
"""A look in seconds."""


@dataclass(frozen=True, eq=False)
class Question:
    """A query set over stored items, with its relevant items.

    Attributes
    ----------
    name : of the question
    base : (n,) the stored items that are searched, as positions in order of storing
    X : features of the queries, of any of the modalities; None if they are class names
    names : class names as queries, for methods that answer them
    query_labels, base_labels : relevance by shared labels
    items : (q,) relevance of one item per query: its position in ``base``
    empty : why this data set does not have the question; then the other fields are empty
    """

    name: str
    base: Rows
    X: Mapping[str, Matrix] | None = None
    names: tuple[str, ...] = ()
    query_labels: Indicator | None = None
    base_labels: Indicator | None = None
    items: Rows | None = None
    empty: str = ""


@dataclass(frozen=True, eq=False)
class Episode:
    """A stream, what arrives after it without labels, and questions.

    Attributes
    ----------
    data : the data set, with its true labels
    rounds : rows to learn from, round by round
    questions : asked after everything is stored
    L, classes : the labels that the learner is given, of all rows
    later : rows that arrive afterwards, without labels, and are stored
    lacking : modalities that these lack: rows of zeros
    held_out : classes that no label set has
    """

    data: Dataset
    rounds: tuple[Rows, ...]
    questions: tuple[Question, ...]
    L: Indicator
    classes: tuple[str, ...]
    later: tuple[Rows, ...] = ()
    lacking: tuple[str, ...] = ()
    held_out: tuple[str, ...] = ()

    @property
    def stored(self) -> Rows:
        """Rows of everything stored, in order of storing."""
        return np.concatenate([*self.rounds, *self.later])

    @property
    def seen(self) -> Dataset:
        """The data set with the labels that the learner is given."""
        vectors = self.data.vectors
        if vectors is not None:
            known = all(name in vectors for name in self.classes)
            vectors = {name: vectors[name] for name in self.classes} if known else None
        return replace(self.data, L=self.L, classes=self.classes, vectors=vectors)

    def chunks(self, joined: bool = False) -> Iterator[tuple[dict[str, Matrix], LabelNames]]:
        """Yield X and y of each round, or of all ``joined``, and of what arrives afterwards."""
        seen = self.seen
        for rows in (np.concatenate(self.rounds),) if joined else self.rounds:
            yield seen.take(rows), seen.labels(rows)
        for rows in self.later:
            X = self.data.take(rows)
            given = {name: _zeros(x) if name in self.lacking else x for name, x in X.items()}
            yield given, [()] * len(rows)


def _zeros(matrix: Matrix) -> Matrix:
    if isinstance(matrix, sp.csr_array):
        return sp.csr_array(matrix.shape, dtype=matrix.dtype)
    return np.zeros_like(matrix)


def _labels(material: Material, seed: int, number: int, sizes: Sizes) -> Episode:
    rng = np.random.default_rng([seed, 0])
    data = material.dataset
    queries, rounds = _split(data, sizes, rng, data.L)
    stored = np.concatenate(rounds)
    base = np.arange(len(stored))
    shared = _by_label("labels", base, data.take(queries), data.L[queries], data.L[stored])
    items, X = material.few_words(stored, sizes.n_queries, rng)
    item = Question("item", base, X, items=items)
    if not len(items):
        item = Question("item", base, empty=f"{data.name} has no words to ask with")
    return Episode(data, rounds, (shared, item), data.L, data.classes)


def _finer(material: Material, seed: int, number: int, sizes: Sizes) -> Episode:
    data, grades = material.dataset, material.grades
    if grades is None:
        raise InputError(f"{data.name} has no labels that are finer than others")
    queries, rounds = _split(data, sizes, np.random.default_rng([seed, 1]), grades.fine)
    stored = np.concatenate(rounds)
    base, X = np.arange(len(stored)), data.take(queries)
    questions = tuple(
        _by_label(name, base, X, L[queries], L[stored])
        for name, L in (("coarse", grades.coarse), ("fine", grades.fine))
    )
    return Episode(data, rounds, questions, grades.coarse, grades.coarse_names)


def _never_labelled(material: Material, seed: int, draw: int, sizes: Sizes) -> Episode:
    data = material.dataset
    rng = np.random.default_rng([seed, 2, draw])
    n_held = max(1, round(len(data.classes) / 4))
    columns = np.sort(rng.permutation(len(data.classes))[:n_held])
    has = data.L[:, columns].any(axis=1)
    known = rng.permutation(np.flatnonzero(data.L.any(axis=1) & ~has))
    new = rng.permutation(np.flatnonzero(has))
    rounds = sizes.rounds_of(known)
    n_queries = sizes.queries_of(len(new))
    queries, later = new[:n_queries], new[n_queries:][: sizes.n_rounds * sizes.chunk]
    if not len(queries):
        raise InputError(
            f"{data.name} has {len(new)} items of {n_held} held-out classes, too few to ask with"
        )
    stored = np.concatenate([*rounds, later])
    question = _by_label(
        "never-labelled",
        np.arange(len(stored) - len(later), len(stored)),
        data.take(queries),
        data.L[queries][:, columns],
        data.L[later][:, columns],
    )
    L, classes, names = _without(data, columns)
    words = _words(material, names, data.L[stored][:, columns])
    chunks = sizes.chunks_of(later)
    return Episode(data, rounds, (question, *words), L, classes, chunks, held_out=names)


def _unnamed(material: Material, seed: int, quarter: int, sizes: Sizes) -> Episode:
    data = material.dataset
    rng = np.random.default_rng([seed, 4])
    columns = np.sort(rng.permutation(len(data.classes))[quarter::QUARTERS])
    rounds = sizes.rounds_of(rng.permutation(np.flatnonzero(data.L.any(axis=1))))
    L, classes, names = _without(data, columns)
    words = _words(material, names, data.L[np.concatenate(rounds)][:, columns])
    return Episode(data, rounds, words, L, classes, held_out=names)


def _across(material: Material, seed: int, number: int, sizes: Sizes) -> Episode:
    data, lacking = material.dataset, material.text_modalities
    if not lacking:
        raise InputError(f"{data.name} has no modality that is made of a text")
    if len(lacking) == len(data.X):
        raise InputError(f"{data.name} has only texts: there is no modality to search across")
    rng = np.random.default_rng([seed, 3])
    rows = rng.permutation(np.flatnonzero(data.L.any(axis=1)))
    # at most a third of the data set has no text
    counts = sorted({min(wanted, len(rows) // 3) for wanted in sizes.across})
    later, rounds = rows[: counts[-1]], sizes.rounds_of(rows[counts[-1] :])
    first = sum(map(len, rounds))
    questions = tuple(
        Question(
            f"across-{n}",
            np.arange(first, first + n),
            {name: data.X[name][later[:n]] for name in lacking},
            items=np.arange(n),
        )
        for n in counts
    )
    chunks = sizes.chunks_of(later)
    return Episode(data, rounds, questions, data.L, data.classes, chunks, lacking)


KINDS: Mapping[str, tuple[Callable[[Material, int, int, Sizes], Episode], int]] = {
    "labels": (_labels, 1),
    "finer": (_finer, 1),
    "across": (_across, 1),
    "never-labelled": (_never_labelled, 0),
    "unnamed": (_unnamed, QUARTERS),
}
"""Kind of episode -> the function that makes it, and how many there are of a seed (0: draws)."""


def numbered(sizes: Sizes = FULL) -> list[str]:
    """Return kind and number of every episode of a seed.

    >>> numbered(QUICK)[:5]
    ['labels-0', 'finer-0', 'across-0', 'never-labelled-0', 'never-labelled-1']
    >>> numbered(QUICK)[5:]
    ['unnamed-0', 'unnamed-1', 'unnamed-2', 'unnamed-3']
    """
    return [f"{kind}-{i}" for kind, (_, n) in KINDS.items() for i in range(n or sizes.draws)]


def episode(material: Material, name: str, seed: int, sizes: Sizes = FULL) -> Episode:
    """Return one episode, such as ``never-labelled-0``; raise if the data set does not have it."""
    kind, _, number = name.rpartition("-")
    if kind not in KINDS or not number.isdigit():
        raise InputError(f"unknown episode {name!r}; known are {', '.join(numbered(sizes))}")
    return KINDS[kind][0](material, seed, int(number), sizes)


def _split(
    data: Dataset, sizes: Sizes, rng: np.random.Generator, relevance: Indicator
) -> tuple[Rows, tuple[Rows, ...]]:
    """Draw queries among the rows that have relevant items, and divide the others into rounds."""
    rows = rng.permutation(np.flatnonzero(data.L.any(axis=1)))
    able = relevance[rows].any(axis=1)
    queries = rows[able][: sizes.queries_of(len(rows))]
    if not len(queries):
        raise InputError(f"{data.name} has {len(rows)} samples, too few to ask with")
    return queries, sizes.rounds_of(rows[~np.isin(rows, queries)])


def _without(data: Dataset, columns: Rows) -> tuple[Indicator, tuple[str, ...], tuple[str, ...]]:
    """Return labels and classes without those of some columns, and the names of these."""
    rest = np.setdiff1d(np.arange(len(data.classes)), columns)
    classes, held_out = (tuple(data.classes[i] for i in each) for each in (rest, columns))
    return np.ascontiguousarray(data.L[:, rest]), classes, held_out


def _by_label(
    name: str, base: Rows, X: Mapping[str, Matrix], labels: Indicator, base_labels: Indicator
) -> Question:
    return Question(name, base, X, query_labels=labels, base_labels=base_labels)


def _words(
    material: Material, names: tuple[str, ...], base_labels: Indicator
) -> tuple[Question, Question]:
    """Return the questions for classes by name: through the label space, and as a text."""
    base, relevant = np.arange(len(base_labels)), np.eye(len(names), dtype=np.uint8)
    by_name = Question("word", base, None, names, relevant, base_labels)
    X = material.text_features(names)
    if X is None:
        reason = f"{material.dataset.name} has no features of other texts than its items'"
        return by_name, Question("word-as-text", base, empty=reason)
    return by_name, _by_label("word-as-text", base, X, relevant, base_labels)
