"""What a query may have meant: for a word that no item has, a similar one that some have.

Looked at are the words of the catalog that are one edit away (a letter added, removed or replaced,
or two neighbours swapped), and those that begin with the same three letters. `difflib` ranks them,
and of equals the one that most items have comes first. The cost does not depend on the number of
items: about 400 look-ups by key for a word of eight letters.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Collection
from difflib import SequenceMatcher

from oasis.collection.texts.words import n_with
from oasis.features.words import tokens_of
from oasis.wordllama import word_vectors

SHORTEST, LONGEST = 4, 32
"""Letters of a word that is corrected; a shorter one is near to too many others."""

LIKE = 0.8
"""Similarity by `difflib` from which on a word may be meant."""

_MOST_WORDS = 8
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


def corrected(connection: sqlite3.Connection, text: str, names: Collection[str]) -> str | None:
    """Return a text with each word that no item has replaced by a similar one; None without any.

    Left as they are: words of ``names``, which are those in names of classes; words that word
    vectors know as a whole; those of fewer than 4 or more than 32 letters, and all after eight.
    """
    counts = n_with(connection, dict.fromkeys(tokens_of(text)))
    unknown = [word for word, n in counts.items() if not n and word not in names]
    meant: dict[str, str] = {}
    for word in unknown[:_MOST_WORDS]:
        if SHORTEST <= len(word) <= LONGEST and not word_vectors().knows(word):
            found = _meant(connection, word, names)
            if found is not None:
                meant[word] = found

    def replaced(piece: re.Match[str]) -> str:
        tokens = tokens_of(piece[0])
        return meant.get(tokens[0], piece[0]) if len(tokens) == 1 else piece[0]

    return _PIECE.sub(replaced, text) if meant else None


def _meant(connection: sqlite3.Connection, word: str, names: Collection[str]) -> str | None:
    edits = one_edit(word)
    if not edits:
        return None
    found = dict.fromkeys(edits & set(names), 1)
    found.update(
        connection.execute(
            "SELECT word, n FROM vocabulary WHERE word IN (SELECT value FROM json_each(?)) "
            "UNION ALL SELECT word, n FROM vocabulary WHERE word >= ? AND word < ?",
            (json.dumps(list(edits)), word[:3], word[:2] + chr(ord(word[2]) + 1)),
        )
    )
    best = [
        (SequenceMatcher(None, word, each).ratio(), n, each)
        for each, n in found.items()
        if len(each) >= SHORTEST - 1
    ]
    ratio, _, each = max(best, default=(0.0, 0, ""))
    return each if ratio >= LIKE else None
