"""Home: where the codes of a collection are searched, and how they follow its commits.

The catalog holds every code, and its commit is the commit. A home is a copy that can be searched:
in memory with a file beside the catalog (`oasis.collection.local`), or in Milvus
(`oasis.collection.milvus`). It may hold keys that are not committed, or deleted already; searches
drop them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any, Protocol
from urllib.parse import urlsplit

from oasis.codes import Codes
from oasis.collection.catalog import Catalog, Keys
from oasis.collection.chunk import NewChunk
from oasis.collection.files import Files
from oasis.collection.schema import Head
from oasis.errors import InputError
from oasis.index.hamming import Matches, ScoredMatches
from oasis.index.protocol import CodeIndex
from oasis.scale.milvus.address import Address, without_user

LOCAL = "local"
"""The address of codes in memory, with a file beside the catalog."""


class Home(Protocol):
    """A searchable copy of the catalog's codes. One thread changes it, any may search."""

    @property
    def address(self) -> str:
        """What `check_address` has returned for it."""

    @property
    def n_bits(self) -> int:
        """Length of a code."""

    @property
    def is_local(self) -> bool:
        """Whether codes are searched in this process; known without connecting to anything."""

    @property
    def most(self) -> int:
        """The most keys that one search can return for a query."""

    @property
    def index(self) -> CodeIndex:
        """Codes by key, to be read only."""

    def search(self, codes: Codes, k: int, allow: Keys | None, next_key: int) -> Matches:
        """Return the k nearest keys of each query; ``next_key`` is that of the caller's commit.

        Keys from it on are left out where they can be many: the index may hold a chunk that is not
        committed.
        """

    def search_asymmetric(
        self, projections: Any, k: int, allow: Keys | None, next_key: int
    ) -> ScoredMatches:
        """Return the k best keys of each query, as `search` does."""

    def repair(self, catalog: Catalog, connection: sqlite3.Connection, head: Head) -> None:
        """Make it hold what is committed, after whatever has ended the last writer."""

    def follow(
        self, catalog: Catalog, connection: sqlite3.Connection, seen: Head, head: Head
    ) -> None:
        """Bring it from one commit to a later one, of another writer; all of it or nothing."""

    def before_commit(self, catalog: Catalog, head: Head, chunk: NewChunk) -> None:
        """Take the items of a chunk that is about to follow the commit of ``head``."""

    def after_commit(self, chunk: NewChunk) -> None:
        """Take the items of a chunk that is committed, as far as it has not."""

    def forget(self, keys: Keys) -> None:
        """Remove items whose deletion is committed."""

    def checkpoint(self, catalog: Catalog, files: Files, head: Head, shown: Head) -> Head:
        """Keep the state of ``shown``, which it has; return the head that says so.

        Where that cannot be done now, the head is returned as it is.
        """

    def findings(self, keys: Keys, codes: Codes, deleted: Keys, next_key: int) -> Iterator[str]:
        """Yield what differs from the catalog's items, ascending by key, in words."""

    def close(self) -> None:
        """Let go of connections."""


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
    """Return where a recorded address points, without how it is asked.

    >>> place_of("milvus://10.0.0.7:19530/photos?timeout=60"), place_of("/what?/codes.db")
    ('milvus://10.0.0.7:19530/photos', '/what?/codes.db')
    """
    return address.partition("?")[0] if "://" in address else address
