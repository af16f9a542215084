"""Collection: learn, index and store as one transaction."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn, Self

from oasis import store
from oasis.collection.catalog.catalog import NAME, Catalog, translated
from oasis.collection.catalog.commits import Head
from oasis.collection.catalog.setup import (
    Setup,
    feature_widths,
    has_learned,
    label_space,
    with_labels,
)
from oasis.collection.committed import VanishedError
from oasis.collection.files.files import Files
from oasis.collection.files.lock import LOCK_NAME, WriterLock, check_progress, read_progress
from oasis.collection.filters.where import AllowLists
from oasis.collection.records import Id, Rejected, check_id
from oasis.collection.replica.replica import check_address, recorded_address, settle
from oasis.collection.search.following import ATTEMPTS
from oasis.collection.search.queries import Queries
from oasis.collection.upkeep.checks import Finding, findings
from oasis.collection.writing.intake import check_sequence, extract_items
from oasis.collection.writing.writer import Writer
from oasis.errors import CollectionError, InputError, NotFittedError
from oasis.features.extractor import Extractor
from oasis.hashers.protocol import (
    Labels,
)
from oasis.items import Fields, Item, Reject, read_items, read_table, vector_widths
from oasis.model import OASIS, AnyModel
from oasis.store import recorded_checksum

N_BITS = 128
"""Length of the codes of a new collection, unless asked otherwise: enough for content bits."""

_CLOSING_SHARE = 64


class Collection(Queries):
    """A directory that learns from a stream of items and finds them again.

    Made by `Collection.open`. `ingest` is atomic and durable when it returns. One writer at a time,
    any number of readers, in any process; in one process any number of threads may search while
    one writes, and they work on the last committed state without waiting for it.

    Examples
    --------
    >>> import numpy as np, tempfile
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
        self._writer: Writer | None = None
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
            Length of the codes of a new collection, 128 if not given. Of one that exists it may be
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
            Read beside a writer, in this or another process. Every search looks whether there is
            a new commit, and follows it.
        timeout : float
            Seconds to wait for another writer; 0 does not wait.
        index : str or path-like, optional
            Where the codes are searched: "local", in memory; "milvus://host:port/name", or the same
            with "?timeout=60" behind it (seconds for each request, 10 if not given); or the path of
            a milvus-lite file that ends in .db. It is recorded, "local" to begin with. Another one
            than is recorded moves the codes there, from the catalog, which has them all; only a
            writer can.
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
                    _checked(model, n_bits)  # before anything is written
                    _make_directory(directory)
                    lock = WriterLock(directory / LOCK_NAME, timeout)
                    catalog = Catalog(directory, writable=True)
                return cls._opened(
                    directory, catalog, lock, n_bits, model, extractor, words, address, keep_text
                )
        except BaseException:
            if catalog is not None:
                catalog.close()
            if lock is not None:
                lock.release()
            raise

    @classmethod
    def _opened(
        cls,
        directory: Path,
        catalog: Catalog,
        lock: WriterLock | None,
        n_bits: int | None,
        model: AnyModel | None,
        extractor: Extractor | None,
        words: Any,
        address: str | None,
        keep_text: bool | None,
    ) -> Self:
        files = Files(directory, lock)
        if catalog.is_blank:
            files.recover(Head())
            model = _checked(model, n_bits)
            _create(catalog, files, Setup.of(model, keep_text is not False), model)
            model = None  # it is the one recorded now
        progress = read_progress(directory / LOCK_NAME)
        with catalog.reading() as connection:
            head = catalog.head(connection)
            setup = Setup.read(catalog, connection)
            recorded = recorded_address(catalog, connection)
        if model is None or not _is_stored(model, directory, head):
            setup.check_same(model, n_bits, keep_text)
        else:
            setup.check_same(None, n_bits, keep_text)
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
        return cls(directory, catalog, setup, lock, extractor, words)

    def close(self) -> None:
        """Make a checkpoint (see `checkpoint`) and close; a second call does nothing.

        In a forked child nothing is written: the collection is its parent's.
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise CollectionError("a collection cannot be sent to another process; open it there")

    def __repr__(self) -> str:
        head = self._snapshot.head
        return f"<Collection {str(self.path)!r}: {head.n_items} items, {self.n_bits} bits>"

    # -- writing -------------------------------------------------------------------------------

    def ingest(
        self,
        X: Mapping[str, Any],
        y: Labels,
        ids: Iterable[Id] | None = None,
        payload: Iterable[Mapping[str, Any] | None] | None = None,
        thumbnails: Iterable[bytes | None] | None = None,
        texts: Iterable[str | None] | None = None,
    ) -> None:
        """Learn from a chunk and store its items: all of it, or nothing with an error.

        When it returns, a kill or a power cut does not undo it.

        Parameters
        ----------
        X, y : as in `OASIS.partial_fit`
            Samples without labels get the codes of samples with their predicted labels.
        ids : one str or int per sample, optional
            Kept as given; 1 and "1" are different. Each must be new, or have been deleted. Without
            ids an item gets the whole number that counts it.
        payload : one JSON object per sample, optional
            At most 1 MiB each as JSON.
        thumbnails : bytes of a picture file, or None, per sample, optional
            At most 10 kB (10,240 bytes) each.
        texts : one text, or None, per sample, optional
            Kept word for word, at most 1 MiB each; found by ``{"$text": {"contains": ...}}``.

        Notes
        -----
        A chunk with 32 or more labelled samples, and the first one, writes the whole model; a
        smaller one is appended to the journal (see `oasis.collection.files.files`).
        """
        with self._writing() as writer:
            if texts is not None and not self.keep_text:
                raise InputError(
                    "this collection was begun with keep_text=False, so it takes no texts; leave "
                    "them out"
                )
            self._snapshot = writer.ingest(self._snapshot, X, y, ids, payload, thumbnails, texts)

    def ingest_items(
        self,
        items: Sequence[Any],
        *,
        thumbnails: Iterable[bytes | None] | bool = False,
        strict: bool = False,
        progress: Callable[[int], object] | None = None,
    ) -> list[Rejected]:
        """Extract the features of raw items and ingest them as one chunk.

        Parameters
        ----------
        items : sequence of `oasis.items.Item`, or of mappings with the same keys
        thumbnails : bool, or as in `ingest`, one per item
            True makes them of the items' pictures, which are decoded once for all uses.
        strict : bool
            Raise at the first item that cannot be used, instead of leaving it out.
        progress : callable, optional
            Called with the number of items after every batch of the extraction.

        Returns
        -------
        list of Rejected
            The items left out: there was nothing to make features of, or they could not be made,
            or the id is there already. An ingest that was interrupted is therefore resumed by
            giving the same items again.
        """
        self._check_writable()
        items = check_sequence(items, "items")
        pictures = None if isinstance(thumbnails, bool) else list(thumbnails)
        if pictures is not None and len(pictures) != len(items):
            raise InputError(f"got {len(pictures)} thumbnails for {len(items)} items")
        extracted, rejected = extract_items(
            self._extractor_to_fill(),
            items,
            self.known,
            progress,
            with_thumbnails=thumbnails is True,
        )
        if rejected and strict:
            raise InputError(f"item {rejected[0].row} cannot be used: {rejected[0].reason}")
        if extracted.rows:
            kept = extracted.thumbnails
            if pictures is not None:
                kept = [pictures[row] for row in extracted.rows]
            self.ingest(
                extracted.X,
                extracted.labels,
                extracted.ids,
                extracted.payloads,
                kept,
                extracted.texts if self.keep_text else None,
            )
        return rejected

    def ingest_table(
        self,
        table: Any,
        features: Mapping[str, str],
        *,
        id: str = "id",  # noqa: A002 - the name that users give it
        labels: str | None = "labels",
        payload: str | tuple[str, ...] | None = "payload",
        separator: str = ";",
        batch: int = 4096,
        strict: bool = False,
        progress: Callable[[int], object] | None = None,
    ) -> list[Rejected]:
        """Ingest features that are there already, from the columns of a table or file.

        Each batch of rows is a chunk: learned, atomic, and durable before the next one is begun.

        Parameters
        ----------
        table : path, pyarrow Table, pandas DataFrame, or mapping of column name to values
            A path is of a .parquet, .npz, .npy or .jsonl file.
        features : mapping of modality to column
            Columns of vectors, in half, single or double precision. A row may lack some.
        id, labels, payload : names of columns
            Without a column of ids, npz, npy and tables count their rows from 0. ``payload`` is a
            column of objects, or a tuple of columns that are gathered into one.
        separator : str
            What separates labels where they are one text.
        batch : int
            Rows of a chunk.
        strict : bool
            Check all rows first, and raise at the first that cannot be used.
        progress : callable, optional
            Called with the number of rows after every batch.

        Returns
        -------
        list of Rejected
            The rows left out: a vector of another length or with NaN, no vector at all, or an id
            that is there already.

        Raises
        ------
        InputError, DataError
            A column is missing or holds no vectors, or vectors have another length than those of
            this collection; nothing has been changed.
        """
        self._check_writable()
        if batch < 1:
            raise InputError(f"batch must be a positive int, got {batch!r}")
        fields = Fields(id, None, None, labels, payload, dict(features))
        if not features:
            raise InputError("features names no column; expected such as {'image': 'clip_image'}")

        def read(strict: bool = False) -> Iterator[Item | Reject]:
            if isinstance(table, (str, PathLike)):
                return read_items(Path(table), fields, separator=separator, strict=strict)
            return read_table(table, fields, separator=separator, strict=strict)

        self._take_vectors(vector_widths(read(), fields))
        rejected: list[Rejected] = []
        results, start = read(strict), 0
        while rows := list(islice(results, batch)):
            at = [row for row, result in enumerate(rows, start) if isinstance(result, Item)]
            refused = self.ingest_items(
                [result for result in rows if isinstance(result, Item)], strict=strict
            )
            rejected += [
                Rejected(row, result.id, result.reason)
                for row, result in enumerate(rows, start)
                if isinstance(result, Reject)
            ]
            rejected += [Rejected(at[each.row], each.id, each.reason) for each in refused]
            start += len(rows)
            if progress is not None:
                progress(len(rows))
        return sorted(rejected, key=lambda each: each.row)

    def delete(self, ids: Iterable[Id]) -> int:
        """Delete items for ever, other codes untouched; return how many. Every id must be there.

        What was learned from them stays in the sums of the model.
        """
        if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
            raise InputError(f"delete takes a list of ids, got {ids!r}; write [id] for one")
        wanted = list(dict.fromkeys(check_id(each) for each in ids))
        with self._writing() as writer:
            self._snapshot = writer.delete(self._snapshot, wanted)
        return len(wanted)

    def checkpoint(self) -> None:
        """Write the whole model and the index, and erase the journal with the features in it."""
        with self._writing() as writer:
            self._snapshot = writer.checkpoint(self._snapshot, index_changes=1)

    def add_words(self, vectors: Mapping[str, Any]) -> None:
        """Add vectors of class names to a collection whose label space was made from a mapping."""
        with self._writing() as writer:
            if self._snapshot.model is None:
                raise NotFittedError(
                    "this collection has learned nothing yet; give the vectors with its model"
                )
            model = self._snapshot.model
            # a space of its own: nothing is changed before the commit
            more = with_labels(model, label_space(model).with_words(vectors))
            self._snapshot = writer.adopt(self._snapshot, more)

    # -- checking ------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """Read everything and return what is wrong with it, in words; an empty list: it is sound.

        Every row is compared with its checksum, every table with its tally, model, journal and
        index with theirs, postings and counts with the items. Cost: one pass over all files. A
        writer waits for it.
        """
        return [finding.text for finding in self._checked_findings()]

    def repair(self) -> list[str]:
        """Make anew what damage can be undone, and return what is wrong still, in words.

        The index, the postings of classes and words and the counts of classes are made from the
        items' rows and texts; files that no commit names are removed. Items, texts, thumbnails,
        class names, rounds, the model and its journal came from outside: only a backup has them.
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
            # what a reader misses may be what the writer has done away with meanwhile
            for _ in range(ATTEMPTS if found and self._follows else 0):
                if self._commits() == self._snapshot.head.commits:
                    break
                found = self._findings()
            if self._follows and self._commits() != self._snapshot.head.commits:
                # a writer that commits faster than a check looks: it removed what it replaced
                found = [finding for finding in found if not finding.is_missing]
            return found

    def _findings(self) -> list[Finding]:
        with self._catalog.reading() as connection:
            if self._follows:
                # by the same connection: a writer may commit faster than two can look
                try:
                    self._follow(connection)
                except VanishedError as error:
                    return [Finding(str(error))]
            return findings(
                self._snapshot, self._catalog, connection, self.path, writes=not self._follows
            )

    @property
    def readonly(self) -> bool:
        """Whether this object can only read."""
        return self._lock is None

    @contextmanager
    def _writing(self) -> Iterator[Writer]:
        with self._changing:
            writer = self._check_writable()
            if self._catalog.in_doubt:
                # even a file written now could damage a commit that is there after all
                raise CollectionError(
                    "the disk or memory failed during the last change, which may or may not be "
                    "there; close the collection and open it again"
                )
            yield writer

    def _check_writable(self) -> Writer:
        self._check_open()
        if self._writer is None:
            raise CollectionError(
                f"{self.path} was opened with readonly=True; open it without to change it"
            )
        return self._writer

    # -- the extractor -------------------------------------------------------------------------

    def _settle_extractor(self) -> None:
        """Record the extractor given, or refuse it where another one is recorded."""
        if self._extractor is None:
            return
        recorded = self._recorded_extractor()
        if recorded is not None:
            self._extractor.check_same(recorded)
        elif (
            self._snapshot.model is not None
            and (widths := feature_widths(self._snapshot.model)) != self._extractor.n_features
        ):
            raise InputError(
                f"this collection has features {widths}, this extractor makes "
                f"{self._extractor.n_features}"
            )
        elif self._writer is not None:
            self._writer.record("extractor", json.dumps(self._extractor.describe()))

    def _take_vectors(self, widths: Mapping[str, int]) -> None:
        """See that items may bring vectors of so many values, or record that they do."""
        if self._extractor is None and self._recorded_extractor() is None:
            with self._writing():
                self._extractor = Extractor.of(vectors=widths)
                try:
                    self._settle_extractor()
                except BaseException:
                    self._extractor = None
                    raise
        self.extractor.check_widths(widths)

    def _extractor_to_fill(self) -> Extractor:
        """Return the extractor for raw items; a collection without anything takes the default."""
        if (
            self._extractor is None
            and self._snapshot.model is None
            and self._recorded_extractor() is None
        ):
            with self._writing():
                self._extractor = Extractor.default()
                self._settle_extractor()
        return self.extractor


def _checked(model: AnyModel | None, n_bits: int | None) -> AnyModel:
    """Return what a new collection learns with; what cannot learn is refused."""
    started = OASIS(N_BITS if n_bits is None else n_bits) if model is None else model
    started.check()
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


def _is_stored(model: AnyModel, directory: Path, head: Head) -> bool:
    """Return whether a collection begins with just what this model has learned.

    So a creation that was cut short can be repeated as it was.
    """
    if head.n_rounds or not head.model or not has_learned(model):
        return False
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / head.model_name
        model.save(path)
        found = recorded_checksum(path)
    return found == (head.model_bytes, head.model_crc)


def _make_directory(directory: Path) -> None:
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
