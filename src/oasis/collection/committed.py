"""One committed state of model, index and classes in memory, loaded or followed."""

from __future__ import annotations

import sqlite3
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from oasis.collection.catalog import Catalog, fault_of_doubt
from oasis.collection.item_rows import NewItems
from oasis.collection.journal import replayed
from oasis.collection.replica import Replica, open_replica
from oasis.collection.rows import Head
from oasis.collection.setup import with_seen
from oasis.errors import CollectionError, FormatError, NotFittedError
from oasis.index import CodeIndex
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
        changed meanwhile may have a newer class, see `Catalog.names_from`
    """

    head: Head
    model: AnyModel | None
    replica: Replica
    classes: list[str]

    @property
    def index(self) -> CodeIndex:
        """Codes by key."""
        return self.replica.index


@dataclass
class Change:
    """The commit after a committed state, in the making, inside its transaction.

    Attributes
    ----------
    before : the state that it follows
    connection : that writes
    head, model : of the new commit, as far as it is made
    classes : all names, those that are new included
    new : items with new keys, in the order of these
    gone : keys of items that are deleted, or have a new version
    taught : for each block of items that was forgotten or learned again, its entry of the journal;
        None where the model file is to be written
    """

    before: Committed
    connection: sqlite3.Connection
    head: Head
    model: AnyModel | None
    classes: list[str]
    new: list[NewItems] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    taught: list[bytes | None] = field(default_factory=list)

    def add(self, new: NewItems) -> None:
        """Note items that were inserted."""
        self.new.append(new)
        self.head = replace(self.head, next_key=self.head.next_key + len(new.labels))


def learned(snapshot: Committed) -> AnyModel:
    """Return the model of a committed state; an error where nothing is learned yet."""
    if snapshot.model is None:
        raise NotFittedError("this collection has learned nothing yet; ingest a chunk first")
    return snapshot.model


ATTEMPTS = 20
"""How often a reader looks again when the writer commits under it."""


class Follower:
    """The last committed state of a collection; any thread may ask for it.

    Parameters
    ----------
    directory, catalog, n_bits : of the collection
    follows : bool
        Whether others commit, so that every question first looks for a new commit.
    words : where the word source is now

    Attributes
    ----------
    snapshot : the state; a writer puts the next one in its place
    changing : held by the thread that changes or follows
    closed : whether the collection is closed
    """

    def __init__(
        self, directory: Path, catalog: Catalog, n_bits: int, *, follows: bool, words: Any
    ) -> None:
        self.path = directory
        self.follows = follows
        self.changing = threading.Lock()
        self.closed = False
        self._catalog = catalog
        self._n_bits = n_bits
        self._words = words
        self._interrupted = False
        self.snapshot = self.look(None)

    def check_open(self) -> None:
        if self.closed:
            raise CollectionError("this collection is closed")
        self._catalog.check_process()

    def current(self) -> Committed:
        """Return the last committed state."""
        self.check_open()
        if self.follows:
            moved = self._interrupted or self.commits() != self.snapshot.head.commits
            # a thread that finds another one at it answers from the state before
            if moved and self.changing.acquire(blocking=False):
                try:
                    self.follow()
                finally:
                    self.changing.release()
        elif self.snapshot.model is None and self._catalog.in_doubt:
            # the first chunk may be there: "nothing is learned yet" would be wrong
            with self.changing:  # another thread may be committing it
                if self._catalog.in_doubt:
                    raise fault_of_doubt()
        return self.snapshot

    def commits(self) -> int:
        with self._catalog.reading() as connection:
            return self._catalog.head(connection).commits

    def follow(self, connection: sqlite3.Connection | None = None) -> None:
        """Take up the state that is committed now, and let go of a replica that it has left.

        With a connection, the state that it sees.

        Whatever ends it half-way, an interrupt or a lack of memory, may leave the replica between
        two commits; then the next call loads everything anew.
        """
        before = self.snapshot
        known = None if self._interrupted else before
        self._interrupted = True
        if connection is None:
            self.snapshot = self.look(known)
        else:
            self.snapshot = self.look_at(connection, known)
        self._interrupted = False
        if self.snapshot.replica is not before.replica:
            before.replica.close()

    def reload(self) -> None:
        """Load everything anew, after files or rows that memory relies on were made anew."""
        before, self.snapshot = self.snapshot, self.look(None)
        if self.snapshot.replica is not before.replica:
            before.replica.close()

    def look(self, snapshot: Committed | None) -> Committed:
        """Return the state that is committed now, from an older one if there is one."""
        attempts = ATTEMPTS if self.follows else 1
        while True:
            attempts -= 1
            try:
                with self._catalog.reading() as connection:
                    return self.look_at(connection, snapshot)
            except VanishedError:
                # the writer has committed between our looks at catalog and file
                if not attempts:
                    raise

    def look_at(self, connection: sqlite3.Connection, snapshot: Committed | None) -> Committed:
        """Return the state that the connection sees, from an older one; only what is new is read.

        Without an older one, cost: one pass over the model file, the replay of the journal, and the
        items that the index file does not have; the index file itself is mapped. A replica
        elsewhere is connected to when it is first used, and keeps its connection.
        """
        catalog = self._catalog
        head = catalog.head(connection)
        if snapshot is not None and head.commits == snapshot.head.commits:
            return snapshot
        if snapshot is None or head.index_commits > snapshot.head.commits:
            # deletions since this snapshot may no longer be listed
            model = self._model(connection, head) if head.model else None
            known = None if snapshot is None else snapshot.replica
            replica = open_replica(catalog, connection, self.path, head, self._n_bits, known)
            return Committed(head, model, replica, catalog.class_names(connection))
        model = snapshot.model
        if head.model != snapshot.head.model:
            model = self._model(connection, head)
        elif model is not None:
            model = replayed(model, connection, head, snapshot.head.commits)
            model = with_seen(model, head.n_seen)
        snapshot.classes.extend(catalog.class_names(connection, len(snapshot.classes)))
        snapshot.replica.follow(catalog, connection, snapshot.head, head)
        return Committed(head, model, snapshot.replica, snapshot.classes)

    def _model(self, connection: sqlite3.Connection, head: Head) -> AnyModel:
        path = self.path / head.model_name
        try:
            if recorded_checksum(path) != (head.model_bytes, head.model_crc):
                raise FormatError(f"{path} is not the file that the catalog names, or is damaged")
            model = OASIS.load(path, self._words)
        except FileNotFoundError as error:
            raise VanishedError(f"{path} is missing") from error
        return with_seen(replayed(model, connection, head), head.n_seen)
