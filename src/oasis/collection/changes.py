"""The changes of a collection: what a user may ask for, checked, and handed to the writer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

from oasis.collection.catalog import Catalog, fault_of_doubt
from oasis.collection.committed import Follower, learned
from oasis.collection.filters import did_you_mean
from oasis.collection.intake import (
    check_classes,
    check_sequence,
    extract_items,
)
from oasis.collection.lookups import Lookups
from oasis.collection.records import Id, Rejected, Updated, check_whole, listed_ids
from oasis.collection.relabelling import item_changes
from oasis.collection.setup import (
    RecordedExtractor,
    Setup,
    feature_widths,
    label_space,
    with_labels,
)
from oasis.collection.writing import Writer
from oasis.errors import CollectionError, InputError
from oasis.features.extractor import Extractor
from oasis.hashers.chunk import check_label_set, warn_of_similar_names
from oasis.hashers.protocol import Labels
from oasis.items import Fields, Item, Reject, read_items, read_table, vector_widths

_LOG = logging.getLogger("oasis.collection")


class Changes:
    """What can be done with a collection beyond reading it; one thread at a time does.

    Parameters
    ----------
    writer : Writer or None
        None for a reader.
    catalog, setup, follower, extractor, lookups : of the collection
    """

    def __init__(
        self,
        writer: Writer | None,
        catalog: Catalog,
        setup: Setup,
        follower: Follower,
        extractor: RecordedExtractor,
        lookups: Lookups,
    ) -> None:
        self._writer = writer
        self._catalog = catalog
        self._setup = setup
        self._follower = follower
        self._extractor = extractor
        self._lookups = lookups

    @contextmanager
    def writing(self) -> Iterator[Writer]:
        """Yield what writes; other changes wait until the block ends."""
        self.check_writable()  # first: in a forked child nobody would ever release the lock
        with self._follower.changing:
            writer = self.check_writable()
            if self._catalog.in_doubt:
                # even a file written now could damage a commit that is there after all
                raise fault_of_doubt()
            yield writer

    def check_writable(self) -> Writer:
        """Return what writes, or refuse where this object can only read."""
        self._follower.check_open()
        if self._writer is None:
            raise CollectionError(
                f"{self._follower.path} was opened with readonly=True; open it without to change it"
            )
        return self._writer

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
        with self.writing() as writer:
            if texts is not None and not self._setup.keep_text:
                raise InputError(
                    "this collection was begun with keep_text=False, so it takes no texts; leave "
                    "them out"
                )
            self._follower.snapshot = writer.ingest(
                self._follower.snapshot,
                X,
                y,
                ids,
                payload,
                thumbnails,
                texts,
                replaces=replaces,
                keeps=self._keeps_features(),
            )

    def update(
        self,
        ids: Id | Iterable[Id],
        payload: Any,
        labels: Any,
        progress: Callable[[int], object] | None,
    ) -> Updated:
        """Change payloads or labels of items; see `Collection.update`."""
        if payload is ... and labels is ...:
            raise InputError("nothing to change: give payload, labels, or both")
        changes = item_changes(ids, payload, labels)
        names = [each.labels for each in changes if each.labels]
        with self.writing() as writer:
            if names:
                check_classes(names, self._follower.snapshot.classes)
                warn_of_similar_names(names, self._follower.snapshot.classes, stacklevel=4)
            self._follower.snapshot, done = writer.update(
                self._follower.snapshot, changes, progress
            )
        _warn_of_unlearned(done)
        return done

    def rename_label(self, old: str, new: str, progress: Callable[[int], object] | None) -> Updated:
        """Give all items of a class another one; see `Collection.rename_label`."""
        ((old,), (new,)) = (check_label_set([name]) for name in (old, new))
        with self.writing() as writer:
            snapshot = self._follower.snapshot
            with self._catalog.reading() as connection:
                names = [each.name for each in self._catalog.classes(connection)]
            if old not in names:
                near = did_you_mean(old, names)
                raise InputError(f"no class is called {old[:100]!r}; {near}")
            if old == new:
                return Updated()
            check_classes([(new,)], snapshot.classes)
            warn_of_similar_names([[new]], [name for name in names if name != old], stacklevel=4)
            self._follower.snapshot, done = writer.rename_label(snapshot, old, new, progress)
        _warn_of_unlearned(done)
        return done

    def _keeps_features(self) -> bool:
        recorded = self._setup.keep_features
        return self._extractor.is_of_raw_items() if recorded is None else recorded

    def delete(self, ids: Iterable[Id]) -> int:
        """Delete items and return how many; see `Collection.delete`."""
        wanted = list(dict.fromkeys(listed_ids(ids, "delete")))
        with self.writing() as writer:
            self._follower.snapshot = writer.delete(self._follower.snapshot, wanted)
        return len(wanted)

    def checkpoint(self) -> None:
        """Fold the journal into the model file and write the index."""
        with self.writing() as writer:
            self._follower.snapshot = writer.checkpoint(self._follower.snapshot, index_changes=1)

    def add_words(self, vectors: Mapping[str, Any]) -> None:
        """Add vectors of class names; see `Collection.add_words`."""
        with self.writing() as writer:
            model = learned(self._follower.snapshot)
            # a space of its own: nothing is changed before the commit
            more = with_labels(model, label_space(model).with_words(vectors))
            self._follower.snapshot = writer.adopt(self._follower.snapshot, more)

    # -- raw items and tables ------------------------------------------------------------------

    def take_items(
        self,
        items: Sequence[Any],
        thumbnails: Iterable[bytes | None] | bool,
        strict: bool,
        progress: Callable[[int], object] | None,
        *,
        replaces: bool,
    ) -> list[Rejected]:
        """Extract features and ingest; see `Collection.ingest_items` and `replace_items`."""
        self.check_writable()
        items = check_sequence(items, "items")
        pictures = None if isinstance(thumbnails, bool) else list(thumbnails)
        if pictures is not None and len(pictures) != len(items):
            raise InputError(f"got {len(pictures)} thumbnails for {len(items)} items")
        extractor = self._extractor_to_fill(items)
        extracted, rejected = extract_items(
            extractor,
            items,
            self._lookups.known,
            progress,
            with_thumbnails=thumbnails is True,
            replaces=replaces,
        )
        if rejected and strict:
            raise InputError(f"item {rejected[0].row} cannot be used: {rejected[0].reason}")
        if extracted.rows:
            with self.writing():
                self._extractor.begin_with(extractor, self._learned_widths())
            kept = extracted.thumbnails
            if pictures is not None:
                kept = [pictures[row] for row in extracted.rows]
            self.ingest(
                extracted.X,
                extracted.labels,
                extracted.ids,
                extracted.payloads,
                kept,
                extracted.texts if self._setup.keep_text else None,
                replaces=replaces,
            )
        return rejected

    def take_table(
        self,
        table: Any,
        fields: Fields,
        separator: str,
        batch: int,
        strict: bool,
        progress: Callable[[int], object] | None,
    ) -> list[Rejected]:
        """Ingest vectors from the columns of a table or file; see `Collection.ingest_table`."""
        self.check_writable()
        batch = check_whole("batch", batch, 1)
        if not fields.vectors:
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
            refused = self.take_items(
                [result for result in rows if isinstance(result, Item)],
                False,
                strict,
                None,
                replaces=False,
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

    def _take_vectors(self, widths: Mapping[str, int]) -> None:
        """See that items may bring vectors of so many values, or record that they do."""
        if self._extractor.given is None and self._extractor.description() is None:
            with self.writing():
                extractor = Extractor.of(vectors=widths)
                self._extractor.begin_with(extractor, self._learned_widths())
        self._extractor.get().check_widths(widths)

    def _extractor_to_fill(self, items: Sequence[Any]) -> Extractor:
        """Return the extractor for raw items; a collection without anything takes what fits."""
        if (
            self._extractor.given is None
            and self._follower.snapshot.model is None
            and self._extractor.description() is None
        ):
            return Extractor.for_items(items)
        return self._extractor.get()

    def _learned_widths(self) -> dict[str, int] | None:
        return feature_widths(self._follower.snapshot.model)


def _warn_of_unlearned(done: Updated) -> None:
    if done.unlearned:
        _LOG.warning(
            "%d items have new labels, from which the model did not learn, as their features "
            "were not kept; replace them, or begin a collection with keep_features=True",
            done.unlearned,
        )
