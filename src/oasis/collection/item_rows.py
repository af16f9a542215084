"""The statements that insert, change and delete items; inside a transaction of the catalog."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from oasis.codes import Codes
from oasis.collection.class_members import add_classes, change_members, note_round
from oasis.collection.duplicates import packed, unpacked
from oasis.collection.intake import Intake
from oasis.collection.records import Quality
from oasis.collection.rows import (
    ItemRow,
    Keys,
    delete_rows,
    insert_rows,
    label_numbers,
    label_text,
)
from oasis.collection.words import (
    delete_texts,
    delete_words,
    insert_texts,
    insert_words,
    payload_texts,
    text_of,
)


@dataclass(frozen=True)
class NewItems:
    """Items about to get new keys, or new versions of items: what a replica needs of them.

    Attributes
    ----------
    first_key : key of the first one; the others follow
    labels : class names of each item
    predicted : class names that are predicted of each item without labels
    codes : (n, n_bits / 8)
    """

    first_key: int
    labels: list[tuple[str, ...]]
    predicted: list[tuple[str, ...]]
    codes: Codes

    @property
    def keys(self) -> Keys:
        return np.arange(self.first_key, self.first_key + len(self.labels))


def insert_chunk(
    connection: sqlite3.Connection,
    new: NewItems,
    intake: Intake,
    number: int,
    prints: Iterable[bytes | None],
    classes: list[str],
) -> None:
    """Insert the items of round ``number``; ``classes``, the names by number, grows by new ones.

    ``prints`` are the packed fingerprints of each item.
    """
    keys = new.keys.tolist()
    rounds = [number] * len(keys)
    facts = zip(keys, intake.ids, keys, rounds, prints, intake.looks, intake.payloads, strict=True)
    seen = _insert_items(connection, new, facts, classes)
    note_round(connection, seen, number)
    for table, pictures in (("thumbnails", intake.thumbnails), ("previews", intake.previews)):
        there = ((key, each) for key, each in zip(keys, pictures, strict=True) if each is not None)
        insert_rows(connection, table, there)
    written = zip(keys, intake.texts, intake.payloads, intake.looks, strict=True)
    insert_texts(connection, list(written))


def insert_round(
    connection: sqlite3.Connection,
    number: int,
    labels: Sequence[tuple[str, ...]],
    quality: Quality | None,
    time: float,
    seconds: float,
    n_bytes: int,
) -> None:
    """Insert the row of a round."""
    n_labelled = sum(map(bool, labels))
    row = (number, time, len(labels), n_labelled, *(quality or (None, None)), seconds, n_bytes)
    insert_rows(connection, "rounds", [row])


def insert_versions(
    connection: sqlite3.Connection,
    items: Sequence[ItemRow],
    new: NewItems,
    payloads: Sequence[str | None],
    classes: list[str],
    commits: int,
) -> None:
    """Put new versions of items, under new keys, in the place of those they have.

    Pictures and features stay where they are. ``classes`` is as in `insert_chunk`.
    """
    old = [item.key for item in items]
    texts = [text_of(connection, key) for key in old]
    delete_texts(connection, old)
    _remove_items(connection, items, commits)
    keys = new.keys.tolist()
    facts = (
        (key, item.id, item.born, item.round, _moved(item, key), item.looks, payload)
        for key, item, payload in zip(keys, items, payloads, strict=True)
    )
    _insert_items(connection, new, facts, classes)
    looks = [item.looks for item in items]
    insert_texts(connection, list(zip(keys, texts, payloads, looks, strict=True)))


def _insert_items(
    connection: sqlite3.Connection,
    new: NewItems,
    facts: Iterable[tuple[int, object, int, int, bytes | None, str | None, str | None]],
    classes: list[str],
) -> set[int]:
    """Insert rows of items; return the numbers of the classes that they were given.

    ``facts`` are key, id, born, round, prints, looks and payload of each.
    """
    known, numbers = len(classes), {name: number for number, name in enumerate(classes)}
    sets: dict[tuple[str, ...], tuple[list[int], str | None]] = {}
    for names in dict.fromkeys((*new.labels, *new.predicted)):  # a chunk has few distinct ones
        own = [numbers.setdefault(name, len(numbers)) for name in names]
        sets[names] = own, label_text(own)
    packed_codes, width = new.codes.tobytes(), new.codes.shape[1]
    codes = [packed_codes[at : at + width] for at in range(0, len(packed_codes), width)]
    insert_rows(
        connection,
        "items",
        (
            (*fact[:4], code, fact[4], sets[own][1], sets[guess][1], *fact[5:])
            for fact, code, own, guess in zip(facts, codes, new.labels, new.predicted, strict=True)
        ),
    )
    classes += list(numbers)[known:]
    add_classes(connection, known, classes[known:])
    keys = new.keys.tolist()
    for predicted, each in ((False, new.labels), (True, new.predicted)):
        own_sets = [sets[names][0] for names in each]
        change_members(connection, keys, own_sets, predicted=predicted, adds=True)
    return {number for names in set(new.labels) for number in sets[names][0]}


def set_payload(connection: sqlite3.Connection, item: ItemRow, payload: str | None) -> None:
    """Give an item another payload."""
    if payload_texts(item.payload) != payload_texts(payload):
        text = text_of(connection, item.key)
        delete_words(connection, [(item.key, text, item.payload, item.looks)])
        insert_words(connection, [(item.key, text, payload, item.looks)])
    delete_rows(connection, "items", "key = ?", [(item.key,)])
    insert_rows(connection, "items", [item._replace(payload=payload)[:-1]])


def _moved(item: ItemRow, key: int) -> bytes | None:
    """Return the fingerprints of an item under another key, which their checksum covers."""
    if item.prints is None:
        return None
    prints = unpacked([item.prints], np.array([item.key]), len(item.prints) // 8)
    return packed(prints, key)[0]


def delete_items(connection: sqlite3.Connection, items: Sequence[ItemRow], commits: int) -> None:
    """Delete items and all that belongs to them; remember the keys for commit ``commits``."""
    delete_texts(connection, [item.key for item in items])
    _remove_items(connection, items, commits)
    for table in ("thumbnails", "previews", "features"):
        delete_rows(connection, table, "key = ?", [(item.born,) for item in items])


def _remove_items(connection: sqlite3.Connection, items: Sequence[ItemRow], commits: int) -> None:
    keys = [item.key for item in items]
    for predicted in (False, True):
        texts = [item.predicted if predicted else item.labels for item in items]
        change_members(
            connection, keys, list(map(label_numbers, texts)), predicted=predicted, adds=False
        )
    delete_rows(connection, "items", "key = ?", [(item.key,) for item in items])
    connection.executemany(
        "INSERT INTO deleted VALUES (?, ?)", [(item.key, commits) for item in items]
    )
