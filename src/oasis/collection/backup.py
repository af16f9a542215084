"""Backups: a consistent copy of a collection, made beside a writer, and put back.

A copy is a collection of its own: the catalog of one commit, taken by SQLite's backup, and the
files that this commit names. Codes that are searched in Milvus are in the catalog too; the copy
searches them in memory, and does not know the address of the original.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import BinaryIO

from oasis import store
from oasis.collection.catalog import NAME, Catalog, translated
from oasis.collection.collection import Collection
from oasis.collection.committed import ATTEMPTS
from oasis.collection.lock import LOCK_NAME, check_progress, lock_record, read_progress
from oasis.collection.replica import LOCAL, forget_address, recorded_address
from oasis.collection.rows import Head, without_index_file
from oasis.errors import CollectionError, FormatError, MissingFileError

_BLOCK = 1 << 20


def backup(source: str | PathLike[str], target: str | PathLike[str]) -> int:
    """Copy a collection, which may be written to meanwhile, and return the number of its items.

    The copy is complete and flushed before it gets its name. It shows one commit: all that was
    acknowledged before the call, and perhaps some that came during it.

    Parameters
    ----------
    source : the directory of a collection
    target : a directory that does not exist, or is empty

    Raises
    ------
    CollectionError
        There is no collection, or something at ``target``.
    FormatError
        The original is damaged; `Collection.check` says more.
    """
    here, there = Path(source), Path(target)
    _check_target(there)
    with translated(here), _beside(there) as made:
        progress = read_progress(here / LOCK_NAME)
        catalog = Catalog(here, writable=False)
        try:
            head = _copy(catalog, here, made)
        finally:
            catalog.close()
        check_progress(here, head.commits, progress)
    return head.n_items


def restore(source: str | PathLike[str], target: str | PathLike[str]) -> int:
    """Check a backup, copy it to where a collection is to be, and return the number of its items.

    Raises
    ------
    FormatError
        The backup is damaged.
    """
    with Collection.open(source, readonly=True) as kept:
        if found := kept.check():
            raise FormatError(f"{source} is damaged, so it is not restored: {found[0]}")
    return backup(source, target)


def _check_target(target: Path) -> None:
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise CollectionError(f"{target} is a file or a link; a copy is made in a new directory")
    if target.is_dir() and any(target.iterdir()):
        raise CollectionError(
            f"{target} is not empty; choose a directory that does not exist, or remove it first"
        )


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """Yield a new directory; on success it takes the name of ``target``, durably.

    What a killed copy has left of it is removed first; a copy that goes on has locked it.
    """
    parent = target.absolute().parent
    made = parent / f".{target.name}.tmp"
    made.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(made, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CollectionError(f"another copy to {target} goes on; try again later") from None
        if not made.exists() or not os.path.samestat(made.stat(), os.fstat(descriptor)):
            raise CollectionError(f"another copy to {target} has just ended; try again")
        for left in made.iterdir():
            left.unlink()
        try:
            yield made
            for path in made.iterdir():
                store.disk.sync(path)
            store.disk.sync(made)
            store.disk.replace(made, target)  # an empty directory may be there
            store.disk.sync(parent)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
    finally:
        os.close(descriptor)


def _copy(catalog: Catalog, source: Path, made: Path) -> Head:
    """Copy one commit of a collection."""
    for attempt in range(ATTEMPTS):
        with ExitStack() as opened, catalog.reading() as connection:
            head = catalog.head(connection)
            address = recorded_address(catalog, connection)
            try:
                # an open file can be read even after the writer has removed it
                files = {
                    name: opened.enter_context((source / name).open("rb"))
                    for name in head.file_names
                }
            except FileNotFoundError as error:
                if attempt + 1 < ATTEMPTS:
                    continue  # the writer has committed meanwhile
                raise MissingFileError(f"{error.filename} is missing") from error
            copied = sqlite3.connect(made / NAME, isolation_level=None)
            try:
                # a connection inside a transaction copies the commit that it sees
                connection.backup(copied)
            finally:
                copied.close()
            for name, file in files.items():
                _copy_file(file, made / name)
        (made / LOCK_NAME).write_bytes(lock_record(os.getpid(), head.commits, head.commits))
        if address != LOCAL:
            head = _make_local(made, head)
        return head
    raise CollectionError(f"{source} is replaced faster than it can be copied; try again")


def _copy_file(file: BinaryIO, path: Path) -> None:
    with path.open("xb") as out:
        shutil.copyfileobj(file, out, _BLOCK)


def _make_local(made: Path, head: Head) -> Head:
    """Let a copy search its codes in memory; return its head."""
    catalog = Catalog(made, writable=True)
    try:
        new = without_index_file(replace(head, commits=head.commits + 1), head.commits + 1, 0)
        with catalog.write(head):
            forget_address(catalog)
            catalog.put_head(head, new)
    finally:
        catalog.close()
    (made / LOCK_NAME).write_bytes(lock_record(os.getpid(), new.commits, new.commits))
    return new
