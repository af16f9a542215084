"""Searches of a collection with raw items, by the extractor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from oasis.arrays import Single, has_row
from oasis.collection.committed import Committed
from oasis.collection.records import Hit, Mode
from oasis.collection.repeats.lookup import at_repeats
from oasis.collection.search.lookups import learned
from oasis.collection.search.names import with_classes, with_words
from oasis.collection.search.queries import Queries
from oasis.collection.texts.fusion import QueryWords
from oasis.collection.texts.phrases import check_text
from oasis.collection.texts.spelling import suggested
from oasis.collection.writing.intake import check_sequence, extract_queries, item_text
from oasis.errors import InputError
from oasis.features.embedders import Features
from oasis.model import OASIS


class _Raw(NamedTuple):
    """Raw queries: the words of their texts, and their features."""

    asked: list[QueryWords]
    X: Mapping[str, Features]


class RawQueries(Queries):
    """What can be asked of a collection with raw items; any thread may."""

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
            Whether the words of a text, found in kept texts and in the names of labels, and the
            fingerprints of its features decide together with the codes, by the formula in
            `oasis.collection.texts.fusion`. It holds for
            ``mode="asymmetric"``, but not for ``content=0``, which asks for the kind alone.
        k, mode, where, offset, content, payload, max_bytes : as in `search`
        """
        fuses = fuse and mode == "asymmetric" and content != 0
        raw = self._extracted(items, words_count=fuses)
        how = (k, mode, where, offset, content, payload, max_bytes)
        return self._search_raw(self._current(), raw, fuses, *how)

    def search_items_with_evidence(
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
    ) -> tuple[list[list[Hit]], list[float]]:
        """Return `search_items` and `evidence_items` of the same queries, as of one commit.

        Features are computed once.

        Parameters are those of `search_items`.
        """
        fuses = fuse and mode == "asymmetric" and content != 0
        raw = self._extracted(items, words_count=fuses)
        how = (k, mode, where, offset, content, payload, max_bytes)
        snapshot = self._current()
        hits = self._search_raw(snapshot, raw, fuses, *how)
        return hits, self._evidence_of(snapshot, raw)

    def _extracted(self, items: Sequence[Any], *, words_count: bool) -> _Raw:
        """Return the words and features of raw queries; refuse one that has nothing to ask with.

        ``words_count`` says whether words without features are enough.
        """
        items = check_sequence(items, "queries")
        asked = [QueryWords.of(item_text(self.extractor, item)) for item in items]
        words = [each.words if words_count else [] for each in asked]
        return _Raw(asked, extract_queries(self.extractor, items, words))

    def _search_raw(
        self,
        snapshot: Committed,
        raw: _Raw,
        fuses: bool,
        k: int,
        mode: Mode,
        where: Mapping[str, Any] | None,
        offset: int,
        content: float | None,
        payload: bool,
        max_bytes: int | None,
    ) -> list[list[Hit]]:
        asked, X = raw
        how = (k, mode, where, offset, content, payload, max_bytes)
        question = self._question(snapshot, X, *how)
        if fuses:
            question = question._replace(words=asked)
            question = with_classes(snapshot, self._catalog, self._vocabulary, question)
        if question.evidence is not None:
            evidence = self._with_words(snapshot, asked, question.evidence, X)
            question = question._replace(evidence=evidence)
        if fuses:
            question = self._with_repeats(snapshot, question, self._compared(X), content)
        return self._ask(snapshot, question)

    def _compared(self, X: Mapping[str, Features]) -> Mapping[str, Features]:
        """Return the modalities of raw queries whose fingerprints are compared.

        Where texts are kept, these tell more exactly whether an item has the text of a query.
        """
        if not self.keep_text:
            return X
        return {name: matrix for name, matrix in X.items() if not self._is_of_text(name)}

    def _is_of_text(self, modality: str) -> bool:
        source = self.extractor.sources.get(modality)
        return source is not None and source[1].takes == "text"

    def _with_words(
        self,
        snapshot: Committed,
        asked: Sequence[QueryWords],
        evidence: Single,
        X: Mapping[str, Features],
    ) -> Single:
        others = [has_row(matrix) for name, matrix in X.items() if not self._is_of_text(name)]
        return with_words(
            snapshot,
            self._catalog,
            self._vocabulary,
            asked,
            evidence,
            keep_text=self.keep_text,
            text_only=~np.any([np.zeros(len(asked), dtype=np.bool_), *others], axis=0),
        )

    def evidence_items(self, items: Sequence[Any]) -> list[float]:
        """Return how sure it is that raw queries are near to something here, from 0 to 1.

        See `OASIS.evidence`: below 0.5 no known class fits. A text query gets at least 0.5 if it
        names a class, or if the words that stand in no kept text and in no name of a label have at
        most 70 % of the weight of its words. Otherwise, where texts are kept, the evidence is
        cubed, and 0 if none of the unknown words has a known meaning or if there are no classes. It
        is 1 where an item has the features of the query. A model that cannot tell gives 1.
        """
        raw = self._extracted(items, words_count=True)
        return self._evidence_of(self._current(), raw)

    def suggest(self, text: str) -> str | None:
        """Return what a text query may have meant, or None.

        Each word that stands in no kept text and in no name of a label is replaced by one that
        does and is one edit away: a letter added, removed or replaced, or two neighbours swapped.
        Of several such words, one with two letters swapped or a letter doubled is preferred, then
        the one that most items have. Words of 4 to 32 letters in Latin, Greek or Cyrillic script
        are replaced, the first eight unknown ones; None if none is.
        """
        if not isinstance(text, str):
            raise InputError(f"suggest takes a text, got {type(text).__name__}")
        snapshot, text = self._current(), check_text(text, "the text") or ""
        with self._catalog.reading() as connection:
            return suggested(connection, text, self._vocabulary, snapshot.classes, snapshot.head)

    def _evidence_of(self, snapshot: Committed, raw: _Raw) -> list[float]:
        asked, X = raw
        model = learned(snapshot)
        if not isinstance(model, OASIS):
            return [1.0] * len(asked)
        evidence = self._with_words(snapshot, asked, model.evidence(X), X)
        if compared := self._compared(X):
            repeats = self._repeats.find(compared, model.state_.widths, snapshot.head.next_key)
            evidence = at_repeats(evidence, repeats)
        told: list[float] = evidence.tolist()
        return told
