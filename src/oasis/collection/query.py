"""The searches of a collection: from what a user asks with to queries, and to their hits."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np

from oasis.arrays import Matrix, Single, has_row, unit_rows
from oasis.codes import Codes, pack, unpack
from oasis.collection.catalog import Catalog
from oasis.collection.class_names import (
    ClassNames,
    means_of_given,
    meant_classes,
    project_as_texts,
    project_names,
)
from oasis.collection.committed import Committed, Follower, learned
from oasis.collection.duplicates import RepeatLookup
from oasis.collection.explain import explanation
from oasis.collection.filters import AllowLists, Filter, check_meant, index_field
from oasis.collection.intake import check_sequence, extract_queries, item_text, with_text
from oasis.collection.lookups import Lookups
from oasis.collection.notebook import Hits
from oasis.collection.ranking import WEAK, Answer, Query, Search
from oasis.collection.records import Explanation, Hit, Id, Question, utf8
from oasis.collection.setup import RecordedExtractor
from oasis.collection.words import check_text, corrected
from oasis.errors import InputError, OasisError, StorageError
from oasis.features.words import tokens_of
from oasis.hashers.chunk import check_features
from oasis.model import OASIS, AnyModel

_LOG = logging.getLogger("oasis.collection")

CONFIDENT = 0.9
"""Evidence of a text that names a class."""

UNTOLD = 0.1
"""Evidence of a text where there are no classes, on which evidence is calibrated."""


class Queries:
    """What can be asked of a collection without changing it; any thread may.

    Parameters
    ----------
    catalog, follower, extractor, lookups : of the collection
    keep_text : bool
        Whether texts of items are kept.

    Attributes
    ----------
    allow_lists : the items that pass filters; made anew after a repair
    repeats : which items repeat a query, or each other
    """

    def __init__(
        self,
        catalog: Catalog,
        follower: Follower,
        extractor: RecordedExtractor,
        lookups: Lookups,
        *,
        keep_text: bool,
    ) -> None:
        self.allow_lists = AllowLists(catalog)
        self._catalog = catalog
        self._follower = follower
        self._extractor = extractor
        self._lookups = lookups
        self._keep_text = keep_text
        self._class_names = ClassNames()
        self.repeats = RepeatLookup(catalog)

    @property
    def fingerprints_are_here(self) -> bool:
        """Whether a search by features finds all fingerprints of the last commit in memory.

        It neither looks for a commit nor reads.
        """
        return self.repeats.has(self._follower.snapshot.head.next_key)

    # -- the kinds of queries ------------------------------------------------------------------

    def by_features(self, X: Mapping[str, Any], question: Question) -> list[list[Hit]]:
        """Return the hits of ready features; see `Collection.search`."""
        snapshot, question = self._follower.current(), question.checked()
        if isinstance(X, Mapping):  # features of an extractor may lack what has not come yet
            known = learned(snapshot).state_.widths
            X = {k: x for k, x in X.items() if k in known or not _is_empty(x)}
        queries = self._of_features(snapshot, X, question)
        if question.fuses and queries:
            queries = self._with_repeats(snapshot, queries, X)
        return [answer.hits for answer in self._answered(snapshot, queries, question)]

    def by_names(self, names: Iterable[str], question: Question) -> list[list[Hit]]:
        """Return the hits of names; see `Collection.search_words`."""
        snapshot, question = self._follower.current(), question.checked()
        model, content = learned(snapshot), question.content
        if content is not None:
            check_weighable(model, content)
        given: dict[int, Single] = {}
        if not isinstance(names, str) and isinstance(names, Iterable):
            names = list(names)
            for name in names:
                if isinstance(name, str):
                    utf8(name, "a name")
            given = means_of_given(snapshot, self._catalog, names)
            names = [name for row, name in enumerate(names) if row not in given]
        projections, evidence = project_names(model, names)
        if content and has_content(model):
            texts = project_as_texts(model, self._extractor.get(), list(names))
            projections = (1 - content) * projections + content * texts
        for row, mean in given.items():  # ascending
            projections = np.insert(projections, row, mean, axis=0)
            evidence = np.insert(evidence, row, 1.0)
        queries = [
            Query(*each)
            for each in zip(
                projections, _codes(model, projections, question), evidence.tolist(), strict=True
            )
        ]
        return [answer.hits for answer in self._answered(snapshot, queries, question)]

    def near(self, id: Id, question: Question) -> list[Hit]:  # noqa: A002 - the name that users give it
        """Return the hits nearest to a stored item; see `Collection.more_like`."""
        snapshot, question = self._follower.current(), question.checked()
        item, model = self._lookups.row(id), learned(snapshot)
        code = np.frombuffer(item.code, dtype=np.uint8)
        if question.content is not None:
            check_weighable(model, question.content)
        if has_content(model) and question.mode == "asymmetric":
            (projection,) = model.project_codes(code[None], question.content)
        else:
            (projection,) = unpack(code[None]).astype(np.float32)
        (answer,) = self._answered(snapshot, [Query(projection, code)], question, item.key)
        return answer.hits

    def by_items(self, items: Sequence[Any], question: Question) -> list[Answer]:
        """Return hits and evidence of raw items; see `Collection.search_items_with_evidence`."""
        snapshot, question = self._follower.current(), question.checked()
        return self._answered(snapshot, self.of_items(snapshot, items, question), question)

    def found(self, text: str | None, image: Any, question: Question) -> list[Hit]:
        """Return the hits of what a person asks, with their texts; see `Collection.find`."""
        if text is not None and not isinstance(text, str):
            raise InputError(f"find takes a text, got {type(text).__name__}")
        ((hits, _),) = self.by_items([self._item(text, image)], question)
        texts = self._lookups.texts([hit.id for hit in hits])
        made = [replace(hit, text=texts.get(hit.id)) for hit in hits]
        return Hits(made, self._lookups.thumbnail)

    def _item(self, text: str | None, image: Any) -> dict[str, Any]:
        """Return a raw item that has the text in all fields of texts, the picture in all others."""
        item: dict[str, Any] = {"text": text}
        for field, embedder in self._extractor.get().sources.values():
            item[field] = text if embedder.takes == "text" else image
        return item

    def explained(self, id: Id, query: Any) -> Explanation:  # noqa: A002
        """Return why an item has its score; see `Collection.explain`."""
        snapshot, row = self._follower.current(), self._lookups.row(id)
        item = self._item(query, None) if isinstance(query, str) else query
        if not isinstance(item, Mapping):
            raise InputError(
                f"explain takes a text, or the fields of a query, got {type(item).__name__}"
            )
        (asked,) = self.of_items(snapshot, [item], Question())
        fields = [name for name in self._extractor.get().fields if item.get(name)]
        search = Search(snapshot, self._catalog, self.allow_lists)
        return explanation(search, asked, row, fields)

    def suggested(self, text: str) -> str | None:
        """Return what a text query may have meant, or None; see `Collection.suggest`."""
        if not isinstance(text, str):
            raise InputError(f"suggest takes a text, got {type(text).__name__}")
        checked = check_text(text, "the text")
        return None if checked is None else self._corrected(self._follower.current(), [checked])[0]

    # -- queries and their answers -------------------------------------------------------------

    def _answered(
        self,
        snapshot: Committed,
        queries: Sequence[Query],
        question: Question,
        without: int | None = None,
    ) -> list[Answer]:
        is_all = question.where is None or question.where == {}
        where = None if is_all else Filter.of(question.where)
        while True:
            try:
                search = Search(snapshot, self._catalog, self.allow_lists, where)
                answers = search.answer(queries, question, without)
                break
            except OasisError:
                newer = self._follower.snapshot
                if newer.replica is snapshot.replica:
                    raise
                # the codes have moved meanwhile, and the connection to where they were is closed
                snapshot = newer
        if where is not None and answers and not any(answer.hits for answer in answers):
            is_first = not question.offset and without is None
            if is_first or not len(self.allow_lists.of(where).keys):  # else the hits are elsewhere
                check_meant(self._catalog, where, self._lookups.fields)
        self._index_wanted()
        return [each._replace(hits=Hits(each.hits, self._lookups.thumbnail)) for each in answers]

    def _index_wanted(self) -> None:
        """Make an index of a field that lists were made by often, unless somebody is writing."""
        follower, wanted = self._follower, self.allow_lists.wanted
        if not wanted or follower.follows or not follower.changing.acquire(blocking=False):
            return
        try:
            while wanted and not follower.closed and not self._catalog.in_doubt:
                with self._catalog.write() as connection:
                    index_field(connection, wanted.pop())
        except StorageError as error:  # the hits are right without it
            _LOG.warning("no index was made of a field that is often filtered by: %s", error)
        finally:
            follower.changing.release()

    def _of_features(
        self, snapshot: Committed, X: Mapping[str, Any], question: Question
    ) -> list[Query]:
        """Return queries by features alone."""
        model, content = learned(snapshot), question.content
        if content is not None:
            check_weighable(model, content)
        evidence: Iterable[float | None]
        if isinstance(model, OASIS):
            projections, sure = model.project_with_evidence(X, content)
            evidence = sure.tolist()
        else:  # the published method does not tell how sure it is
            projections = model.project(X)
            evidence = [None] * len(projections)
        # signs of weighed projections are others
        codes = _codes(model, projections, question) if content is None else model.encode(X)
        return [Query(*each) for each in zip(projections, codes, evidence, strict=True)]

    def _with_repeats(
        self, snapshot: Committed, queries: list[Query], X: Mapping[str, Any]
    ) -> list[Query]:
        """Return queries with the items that have their features."""
        checked = check_features(X, learned(snapshot).state_.widths)
        found = self.repeats.find(checked, snapshot.head.next_key)
        return [query._replace(repeats=each) for query, each in zip(queries, found, strict=True)]

    def of_items(
        self, snapshot: Committed, items: Sequence[Any], question: Question
    ) -> list[Query]:
        """Return the queries that raw items make, with words, classes and repeats.

        One that has neither features nor words is refused.
        """
        extractor = self._extractor.get()
        items = list(check_sequence(items, "queries"))
        fields = extractor.text_fields
        texts = [item_text(fields, item) or "" for item in items]
        if question.fuses and any(texts):
            for row, better in enumerate(self._corrected(snapshot, texts)):
                if better:
                    texts[row], items[row] = better, with_text(extractor, items[row], better)
        tokens = [tokens_of(text) if question.fuses else [] for text in texts]
        widths = learned(snapshot).state_.widths
        X = extract_queries(extractor, items, [bool(each) for each in tokens], widths)
        queries = self._of_features(snapshot, X, question)
        if not question.fuses:
            return queries
        of_text = {name for name, source in extractor.sources.items() if source[1].takes == "text"}
        beside = {
            name: each for name, each in X.items() if name not in of_text and has_row(each).any()
        }
        pictures = learned(snapshot).project(beside) if beside and any(tokens) else None
        for row, text in enumerate(texts):
            if tokens[row]:
                one = {name: matrix[row : row + 1] for name, matrix in X.items()}
                query = queries[row]._replace(text=text, tokens=tokens[row])
                if pictures is not None and pictures[row].any():
                    query = query._replace(picture=pictures[row])
                queries[row] = self._with_classes(snapshot, query, one, question.content)
        # where texts are kept, these tell more exactly whether an item has the text of a query
        compared = beside if self._keep_text else X
        return self._with_repeats(snapshot, queries, compared) if compared else queries

    def _with_classes(
        self, snapshot: Committed, query: Query, X: Mapping[str, Matrix], content: float | None
    ) -> Query:
        """Add to the projection of a text those of the classes that it means.

        It becomes ``evidence u + nearness v``, with u and v of unit length by the query and by the
        classes. A text that means no class, and whose evidence is low, asks by its content.
        """
        model, sure = learned(snapshot), query.sure
        named = self._class_names.named(query.text)
        meant = meant_classes(
            snapshot, self._catalog, self._class_names, query.text, named, named_only=sure >= WEAK
        )
        projection = query.projection
        if meant is not None:
            both = unit_rows(np.stack([projection, meant.projection]))
            projection = np.float32(sure) * both[0] + np.float32(meant.nearness) * both[1]
            sure = max(sure, CONFIDENT * meant.nearness)
        elif isinstance(model, OASIS) and not model.classes_:
            sure = UNTOLD
        elif sure < WEAK and content is None and has_content(model):
            (projection,) = model.project(X, 1.0)
        return query._replace(
            projection=projection,
            code=query.code if content is not None else pack(projection[None])[0],
            evidence=None if query.evidence is None else sure,
            named=named,
        )

    def _corrected(self, snapshot: Committed, texts: Sequence[str]) -> list[str | None]:
        """Return texts without typing errors, None for those that have none."""
        self._class_names.follow(snapshot.classes)
        with self._catalog.reading() as connection:
            return [corrected(connection, text, self._class_names.words) for text in texts]


def _codes(model: AnyModel, projections: Single, question: Question) -> Codes:
    """Return the codes of queries, from which distances are measured."""
    if question.mode == "hamming" and isinstance(model, OASIS):
        projections = model.for_hamming(projections)
    return pack(projections)


def _is_empty(matrix: Any) -> bool:
    """Return whether all rows of features lack."""
    return getattr(matrix, "ndim", 0) == 2 and not has_row(matrix).any()


def has_content(model: AnyModel) -> TypeGuard[OASIS]:
    """Return whether codes have content bits; those of the published method have none."""
    return isinstance(model, OASIS) and model.n_content_bits > 0


def check_weighable(model: AnyModel, content: float) -> None:
    """Refuse a weight of content where codes have no content bits."""
    if not has_content(model):
        raise InputError(
            f"content={content!r}, but the codes of this collection have no content bits; leave it "
            "out, or begin a collection with a model that has some, such as OASIS.for_search(128)"
        )
