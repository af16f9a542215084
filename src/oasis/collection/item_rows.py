"""The statements that insert, change and delete items; inside a transaction of the catalog."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from oasis.arrays import Rows
from oasis.codes import Codes
from oasis.collection.class_members import (
    add_classes,
    add_members,
    note_round,
    remove_members,
)
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
from oasis.collection.words import delete_words, insert_words, payload_texts, text_of


@dataclass(frozen=True)
class NewChunk:
    """A learned chunk, ready to be committed.

    Attributes
    ----------
    number : of the round
    first_key : key of its first item; the others follow
    intake : ids, payloads, thumbnails
    labels : class names of each item
    predicted : class names that are predicted of each item without labels
    codes : (n, n_bits / 8)
    """

    number: int
    first_key: int
    intake: Intake
    labels: list[tuple[str, ...]]
    predicted: list[tuple[str, ...]]
    codes: Codes

    @property
    def keys(self) -> Keys:
        return np.arange(self.first_key, self.first_key + len(self.labels))


class _LabelSet(NamedTuple):
    """The numbers of some classes, and the text that rows have for them."""

    numbers: list[int]
    text: str | None

    @classmethod
    def of(cls, numbers: list[int]) -> _LabelSet:
        return cls(numbers, label_text(numbers))


class _Classes:
    """Numbers of classes by name; a name that is new gets the next one."""

    def __init__(self, names: Sequence[str]) -> None:
        self._numbers = {name: number for number, name in enumerate(names)}
        self._known = len(names)

    def of(self, names: tuple[str, ...]) -> _LabelSet:
        return _LabelSet.of([self._numbers.setdefault(name, len(self._numbers)) for name in names])

    def of_all(self, label_sets: Sequence[tuple[str, ...]]) -> list[_LabelSet]:
        # the items of a chunk have few distinct label sets
        distinct = {names: self.of(names) for names in dict.fromkeys(label_sets)}
        return [distinct[names] for names in label_sets]

    @property
    def new(self) -> list[str]:
        """The names that were new, in the order of their numbers."""
        return list(self._numbers)[self._known :]

    def add_new(self, connection: sqlite3.Connection) -> None:
        """Insert the rows of new classes."""
        rows = ((number, name, 0) for number, name in enumerate(self.new, self._known))
        add_classes(connection, rows)


def insert_chunk(
    connection: sqlite3.Connection,
    chunk: NewChunk,
    prints: Iterable[bytes | None],
    classes: Sequence[str],
) -> list[str]:
    """Insert the items of a chunk; return the classes that are new to the catalog.

    ``prints`` are the packed fingerprints of each item.
    """
    numbers = _Classes(classes)
    given = numbers.of_all(chunk.labels)
    predicted = numbers.of_all(chunk.predicted)
    width = chunk.codes.shape[1]
    packed = chunk.codes.tobytes()
    codes = [packed[at : at + width] for at in range(0, len(packed), width)]
    intake, keys = chunk.intake, range(chunk.first_key, chunk.first_key + len(given))
    insert_rows(
        connection,
        "items",
        (
            (key, item, key, chunk.number, code, print_, own.text, guess.text, payload, None)
            for key, item, code, print_, own, guess, payload in zip(
                keys,
                intake.ids,
                codes,
                prints,
                given,
                predicted,
                intake.payloads,
                strict=True,
            )
        ),
    )
    numbers.add_new(connection)
    members = _members(given)
    note_round(connection, list(members), chunk.number)
    add_members(connection, chunk.first_key, members)
    add_members(connection, chunk.first_key, _members(predicted), predicted=True)
    for table, pictures in (("thumbnails", intake.thumbnails), ("previews", intake.previews)):
        insert_rows(
            connection,
            table,
            (
                (key, picture)
                for key, picture in zip(keys, pictures, strict=True)
                if picture is not None
            ),
        )
    return numbers.new


def _members(label_sets: list[_LabelSet]) -> dict[int, Rows]:
    """Return the positions of the sets that have a class, ascending, by class."""
    sizes = [len(labels.numbers) for labels in label_sets]
    numbers = np.fromiter(
        chain.from_iterable(labels.numbers for labels in label_sets), np.int64, sum(sizes)
    )
    if not len(numbers):
        return {}
    order = np.argsort(numbers, kind="stable")
    rows, numbers = np.repeat(np.arange(len(sizes)), sizes)[order], numbers[order]
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    return dict(zip(numbers[starts].tolist(), np.split(rows, starts[1:]), strict=True))


def insert_round(
    connection: sqlite3.Connection,
    chunk: NewChunk,
    quality: Quality | None,
    time: float,
    seconds: float,
    n_bytes: int,
) -> None:
    """Insert the row of the round."""
    precision, chance = (None, None) if quality is None else quality
    n_labelled = sum(bool(names) for names in chunk.labels)
    row = (chunk.number, time, len(chunk.labels), n_labelled, precision, chance, seconds, n_bytes)
    insert_rows(connection, "rounds", [row])


def change_item(
    connection: sqlite3.Connection,
    item: ItemRow,
    labels: tuple[str, ...] | None,
    payload: str | None,
    classes: Sequence[str],
    commits: int,
    guess: tuple[str, ...] | None = None,
) -> list[str]:
    """Give an item other labels (None: keep them) and this payload, by commit ``commits``.

    Labels that are given replace predicted ones; if none are, ``guess`` does. Returns the classes
    that are new to the catalog.
    """
    numbers = _Classes(classes)
    old, predicted = label_numbers(item.labels), label_numbers(item.predicted)
    own = old if labels is None else numbers.of(labels).numbers
    if labels is not None:
        numbers.add_new(connection)
        remove_members(connection, {number: [item.key] for number in set(old) - set(own)})
        remove_members(connection, {number: [item.key] for number in predicted}, predicted=True)
        add_members(connection, item.key, {number: [0] for number in sorted(set(own) - set(old))})
        predicted = []
    elif guess is not None:
        guessed = numbers.of(guess).numbers
        numbers.add_new(connection)
        remove_members(connection, {number: [item.key] for number in predicted}, predicted=True)
        add_members(connection, item.key, {number: [0] for number in guessed}, predicted=True)
        predicted = guessed
    if payload_texts(item.payload) != payload_texts(payload):
        text = text_of(connection, item.key)
        delete_words(connection, [(item.key, text, item.payload)])
        insert_words(connection, [(item.key, text, payload)])
    delete_rows(connection, "items", "key = ?", [(item.key,)])
    changed = item._replace(
        labels=label_text(own), predicted=label_text(predicted), payload=payload, changed=commits
    )
    insert_rows(connection, "items", [changed[:-1]])
    return numbers.new


def insert_versions(
    connection: sqlite3.Connection,
    items: Sequence[ItemRow],
    first_key: int,
    labels: Sequence[tuple[str, ...]],
    predicted: Sequence[tuple[str, ...]],
    codes: Codes,
    classes: Sequence[str],
    commits: int,
) -> list[str]:
    """Put new versions of items, under new keys, in the place of those they have.

    Payloads are those of ``items``. Returns the classes that are new to the catalog.
    """
    numbers = _Classes(classes)
    given, guessed = numbers.of_all(labels), numbers.of_all(predicted)
    _remove_items(connection, [item.key for item in items], commits)
    rows = [
        item._replace(
            key=key,
            code=code.tobytes(),
            prints=_moved(item.prints, item.key, key),
            labels=own.text,
            predicted=guess.text,
            changed=commits,
        )[:-1]
        for key, (item, own, guess, code) in enumerate(
            zip(items, given, guessed, codes, strict=True), first_key
        )
    ]
    for has_prints in (True, False):
        some = [
            row for row, item in zip(rows, items, strict=True) if bool(item.prints) == has_prints
        ]
        insert_rows(connection, "items", some)
    numbers.add_new(connection)
    add_members(connection, first_key, _members(given))
    add_members(connection, first_key, _members(guessed), predicted=True)
    return numbers.new


def _moved(prints: bytes | None, old: int, new: int) -> bytes | None:
    """Return the fingerprints of an item under another key, which their checksum covers."""
    if prints is None:
        return None
    return packed(unpacked([prints], np.array([old]), len(prints) // 8), new)[0]


def delete_items(connection: sqlite3.Connection, keys: list[int], commits: int) -> None:
    """Delete items, their pictures and features; remember the keys for commit ``commits``."""
    born = _remove_items(connection, keys, commits)
    for table in ("thumbnails", "previews", "features"):
        delete_rows(connection, table, "key = ?", born)


def _remove_items(
    connection: sqlite3.Connection, keys: list[int], commits: int
) -> list[tuple[int]]:
    """Remove the rows of items; return the keys that their pictures and features have."""
    given: dict[int, list[int]] = {}
    predicted: dict[int, list[int]] = {}
    born: list[tuple[int]] = []
    for key in keys:
        row = connection.execute("SELECT labels, predicted, born FROM items WHERE key = ?", (key,))
        *sets, first_key = row.fetchone()
        born.append((first_key,))
        for text, members in zip(sets, (given, predicted), strict=True):
            for number in label_numbers(text):
                members.setdefault(number, []).append(key)
    remove_members(connection, given)
    remove_members(connection, predicted, predicted=True)
    delete_rows(connection, "items", "key = ?", [(key,) for key in keys])
    insert_rows(connection, "deleted", ((key, commits) for key in keys))
    return born
