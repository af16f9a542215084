"""Collection: learn, index and store as one transaction."""

from __future__ import annotations

import os
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn, Self

from oasis.collection.catalog.catalog import Catalog, translated
from oasis.collection.catalog.setup import Setup
from oasis.collection.committed import VanishedError
from oasis.collection.files.files import Files
from oasis.collection.files.lock import LOCK_NAME, WriterLock
from oasis.collection.filters.allow_lists import AllowLists
from oasis.collection.opening import check_model, make_directory, prepare
from oasis.collection.replica.replica import check_address
from oasis.collection.search.following import ATTEMPTS
from oasis.collection.upkeep.checks import Finding, findings
from oasis.collection.writing.raw import RawIntake
from oasis.collection.writing.writer import Writer
from oasis.errors import CollectionError, InputError
from oasis.features.extractor import Extractor
from oasis.model import AnyModel

_CLOSING_SHARE = 64


class Collection(RawIntake):
    """A directory that learns from a stream of items and finds them again.

    Made by `Collection.open`. `ingest` is atomic and durable when it returns. One writer at a time,
    any number of readers, in any process; in one process any number of threads may search while
    one writes, and they work on the last committed state without waiting for it.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from oasis import OASIS, Collection
    >>> rng = np.random.default_rng(0)
    >>> X = {"image": rng.random((4, 20)), "text": rng.random((4, 10))}
    >>> y = [["sky"], ["sky", "sea"], ["cat"], ["cat"]]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = OASIS(n_bits=16, random_state=0)
    ...     with Collection.open(f"{folder}/photos.oasis", model=model) as c:
    ...         c.ingest(X, y, ids=["a", "b", "c", "d"], payload=[{"year": i} for i in range(4)])
    ...         hits = c.search(X, k=2, where={"year": {"gte": 2}})
    ...     [hit.id for hit in hits[2]]
    ['c', 'd']
    """

    def __init__(
        self,
        directory: Path,
        catalog: Catalog,
        setup: Setup,
        lock: WriterLock | None,
        extractor: Extractor | None,
        words: Any,
    ) -> None:
        """Not to be called; see `open`."""
        super().__init__(
            directory, catalog, setup, follows=lock is None, extractor=extractor, words=words
        )
        self._lock = lock
        try:
            if lock is not None:
                files = Files(directory, lock)
                self._writer = Writer(catalog, files, setup, words, self._snapshot.replica)
            self._settle_extractor()
        except BaseException:
            self._snapshot.replica.close()
            raise

    # -- opening and closing -------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        path: str | PathLike[str],
        n_bits: int | None = None,
        *,
        model: AnyModel | None = None,
        extractor: Extractor | None = None,
        words: str | PathLike[str] | None = None,
        readonly: bool = False,
        timeout: float = 0.0,
        index: str | PathLike[str] | None = None,
        keep_text: bool | None = None,
    ) -> Self:
        """Open a collection; it is created where there is none.

        Parameters
        ----------
        path : path-like
            A directory: missing, empty, or a collection.
        n_bits : int, optional
            Length of the codes of a new collection, 256 if not given. Of one that exists it may be
            left out, and another one is refused.
        model : OASIS or the published method, optional
            What a new collection learns with; ``OASIS(n_bits)`` if not given. It may have learned
            already, and is stored with the first commit. Of a collection that exists it must have
            the same parameters and have learned nothing, or be the one that it began with.
        extractor : Extractor, optional
            What makes features of raw items. It is recorded, and another one is refused.
        words : path-like, optional
            Where the file of word vectors is now, if it has moved.
        readonly : bool
            Read beside a writer, in this or another process. Every search first loads new commits.
        timeout : float
            Seconds to wait for another writer; 0 does not wait.
        index : str or path-like, optional
            Where the codes are searched: "local", in memory; "milvus://host:port/name", or the same
            with "?timeout=60" behind it (seconds for each request, 10 if not given); or the path of
            a milvus-lite file that ends in .db. It is recorded; the default is "local". A writer
            may give another one: then the codes are copied there from the catalog, which has all of
            them.
        keep_text : bool, optional
            Whether a new collection keeps the texts of its items, so that they are found by their
            words; yes if not given. Of one that exists it may be left out, and another choice is
            refused.

        Raises
        ------
        LockedError
            Another writer has it open.
        CollectionError
            The directory is no collection, or (`StorageError`) cannot be read or written; or
            there are items at ``index`` that are not of this collection.
        EngineError
            Milvus is not there, or does not answer in time.
        FormatError
            A file of it is damaged, or (`NewerVersionError`) was written by a newer oasis.
        """
        directory = Path(path)
        if keep_text is not None and not isinstance(keep_text, bool):
            raise InputError(f"keep_text must be True or False, got {keep_text!r}")
        address = None if index is None else check_address(index)
        lock: WriterLock | None = None
        catalog: Catalog | None = None
        try:
            with translated(directory):
                if readonly:
                    catalog = Catalog(directory, writable=False)
                else:
                    check_model(model, n_bits)  # before anything is written
                    make_directory(directory)
                    lock = WriterLock(directory / LOCK_NAME, timeout)
                    catalog = Catalog(directory, writable=True)
                setup = prepare(directory, catalog, lock, n_bits, model, address, keep_text)
                return cls(directory, catalog, setup, lock, extractor, words)
        except BaseException:
            if catalog is not None:
                catalog.close()
            if lock is not None:
                lock.release()
            raise

    def close(self) -> None:
        """Make a checkpoint (see `checkpoint`) and close; a second call does nothing.

        In a forked child nothing is written.
        """
        if os.getpid() != self._pid:
            self._closed = True
            return
        with self._changing:
            if self._closed:
                return
            try:
                if self._writer is not None and not self._catalog.in_doubt:
                    share = self._snapshot.head.n_items // _CLOSING_SHARE
                    self._snapshot = self._writer.checkpoint(self._snapshot, index_changes=share)
            finally:
                self._closed = True
                self._snapshot.replica.close()
                self._catalog.close()
                if self._lock is not None:
                    self._lock.release()
                if self._writer is not None:
                    self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise CollectionError("a collection cannot be sent to another process; open it there")

    def __repr__(self) -> str:
        head = self._snapshot.head
        return f"<Collection {str(self.path)!r}: {head.n_items} items, {self.n_bits} bits>"

    # -- checking ------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """Read everything and return a list of what is wrong; it is empty if nothing is.

        Every row is compared with its checksum, every table with its tally, model, journal and
        index with theirs, postings and counts with the items. Cost: one pass over all files. A
        writer waits for it.
        """
        return [finding.text for finding in self._checked_findings()]

    def repair(self) -> list[str]:
        """Rebuild what can be derived from items, and return what is still wrong.

        The index, the postings of classes and words and the counts of classes are made from the
        items' rows and texts; files that no commit names are removed. Items, texts, thumbnails,
        class names, rounds, the model and its journal can only be restored from a backup.
        """
        self._check_writable()
        found = self._checked_findings()
        if any(finding.can_repair for finding in found):
            with self._writing() as writer:
                writer.repair(self._snapshot)
                before, self._snapshot = self._snapshot, self._look(None)
                if self._snapshot.replica is not before.replica:
                    before.replica.close()
                self._allow_lists = AllowLists(self._catalog)
            self.checkpoint()
        return self.check()

    def _checked_findings(self) -> list[Finding]:
        with self._changing:
            self._check_open()
            found = self._findings()
            # a file that is missing for a reader may have been removed by the writer meanwhile
            for _ in range(ATTEMPTS if found and self._follows else 0):
                if self._commits() == self._snapshot.head.commits:
                    break
                found = self._findings()
            if self._follows and self._commits() != self._snapshot.head.commits:
                # the writer commits faster than a check reads, and removes replaced files
                found = [finding for finding in found if not finding.is_missing]
            return found

    def _findings(self) -> list[Finding]:
        with self._catalog.reading() as connection:
            if self._follows:
                # by the same connection, as a writer may commit between two
                try:
                    self._follow(connection)
                except VanishedError as error:
                    return [Finding(str(error))]
            return findings(
                self._snapshot, self._catalog, connection, self.path, writes=not self._follows
            )
