"""Which items have a word in their text: postings in the catalog, and the texts themselves.

``texts`` has the text of an item as it came. ``words`` has, for a word and a block of 4,096
successive keys, the items of the block that have the word: their offsets in the block (uint16,
ascending, little-endian), then for each the number of distinct words of its text (uint8, at most
255). Lines of texts that have several are listed in the same way, by their words together
(`line_key`). It is derived from the texts and can be rebuilt.

SQLite's FTS5 was measured instead: at 100,000 captions its ranking took 96 ms a query (median), and
before SQLite 3.42 it leaves the words of deleted texts in the file. Reading these postings takes
less than a millisecond, and a deletion removes the entries.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from oasis.collection.catalog.commits import Keys, delete_rows, insert_rows, row_crc, tally
from oasis.collection.texts.phrases import Phrase, count_words
from oasis.errors import FormatError

BLOCK = 1 << 12
"""Keys of one row of ``words``."""

_LONGEST = 255
_Offsets: TypeAlias = npt.NDArray[np.uint16]
_Sizes: TypeAlias = npt.NDArray[np.uint8]
_AT_ONCE = 20_000


class Having(NamedTuple):
    """Keys of items that have a word, ascending, and how many distinct words their texts have."""

    keys: Keys
    sizes: npt.NDArray[np.uint8]


def insert_texts(connection: sqlite3.Connection, texts: Sequence[tuple[int, str]]) -> None:
    """Keep texts by key; inside a transaction."""
    if not texts:
        return
    insert_rows(connection, "texts", texts)
    _insert_words(connection, texts)


def _insert_words(connection: sqlite3.Connection, texts: Iterable[tuple[int, str]]) -> None:
    """Append entries; their keys are larger than all that are there."""
    changes = _Changes(connection)
    for word, entries in count_words(texts).items():
        for block, offsets, sizes in _blocks(entries):
            known, lengths = _split(word, changes.row(word, block))
            changes.put(word, block, np.append(known, offsets), np.append(lengths, sizes))
    changes.tally()


def delete_texts(connection: sqlite3.Connection, keys: Sequence[int]) -> None:
    """Remove the texts of items and the entries of their words; inside a transaction."""
    changes = _Changes(connection)
    for start in range(0, len(keys), _AT_ONCE):
        rows = texts_of(connection, keys[start : start + _AT_ONCE])
        for word, entries in count_words(rows).items():
            for block, offsets, _ in _blocks(entries):
                known, lengths = _split(word, changes.row(word, block))
                stay = ~np.isin(known, offsets)
                changes.put(word, block, known[stay], lengths[stay])
    changes.tally()
    delete_rows(connection, "texts", "key = ?", [(key,) for key in keys])


class _Changes:
    """Rows of ``words`` that are written anew, and what that does to their tally."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._n = self._crc = 0
        self._old: int | None = None

    def row(self, word: str, block: int) -> bytes:
        """Return a row; empty for one that is not there."""
        found = self._connection.execute(
            "SELECT items, crc FROM words WHERE word = ? AND block = ?", (word, block)
        ).fetchone()
        self._old = None if found is None else found[1]
        return b"" if found is None else found[0]

    def put(self, word: str, block: int, offsets: _Offsets, sizes: _Sizes) -> None:
        """Write the row that was read last; remove it where nothing is left."""
        self._n -= self._old is not None
        self._crc -= self._old or 0
        if not len(offsets):
            self._connection.execute(
                "DELETE FROM words WHERE word = ? AND block = ?", (word, block)
            )
            return
        items = _joined(offsets, sizes)
        crc = row_crc(word, block, items)
        self._connection.execute(
            "INSERT OR REPLACE INTO words VALUES (?, ?, ?, ?)", (word, block, items, crc)
        )
        self._n += 1
        self._crc += crc

    def tally(self) -> None:
        """Count what was written."""
        tally(self._connection, "words", self._n, self._crc)


def texts_of(connection: sqlite3.Connection, keys: Iterable[int]) -> list[tuple[int, str]]:
    """Return key and text of those of the keys whose items have one."""
    return connection.execute(
        "SELECT key, text FROM texts WHERE key IN (SELECT value FROM json_each(?)) ORDER BY key",
        (json.dumps(list(keys)),),
    ).fetchall()


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


def having(connection: sqlite3.Connection, word: str, after: int = 0) -> Having:
    """Return the items beyond key ``after`` that have a word, or a line (see `line_key`)."""
    rows = connection.execute(
        "SELECT block, items FROM words WHERE word = ? AND block >= ? ORDER BY block",
        (word, after // BLOCK),
    ).fetchall()
    counts = [_n_entries(word, items) for _, items in rows]
    offsets = b"".join([items[: 2 * n] for (_, items), n in zip(rows, counts, strict=True)])
    sizes = b"".join([items[2 * n :] for (_, items), n in zip(rows, counts, strict=True)])
    keys = np.repeat(np.array([BLOCK * block for block, _ in rows], dtype=np.int64), counts)
    keys += np.frombuffer(offsets, dtype="<u2")
    found = Having(keys, np.frombuffer(sizes, dtype=np.uint8))
    if after:
        first = int(np.searchsorted(keys, after, side="right"))
        found = Having(found.keys[first:], found.sizes[first:])
    return found


def containing(connection: sqlite3.Connection, phrase: Phrase, after: int) -> Keys:
    """Return the keys beyond ``after``, ascending, of the items in whose text a phrase stands.

    Cost: about 10 microseconds for each text that has all words of the phrase. A phrase of stop
    words, or of kana, Thai, Lao, Burmese or Khmer alone, reads all texts.
    """
    if phrase.words:
        first, *others = phrase.words
        keys = having(connection, first, after).keys
        for word in others:  # one list at a time: a phrase may have 1,000 words
            if not len(keys):
                break
            keys = _common(keys, having(connection, word, after).keys)
        rows: Iterable[tuple[int, str]] = texts_of(connection, keys.tolist())
    else:
        rows = connection.execute(
            "SELECT key, text FROM texts WHERE key > ? ORDER BY key", (after,)
        )
    passed = [key for key, text in rows if phrase.stands_in(text)]
    return np.array(passed, dtype=np.int64)


def _common(a: Keys, b: Keys) -> Keys:
    """Return the keys that are in both of two ascending lists."""
    few, many = sorted((a, b), key=len)
    if not len(few):
        return few
    at = np.minimum(many.searchsorted(few), len(many) - 1)
    found: Keys = few[many[at] == few]
    return found


def rebuild_words(connection: sqlite3.Connection) -> None:
    """Make the postings anew from the texts; inside a transaction."""
    connection.execute("DELETE FROM words")
    connection.execute("DELETE FROM tallies WHERE name = 'words'")
    for block in _all_texts(connection):
        _insert_words(connection, block)


def word_findings(connection: sqlite3.Connection) -> Iterator[tuple[str, bool]]:
    """Yield what is wrong with texts and postings, in words, and whether it can be made anew."""
    (strays,) = connection.execute(
        "SELECT count(*) FROM texts WHERE key NOT IN (SELECT key FROM items)"
    ).fetchone()
    if strays:
        yield f"catalog: {strays} texts are of no item", False
    wanted = {
        (word, block): _joined(offsets, sizes)
        for texts in _all_texts(connection)
        for word, entries in count_words(texts).items()
        for block, offsets, sizes in _blocks(entries)
    }
    wrong = 0
    for word, block, items in connection.execute("SELECT word, block, items FROM words"):
        wrong += wanted.pop((word, block), None) != items
    if wrong + len(wanted):
        yield f"catalog: words have {wrong + len(wanted)} rows that differ from the texts", True


def _all_texts(connection: sqlite3.Connection) -> Iterator[list[tuple[int, str]]]:
    """Yield all texts, those of one block of keys at a time."""
    block = -1
    while True:
        (first,) = connection.execute(
            "SELECT min(key) FROM texts WHERE key >= ?", ((block + 1) * BLOCK,)
        ).fetchone()
        if first is None:
            return
        block = first // BLOCK
        yield connection.execute(
            "SELECT key, text FROM texts WHERE key >= ? AND key < ? ORDER BY key",
            (block * BLOCK, (block + 1) * BLOCK),
        ).fetchall()


def _blocks(entries: Iterable[tuple[int, int]]) -> Iterator[tuple[int, _Offsets, _Sizes]]:
    """Yield blocks with the offsets and numbers of words of their entries."""
    found: dict[int, list[tuple[int, int]]] = {}
    for key, size in entries:
        found.setdefault(key // BLOCK, []).append((key % BLOCK, min(size, _LONGEST)))
    for block, members in found.items():
        offsets, sizes = zip(*members, strict=True)
        yield block, np.array(offsets, dtype="<u2"), np.array(sizes, dtype=np.uint8)


def _joined(offsets: _Offsets, sizes: _Sizes) -> bytes:
    return offsets.astype("<u2").tobytes() + sizes.tobytes()


def _n_entries(word: str, items: bytes) -> int:
    if not isinstance(items, bytes) or len(items) % 3:
        raise FormatError(
            f"the catalog is damaged: the items with the word {word!r} cannot be read; 'oasis "
            "check' lists all damage, and with --repair makes them anew"
        )
    return len(items) // 3


def _split(word: str, items: bytes) -> tuple[_Offsets, _Sizes]:
    n = _n_entries(word, items)
    return (
        np.frombuffer(items, dtype="<u2", count=n),
        np.frombuffer(items, dtype=np.uint8, offset=2 * n),
    )
