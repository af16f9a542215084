"""Streams and questions beyond the labels, as data: what is stored, and questions with answers.

An episode is a stream and the questions that are evaluated after it. There are five kinds.

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
>>> episode = never_labelled(load_material("synthetic@600"), seed=0, sizes=QUICK)
>>> [len(rows) for rows in episode.rounds], len(episode.later[0]), len(episode.held_out)
([156, 156], 260, 20)
>>> [question.name for question in episode.questions]
['never-labelled', 'word', 'word-as-text']
"""

from __future__ import annotations

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


@dataclass(frozen=True)
class Sizes:
    """How much of a data set is used; a smaller data set is used completely.

    Attributes
    ----------
    n_rounds, chunk : int
        Rounds of the stream, and samples per round.
    n_queries : int
        Number of queries; at most a tenth of the samples.
    draws : int
        Number of draws of the classes that are never labelled.
    across : tuple of int
        Numbers of items without a text, which are searched by their texts.
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

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {**vars(self), "across": list(self.across)}


FULL = Sizes()
"""The sizes of the published tables: 5 rounds of 4,000, 500 queries, 5 draws."""

QUICK = Sizes(n_rounds=2, chunk=1000, n_queries=100, draws=2, across=(200, 1000))
"""A look in seconds."""


@dataclass(frozen=True, eq=False)
class Question:
    """A query set over everything stored, with its relevant items.

    Attributes
    ----------
    name : str
    base : (n,) int64
        The stored items that are searched, as positions in order of storing.
    X : mapping or None
        Features of the queries; any of the modalities. None if the queries are class names.
    names : tuple of str
        Class names as queries, for methods that support them.
    query_labels, base_labels : indicators or None
        Relevance by shared labels: labels of queries and base.
    items : (n_queries,) int64 or None
        Relevance of one item per query: its position in ``base``.
    empty : str
        Why this data set does not have the question; then the other fields are empty.
    """

    name: str
    base: Rows
    X: Mapping[str, Matrix] | None = None
    names: tuple[str, ...] = ()
    query_labels: Indicator | None = None
    base_labels: Indicator | None = None
    items: Rows | None = None
    empty: str = ""

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        if self.items is not None:
            return len(self.items)
        return 0 if self.query_labels is None else len(self.query_labels)


@dataclass(frozen=True, eq=False)
class Episode:
    """A stream, what arrives after it without labels, and questions.

    Attributes
    ----------
    kind, number : kind of the episode, and which draw of it
    material : Material
    rounds : tuple of (n_t,) int64
        Rows of the data set to learn from, round by round.
    L, classes : the labels that the learner is given, of all rows of the data set
    later : tuple of (n_t,) int64
        Rows that arrive afterwards, without labels, and are stored.
    lacking : tuple of str
        Modalities that these rows lack: rows of zeros.
    questions : tuple of Question
    held_out : tuple of str
        Classes that no label set has.
    """

    kind: str
    number: int
    material: Material
    rounds: tuple[Rows, ...]
    L: Indicator
    classes: tuple[str, ...]
    questions: tuple[Question, ...]
    later: tuple[Rows, ...] = ()
    lacking: tuple[str, ...] = ()
    held_out: tuple[str, ...] = ()

    @property
    def n_learned(self) -> int:
        """Number of samples that are learned from; later ones are stored after them."""
        return sum(map(len, self.rounds))

    @property
    def stored(self) -> Rows:
        """Rows of everything stored, in order of storing."""
        return np.concatenate([*self.rounds, *self.later])

    @property
    def seen(self) -> Dataset:
        """The data set with the labels that the learner is given."""
        data, vectors = self.material.dataset, self.material.dataset.vectors
        if vectors is not None:
            known = all(name in vectors for name in self.classes)
            vectors = {name: vectors[name] for name in self.classes} if known else None
        return replace(data, L=self.L, classes=self.classes, vectors=vectors)

    def joined(self) -> Episode:
        """Return the same episode with all learned samples in one round."""
        return replace(self, rounds=(np.concatenate(self.rounds),))

    def learned_chunks(self) -> Iterator[tuple[dict[str, Matrix], LabelNames]]:
        """Yield X and y of each round."""
        seen = self.seen
        for rows in self.rounds:
            yield seen.take(rows), seen.labels(rows)

    def later_chunks(self) -> Iterator[tuple[dict[str, Matrix], LabelNames]]:
        """Yield X and y of the samples that arrive afterwards; no label is given."""
        for rows in self.later:
            X = self.material.dataset.take(rows)
            given = {name: _zeros(x) if name in self.lacking else x for name, x in X.items()}
            yield given, [()] * len(rows)


def _zeros(matrix: Matrix) -> Matrix:
    if isinstance(matrix, sp.csr_array):
        return sp.csr_array(matrix.shape, dtype=matrix.dtype)
    return np.zeros_like(matrix)


def labels(material: Material, seed: int, sizes: Sizes = FULL) -> Episode:
    """Return the stream with all labels: items that share one, and the item itself."""
    rng = _rng(seed, 0)
    data = material.dataset
    queries, rounds = _split(material, sizes, rng, data.L)
    stored = np.concatenate(rounds)
    base = np.arange(len(stored))
    shared = Question(
        "labels",
        base,
        data.take(queries),
        query_labels=data.L[queries],
        base_labels=data.L[stored],
    )
    item = _item(material, stored, sizes, rng)
    return Episode("labels", 0, material, rounds, data.L, data.classes, (shared, item))


def finer(material: Material, seed: int, sizes: Sizes = FULL) -> Episode | None:
    """Return the stream with coarse labels; None if a data set has no finer ones."""
    grades = material.grades
    if grades is None:
        return None
    queries, rounds = _split(material, sizes, _rng(seed, 1), grades.fine)
    stored = np.concatenate(rounds)
    base, X = np.arange(len(stored)), material.dataset.take(queries)
    asked = tuple(
        Question(name, base, X, query_labels=L[queries], base_labels=L[stored])
        for name, L in (("coarse", grades.coarse), ("fine", grades.fine))
    )
    return Episode("finer", 0, material, rounds, grades.coarse, grades.coarse_names, asked)


def never_labelled(material: Material, seed: int, draw: int = 0, sizes: Sizes = FULL) -> Episode:
    """Return a stream without a quarter of the classes, which arrive afterwards unlabelled."""
    data = material.dataset
    rng = _rng(seed, 2, draw)
    n_held = max(1, round(len(data.classes) / 4))
    columns = np.sort(rng.permutation(len(data.classes))[:n_held])
    has = data.L[:, columns].any(axis=1)
    labelled = data.L.any(axis=1)
    known = rng.permutation(np.flatnonzero(labelled & ~has))
    new = rng.permutation(np.flatnonzero(has))
    rounds = sizes.rounds_of(known)
    n_queries = sizes.queries_of(len(new))
    queries, later = new[:n_queries], new[n_queries:][: sizes.n_rounds * sizes.chunk]
    if not len(queries):
        raise InputError(
            f"{data.name} has {len(new)} items of {n_held} held-out classes, too few to ask with"
        )
    n_learned = sum(map(len, rounds))
    stored = np.concatenate([*rounds, later])
    given, names = _without(data, columns)
    question = Question(
        "never-labelled",
        np.arange(n_learned, len(stored)),
        data.take(queries),
        query_labels=data.L[queries][:, columns],
        base_labels=data.L[later][:, columns],
    )
    words = _words(material, names, data.L[stored][:, columns])
    cuts = np.arange(sizes.chunk, len(later), sizes.chunk)
    return Episode(
        "never-labelled",
        draw,
        material,
        rounds,
        *given,
        questions=(question, *words),
        later=tuple(np.split(later, cuts)),
        held_out=names,
    )


def unnamed(material: Material, seed: int, quarter: int = 0, sizes: Sizes = FULL) -> Episode | None:
    """Return a stream in which a quarter of the classes, 0 to 3, is never given as a label.

    None if a name cannot be a text.
    """
    data = material.dataset
    if material.text_features(data.classes[:1]) is None:
        return None
    rng = _rng(seed, 4)
    columns = np.sort(rng.permutation(len(data.classes))[quarter::QUARTERS])
    rounds = sizes.rounds_of(rng.permutation(np.flatnonzero(data.L.any(axis=1))))
    given, names = _without(data, columns)
    words = _words(material, names, data.L[np.concatenate(rounds)][:, columns])
    return Episode(
        "unnamed", quarter, material, rounds, *given, questions=tuple(words), held_out=names
    )


def across(material: Material, seed: int, sizes: Sizes = FULL) -> Episode | None:
    """Return a stream after which items without a text arrive, which are searched by their texts.

    None if a data set has no text, or only texts.
    """
    data = material.dataset
    lacking = material.text_modalities
    if not lacking or len(lacking) == len(data.X):
        return None
    rng = _rng(seed, 3)
    rows = rng.permutation(np.flatnonzero(data.L.any(axis=1)))
    counts = _across_counts(len(rows), sizes)
    later, rounds = rows[: counts[-1]], sizes.rounds_of(rows[counts[-1] :])
    n_learned = sum(map(len, rounds))
    asked = tuple(
        Question(
            f"across-{n}",
            np.arange(n_learned, n_learned + n),
            material.described(later[:n]),
            items=np.arange(n),
        )
        for n in counts
    )
    cuts = np.arange(sizes.chunk, len(later), sizes.chunk)
    return Episode(
        "across",
        0,
        material,
        rounds,
        data.L,
        data.classes,
        asked,
        later=tuple(np.split(later, cuts)),
        lacking=lacking,
    )


KINDS: Mapping[str, tuple[Callable[..., Episode | None], int]] = {
    "labels": (lambda material, seed, number, sizes: labels(material, seed, sizes), 1),
    "finer": (lambda material, seed, number, sizes: finer(material, seed, sizes), 1),
    "across": (lambda material, seed, number, sizes: across(material, seed, sizes), 1),
    "never-labelled": (never_labelled, 0),
    "unnamed": (unnamed, QUARTERS),
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
    found = KINDS[kind][0](material, seed, int(number), sizes)
    if found is None:
        raise InputError(_why_not(material, kind))
    return found


def _why_not(material: Material, kind: str) -> str:
    name = material.dataset.name
    if kind == "finer":
        return f"{name} has no labels that are finer than others"
    if kind == "unnamed":
        return f"{name} has no features of other texts than its items'"
    if not material.text_modalities:
        return f"{name} has no modality that is made of a text"
    return f"{name} has only texts, so there are no items to search across modalities"


def _rng(seed: int, *kind: int) -> np.random.Generator:
    return np.random.default_rng([seed, *kind])


def _split(
    material: Material, sizes: Sizes, rng: np.random.Generator, relevance: Indicator
) -> tuple[Rows, tuple[Rows, ...]]:
    """Draw queries among the rows that have relevant items, and divide the others into rounds."""
    rows = rng.permutation(np.flatnonzero(material.dataset.L.any(axis=1)))
    able = relevance[rows].any(axis=1)
    queries = rows[able][: sizes.queries_of(len(rows))]
    if not len(queries):
        raise InputError(f"{material.dataset.name} has {len(rows)} samples, too few to ask with")
    return queries, sizes.rounds_of(rows[~np.isin(rows, queries)])


def _without(
    data: Dataset, columns: Rows
) -> tuple[tuple[Indicator, tuple[str, ...]], tuple[str, ...]]:
    """Return labels and classes without those of some columns, and the names of these."""
    rest = np.setdiff1d(np.arange(len(data.classes)), columns)
    classes = tuple(data.classes[column] for column in rest)
    held_out = tuple(data.classes[column] for column in columns)
    return (np.ascontiguousarray(data.L[:, rest]), classes), held_out


def _item(material: Material, stored: Rows, sizes: Sizes, rng: np.random.Generator) -> Question:
    base = np.arange(len(stored))
    able = np.flatnonzero(np.isin(stored, material.can_be_asked()))
    if not len(able):
        return Question("item", base, empty=f"{material.dataset.name} has no words to ask with")
    items = rng.permutation(able)[: sizes.n_queries]
    return Question("item", base, material.few_words(stored[items], rng), items=items)


def _words(material: Material, names: tuple[str, ...], base_labels: Indicator) -> list[Question]:
    """Return the questions for classes by name: through the label space, and as a text."""
    base = np.arange(len(base_labels))
    relevant = np.eye(len(names), dtype=np.uint8)
    by_name = Question("word", base, names=names, query_labels=relevant, base_labels=base_labels)
    X = material.text_features(names)
    as_text = Question("word-as-text", base, X, query_labels=relevant, base_labels=base_labels)
    if X is None:
        reason = f"{material.dataset.name} has no features of other texts than its items'"
        as_text = Question("word-as-text", base, empty=reason)
    return [by_name, as_text]


def _across_counts(n_samples: int, sizes: Sizes) -> list[int]:
    """Return the numbers of items without a text; at most a third of the data set."""
    return sorted({min(wanted, n_samples // 3) for wanted in sizes.across})
