"""Finding damage: checksums, counts and copies compared with what is stored.

A `Finding` has a text, and whether `repair` can fix it. The index, the members of classes, words
and the counts of classes can be rebuilt from the items' rows, and files that no commit refers
to can be removed. Items, thumbnails, texts, classes, rounds, the model and its journal can only be
restored from a backup.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oasis.collection.catalog import Catalog
from oasis.collection.class_members import add_members
from oasis.collection.committed import Committed
from oasis.collection.files import Files
from oasis.collection.rows import (
    CHECKED_COLUMNS,
    ITEM_COLUMNS,
    Head,
    ItemRow,
    check_count,
    label_numbers,
    row_crc,
)
from oasis.collection.words import rebuild_words, word_findings
from oasis.errors import OasisError
from oasis.index import HammingIndex
from oasis.model import OASIS
from oasis.store import recorded_checksum

_SHOWN = 5
_MEMBER = [("class", "<i8"), ("predicted", "<i8"), ("key", "<i8")]


@dataclass(frozen=True)
class Finding:
    """Something that is wrong.

    Attributes
    ----------
    text : what, in words
    can_repair : whether `repair` makes it anew
    is_missing : whether a file is not there, which a writer may have replaced meanwhile
    """

    text: str
    can_repair: bool = False
    is_missing: bool = False


def findings(
    snapshot: Committed,
    catalog: Catalog,
    connection: sqlite3.Connection,
    directory: Path,
    *,
    writes: bool,
) -> list[Finding]:
    """Return what is wrong; an empty list means that everything was read and is sound.

    ``snapshot`` must show the commit that the connection sees; if not, that alone is found. Files
    that no commit refers to are findings for a writer only, as a reader may see one being written.
    Cost: one pass over all files.
    """
    try:
        found = [
            Finding(f"catalog: {row[0]}")
            for row in connection.execute("PRAGMA integrity_check")
            if row[0] != "ok"
        ]
        head = catalog.head(connection)
        if head.commits != snapshot.head.commits:
            text = f"commit {snapshot.head.commits} was looked at, {head.commits} is there"
            return [Finding(text)]
        found += _tables(connection, head)
        found += _items(catalog, connection, head, snapshot)
        found += [Finding(text, can_repair) for text, can_repair in word_findings(connection)]
    except (sqlite3.DatabaseError, OasisError) as error:
        # tables that SQLite cannot read are not compared
        return [Finding(f"catalog: {error}")]
    found += _model(directory, head)
    found += _index(directory, head, snapshot)
    if writes:
        found += [
            Finding(f"{name}: no commit names it", can_repair=True)
            for name in Files(directory).left_over(head)
        ]
    return found


def _tables(connection: sqlite3.Connection, head: Head) -> Iterator[Finding]:
    """Compare every row with its crc, and every table with its tally."""
    tallies = {
        name: (n, crc) for name, n, crc in connection.execute("SELECT name, n, crc FROM tallies")
    }
    for table, columns in CHECKED_COLUMNS.items():
        can_repair = table == "deleted"  # an index made anew needs no list of deletions
        bad, n, total = 0, 0, 0
        for *row, crc in connection.execute(f"SELECT {columns}, crc FROM {table}"):  # noqa: S608
            n += 1
            total += crc if isinstance(crc, int) else 0
            bad += row_crc(*row) != crc
        if bad and table != "items":  # these are named by their keys
            rows = "row does" if bad == 1 else f"{bad} rows do"
            text = f"catalog: {rows} not match the checksum in {table}"
            yield Finding(text, can_repair)
        elif (n, total) != tallies.get(table, (0, 0)) and not bad:
            expected = tallies.get(table, (0, 0))[0]
            text = f"catalog: {table} has {n} rows, {expected} were written, or other ones"
            yield Finding(text, can_repair)
        expected = {"rounds": head.n_rounds, "journal": head.journal_entries}.get(table, n)
        if n != expected:
            what = "rounds" if table == "rounds" else "entries of the journal"
            yield Finding(f"catalog: there are {n} {what}, its head says {expected}")


def _items(
    catalog: Catalog, connection: sqlite3.Connection, head: Head, snapshot: Committed
) -> Iterator[Finding]:
    copies = _Copies()
    bad: list[int] = []
    foreign: list[int] = []
    keys, codes = [], []
    for values in connection.execute(f"SELECT {ITEM_COLUMNS} FROM items ORDER BY key"):  # noqa: S608
        row = ItemRow(*values)
        if not row.is_sound:
            bad.append(row.key)
            continue
        copies.add(row)
        if len(row.code) * 8 != snapshot.replica.n_bits or not 0 < row.key < head.next_key:
            foreign.append(row.key)
            continue
        keys.append(row.key)
        codes.append(row.code)
    if bad:
        yield Finding(f"catalog: {_some(bad)} do not match their checksums")
    if foreign:
        yield Finding(f"catalog: {_some(foreign)} have a code or key that cannot be")
    n = len(keys) + len(bad) + len(foreign)
    if n != head.n_items:
        yield Finding(f"catalog: there are {n} items, its head says {head.n_items}")
    stored = np.frombuffer(b"".join(codes), dtype=np.uint8).reshape(
        -1, snapshot.replica.n_bits // 8
    )
    deleted = catalog.deleted(connection, 0, head.next_key)
    for text in snapshot.replica.findings(
        np.array(keys, dtype=np.int64), stored, deleted, head.next_key
    ):
        yield Finding(text, can_repair=True)
    yield from _classes(connection, copies, exact=not bad)
    yield from _class_members(connection, copies)


class _Copies:
    """What items say of classes, and catalogs keep a copy of: members given, members predicted."""

    def __init__(self) -> None:
        self.numbers: tuple[list[int], list[int]] = ([], [])
        self.keys: tuple[list[int], list[int]] = ([], [])

    def add(self, row: ItemRow) -> None:
        for kind, text in enumerate((row.labels, row.predicted)):
            own = label_numbers(text)
            self.numbers[kind].extend(own)
            self.keys[kind].extend([row.key] * len(own))

    def counts(self) -> tuple[Counter[int], Counter[int]]:
        given, predicted = self.numbers
        return Counter(given), Counter(predicted)


def _classes(connection: sqlite3.Connection, copies: _Copies, *, exact: bool) -> Iterator[Finding]:
    given, predicted = copies.counts()
    known: set[int] = set()
    for number, name, n, n_predicted in connection.execute(
        "SELECT number, name, n, n_predicted FROM classes"
    ):
        known.add(number)
        found = (given[number], predicted[number])
        if exact and found != (n, n_predicted):
            text = (
                f"catalog: class {name!r} has {found[0]} items and is predicted of {found[1]}, its "
                f"counts say {n} and {n_predicted}"
            )
            yield Finding(text, can_repair=True)
    if unknown := sorted((set(given) | set(predicted)) - known):
        yield Finding(f"catalog: items have classes without names: {unknown[:_SHOWN]}")


def _class_members(connection: sqlite3.Connection, copies: _Copies) -> Iterator[Finding]:
    """Compare the table of members with what the items say."""
    rows = connection.execute("SELECT class, predicted, key FROM members").fetchall()
    listed = np.array(rows, dtype=_MEMBER)
    wanted = np.concatenate(
        [
            _members(numbers, kind, keys)
            for kind, (numbers, keys) in enumerate(zip(copies.numbers, copies.keys, strict=True))
        ]
    )
    if lacking := len(np.setdiff1d(wanted, listed)):
        text = f"catalog: classes lack {lacking} members that items tell"
        yield Finding(text, can_repair=True)
    if extra := len(np.setdiff1d(listed, wanted)):
        text = f"catalog: classes have {extra} members that no item tells"
        yield Finding(text, can_repair=True)


def _members(
    numbers: object, predicted: int, keys: object
) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """Return classes, whether they are predicted, and keys as one array of triples."""
    classes = np.asarray(numbers, dtype=np.int64)
    made = np.empty(len(classes), dtype=_MEMBER)
    made["class"], made["predicted"] = classes, predicted
    made["key"] = np.asarray(keys, dtype=np.int64)
    return made


def _model(directory: Path, head: Head) -> Iterator[Finding]:
    if head.model:
        path = directory / head.model_name
        try:
            if recorded_checksum(path) != (head.model_bytes, head.model_crc):
                yield Finding(f"{path.name}: it is not the file that the catalog names")
            OASIS.load(path)
        except (OSError, OasisError) as error:
            yield Finding(f"{path.name}: {error}", is_missing=isinstance(error, FileNotFoundError))


def _index(directory: Path, head: Head, snapshot: Committed) -> Iterator[Finding]:
    if not head.index:
        return
    path = directory / head.index_name
    try:
        index = HammingIndex.open(path, verify=True)
        if index.n_bits != snapshot.replica.n_bits:
            text = f"its codes have {index.n_bits} bits, not {snapshot.replica.n_bits}"
            yield Finding(f"{path.name}: {text}", can_repair=True)
    except (OSError, OasisError) as error:
        text = f"{path.name}: {error} (it is made anew from the catalog)"
        yield Finding(text, can_repair=True, is_missing=isinstance(error, FileNotFoundError))


def rebuild_copies(connection: sqlite3.Connection) -> None:
    """Make members and counts of classes anew from the items and texts, and forget deletions.

    Inside a transaction that also says that there is no index file. Raises `FormatError` where a
    row of an item is damaged itself, or not found: without its index file the collection could not
    be opened any more.
    """
    connection.execute("DELETE FROM members")
    connection.execute("DELETE FROM deleted")
    connection.execute("DELETE FROM tallies WHERE name = 'deleted'")
    connection.execute("UPDATE classes SET n = 0, n_predicted = 0")
    chunks: list[tuple[int, dict[int, list[int]], dict[int, list[int]]]] = []
    at = n = 0
    for values in connection.execute(f"SELECT {ITEM_COLUMNS} FROM items ORDER BY key"):  # noqa: S608
        row = ItemRow(*values).check()
        n += 1
        if row.round != at:
            at = row.round
            chunks.append((row.key, {}, {}))
        first_key, given, predicted = chunks[-1]
        for text, members in ((row.labels, given), (row.predicted, predicted)):
            for number in label_numbers(text):
                members.setdefault(number, []).append(row.key - first_key)
    check_count(connection, "items", n)
    for first_key, given, predicted in chunks:
        add_members(connection, first_key, given)
        add_members(connection, first_key, predicted, predicted=True)
    rebuild_words(connection)


def _some(keys: list[int]) -> str:
    more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    return f"items with keys {', '.join(map(str, keys[:_SHOWN]))}{more}"
