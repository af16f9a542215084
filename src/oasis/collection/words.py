"""The words of items: which items have a word, and which a whole line, in the catalog.

An item is found by the words of its kept text, of the texts in its payload (those at the top level,
and those in a list there), and of the names that its picture surely looks like. A word is one of
`tokens_of`, so case, accents and punctuation do not count, and in scripts without spaces every
character is a word.

``words`` is a contentless FTS5 table; its tokenizer reduces English words to stems (Porter).
``vocabulary`` has every word as it is written and the number of items that have it. ``lines`` has
64 bits of a hash of the words of every text, of the first lines of a text with several, and of
every text in a payload; so an item that is asked for word for word is found among any number. All
three are derived from texts, payloads and names, and can be rebuilt.

FTS5 leaves the words of a deleted row in its segments until they are merged. So a deletion merges
all of them: 0.07 s at 100,000 captions.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import reprlib
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from oasis.arrays import Array
from oasis.collection.records import utf8
from oasis.collection.rows import Keys, decoded_payload, delete_rows, insert_rows, row_crc
from oasis.errors import FormatError, InputError
from oasis.features.words import tokens_of
from oasis.wordllama import word_vectors

SCHEMA = """
CREATE VIRTUAL TABLE words USING fts5(text, content='', tokenize='porter ascii');
CREATE TABLE vocabulary (word TEXT PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE lines (line INTEGER, key INTEGER, PRIMARY KEY (line, key)) WITHOUT ROWID;
"""

MAX_LINES = 64
"""The first lines of a text that are found as a whole."""

LONGEST = 128
"""Characters of the longest word that is found."""

FREQUENT = 1000
"""A word that more items have than this, and more than a fifth of all, is not looked up beside
rarer ones: it says little, and takes longest."""

MEANT = 400
"""Characters of a text that its meaning is taken from."""

_AT_ONCE = 10_000

_WRITTEN = (
    "SELECT items.key, text, payload, looks FROM items LEFT JOIN texts USING (key) "
    "WHERE 1 ORDER BY items.key"
)
_LISTED = "items.key IN (SELECT value FROM json_each(?))"

Written: TypeAlias = tuple[int, str | None, str | None, str | None]
"""An item's key, kept text, payload as JSON, and what its picture looks like, a name a line."""


class _Document(NamedTuple):
    """What is found of an item: its words in order, and its lines."""

    words: list[str]
    lines: set[int]

    @classmethod
    def of(cls, text: str | None, payload: str | None, looks: str | None) -> _Document:
        parts = [tokens_of(each) for each in ([text] if text else []) + payload_texts(payload)]
        lines = text.splitlines()[:MAX_LINES] if text else []
        alone = [tokens_of(line) for line in lines] if len(lines) > 1 else []
        # a name is no text of its own, which would be found as a whole
        named = [*parts, tokens_of(looks)] if looks else parts
        words = [word for part in named for word in part if len(word) <= LONGEST]
        return cls(words, {line_of(each) for each in (*parts, *alone) if each})


def payload_texts(payload: str | None) -> list[str]:
    """Return the texts of a payload by which its item is found.

    >>> payload_texts('{"title": "a goldfish", "year": 2024, "tags": ["bowl", 7]}')
    ['a goldfish', 'bowl']
    """
    if not isinstance(payload, str) or ('":"' not in payload and "[" not in payload):
        return []  # one that is damaged is told where its row is read
    found: list[str] = []
    decoded = decoded_payload(payload)
    for value in decoded.values() if isinstance(decoded, dict) else ():
        listed = value if isinstance(value, list) else [value]
        found += [each for each in listed if isinstance(each, str)]
    return found


def line_of(tokens: Sequence[str]) -> int:
    """Return what ``lines`` has for a line with these words, a signed number of 64 bits."""
    digest = hashlib.blake2b(" ".join(tokens).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


# -- changing, inside a transaction ----------------------------------------------------------------


def insert_words(connection: sqlite3.Connection, items: Iterable[Written]) -> None:
    """Make items found by their words."""
    _change(connection, items, "INSERT INTO words (rowid, text) VALUES (?, ?)", 1)


def delete_words(connection: sqlite3.Connection, items: Iterable[Written]) -> None:
    """Remove items with this text and payload, and every trace of their words."""
    if _change(connection, items, "INSERT INTO words (words, rowid, text) VALUES ('delete', ?, ?)"):
        connection.execute("INSERT INTO words (words) VALUES ('optimize')")


def _change(
    connection: sqlite3.Connection, items: Iterable[Written], statement: str, sign: int = -1
) -> bool:
    """Insert or delete rows, and count; return whether there were any."""
    counts: Counter[str] = Counter()
    rows, lines = [], []
    for key, text, payload, looks in items:
        if not (text or payload or looks):
            continue
        document = _Document.of(text, payload, looks)
        if document.words:
            rows.append((key, " ".join(document.words)))
            lines += [(line, key) for line in document.lines]
            counts.update(set(document.words))
    if not rows:
        return False
    connection.executemany(statement, rows)
    if sign > 0:
        connection.executemany("INSERT INTO lines VALUES (?, ?)", lines)
    else:
        connection.executemany("DELETE FROM lines WHERE line = ? AND key = ?", lines)
    connection.executemany(
        "INSERT INTO vocabulary VALUES (?, ?) ON CONFLICT (word) DO UPDATE SET n = n + excluded.n",
        [(word, sign * n) for word, n in counts.items()],
    )
    if sign < 0:
        connection.executemany(
            "DELETE FROM vocabulary WHERE word = ? AND n <= 0", [(word,) for word in counts]
        )
    return True


def written(connection: sqlite3.Connection, keys: Sequence[int] | None = None) -> Iterator[Written]:
    """Yield what is `Written` of some items, or of all in the order of their keys."""
    if keys is None:
        yield from connection.execute(_WRITTEN)
    else:
        listed = json.dumps(list(keys))
        yield from connection.execute(_WRITTEN.replace("1", _LISTED), (listed,))


def rebuild_words(connection: sqlite3.Connection) -> None:
    """Make everything anew from texts and payloads; inside a transaction."""
    for statement in SCHEMA.split(";"):
        if statement.strip():
            name = statement.split()[statement.split().index("TABLE") + 1]
            connection.execute(f"DROP TABLE IF EXISTS {name}")
            connection.execute(statement)
    _fill(connection, written(connection))


def _fill(connection: sqlite3.Connection, items: Iterator[Written]) -> None:
    some: list[Written] = []
    for item in items:
        some.append(item)
        if len(some) == _AT_ONCE:
            insert_words(connection, some)
            some = []
    insert_words(connection, some)


def word_findings(connection: sqlite3.Connection) -> Iterator[tuple[str, bool]]:
    """Yield what is wrong with texts and words, in words, and whether it can be made anew.

    The words of all items are indexed anew, in memory, and compared row by row.
    """
    (strays,) = connection.execute(
        "SELECT count(*) FROM texts WHERE key NOT IN (SELECT key FROM items)"
    ).fetchone()
    if strays:
        yield f"catalog: {strays} texts are of no item", False
    try:
        wrong = _differs(connection)
    except sqlite3.DatabaseError as error:
        yield f"catalog: the index of words cannot be read: {error}", True
    else:
        if wrong:
            yield "catalog: words differ from the texts and payloads of the items", True


def _differs(connection: sqlite3.Connection) -> bool:
    """Return whether any table of words differs from one that is made anew."""
    fresh = sqlite3.connect(":memory:", isolation_level=None)
    try:
        fresh.executescript(SCHEMA)
        _fill(fresh, written(connection))
        for each in (connection, fresh):
            each.execute("DROP TABLE IF EXISTS temp.instances")
            each.execute(
                "CREATE VIRTUAL TABLE temp.instances USING fts5vocab('main', 'words', 'instance')"
            )
        return any(
            a != b
            for sql in (
                "SELECT * FROM temp.instances",
                "SELECT * FROM words_docsize ORDER BY id",
                "SELECT * FROM vocabulary ORDER BY word",
                "SELECT * FROM lines ORDER BY line, key",
            )
            for a, b in zip_longest(connection.execute(sql), fresh.execute(sql))
        )
    finally:
        fresh.close()


# -- asking ----------------------------------------------------------------------------------------


def n_with(connection: sqlite3.Connection, words: Iterable[str]) -> dict[str, int]:
    """Return how many items have each word, in this form or, if none has, with its stem."""
    counts = dict.fromkeys(words, 0)
    counts.update(
        connection.execute(
            "SELECT word, n FROM vocabulary WHERE word IN (SELECT value FROM json_each(?))",
            (json.dumps(list(counts)),),
        )
    )
    for word in [each for each, n in counts.items() if not n and len(each) <= LONGEST]:
        (counts[word],) = connection.execute(
            "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)",
            (_any_of([word]), FREQUENT),
        ).fetchone()
    return counts


class Matches(NamedTuple):
    """Items that have words of a query, the best first, and how much of its words they have."""

    keys: Keys
    shares: Array


NO_MATCHES = Matches(np.empty(0, dtype=np.int64), np.empty(0))


def best_matches(
    connection: sqlite3.Connection,
    counts: Mapping[str, int],
    n_items: int,
    n: int,
    allow: Keys | None = None,
) -> Matches:
    """Return the n items that have most of the words of a query, by BM25.

    ``share = BM25 / sum idf``, at most 1: 1 for a text of usual length that has all words once.

    Parameters
    ----------
    counts : words of the query, and how many items have each (`n_with`)
    n_items : items of the collection
    allow : keys, ascending; others are left out
    """
    usual = {word: n for word, n in counts.items() if n <= max(n_items / 5, FREQUENT)}
    if any(usual.values()):
        counts = usual
    known = [word for word, each in counts.items() if each]
    if not known:
        return NO_MATCHES
    most = n if allow is None else -1
    rows = connection.execute(
        "SELECT rowid, -bm25(words) AS score FROM words WHERE words MATCH ? "
        "ORDER BY score DESC, rowid LIMIT ?",
        (_any_of(known), most),
    ).fetchall()
    keys = np.array([key for key, _ in rows], dtype=np.int64)
    scores = np.array([score for _, score in rows], dtype=np.float64)
    if allow is not None:
        inside = np.flatnonzero(np.isin(keys, allow))[:n]
        keys, scores = keys[inside], scores[inside]
    # FTS5 takes an idf that is not positive as 0.000001
    total = sum(max(math.log((n_items - n + 0.5) / (n + 0.5)), 1e-6) for n in counts.values())
    return Matches(keys, np.clip(scores / total, 0, 1))


def word_scores(connection: sqlite3.Connection, words: Iterable[str], key: int) -> dict[str, float]:
    """Return the BM25 of one item for each of the words that it has."""
    found: dict[str, float] = {}
    for word in words:
        if len(word) <= LONGEST:
            row = connection.execute(
                "SELECT -bm25(words) FROM words WHERE words MATCH ? AND rowid = ?",
                (_any_of([word]), key),
            ).fetchone()
            if row is not None:
                found[word] = row[0]
    return found


def equal_lines(connection: sqlite3.Connection, tokens: Sequence[str]) -> Keys:
    """Return the keys, ascending, of the items that have a line with exactly these words."""
    rows = connection.execute(
        "SELECT key FROM lines WHERE line = ? ORDER BY key", (line_of(tokens),)
    )
    return np.array([key for (key,) in rows], dtype=np.int64)


def with_all_words(connection: sqlite3.Connection, tokens: Iterable[str]) -> list[int]:
    """Return the keys, ascending, of the items that have all of these words, or their stems."""
    asked = " AND ".join(f'"{word}"' for word in tokens if len(word) <= LONGEST)
    if not asked:
        return [key for (key,) in connection.execute("SELECT key FROM texts ORDER BY key")]
    rows = connection.execute(
        "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid", (asked,)
    )
    return [key for (key,) in rows]


def _any_of(words: Iterable[str]) -> str:
    """Return a query of FTS5 for the items that have one of the words; words have no quotes."""
    return " OR ".join(f'"{word}"' for word in words)


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


def meant_texts(connection: sqlite3.Connection, keys: Sequence[int]) -> dict[int, str]:
    """Return how the texts begin whose meaning items have: kept ones, or those of payloads."""
    found = texts_of(connection, keys, begin=MEANT)
    missing = [key for key in keys if key not in found]
    rows = connection.execute(
        "SELECT key, payload FROM items WHERE payload IS NOT NULL "
        "AND key IN (SELECT value FROM json_each(?))",
        (json.dumps(missing),),
    )
    found.update((key, " ".join(payload_texts(payload))[:MEANT]) for key, payload in rows)
    return found


def insert_texts(connection: sqlite3.Connection, items: Sequence[Written]) -> None:
    """Keep the texts of new items, and make them found by their words; inside a transaction."""
    insert_rows(connection, "texts", [(key, text) for key, text, _, _ in items if text is not None])
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


SHORTEST, MOST_LETTERS = 4, 32
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

    Looked at are the words one edit away (a letter added, removed or replaced, or two neighbours
    swapped) and those with the same three first letters; `difflib` ranks them, and of equals the
    one that most items have comes first. The cost does not depend on the number of items.

    Left as they are: words of ``names``, which are those in names of classes; words that word
    vectors know as a whole; those of fewer than 4 or more than 32 letters, and all after eight.
    """
    counts = n_with(connection, dict.fromkeys(tokens_of(text)))
    unknown = [word for word, n in counts.items() if not n and word not in names]
    meant: dict[str, str] = {}
    for word in unknown[:_MOST_WORDS]:
        if SHORTEST <= len(word) <= MOST_LETTERS and not word_vectors().knows(word):
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
