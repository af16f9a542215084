"""Words of a query beside its codes: which share of them an item has, and one score of both.

A query has distinct words ``q`` (`kept_words`), each with the weight ``idf = log(1 + N / (n +
1/2))``, where n of the N items have it; a single letter has a tenth of that, and words that no item
has are left out. An item has a word when its kept text does, or the name of one of its labels; a
word that only a label has counts nine tenths. With m the weight of the words that an item has, Q
the weight of all, e the number of other words in its text, and l the mean number of words of the
texts that have a word of the query, at least 6::

    share = (m / Q) ** 8 / (1 + 6 / l * e / (10 |q|))
    score = 1 - (1 - trust cosine) (1 - share) ** WORDS unlike

So a text is compared with others of its kind: captions have about 6 words, and of articles with 100
words, one that has the words of the query is found as a caption is. If c texts have all words of
the query, and f other words at least, e is reduced by ``f min(1, 10 / c)``, but not below 1/2: a
long text is found by a rare word if no shorter text has it. A query that names a class is excepted,
because codes find classes better than single texts do.

If the text, or a line of it, has exactly the words of the query, m is Q, and e is 1/2; if it is
the query word for word, stop words included, e is 0. So a title on a line of its own is found like
a text without other words. Because of the power, an item with all words gains much, and one with
half of them almost nothing.

Trust is ``min(1, (4 evidence)^3)``, with `OASIS.evidence` of the query: if a query resembles
nothing that was learned, its code carries little information, and its words decide. It is 1 if the
query names a class.

An item repeats a query if their fingerprints differ in b <= 11 of 64 bits, in every modality that
the query has (`oasis.collection.repeats`); then unlike is ``(b / 12)^2``, and 1 for all others. So
an item that is asked with its own picture or its own features comes first, whatever its labels are,
and one that is nearly the same ranks high.

The score lies in [-1, 1]. It is 1 for a text or a line that is the query, and for the same
features. Of items whose scores are equal, those with the larger cosine come first, then the older
ones.

Where a query names classes (all words of the name are among its own), the cosine is that of the sum
of two projections of unit length: of the query, times its trust as above, and of the names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array, Single
from oasis.collection.texts.phrases import kept_words
from oasis.features.words import tokens_of

WORDS = 0.2
"""Exponent of what the words of a query do not find; chosen on captions and names of classes."""

MAX_WORDS = 64
"""Distinct words of a query that are looked up: the first ones."""

OTHER = 0.1
CAPTION = 6
POWER_OF_TWO = 3
LABEL = 0.9
LETTER = 0.1
INEXACT = 0.5
FEW = 10
"""Numbers of the formula: what another word counts, in texts of how many words, 8 as a power of
two, what a word that only a label has and what a single letter counts, the other words of a text
that is not word for word the query, and how many texts with all words are few."""


class ClassWords:
    """Which classes have a word in their names; follows a list of names that grows."""

    def __init__(self) -> None:
        self._state: tuple[dict[str, tuple[int, ...]], list[frozenset[str]]] = ({}, [])

    def having(self, names: Sequence[str]) -> Mapping[str, tuple[int, ...]]:
        """Return, by word, the numbers of the classes that have it."""
        return self._following(names)[0]

    def _following(
        self, names: Sequence[str]
    ) -> tuple[dict[str, tuple[int, ...]], list[frozenset[str]]]:
        """Return the numbers of classes by word, and the words of each class."""
        known, words = self._state
        start, stop = len(words), len(names)  # once: a writer may append to the names meanwhile
        if start >= stop:
            return self._state
        new = [frozenset(kept_words(names[number])) for number in range(start, stop)]
        more: dict[str, list[int]] = {}
        for number, own in enumerate(new, start):
            for word in own:
                more.setdefault(word, []).append(number)
        added = {word: (*known.get(word, ()), *numbers) for word, numbers in more.items()}
        # both are replaced at once, and never changed: other threads may be here too
        self._state = following = ({**known, **added}, words + new)
        return following

    def named(self, names: Sequence[str], words: Sequence[str]) -> list[str]:
        """Return the classes that a query names: all words of the class are among its own."""
        known, own = self._following(names)
        found = {number for word in words for number in known.get(word, ())}
        asked = set(words)
        return [names[each] for each in sorted(found) if own[each] <= asked]


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

    def is_exactly(self, text: str) -> bool:
        """Return whether a text, or a line of it, is the query word for word.

        >>> asked = QueryWords.of("the red dog")
        >>> asked.is_exactly("The Red Dog!"), asked.is_exactly("a dog\\nThe red dog")
        (True, True)
        """
        return any(tokens_of(part) == self.tokens for part in (text, *text.splitlines()))


def trust_in(evidence: Single) -> Single:
    """Return how much the code of a query counts beside its words.

    Unknown words have an evidence of about 0.1, queries of known classes 0.5 and more.

    >>> trust_in(np.array([0.125, 0.5], dtype=np.float32)).tolist()
    [0.125, 1.0]
    """
    return np.minimum((4 * evidence) ** 3, np.float32(1))


def missed(cosines: npt.ArrayLike, shares: npt.ArrayLike) -> Array:
    """Return what neither codes nor words find: 1 - score.

    >>> missed([0.5, 0.5, 0.5], [0.0, 0.5, 1.0]).round(3).tolist()
    [0.5, 0.435, 0.0]
    """
    left: Array = (1 - np.asarray(cosines)) * (1 - np.asarray(shares)) ** WORDS
    return left


def least_share(worst: float, limit: float) -> float:
    """Return the least share with which an item can miss no more than the worst hit so far.

    ``limit`` is the largest cosine that it may have.

    >>> round(least_share(0.435, 0.5), 2), least_share(0.6, 0.5)
    (0.5, 0.0)
    """
    if worst >= 1 - limit:
        return 0.0
    return float(1 - (worst / (1 - limit)) ** (1 / WORDS))
