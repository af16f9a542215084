"""Codes searched in Milvus: sent before a commit, so that what is committed can be found.

Items are upserted, then committed; a deletion is committed, then sent. So after a crash, or a
failure of Milvus, it can only hold additional keys: those from the catalog's next key on, and those
in its table ``deleted``. Both are dropped by every search, and removed before the next items are
sent and on opening. Labels and payloads are in the catalog alone.

Opening also compares the numbers of items. If Milvus has lost some, and on every move to it, both
sides are compared by key and code and the difference is sent.

Milvus may execute a request after its timeout here. If that is after the next chunk, a key has the
code of the failed chunk: `findings` reports it, and a move to "local" and back repairs it.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from oasis.codes import Codes
from oasis.collection.catalog import Catalog
from oasis.collection.files import Files
from oasis.collection.item_rows import NewItems
from oasis.collection.replica import Replica
from oasis.collection.rows import Head, Keys, without_index_file
from oasis.errors import CollectionError, EngineError
from oasis.index import Matches, ScoredMatches
from oasis.scale.milvus import MilvusIndex
from oasis.scale.milvus.table import MOST

_LOG = logging.getLogger("oasis.collection")

_BLOCK = 10_000
_KEPT = 1.0
_OWNER = "codes of the oasis collection"


class MilvusReplica(Replica):
    """The codes of a collection in Milvus; see `oasis.collection.replica.Replica`.

    Parameters
    ----------
    address : str
        ``milvus://host:port/name``, or the path of a milvus-lite file.
    n_bits : int
    owner : str
        UUID of this collection. It is in the description of a Milvus collection that is made here.

    Every use of Milvus raises `EngineError` where there is no server, or it does not answer in
    time, and `CollectionError` where what is there is another collection's.
    """

    is_local = False
    most = MOST

    def __init__(self, address: str, n_bits: int, owner: str) -> None:
        self.address = address
        self.n_bits = n_bits
        self._owner = owner
        self._connection: MilvusIndex | None = None
        self._connecting = threading.Lock()
        self._failure: EngineError | None = None  # of the last attempt to connect
        self._failed_at = 0.0
        self._closed = False
        self._behind = False  # whether it may differ from what is committed

    @property
    def index(self) -> MilvusIndex:
        """Codes by key; connected to when it is first asked for.

        So everything but a search works while Milvus is absent. A failure to connect is raised for
        all callers within a second, which waited for the same attempt; otherwise each would make
        its own attempt after the other.
        """
        with self._connecting:
            if self._closed:
                raise CollectionError(f"the collection whose codes are at {self.address} is closed")
            if self._connection is None:
                if self._failure is not None and time.monotonic() < self._failed_at + _KEPT:
                    raise EngineError(str(self._failure)) from self._failure
                try:
                    self._connection = self._connected()
                except EngineError as error:
                    self._failure, self._failed_at = error, time.monotonic()
                    raise
            return self._connection

    def search(self, codes: Codes, k: int, allow: Keys | None, next_key: int) -> Matches:
        """Search the items of a commit, and those deleted since that Milvus still has."""
        return self.index.search(codes, k, allow, f"id < {next_key}")

    def search_asymmetric(
        self, projections: Any, k: int, allow: Keys | None, next_key: int
    ) -> ScoredMatches:
        """Search the items of a commit, and those deleted since that Milvus still has."""
        return self.index.search_asymmetric(projections, k, allow, f"id < {next_key}")

    def codes_of(
        self, catalog: Catalog, connection: sqlite3.Connection, keys: Keys
    ) -> tuple[Keys, Codes]:
        """Return codes from the catalog, which has them all."""
        return catalog.codes_of(connection, keys, self.n_bits)

    def repair(self, catalog: Catalog, connection: sqlite3.Connection, head: Head) -> None:
        """Remove what is not committed, count, and send what is missing."""
        self._catch_up(catalog, connection, head)
        if (n := len(self.index)) != head.n_items:
            _LOG.warning("%s holds %d items, the catalog %d", self.address, n, head.n_items)
            self.reconcile(catalog, connection)

    def reconcile(self, catalog: Catalog, connection: sqlite3.Connection) -> None:
        """Make the keys and codes equal to those of the catalog.

        A key that is there may have the code of a chunk that was sent and never committed, if the
        codes were searched elsewhere when the key was given away. Cost: keys and codes of both
        sides, of which 24 bytes an item are kept, and the items that differ.
        """
        nothing = np.empty(0, dtype=np.int64)
        held, right = [nothing], [nothing]
        for ids, codes in self.index.blocks():
            stored = dict(catalog.rows(connection, "key, code", ids.tolist()))
            same = [
                stored.get(key) == code.tobytes()
                for key, code in zip(ids.tolist(), codes, strict=True)
            ]
            held.append(ids)
            right.append(ids[same])
        wanted = catalog.all_keys(connection)
        extra = np.setdiff1d(np.concatenate(held), wanted)
        missing = np.setdiff1d(wanted, np.concatenate(right))
        self.index.discard(extra)
        for start in range(0, len(missing), _BLOCK):
            keys, codes = catalog.codes_of(connection, missing[start : start + _BLOCK], self.n_bits)
            self.index.add(codes, keys)
        _LOG.info("%s: %d items sent, %d removed", self.address, len(missing), len(extra))

    def follow(
        self, catalog: Catalog, connection: sqlite3.Connection, seen: Head, head: Head
    ) -> None:
        """Nothing to do: the writer has sent everything."""

    def before_commit(self, catalog: Catalog, head: Head, new: Sequence[NewItems]) -> None:
        """Upsert items; when it returns, Milvus has them."""
        if self._behind:
            with catalog.reading() as connection:
                self._catch_up(catalog, connection, head)
        self._behind = True
        for items in new:
            self.index.add(items.codes, items.keys)

    def after_commit(self, new: Sequence[NewItems]) -> None:
        """Note that all it holds is committed."""
        self._behind = False

    def forget(self, keys: Keys) -> None:
        """Remove items; if Milvus fails, the catalog still lists them, and searches omit them."""
        try:
            self.index.discard(keys)
        except EngineError as error:
            self._behind = True
            _LOG.warning("%d deleted items are removed from Milvus later: %s", len(keys), error)

    def checkpoint(self, catalog: Catalog, files: Files, head: Head, shown: Head) -> Head:
        """Make sure that deletions were executed; then they need not be listed any longer."""
        if self._behind:
            try:
                with catalog.reading() as connection:
                    self._catch_up(catalog, connection, shown)
            except EngineError as error:
                _LOG.warning("deletions stay listed until Milvus has them: %s", error)
                return head
        return without_index_file(head, shown.commits, shown.next_key - 1)

    def findings(self, keys: Keys, codes: Codes, deleted: Keys, next_key: int) -> Iterator[str]:
        """Compare all items that are committed, sent by Milvus."""
        try:
            held, ids = self.index.items()
        except (CollectionError, EngineError) as error:
            yield f"index: {error}"
            return
        # uncommitted or just deleted items are ignored: searches omit them
        place = np.flatnonzero((ids < next_key) & ~np.isin(ids, deleted))
        order = place[np.argsort(ids[place])]
        found = ids[order]
        where = f"index: {self.address}"
        remedy = "opening with index='local' and then with this address sends what differs"
        if len(missing := np.setdiff1d(keys, found)):
            yield f"{where} lacks {len(missing)} items, such as key {missing[0]}; {remedy}"
        if len(extra := np.setdiff1d(found, keys)):
            yield f"{where} holds {len(extra)} items too many, such as key {extra[0]}; {remedy}"
        _, ours, theirs = np.intersect1d(keys, found, return_indices=True)
        differ = (codes[ours] != held[order][theirs]).any(axis=1)
        if differ.any():
            key = keys[ours][differ][0]
            yield f"{where} has other codes of {differ.sum()} items, such as key {key}; {remedy}"

    def close(self) -> None:
        """Close the connection, if there is one; it is not opened again."""
        with self._connecting:
            self._closed = True
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _connected(self) -> MilvusIndex:
        """Connect, and check the owner: two collections would remove each other's items."""
        ours = f"{_OWNER} {self._owner}" if self._owner else ""
        index = MilvusIndex(self.address, self.n_bits, description=ours)
        if ours and index.description != ours:
            index.close()
            raise CollectionError(
                f"{self.address} is not of this collection: it says {index.description!r}; give "
                "the codes another name, or drop that Milvus collection first"
            )
        return index

    def _catch_up(self, catalog: Catalog, connection: sqlite3.Connection, head: Head) -> None:
        """Remove keys that are not committed, or deleted."""
        self.index.discard_from(head.next_key)
        self.index.discard(catalog.deleted(connection, 0, head.next_key))
        self._behind = False
