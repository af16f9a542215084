"""The reading half of a collection: searches and look-ups on the last committed state."""

from __future__ import annotations

import copy
import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeGuard

import numpy as np

from oasis.arrays import Single, unit_rows
from oasis.codes import unpack
from oasis.collection.catalog.catalog import Catalog
from oasis.collection.catalog.commits import (
    ITEM_COLUMNS,
    ItemRow,
    decoded_payload,
    label_numbers,
    row_crc,
)
from oasis.collection.catalog.setup import Setup, feature_widths, label_space
from oasis.collection.committed import Committed, VanishedError, follow, load
from oasis.collection.files.files import Files
from oasis.collection.filters import fields
from oasis.collection.filters.where import AllowLists
from oasis.collection.records import (
    ClassInfo,
    FieldInfo,
    Hit,
    Id,
    Mode,
    Round,
    Stats,
    Stored,
    check_id,
    utf8,
)
from oasis.collection.search.search import Question, answer
from oasis.collection.texts.fusion import ClassWords, QueryWords, trust_in
from oasis.collection.texts.postings import having, text_of
from oasis.collection.writing.intake import check_sequence, extract_queries, item_text
from oasis.errors import (
    CollectionError,
    FormatError,
    InputError,
    NotFittedError,
    OasisError,
    UnknownIdError,
)
from oasis.features.extractor import Extractor
from oasis.index.protocol import CodeIndex
from oasis.model import OASIS, AnyModel

ATTEMPTS = 20
"""How often a reader looks again when the writer commits under it."""


class Queries:
    """What can be done with a collection without changing it; any thread may.

    Parameters
    ----------
    directory, catalog, setup : of the collection
    follows : bool
        Whether others commit, so that every question first looks for a new commit.
    extractor : Extractor or None
        What makes features of raw queries; None for the one recorded.
    words : where the word source is now
    """

    def __init__(
        self,
        directory: Path,
        catalog: Catalog,
        setup: Setup,
        *,
        follows: bool,
        extractor: Extractor | None,
        words: Any,
    ) -> None:
        self.path = directory
        self._catalog = catalog
        self._setup = setup
        self._follows = follows
        self._words = words
        self._extractor = extractor
        self._allow_lists = AllowLists(catalog)
        self._class_words = ClassWords()
        self._changing = threading.Lock()
        self._closed = False
        self._pid = os.getpid()
        self._interrupted = False
        self._snapshot = self._look(None)

    # -- searching -----------------------------------------------------------------------------

    def search(
        self,
        X: Mapping[str, Any],
        k: int = 10,
        mode: Mode = "asymmetric",
        where: Mapping[str, Any] | None = None,
        offset: int = 0,
        *,
        content: float | None = None,
        payload: bool = True,
        max_bytes: int | None = None,
    ) -> list[list[Hit]]:
        """Return the k best hits of every query, best first; ties by age, the older first.

        Parameters
        ----------
        X : mapping of modality name to an (n, d) array or CSR matrix
            Any of the modalities.
        k, offset : int
            How many hits to return, after skipping so many.
        mode : {"asymmetric", "hamming"}
            By the cosine of the query's real-valued projection with an item's signs, or by Hamming
            distance.
        where : mapping, optional
            A filter; see `oasis.collection.filters.where`.
        content : float from 0 to 1, optional
            Weight of the content bits in asymmetric scores: 0 asks for the kind alone, the labels
            that are predicted of the query; 1 for the thing itself alone. None: as in
            `OASIS.project`. A collection whose codes have no content bits takes None alone.
        payload : bool
            Whether hits carry their payload; without, it is empty, and not read.
        max_bytes : int, optional
            Raise `TooLargeError` where the payloads of the hits have more bytes of JSON together.
        """
        snapshot, question = self._question(X, k, mode, where, offset, content, payload, max_bytes)
        return self._ask(snapshot, question)

    def _question(
        self,
        X: Mapping[str, Any],
        k: int,
        mode: Mode,
        where: Mapping[str, Any] | None,
        offset: int,
        content: float | None,
        payload: bool,
        max_bytes: int | None,
    ) -> tuple[Committed, Question]:
        snapshot = self._current()
        model = _learned(snapshot)
        codes = None
        if content is None:
            projections = model.project(X)
        else:
            projections = _weighable(model, content, mode).project(X, content)
            if content in (0, 1):  # half of the projections are 0 and have no signs
                codes = model.encode(X)
        question = Question.of(projections, mode, k, offset, where, payload, max_bytes)
        return snapshot, question._replace(codes=codes)

    def search_items(
        self,
        items: Sequence[Any],
        k: int = 10,
        mode: Mode = "asymmetric",
        where: Mapping[str, Any] | None = None,
        offset: int = 0,
        *,
        content: float | None = None,
        fuse: bool = True,
        payload: bool = True,
        max_bytes: int | None = None,
    ) -> list[list[Hit]]:
        """Search with raw items, such as ``[{"text": "a red boat"}]``, by the extractor.

        Parameters
        ----------
        items : sequence of mappings or objects with the fields of the extractor, and ``vectors``
        fuse : bool
            Whether the words of a text, found in kept texts and in the names of labels, decide
            together with the codes, by the formula in `oasis.collection.texts.fusion`. It holds for
            ``mode="asymmetric"``, but not for ``content=0``, which asks for the kind alone.
        k, mode, where, offset, content, payload, max_bytes : as in `search`
        """
        items = check_sequence(items, "queries")
        texts = [item_text(self.extractor, item) for item in items]
        fuses = fuse and mode == "asymmetric" and content != 0
        words = [QueryWords.of(text if fuses else None) for text in texts]
        X = extract_queries(self.extractor, items, [each.words for each in words])
        snapshot, question = self._question(X, k, mode, where, offset, content, payload, max_bytes)
        if fuses:
            trust = trust_in(_evidence(_learned(snapshot), X))
            question = self._with_classes(
                snapshot, question._replace(words=words, trust=trust), trust
            )
        return self._ask(snapshot, question)

    def _with_classes(self, snapshot: Committed, question: Question, trust: Single) -> Question:
        """Add, to the projection of a query, that of the classes it names; both of unit length.

        A label space without words has no projections of names, and nothing is added.
        """
        model = _learned(snapshot)
        if not label_space(model).has_words:
            return question
        projections, known = question.projections.copy(), set(model.classes_)
        trust = trust.copy()
        for row, asked in enumerate(question.words or ()):
            named = self._class_words.named(snapshot.classes, asked.words)
            if named := [name for name in named if name in known]:
                classes = model.project_words(named).sum(axis=0)
                both = unit_rows(np.stack([projections[row], classes]))
                projections[row] = both[0] + both[1]
                trust[row] = 1.0
        return question._replace(projections=projections, trust=trust)

    def search_words(
        self,
        names: Iterable[str],
        k: int = 10,
        mode: Mode = "asymmetric",
        where: Mapping[str, Any] | None = None,
        offset: int = 0,
        *,
        payload: bool = True,
        max_bytes: int | None = None,
    ) -> list[list[Hit]]:
        """Search with names of classes, or with any words if the label space knows words."""
        snapshot = self._current()
        if not isinstance(names, str) and isinstance(names, Iterable):
            names = list(names)
            for name in names:
                if isinstance(name, str):
                    utf8(name, "a name")
        projections = _learned(snapshot).project_words(names)
        return self._ask(
            snapshot, Question.of(projections, mode, k, offset, where, payload, max_bytes)
        )

    def more_like(
        self,
        id: Id,  # noqa: A002 - the name that users give it
        k: int = 10,
        mode: Mode = "asymmetric",
        where: Mapping[str, Any] | None = None,
        offset: int = 0,
        *,
        content: float | None = None,
        payload: bool = True,
        max_bytes: int | None = None,
    ) -> list[Hit]:
        """Return the items nearest to one that is stored, itself left out, by its code.

        With content bits, asymmetric scores weigh kind and content alike, so that near-duplicates
        come first; ``content`` gives another weight, from 0 for the kind to 1 for content alone.
        """
        snapshot = self._current()
        code = np.frombuffer(self.get(id).code, dtype=np.uint8)[None, :]
        model = _learned(snapshot)
        if content is not None:
            _weighable(model, content, mode)
        if _has_content(model) and mode == "asymmetric":
            projections = model.project_codes(code, content)
        else:
            projections = unpack(code).astype(np.float32)
        question = Question.of(projections, mode, k, offset, where, payload, max_bytes)
        question = question._replace(k=k + offset + 1, offset=0, codes=code)
        (hits,) = self._ask(snapshot, question)
        return [hit for hit in hits if hit.id != id][offset : offset + k]

    def _ask(self, snapshot: Committed, question: Question) -> list[list[Hit]]:
        while True:
            try:
                return answer(
                    snapshot, self._catalog, self._allow_lists, question, self._class_words
                )
            except OasisError:
                newer = self._snapshot
                if newer.replica is snapshot.replica:
                    raise
                # the codes have moved meanwhile, and the connection to where they were is closed
                snapshot = newer

    # -- looking -------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._current().head.n_items

    def __contains__(self, item: object) -> bool:
        try:
            return bool(self.known([check_id(item)]))
        except InputError:  # what no item can have as its id
            return False

    def known(self, ids: Iterable[Id]) -> set[Id]:
        """Return those of the ids that items have."""
        with self._catalog.reading() as connection:
            return set(self._catalog.keys_of(connection, [check_id(each) for each in ids]))

    def get(self, id: Id) -> Stored:  # noqa: A002
        """Return an item as it is stored."""
        names = self._current().classes
        with self._catalog.reading() as connection:
            row = connection.execute(
                f"SELECT {ITEM_COLUMNS} FROM items WHERE id = ?",  # noqa: S608
                (check_id(id),),
            ).fetchone()
            if row is None:
                raise UnknownIdError(f"no item has the id {id!r}")
            item = ItemRow(*row).check()
            if any(number >= len(names) for number in label_numbers(item.labels)):
                names = self._catalog.class_names(connection)
            text = text_of(connection, item.key)
        return _stored(item, names, text)

    def evidence_items(self, items: Sequence[Any]) -> list[float]:
        """Return how sure it is that raw queries are near to something here, from 0 to 1.

        See `OASIS.evidence`: below 0.5 no known class fits. A query with a word that stands in a
        kept text or in the name of a label gets at least 0.5. A model that cannot tell gives 1.
        """
        snapshot = self._current()
        items = check_sequence(items, "queries")
        asked = [QueryWords.of(item_text(self.extractor, item)) for item in items]
        X = extract_queries(self.extractor, items, [each.words for each in asked])
        told = _evidence(_learned(snapshot), X)
        classes = self._class_words.having(snapshot.classes)
        with self._catalog.reading() as connection:
            found = [
                any(word in classes or len(having(connection, word).keys) for word in each.words)
                for each in asked
            ]
        return [
            max(float(value), 0.5 * is_there) for value, is_there in zip(told, found, strict=True)
        ]

    def latest(self, k: int = 10, max_bytes: int | None = None) -> list[Stored]:
        """Return the items that came last, the newest first: k, or as many as the bytes allow.

        ``max_bytes`` bounds the JSON of their payloads together; the newest comes in any case.
        """
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise InputError(f"k must be a whole number of at least 1, got {k!r}")
        found: list[Stored] = []
        n_bytes = 0
        with self._catalog.reading() as connection:
            names = self._catalog.class_names(connection)
            for row in connection.execute(
                f"SELECT {ITEM_COLUMNS} FROM items ORDER BY key DESC LIMIT ?",  # noqa: S608
                (k,),
            ):
                item = ItemRow(*row).check()
                n_bytes += len(item.payload or "")
                if found and max_bytes is not None and n_bytes > max_bytes:
                    break
                found.append(_stored(item, names, text_of(connection, item.key)))
        return found

    def snippets(self, ids: Sequence[Id], n_characters: int = 200) -> dict[Id, str]:
        """Return how the kept texts of items begin, of those ids that have one."""
        found: dict[Id, str] = {}
        with self._catalog.reading() as connection:
            keys = self._catalog.keys_of(connection, [check_id(each) for each in ids])
            ids_of = {key: each for each, key in keys.items()}
            rows = connection.execute(
                "SELECT key, substr(text, 1, ?) FROM texts "
                "WHERE key IN (SELECT value FROM json_each(?))",
                (n_characters, json.dumps(list(ids_of))),
            )
            found.update((ids_of[key], text) for key, text in rows)
        return found

    def items(self) -> Iterator[Stored]:
        """Yield every item as it is stored, oldest first, all of them as of one commit.

        What is committed after the first item was asked for is not seen. Cost: about 8 microseconds
        an item, in no more memory than one takes; the files cannot be tidied up while an iteration
        goes on, so one that is given up should be closed.
        """
        with self._catalog.reading() as connection:
            names = self._catalog.class_names(connection)
            kept = self.keep_text
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
                _check_count(connection, table, n)

    def thumbnail(self, id: Id) -> bytes | None:  # noqa: A002
        """Return the picture that came with an item, or None."""
        return self._picture(id, "thumbnail")

    def preview(self, id: Id) -> bytes | None:  # noqa: A002
        """Return the largest picture kept of an item, up to 512 pixels wide and high, or None.

        That is the thumbnail where there is no preview: one that was given with ready features, or
        one of a small picture.
        """
        return self._picture(id, "preview") or self._picture(id, "thumbnail")

    def _picture(self, id: Id, what: Literal["thumbnail", "preview"]) -> bytes | None:  # noqa: A002
        table = {"thumbnail": "thumbnails", "preview": "previews"}[what]
        with self._catalog.reading() as connection:
            row = connection.execute(
                f"SELECT items.key, picture, {table}.crc FROM items "  # noqa: S608
                f"LEFT JOIN {table} USING (key) WHERE id = ?",
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
        """Return the classes in order of arrival, with the number of items that have each."""
        with self._catalog.reading() as connection:
            return self._catalog.classes(connection)

    def fields(self) -> list[FieldInfo]:
        """Return the fields of payloads with examples of their values, those of most items first.

        From the 1,000 oldest and the 1,000 newest items, as far as their payloads have up to 8 MiB
        together, so that the cost does not grow with the collection.
        """
        with self._catalog.reading() as connection:
            found: dict[int, str] = {}
            for order in ("ASC", "DESC"):
                n_bytes = 0
                rows = connection.execute(
                    f"SELECT key, payload FROM items ORDER BY key {order} LIMIT {fields.SAMPLE}"  # noqa: S608
                )
                for key, payload in rows:
                    n_bytes += len(payload or "")
                    if n_bytes > fields.SAMPLE_BYTES // 2:
                        break
                    found[key] = payload
        return fields.described(decoded_payload(found[key]) for key in sorted(found))

    def rounds(self) -> list[Round]:
        """Return every chunk ingested, in order, with its quality."""
        with self._catalog.reading() as connection:
            return self._catalog.rounds(connection)

    def stats(self) -> Stats:
        """Return the collection in numbers."""
        snapshot = self._current()
        model = snapshot.model
        return Stats(
            n_items=snapshot.head.n_items,
            n_seen=snapshot.head.n_seen,
            n_rounds=snapshot.head.n_rounds,
            n_classes=len(snapshot.classes),
            n_bits=self.n_bits,
            modalities=feature_widths(model) or {},
            commits=snapshot.head.commits,
            journal_entries=snapshot.head.journal_entries,
            extractor=self._recorded_extractor(),
            index=snapshot.replica.address,
            bytes=Files(self.path).sizes(),
            n_content_bits=model.n_content_bits if isinstance(model, OASIS) else 0,
            keep_text=self.keep_text,
        )

    @property
    def n_bits(self) -> int:
        """Length of a code."""
        return self._setup.n_bits

    @property
    def keep_text(self) -> bool:
        """Whether texts of items are kept."""
        return self._setup.keep_text

    @property
    def model(self) -> AnyModel:
        """A copy of the model as of the last commit; learning with it does not change this one."""
        return copy.copy(_learned(self._current()))

    @property
    def codes_are_here(self) -> bool:
        """Whether codes are searched in this process; neither looks for a commit nor connects."""
        return self._snapshot.replica.is_local

    @property
    def index(self) -> CodeIndex:
        """The index of all codes by key, to be read only."""
        return self._current().index

    @property
    def extractor(self) -> Extractor:
        """What makes features of raw items: the one given, or the one recorded."""
        if self._extractor is None:
            recorded = self._recorded_extractor()
            if recorded is None:
                raise InputError(
                    "this collection was filled with ready features; to search with raw items, "
                    "open it with extractor=..."
                )
            self._extractor = Extractor.from_description(recorded)
        return self._extractor

    def _recorded_extractor(self) -> dict[str, Any] | None:
        with self._catalog.reading() as connection:
            text = self._catalog.meta(connection, "extractor")
        return None if text is None else dict(json.loads(text))

    # -- the state that questions are answered from --------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise CollectionError("this collection is closed")
        self._catalog.check_process()

    def _current(self) -> Committed:
        """Return the last committed state."""
        self._check_open()
        if self._follows:
            moved = self._interrupted or self._commits() != self._snapshot.head.commits
            # a thread that finds another one at it answers from the state before
            if moved and self._changing.acquire(blocking=False):
                try:
                    self._follow()
                finally:
                    self._changing.release()
        return self._snapshot

    def _commits(self) -> int:
        with self._catalog.reading() as connection:
            return self._catalog.head(connection).commits

    def _follow(self, connection: sqlite3.Connection | None = None) -> None:
        """Take up the state that is committed now, and let go of a replica that it has left.

        With a connection, the state that it sees.

        Whatever ends it half-way, an interrupt or a lack of memory, may leave the replica between
        two commits; then the next call loads everything anew.
        """
        before = self._snapshot
        known = None if self._interrupted else before
        self._interrupted = True
        if connection is None:
            self._snapshot = self._look(known)
        else:
            self._snapshot = self._look_at(connection, known)
        self._interrupted = False
        if self._snapshot.replica is not before.replica:
            before.replica.close()

    def _look(self, snapshot: Committed | None) -> Committed:
        """Return the state that is committed now, from an older one if there is one."""
        attempts = ATTEMPTS if self._follows else 1
        while True:
            attempts -= 1
            try:
                with self._catalog.reading() as connection:
                    return self._look_at(connection, snapshot)
            except VanishedError:
                # the writer has committed between our looks at catalog and file
                if not attempts:
                    raise

    def _look_at(self, connection: sqlite3.Connection, snapshot: Committed | None) -> Committed:
        if snapshot is None:
            return load(self._catalog, connection, self.path, self.n_bits, self._words)
        return follow(snapshot, self._catalog, connection, self.path, self._words)


def _check_count(connection: sqlite3.Connection, table: str, n: int) -> None:
    row = connection.execute("SELECT n FROM tallies WHERE name = ?", (table,)).fetchone()
    expected = row[0] if row else 0
    if n != expected:
        raise FormatError(
            f"the catalog is damaged: {n} rows of {table} were found, {expected} were written; "
            "'oasis check' lists all damage"
        )


def _stored(row: ItemRow, names: Sequence[str], text: str | None) -> Stored:
    labels = row.label_names(names)
    return Stored(row.id, row.decoded_payload(), labels, row.round, row.code, text)


def _learned(snapshot: Committed) -> AnyModel:
    if snapshot.model is None:
        raise NotFittedError("this collection has learned nothing yet; ingest a chunk first")
    return snapshot.model


def _has_content(model: AnyModel) -> TypeGuard[OASIS]:
    """Return whether codes have content bits; those of the published method have none."""
    return isinstance(model, OASIS) and model.n_content_bits > 0


def _evidence(model: AnyModel, X: Mapping[str, Any]) -> Single:
    """Return how sure it is that queries are near to something; the published method says 1."""
    n = next(iter(X.values())).shape[0]
    return model.evidence(X) if isinstance(model, OASIS) else np.ones(n, dtype=np.float32)


def _weighable(model: AnyModel, content: float, mode: Any) -> OASIS:
    """Return the model if its projections can weigh content; an `InputError` says why not."""
    if not _has_content(model):
        raise InputError(
            f"content={content!r}, but the codes of this collection have no content bits; leave it "
            "out, or begin a collection with a model that has some, such as OASIS(128)"
        )
    if mode == "hamming":
        raise InputError(
            f"content={content!r} weighs projections, but mode='hamming' counts all bits alike; "
            "leave one of them out"
        )
    return model
