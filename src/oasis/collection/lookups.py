"""Look-ups in the last committed state of a collection: items, pictures, classes, numbers."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from oasis.collection.catalog import Catalog
from oasis.collection.committed import Follower
from oasis.collection.fields import described, sampled
from oasis.collection.files import Files
from oasis.collection.kept_features import kept_sizes
from oasis.collection.records import (
    MAX_HITS,
    ClassInfo,
    FieldInfo,
    Id,
    Round,
    Stats,
    Stored,
    check_id,
    check_whole,
    listed_ids,
)
from oasis.collection.rows import (
    ITEM_COLUMNS,
    ItemRow,
    check_count,
    row_crc,
)
from oasis.collection.setup import RecordedExtractor, Setup, feature_widths
from oasis.collection.words import text_of, texts_of
from oasis.errors import FormatError, UnknownIdError
from oasis.model import OASIS


class Lookups:
    """Look-ups in a collection that need no query; safe from any thread.

    Parameters
    ----------
    catalog, setup, follower, extractor : of the collection
    """

    def __init__(
        self, catalog: Catalog, setup: Setup, follower: Follower, extractor: RecordedExtractor
    ) -> None:
        self._catalog = catalog
        self._setup = setup
        self._follower = follower
        self._extractor = extractor

    def known(self, ids: Iterable[Id]) -> set[Id]:
        """Return those of the ids that items have."""
        with self._catalog.reading() as connection:
            return set(self._catalog.keys_of(connection, listed_ids(ids, "known")))

    def row(self, id: Id) -> ItemRow:  # noqa: A002
        """Return the row of an item."""
        with self._catalog.reading() as connection:
            return _row(connection, id)

    def get(self, id: Id) -> Stored:  # noqa: A002
        """Return an item as it is stored."""
        names: Sequence[str] = self._follower.current().classes
        with self._catalog.reading() as connection:
            item = _row(connection, id)
            names = self._catalog.names_from(connection, names)
            return _stored(item, names, text_of(connection, item.key))

    def latest(self, k: int = 10, max_bytes: int | None = None) -> list[Stored]:
        """Return the items that came last, the newest first; see `Collection.latest`."""
        most = min(check_whole("k", k, 1), MAX_HITS)
        if max_bytes is not None:
            max_bytes = check_whole("max_bytes", max_bytes, 0)
        found: list[Stored] = []
        n_bytes = 0
        with self._catalog.reading() as connection:
            names = self._catalog.class_names(connection)
            for row in connection.execute(
                f"SELECT {ITEM_COLUMNS} FROM items ORDER BY key DESC LIMIT ?",  # noqa: S608
                (most,),
            ):
                item = ItemRow(*row).check()
                n_bytes += item.payload_bytes
                if found and max_bytes is not None and n_bytes > max_bytes:
                    break
                found.append(_stored(item, names, text_of(connection, item.key)))
        return found

    def snippets(self, ids: Sequence[Id], n_characters: int = 200) -> dict[Id, str]:
        """Return how the kept texts of items begin, of those ids that have one."""
        found: dict[Id, str] = {}
        with self._catalog.reading() as connection:
            keys = self._catalog.keys_of(connection, listed_ids(ids, "snippets"))
            ids_of = {key: each for each, key in keys.items()}
            rows = connection.execute(
                "SELECT key, substr(text, 1, ?) FROM texts "
                "WHERE key IN (SELECT value FROM json_each(?))",
                (n_characters, json.dumps(list(ids_of))),
            )
            found.update((ids_of[key], text) for key, text in rows)
        return found

    def texts(self, ids: Sequence[Id]) -> dict[Id, str]:
        """Return the kept texts of those of the items that have one."""
        with self._catalog.reading() as connection:
            keys = self._catalog.keys_of(connection, ids)
            texts = texts_of(connection, keys.values())
        return {each: texts[key] for each, key in keys.items() if key in texts}

    def ids_of(self, groups: Iterable[Sequence[int]]) -> list[list[Id]]:
        """Return the ids of items by their keys; those that were deleted since are left out."""
        listed = [list(group) for group in groups]
        with self._catalog.reading() as connection:
            keys = [key for group in listed for key in group]
            ids = dict(self._catalog.rows(connection, "key, id", keys))
        found = [[ids[key] for key in group if key in ids] for group in listed]
        return [group for group in found if len(group) > 1]

    def items(self) -> Iterator[Stored]:
        """Yield every item as it is stored, oldest first; see `Collection.items`."""
        with self._catalog.reading() as connection:
            names = self._catalog.class_names(connection)
            kept = self._setup.keep_text
            found = {"items": 0, "texts": 0}
            for row in connection.execute(
                f"SELECT {ITEM_COLUMNS} FROM items ORDER BY key"  # noqa: S608
            ):
                item = ItemRow(*row).check()
                text = text_of(connection, item.key) if kept else None
                found["items"] += 1
                found["texts"] += text is not None
                yield _stored(item, names, text)
            # a row whose key is damaged is not found, and has no checksum that could tell
            for table, n in found.items():
                check_count(connection, table, n)

    def thumbnail(self, id: Id) -> bytes | None:  # noqa: A002
        """Return the picture that came with an item, or None."""
        return self._picture(id, "thumbnail")

    def preview(self, id: Id) -> bytes | None:  # noqa: A002
        """Return the largest picture kept of an item, or None; see `Collection.preview`."""
        return self._picture(id, "preview") or self._picture(id, "thumbnail")

    def _picture(self, id: Id, what: Literal["thumbnail", "preview"]) -> bytes | None:  # noqa: A002
        table = {"thumbnail": "thumbnails", "preview": "previews"}[what]
        with self._catalog.reading() as connection:
            row = connection.execute(
                f"SELECT born, picture, {table}.crc FROM items "  # noqa: S608
                f"LEFT JOIN {table} ON {table}.key = born WHERE id = ?",
                (check_id(id),),
            ).fetchone()
        if row is None:
            raise UnknownIdError(f"no item has the id {id!r}")
        key, picture, crc = row
        if picture is None:
            return None
        if row_crc(key, picture) != crc:
            raise FormatError(f"the {what} of {id!r} is damaged: it does not match its checksum")
        return bytes(picture)

    def classes(self) -> list[ClassInfo]:
        """Return the classes that items have, in order of arrival, with the number of items."""
        with self._catalog.reading() as connection:
            return self._catalog.classes(connection)

    def fields(self) -> list[FieldInfo]:
        """Return the fields of payloads, from a sample; see `Collection.fields`."""
        with self._catalog.reading() as connection:
            return described(sampled(connection))

    def rounds(self) -> list[Round]:
        """Return every chunk ingested, in order, with its quality."""
        with self._catalog.reading() as connection:
            return self._catalog.rounds(connection)

    def stats(self) -> Stats:
        """Return the collection in numbers."""
        snapshot = self._follower.current()
        model = snapshot.model
        with self._catalog.reading() as connection:
            n_kept, n_bytes = kept_sizes(connection)
            n_classes = len(self._catalog.classes(connection))
        return Stats(
            n_items=snapshot.head.n_items,
            n_seen=snapshot.head.n_seen,
            n_rounds=snapshot.head.n_rounds,
            n_classes=n_classes,
            n_bits=self._setup.n_bits,
            modalities=feature_widths(model) or {},
            commits=snapshot.head.commits,
            journal_entries=snapshot.head.journal_entries,
            extractor=self._extractor.description(),
            index=snapshot.replica.address,
            bytes={**Files(self._follower.path).sizes(), "features": n_bytes},
            n_content_bits=model.n_content_bits if isinstance(model, OASIS) else 0,
            keep_text=self._setup.keep_text,
            n_features_kept=n_kept,
        )


def _row(connection: sqlite3.Connection, id: Id) -> ItemRow:  # noqa: A002
    row = connection.execute(
        f"SELECT {ITEM_COLUMNS} FROM items WHERE id = ?",  # noqa: S608
        (check_id(id),),
    ).fetchone()
    if row is None:
        raise UnknownIdError(f"no item has the id {id!r}")
    return ItemRow(*row).check()


def _stored(row: ItemRow, names: Sequence[str], text: str | None) -> Stored:
    return Stored(
        row.id,
        row.decoded_payload(),
        row.label_names(names),
        row.round,
        row.code,
        text,
        row.predicted_names(names),
        row.names_of_looks,
    )
