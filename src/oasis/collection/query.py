"""The searches of a collection, on the last committed state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from oasis.arrays import Single, unit_rows
from oasis.codes import unpack
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
from oasis.collection.filters import AllowLists, check_meant
from oasis.collection.intake import check_sequence, extract_queries, item_text, with_text
from oasis.collection.lookups import Lookups
from oasis.collection.question import (
    WEAK,
    QueryText,
    Question,
    check_weighable,
    has_content,
)
from oasis.collection.records import Asked, Hit, Id, utf8
from oasis.collection.scored import answer
from oasis.collection.setup import RecordedExtractor
from oasis.collection.words import check_text, corrected
from oasis.errors import InputError, OasisError
from oasis.features.embedders import Features
from oasis.model import OASIS

CONFIDENT = 0.9
"""Evidence of a text that names a class."""


UNTOLD = 0.1
"""Evidence of a text where there are no classes, on which evidence is calibrated."""


class _Raw(NamedTuple):
    """Raw queries: their texts, and their features."""

    texts: list[QueryText]
    X: Mapping[str, Features]


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

    def by_features(self, X: Mapping[str, Any], how: Asked) -> list[list[Hit]]:
        """Return the hits of ready features; see `Collection.search`."""
        snapshot = self._follower.current()
        question = self._question(snapshot, X, how)
        if how.fuse:
            question = self._with_repeats(snapshot, question, X, how)
        return self._ask(snapshot, question)

    def _with_repeats(
        self, snapshot: Committed, question: Question, X: Mapping[str, Any], how: Asked
    ) -> Question:
        """Add the items that have the features of a query."""
        if question.mode != "asymmetric" or how.content == 0 or not X:
            return question
        repeats = self.repeats.find(X, learned(snapshot).state_.widths, snapshot.head.next_key)
        return question._replace(repeats=repeats)

    def _question(self, snapshot: Committed, X: Mapping[str, Any], how: Asked) -> Question:
        model = learned(snapshot)
        codes = evidence = None
        if how.content is not None:
            check_weighable(model, how.content, how.mode)
            codes = model.encode(X)  # signs of weighed projections are others
        if isinstance(model, OASIS):
            projections, evidence = model.project_with_evidence(X, how.content)
        else:  # the published method does not tell how sure it is
            projections = model.project(X)
        return Question.of(projections, how)._replace(codes=codes, evidence=evidence)

    def by_names(self, names: Iterable[str], how: Asked) -> list[list[Hit]]:
        """Return the hits of names; see `Collection.search_words`."""
        snapshot, content = self._follower.current(), how.content
        model = learned(snapshot)
        if content is not None:
            check_weighable(model, content, how.mode)
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
        question = Question.of(projections, how)
        return self._ask(snapshot, question._replace(evidence=evidence))

    def near(self, id: Id, how: Asked) -> list[Hit]:  # noqa: A002 - the name that users give it
        """Return the hits nearest to a stored item; see `Collection.more_like`."""
        snapshot = self._follower.current()
        code = np.frombuffer(self._lookups.get(id).code, dtype=np.uint8)[None, :]
        model = learned(snapshot)
        if how.content is not None:
            check_weighable(model, how.content, how.mode)
        if has_content(model) and how.mode == "asymmetric":
            projections = model.project_codes(code, how.content)
        else:
            projections = unpack(code).astype(np.float32)
        question = Question.of(projections, how)
        (hits,) = self._ask(snapshot, question._replace(codes=code, without=id))
        return hits

    def _ask(self, snapshot: Committed, question: Question) -> list[list[Hit]]:
        return self._answered(snapshot, question)[0]

    def _answered(
        self, snapshot: Committed, question: Question
    ) -> tuple[list[list[Hit]], list[float]]:
        while True:
            try:
                lists, evidence = answer(snapshot, self._catalog, self.allow_lists, question)
                break
            except OasisError:
                newer = self._follower.snapshot
                if newer.replica is snapshot.replica:
                    raise
                # the codes have moved meanwhile, and the connection to where they were is closed
                snapshot = newer
        if snapshot.head.n_items and lists and not any(lists):
            self._check_where(question)
        return lists, evidence

    def _check_where(self, question: Question) -> None:
        """Refuse a mistake in the filter of a question without hits, if no item passes it."""
        where = question.where
        if where is None:
            return
        is_first = not question.offset and question.without is None
        if not is_first and len(self.allow_lists.of(where).keys):
            return  # the hits are on earlier pages, or the item itself
        with self._catalog.reading() as connection:
            classes = [each.name for each in self._catalog.classes(connection)]
            check_meant(connection, where, classes, self._field_names)

    def _field_names(self) -> list[str]:
        return [each.name for each in self._lookups.fields()]

    # -- with raw items ------------------------------------------------------------------------

    def by_items(self, items: Sequence[Any], how: Asked) -> list[list[Hit]]:
        """Return the hits of raw items; see `Collection.search_items`."""
        return self.by_items_with_evidence(items, how)[0]

    def by_items_with_evidence(
        self, items: Sequence[Any], how: Asked
    ) -> tuple[list[list[Hit]], list[float]]:
        """Return hits and evidence; see `Collection.search_items_with_evidence`."""
        snapshot = self._follower.current()
        raw = self._extracted(snapshot, items, words_count=how.fuses_words)
        question = self._question(snapshot, raw.X, how)
        if how.fuses_words:
            question = self._with_texts(snapshot, question, raw, how)
            question = self._with_repeats(snapshot, question, self._compared(raw.X), how)
        return self._answered(snapshot, question)

    def found(self, text: str | None, image: Any, how: Asked) -> list[Hit]:
        """Return the hits of what a person asks, with their texts; see `Collection.find`."""
        if text is not None and not isinstance(text, str):
            raise InputError(f"find takes a text, got {type(text).__name__}")
        item: dict[str, Any] = {"text": text}
        for field, embedder in self._extractor.get().sources.values():
            item[field] = text if embedder.takes == "text" else image
        ((hits,), _) = self.by_items_with_evidence([item], how)
        texts = self._lookups.texts([hit.id for hit in hits])
        return [replace(hit, text=texts.get(hit.id)) for hit in hits]

    def _extracted(self, snapshot: Committed, items: Sequence[Any], *, words_count: bool) -> _Raw:
        """Return the texts and features of raw queries; refuse one that has nothing to ask with.

        ``words_count`` says whether words are looked up: then they are corrected, and are enough
        without features.
        """
        extractor = self._extractor.get()
        items = check_sequence(items, "queries")
        texts = [item_text(extractor, item) for item in items]
        if words_count and any(texts):
            items = list(items)
            self._class_names.follow(snapshot.classes)
            with self._catalog.reading() as connection:
                for row, text in enumerate(texts):
                    better = text and corrected(connection, text, self._class_names.words)
                    if better:
                        texts[row] = better
                        items[row] = with_text(extractor, items[row], better)
        asked = [QueryText.of(text) for text in texts]
        have_words = [words_count and bool(each.tokens) for each in asked]
        return _Raw(asked, extract_queries(extractor, items, have_words))

    def _with_texts(
        self, snapshot: Committed, question: Question, raw: _Raw, how: Asked
    ) -> Question:
        """Add the texts of queries, and to their projections those of the classes they mean.

        A projection is ``evidence u + nearness v``, with u and v of unit length by the query and by
        the classes. A text that means no class, and whose evidence is low, asks by its content.
        """
        model, projections = learned(snapshot), question.projections.copy()
        evidence = None if question.evidence is None else question.evidence.copy()
        alone: dict[str, Any] = {
            name: matrix for name, matrix in raw.X.items() if not self._is_of_text(name)
        }
        pictures = model.project(alone) if alone else None
        named: list[frozenset[int]] = [frozenset()] * len(raw.texts)
        for row, asked in enumerate(raw.texts):
            if not asked.tokens:
                continue
            named[row] = self._class_names.named(asked.text)
            sure = 1.0 if evidence is None else float(evidence[row])
            meant = meant_classes(
                snapshot, self._catalog, self._class_names, asked.text, named_only=sure >= WEAK
            )
            if meant is not None:
                both = unit_rows(np.stack([projections[row], meant.projection]))
                projections[row] = np.float32(sure) * both[0] + np.float32(meant.nearness) * both[1]
                sure = max(sure, CONFIDENT * meant.nearness)
            elif isinstance(model, OASIS) and not model.classes_:
                sure = UNTOLD
            elif sure < WEAK and how.content is None and has_content(model):
                one = {name: matrix[row : row + 1] for name, matrix in raw.X.items()}
                projections[row] = model.project(one, 1.0)[0]
            if evidence is not None:
                evidence[row] = sure
        return question._replace(
            projections=projections,
            evidence=evidence,
            texts=raw.texts,
            pictures=pictures,
            named=named,
        )

    def _compared(self, X: Mapping[str, Features]) -> Mapping[str, Features]:
        """Return the modalities of raw queries whose fingerprints are compared.

        Where texts are kept, these tell more exactly whether an item has the text of a query.
        """
        if not self._keep_text:
            return X
        return {name: matrix for name, matrix in X.items() if not self._is_of_text(name)}

    def _is_of_text(self, modality: str) -> bool:
        source = self._extractor.get().sources.get(modality)
        return source is not None and source[1].takes == "text"

    def evidence(self, items: Sequence[Any]) -> list[float]:
        """Return how sure it is that something here is near; see `Collection.evidence_items`."""
        return self.by_items_with_evidence(items, Asked(k=1, payload=False))[1]

    def suggested(self, text: str) -> str | None:
        """Return what a text query may have meant, or None; see `Collection.suggest`."""
        if not isinstance(text, str):
            raise InputError(f"suggest takes a text, got {type(text).__name__}")
        text = check_text(text, "the text") or ""
        self._class_names.follow(self._follower.current().classes)
        with self._catalog.reading() as connection:
            return corrected(connection, text, self._class_names.words)
