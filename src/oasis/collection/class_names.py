"""Names of classes in queries: as queries of their own, in a text, and by their meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from oasis.arrays import Single, unit_rows
from oasis.codes import unpack
from oasis.collection.catalog import Catalog
from oasis.collection.class_members import class_members
from oasis.collection.committed import Committed, learned
from oasis.collection.intake import extract_queries
from oasis.collection.setup import label_space
from oasis.errors import InputError, UnknownWordError
from oasis.features.extractor import Extractor
from oasis.features.words import tokens_of, words_of
from oasis.model import OASIS, AnyModel

NEAR = 0.55
"""Nearness from which on a text means nearly the same as the name of a class: a cosine of 0.385,
which 2 % of random words reach with one of 79 classes."""

_CLASS_ITEMS = 1000
"""Items of a class, at most, whose codes stand for it where the model has not learned it."""


def stems_of(text: str) -> frozenset[str]:
    """Return the stems of a text by which it names classes; stop words where it has no others.

    >>> sorted(stems_of("The dogs and a dog")), sorted(stems_of("The Who"))
    (['dog'], ['the', 'who'])
    """
    stems = words_of(text, letters=True) or words_of(text, stop_words=False, letters=True)
    return frozenset(stems or tokens_of(text))


class ClassNames:
    """The words of class names, and projections of names; follows a list that grows.

    Attributes
    ----------
    words : all words of the names, as they are written
    """

    def __init__(self) -> None:
        self.words: frozenset[str] = frozenset()
        self._known: tuple[list[frozenset[str]], dict[str, tuple[int, ...]]] = ([], {})
        self._projections: tuple[int, dict[str, Single]] = (-1, {})

    def follow(self, names: Sequence[str]) -> None:
        """Take up the names that are new."""
        stems, having = self._known
        start, stop = len(stems), len(names)  # once: a writer may append to the names meanwhile
        if start >= stop:
            return
        new = [stems_of(names[number]) for number in range(start, stop)]
        more = dict(having)
        for number, own in enumerate(new, start):
            for stem in own:
                more[stem] = (*more.get(stem, ()), number)
        # replaced, not changed: other threads may be reading them
        self.words |= {word for name in names[start:stop] for word in tokens_of(name)}
        self._known = stems + new, more

    def named(self, text: str) -> frozenset[int]:
        """Return the numbers of the classes that a text names: it has all words of the name."""
        asked, (stems, having) = stems_of(text), self._known
        found = {number for stem in asked for number in having.get(stem, ())}
        return frozenset(number for number in found if stems[number] <= asked)

    def projection(self, commits: int, name: str, project: Callable[[list[str]], Single]) -> Single:
        """Return the projection (n_bits,) of a name; kept until the next commit."""
        if self._projections[0] != commits:
            self._projections = (commits, {})
        kept = self._projections[1]
        if name not in kept:
            kept[name] = project([name])[0]
        return kept[name]


class Meant(NamedTuple):
    """The classes that a text means: their projection (n_bits,), and how near they are."""

    projection: Single
    nearness: float


def meant_classes(
    snapshot: Committed,
    catalog: Catalog,
    names: ClassNames,
    text: str,
    numbers: Iterable[int],
    *,
    named_only: bool,
) -> Meant | None:
    """Return the classes that a text names, those ``numbers``, or that mean nearly the same.

    None where there are none, or where the label space has no words.
    """
    model = learned(snapshot)
    if not label_space(model).has_words:
        return None
    named = [snapshot.classes[number] for number in sorted(numbers)]
    if not named:
        return None if named_only else _near_classes(model, text)
    known = set(model.classes_)
    parts = list(means_of_given(snapshot, catalog, named).values())
    projected = [
        names.projection(snapshot.head.commits, name, model.project_words)
        for name in named
        if name in known
    ]
    if projected:
        parts.append(np.sum(projected, axis=0))
    if not parts:
        return None
    return Meant(np.asarray(unit_rows(np.stack(parts))).sum(axis=0), 1.0)


def _near_classes(model: AnyModel, text: str) -> Meant | None:
    """Return the classes that mean nearly the same as a text: at least `NEAR`."""
    if not isinstance(model, OASIS) or not model.classes_:
        return None
    try:
        nearness, near = model.nearness_of_words([" ".join(tokens_of(text))])
    except UnknownWordError:  # the words of the label space are a list without this one
        return None
    if near[0] < NEAR:
        return None
    return Meant(model.project_nearness(nearness)[0], float(near[0]))


def project_names(model: AnyModel, names: Any) -> tuple[Single, Single]:
    """Return projections of names, and how near each is to a class, 1 if that is not known."""
    if isinstance(names, list) and not names:
        return np.empty((0, model.n_bits), dtype=np.float32), np.empty(0, dtype=np.float32)
    if isinstance(model, OASIS):
        return model.project_words_with_evidence(names)
    projections = model.project_words(names)
    return projections, np.ones(len(projections), dtype=np.float32)


def project_as_texts(model: OASIS, extractor: Extractor, names: Sequence[str]) -> Single:
    """Return the projections (n, n_bits) of names as texts, by content alone."""
    fields: Mapping[str, str] = {
        modality: field
        for modality, (field, embedder) in extractor.sources.items()
        if embedder.takes == "text"
    }
    if not fields:
        raise InputError(
            "content weighs a name as a text, but this collection makes no features of texts; "
            "leave it out"
        )
    if not names:
        return np.empty((0, model.n_bits), dtype=np.float32)
    items = [dict.fromkeys(fields.values(), name) for name in names]
    X = extract_queries(extractor, items, [bool(tokens_of(name)) for name in names], fields)
    return model.project(X, 1.0)


def means_of_given(
    snapshot: Committed, catalog: Catalog, names: Sequence[Any]
) -> dict[int, Single]:
    """Return mean codes of classes that the model has not learned, by their places in names.

    Of up to 1,000 items each: a class that items have by `update` alone.
    """
    learned_names = learned(snapshot).classes_
    means: dict[int, Single] = {}
    for row, name in enumerate(names):
        if name in learned_names or name not in snapshot.classes:
            continue
        number = snapshot.classes.index(name)
        with catalog.reading() as connection:
            keys = class_members(connection, number, _CLASS_ITEMS)
            _, codes = snapshot.replica.codes_of(catalog, connection, keys)
        if len(codes):
            means[row] = unpack(codes).mean(axis=0, dtype=np.float32)
    return means
