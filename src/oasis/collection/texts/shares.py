"""Which share of the words of a query items have: the postings of its words, taken together.

The shares are those of the formula in `oasis.collection.texts.fusion`. They are computed for the
given items only. Items that have only frequent words of the query have a small share, so the words
are processed from the rarest to the most frequent.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array
from oasis.collection.catalog.commits import Head, Keys
from oasis.collection.texts.fusion import (
    CAPTION,
    FEW,
    INEXACT,
    LABEL,
    LETTER,
    OTHER,
    POWER_OF_TWO,
    QueryWords,
)
from oasis.collection.texts.phrases import line_key
from oasis.collection.texts.postings import Having, texts_of
from oasis.collection.texts.vocabulary import Vocabulary
from oasis.features.words import is_letter

_EXACT = 1000
_ROUNDING = 1e-9
_AT_ONCE = 8192
"""Items whose shares are computed together."""


@dataclass(frozen=True)
class _Word:
    """Keys of the items whose text has a word, sizes of these texts; others by label alone.

    ``size_of`` has the sizes by key, with those of other words; None if only this word is known.
    """

    keys: Keys
    sizes: npt.NDArray[np.uint8]
    labelled: Keys
    idf: float
    size_of: npt.NDArray[np.uint8] | None = None

    @cached_property
    def n_words(self) -> int:
        """The sum of the sizes."""
        return int(self.sizes.sum(dtype=np.int64))


class WordShares:
    """The words of one query that some items have, the rarest first, and the shares of items.

    Attributes
    ----------
    just : ascending keys of the items whose text, or a line of it, has just the words of the query
    exact : the keys of those whose text, or a line of it, is the query word for word
    """

    def __init__(self, words: Sequence[_Word], just: Keys, exact: Keys, fewer: float = 0.0) -> None:
        self._words = words
        self.just = just
        self.exact = exact
        self._fewer = fewer  # by which numbers of other words are reduced
        self._idf = np.array([[word.idf] for word in words])
        self._sizes = _sizes(words)
        self._total = 0.0
        for word in words:  # one by one, as the weights of an item are added
            self._total += word.idf
        weights = accumulate(word.idf for word in reversed(words))
        self._left = [weight / self._total for weight in weights][::-1]
        n = sum(len(word.keys) for word in words)
        size = sum(word.n_words for word in words) / max(n, 1)
        self._other = OTHER * min(1, CAPTION / max(size, 1)) / max(len(words), 1)

    @classmethod
    def read(
        cls,
        connection: sqlite3.Connection,
        asked: QueryWords,
        vocabulary: Vocabulary,
        names: Sequence[str],
        head: Head,
    ) -> WordShares:
        """Read the postings of a query's words, of the items of a commit.

        ``names`` are those of all classes. Cost: about 0.1 ms a word at 100,000 items, less where
        another query of the same commit had it.
        """
        every = {w: _word(connection, w, vocabulary, names, head) for w in asked.words}
        known = {w: each for w, each in every.items() if len(each.keys) or len(each.labelled)}
        words = sorted(known.values(), key=lambda word: -word.idf)
        whole = _having_all(words)
        just = [whole.keys[whole.sizes == len(words)]]
        # a line may have stop words alone, by which no item is found
        for key in {line_key(asked.words), line_key(known)}:
            if key is not None:
                lines = vocabulary.having(connection, head.commits, key).keys
                just.append(_below(lines, head.next_key))
        keys = merged(just)
        texts = texts_of(connection, keys[:_EXACT].tolist()) if len(keys) else []
        exact = [key for key, text in texts if asked.is_exactly(text)]
        fewer = 0.0
        if len(whole.keys) and not vocabulary.classes.named(names, asked.words):
            fewest = int(whole.sizes.min()) - len(words)
            fewer = fewest * min(1, FEW / len(whole.keys))
        return cls(words, keys, np.array(exact, dtype=np.int64), fewer)

    def __len__(self) -> int:
        return len(self._words)

    def of(self, keys: Keys) -> Array:
        """Return the shares of items, 0 for those without a word; ``keys`` ascend.

        Cost: about 50 nanoseconds for each key and word.
        """
        if len(keys) <= _AT_ONCE:
            return self._of(keys)
        starts = range(0, len(keys), _AT_ONCE)
        return np.concatenate([self._of(keys[start : start + _AT_ONCE]) for start in starts])

    def _of(self, keys: Keys) -> Array:
        # few calls for each word: most queries ask for some dozens of keys, several times
        share, other = self._of_weights(keys) if self._words else np.zeros((2, len(keys)))
        if len(self.just):
            just = among(keys, self.just)
            share[just], other[just] = 1.0, INEXACT
        return self._with_others(share, other, keys)

    def _of_weights(self, keys: Keys) -> tuple[Array, Array]:
        """Return the shares of the weights, and the numbers of other words."""
        here = np.empty((len(self._words), len(keys)), dtype=np.bool_)
        for row, word in enumerate(self._words):
            if len(word.keys):
                found = word.keys.take(word.keys.searchsorted(keys), mode="clip")
                np.equal(found, keys, out=here[row])
            else:
                here[row] = False
        weights = self._idf * here  # (w, n)
        for row, word in enumerate(self._words):
            if len(word.labelled):
                weights[row, among(keys, word.labelled)] = LABEL * word.idf
        # row by row, as the total was added: a sum may add in another order
        share = weights.cumsum(axis=0)[-1] / self._total
        matched = here.sum(axis=0, dtype=np.float64)
        other = np.where(matched, self._sizes.take(keys, mode="clip"), 0.0) - matched
        if self._fewer:
            other = np.maximum(other - self._fewer, np.minimum(other, INEXACT))
        return share, other

    def _with_others(self, share: Array, other: Array, keys: Keys) -> Array:
        """Return shares from those of the weights and the numbers of other words."""
        for _ in range(POWER_OF_TWO):
            share *= share
        share /= 1 + self._other * other
        if len(self.exact):
            share[among(keys, self.exact)] = 1.0
        return share

    def of_just(self) -> Array:
        """Return the shares of the items ``just``."""
        n = len(self.just)
        return self._with_others(np.ones(n), np.full(n, INEXACT), self.just)

    def n_needed(self, least: float) -> int:
        """Return how many of the words, the rarest first, items have one of if they have a share.

        An item with none of them has a smaller share than ``least``.
        """
        part = _part(least)
        return sum(left >= part for left in self._left)

    def having(self, at: int, least: float = 0.0) -> Keys:
        """Return the ascending keys of all items with the word at a place, from the rarest on.

        Items are left out that lack a word without which the share is smaller than ``least``.
        """
        word = self._words[at]
        keys = word.keys
        if len(word.labelled):
            keys = np.insert(keys, keys.searchsorted(word.labelled), word.labelled)
        most = self._total * (1 - _part(least))  # weight that an item may lack
        for other in self._words:
            if other.idf > most and other is not word and len(keys):
                has = among(keys, other.keys)
                if len(other.labelled):
                    has |= among(keys, other.labelled)
                keys = keys[has]
        return keys


def _word(
    connection: sqlite3.Connection,
    word: str,
    vocabulary: Vocabulary,
    names: Sequence[str],
    head: Head,
) -> _Word:
    """Return the items of a commit that have a word; made once for each commit."""

    def read() -> _Word:
        commits, next_key = head.commits, head.next_key
        keys, sizes = vocabulary.having(connection, commits, word)
        keys = _below(keys, next_key)
        labelled = np.empty(0, dtype=np.int64)
        if numbers := vocabulary.classes.having(names).get(word):
            labelled = merged(
                [vocabulary.labelled(connection, commits, number) for number in numbers]
            )
            labelled = _below(labelled, next_key)
            labelled = labelled[~among(labelled, keys)]
        idf = _idf(word, len(keys) + len(labelled), head.n_items)
        sizes = sizes[: len(keys)]
        size_of = vocabulary.text_sizes(commits, next_key)
        size_of[keys] = sizes
        return _Word(keys, sizes, labelled, idf, size_of)

    return vocabulary.kept(head.commits, ("word", word), read, lambda each: len(each.labelled))


def _idf(word: str, n: int, n_items: int) -> float:
    """Return the weight of a word that n items have."""
    return float(np.log1p(n_items / (n + 0.5))) * (LETTER if is_letter(word) else 1)


def unknown_words(
    connection: sqlite3.Connection,
    asked: QueryWords,
    vocabulary: Vocabulary,
    names: Sequence[str],
    head: Head,
) -> tuple[list[str], float]:
    """Return the words of a query that no item has, and their share of the weight of all words.

    A word that no item has gets the weight of one that a single item has. The names of classes
    count even where no item has the class. The share is 0 if a line has just the words of the
    query, which may be stop words.
    """
    known = unknown = 0.0
    missing: list[str] = []
    classes = vocabulary.classes.having(names)
    for word in asked.words:
        n = items_with(connection, word, vocabulary, names, head)
        if n or word in classes:
            known += _idf(word, n, head.n_items)
        else:
            unknown += _idf(word, 1, head.n_items)
            missing.append(word)
    key = line_key(asked.words) if missing else None
    if key and len(vocabulary.having(connection, head.commits, key).keys):
        return missing, 0.0
    total = known + unknown  # 0 while there are no items
    return missing, (unknown / total if total else 1.0) if missing else 0.0


def items_with(
    connection: sqlite3.Connection,
    word: str,
    vocabulary: Vocabulary,
    names: Sequence[str],
    head: Head,
) -> int:
    """Return how many items have a word in their text or in the name of a label."""
    found = _word(connection, word, vocabulary, names, head)
    return len(found.keys) + len(found.labelled)


def _sizes(words: Sequence[_Word]) -> npt.NDArray[np.uint8]:
    """Return the number of words of texts that have one of these words, by key."""
    sizes = words[-1].size_of if words else None
    if sizes is None:
        sizes = np.zeros(
            1 + max((int(word.keys[-1]) for word in words if len(word.keys)), default=0), np.uint8
        )
    for word in words:
        if word.size_of is not sizes:  # lists were dropped while this query read its own
            sizes = sizes.copy()
            sizes[word.keys] = word.sizes
    return sizes


def _part(least: float) -> float:
    """Return the part of a query's weight that items with a share of ``least`` have."""
    return least ** (1 / 2**POWER_OF_TWO) - _ROUNDING if least > 0 else 0.0


def _below(keys: Keys, next_key: int) -> Keys:
    """Return ascending keys without those that came after a commit."""
    if not len(keys) or keys[-1] < next_key:
        return keys
    return keys[: keys.searchsorted(next_key)]


def _having_all(words: Sequence[_Word]) -> Having:
    """Return the items whose text has all words."""
    if not words:
        return Having(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint8))
    rarest = min(words, key=lambda word: len(word.keys))
    keys, sizes = rarest.keys, rarest.sizes
    for word in words:
        if not len(keys):
            break
        if word is not rarest:
            here = among(keys, word.keys)
            keys, sizes = keys[here], sizes[here]
    return Having(keys, sizes)


def merged(lists: Sequence[Keys]) -> Keys:
    """Return ascending keys that are in any of ascending lists, each once."""
    some = [keys for keys in lists if len(keys)]
    if len(some) < 2:
        return some[0] if some else np.empty(0, dtype=np.int64)
    # np.unique imports numpy.ma: half of a short search
    keys = np.sort(np.concatenate(some))
    found: Keys = keys[np.append(True, keys[1:] != keys[:-1])]
    return found


def among(keys: Keys, others: Keys) -> npt.NDArray[np.bool_]:
    """Return which of the keys are among others, which ascend."""
    if not len(others):
        return np.zeros(len(keys), dtype=np.bool_)
    at = others.searchsorted(keys)
    at[at == len(others)] = 0
    found: npt.NDArray[np.bool_] = others[at] == keys
    return found
