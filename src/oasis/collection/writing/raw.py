"""Raw items and tables: what a collection ingests beside ready features."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

from oasis.collection.catalog.setup import feature_widths
from oasis.collection.records import Rejected, check_whole
from oasis.collection.writing.changes import Changes
from oasis.collection.writing.intake import check_sequence, extract_items
from oasis.errors import InputError
from oasis.features.extractor import Extractor
from oasis.items import Fields, Item, Reject, read_items, read_table, vector_widths


class RawIntake(Changes):
    """Ingests raw items, by the features that an extractor makes, and vectors in tables."""

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
        return self._take_items(items, thumbnails, strict, progress, replaces=False)

    def replace_items(
        self,
        items: Sequence[Any],
        *,
        thumbnails: Iterable[bytes | None] | bool = False,
        strict: bool = False,
        progress: Callable[[int], object] | None = None,
    ) -> list[Rejected]:
        """Replace stored items by raw ones with the same ids, in one commit; see `replace`.

        Parameters and result are those of `ingest_items`, but an item is left out whose id is not
        there.
        """
        return self._take_items(items, thumbnails, strict, progress, replaces=True)

    def _take_items(
        self,
        items: Sequence[Any],
        thumbnails: Iterable[bytes | None] | bool,
        strict: bool,
        progress: Callable[[int], object] | None,
        *,
        replaces: bool,
    ) -> list[Rejected]:
        self._check_writable()
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
            self._begin_with(extractor)
            kept = extracted.thumbnails
            if pictures is not None:
                kept = [pictures[row] for row in extracted.rows]
            self._ingest(
                extracted.X,
                extracted.labels,
                extracted.ids,
                extracted.payloads,
                kept,
                extracted.texts if self.keep_text else None,
                replaces=replaces,
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
        batch = check_whole("batch", batch, 1)
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
            self._begin_with(Extractor.of(vectors=widths))
        self.extractor.check_widths(widths)

    def _extractor_to_fill(self, items: Sequence[Any]) -> Extractor:
        """Return the extractor for raw items; a collection without anything takes what fits."""
        if (
            self._extractor is None
            and self._snapshot.model is None
            and self._recorded_extractor() is None
        ):
            return Extractor.for_items(items)
        return self.extractor

    def _begin_with(self, extractor: Extractor) -> None:
        """Record the extractor of the first items; nothing to do where there is one."""
        with self._writing():
            if self._extractor is None:
                self._extractor = extractor
                try:
                    self._settle_extractor()
                except BaseException:
                    self._extractor = None
                    raise
