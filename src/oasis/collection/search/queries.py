"""The searches of a collection, on the last committed state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from oasis.arrays import Single
from oasis.codes import unpack
from oasis.collection.catalog.catalog import Catalog
from oasis.collection.catalog.setup import Setup
from oasis.collection.committed import Committed
from oasis.collection.filters.allow_lists import AllowLists
from oasis.collection.filters.kinds import check_kinds
from oasis.collection.filters.names import check_names
from oasis.collection.records import Hit, Id, Mode, utf8
from oasis.collection.repeats.lookup import RepeatLookup, at_repeats
from oasis.collection.search.fused import answer
from oasis.collection.search.lookups import Lookups, learned
from oasis.collection.search.names import (
    means_of_given,
    project_as_texts,
    project_names,
)
from oasis.collection.search.question import Question, check_weighable, has_content
from oasis.collection.texts.vocabulary import Vocabulary
from oasis.errors import InputError, OasisError
from oasis.features.extractor import Extractor
from oasis.model import OASIS


class Queries(Lookups):
    """What can be asked of a collection without changing it; any thread may.

    Parameters
    ----------
    directory, catalog, setup, follows, words : as in `Follower`
    extractor : Extractor or None
        What makes features of raw queries; None for the one recorded.
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
        self._extractor = extractor
        self._allow_lists = AllowLists(catalog)
        self._vocabulary = Vocabulary()
        self._repeats = RepeatLookup(catalog)
        super().__init__(directory, catalog, setup, follows=follows, words=words)

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

    @property
    def fingerprints_are_here(self) -> bool:
        """Whether a search by features finds all fingerprints of the last commit in memory.

        It neither looks for a commit nor reads.
        """
        return self._repeats.has(self._snapshot.head.next_key)

    def search(
        self,
        X: Mapping[str, Any],
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
        fuse : bool
            Whether an item with the very features of the query comes first, with a score of 1: see
            `oasis.collection.repeats`. It holds for ``mode="asymmetric"``, but not for
            ``content=0``, which asks for the kind alone.
        payload : bool
            Whether hits carry their payload; without, it is empty, and not read.
        max_bytes : int, optional
            Raise `TooLargeError` where the payloads of the hits have more bytes of JSON together.
        """
        snapshot = self._current()
        how = (k, mode, where, offset, content, payload, max_bytes)
        question = self._question(snapshot, X, *how)
        if fuse:
            question = self._with_repeats(snapshot, question, X, content)
        return self._ask(snapshot, question)

    def _with_repeats(
        self,
        snapshot: Committed,
        question: Question,
        X: Mapping[str, Any],
        content: float | None,
    ) -> Question:
        """Add the items that have the features of a query; such a query is not weak."""
        if question.mode != "asymmetric" or content == 0 or not X:
            return question
        repeats = self._repeats.find(X, learned(snapshot).state_.widths, snapshot.head.next_key)
        evidence = question.evidence
        if evidence is not None:
            evidence = at_repeats(evidence, repeats)
        return question._replace(repeats=repeats, evidence=evidence)

    def _question(
        self,
        snapshot: Committed,
        X: Mapping[str, Any],
        k: int,
        mode: Mode,
        where: Mapping[str, Any] | None,
        offset: int,
        content: float | None,
        payload: bool,
        max_bytes: int | None,
    ) -> Question:
        model = learned(snapshot)
        codes = evidence = None
        if content is not None:
            check_weighable(model, content, mode)
            codes = model.encode(X)  # signs of weighed projections are others
        if isinstance(model, OASIS):
            projections, evidence = model.project_with_evidence(X, content)
        else:  # the published method does not tell how sure it is
            projections = model.project(X)
        question = Question.of(projections, mode, k, offset, where, payload, max_bytes)
        return question._replace(codes=codes, evidence=evidence)

    def search_words(
        self,
        names: Iterable[str],
        k: int = 10,
        mode: Mode = "asymmetric",
        where: Mapping[str, Any] | None = None,
        offset: int = 0,
        *,
        content: float | None = None,
        payload: bool = True,
        max_bytes: int | None = None,
    ) -> list[list[Hit]]:
        """Search with names of classes, or with any words if the label space knows words.

        Hits are weak where no class means nearly the same; see `OASIS.project_words_with_evidence`.
        A class that items have by `update` alone is searched by the mean of their codes, whatever
        the weight of content.

        Parameters
        ----------
        content : float or None
            Weight, from 0 to 1, of the content that a name has as a text. None, like 0, searches by
            the label alone. Other weights need an extractor that makes features of texts.
        k, mode, where, offset, payload, max_bytes : as in `search`
        """
        snapshot = self._current()
        model = learned(snapshot)
        if content is not None:
            check_weighable(model, content, mode)
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
            texts = project_as_texts(model, self.extractor, list(names))
            projections = (1 - content) * projections + content * texts
        for row, mean in given.items():  # ascending
            projections = np.insert(projections, row, mean, axis=0)
            evidence = np.insert(evidence, row, 1.0)
        question = Question.of(projections, mode, k, offset, where, payload, max_bytes)
        return self._ask(snapshot, question._replace(evidence=evidence))

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
        model = learned(snapshot)
        if content is not None:
            check_weighable(model, content, mode)
        if has_content(model) and mode == "asymmetric":
            projections = model.project_codes(code, content)
        else:
            projections = unpack(code).astype(np.float32)
        question = Question.of(projections, mode, k, offset, where, payload, max_bytes)
        (hits,) = self._ask(snapshot, question._replace(codes=code, without=id))
        return hits

    def _ask(self, snapshot: Committed, question: Question) -> list[list[Hit]]:
        while True:
            try:
                lists = answer(
                    snapshot, self._catalog, self._allow_lists, question, self._vocabulary
                )
                break
            except OasisError:
                newer = self._snapshot
                if newer.replica is snapshot.replica:
                    raise
                # the codes have moved meanwhile, and the connection to where they were is closed
                snapshot = newer
        if snapshot.head.n_items and lists and not any(lists):
            self._check_where(question)
        return lists

    def _check_where(self, question: Question) -> None:
        """Refuse a mistake in the filter of a question without hits, if no item passes it."""
        where = question.where
        if where is None:
            return
        is_first = not question.offset and question.without is None
        if not is_first and len(self._allow_lists.of(where).keys):
            return  # the hits are on earlier pages, or the item itself
        with self._catalog.reading() as connection:
            classes = self._catalog.class_names(connection)
            check_names(connection, where, classes, self._field_names)
            check_kinds(connection, where)

    def _field_names(self) -> list[str]:
        return [each.name for each in self.fields()]
