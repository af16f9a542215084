"""Texts of items, kept word for word, and whether a phrase stands in one.

A phrase is split into words; there is no query language.
"""

from __future__ import annotations

import json
import reprlib
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oasis.collection.records import utf8
from oasis.collection.rows import Keys, delete_rows, insert_rows, row_crc
from oasis.collection.texts.words import (
    Written,
    delete_words,
    insert_words,
    with_all_words,
    written,
)
from oasis.errors import FormatError, InputError
from oasis.features.words import tokens_of

MAX_TEXT_BYTES = 1 << 20
"""Longest text, in UTF-8, that is kept of an item or asked with."""

MAX_PHRASE_WORDS = 1000


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


def text_of(connection: sqlite3.Connection, key: int) -> str | None:
    """Return the text of an item, or None; one that is not as it was written is refused."""
    row = connection.execute("SELECT text, crc FROM texts WHERE key = ?", (key,)).fetchone()
    if row is None:
        return None
    if row_crc(key, row[0]) != row[1]:
        raise FormatError(
            f"the text of the item with key {key} is damaged: it does not match its checksum; "
            "'oasis check' lists all damage"
        )
    return str(row[0])


def texts_of(
    connection: sqlite3.Connection, keys: Iterable[int], *, begin: int | None = None
) -> dict[int, str]:
    """Return, by key, the texts of those of the items that have one, or how they ``begin``."""
    some = json.dumps(list(keys))
    if begin is None:
        rows = connection.execute(
            "SELECT key, text FROM texts WHERE key IN (SELECT value FROM json_each(?))", (some,)
        )
    else:
        rows = connection.execute(
            "SELECT key, substr(text, 1, ?) FROM texts "
            "WHERE key IN (SELECT value FROM json_each(?))",
            (begin, some),
        )
    return dict(rows.fetchall())


def insert_texts(connection: sqlite3.Connection, items: Sequence[Written]) -> None:
    """Keep the texts of new items, and make them found by their words; inside a transaction."""
    insert_rows(connection, "texts", [(key, text) for key, text, _ in items if text is not None])
    insert_words(connection, items)


def delete_texts(connection: sqlite3.Connection, keys: Sequence[int]) -> None:
    """Remove the texts and words of items that are still there; inside a transaction."""
    delete_words(connection, written(connection, keys))
    delete_rows(connection, "texts", "key = ?", [(key,) for key in keys])


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

    def stands_in(self, text: str) -> bool:
        """Return whether the words of the phrase follow each other in a text."""
        found, wanted = tokens_of(text), list(self.tokens)
        first, n = wanted[0], len(wanted)
        return any(
            token == first and found[at : at + n] == wanted for at, token in enumerate(found)
        )

    def found_in(self, connection: sqlite3.Connection, after: int = 0) -> Keys:
        """Return the keys beyond ``after``, ascending, of the items in whose text it stands.

        Cost: about 10 microseconds for each item that has all of its words.
        """
        keys = [key for key in with_all_words(connection, self.tokens) if key > after]
        texts = texts_of(connection, keys)
        passed = [key for key in keys if key in texts and self.stands_in(texts[key])]
        return np.array(passed, dtype=np.int64)
