"""How a collection changes: every change is one commit, or did not happen.

A change is checked, then made inside one SQLite transaction: the model learns on a copy, rows are
inserted, files are written beside that and flushed, codes are sent where they are searched
elsewhere. The commit of SQLite is the commit. Then memory follows, and files that the commit made
useless are removed. Whatever raises before the commit leaves disk and memory as they were.

Learning keeps all cores busy, so nothing runs beside it.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from oasis.arrays import has_row
from oasis.collection.catalog import Catalog, fault_of_doubt, translated
from oasis.collection.checks import rebuild_copies
from oasis.collection.committed import Change, Committed, Follower, learned
from oasis.collection.duplicates import Fingerprints, blocks_of
from oasis.collection.files import Files
from oasis.collection.filters import did_you_mean, index_field
from oasis.collection.intake import (
    Intake,
    check_classes,
    check_intake,
    check_sequence,
    extract_items,
)
from oasis.collection.item_rows import (
    NewItems,
    delete_items,
    insert_chunk,
    insert_round,
)
from oasis.collection.journal import Entry, append_entry
from oasis.collection.kept_features import (
    halved,
    insert_features,
    read_features,
    unpacked_features,
    unsettled_rows,
)
from oasis.collection.quality import QualityMeter, predicted_labels
from oasis.collection.records import Id, Rejected, Updated, check_id, check_whole, listed_ids
from oasis.collection.relabelling import (
    BLOCK,
    SMALL_CHUNK,
    ItemChange,
    change_items,
    forget_items,
    item_changes,
    put_versions,
    renamed,
)
from oasis.collection.rows import (
    Head,
    delete_rows,
    items_between,
    items_with,
    without_index_file,
)
from oasis.collection.setup import (
    RecordedExtractor,
    Setup,
    feature_widths,
    label_space,
    prepared,
    with_labels,
    with_seen,
)
from oasis.errors import DuplicateIdError, InputError, OasisError, UnknownIdError
from oasis.features.extractor import Extractor
from oasis.hashers.chunk import (
    Chunk,
    check_chunk,
    check_label_set,
    unlabelled_chunk,
    warn_of_similar_names,
)
from oasis.hashers.protocol import Labels
from oasis.items import (
    Fields,
    Item,
    Reject,
    read_items,
    read_table,
    settled_fields,
    vector_widths,
)
from oasis.model import OASIS

_LOG = logging.getLogger("oasis.collection")

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

_CLOSING_SHARE = 64


class Writer:
    """Changes one collection; other threads that want to wait.

    Parameters
    ----------
    catalog, files, setup, follower, extractor : of the collection
    words : where the word source is now
    """

    def __init__(
        self,
        catalog: Catalog,
        files: Files,
        setup: Setup,
        follower: Follower,
        extractor: RecordedExtractor,
        words: Any,
    ) -> None:
        self._catalog = catalog
        self._files = files
        self._setup = setup
        self._follower = follower
        self._extractor = extractor
        self._words = words
        self._meter = QualityMeter(catalog)
        with catalog.reading() as connection:
            head = catalog.head(connection)
            n_deleted = connection.execute("SELECT count(*) FROM deleted").fetchone()[0]
            follower.snapshot.replica.repair(catalog, connection, head)
            prints = catalog.meta(connection, "fingerprints")
        self._fingerprints = None if prints is None else Fingerprints.from_bytes(prints)
        self._changed = head.next_key - 1 - head.index_key + n_deleted
        # kept from one chunk to the next: on a busy machine a new thread begins after milliseconds
        self._threads = ThreadPoolExecutor(_THREADS)

    def close(self) -> None:
        """Make a checkpoint, unless the last change is in doubt, and end the threads."""
        try:
            if not self._catalog.in_doubt:
                self._checkpoint(self._follower.snapshot.head.n_items // _CLOSING_SHARE)
        finally:
            self._threads.shutdown()

    # -- the order of a change -------------------------------------------------------------------

    @contextmanager
    def _turn(self) -> Iterator[Committed]:
        """Yield the committed state; other changes wait until the block ends."""
        self._follower.check_open()  # first: in a forked child nobody would ever release the lock
        with self._follower.changing:
            self._follower.check_open()
            if self._catalog.in_doubt:
                # even a file written now could damage a commit that is there after all
                raise fault_of_doubt()
            yield self._follower.snapshot

    @contextmanager
    def _change(self, before: Committed) -> Iterator[Change]:
        """Yield the next commit, to be filled in its transaction; then commit and publish it.

        Where its head is the old one afterwards, nothing is committed. Takes back files when the
        commit does not come about.
        """
        changed, head = self._changed, before.head
        model = None if before.model is None else copy.copy(before.model)
        try:
            with translated(self._files.directory):
                self._files.begin(head)
                with self._catalog.write(head) as connection:
                    new = replace(head, commits=head.commits + 1)
                    change = Change(before, connection, new, model, list(before.classes))
                    yield change
                    if change.head == head:
                        return
                    if change.new:
                        before.replica.before_commit(self._catalog, head, change.new)
                    self._catalog.put_head(head, change.head)
                self._publish(change)
        except BaseException:
            # an interrupt may have left work in them that nobody waits for
            self._threads.shutdown()
            self._threads = ThreadPoolExecutor(_THREADS)
            if self._committed(head):
                # it is on disk, but memory has not followed: only opening anew helps
                self._catalog.in_doubt = True
            elif not self._catalog.in_doubt:
                self._changed = changed
                self._files.tidy(head)
            raise

    def _publish(self, change: Change) -> None:
        """Let memory follow a commit."""
        before, head = change.before, change.head
        before.classes.extend(change.classes[len(before.classes) :])
        if change.new:
            before.replica.after_commit(change.new)
        if change.gone:
            before.replica.forget(np.array(sorted(change.gone), dtype=np.int64))
        if head.index_commits > before.head.index_commits:
            self._changed = 0
        self._changed += sum(len(items.labels) for items in change.new) + len(change.gone)
        if change.gone or not change.new:
            self._catalog.fold()  # nothing of what is gone, or was in the journal, stays in a file
        model = None if change.model is None else prepared(change.model)
        self._follower.snapshot = Committed(head, model, before.replica, before.classes)
        self._files.finish(head)
        self._files.tidy(head)

    def _committed(self, head: Head) -> bool:
        """Return whether there is, or may be, a commit after this one."""
        try:
            with self._catalog.reading() as connection:
                return self._catalog.head(connection).commits > head.commits
        except OasisError:
            return True

    # -- chunks ----------------------------------------------------------------------------------

    def ingest(
        self,
        X: Any,
        y: Labels | None,
        ids: Any,
        payload: Any,
        thumbnails: Any,
        texts: Any,
        *,
        replaces: bool = False,
    ) -> None:
        """Learn a chunk and store its items; see `Collection.ingest` and `Collection.replace`."""
        with self._turn() as before:
            if texts is not None and not self._setup.keep_text:
                raise InputError(
                    "this collection was begun with keep_text=False, so it takes no texts; leave "
                    "them out"
                )
            widths = feature_widths(before.model)
            chunk = unlabelled_chunk(X, widths) if y is None else check_chunk(X, y, widths)
            first_id = self._first_id(before.head.next_key, chunk.n_samples) if ids is None else 0
            intake = check_intake(chunk.n_samples, first_id, ids, payload, thumbnails, texts)
            self._ingest(before, chunk, intake, replaces=replaces)

    def _ingest(
        self,
        before: Committed,
        chunk: Chunk,
        intake: Intake,
        *,
        replaces: bool,
        later: Sequence[str] = (),
    ) -> None:
        """Learn a checked chunk and store its items; where it replaces, those with the ids go.

        Modalities that may come ``later`` are learned from the first chunk on that has them.
        """
        began, given, n = time.perf_counter(), chunk.X, chunk.n_samples
        known = feature_widths(before.model) or {}
        arrived = {
            name: matrix
            for name, matrix in given.items()
            if name not in known and (name not in later or has_row(matrix).any())
        }
        learned_from = known.keys() | arrived.keys()
        chunk = replace(chunk, X={name: x for name, x in given.items() if name in learned_from})
        check_classes(chunk.labels, before.classes)
        if replaces:
            self._check_there(intake.ids, "replaced")
        else:
            self._refuse_known(intake.ids)
        keeps = self._keeps_features()
        if keeps:  # it learns what is kept, so that this can be subtracted later
            chunk = replace(chunk, X=halved(chunk.X))
        fingerprints = (
            Fingerprints.of_chunk(given)
            if self._fingerprints is None
            else self._fingerprints.grown(arrived)
        )
        threads = self._threads if n >= _LONG else None
        with self._change(before) as change:
            change.head = replace(
                change.head,
                n_items=before.head.n_items + (0 if replaces else n),
                n_seen=before.head.n_seen + n,
                n_rounds=before.head.n_rounds + 1,
            )
            if change.model is None:
                change.model = self._setup.model(self._words, self._guess())
            replaced = items_with(change.connection, "id", intake.ids) if replaces else []
            forget_items(change, replaced)
            if replaced:
                delete_items(change.connection, replaced, change.head.commits)
                change.gone += [item.key for item in replaced]
            change.model.learn(chunk)
            codes = change.model.codes_
            change.model = with_seen(change.model, change.head.n_seen)
            predicted = predicted_labels(change.model, chunk)
            self._code_anew(change)
            new = NewItems(change.head.next_key, chunk.labels, predicted, codes)
            gone = {item.key for item in replaced}
            with (
                _beside(self._threads, lambda: self._write_files(change, chunk)) as wait_for_files,
                _beside(
                    threads, lambda: self._meter.measure(before, given, chunk.labels, gone)
                ) as wait_for_quality,
            ):
                if self._fingerprints is None or arrived:
                    self._catalog.put_meta("fingerprints", fingerprints.to_bytes())
                # blocks of rows are inserted while threads compute those after them
                prints = chain.from_iterable(
                    (map if threads is None else threads.map)(
                        lambda rows: fingerprints.packed(given, rows, new.first_key), blocks_of(n)
                    )
                )
                number = change.head.n_rounds
                insert_chunk(change.connection, new, intake, number, prints, change.classes)
                rows = np.arange(n) if keeps else unsettled_rows(change.model, chunk.X)
                insert_features(change.connection, new.keys, chunk.X, rows)
                quality = wait_for_quality()
                written, entry = wait_for_files()
            change.head = written
            change.add(new)
            if entry is not None:
                change.head = append_entry(change.connection, change.head, entry)
            seconds = time.perf_counter() - began
            n_bytes = _bytes_written(before.head, change.head)
            insert_round(
                change.connection, number, chunk.labels, quality, time.time(), seconds, n_bytes
            )
        self._fingerprints = fingerprints

    def _code_anew(self, change: Change) -> None:
        """Give the first items other codes, and learn their content, once content bits are settled.

        Their features are kept until then. Items that this change has taught know their content.
        """
        model, old = change.model, change.before.model
        if not isinstance(model, OASIS) or not isinstance(old, OASIS):
            return
        if model.content_since_ <= old.content_since_:
            return
        last, end = 0, change.before.head.next_key
        while block := items_between(change.connection, last, end, BLOCK):
            last = block[-1].key
            kept = read_features(change.connection, [item.born for item in block])
            items = [item for item in block if item.born in kept]
            if not items:
                continue
            X = unpacked_features([kept[item.born] for item in items], model.state_.widths)
            labels = [item.label_names(change.classes) for item in items]
            codes = np.array([np.frombuffer(item.code, np.uint8) for item in items])
            put_versions(
                change,
                items,
                labels,
                [item.predicted_names(change.classes) for item in items],
                model.recode(old, X, labels, codes),
                [item.payload for item in items],
            )
            change.taught.append(None)
        if not self._keeps_features() and not model.state_.unsettled:
            delete_rows(change.connection, "features", "key > ?", [(0,)])

    def _write_files(self, change: Change, chunk: Chunk) -> tuple[Head, bytes | None]:
        """Write what the commit of a chunk will name; return its head and entry of the journal."""
        before, head, model = change.before, change.head, change.model
        assert model is not None
        if self._changed >= max(INDEX_ROWS, before.head.n_items // INDEX_SHARE):
            # it shows the state before this chunk, which is all that memory has
            head = before.replica.checkpoint(self._catalog, self._files, head, before.head)
        X, labels = chunk.X, chunk.labels
        has_all = feature_widths(before.model) == feature_widths(model)
        if before.model is not None and has_all and not change.taught:
            rows = np.flatnonzero(before.model.rows_used(labels))
            if not len(rows):
                return head, None  # nothing was learned
            if len(rows) < len(labels):
                X = {name: matrix[rows] for name, matrix in X.items()}
                labels = [labels[row] for row in rows]
            size = sum(int(matrix.data.nbytes) for matrix in X.values())
            if len(labels) < SMALL_CHUNK and _fits_journal(head, size):
                return head, Entry.of(X, labels, before.model, model).to_bytes()
        return self._files.write_model(head, model), None

    def _keeps_features(self) -> bool:
        recorded = self._setup.keep_features
        return self._extractor.is_of_raw_items() if recorded is None else recorded

    # -- labels, payloads, deletions -------------------------------------------------------------

    def update(
        self, ids: Any, payload: Any, labels: Any, progress: Callable[[int], object] | None
    ) -> Updated:
        """Change payloads or labels of items; see `Collection.update`."""
        if payload is ... and labels is ...:
            raise InputError("nothing to change: give payload, labels, or both")
        done = self._update(item_changes(ids, payload, labels), progress)
        _warn_of_unlearned(done)
        return done

    def _update(
        self, changes: Sequence[ItemChange], progress: Callable[[int], object] | None
    ) -> Updated:
        with self._turn() as before:
            if names := [each.labels for each in changes if each.labels]:
                check_classes(names, before.classes)
                warn_of_similar_names(names, before.classes, stacklevel=5)
            self._check_there([each.id for each in changes], "changed")
            starts = range(0, len(changes), BLOCK)
            with self._change(before) as change:
                blocks = (changes[start : start + BLOCK] for start in starts)
                return self._change_all(change, blocks, progress)

    def update_table(
        self,
        table: Any,
        fields: Fields,
        separator: str,
        batch: int,
        strict: bool,
        progress: Callable[[int], object] | None,
    ) -> tuple[Updated, list[Rejected]]:
        """Change labels and payloads by a table or file; see `Collection.update_table`."""
        self._follower.check_open()
        batch = check_whole("batch", batch, 1)
        # settled here: a column that is missing keeps what items have
        fields = settled_fields(table, fields)
        read = _reader(table, fields, separator)
        if strict:
            for start, rows in _batches(read(True), batch):
                _, refused = self._changes_of(rows, start, fields)
                if refused:
                    raise InputError(
                        f"row {refused[0].row} cannot be used: {refused[0].reason}; nothing was "
                        "changed"
                    )
        done, rejected = Updated(), []
        for start, rows in _batches(read(strict), batch):
            changes, refused = self._changes_of(rows, start, fields)
            if changes:
                made = self._update(changes, None)
                done = done.plus(made)
            rejected += refused
            if progress is not None:
                progress(len(rows))
        _warn_of_unlearned(done)
        return done, rejected

    def rename_label(self, old: str, new: str, progress: Callable[[int], object] | None) -> Updated:
        """Give all items of a class another one; see `Collection.rename_label`."""
        ((old,), (new,)) = (check_label_set([name]) for name in (old, new))
        with self._turn() as before:
            with self._catalog.reading() as connection:
                names = [each.name for each in self._catalog.classes(connection)]
            if old not in names:
                near = did_you_mean(old, names)
                raise InputError(f"no class is called {old[:100]!r}; {near}")
            if old == new:
                return Updated()
            check_classes([(new,)], before.classes)
            warn_of_similar_names([[new]], [name for name in names if name != old], stacklevel=4)
            with self._change(before) as change:
                blocks = renamed(change.connection, list(change.classes), old, new)
                done = self._change_all(change, blocks, progress)
        _warn_of_unlearned(done)
        return done

    def _change_all(
        self,
        change: Change,
        blocks: Iterable[Sequence[ItemChange]],
        progress: Callable[[int], object] | None,
    ) -> Updated:
        """Make changes block by block, and write what was learned."""
        done, old = Updated(), change.before.head
        for some in blocks:
            made = change_items(change, some)
            done = done.plus(made)
            if progress is not None:
                progress(len(some))
        if not done.changed:
            change.head = old
        elif done.learned and change.model is not None:
            change.model = with_seen(change.model, old.n_seen)
            self._code_anew(change)
            entry = change.taught[0] if len(change.taught) == 1 else None
            if entry is not None and _fits_journal(old, len(entry)):
                change.head = append_entry(change.connection, change.head, entry)
            else:
                change.head = self._files.write_model(change.head, change.model)
        return done

    def delete(self, ids: Iterable[Id]) -> int:
        """Delete items and return how many; see `Collection.delete`.

        The journal, which may have their features too, goes.
        """
        wanted = list(dict.fromkeys(listed_ids(ids, "delete")))
        with self._turn() as before:
            self._check_there(wanted, "deleted")
            if not wanted:
                return 0
            with self._change(before) as change:
                n_items = before.head.n_items - len(wanted)
                change.head = replace(change.head, n_items=n_items)
                for start in range(0, len(wanted), BLOCK):
                    items = items_with(change.connection, "id", wanted[start : start + BLOCK])
                    forget_items(change, items)
                    delete_items(change.connection, items, change.head.commits)
                    change.gone += [item.key for item in items]
                if change.model is not None and (change.taught or before.head.journal_entries):
                    change.model = with_seen(change.model, before.head.n_seen)
                    change.head = self._files.write_model(change.head, change.model)
        return len(wanted)

    def add_words(self, vectors: Mapping[str, Any]) -> None:
        """Add vectors of class names; see `Collection.add_words`."""
        with self._turn() as before:
            model = learned(before)
            more = with_labels(model, label_space(model).with_words(vectors))
            with self._change(before) as change:
                change.model = more
                change.head = self._files.write_model(change.head, more)

    def index_field(self, name: str) -> None:
        """Make an index of a field of the payload; see `Collection.index_field`."""
        with self._turn(), self._catalog.write() as connection:
            index_field(connection, name)

    def checkpoint(self) -> None:
        """Fold the journal into the model file and write the index."""
        with self._turn():
            self._checkpoint(1)

    def _checkpoint(self, index_changes: int) -> None:
        """Fold the journal, and write the index after so many changes."""
        before = self._follower.snapshot
        folds = before.model is not None and before.head.journal_entries > 0
        indexes = self._changed >= max(1, index_changes)
        if folds or indexes:
            with self._change(before) as change:
                if folds and change.model is not None:
                    change.head = self._files.write_model(change.head, change.model)
                if indexes:
                    change.head = before.replica.checkpoint(
                        self._catalog, self._files, change.head, before.head
                    )

    def repair(self) -> None:
        """Make anew what can be made from the items' rows, and load everything again."""
        with self._turn() as before:
            if not before.replica.is_local:
                with self._catalog.reading() as connection:
                    before.replica.reconcile(self._catalog, connection)
            with self._change(before) as change:
                commits = change.head.commits
                last_key = 0 if before.replica.is_local else before.head.next_key - 1
                change.head = without_index_file(change.head, commits, last_key)
                rebuild_copies(change.connection)
            self._changed = before.head.next_key
            self._follower.reload()
            self._checkpoint(1)

    # -- raw items and tables --------------------------------------------------------------------

    def ingest_items(
        self,
        items: Sequence[Any],
        thumbnails: Iterable[bytes | None] | bool,
        strict: bool,
        progress: Callable[[int], object] | None,
        *,
        replaces: bool,
    ) -> list[Rejected]:
        """Extract features and ingest; see `Collection.ingest_items` and `replace_items`."""
        self._follower.check_open()
        items = check_sequence(items, "items")
        pictures = None if isinstance(thumbnails, bool) else list(thumbnails)
        if pictures is not None and len(pictures) != len(items):
            raise InputError(f"got {len(pictures)} thumbnails for {len(items)} items")
        extractor = self._extractor_to_fill(items)
        extracted, rejected = extract_items(
            extractor,
            items,
            self.known,
            progress,
            with_thumbnails=thumbnails is True,
            replaces=replaces,
        )
        if rejected and strict:
            raise InputError(f"item {rejected[0].row} cannot be used: {rejected[0].reason}")
        if extracted.rows:
            with self._turn() as before:
                self._extractor.begin_with(extractor, feature_widths(before.model))
                later = extractor.pictures if self._setup.may_add else []
                widths = feature_widths(before.model)
                chunk = check_chunk(extracted.X, extracted.labels, widths, may_add=bool(later))
                intake = extracted.intake(
                    pictures, keeps_text=self._setup.keep_text, guess=self._guess()
                )
                self._ingest(before, chunk, intake, replaces=replaces, later=later)
        return rejected

    def ingest_table(
        self,
        table: Any,
        fields: Fields,
        separator: str,
        batch: int,
        strict: bool,
        progress: Callable[[int], object] | None,
    ) -> list[Rejected]:
        """Ingest vectors from the columns of a table or file; see `Collection.ingest_table`."""
        self._follower.check_open()
        batch = check_whole("batch", batch, 1)
        if not fields.vectors:
            raise InputError("features names no column; expected such as {'image': 'clip_image'}")
        read = _reader(table, fields, separator)
        self._take_vectors(vector_widths(read(False), fields))
        rejected: list[Rejected] = []
        for start, rows in _batches(read(strict), batch):
            there = [(start + at, each) for at, each in enumerate(rows) if isinstance(each, Item)]
            rejected += _rejected(rows, start)
            for each in self.ingest_items(
                [item for _, item in there], False, strict, None, replaces=False
            ):
                rejected.append(Rejected(there[each.row][0], each.id, each.reason))
            if progress is not None:
                progress(len(rows))
        return sorted(rejected, key=lambda each: each.row)

    def _changes_of(
        self, rows: Sequence[Item | Reject], start: int, fields: Fields
    ) -> tuple[list[ItemChange], list[Rejected]]:
        """Return the changes that rows of a table ask for, and the rows that cannot be used."""
        rejected = _rejected(rows, start)
        known = self.known([each.id for each in rows if isinstance(each, Item)])
        changes: list[ItemChange] = []
        for row, each in enumerate(rows, start):
            if isinstance(each, Reject):
                continue
            try:
                if each.id not in known:
                    raise InputError(f"no item has the id {each.id!r}")
                labels = ... if fields.labels is None else each.labels
                payload = ... if fields.payload is None else each.payload
                change = ItemChange.of(each.id, labels, payload)
                check_classes([change.labels or ()], ())
                changes.append(change)
            except InputError as error:
                rejected.append(Rejected(row, each.id, str(error)))
        return changes, sorted(rejected, key=lambda each: each.row)

    def _take_vectors(self, widths: Mapping[str, int]) -> None:
        """See that items may bring vectors of so many values, or record that they do."""
        if self._extractor.given is None and self._extractor.description() is None:
            with self._turn() as before:
                extractor = Extractor.of(vectors=widths)
                self._extractor.begin_with(extractor, feature_widths(before.model))
        self._extractor.get().check_widths(widths)

    def _guess(self) -> tuple[str, str] | None:
        """Return from which modality which other is guessed; None if nothing is."""
        if not self._setup.picture_meaning or not self._extractor.is_of_raw_items():
            return None
        return self._extractor.get().guess

    def _extractor_to_fill(self, items: Sequence[Any]) -> Extractor:
        """Return the extractor for raw items; a collection without anything takes what fits."""
        if (
            self._extractor.given is None
            and self._follower.snapshot.model is None
            and self._extractor.description() is None
        ):
            return Extractor.for_items(items)
        return self._extractor.get()

    # -- ids ---------------------------------------------------------------------------------------

    def known(self, ids: Iterable[Id]) -> set[Id]:
        """Return those of the ids that items have."""
        with self._catalog.reading() as connection:
            return set(self._catalog.keys_of(connection, list(ids)))

    def _check_there(self, ids: Sequence[Id], what: str) -> None:
        """Raise unless items have all of these ids; ``what`` is to be done with them."""
        known = self.known(ids)
        for each in ids:
            if each not in known:
                raise UnknownIdError(f"no item has the id {each!r}; nothing was {what}")

    def _refuse_known(self, ids: Sequence[Id]) -> None:
        if known := self.known(ids):
            more = f" and {len(known) - 1} more" if len(known) > 1 else ""
            first = next(each for each in ids if each in known)
            raise DuplicateIdError(
                f"id {first!r}{more} is in the collection already; delete it first, or replace it"
            )

    def _first_id(self, key: int, n: int) -> int:
        """Return the first of n whole numbers that no item has as its id: the keys, if possible."""
        with self._catalog.reading() as connection:
            first = self._catalog.free_ids(connection, key, n)
        check_id(first + n - 1)
        return first


def _reader(
    table: Any, fields: Fields, separator: str
) -> Callable[[bool], Iterator[Item | Reject]]:
    """Return what reads a table or file from its beginning; it takes ``strict``."""

    def read(strict: bool) -> Iterator[Item | Reject]:
        if isinstance(table, (str, PathLike)):
            return read_items(Path(table), fields, separator=separator, strict=strict)
        return read_table(table, fields, separator=separator, strict=strict)

    return read


def _batches(
    results: Iterator[Item | Reject], batch: int
) -> Iterator[tuple[int, list[Item | Reject]]]:
    """Yield rows in batches, each with the position of its first."""
    start = 0
    while rows := list(islice(results, batch)):
        yield start, rows
        start += len(rows)


def _rejected(rows: Sequence[Item | Reject], start: int) -> list[Rejected]:
    return [
        Rejected(row, each.id, each.reason)
        for row, each in enumerate(rows, start)
        if isinstance(each, Reject)
    ]


def _fits_journal(head: Head, n_bytes: int) -> bool:
    return head.journal_entries < JOURNAL_ENTRIES and head.journal_bytes + n_bytes <= JOURNAL_BYTES


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


def _bytes_written(old: Head, new: Head) -> int:
    """Return the bytes of model and journal that a commit has written."""
    if new.model != old.model:
        return new.model_bytes
    return new.journal_bytes - old.journal_bytes


def _warn_of_unlearned(done: Updated) -> None:
    if done.unlearned:
        _LOG.warning(
            "%d items have new labels, from which the model did not learn, as their features "
            "were not kept; replace them, or begin a collection with keep_features=True",
            done.unlearned,
        )
