"""Looking for damage: everything that a collection holds, against everything that it says."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from oasis.collection.catalog import Catalog
from oasis.collection.commits import Head, label_numbers, row_crc
from oasis.collection.files import Files, read_entries
from oasis.collection.snapshot import Snapshot
from oasis.errors import OasisError
from oasis.index import HammingIndex
from oasis.model import OASIS
from oasis.store import checksum

_SHOWN = 5


def findings(
    snapshot: Snapshot,
    catalog: Catalog,
    connection: sqlite3.Connection,
    directory: Path,
    *,
    writes: bool,
) -> list[str]:
    """Return what is wrong, in words; an empty list means that everything was read and is sound.

    ``snapshot`` must show the commit that the connection sees; if not, that alone is found. Files
    that no commit names are findings for a writer alone, as a reader may see one being written.
    Cost: one pass over all files.
    """
    try:
        found = [f"catalog: {row[0]}" for row in connection.execute("PRAGMA integrity_check")]
        if found == ["catalog: ok"]:
            found = []
        head = catalog.head(connection)
        if head.commits != snapshot.head.commits:
            return [f"commit {snapshot.head.commits} was looked at, {head.commits} is there"]
        found += _items(catalog, connection, head, snapshot)
    except (sqlite3.DatabaseError, OasisError) as error:
        # what SQLite cannot read, it cannot be asked about either
        return [f"catalog: {error}"]
    found += _model(directory, head)
    found += _index(directory, head, snapshot)
    if writes:
        found += [f"{name}: no commit names it" for name in Files(directory).left_over(head)]
    return found


def _items(
    catalog: Catalog, connection: sqlite3.Connection, head: Head, snapshot: Snapshot
) -> Iterator[str]:
    members: Counter[int] = Counter()
    bad: list[int] = []
    foreign: list[int] = []
    keys, codes = [], []
    rows = connection.execute(
        "SELECT key, id, round, code, labels, payload, crc FROM items ORDER BY key"
    )
    for key, item, number, code, labels, payload, crc in rows:
        if row_crc(key, item, number, code, labels, payload) != crc:
            bad.append(key)
            continue
        members.update(label_numbers(labels))
        if len(code) * 8 != snapshot.replica.n_bits or not 0 < key < head.next_key:
            foreign.append(key)
            continue
        keys.append(key)
        codes.append(code)
    if bad:
        yield f"catalog: {_some(bad)} do not match their checksums"
    if foreign:
        yield f"catalog: {_some(foreign)} have a code or key that cannot be"
    n = len(keys) + len(bad) + len(foreign)
    if n != head.n_items:
        yield f"catalog: there are {n} items, its head says {head.n_items}"
    stored = np.frombuffer(b"".join(codes), dtype=np.uint8).reshape(
        -1, snapshot.replica.n_bits // 8
    )
    deleted = catalog.deleted(connection, 0, head.next_key)
    yield from snapshot.replica.findings(
        np.array(keys, dtype=np.int64), stored, deleted, head.next_key
    )
    yield from _classes(connection, members, exact=not bad)


def _classes(
    connection: sqlite3.Connection, members: Counter[int], *, exact: bool
) -> Iterator[str]:
    known: dict[int, int] = {}
    for number, name, n in connection.execute("SELECT number, name, n FROM classes"):
        known[number] = n
        if exact and members[number] != n:
            yield f"catalog: class {name!r} has {members[number]} items, its count says {n}"
    if unknown := sorted(set(members) - set(known)):
        yield f"catalog: items have classes without names: {unknown[:_SHOWN]}"


def _model(directory: Path, head: Head) -> Iterator[str]:
    if head.model:
        path = directory / head.model_name
        try:
            if checksum(path) != (head.model_bytes, head.model_crc):
                yield f"{path.name}: its length or checksum does not match the catalog"
            else:
                OASIS.load(path)
        except (OSError, OasisError) as error:
            yield f"{path.name}: {error}"
    if head.journal:
        path = directory / head.journal_name
        try:
            n = len(read_entries(path, 0, head.journal_bytes))
            if n != head.journal_entries:
                yield f"{path.name}: it has {n} entries, the catalog says {head.journal_entries}"
        except (OSError, OasisError) as error:
            yield f"{path.name}: {error}"


def _index(directory: Path, head: Head, snapshot: Snapshot) -> Iterator[str]:
    if not head.index:
        return
    path = directory / head.index_name
    try:
        index = HammingIndex.open(path, verify=True)
        if index.n_bits != snapshot.replica.n_bits:
            yield f"{path.name}: its codes have {index.n_bits} bits, not {snapshot.replica.n_bits}"
    except (OSError, OasisError) as error:
        yield f"{path.name}: {error} (it is made anew from the catalog)"


def _some(keys: list[int]) -> str:
    more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    return f"items with keys {', '.join(map(str, keys[:_SHOWN]))}{more}"
