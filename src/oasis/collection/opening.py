"""Opening a collection: checks before its files are used, and its creation."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from oasis import store
from oasis.collection.catalog import NAME, Catalog
from oasis.collection.files import Files
from oasis.collection.lock import LOCK_NAME, WriterLock, check_progress, read_progress
from oasis.collection.replica import recorded_address, settle
from oasis.collection.rows import Head
from oasis.collection.setup import Setup, has_learned
from oasis.errors import CollectionError, InputError
from oasis.model import OASIS, AnyModel
from oasis.store import recorded_checksum

N_BITS = 256
"""Length of the codes of a new collection, unless asked otherwise. 168 bits are for content: where
labels are few or coarse, searches find finer classes with them (docs/research.md)."""

MAX_BITS = 4096
"""Longest codes of a new collection; a model holds matrices of n_bits x n_bits."""


def prepare(
    directory: Path,
    catalog: Catalog,
    lock: WriterLock | None,
    n_bits: int | None,
    model: AnyModel | None,
    address: str | None,
    choices: Mapping[str, bool | None],
) -> Setup:
    """Make a collection where there is none, clear up after a crash, and return what is recorded.

    ``lock`` is None for a reader. The other arguments are those of `Collection.open`; what differs
    from the record is refused, but codes move to another ``address``.
    """
    files = Files(directory, lock)
    if catalog.is_blank:
        files.recover(Head())
        model = check_model(model, n_bits)
        _create(catalog, files, Setup.of(model, choices), model)
        model = None  # it is the one recorded now
    progress = read_progress(directory / LOCK_NAME)
    with catalog.reading() as connection:
        head = catalog.head(connection)
        setup = Setup.read(catalog, connection)
        recorded = recorded_address(catalog, connection)
    is_stored = model is not None and _is_stored(model, head)
    setup.check_same(None if is_stored else model, n_bits, choices)
    if lock is None:
        check_progress(directory, head.commits, progress)
        if address not in (None, recorded):
            raise InputError(
                f"the codes of this collection are searched at {recorded!r}, got index="
                f"{address!r}; a reader cannot move them, leave it out"
            )
    else:
        files.recover(head)
        if address is not None:
            settle(catalog, setup.n_bits, address)
            with catalog.reading() as connection:
                files.tidy(catalog.head(connection))
    return setup


def check_model(model: AnyModel | None, n_bits: int | None) -> AnyModel:
    """Return what a new collection learns with; what cannot learn is refused."""
    started = OASIS.for_search(N_BITS if n_bits is None else n_bits) if model is None else model
    started.check()
    if started.n_bits > MAX_BITS:
        raise InputError(f"a collection has codes of at most {MAX_BITS} bits, got {started.n_bits}")
    if n_bits is not None and n_bits != started.n_bits:
        raise InputError(f"n_bits={n_bits}, but the model has n_bits={started.n_bits}")
    return started


def _create(catalog: Catalog, files: Files, setup: Setup, model: AnyModel) -> None:
    """Make a new collection, with all that its model has learned already, in one commit."""
    files.begin(Head())
    head = Head(commits=1)
    if has_learned(model):
        head = files.write_model(replace(head, n_seen=model.n_seen_), model)
    with catalog.create():
        catalog.put_head(None, head)
        setup.write(catalog)
    store.disk.sync(files.directory)
    store.disk.sync(files.directory.absolute().parent)
    files.finish(head)


def _is_stored(model: AnyModel, head: Head) -> bool:
    """Return whether the first commit of a collection is exactly this model.

    So an interrupted creation can be repeated with the same arguments.
    """
    if head.n_rounds or not head.model or not has_learned(model):
        return False
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / head.model_name
        model.save(path)
        found = recorded_checksum(path)
    return found == (head.model_bytes, head.model_crc)


def make_directory(directory: Path) -> None:
    """Make a directory for a collection, or see that what is there can be one."""
    if directory.exists() and not directory.is_dir():
        raise CollectionError(f"{directory} is a file; a collection is a directory")
    directory.mkdir(parents=True, exist_ok=True)
    names = {path.name for path in directory.iterdir()}
    if NAME not in names and (foreign := sorted(names - {LOCK_NAME})):
        raise CollectionError(
            f"{directory} is no collection: it holds {foreign[0]!r} and no {NAME}; choose a "
            "directory that is empty or does not exist"
        )
