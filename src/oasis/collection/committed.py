"""`Committed`: one committed state of model, index and classes in memory, loaded or followed."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oasis.collection.catalog.catalog import Catalog
from oasis.collection.catalog.commits import Head
from oasis.collection.catalog.setup import with_seen
from oasis.collection.files.files import replay
from oasis.collection.replica.replica import Replica, open_replica
from oasis.errors import FormatError
from oasis.index.protocol import CodeIndex
from oasis.model import OASIS, AnyModel
from oasis.store import recorded_checksum


class VanishedError(FormatError):
    """A file that the catalog names is missing.

    For a reader this may mean that the writer has committed meanwhile; then it tries again.
    """


@dataclass(frozen=True)
class Committed:
    """One committed state.

    The replica is shared between snapshots and follows the newest one. A search that finds a key
    which is not of this commit, or gone from the catalog meanwhile, asks again.

    Attributes
    ----------
    head : what is committed
    model : the model after everything committed; None while nothing is learned
    replica : where the codes are searched
    classes : class names; their positions are the numbers in the catalog. Shared and only ever
        appended to, before items that have them come into the index. The row of an item that was
        changed meanwhile may have a newer class, see `Reads.names_from`
    """

    head: Head
    model: AnyModel | None
    replica: Replica
    classes: list[str]

    @property
    def index(self) -> CodeIndex:
        """Codes by key."""
        return self.replica.index


def load(
    catalog: Catalog,
    connection: sqlite3.Connection,
    directory: Path,
    n_bits: int,
    words: Any,
    known: Replica | None = None,
) -> Committed:
    """Return the state that the connection sees, from the files beside the catalog.

    Cost: one pass over the model file, the replay of the journal, and the items that the index
    file does not have; the index file itself is mapped. A replica elsewhere is connected to when it
    is first used; one that is ``known`` keeps its connection.
    """
    head = catalog.head(connection)
    model = _load_model(directory, head, words) if head.model else None
    replica = open_replica(catalog, connection, directory, head, n_bits, known)
    return Committed(head, model, replica, catalog.class_names(connection))


def follow(
    snapshot: Committed,
    catalog: Catalog,
    connection: sqlite3.Connection,
    directory: Path,
    words: Any,
) -> Committed:
    """Return the state that the connection sees, from an older one; only what is new is read."""
    head = catalog.head(connection)
    if head.commits == snapshot.head.commits:
        return snapshot
    if head.index_commits > snapshot.head.commits:
        # deletions since this snapshot may no longer be listed
        return load(
            catalog, connection, directory, snapshot.replica.n_bits, words, snapshot.replica
        )
    model = snapshot.model
    if head.model != snapshot.head.model:
        model = _load_model(directory, head, words)
    elif model is not None:
        start = snapshot.head.journal_bytes if head.journal == snapshot.head.journal else 0
        model = _replayed(model, directory, head, start)
    snapshot.classes.extend(catalog.class_names(connection, len(snapshot.classes)))
    snapshot.replica.follow(catalog, connection, snapshot.head, head)
    return Committed(head, model, snapshot.replica, snapshot.classes)


def _load_model(directory: Path, head: Head, words: Any) -> AnyModel:
    path = directory / head.model_name
    try:
        if recorded_checksum(path) != (head.model_bytes, head.model_crc):
            raise FormatError(f"{path} is not the file that the catalog names, or is damaged")
        model = OASIS.load(path, words)
    except FileNotFoundError as error:
        raise VanishedError(f"{path} is missing") from error
    return _replayed(model, directory, head, 0)


def _replayed(model: AnyModel, directory: Path, head: Head, start: int) -> AnyModel:
    if head.journal_bytes > start:
        path = directory / head.journal_name
        try:
            model = replay(model, path, start, head.journal_bytes)
        except FileNotFoundError as error:
            raise VanishedError(f"{path} is missing") from error
    return with_seen(model, head.n_seen)
