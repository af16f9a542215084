"""The catalog: SQLite in WAL mode, the commit point of a collection."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Any

from oasis.collection import class_members, words
from oasis.collection.reads import Reads
from oasis.collection.rows import (
    APPLICATION_ID,
    FORMAT_VERSION,
    HEAD_COLUMNS,
    SCHEMA,
    Head,
    delete_rows,
    insert_rows,
    row_crc,
)
from oasis.errors import (
    CollectionError,
    FormatError,
    LockedError,
    NewerVersionError,
    OasisError,
    StorageError,
)

NAME = "catalog.sqlite"

_BUSY_MS = 10_000
_WAL_BYTES = 16 << 20
_PAGE_BYTES = 1024  # one item changes about ten pages, and the WAL stores whole pages
_WAL_PAGES = 2000  # folded into the file after so many


class Catalog(Reads):
    """One collection's SQLite file: a connection that writes, and a pool of those that read.

    Any thread may read; writing is for the one that holds the collection's lock.

    Parameters
    ----------
    directory : Path
    writable : bool
        Whether `write` may be used; a file that is missing is made, without tables (see `create`).

    Attributes
    ----------
    is_blank : bool
        Whether it has no tables yet.
    in_doubt : bool
        Whether it is unknown if the last commit was made, or memory does not show a commit that
        was. Then nothing may be written until the collection is opened again.
    """

    def __init__(self, directory: Path, *, writable: bool) -> None:
        self.path = directory / NAME
        self._writable = writable
        self._query = ""
        self._idle: list[sqlite3.Connection] = []
        self._guard = threading.Lock()
        self._closed = False
        self._writer: sqlite3.Connection | None = None
        self._pid = os.getpid()
        self.is_blank = False
        self.in_doubt = False
        try:
            with translated(self.path):
                self._start(directory)
            with self.reading() as connection:
                self._check_format(connection)
        except BaseException:
            self.close()
            raise

    def _start(self, directory: Path) -> None:
        if self._writable:
            self._writer = self._connect()
        elif self.path.is_file():
            self._query = self._readable_query(directory)
        else:
            raise CollectionError(f"there is no collection at {directory}")

    # -- connections ---------------------------------------------------------------------------

    def _connect(self) -> sqlite3.Connection:
        if self._writable:
            connection = sqlite3.connect(
                self.path, isolation_level=None, check_same_thread=False, timeout=_BUSY_MS / 1000
            )
        else:
            connection = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?{self._query}",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
                timeout=_BUSY_MS / 1000,
            )
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("PRAGMA cache_size = -16000")
            connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
        except MemoryError as error:  # SQLite asks for gigabytes where a damaged schema says so
            connection.close()
            raise StorageError(f"{self.path} is damaged, or there is no memory left") from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _readable_query(self, directory: Path) -> str:
        """Return how to open the file read-only.

        A file in WAL mode needs its -shm file even to be read. If it cannot be created, as on a
        read-only medium, and no process has it open, the file is opened as immutable. Such a reader
        does not see later commits; it has to open the collection again.
        """
        try:
            probe = sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)
            try:
                probe.execute("SELECT count(*) FROM sqlite_master").fetchone()
            finally:
                probe.close()
        except sqlite3.OperationalError as error:
            wal = directory / f"{NAME}-wal"
            refused = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
            if error.sqlite_errorcode & 0xFF not in refused or wal.exists():
                raise
            return "mode=ro&immutable=1"
        return "mode=ro"

    @contextmanager
    def create(self) -> Iterator[sqlite3.Connection]:
        """Create the tables of an empty file, in one transaction with what the block writes.

        The block has to write a head, and everything else that a new collection starts with.
        """
        connection = self.connection_to_write()
        # both choices are kept in the file itself
        with translated(self.path):
            connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            connection.execute("PRAGMA journal_mode = WAL")
        with self.write():
            for statement in (SCHEMA + class_members.SCHEMA + words.SCHEMA).split(";"):
                if statement.strip():
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
            yield connection
        self.is_blank = False

    def _check_format(self, connection: sqlite3.Connection) -> None:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not tables and not application and not version:
            if not self._writable:
                raise CollectionError(
                    f"the collection at {self.path.parent} is only just being made, or its catalog "
                    "was emptied"
                )
            self.is_blank = True
            return
        if application != APPLICATION_ID:
            raise FormatError(f"{self.path} is an SQLite file, but not of a collection")
        if version > FORMAT_VERSION:
            raise NewerVersionError(
                f"{self.path} has format version {version}, this oasis reads up to "
                f"{FORMAT_VERSION}; upgrade with: pip install --upgrade oasis-hash"
            )
        if version < FORMAT_VERSION:
            raise FormatError(
                f"{self.path} has format version {version}, from before the first release; this "
                f"oasis reads version {FORMAT_VERSION} alone: ingest the items anew"
            )

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection on which everything read belongs to one commit."""
        self.check_process()
        with self._guard:
            if self._closed:
                raise CollectionError("this collection is closed")
            connection = self._idle.pop() if self._idle else None
        with translated(self.path):
            if connection is None:
                connection = self._connect()
            try:
                connection.execute("BEGIN")
                yield connection
                connection.execute("COMMIT")
            except MemoryError as error:
                connection.close()
                self._check_sound(error)
                raise
            except BaseException:
                connection.close()
                raise
        self._give_back(connection)

    def _check_sound(self, error: MemoryError) -> None:
        """Raise `FormatError` if the file is damaged and SQLite therefore ran out of memory.

        Cost: one pass over the file.
        """
        connection = self._connect()
        try:
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        finally:
            connection.close()
        if found != "ok":
            raise FormatError(f"{self.path} is damaged: {' '.join(found.split())}") from error

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._guard:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    @contextmanager
    def write(self, expected: Head | None = None) -> Iterator[sqlite3.Connection]:
        """Yield the writing connection inside a transaction, which an exception rolls back.

        Raises
        ------
        CollectionError
            The head is not the one ``expected``: somebody else has written.
        """
        connection = self.connection_to_write()
        with translated(self.path):
            try:
                if connection.in_transaction:  # an interrupt came where nothing could roll it back
                    connection.execute("ROLLBACK")
                connection.execute("BEGIN IMMEDIATE")
                if expected is not None and (found := self.head(connection)) != expected:
                    raise CollectionError(
                        f"{self.path} was changed by another writer: it shows commit "
                        f"{found.commits}, expected {expected.commits}; close the collection and "
                        "open it again"
                    )
                yield connection
            except BaseException:
                if connection.in_transaction:  # a full disk has rolled it back already
                    connection.execute("ROLLBACK")
                raise
            self.in_doubt = True
            try:
                connection.execute("COMMIT")
            except sqlite3.OperationalError as error:
                # a full disk has no last frame; after another failure the commit may exist
                self.in_doubt = error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_FULL
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            self.in_doubt = False

    def fold(self) -> None:
        """Write the WAL into the file and empty it, so that nothing of deleted rows is in either.

        Where a reader keeps it from that, a later call or the last close does it.
        """
        connection = self.connection_to_write()
        with translated(self.path):
            connection.execute("PRAGMA busy_timeout = 0")
            try:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")

    def check_process(self) -> None:
        """Raise in a forked child, whose connections belong to its parent."""
        if os.getpid() != self._pid:
            raise CollectionError(
                f"the collection at {self.path.parent} was opened by process {self._pid}, before "
                "it forked this one; open it again in this process"
            )

    def connection_to_write(self) -> sqlite3.Connection:
        """Return the connection that writes, to be used inside `write`."""
        self.check_process()
        if self._writer is None:
            raise CollectionError("this collection is open for reading only, or closed")
        return self._writer

    def close(self) -> None:
        """Close every connection; the last one of all processes folds the WAL into the file."""
        with self._guard:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    # -- what is written, inside `write` -------------------------------------------------------

    def put_head(self, old: Head | None, new: Head) -> None:
        """Replace the head, and remove the rows that a new model file or index file covers."""
        connection = self.connection_to_write()
        values = astuple(new)
        marks = ",".join("?" * (len(values) + 1))
        connection.execute(
            f"INSERT OR REPLACE INTO head (one, {HEAD_COLUMNS}, crc) VALUES (1, {marks})",  # noqa: S608
            (*values, row_crc(*values)),
        )
        if old is not None and new.model != old.model:
            delete_rows(connection, "journal", "commits <= ?", [(new.commits,)])
        if old is not None and new.index_commits != old.index_commits:
            connection.execute("DELETE FROM deleted WHERE commits <= ?", (new.index_commits,))

    def put_meta(self, name: str, value: Any) -> None:
        connection = self.connection_to_write()
        delete_rows(connection, "meta", "name = ?", [(name,)])
        insert_rows(connection, "meta", [(name, value)])


def fault_of_doubt() -> CollectionError:
    """Return the error of a collection in doubt; see `Catalog.in_doubt`."""
    return CollectionError(
        "the disk or memory failed, or an interrupt came, at the end of the last change, which may "
        "or may not be there; close the collection and open it again"
    )


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn what SQLite and the system raise into errors of ours."""
    try:
        yield
    except OasisError:
        raise
    except sqlite3.DatabaseError as error:
        raise _translate(path, error) from error
    except UnicodeDecodeError as error:  # from sqlite3, of a message that names what it has read
        raise FormatError(f"{path} is damaged, or no catalog of a collection: {error}") from error
    except OSError as error:
        raise StorageError(
            f"{error.filename or path}: {error.strerror or error}; nothing was changed"
        ) from error


def _translate(path: Path, error: sqlite3.DatabaseError) -> OasisError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    # a text that is no UTF-8 and a payload that is no JSON come without a code of their own
    unreadable = "decode to UTF-8" in str(error) or "malformed JSON" in str(error)
    if unreadable or code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return FormatError(f"{path} is damaged, or no catalog of a collection: {error}")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return LockedError(f"{path} is locked by another program: {error}")
    if code == sqlite3.SQLITE_FULL:
        return StorageError(f"{path}: the disk is full; nothing was changed")
    return StorageError(f"{path}: {error}")
