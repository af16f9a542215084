"""The catalog: SQLite in WAL mode, the commit point of a collection, and what is read from it."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.collection import class_members, words
from oasis.collection.records import ClassInfo, Id, Round
from oasis.collection.rows import (
    APPLICATION_ID,
    FORMAT_VERSION,
    HEAD_COLUMNS,
    SCHEMA,
    Head,
    Keys,
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

_BLOCK = 20_000  # rows of codes at a time

_BUSY_MS = 10_000
_WAL_BYTES = 16 << 20
_PAGE_BYTES = 1024  # one item changes about ten pages, and the WAL stores whole pages
_WAL_PAGES = 2000  # folded into the file after so many


class Catalog:
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

    # -- what is read: all that one connection answers belongs to one commit ---------------------

    def head(self, connection: sqlite3.Connection) -> Head:
        row = connection.execute(f"SELECT {HEAD_COLUMNS}, crc FROM head").fetchone()  # noqa: S608
        if row is None:
            raise FormatError(f"{self.path} is damaged: its head is missing")
        if row_crc(*row[:-1]) != row[-1]:
            raise FormatError(f"{self.path} is damaged: its head does not match its checksum")
        return Head(*row[:-1])

    def meta(self, connection: sqlite3.Connection, name: str) -> Any:
        """Return a fact by name, or None."""
        row = connection.execute("SELECT value, crc FROM meta WHERE name = ?", (name,)).fetchone()
        if row is None:
            # it may be there under a name that is damaged
            for each, value, crc in connection.execute("SELECT name, value, crc FROM meta"):
                if row_crc(each, value) != crc:
                    raise FormatError(f"{self.path} is damaged: its facts do not match checksums")
            return None
        if row_crc(name, row[0]) != row[1]:
            raise FormatError(f"{self.path} is damaged: its {name} does not match its checksum")
        return row[0]

    def class_names(self, connection: sqlite3.Connection, start: int = 0) -> list[str]:
        """Return the names of the classes from number ``start`` on."""
        rows = connection.execute(
            "SELECT number, name, round, crc FROM classes WHERE number >= ? ORDER BY number",
            (start,),
        )
        names: list[str] = []
        for number, name, at, crc in rows:
            if row_crc(number, name, at) != crc or number != start + len(names):
                raise FormatError(
                    f"{self.path} is damaged: the class with number {number} does not match its "
                    "checksum, or one before it is missing"
                )
            names.append(name)
        return names

    def names_from(self, connection: sqlite3.Connection, known: Sequence[str]) -> Sequence[str]:
        """Return class names by number: those known, or all where there are newer ones."""
        (last,) = connection.execute("SELECT max(number) FROM classes").fetchone()
        return (
            known if (-1 if last is None else last) < len(known) else self.class_names(connection)
        )

    def classes(self, connection: sqlite3.Connection) -> list[ClassInfo]:
        """Return the classes that items have, given or predicted, in order of arrival."""
        rows = connection.execute(
            "SELECT name, n, round, n_predicted FROM classes WHERE n OR n_predicted ORDER BY number"
        )
        return [ClassInfo(*row) for row in rows]

    def rounds(self, connection: sqlite3.Connection) -> list[Round]:
        new: dict[int, list[str]] = {}
        for number, name in connection.execute("SELECT round, name FROM classes ORDER BY number"):
            new.setdefault(number, []).append(name)
        rows = connection.execute(
            'SELECT number, time, n, n_labelled, "precision", chance, seconds, bytes '
            "FROM rounds ORDER BY number"
        )
        return [
            Round(number, at, n, n_labelled, tuple(new.get(number, ())), *rest)
            for number, at, n, n_labelled, *rest in rows
        ]

    def keys_of(self, connection: sqlite3.Connection, ids: Sequence[Id]) -> dict[Id, int]:
        """Return id -> key for those of the ids that are there."""
        found: dict[Id, int] = {}
        # not json_each, which would turn texts with a NUL and large numbers into others
        for start in range(0, len(ids), 500):
            block = ids[start : start + 500]
            marks = ",".join("?" * len(block))
            found.update(
                connection.execute(f"SELECT id, key FROM items WHERE id IN ({marks})", block)  # noqa: S608
            )
        return found

    def free_ids(self, connection: sqlite3.Connection, start: int, n: int) -> int:
        """Return the first of n successive numbers that are no ids: ``start``, or beyond all ids.

        Numbers come before texts in the order of SQLite.
        """
        taken = connection.execute(
            "SELECT 1 FROM items WHERE id BETWEEN ? AND ? LIMIT 1", (start, start + n - 1)
        ).fetchone()
        if taken is None:
            return start
        (largest,) = connection.execute(
            "SELECT id FROM items WHERE id < '' ORDER BY id DESC LIMIT 1"
        ).fetchone()
        return int(largest) + 1

    def rows(
        self, connection: sqlite3.Connection, columns: str, keys: Iterable[int]
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the columns of the items with these keys, in no order; unknown keys are skipped."""
        return connection.execute(
            f"SELECT {columns} FROM items WHERE key IN (SELECT value FROM json_each(?))",  # noqa: S608
            (json.dumps(list(keys)),),
        )

    def codes(
        self, connection: sqlite3.Connection, after: int, n_bits: int
    ) -> Iterator[tuple[Keys, npt.NDArray[np.uint8]]]:
        """Yield keys and codes of the items with keys beyond ``after``, ascending, in blocks."""
        cursor = connection.execute(
            "SELECT key, code FROM items WHERE key > ? ORDER BY key", (after,)
        )
        while rows := cursor.fetchmany(_BLOCK):
            yield self._decoded(rows, n_bits)

    def codes_of(
        self, connection: sqlite3.Connection, keys: Keys, n_bits: int
    ) -> tuple[Keys, npt.NDArray[np.uint8]]:
        """Return those of the keys that are there, ascending, and their codes."""
        return self._decoded(sorted(self.rows(connection, "key, code", keys.tolist())), n_bits)

    def _decoded(
        self, rows: Sequence[tuple[Any, ...]], n_bits: int
    ) -> tuple[Keys, npt.NDArray[np.uint8]]:
        if not all(isinstance(code, bytes) and len(code) * 8 == n_bits for _, code in rows):
            raise FormatError(f"{self.path} is damaged: a code has not {n_bits} bits")
        keys = np.array([key for key, _ in rows], dtype=np.int64)
        packed = np.frombuffer(b"".join(code for _, code in rows), dtype=np.uint8)
        return keys, packed.reshape(len(rows), n_bits // 8)

    def count(self, connection: sqlite3.Connection, before: int) -> int:
        """Return the number of items with keys below ``before``; one pass over them."""
        row = connection.execute("SELECT count(*) FROM items WHERE key < ?", (before,)).fetchone()
        return int(row[0])

    def all_keys(self, connection: sqlite3.Connection) -> Keys:
        """Return the keys of all items, ascending."""
        rows = connection.execute("SELECT key FROM items ORDER BY key")
        return np.fromiter((key for (key,) in rows), dtype=np.int64)

    def deleted(self, connection: sqlite3.Connection, commits: int, key: int) -> Keys:
        """Return the keys up to ``key`` that were deleted after commit number ``commits``."""
        rows = connection.execute(
            "SELECT key FROM deleted WHERE commits > ? AND key <= ?", (commits, key)
        )
        return np.array([row[0] for row in rows], dtype=np.int64)

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
