"""Names of classes in queries: as queries of their own, in a text, and by their meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from oasis.arrays import Single, unit_rows
from oasis.codes import unpack
from oasis.collection.catalog.catalog import Catalog
from oasis.collection.catalog.class_postings import class_postings
from oasis.collection.catalog.setup import label_space
from oasis.collection.committed import Committed
from oasis.collection.search.lookups import learned
from oasis.collection.search.question import WEAK, Question
from oasis.collection.texts.fusion import QueryWords, trust_in
from oasis.collection.texts.phrases import kept_words
from oasis.collection.texts.shares import unknown_words
from oasis.collection.texts.vocabulary import Vocabulary
from oasis.collection.writing.intake import extract_queries
from oasis.errors import InputError, UnknownWordError
from oasis.features.extractor import Extractor
from oasis.features.words import stem
from oasis.model import OASIS, AnyModel
from oasis.model.hash_functions import Mask
from oasis.wordllama import word_vectors

NEAR = 0.55
"""Nearness from which on a text means nearly the same as the name of a class: a cosine of 0.385,
which 2 % of random words reach with one of 79 classes."""

UNKNOWN = 0.7
"""Share of the weight of a query's words: if words that no item has carry more, it is unknown."""

_CLASS_ITEMS = 1000
"""Items of a class, at most, whose codes stand for it where the model has not learned it."""


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
    fields = {
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
    X = extract_queries(extractor, items, [kept_words(name) for name in names])
    return model.project({modality: X[modality] for modality in fields}, 1.0)


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
            keys = class_postings(connection, number)[:_CLASS_ITEMS]
            _, codes = snapshot.replica.codes_of(catalog, connection, keys)
        if len(codes):
            means[row] = unpack(codes).mean(axis=0, dtype=np.float32)
    return means


def with_classes(
    snapshot: Committed, catalog: Catalog, vocabulary: Vocabulary, question: Question
) -> Question:
    """Add trust, and to the projection of a query that of the classes it names.

    Both projections have unit length, that of the query times its trust. A query that names none
    and is not trusted is compared with the names of classes by its meaning: "sofa" is near
    "furniture". A label space without words has no projections of names, and nothing is added.
    """
    model, evidence = learned(snapshot), question.evidence
    trust = None if evidence is None else trust_in(evidence)
    question = question._replace(trust=trust)
    if not label_space(model).has_words:
        return question
    projections = question.projections.copy()
    for row, asked in enumerate(question.words or ()):
        trusted = 1.0 if trust is None else float(trust[row])
        named = vocabulary.classes.named(snapshot.classes, asked.words)
        classes, share = _projection(snapshot, catalog, vocabulary, named), 1.0
        if classes is None and asked.words and trusted < 1:
            classes, share = near_classes(model, asked)
        if classes is None:
            continue
        both = unit_rows(np.stack([projections[row], classes]))
        projections[row] = np.float32(trusted) * both[0] + np.float32(share) * both[1]
        if trust is not None:
            trust[row] = max(trusted, share)
    return question._replace(projections=projections, trust=trust)


def _projection(
    snapshot: Committed, catalog: Catalog, vocabulary: Vocabulary, named: Sequence[str]
) -> Single | None:
    """Return the projection (n_bits,) of classes together; None without any."""
    if not named:
        return None
    model, commits = learned(snapshot), snapshot.head.commits
    known = set(model.classes_)
    parts: list[Single] = list(means_of_given(snapshot, catalog, named).values())
    project = model.project_words
    projected = [vocabulary.projection(commits, name, project) for name in named if name in known]
    if projected:
        parts.append(np.sum(projected, axis=0))
    if len(parts) < 2:
        return parts[0] if parts else None
    total: Single = np.asarray(unit_rows(np.stack(parts))).sum(axis=0)
    return total


def near_classes(model: AnyModel, asked: QueryWords) -> tuple[Single | None, float]:
    """Return the projection of a text by the classes that mean nearly the same, and how near.

    At least `NEAR`, see `OASIS.project_words_with_evidence`; None and 0 where none does.
    """
    if not isinstance(model, OASIS) or not label_space(model).has_words or not model.classes_:
        return None, 0.0
    names = [" ".join(asked.tokens)]
    try:
        nearness, evidence = model.nearness_of_words(names)
    except UnknownWordError:  # the words of the label space are a list without this one
        return None, 0.0
    near = float(evidence[0])
    return (model.project_nearness(nearness)[0], near) if near >= NEAR else (None, 0.0)


def with_words(
    snapshot: Committed,
    catalog: Catalog,
    vocabulary: Vocabulary,
    asked: Sequence[QueryWords],
    evidence: Single,
    *,
    keep_text: bool,
    text_only: Mask,
) -> Single:
    """Return the evidence of queries with that of their words.

    It is at least `WEAK` if the query names a class, or if the words that no item has in a text or
    label carry at most `UNKNOWN` of the weight of its words (`unknown_words`). Otherwise, if texts
    are kept, it is cubed, because the features of words that no item has are random to the model;
    and it is 0 for a query with nothing but a text, if the unknown words have no known meaning
    either, or if the model has no classes, on which evidence is calibrated. It is at least the
    nearness of the text to the name of a class, from `NEAR` on.

    Parameters
    ----------
    text_only : (n,), which queries have nothing but a text
    """
    evidence = evidence.copy()
    for row, query in enumerate(asked):
        if not query.words:
            continue
        with catalog.reading() as connection:
            unknown, share = unknown_words(
                connection, query, vocabulary, snapshot.classes, snapshot.head
            )
        if share <= UNKNOWN or vocabulary.classes.named(snapshot.classes, query.words):
            evidence[row] = max(evidence[row], WEAK)
            continue
        if keep_text:
            evidence[row] **= 3
        if evidence[row] < WEAK:
            evidence[row] = max(evidence[row], near_classes(learned(snapshot), query)[1])
        if keep_text and evidence[row] >= WEAK and text_only[row]:
            is_told = bool(learned(snapshot).classes_)
            evidence[row] *= is_told and not _are_noise(query, unknown)
    return evidence


def _are_noise(query: QueryWords, unknown: Sequence[str]) -> bool:
    """Return whether word vectors know none of the words of a query that no item has."""
    vectors = word_vectors()
    tokens = [token for token in query.tokens if stem(token) in unknown]
    return bool(tokens) and all(vectors.falls_apart(token) for token in tokens)
