"""Codes searched in memory: a `HammingIndex`, written to a file beside the catalog now and then."""

from __future__ import annotations

import logging
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from oasis.codes import Codes
from oasis.collection.catalog import Catalog, Keys
from oasis.collection.chunk import NewChunk
from oasis.collection.files import Files
from oasis.collection.home import LOCAL
from oasis.collection.schema import Head
from oasis.errors import FormatError, InputError
from oasis.index import HammingIndex, Matches, ScoredMatches

_LOG = logging.getLogger("oasis.collection")


class LocalHome:
    """The home of a collection that needs no server; see `oasis.collection.home.Home`."""

    address = LOCAL
    is_local = True
    most = sys.maxsize

    def __init__(self, index: HammingIndex) -> None:
        self.index = index
        self.n_bits = index.n_bits

    @classmethod
    def load(
        cls,
        catalog: Catalog,
        connection: sqlite3.Connection,
        directory: Path,
        head: Head,
        n_bits: int,
    ) -> LocalHome:
        """Return the codes that the connection sees.

        Cost: the items that the index file does not have; the file itself is mapped.
        """
        index, last = HammingIndex(n_bits), 0
        if head.index:
            try:
                index = HammingIndex.open(directory / head.index_name)
                if index.n_bits != n_bits:
                    raise FormatError(f"its codes have {index.n_bits} bits, expected {n_bits}")
                index.remove(catalog.deleted(connection, head.index_commits, head.index_key))
                last = head.index_key
            except (FormatError, InputError, FileNotFoundError) as error:
                # it is a copy of what the catalog holds, so it can be done without
                _LOG.warning("%s is passed over: %s", head.index_name, error)
                index, last = HammingIndex(n_bits), 0
        for keys, codes in catalog.codes(connection, last, n_bits):
            index.add(codes, keys)
        if len(index) != head.n_items:
            raise FormatError(
                f"{catalog.path} is damaged: it has {len(index)} items, its head says "
                f"{head.n_items}"
            )
        return cls(index)

    def search(self, codes: Codes, k: int, allow: Keys | None, next_key: int) -> Matches:
        """Search all that memory has; beyond the caller's commit that is what came since."""
        return self.index.search(codes, k, allow)

    def search_asymmetric(
        self, projections: Any, k: int, allow: Keys | None, next_key: int
    ) -> ScoredMatches:
        """Search all that memory has; beyond the caller's commit that is what came since."""
        return self.index.search_asymmetric(projections, k, allow)

    def repair(self, catalog: Catalog, connection: sqlite3.Connection, head: Head) -> None:
        """Nothing to do: it was made from what is committed."""

    def follow(
        self, catalog: Catalog, connection: sqlite3.Connection, seen: Head, head: Head
    ) -> None:
        """Add and remove what has changed between two commits."""
        last = seen.next_key - 1
        gone = catalog.deleted(connection, seen.commits, last)
        blocks = list(catalog.codes(connection, last, self.index.n_bits))
        for keys, codes in blocks:
            self.index.add(codes, keys)
        self.index.remove(gone)

    def before_commit(self, catalog: Catalog, head: Head, chunk: NewChunk) -> None:
        """Nothing to do: memory follows the commit."""

    def after_commit(self, chunk: NewChunk) -> None:
        """Add the items of a chunk."""
        self.index.add(chunk.codes, chunk.keys)

    def forget(self, keys: Keys) -> None:
        """Remove items."""
        self.index.remove(keys)

    def checkpoint(self, catalog: Catalog, files: Files, head: Head, shown: Head) -> Head:
        """Write the index file."""
        return files.write_index(head, shown, self.index)

    def findings(self, keys: Keys, codes: Codes, deleted: Keys, next_key: int) -> Iterator[str]:
        """Compare all items, in memory."""
        held, ids = self.index.items()
        order = np.argsort(ids)
        if not np.array_equal(ids[order], keys):
            yield "index: it does not hold the same items as the catalog"
        elif not np.array_equal(held[order], codes):
            yield "index: some of its codes differ from those in the catalog"

    def close(self) -> None:
        """Nothing to do: memory goes with its last user."""
