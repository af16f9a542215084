"""Why an item has its score for a query: parts that sum to the log-odds of the score.

The score is ``1 - prod (1 - p)`` over the four terms p of `oasis.collection.ranking`. What one term
adds to the log-odds depends on what is there already, so it is the mean over all orders in which
the four can be taken (its Shapley value). The terms are divided further:

- ``kind`` into label bits and content bits, by what each adds to the agreement of code and query;
  label bits among the classes of the item, by what query and code have of each,
- ``words`` among the words, by their BM25; it is that of the whole text where a line equals it.
"""

from __future__ import annotations

import math
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np

from oasis.arrays import Array
from oasis.codes import unpack
from oasis.collection.committed import learned
from oasis.collection.ranking import MAX_WORDS, Query, Search
from oasis.collection.records import Explanation, Part
from oasis.collection.rows import ItemRow, label_numbers
from oasis.collection.words import word_scores
from oasis.model import OASIS

LEAST = 0.001
"""Scores from here to 1 less this are told apart by their log-odds."""

_Found: TypeAlias = defaultdict[tuple[Any, str], float]
"""Log-odds by source and what it is of."""


def explanation(search: Search, query: Query, row: ItemRow, fields: Sequence[str]) -> Explanation:
    """Return why an item has its score; ``fields`` are those that the query has."""
    key = np.array([row.key], dtype=np.int64)
    with search.catalog.reading() as connection:
        matches, equal = search.by_words(connection, query, key)
        parts = search.parts(connection, query, key, matches, equal)
        if not len(parts.keys):
            return Explanation(row.id, 0.0, log_odds(0), log_odds(0), ())
        terms = [float(term[0]) for term in (parts.kind, parts.words, parts.meaning, parts.same)]
        kind, words, meaning, same = added(terms)
        found: _Found = defaultdict(float)
        _divide_kind(found, kind, search, query, row, " and ".join(fields))
        if row.key in equal:
            found["words", query.text] += words
        else:
            _divide_words(found, words, search, connection, query, row)
    found["meaning", ""] += meaning
    found["same", ""] += same
    score = 1 - float(parts.left[0])
    total = sum(found.values())
    ordered = sorted(found.items(), key=lambda each: -each[1])
    listed = [Part(*of, each, each / total) for of, each in ordered if each > 0]
    return Explanation(row.id, score, log_odds(score), log_odds(0), tuple(listed))


def log_odds(score: float) -> float:
    """Return log(p / (1 - p)) of a score between 0.001 and 0.999.

    >>> log_odds(0.5), round(log_odds(1.0), 2)
    (0.0, 6.91)
    """
    score = min(max(score, LEAST), 1 - LEAST)
    return math.log(score / (1 - score))


def added(terms: Sequence[float]) -> list[float]:
    """Return what each term adds to the log-odds of ``1 - prod (1 - p)``, from 0.001 on.

    >>> added([0.0, 0.5, 0.5])[0]
    0.0
    >>> bool(np.isclose(sum(added([0.3, 0.5])), log_odds(0.65) - log_odds(0)))
    True
    """
    n = len(terms)

    def told(some: Sequence[int]) -> float:
        return log_odds(1 - math.prod(1 - terms[i] for i in some))

    found = []
    for i in range(n):
        others = [j for j in range(n) if j != i]
        found.append(
            sum(
                (told([*some, i]) - told(some)) / (n * math.comb(n - 1, size))
                for size in range(n)
                for some in combinations(others, size)
            )
        )
    return found


def _divide_kind(
    found: _Found, log_odds: float, search: Search, query: Query, row: ItemRow, fields: str
) -> None:
    """Divide what codes tell among classes and content."""
    model, names = learned(search.snapshot), search.snapshot.classes
    signs = unpack(np.frombuffer(row.code, dtype=np.uint8)[None])[0].astype(np.float64)
    n_content = model.n_content_bits if isinstance(model, OASIS) else 0
    agreed = np.maximum(_sums(query.projection * signs, n_content), 0)
    by_label, by_content = log_odds * agreed / (agreed.sum() or 1)
    found["content", fields] += float(by_content)
    own = [names[number] for text in (row.labels, row.predicted) for number in label_numbers(text)]
    weights = np.ones(max(len(own), 1))
    if isinstance(model, OASIS) and own:
        known = {name: number for number, name in enumerate(model.classes_)}
        own = [name for name in own if name in known] or own[:1]
        if own[0] in known:
            alone = np.eye(len(known))[[known[name] for name in own]]
            of_class = model.project_nearness(alone).astype(np.float64)  # (n, r)
            wanted, there = of_class @ query.projection, of_class @ signs
            weights = np.maximum(wanted, 0) * np.maximum(there, 0)
    weights = weights[: max(len(own), 1)]
    if not weights.sum():
        own, weights = [""], np.ones(1)
    for name, share in zip(own or [""], weights / weights.sum(), strict=True):
        found["class", name] += float(by_label * share)


def _sums(values: Array, n_content: int) -> Array:
    """Return the sums over label bits and over content bits."""
    at = len(values) - n_content
    return np.array([values[:at].sum(), values[at:].sum()])


def _divide_words(
    found: _Found,
    log_odds: float,
    search: Search,
    connection: sqlite3.Connection,
    query: Query,
    row: ItemRow,
) -> None:
    """Divide what words tell among them; or among the classes that they name."""
    if not log_odds:
        return
    words = dict.fromkeys(query.tokens[:MAX_WORDS])
    scores = word_scores(connection, words, row.key)
    total = sum(scores.values())
    for word, score in scores.items():
        found["words", word] += log_odds * score / total
    if not total:
        named = [search.snapshot.classes[number] for number in sorted(query.named)]
        for name in named or [""]:
            found["class" if named else "words", name] += log_odds / max(len(named), 1)
