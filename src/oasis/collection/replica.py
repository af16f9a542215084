"""Replica: where the codes of a collection are searched, and how they follow its commits.

The catalog holds every code, and its commit is the commit. A replica is a searchable copy of the
codes: in memory with a file beside the catalog (`Replica`), or in Milvus (`MilvusReplica`). It
may hold keys that are not committed, or deleted already; searches drop them.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from oasis.codes import Codes
from oasis.collection.catalog import Catalog
from oasis.collection.files import Files
from oasis.collection.item_rows import NewItems
from oasis.collection.rows import Head, Keys, delete_rows, without_index_file
from oasis.errors import FormatError, InputError
from oasis.index import CodeIndex, HammingIndex, Matches, ScoredMatches
from oasis.model import OASIS
from oasis.scale.milvus.address import Address, without_user

if TYPE_CHECKING:
    from oasis.collection.milvus import MilvusReplica

LOCAL = "local"
"""The address of codes in memory, with a file beside the catalog."""


def check_address(index: Any) -> str:
    """Return where the codes are to be searched, in the form that is recorded.

    >>> check_address("local"), check_address("milvus://10.0.0.7/photos")
    ('local', 'milvus://10.0.0.7:19530/photos')
    >>> check_address("milvus://10.0.0.7:19530/photos?timeout=60.0")
    'milvus://10.0.0.7:19530/photos?timeout=60'
    """
    text = str(index)
    if text == LOCAL:
        return LOCAL
    parts = urlsplit(text)
    # no name of its own choice: two collections under one would remove each other's items
    named = parts.scheme == "milvus" and parts.netloc and parts.path.strip("/")
    if not named and not (text.endswith(".db") and "://" not in text):
        raise InputError(
            "index must be 'local', 'milvus://HOST:PORT/NAME' or the path of a milvus-lite file "
            f"that ends in .db, got {without_user(text)!r}"
        )
    return Address.parse(text, "oasis").uri


def place_of(address: str) -> str:
    """Return a recorded address without its options and user.

    >>> place_of("milvus://10.0.0.7:19530/photos?timeout=60"), place_of("/what?/codes.db")
    ('milvus://10.0.0.7:19530/photos', '/what?/codes.db')
    >>> place_of("milvus://me@10.0.0.7:19530/photos?token_env=MILVUS_TOKEN")
    'milvus://10.0.0.7:19530/photos'
    """
    scheme, there, rest = address.partition("://")
    return f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}" if there else address


_LOG = logging.getLogger("oasis.collection")


class Replica:
    """The codes in memory, with a file beside the catalog; one thread changes it, any may search.

    `MilvusReplica` has the same methods, for codes elsewhere.

    Attributes
    ----------
    address : what `check_address` has returned for it
    n_bits : length of a code
    is_local : whether codes are searched in this process; known without connecting to anything
    most : the most keys that one search can return for a query
    """

    address = LOCAL
    is_local = True
    most = sys.maxsize
    n_bits: int

    def __init__(self, index: HammingIndex) -> None:
        self._index = index
        self.n_bits = index.n_bits

    @classmethod
    def load(
        cls,
        catalog: Catalog,
        connection: sqlite3.Connection,
        directory: Path,
        head: Head,
        n_bits: int,
    ) -> Replica:
        """Return the codes that the connection sees.

        Cost: the items that the index file does not have; the file itself is mapped.
        """
        if head.index:
            try:
                # the file is a copy of what the catalog holds, so it can be done without
                return cls(_indexed(catalog, connection, directory / head.index_name, head, n_bits))
            except (FormatError, InputError) as error:
                _LOG.warning("%s is passed over: %s", head.index_name, error)
        return cls(_indexed(catalog, connection, None, head, n_bits))

    @property
    def index(self) -> CodeIndex:
        """Codes by key, to be read only."""
        return self._index

    def search(self, codes: Codes, k: int, allow: Keys | None, next_key: int) -> Matches:
        """Return the k nearest keys of each query; ``next_key`` is that of the caller's commit.

        Keys from it on are left out where they can be many: Milvus may hold a chunk that is not
        committed.
        """
        return self._index.search(codes, k, allow)

    def search_asymmetric(
        self, projections: Any, k: int, allow: Keys | None, next_key: int
    ) -> ScoredMatches:
        """Return the k best keys of each query, as `search` does."""
        return self._index.search_asymmetric(projections, k, allow)

    def codes_of(
        self, catalog: Catalog, connection: sqlite3.Connection, keys: Keys
    ) -> tuple[Keys, Codes]:
        """Return those of the keys, ascending, that are there still, and their codes."""
        try:
            return keys, self._index.codes_of(keys)
        except InputError:
            return catalog.codes_of(connection, keys, self.n_bits)

    def repair(self, catalog: Catalog, connection: sqlite3.Connection, head: Head) -> None:
        """Make it equal to what is committed, after a crash of the last writer."""

    def reconcile(self, catalog: Catalog, connection: sqlite3.Connection) -> None:
        """Compare all keys and codes with the catalog, and make them the same."""

    def follow(
        self, catalog: Catalog, connection: sqlite3.Connection, seen: Head, head: Head
    ) -> None:
        """Bring it from one commit to a later one, of another writer; all of it or nothing."""
        last = seen.next_key - 1
        gone = catalog.deleted(connection, seen.commits, last)
        blocks = list(catalog.codes(connection, last, self.n_bits))
        for keys, codes in blocks:
            self._index.add(codes, keys)
        self._index.remove(gone)

    def before_commit(self, catalog: Catalog, head: Head, new: Sequence[NewItems]) -> None:
        """Take items that are about to follow the commit of ``head``."""

    def after_commit(self, new: Sequence[NewItems]) -> None:
        """Take committed items, unless it has them already."""
        for items in new:
            self._index.add(items.codes, items.keys)

    def forget(self, keys: Keys) -> None:
        """Remove items whose deletion is committed."""
        self._index.remove(keys)

    def checkpoint(self, catalog: Catalog, files: Files, head: Head, shown: Head) -> Head:
        """Keep the state of ``shown``, which it has; return the head that says so.

        Where that cannot be done now, the head is returned as it is.
        """
        return files.write_index(head, shown, self._index)

    def findings(self, keys: Keys, codes: Codes, deleted: Keys, next_key: int) -> Iterator[str]:
        """Yield what differs from the catalog's items, ascending by key, in words."""
        held, ids = self._index.items()
        order = np.argsort(ids)
        if not np.array_equal(ids[order], keys):
            yield "index: it does not hold the same items as the catalog"
        elif not np.array_equal(held[order], codes):
            yield "index: some of its codes differ from those in the catalog"

    def close(self) -> None:
        """Let go of connections."""


def _indexed(
    catalog: Catalog, connection: sqlite3.Connection, path: Path | None, head: Head, n_bits: int
) -> HammingIndex:
    """Return the codes that the connection sees: of the index file, if any, and of later rows."""
    index, last = HammingIndex(n_bits, recorded_label_bits(catalog, connection)), 0
    if path is not None:
        index, last = HammingIndex.open(path), head.index_key
        if index.n_bits != n_bits:
            raise FormatError(f"its codes have {index.n_bits} bits, expected {n_bits}")
        index.remove(catalog.deleted(connection, head.index_commits, last))
    for keys, codes in catalog.codes(connection, last, n_bits):
        index.add(codes, keys)
    if len(index) != head.n_items:
        raise FormatError(
            f"{catalog.path} is damaged: it has {len(index)} items, its head says {head.n_items}"
        )
    return index


def recorded_label_bits(catalog: Catalog, connection: sqlite3.Connection) -> int:
    """Return the number of label bits of a code; 0 if it has no content bits."""
    parameters = json.loads(catalog.meta(connection, "parameters") or "{}")
    if parameters.get("kind") != OASIS.kind:
        return 0
    model = OASIS(parameters["n_bits"], content=parameters["content"])
    return model.n_label_bits if model.n_content_bits else 0


_ADDRESS = "index"
_OWNER = "owner"
"""Facts in the catalog: the address now, and a UUID that identifies the collection in Milvus."""


def recorded_address(catalog: Catalog, connection: sqlite3.Connection) -> str:
    """Return where the codes are searched; collections older than the choice are local."""
    found = catalog.meta(connection, _ADDRESS)
    return LOCAL if found is None else str(found)


def forget_address(catalog: Catalog) -> None:
    """Record that codes are searched in memory, and nothing of other places; in a transaction."""
    connection = catalog.connection_to_write()
    delete_rows(connection, "meta", "name = ?", [(_OWNER,)])
    catalog.put_meta(_ADDRESS, LOCAL)


def open_replica(
    catalog: Catalog,
    connection: sqlite3.Connection,
    directory: Path,
    head: Head,
    n_bits: int,
    known: Replica | None,
) -> Replica:
    """Return the recorded replica as of a commit; one that is ``known`` keeps its connection."""
    address = recorded_address(catalog, connection)
    if address == LOCAL:
        return Replica.load(catalog, connection, directory, head, n_bits)
    if known is not None and known.address == address:
        return known
    return _milvus(address, n_bits, _owner(catalog, connection))


def _milvus(address: str, n_bits: int, owner: str) -> MilvusReplica:
    # imported for a collection in Milvus alone
    from oasis.collection.milvus import MilvusReplica

    return MilvusReplica(address, n_bits, owner)


def settle(catalog: Catalog, n_bits: int, address: str) -> None:
    """Bring the codes to an address and record it; nothing to do where it is recorded already.

    An exception leaves the record unchanged, and another call resumes. The codes at the old address
    are not removed, as it may not exist any more.

    Raises
    ------
    CollectionError
        What is at the address, or some items there, are not of this collection.
    EngineError
        There is no server, or it does not answer in time.
    """
    with catalog.reading() as connection:
        recorded = recorded_address(catalog, connection)
        if recorded == address:
            return
        head = catalog.head(connection)
    if place_of(recorded) == place_of(address):
        with catalog.write():
            catalog.put_meta(_ADDRESS, address)
        return
    if address != LOCAL:
        _fill(catalog, n_bits, address)
    # readers of an older commit load everything anew when they see this one
    new = without_index_file(
        replace(head, commits=head.commits + 1),
        head.commits + 1,
        0 if address == LOCAL else head.next_key - 1,
    )
    with catalog.write(head):
        catalog.put_meta(_ADDRESS, address)
        catalog.put_head(head, new)


def _fill(catalog: Catalog, n_bits: int, address: str) -> None:
    with catalog.reading() as connection:
        owner = _owner(catalog, connection)
    if not owner:
        # recorded before the first item is sent, so that these are recognised after a crash
        owner = str(uuid.uuid4())
        with catalog.write():
            catalog.put_meta(_OWNER, owner)
    replica = _milvus(address, n_bits, owner)
    try:
        with catalog.reading() as connection:
            replica.reconcile(catalog, connection)
    finally:
        replica.close()


def _owner(catalog: Catalog, connection: sqlite3.Connection) -> str:
    """Return the UUID of the collection; empty where it has not needed one yet."""
    return str(catalog.meta(connection, _OWNER) or "")
