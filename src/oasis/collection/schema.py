"""The tables of a collection's catalog, and its head: the one row that says what is committed.

Format version 1. ``items`` holds one row per item that is not deleted; its key only grows and is
never used again. ``crc`` covers the whole row. ``labels`` are numbers of classes, as text with
commas. ``postings`` lists, per class and chunk, the items that had the class on arrival: offsets
from ``first_key``, little-endian uint32. ``deleted`` keeps keys that readers and the index file
still have to forget.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, fields, replace

from oasis.collection.records import Id

APPLICATION_ID = 0x0A515
FORMAT_VERSION = 1

SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE head (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    commits INTEGER NOT NULL, next_key INTEGER NOT NULL, n_items INTEGER NOT NULL,
    n_seen INTEGER NOT NULL, n_rounds INTEGER NOT NULL,
    model INTEGER NOT NULL, model_bytes INTEGER NOT NULL, model_crc INTEGER NOT NULL,
    journal INTEGER NOT NULL, journal_bytes INTEGER NOT NULL, journal_entries INTEGER NOT NULL,
    "index" INTEGER NOT NULL, index_commits INTEGER NOT NULL, index_key INTEGER NOT NULL
);
CREATE TABLE items (
    key INTEGER PRIMARY KEY, id NOT NULL UNIQUE, round INTEGER NOT NULL, code BLOB NOT NULL,
    labels TEXT, payload TEXT, crc INTEGER NOT NULL
);
CREATE TABLE classes (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, n INTEGER NOT NULL,
    round INTEGER NOT NULL
);
CREATE TABLE postings (
    class INTEGER NOT NULL, first_key INTEGER NOT NULL, offsets BLOB NOT NULL,
    PRIMARY KEY (class, first_key)
) WITHOUT ROWID;
CREATE TABLE rounds (
    number INTEGER PRIMARY KEY, time REAL NOT NULL, n INTEGER NOT NULL,
    n_labelled INTEGER NOT NULL, "precision" REAL, chance REAL, seconds REAL NOT NULL,
    bytes INTEGER NOT NULL
);
CREATE TABLE thumbnails (key INTEGER PRIMARY KEY, picture BLOB NOT NULL);
CREATE TABLE deleted (key INTEGER PRIMARY KEY, commits INTEGER NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Head:
    """What is committed.

    Attributes
    ----------
    commits : number of commits so far
    next_key : key of the next item; every item has a smaller one
    n_items, n_seen, n_rounds : items now, samples ever, chunks ever
    model, model_bytes, model_crc : generation of the model file (0: none), its length and checksum
    journal, journal_bytes, journal_entries : generation of the journal file (0: none), the
        committed part of it
    index, index_commits, index_key : generation of the index file (0: none), the commit it shows,
        and the last key it may hold. Where codes are searched elsewhere there is no file, and the
        commit is one whose deletions are known to have arrived there
    """

    commits: int = 0
    next_key: int = 1
    n_items: int = 0
    n_seen: int = 0
    n_rounds: int = 0
    model: int = 0
    model_bytes: int = 0
    model_crc: int = 0
    journal: int = 0
    journal_bytes: int = 0
    journal_entries: int = 0
    index: int = 0
    index_commits: int = 0
    index_key: int = 0

    @property
    def model_name(self) -> str:
        return f"model-{self.model}.safetensors"

    @property
    def journal_name(self) -> str:
        return f"journal-{self.journal}.bin"

    @property
    def index_name(self) -> str:
        return f"index-{self.index}.hamming"

    @property
    def file_names(self) -> set[str]:
        """The files beside the catalog that this commit needs."""
        return {
            name
            for generation, name in (
                (self.model, self.model_name),
                (self.journal, self.journal_name),
                (self.index, self.index_name),
            )
            if generation
        }


def without_index_file(head: Head, commits: int, last_key: int) -> Head:
    """Return a head that names no index file, as codes are searched elsewhere or read from rows.

    Deletions up to ``commits`` need not be listed any longer; keys beyond ``last_key`` count as
    changes since.
    """
    return replace(head, index=0, index_commits=commits, index_key=last_key)


HEAD_COLUMNS = ", ".join(f'"{field.name}"' for field in fields(Head))


def row_crc(
    key: int, item: Id, number: int, code: bytes, labels: str | None, payload: str | None
) -> int:
    """Return the signed crc32 of everything in an item's row; 4 bytes where SQLite keeps it.

    >>> row_crc(1, "a", 1, b"", None, None) == row_crc(1, "b", 1, b"", None, None)
    False
    """
    text = repr((key, item, number, labels, payload)).encode()
    return zlib.crc32(code, zlib.crc32(text)) - (1 << 31)


def label_text(numbers: list[int]) -> str | None:
    """Return class numbers as they stand in a row; None for none.

    >>> label_text([3, 17]), label_text([])
    ('3,17', None)
    """
    return ",".join(map(str, numbers)) or None


def label_numbers(text: str | None) -> list[int]:
    """Return the class numbers of a row.

    >>> label_numbers("3,17")
    [3, 17]
    """
    return [int(part) for part in text.split(",")] if text else []
