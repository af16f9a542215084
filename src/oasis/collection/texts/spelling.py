"""What a query may have meant: for a word that no item has, a known word that is one edit away.

An edit removes, replaces or adds a letter, or swaps two neighbours. All words that are one edit
away are made and looked up by their stems, so the cost depends on the length of the word (about
50 look-ups for each of its letters) and not on the number of items.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from oasis.collection.catalog.commits import Head
from oasis.collection.texts.fusion import QueryWords
from oasis.collection.texts.postings import texts_of
from oasis.collection.texts.shares import items_with, unknown_words
from oasis.collection.texts.vocabulary import Vocabulary
from oasis.features.words import STOP_WORDS, stem, tokens_of

SHORTEST, LONGEST = 4, 32
"""Letters of a word that is corrected; a shorter one is near to too many others."""

_MOST_WORDS = 8
_TEXTS = 8
"""Texts, those with the fewest words, in which the written form of a stem is looked up."""

_ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz",
    "αβγδεζηθικλμνξοπρστυφχψω",
    "абвгдежзиклмнопрстуфхцчшщъыьэюя",
)
_PIECE = re.compile(r"\w+")


def one_edit(word: str) -> set[str]:
    """Return the words that are one edit away from a word, itself left out.

    Letters are those of its script: Latin, Greek or Cyrillic, as texts are folded. There are none
    for words of other scripts and for words with digits.

    >>> {"boat", "bot", "bote", "botar"} <= one_edit("bota"), one_edit("猫")
    (True, set())
    """
    letters = next((each for each in _ALPHABETS if set(word) <= set(each)), "")
    if not letters:
        return set()
    parts = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    found = {a + b[1:] for a, b in parts if b}
    found |= {a + b[1] + b[0] + b[2:] for a, b in parts if len(b) > 1}
    found |= {a + letter + b[1:] for a, b in parts if b for letter in letters}
    found |= {a + letter + b for a, b in parts for letter in letters}
    return found - {word}


def is_slip(word: str, meant: str) -> bool:
    """Return whether two words differ only in the order of letters or in doubled ones.

    >>> is_slip("compres", "compress"), is_slip("filse", "files"), is_slip("compres", "compares")
    (True, True, False)
    """
    if sorted(word) == sorted(meant):
        return True
    return [letter for letter, _ in groupby(word)] == [letter for letter, _ in groupby(meant)]


def suggested(
    connection: sqlite3.Connection,
    text: str,
    vocabulary: Vocabulary,
    names: Sequence[str],
    head: Head,
) -> str | None:
    """Return a text with each unknown word replaced by a known one, None if no word has one.

    Of several known words, those that differ by a slip (`is_slip`) come first, then those that most
    items have, then those that more of the texts looked at have in this form.
    """
    asked = QueryWords.of(text)
    unknown, _ = unknown_words(connection, asked, vocabulary, names, head)
    tokens = [each for each in dict.fromkeys(asked.tokens) if stem(each) in unknown]
    known: dict[str, str] = {}
    for token in tokens[:_MOST_WORDS]:
        if SHORTEST <= len(token) <= LONGEST:
            meant = _meant(connection, token, vocabulary, names, head)
            if meant is not None:
                known[token] = meant

    def replaced(piece: re.Match[str]) -> str:
        found = tokens_of(piece[0])
        return known.get(found[0], piece[0]) if len(found) == 1 else piece[0]

    return _PIECE.sub(replaced, text) if known else None


def _meant(
    connection: sqlite3.Connection,
    token: str,
    vocabulary: Vocabulary,
    names: Sequence[str],
    head: Head,
) -> str | None:
    """Return the known word, as it is written, that is one edit away from a word."""
    near: dict[str, set[str]] = {}
    for each in sorted(one_edit(token) - STOP_WORDS):
        if len(each) > 1:
            near.setdefault(stem(each), set()).add(each)
    stems = {
        word
        for (word,) in connection.execute(
            "SELECT DISTINCT word FROM words WHERE word IN (SELECT value FROM json_each(?))",
            (json.dumps(list(near)),),
        )
    }
    stems |= near.keys() & vocabulary.classes.having(names).keys()
    found = []
    for each in stems:
        n = items_with(connection, each, vocabulary, names, head)
        for form, count in Counter(_forms(connection, each, vocabulary, names, head)).items():
            (folded,) = tokens_of(form)
            # a stem may be near and no form of it: "gear" by "gearing" for "glaring"
            if folded in near[each]:
                found.append((not is_slip(token, folded), -n, -count, form))
    return min(found)[-1] if found else None


def _forms(
    connection: sqlite3.Connection,
    word: str,
    vocabulary: Vocabulary,
    names: Sequence[str],
    head: Head,
) -> Iterator[str]:
    """Yield the forms in which some texts, and the names of classes, have a stem."""
    keys, sizes = vocabulary.having(connection, head.commits, word)
    few = keys[np.argsort(sizes, kind="stable")[:_TEXTS]]
    texts = [text for _, text in texts_of(connection, few.tolist())]
    numbers = vocabulary.classes.having(names).get(word, ())
    for text in (*texts, *(names[number] for number in numbers)):
        for piece in _PIECE.findall(text):
            tokens = tokens_of(piece)
            if len(tokens) == 1 and stem(tokens[0]) == word:
                yield piece.lower()
