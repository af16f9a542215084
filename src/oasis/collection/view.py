"""What a search works on: one committed state of model, index and classes, in memory."""

from __future__ import annotations

import copy
import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from oasis.collection.catalog import Catalog
from oasis.collection.home import Home
from oasis.collection.journal import replay
from oasis.collection.schema import Head
from oasis.collection.settling import open_home
from oasis.errors import FormatError
from oasis.index.protocol import CodeIndex
from oasis.model import OASIS
from oasis.store import checksum


class VanishedError(FormatError):
    """A file that the catalog names is missing.

    To a reader it may only mean that the writer has committed meanwhile: then it looks again.
    """


@dataclass(frozen=True)
class View:
    """One committed state.

    The home is shared between views: it follows the newest one, and a search that finds a key
    which is not of this commit, or gone from the catalog meanwhile, asks again.

    Attributes
    ----------
    head : what is committed
    model : the model after everything committed; None while nothing is learned
    home : where the codes are searched
    classes : class names; their positions are the numbers in the catalog. Shared and only ever
        appended to, before items that have them come into the index
    """

    head: Head
    model: OASIS | None
    home: Home
    classes: list[str]

    @property
    def index(self) -> CodeIndex:
        """Codes by key."""
        return self.home.index


def load(
    catalog: Catalog,
    connection: sqlite3.Connection,
    directory: Path,
    n_bits: int,
    words: Any,
    known: Home | None = None,
) -> View:
    """Return the state that the connection sees, from the files beside the catalog.

    Cost: one pass over the model file, the replay of the journal, and the items that the index
    file does not have; the index file itself is mapped. A home elsewhere is connected to when it
    is first used; one that is ``known`` keeps its connection.
    """
    head = catalog.head(connection)
    model = _load_model(directory, head, words) if head.model else None
    home = open_home(catalog, connection, directory, head, n_bits, known)
    return View(head, model, home, catalog.class_names(connection))


def follow(
    view: View, catalog: Catalog, connection: sqlite3.Connection, directory: Path, words: Any
) -> View:
    """Return the state that the connection sees, from an older one; only what is new is read."""
    head = catalog.head(connection)
    if head.commits == view.head.commits:
        return view
    if head.index_commits > view.head.commits:
        # deletions that this view has not seen may not be listed any more
        return load(catalog, connection, directory, view.home.n_bits, words, view.home)
    model = view.model
    if head.model != view.head.model:
        model = _load_model(directory, head, words)
    elif model is not None:
        start = view.head.journal_bytes if head.journal == view.head.journal else 0
        model = _replayed(model, directory, head, start)
    view.classes.extend(catalog.class_names(connection, len(view.classes)))
    view.home.follow(catalog, connection, view.head, head)
    return View(head, model, view.home, view.classes)


def with_seen(model: OASIS, n_seen: int) -> OASIS:
    """Return the model with this count of samples, as some are coded but not learned from."""
    counted = copy.copy(model)
    counted.state_ = replace(model.state_, n_seen=n_seen)
    return counted


def _load_model(directory: Path, head: Head, words: Any) -> OASIS:
    path = directory / head.model_name
    try:
        found = checksum(path)
    except FileNotFoundError as error:
        raise VanishedError(f"{path} is missing") from error
    if found != (head.model_bytes, head.model_crc):
        raise FormatError(f"{path} is damaged: its length or checksum does not match the catalog")
    return _replayed(OASIS.load(path, words), directory, head, 0)


def _replayed(model: OASIS, directory: Path, head: Head, start: int) -> OASIS:
    if head.journal_bytes > start:
        path = directory / head.journal_name
        try:
            model = replay(model, path, start, head.journal_bytes)
        except FileNotFoundError as error:
            raise VanishedError(f"{path} is missing") from error
    return with_seen(model, head.n_seen)
