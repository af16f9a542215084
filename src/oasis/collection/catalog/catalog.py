"""The catalog: SQLite in WAL mode, the commit point of a collection."""

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

from oasis.collection.catalog.commits import (
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
from oasis.collection.records import ClassInfo, Id, Round
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
_BLOCK = 20_000
_WAL_BYTES = 16 << 20
_PAGE_BYTES = 2048  # one item changes about eight pages, and the WAL takes them whole


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
        Whether a commit has failed in such a way that it may be there nevertheless, or one that is
        there is not known to memory. Nothing may be written then, until all is opened anew.
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
        except BaseException:
            connection.close()
            raise
        return connection

    def _readable_query(self, directory: Path) -> str:
        """Return how to open the file read-only.

        A file in WAL mode needs its -shm file even to be read. Where that cannot be made, as on a
        read-only medium, and nobody has it open, the file is taken as it is. Such a reader does not
        see what a writer with more rights commits later; it has to open the collection again.
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
        """Give a blank file its tables, in one transaction with what the block writes.

        The block has to write a head, and whatever else a new collection begins with.
        """
        connection = self.connection_to_write()
        # both choices are kept in the file itself
        with translated(self.path):
            connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            connection.execute("PRAGMA journal_mode = WAL")
        with self.write():
            for statement in SCHEMA.split(";"):
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
            except BaseException:
                connection.close()
                raise
        self._give_back(connection)

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._guard:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    @contextmanager
    def write(self, expected: Head | None = None) -> Iterator[sqlite3.Connection]:
        """Yield the writing connection inside a transaction; what raises leaves nothing behind.

        Raises
        ------
        CollectionError
            The head is not the one ``expected``: somebody else has written.
        """
        connection = self.connection_to_write()
        with translated(self.path):
            connection.execute("BEGIN IMMEDIATE")
            try:
                if expected is not None and (found := self.head(connection)) != expected:
                    raise CollectionError(
                        f"{self.path} was changed by another writer: it shows commit "
                        f"{found.commits}, expected {expected.commits}; close the collection and "
                        "open it again"
                    )
                yield connection
            except BaseException:
                if connection.in_transaction:  # a full disk has ended it already
                    connection.execute("ROLLBACK")
                raise
            self.in_doubt = True
            try:
                connection.execute("COMMIT")
            except sqlite3.OperationalError as error:
                # a full disk took no last frame; after any other failure it may be there
                self.in_doubt = error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_FULL
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            self.in_doubt = False

    def check_process(self) -> None:
        """Refuse to go on in a forked child, whose connections are those of its parent."""
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

    # -- what is read --------------------------------------------------------------------------

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
        rows = connection.execute("SELECT name, n, round, n_predicted FROM classes ORDER BY number")
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
            keys = np.array([key for key, _ in rows], dtype=np.int64)
            if not all(isinstance(code, bytes) for _, code in rows):
                raise FormatError(f"{self.path} is damaged: a code is no blob")
            packed = b"".join(code for _, code in rows)
            if len(packed) != len(rows) * n_bits // 8:
                raise FormatError(f"{self.path} is damaged: a code has not {n_bits} bits")
            yield keys, np.frombuffer(packed, dtype=np.uint8).reshape(len(rows), n_bits // 8)

    def codes_of(
        self, connection: sqlite3.Connection, keys: Keys, n_bits: int
    ) -> tuple[Keys, npt.NDArray[np.uint8]]:
        """Return those of the keys that are there, ascending, and their codes."""
        found = sorted(self.rows(connection, "key, code", keys.tolist()))
        if not all(isinstance(code, bytes) and len(code) * 8 == n_bits for _, code in found):
            raise FormatError(f"{self.path} is damaged: a code has not {n_bits} bits")
        packed = np.frombuffer(b"".join(code for _, code in found), dtype=np.uint8)
        there = np.array([key for key, _ in found], dtype=np.int64)
        return there, packed.reshape(len(found), n_bits // 8)

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

    def changed(self, connection: sqlite3.Connection, commits: int, key: int) -> Keys:
        """Return the keys up to ``key``, ascending, of items changed after commit ``commits``."""
        rows = connection.execute("SELECT key FROM items WHERE changed > ?", (commits,))
        return np.array(sorted(row[0] for row in rows if row[0] <= key), dtype=np.int64)

    # -- what is written, inside `write` -------------------------------------------------------

    def put_head(self, old: Head | None, new: Head) -> None:
        """Replace the head; once an index file covers deletions, they need not be kept."""
        connection = self.connection_to_write()
        values = astuple(new)
        marks = ",".join("?" * (len(values) + 1))
        connection.execute(
            f"INSERT OR REPLACE INTO head (one, {HEAD_COLUMNS}, crc) VALUES (1, {marks})",  # noqa: S608
            (*values, row_crc(*values)),
        )
        if old is not None and new.index_commits != old.index_commits:
            delete_rows(connection, "deleted", "commits <= ?", [(new.index_commits,)])

    def put_meta(self, name: str, value: Any) -> None:
        connection = self.connection_to_write()
        delete_rows(connection, "meta", "name = ?", [(name,)])
        insert_rows(connection, "meta", [(name, value)])


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn what SQLite and the system raise into errors of ours."""
    try:
        yield
    except OasisError:
        raise
    except sqlite3.DatabaseError as error:
        raise _translate(path, error) from error
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
