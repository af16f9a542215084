"""The measures as data: seeded streams, what is stored, and questions with their answers.

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
>>> from oasis.experiments.beyond.material import load_material
>>> from oasis.experiments.beyond.protocols import QUICK, never_labelled
>>> episode = never_labelled(load_material("synthetic@600"), seed=0, sizes=QUICK)
>>> [len(rows) for rows in episode.rounds], len(episode.later[0]), len(episode.held_out)
([156, 156], 260, 20)
>>> [question.name for question in episode.questions]
['never-labelled', 'word', 'word-as-text']
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from oasis.arrays import Indicator, Rows
from oasis.datasets.dataset import Dataset
from oasis.errors import InputError
from oasis.experiments.beyond.episodes import FULL, QUICK, Episode, Question, Sizes
from oasis.experiments.beyond.material import Material

__all__ = [
    "FULL",
    "KINDS",
    "QUICK",
    "Episode",
    "Question",
    "Sizes",
    "across",
    "episode",
    "episodes",
    "finer",
    "labels",
    "never_labelled",
    "numbered",
    "unnamed",
    "why_not",
]


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


KINDS = ("labels", "finer", "across", "never-labelled", "unnamed")
"""The kinds of episodes."""

QUARTERS = 4
"""Episodes of the kind ``unnamed``."""


def numbered(sizes: Sizes = FULL) -> list[tuple[str, int]]:
    """Return kind and number of every episode of a seed.

    >>> numbered(QUICK)[:5]
    [('labels', 0), ('finer', 0), ('across', 0), ('never-labelled', 0), ('never-labelled', 1)]
    >>> numbered(QUICK)[5:]
    [('unnamed', 0), ('unnamed', 1), ('unnamed', 2), ('unnamed', 3)]
    """
    several = {"never-labelled": sizes.draws, "unnamed": QUARTERS}
    return [(kind, number) for kind in KINDS for number in range(several.get(kind, 1))]


def episode(
    material: Material, kind: str, number: int, seed: int, sizes: Sizes = FULL
) -> Episode | None:
    """Return one episode; None if the data set does not have it."""
    if kind == "labels":
        return labels(material, seed, sizes)
    if kind == "finer":
        return finer(material, seed, sizes)
    if kind == "across":
        return across(material, seed, sizes)
    if kind == "never-labelled":
        return never_labelled(material, seed, number, sizes)
    if kind == "unnamed":
        return unnamed(material, seed, number, sizes)
    raise InputError(f"unknown kind of episode {kind!r}; known are {', '.join(KINDS)}")


def why_not(material: Material, kind: str) -> str:
    """Return why a data set does not have a kind of episode."""
    name = material.dataset.name
    if kind == "finer":
        return f"{name} has no labels that are finer than others"
    if kind == "unnamed":
        return f"{name} has no features of other texts than its items'"
    if not material.text_modalities:
        return f"{name} has no modality that is made of a text"
    return f"{name} has only texts, so there are no items to search across modalities"


def episodes(material: Material, seed: int, sizes: Sizes = FULL) -> Iterator[Episode]:
    """Yield all episodes of a seed that the data set has."""
    for kind, number in numbered(sizes):
        found = episode(material, kind, number, seed, sizes)
        if found is not None:
            yield found


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
