"""The words of kept texts, and whether a text contains a phrase.

A phrase is split into words; there is no query language.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from oasis.collection.records import utf8
from oasis.errors import InputError
from oasis.features.words import always_words, tokens_of, words_of

MAX_TEXT_BYTES = 1 << 20
"""Longest text, in UTF-8, that is kept of an item or asked with."""

MAX_PHRASE_WORDS = 1000
MAX_LINES = 64
MAX_LINE_WORDS = 16
"""The first lines of a text, of at most so many words, are found as a whole."""
_LONGEST_LINE = 128


def check_text(value: Any, what: str) -> str | None:
    """Return a text as it is kept, None for one that is empty; ``what`` names it in an error.

    >>> check_text("a boat", "the text"), check_text("  ", "the text")
    ('a boat', None)
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise InputError(f"{what} must be a text or None, got {type(value).__name__}")
    # each character has at least one byte: a text of 10 MB is refused before it is encoded
    size = len(value) if len(value) > MAX_TEXT_BYTES else len(utf8(value, what))
    if size > MAX_TEXT_BYTES:
        raise InputError(
            f"{what} has {size} bytes or more, at most {MAX_TEXT_BYTES} are taken; shorten it"
        )
    return str(value) if value.strip() else None


def kept_words(text: str) -> list[str]:
    """Return the distinct words by which a text is found, in order.

    Stems without stop words; single letters are words, such as the names of languages C and R. A
    text that has nothing else is found by its stop words.

    >>> kept_words("The dogs and a dog"), kept_words("The Who"), kept_words("C or a dog's R")
    (['dog'], ['the', 'who'], ['c', 'dog', 'r'])
    """
    words = (
        words_of(text, letters=True)
        or words_of(text, stop_words=False, letters=True)
        or tokens_of(text)
    )
    return list(dict.fromkeys(words))


@dataclass(frozen=True)
class Phrase:
    """Words that must follow each other in a text; case, accents and punctuation do not count.

    >>> phrase = Phrase.of("double decker")
    >>> phrase.stands_in("Double-decker buses"), phrase.stands_in("a decker, double")
    (True, False)
    """

    tokens: tuple[str, ...]

    @classmethod
    def of(cls, text: Any) -> Phrase:
        """Take a phrase apart, or say what is wrong with it."""
        if not isinstance(text, str):
            raise InputError(f"where '$text': 'contains' takes a text, got {reprlib.repr(text)}")
        tokens = tokens_of(check_text(text, "the phrase of a filter") or "")
        if not tokens:
            raise InputError(f"where '$text': 'contains' needs a word, {text[:40]!r} has none")
        if len(tokens) > MAX_PHRASE_WORDS:
            raise InputError(
                f"where '$text': 'contains' takes at most {MAX_PHRASE_WORDS} words, got "
                f"{len(tokens)}"
            )
        return cls(tuple(tokens))

    @cached_property
    def words(self) -> list[str]:
        """Words by which every text is found in which the phrase stands; there may be none."""
        return list(dict.fromkeys(always_words(list(self.tokens))))

    def stands_in(self, text: str) -> bool:
        """Return whether the words of the phrase follow each other in a text."""
        found, wanted = tokens_of(text), list(self.tokens)
        first, n = wanted[0], len(wanted)
        return any(
            token == first and found[at : at + n] == wanted for at, token in enumerate(found)
        )


def line_key(words: Iterable[str]) -> str | None:
    """Return what stands in the postings for a line with just these words; None for a long one.

    It begins with a new line, which no word has.

    >>> line_key(["red", "dog"]), line_key(["dog", "red"]), line_key([])
    ('\\ndog red', '\\ndog red', None)
    """
    found = sorted(words)
    key = "\n" + " ".join(found)
    return key if 0 < len(found) <= MAX_LINE_WORDS and len(key) <= _LONGEST_LINE else None


def line_keys(text: str) -> set[str]:
    """Return the keys of the first lines of a text; none where it has one line alone.

    >>> sorted(line_keys("A red dog\\nsit, stay")), line_keys("A red dog")
    (['\\ndog red', '\\nsit stay'], set())
    """
    lines = [kept_words(line) for line in text.splitlines()[:MAX_LINES]]
    found = [line_key(words) for words in lines if words]
    return {key for key in found if key} if len(found) > 1 else set()


def count_words(texts: Iterable[tuple[int, str]]) -> dict[str, list[tuple[int, int]]]:
    """Return, by word, the keys of the texts that have it with their numbers of distinct words.

    The same by `line_key`, for texts of several lines.

    >>> count_words([(1, "red dog"), (2, "dogs")])
    {'red': [(1, 2)], 'dog': [(1, 2), (2, 1)]}
    """
    found: dict[str, list[tuple[int, int]]] = {}
    for key, text in texts:
        words = kept_words(text)
        for word in (*words, *sorted(line_keys(text))):
            found.setdefault(word, []).append((key, len(words)))
    return found
