"""Words of a query beside its codes: which share of them an item has, and one score of both.

A query has distinct words ``q`` (`kept_words`), each with the weight ``idf = log(1 + N / (n +
1/2))``, where n of the N items have it. An item has a word when its kept text does, or the name of
one of its labels; a word that only a label has counts nine tenths. With m the weight of the words
that an item has, Q the weight of all, and e the number of other words in its text::

    share = (m / Q) ** 8 / (1 + e / (10 |q|))
    score = 1 - (1 - trust cosine) (1 - share) ** WORDS

The power makes an item with all words strong evidence, and one with half of them hardly any.

Trust is ``min(1, 5 evidence)``, by `OASIS.evidence` of the query: where a query is near to nothing
that was learned, its code says little, and its words decide. It is 1 where the query names a class.

The score lies in [-1, 1]. It is 1 for a text that has just the words of the query. Of items whose
scores are equal, those come first whose text has the words of the query in the same order, stop
words included; then the larger cosine decides, then age.

Where a query names classes (all words of the name are among its own), the cosine is that of the sum
of two projections of unit length, of the query and of the names.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array, Single
from oasis.collection.catalog.commits import Keys, class_postings
from oasis.collection.texts.phrases import kept_words
from oasis.collection.texts.postings import having, texts_of
from oasis.features.words import tokens_of

WORDS = 0.3
"""Exponent of what the words of a query do not find; chosen on captions and titles."""

MAX_WORDS = 64
"""Distinct words of a query that are looked up: the first ones."""

_EXACT = 1000
_OTHER = 0.1
_PARTS = 8
_LABEL = 0.9


class ClassWords:
    """Which classes have a word in their names; follows a list of names that grows."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, ...]] = {}
        self._n = 0

    def having(self, names: Sequence[str]) -> Mapping[str, tuple[int, ...]]:
        """Return, by word, the numbers of the classes that have it."""
        known = self._known
        for number in range(self._n, len(names)):
            known = dict(known) if known is self._known else known
            for word in kept_words(names[number]):
                known[word] = (*known.get(word, ()), number)
        # replaced and never changed: another thread may be reading it
        self._known, self._n = known, len(names)
        return known

    def named(self, names: Sequence[str], words: Sequence[str]) -> list[str]:
        """Return the classes that a query names: all words of the class are among its own."""
        known = self.having(names)
        found = sorted({number for word in words for number in known.get(word, ())})
        return [names[each] for each in found if set(kept_words(names[each])) <= set(words)]


class Shares(NamedTuple):
    """Keys of the items that have words of a query, ascending, and their shares in (0, 1]."""

    keys: Keys
    shares: Array

    def among(self, allow: Keys) -> Shares:
        """Return those of the items that are allowed."""
        passed = np.isin(self.keys, allow)
        return Shares(self.keys[passed], self.shares[passed])

    def of(self, keys: Keys) -> Array:
        """Return the shares of any items, 0 for those without a word."""
        if not len(self.keys):
            return np.zeros(len(keys))
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[at] == keys, self.shares[at], 0.0)


class QueryWords(NamedTuple):
    """What is looked up of the text of a query: its distinct words, and all of it in order."""

    words: list[str]
    tokens: list[str]

    @classmethod
    def of(cls, text: str | None) -> QueryWords:
        """Take a text apart.

        >>> QueryWords.of("The dogs and a cat").words, QueryWords.of(None).words
        (['dog', 'cat'], [])
        """
        if text is None:
            return cls([], [])
        return cls(kept_words(text)[:MAX_WORDS], tokens_of(text))

    def are_exactly(self, connection: sqlite3.Connection, shares: Shares) -> set[int]:
        """Return the keys of the items whose text is the query, word for word.

        Looked for among the first 1,000 items with a share of 1.
        """
        full = shares.keys[shares.shares == 1][:_EXACT].tolist()
        return {key for key, text in texts_of(connection, full) if tokens_of(text) == self.tokens}


def word_shares(
    connection: sqlite3.Connection,
    words: Sequence[str],
    classes: Mapping[str, tuple[int, ...]],
    n_items: int,
    next_key: int,
) -> Shares:
    """Return the shares of all items below ``next_key`` that have any of the words.

    Cost: about 10 nanoseconds for each item that has a word, and 2 for each key.
    """
    mass, size = np.zeros(next_key), np.zeros(next_key, dtype=np.uint8)
    matched, total = np.zeros(next_key, dtype=np.uint8), 0.0
    for word in words:
        found = having(connection, word)
        there = found.keys < next_key
        keys = found.keys if there.all() else found.keys[there]
        labelled = [class_postings(connection, number) for number in classes.get(word, ())]
        n = len(keys)
        if labelled:
            weight = np.zeros(next_key)
            for each in labelled:
                weight[each[each < next_key]] = _LABEL
            weight[keys] = 1.0
            n = int(np.count_nonzero(weight))
            mass += (idf := _idf(n_items, n)) * weight
        else:
            mass[keys] += (idf := _idf(n_items, n))
        size[keys] = found.sizes if there.all() else found.sizes[there]
        matched[keys] += 1
        total += idf
    keys = np.flatnonzero(mass)
    other = size[keys].astype(np.float64) - matched[keys]
    shares = (mass[keys] / total) ** _PARTS / (1 + _OTHER * other / max(len(words), 1))
    return Shares(keys, np.minimum(shares, 1.0))


def trust_in(evidence: Single) -> Single:
    """Return how much the code of a query counts beside its words.

    >>> trust_in(np.array([0.125, 0.5], dtype=np.float32)).tolist()
    [0.625, 1.0]
    """
    return np.minimum(5 * evidence, np.float32(1))


def _idf(n_items: int, n: int) -> float:
    return float(np.log1p(n_items / (n + 0.5)))


def missed(cosines: npt.ArrayLike, shares: npt.ArrayLike) -> Array:
    """Return what neither codes nor words find: 1 - score.

    >>> missed([0.5, 0.5, 0.5], [0.0, 0.5, 1.0]).round(3).tolist()
    [0.5, 0.406, 0.0]
    """
    left: Array = (1 - np.asarray(cosines)) * (1 - np.asarray(shares)) ** WORDS
    return left
