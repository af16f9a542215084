"""The committed state that questions are answered from, and how a reader follows a writer."""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

from oasis.collection.catalog.catalog import Catalog, fault_of_doubt
from oasis.collection.catalog.setup import Setup
from oasis.collection.committed import Committed, VanishedError, follow, load
from oasis.errors import CollectionError

ATTEMPTS = 20
"""How often a reader looks again when the writer commits under it."""


class Follower:
    """The last committed state of a collection; any thread may ask for it.

    Parameters
    ----------
    directory, catalog, setup : of the collection
    follows : bool
        Whether others commit, so that every question first looks for a new commit.
    words : where the word source is now
    """

    def __init__(
        self, directory: Path, catalog: Catalog, setup: Setup, *, follows: bool, words: Any
    ) -> None:
        self.path = directory
        self._catalog = catalog
        self._setup = setup
        self._follows = follows
        self._words = words
        self._changing = threading.Lock()
        self._closed = False
        self._pid = os.getpid()
        self._interrupted = False
        self._snapshot = self._look(None)

    @property
    def n_bits(self) -> int:
        """Length of a code."""
        return self._setup.n_bits

    def _check_open(self) -> None:
        if self._closed:
            raise CollectionError("this collection is closed")
        self._catalog.check_process()

    def _current(self) -> Committed:
        """Return the last committed state."""
        self._check_open()
        if self._follows:
            moved = self._interrupted or self._commits() != self._snapshot.head.commits
            # a thread that finds another one at it answers from the state before
            if moved and self._changing.acquire(blocking=False):
                try:
                    self._follow()
                finally:
                    self._changing.release()
        elif self._snapshot.model is None and self._catalog.in_doubt:
            # the first chunk may be there: "nothing is learned yet" would be wrong
            with self._changing:  # another thread may be committing it
                if self._catalog.in_doubt:
                    raise fault_of_doubt()
        return self._snapshot

    def _commits(self) -> int:
        with self._catalog.reading() as connection:
            return self._catalog.head(connection).commits

    def _follow(self, connection: sqlite3.Connection | None = None) -> None:
        """Take up the state that is committed now, and let go of a replica that it has left.

        With a connection, the state that it sees.

        Whatever ends it half-way, an interrupt or a lack of memory, may leave the replica between
        two commits; then the next call loads everything anew.
        """
        before = self._snapshot
        known = None if self._interrupted else before
        self._interrupted = True
        if connection is None:
            self._snapshot = self._look(known)
        else:
            self._snapshot = self._look_at(connection, known)
        self._interrupted = False
        if self._snapshot.replica is not before.replica:
            before.replica.close()

    def _look(self, snapshot: Committed | None) -> Committed:
        """Return the state that is committed now, from an older one if there is one."""
        attempts = ATTEMPTS if self._follows else 1
        while True:
            attempts -= 1
            try:
                with self._catalog.reading() as connection:
                    return self._look_at(connection, snapshot)
            except VanishedError:
                # the writer has committed between our looks at catalog and file
                if not attempts:
                    raise

    def _look_at(self, connection: sqlite3.Connection, snapshot: Committed | None) -> Committed:
        if snapshot is None:
            return load(self._catalog, connection, self.path, self.n_bits, self._words)
        return follow(snapshot, self._catalog, connection, self.path, self._words)
