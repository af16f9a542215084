"""Finding damage: checksums, counts and copies compared with what is stored.

A `Finding` has a text, and whether `repair` can fix it. The index, the members of classes, words
and the counts of classes can be rebuilt from the items' rows, and files that no commit refers
to can be removed. Items, thumbnails, texts, classes, rounds, the model and its journal can only be
restored from a backup.
"""

from __future__ import annotations

import sqlite3
import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oasis.collection.catalog import Catalog
from oasis.collection.class_members import change_members
from oasis.collection.committed import Committed
from oasis.collection.files import Files
from oasis.collection.rows import (
    CHECKED_COLUMNS,
    ITEM_COLUMNS,
    Head,
    ItemRow,
    check_count,
    items_between,
    label_numbers,
    row_crc,
)
from oasis.collection.words import rebuild_words, word_findings
from oasis.errors import OasisError
from oasis.index import HammingIndex
from oasis.model import OASIS
from oasis.store import recorded_checksum

_SHOWN = 5
_BLOCK = 4096
_KEY_BITS = 40  # of a member: its class and whether it is predicted are above


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
    if head.index:
        found += _index(catalog, connection, directory, head, snapshot)
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
        bad, n, total = 0, 0, 0
        for *row, crc in connection.execute(f"SELECT {columns}, crc FROM {table}"):  # noqa: S608
            n += 1
            total += crc if isinstance(crc, int) else 0
            bad += row_crc(*row) != crc
        if bad and table != "items":  # these are named by their keys
            rows = "row does" if bad == 1 else f"{bad} rows do"
            yield Finding(f"catalog: {rows} not match the checksum in {table}")
        elif (n, total) != tallies.get(table, (0, 0)) and not bad:
            expected = tallies.get(table, (0, 0))[0]
            yield Finding(f"catalog: {table} has {n} rows, {expected} were written, or other ones")
        expected = {"rounds": head.n_rounds, "journal": head.journal_entries}.get(table, n)
        if n != expected:
            what = "rounds" if table == "rounds" else "entries of the journal"
            yield Finding(f"catalog: there are {n} {what}, its head says {expected}")


def _items(
    catalog: Catalog, connection: sqlite3.Connection, head: Head, snapshot: Committed
) -> Iterator[Finding]:
    members = array("q")
    bad: list[int] = []
    foreign: list[int] = []
    keys, codes = [], []
    for values in connection.execute(f"SELECT {ITEM_COLUMNS} FROM items ORDER BY key"):  # noqa: S608
        row = ItemRow(*values)
        if not row.is_sound:
            bad.append(row.key)
            continue
        for predicted, text in ((0, row.labels), (1, row.predicted)):
            members.extend(
                (2 * number + predicted) << _KEY_BITS | row.key for number in label_numbers(text)
            )
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
    if len(there := np.intersect1d(deleted, keys)):
        text = f"catalog: {_some(there.tolist())} are listed as deleted"
        yield Finding(text, can_repair=True)
    for text in snapshot.replica.findings(
        np.array(keys, dtype=np.int64), stored, deleted, head.next_key
    ):
        yield Finding(text, can_repair=True)
    yield from _class_members(connection, members, exact=not bad)


def _class_members(
    connection: sqlite3.Connection, told: array[int], *, exact: bool
) -> Iterator[Finding]:
    """Compare members and counts of classes with what the items say, each as one number."""
    rows = connection.execute(
        f"SELECT ifnull((2 * class + predicted) << {_KEY_BITS} | key, 0) FROM members"  # noqa: S608
    )
    listed = np.fromiter((number for (number,) in rows), dtype=np.int64)
    members = np.sort(np.frombuffer(told, dtype=np.int64))
    lacking, extra = len(np.setdiff1d(members, listed)), len(np.setdiff1d(listed, members))
    if lacking or extra:
        text = f"catalog: classes lack {lacking} members, and have {extra} that no item tells"
        yield Finding(text, can_repair=True)
    numbers, n = np.unique(members >> _KEY_BITS, return_counts=True)
    found = dict(zip(numbers.tolist(), n.tolist(), strict=True))
    known = set()
    for number, name, *counts in connection.execute(
        "SELECT number, name, n, n_predicted FROM classes"
    ):
        known.add(number)
        right = [found.get(2 * number, 0), found.get(2 * number + 1, 0)]
        if exact and right != counts:
            text = (
                f"catalog: class {name!r} has {right[0]} items and is predicted of {right[1]}, its "
                f"counts say {counts[0]} and {counts[1]}"
            )
            yield Finding(text, can_repair=True)
    if unknown := sorted({number // 2 for number in found} - known):
        yield Finding(f"catalog: items have classes without names: {unknown[:_SHOWN]}")


def _model(directory: Path, head: Head) -> Iterator[Finding]:
    if head.model:
        path = directory / head.model_name
        try:
            if recorded_checksum(path) != (head.model_bytes, head.model_crc):
                yield Finding(f"{path.name}: it is not the file that the catalog names")
            OASIS.load(path)
        except (OSError, OasisError) as error:
            yield Finding(f"{path.name}: {error}", is_missing=isinstance(error, FileNotFoundError))


def _index(
    catalog: Catalog,
    connection: sqlite3.Connection,
    directory: Path,
    head: Head,
    snapshot: Committed,
) -> Iterator[Finding]:
    """Compare the index file, less what was deleted since, with the keys of the items."""
    path = directory / head.index_name
    try:
        index = HammingIndex.open(path, verify=True)
        if index.n_bits != snapshot.replica.n_bits:
            text = f"its codes have {index.n_bits} bits, not {snapshot.replica.n_bits}"
            yield Finding(f"{path.name}: {text}", can_repair=True)
        keys = catalog.all_keys(connection)
        gone = catalog.deleted(connection, head.index_commits, head.index_key)
        shown = np.setdiff1d(index.items()[1], gone)
        if not np.array_equal(shown, keys[keys <= head.index_key]):
            text = f"{path.name}: it and the list of deleted items do not give the items there are"
            yield Finding(text, can_repair=True)
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
    connection.execute("UPDATE classes SET n = 0, n_predicted = 0")
    last = n = 0
    while items := items_between(connection, last, sys.maxsize, _BLOCK):
        last, n = items[-1].key, n + len(items)
        for predicted in (False, True):
            sets = [label_numbers(each.predicted if predicted else each.labels) for each in items]
            keys = [each.key for each in items]
            change_members(connection, keys, sets, predicted=predicted, adds=True)
    check_count(connection, "items", n)
    rebuild_words(connection)


def _some(keys: list[int]) -> str:
    more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    return f"items with keys {', '.join(map(str, keys[:_SHOWN]))}{more}"
