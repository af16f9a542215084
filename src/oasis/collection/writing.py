"""The writing half of a collection: every change is one commit, or did not happen.

The order of a chunk: check everything; learn on a copy of the model; write files and, beside that,
the rows of an open transaction with the fingerprints, and ask the samples against the base as it
was; wait until the files are on the medium; send the codes, where they are searched elsewhere;
commit in SQLite; publish in memory; remove the files that the commit made useless. Whatever raises
before the commit leaves disk and memory as they were.

Learning keeps all cores busy, so nothing runs beside it.
"""

from __future__ import annotations

import copy
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from oasis.collection.catalog import Catalog, translated
from oasis.collection.checks import rebuild_copies
from oasis.collection.committed import Committed
from oasis.collection.duplicates import Fingerprints, blocks_of
from oasis.collection.files import Files
from oasis.collection.intake import check_classes, check_intake
from oasis.collection.item_rows import (
    NewChunk,
    delete_items,
    insert_chunk,
    insert_round,
)
from oasis.collection.journal import Entry, append_entry
from oasis.collection.kept_features import halved, insert_features
from oasis.collection.predictions import predicted_labels
from oasis.collection.quality import QualityMeter
from oasis.collection.records import Id, Updated, check_id
from oasis.collection.relabelling import (
    BLOCK,
    SMALL_CHUNK,
    ItemChange,
    Relabelling,
    forget_items,
    renamed,
)
from oasis.collection.replica import Replica
from oasis.collection.rows import ITEM_COLUMNS, Head, ItemRow, without_index_file
from oasis.collection.setup import Setup, feature_widths, prepared, with_seen
from oasis.collection.words import delete_texts, insert_texts
from oasis.errors import DuplicateIdError, OasisError, UnknownIdError
from oasis.hashers.chunk import Chunk, check_chunk, unlabelled_chunk
from oasis.hashers.protocol import Labels
from oasis.model import OASIS, AnyModel

_Result = TypeVar("_Result")

_LONG = 256
"""Samples of a chunk from which on threads for its fingerprints and its quality are worth it."""

_THREADS = 3  # for files, quality and fingerprints

JOURNAL_ENTRIES = 256
JOURNAL_BYTES = 8 << 20
"""The journal is folded into the model file when it would pass either."""

INDEX_ROWS = 10_000
INDEX_SHARE = 8
"""The index file is written anew after so many changes, or one in so many items, at the most."""


class Writer:
    """Changes one collection; the caller sees to it that only one thread does.

    Parameters
    ----------
    catalog, files, setup : of the collection
    words : where the word source is now
    replica : where the codes are searched; it is repaired
    """

    def __init__(
        self, catalog: Catalog, files: Files, setup: Setup, words: Any, replica: Replica
    ) -> None:
        self._catalog = catalog
        self._files = files
        self._setup = setup
        self._words = words
        self._meter = QualityMeter(catalog)
        with catalog.reading() as connection:
            head = catalog.head(connection)
            n_deleted = connection.execute("SELECT count(*) FROM deleted").fetchone()[0]
            replica.repair(catalog, connection, head)
            prints = catalog.meta(connection, "fingerprints")
        self._fingerprints = None if prints is None else Fingerprints.from_bytes(prints)
        self._changed = head.next_key - 1 - head.index_key + n_deleted
        # kept from one chunk to the next: on a busy machine a new thread begins after milliseconds
        self._threads = ThreadPoolExecutor(_THREADS)

    def close(self) -> None:
        """End the threads; nothing may be written afterwards."""
        self._threads.shutdown()

    def adopt(self, snapshot: Committed, model: AnyModel) -> Committed:
        """Make a model that knows more words the one to go on with."""
        head = replace(snapshot.head, commits=snapshot.head.commits + 1)
        with self._changing(snapshot) as change:
            change.head = self._files.write_model(head, model)
            with self._catalog.write(snapshot.head):
                self._catalog.put_head(snapshot.head, change.head)
            return self._publish(snapshot, change.head, model)

    def ingest(
        self,
        snapshot: Committed,
        X: Mapping[str, Any],
        y: Labels | None,
        ids: Any,
        payload: Any,
        thumbnails: Any,
        texts: Any = None,
        *,
        replaces: bool = False,
        keeps: bool = False,
    ) -> Committed:
        """Learn a chunk and store its items; where it ``replaces``, those with the ids go.

        ``keeps`` says whether the features are kept; then they are learned as they are kept.
        """
        began, head = time.perf_counter(), snapshot.head
        widths = feature_widths(snapshot.model)
        chunk = unlabelled_chunk(X, widths) if y is None else check_chunk(X, y, widths)
        given = chunk.X
        fingerprints = self._fingerprints or Fingerprints.of_chunk(given)
        threads = self._threads if chunk.n_samples >= _LONG else None
        first_id = self._first_id(head.next_key, chunk.n_samples) if ids is None else 0
        intake = check_intake(chunk.n_samples, first_id, ids, payload, thumbnails, texts)
        check_classes(chunk.labels, snapshot.classes)
        replaced = self._keys_of(intake.ids, "replaced") if replaces else []
        if not replaces:
            self._refuse_known(intake.ids)
        model = (
            self._setup.model(self._words) if snapshot.model is None else copy.copy(snapshot.model)
        )
        if keeps:
            chunk = replace(chunk, X=halved(given))
        forgets = self._forget(model, replaced)
        model.learn(chunk)
        codes, n = model.codes_, chunk.n_samples
        model = with_seen(model, head.n_seen + n)
        predicted = predicted_labels(model, chunk)
        new_chunk = NewChunk(
            head.n_rounds + 1, head.next_key, intake, chunk.labels, predicted, codes
        )
        with self._changing(snapshot) as change:
            change.head = replace(
                head,
                commits=head.commits + 1,
                next_key=head.next_key + n,
                n_items=head.n_items + n - len(replaced),
                n_seen=head.n_seen + n,
                n_rounds=head.n_rounds + 1,
            )
            with (
                _beside(
                    self._threads,
                    lambda: self._write_files(snapshot, change, chunk, model, anew=forgets),
                ) as wait_for_files,
                _beside(
                    threads,
                    lambda: self._meter.measure(snapshot, given, chunk.labels, set(replaced)),
                ) as wait_for_quality,
                self._catalog.write(head) as connection,
            ):
                if self._fingerprints is None:
                    self._catalog.put_meta("fingerprints", fingerprints.to_bytes())
                if replaced:
                    delete_texts(connection, replaced)
                    delete_items(connection, replaced, change.head.commits)
                # blocks of rows are inserted while threads compute those after them
                prints = chain.from_iterable(
                    (map if threads is None else threads.map)(
                        lambda rows: fingerprints.packed(given, rows, head.next_key), blocks_of(n)
                    )
                )
                new_classes = insert_chunk(connection, new_chunk, prints, snapshot.classes)
                keys = new_chunk.keys.tolist()
                insert_texts(
                    connection, list(zip(keys, intake.texts, intake.payloads, strict=True))
                )
                if keeps:
                    insert_features(connection, keys, chunk.X)
                quality = wait_for_quality()
                if entry := wait_for_files():
                    change.head = append_entry(connection, change.head, entry)
                snapshot.replica.before_commit(self._catalog, head, new_chunk)
                seconds = time.perf_counter() - began
                n_bytes = _bytes_written(head, change.head)
                insert_round(connection, new_chunk, quality, time.time(), seconds, n_bytes)
                self._catalog.put_head(head, change.head)
            self._fingerprints = fingerprints
            snapshot.classes.extend(new_classes)
            snapshot.replica.after_commit(new_chunk)
            if replaced:
                snapshot.replica.forget(np.array(replaced, dtype=np.int64))
                self._catalog.fold()
            self._changed += n + len(replaced)
            return self._publish(snapshot, change.head, model)

    def update(
        self,
        snapshot: Committed,
        changes: Sequence[ItemChange],
        progress: Callable[[int], object] | None = None,
    ) -> tuple[Committed, Updated]:
        """Give items other labels and payloads, all in one commit.

        An item whose labels change is a new version of itself, with a new key and a new code; its
        pictures and features stay where they are. Memory: a block of items, and the codes of all.
        """
        self._keys_of([each.id for each in changes], "changed")
        starts = range(0, len(changes), BLOCK)
        blocks = (changes[start : start + BLOCK] for start in starts)
        return self._change(snapshot, lambda _: blocks, progress)

    def rename_label(
        self,
        snapshot: Committed,
        old: str,
        new: str,
        progress: Callable[[int], object] | None = None,
    ) -> tuple[Committed, Updated]:
        """Give all items of a class, which must be known, another one; as by `update`."""
        names = list(snapshot.classes)
        return self._change(
            snapshot, lambda connection: renamed(connection, names, old, new), progress
        )

    def _change(
        self,
        snapshot: Committed,
        blocks: Callable[[sqlite3.Connection], Iterable[Sequence[ItemChange]]],
        progress: Callable[[int], object] | None,
    ) -> tuple[Committed, Updated]:
        """Make the changes that are read, block by block, inside the transaction."""
        head, work = snapshot.head, Relabelling(snapshot)
        with self._changing(snapshot) as change:
            commits = head.commits + 1
            with self._catalog.write(head) as connection:
                for some in blocks(connection):
                    work.change(connection, some, commits)
                    if work.versions and not snapshot.replica.is_local:
                        snapshot.replica.before_commit(self._catalog, head, work.versions[-1])
                    if progress is not None:
                        progress(len(some))
                if not work.done.changed:
                    return snapshot, work.done
                change.head = replace(head, commits=commits, next_key=work.next_key)
                model = snapshot.model
                if work.done.learned and work.model is not None:
                    model = with_seen(work.model, head.n_seen)
                    entry = work.entry()
                    if entry is not None and self._fits_journal(head, len(entry)):
                        change.head = append_entry(connection, change.head, entry)
                    else:
                        change.head = self._files.write_model(change.head, model)
                self._catalog.put_head(head, change.head)
            snapshot.classes.extend(work.classes[len(snapshot.classes) :])
            for version in work.versions:
                snapshot.replica.after_commit(version)
            if work.gone:
                snapshot.replica.forget(np.array(sorted(work.gone), dtype=np.int64))
            snapshot.replica.amend(self._catalog, work.amended)
            # where codes are elsewhere, a checkpoint notes that an amended item has arrived
            amended = 0 if snapshot.replica.is_local else len(work.amended)
            self._changed += 2 * len(work.gone) + amended
            self._catalog.fold()
            return self._publish(snapshot, change.head, model), work.done

    def delete(self, snapshot: Committed, ids: Sequence[Id]) -> Committed:
        """Delete items; every id must be there.

        What they taught is subtracted where their features are kept. The journal, which may have
        their features too, goes.
        """
        keys = self._keys_of(ids, "deleted")
        if not keys:
            return snapshot
        head = snapshot.head
        model = None if snapshot.model is None else copy.copy(snapshot.model)
        forgets = model is not None and self._forget(model, keys)
        with self._changing(snapshot) as change:
            change.head = replace(head, commits=head.commits + 1, n_items=head.n_items - len(keys))
            if model is not None and (forgets or head.journal_entries):
                model = with_seen(model, head.n_seen)
                change.head = self._files.write_model(change.head, model)
            with self._catalog.write(head) as connection:
                delete_texts(connection, keys)
                delete_items(connection, keys, change.head.commits)
                self._catalog.put_head(head, change.head)
            snapshot.replica.forget(np.array(keys, dtype=np.int64))
            self._changed += len(keys)
            self._catalog.fold()
            return self._publish(snapshot, change.head, model)

    def checkpoint(self, snapshot: Committed, *, index_changes: int) -> Committed:
        """Fold the journal into the model file, and write the index after so many changes."""
        head = snapshot.head
        folds = snapshot.model is not None and head.journal_entries > 0
        indexes = self._changed >= max(1, index_changes)
        if not folds and not indexes:
            return snapshot
        with self._changing(snapshot) as change:
            change.head = replace(head, commits=head.commits + 1)
            if folds and snapshot.model is not None:
                change.head = self._files.write_model(change.head, snapshot.model)
            if indexes:
                change.head = snapshot.replica.checkpoint(
                    self._catalog, self._files, change.head, head
                )
            with self._catalog.write(head):
                self._catalog.put_head(head, change.head)
            if change.head.index_commits > head.index_commits:
                self._changed = 0
            if folds:
                self._catalog.fold()
            return self._publish(snapshot, change.head, snapshot.model)

    def repair(self, snapshot: Committed) -> None:
        """Make anew what can be made from the items' rows; the snapshot is to be loaded again.

        Postings, counts of classes, the list of deletions and the index; files that no commit
        names go.
        """
        head = snapshot.head
        with self._changing(snapshot) as change:
            if not snapshot.replica.is_local:
                with self._catalog.reading() as connection:
                    snapshot.replica.reconcile(self._catalog, connection)
            commits = head.commits + 1
            last_key = 0 if snapshot.replica.is_local else head.next_key - 1
            change.head = without_index_file(replace(head, commits=commits), commits, last_key)
            with self._catalog.write(head) as connection:
                rebuild_copies(connection)
                self._catalog.put_head(head, change.head)
            self._changed = change.head.next_key
            self._publish(snapshot, change.head, snapshot.model)

    # ------------------------------------------------------------------------------------------

    def _forget(self, model: AnyModel, keys: Sequence[int]) -> bool:
        """Subtract from a model what items taught whose features are kept; return if any were."""
        forgets = False
        if not isinstance(model, OASIS):
            return False
        for start in range(0, len(keys), BLOCK):
            with self._catalog.reading() as connection:
                names = self._catalog.class_names(connection)
                block = keys[start : start + BLOCK]
                rows = [
                    ItemRow(*row) for row in self._catalog.rows(connection, ITEM_COLUMNS, block)
                ]
                forgets |= forget_items(connection, model, rows, names)
        return forgets

    def _fits_journal(self, head: Head, n_bytes: int) -> bool:
        return (
            head.journal_entries < JOURNAL_ENTRIES and head.journal_bytes + n_bytes <= JOURNAL_BYTES
        )

    def _write_files(
        self, snapshot: Committed, change: _Change, chunk: Chunk, model: AnyModel, *, anew: bool
    ) -> bytes | None:
        """Write what the commit of a chunk will name; return the chunk's entry of the journal.

        ``anew`` says that the model file must be written, as more has changed than the chunk says.
        """
        if self._changed >= max(INDEX_ROWS, snapshot.head.n_items // INDEX_SHARE):
            # it shows the state before this chunk, which is all that memory has
            change.head = snapshot.replica.checkpoint(
                self._catalog, self._files, change.head, snapshot.head
            )
            if change.head.index_commits > snapshot.head.index_commits:
                self._changed = 0
        X, labels, head = chunk.X, chunk.labels, change.head
        if snapshot.model is not None and not anew:
            rows = np.flatnonzero(snapshot.model.rows_used(labels))
            if not len(rows):
                return None  # nothing was learned
            if len(rows) < len(labels):
                X = {name: matrix[rows] for name, matrix in X.items()}
                labels = [labels[row] for row in rows]
            size = sum(_n_bytes(matrix) for matrix in X.values())
            if len(labels) < SMALL_CHUNK and self._fits_journal(head, size):
                return Entry.of(X, labels, snapshot.model, model).to_bytes()
        change.head = self._files.write_model(head, model)
        return None

    def _keys_of(self, ids: Sequence[Id], what: str) -> list[int]:
        """Return the keys, ascending, of ids that must all be there; ``what`` is done with them."""
        with self._catalog.reading() as connection:
            found = self._catalog.keys_of(connection, ids)
        for each in ids:
            if each not in found:
                raise UnknownIdError(f"no item has the id {each!r}; nothing was {what}")
        return sorted(found.values())

    def _refuse_known(self, ids: Sequence[Id]) -> None:
        with self._catalog.reading() as connection:
            known = self._catalog.keys_of(connection, ids)
        if known:
            more = f" and {len(known) - 1} more" if len(known) > 1 else ""
            raise DuplicateIdError(
                f"id {next(iter(known))!r}{more} is in the collection already; delete it first, or "
                "replace it"
            )

    def _first_id(self, key: int, n: int) -> int:
        """Return the first of n whole numbers that no item has as its id: the keys, if possible."""
        with self._catalog.reading() as connection:
            first = self._catalog.free_ids(connection, key, n)
        check_id(first + n - 1)
        return first

    def _committed(self, snapshot: Committed) -> bool:
        """Return whether there is, or may be, a commit after the one that the snapshot shows."""
        try:
            with self._catalog.reading() as connection:
                return self._catalog.head(connection).commits > snapshot.head.commits
        except OasisError:
            return True

    def _publish(self, snapshot: Committed, head: Head, model: AnyModel | None) -> Committed:
        new = Committed(
            head, None if model is None else prepared(model), snapshot.replica, snapshot.classes
        )
        self._files.finish(head)
        self._files.tidy(head)
        return new

    @contextmanager
    def _changing(self, snapshot: Committed) -> Iterator[_Change]:
        """Take back files when the commit does not come about."""
        change, changed = _Change(snapshot.head), self._changed
        try:
            with translated(self._files.directory):
                self._files.begin(snapshot.head)
                yield change
        except BaseException:
            # an interrupt may have left work in them that nobody waits for
            self._threads.shutdown()
            self._threads = ThreadPoolExecutor(_THREADS)
            if self._committed(snapshot):
                # it is on disk, but memory has not followed: only opening anew helps
                self._catalog.in_doubt = True
            elif not self._catalog.in_doubt:
                self._changed = changed
                self._files.tidy(snapshot.head)
            raise


@contextmanager
def _beside(
    threads: Executor | None, work: Callable[[], _Result]
) -> Iterator[Callable[[], _Result]]:
    """Do work in a thread while the block runs; yields what waits for it and returns its result.

    The block does not end before the work has. Without threads the work is done first.
    """
    if threads is None:
        result = work()
        yield lambda: result
        return
    doing = threads.submit(work)
    try:
        yield doing.result
    finally:
        wait([doing])


class _Change:
    """A commit in the making: the head it will have, as far as its files are written."""

    def __init__(self, head: Head) -> None:
        self.head = head


def _n_bytes(matrix: Any) -> int:
    return int(matrix.data.nbytes)


def _bytes_written(old: Head, new: Head) -> int:
    """Return the bytes of model and journal that a commit has written."""
    if new.model != old.model:
        return new.model_bytes
    return new.journal_bytes - old.journal_bytes
