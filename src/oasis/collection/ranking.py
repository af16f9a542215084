"""The answer to a search: hits by codes, words, meaning and fingerprints, by one formula.

Four things tell that an item is what a query asks for. Each is a probability, and they are taken as
independent::

    score = 1 - (1 - kind) (1 - words) (1 - meaning) (1 - same)

    kind    = 0.99 evidence sqrt(agreement)    what the codes tell
    words   = share^4                          BM25 of the item over the sum of idf
    meaning = cosine^4                         of the word vectors of query and text, or
              1 / (1 + exp(12 (0.5 - cosine))) of query and picture where there is no text
    same    = 1 - (b / 12)^4                   fingerprints differ in b <= 11 bits, else 0

``agreement`` is ``sum p s / sum |p|`` of the query's projection p and the item's signs s, or
``1 - 2 distance / n_bits`` by Hamming distance; below 0 it counts 0. ``evidence`` is
`OASIS.evidence` of the query, or how near its text is to the names of classes; where it is not
known, the agreement takes its place. Share and cosine are at most 0.99, but ``words`` is 1 for an
item with a text, a line or a text of its payload that is the query word for word, and ``0.9^4`` at
least for one that was given the classes that the query names. With a picture beside the words,
``words`` and ``meaning`` are multiplied by ``(1 + agreement) / 2`` of the picture alone: so the
picture orders what the words find.

The first `POOL` items by words and the first by codes are scored, and those that equal or repeat
the query. All others follow them, by ``kind``. Of equal scores the larger agreement comes first,
then the older item. A query without words and repeats is ranked by ``kind`` alone.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from math import nan
from typing import Any, NamedTuple

import numpy as np

from oasis.arrays import Array, Single
from oasis.codes import Codes, pack, unpack
from oasis.collection.catalog import Catalog
from oasis.collection.committed import Committed
from oasis.collection.duplicates import NO_REPEATS, Repeats
from oasis.collection.filters import AllowList, AllowLists, Filter
from oasis.collection.kept_features import kept_modality
from oasis.collection.records import Hit, Question
from oasis.collection.rows import ITEM_COLUMNS, ItemRow, Keys
from oasis.collection.words import (
    NO_MATCHES,
    Matches,
    best_matches,
    equal_lines,
    meant_texts,
    n_with,
)
from oasis.errors import CollectionError, FormatError, TooLargeError
from oasis.features import picture_meaning
from oasis.model import OASIS
from oasis.wordllama import word_vectors

POOL = 100
"""Items by words, and items by codes, that are scored at least."""

SURE = 0.99
"""What codes, words and meaning tell at most: 1 is an item that has what is asked, exactly."""

LABELLED = 0.9
"""Share of the words of a query that an item has whose labels are the classes it names."""

WEAK = 0.5
"""Evidence below which the hits of a query are marked as weak."""

FOUND = 0.6
"""Twice the score from which on a best hit makes a query without evidence no weak one."""

PICTURED = 0.5
"""Cosine of a query and the guessed meaning of a picture at which the picture is as likely right as
not: that of the best picture of 1,000 is at most 0.3 for words of nothing there, 0.5 to 0.9 for
things in it."""

_STEEP = 12.0

MAX_WORDS = 64
"""Words of a query that are looked up."""

OVERSAMPLE, SPARE, MOST = 16, 64, 10_000
"""With a filter ``16 n + 64`` items are looked at first. Where too few pass, 16 times as many, as
long as these are at most 10,000; then an allow-list costs less."""

_SIGNS = unpack(np.arange(256, dtype=np.uint8)[:, None]).astype(np.float64).T
"""The signs of each value of a byte, (8, 256)."""


class Query(NamedTuple):
    """One query, ready to be answered.

    Attributes
    ----------
    projection : (n_bits,)
    code : (n_bits / 8,), from which distances are counted
    evidence : how sure it is that the query is near to something learned; None: not known
    text, tokens : what is looked up, and its words in order
    named : numbers of the classes that the text names
    picture : (n_bits,) projection of what there is beside the text
    repeats : items that have the features of the query
    """

    projection: Single
    code: Codes
    evidence: float | None = None
    text: str = ""
    tokens: Sequence[str] = ()
    named: frozenset[int] = frozenset()
    picture: Single | None = None
    repeats: Repeats = NO_REPEATS

    @property
    def is_scored(self) -> bool:
        """Whether there is more to it than its projection."""
        return bool(self.tokens) or len(self.repeats.keys) > 0

    @property
    def sure(self) -> float:
        return 1.0 if self.evidence is None else self.evidence

    def kinds(self, agreements: Array) -> Array:
        """Return ``kind`` of the formula."""
        positive = np.clip(agreements, 0, 1)
        likely: Array = np.sqrt(positive)
        return SURE * (positive if self.evidence is None else self.evidence) * likely


class Answer(NamedTuple):
    """The hits of a query, best first, and how sure it is that any are what it asks for."""

    hits: list[Hit]
    evidence: float


class Ranked(NamedTuple):
    """Items in the order of the answer: keys, and scores or agreements."""

    keys: Keys
    scores: Array

    def at(self, places: Any) -> Ranked:
        return Ranked(self.keys[places], self.scores[places])


class Parts(NamedTuple):
    """What the four terms of the formula tell of some items, and how their codes agree."""

    keys: Keys
    agreement: Array
    kind: Array
    words: Array
    meaning: Array
    same: Array

    @property
    def left(self) -> Array:
        """1 less the score: scores near 1 stay apart."""
        left: Array = (1 - self.kind) * (1 - self.words) * (1 - self.meaning) * (1 - self.same)
        return left


class Search(NamedTuple):
    """What is searched: one committed state, through a filter."""

    snapshot: Committed
    catalog: Catalog
    allow_lists: AllowLists
    where: Filter | None = None

    def answer(
        self, queries: Sequence[Query], question: Question, without: int | None = None
    ) -> list[Answer]:
        """Return the hits of each query; ``without`` is the key of an item that is left out.

        Beyond the time of the index: the rows of the hits, about 10 microseconds each. A filter
        that most items pass costs a larger search; one that few pass needs an allow-list, which is
        made on its first use.
        """
        n_items, most = self.snapshot.head.n_items, self.snapshot.replica.most
        if not queries or not n_items:
            return [Answer([], query.sure) for query in queries]
        wanted = question.k + question.offset
        scores_some = any(query.is_scored for query in queries)
        # one more tells whether the last hit is tied, and one may be left out
        n = least = max(wanted + 1 + (without is not None), POOL * scores_some)
        samples = False
        if self.where is not None and not scores_some and not self.allow_lists.has(self.where):
            n, samples = OVERSAMPLE * wanted + SPARE, True
        allow: AllowList | None = None
        while True:
            if samples and (n * len(queries) > MOST or n * 4 >= n_items):
                n, samples = least, False
            if self.where is not None and allow is None and not samples:
                allow = self.allow_lists.of(self.where)
            n = max(wanted, min(n, most))
            keys = None if allow is None else allow.keys
            lists = self._nearest(queries, question, n, keys)
            is_full = [row.keys[-1] >= 0 for row in lists]
            # opened after the index was asked, so that what it has found is there
            with self.catalog.reading() as connection:
                commits = self.catalog.head(connection).commits
                passed = allow is not None and allow.commits == commits
                found = chain.from_iterable(row.keys.tolist() for row in lists)
                there = self._there(connection, found, commits, passed)
                lists = [row.at([key in there for key in row.keys.tolist()]) for row in lists]
                if self.where is None and not all(is_full):
                    self._check_complete(connection, min(n, *(len(row.keys) for row in lists)), n)
                lists = [row.at(row.keys != without) for row in lists]
                missing = max(
                    0,
                    *(
                        full * (wanted + 1 - len(row.keys))
                        for row, full in zip(lists, is_full, strict=True)
                    ),
                )
                if missing > 1 and n >= most and not scores_some:
                    raise CollectionError(
                        f"among the {n} items nearest to a query the index at "
                        f"{self.snapshot.replica.address} has {missing - 1} that are deleted; "
                        "opening the collection for writing removes them"
                    )
                if not missing or n >= most:
                    ranked = [
                        self._ranked(connection, query, row, wanted, commits, keys)
                        for query, row in zip(queries, lists, strict=True)
                    ]
                    return self._answers(connection, queries, ranked, question)
            n *= OVERSAMPLE if samples else 2

    def _nearest(
        self, queries: Sequence[Query], question: Question, n: int, allow: Keys | None
    ) -> list[Ranked]:
        """Return what the index finds by codes, with agreements; keys -1 where there is no more."""
        replica, next_key = self.snapshot.replica, self.snapshot.head.next_key
        projections = np.stack([query.projection for query in queries])
        agreements: Array
        if question.mode == "hamming":
            keys, distances = replica.search(pack(projections), n, allow, next_key)
            agreements = 1 - 2 * distances / replica.n_bits
        else:
            keys, scores = replica.search_asymmetric(projections, n, allow, next_key)
            totals = np.abs(projections).sum(axis=1, dtype=np.float64)[:, None]
            scale = np.divide(1.0, totals, out=np.zeros_like(totals), where=totals > 0)
            agreements = np.clip(np.where(keys >= 0, scores, -1) * scale, -1, 1)
        return [Ranked(*each) for each in zip(keys, agreements, strict=True)]

    def _there(
        self, connection: sqlite3.Connection, keys: Iterable[int], commits: int, passed: bool
    ) -> set[int]:
        """Return the keys that are items of the searched commit, and are there still.

        And that pass the filter, unless they have ``passed`` at the commit ``commits`` that the
        connection sees. A key beyond the searched commit may have been found by the code of a chunk
        that failed, and belong to another one by now.

        Raises
        ------
        FormatError
            An item of the index in memory has no row, and nothing was deleted meanwhile.
        """
        head = self.snapshot.head
        asked = {key for key in keys if 0 <= key < head.next_key}
        there = {key for (key,) in self.catalog.rows(connection, "key", asked)}
        # an index elsewhere may hold for longer what is deleted
        is_exact = self.snapshot.replica.is_local and commits == head.commits
        if is_exact and len(there) < len(asked):
            raise FormatError(
                f"the catalog is damaged: {len(asked) - len(there)} of the items that the index "
                f"finds are not in it, such as the one with key {min(asked - there)}; 'oasis "
                "check' lists all damage, and a backup has what is lost"
            )
        if self.where is None or passed:
            return there
        return set(self.where.keys(connection, there).tolist())

    def _check_complete(self, connection: sqlite3.Connection, n_found: int, n: int) -> None:
        """Refuse an index that has found all its items, but fewer than the catalog has."""
        n_there = self.catalog.count(connection, self.snapshot.head.next_key)
        if n_found < min(n, n_there):
            raise CollectionError(
                f"the index lacks {n_there - n_found} items of this collection; opening it for "
                "writing sends them"
            )

    # -- words beside codes --------------------------------------------------------------------

    def _ranked(
        self,
        connection: sqlite3.Connection,
        query: Query,
        nearest: Ranked,
        wanted: int,
        commits: int,
        allow: Keys | None,
    ) -> Ranked:
        """Return items in the order of the answer, with their scores."""
        if not query.is_scored:
            return Ranked(nearest.keys, query.kinds(nearest.scores))
        matches, equal = self.by_words(connection, query, allow)
        found = np.concatenate([equal, query.repeats.keys])
        if allow is not None:
            found = found[np.isin(found, allow)]
        first = set(nearest.keys[:POOL].tolist())
        others = {*matches.keys.tolist(), *found.tolist()} - first
        pool = first | self._there(connection, others, commits, True)
        parts = self.parts(connection, query, np.array(sorted(pool), np.int64), matches, equal)
        left = parts.left
        order = np.lexsort((parts.keys, -parts.agreement, left))
        after = nearest.at([key not in pool for key in nearest.keys.tolist()])
        best = 1 - left[order]
        rest = np.minimum(query.kinds(after.scores), best.min(initial=1.0))
        return Ranked(np.concatenate([parts.keys[order], after.keys]), np.concatenate([best, rest]))

    def by_words(
        self, connection: sqlite3.Connection, query: Query, allow: Keys | None
    ) -> tuple[Matches, Keys]:
        """Return the items with most of a query's words, and those with an equal line."""
        if not query.tokens:
            return NO_MATCHES, NO_MATCHES.keys
        counts = n_with(connection, dict.fromkeys(query.tokens[:MAX_WORDS]))
        matches = best_matches(connection, counts, self.snapshot.head.n_items, POOL, allow)
        return matches, equal_lines(connection, query.tokens)

    def parts(
        self,
        connection: sqlite3.Connection,
        query: Query,
        keys: Keys,
        matches: Matches,
        equal: Keys,
    ) -> Parts:
        """Return the terms of the formula of some items, by ascending keys that are there."""
        keys, codes = self.snapshot.replica.codes_of(self.catalog, connection, keys)
        agreement = agreements(query.projection, codes)
        shares = _placed(keys, matches.keys, matches.shares, 0.0)
        if query.named:
            given = np.isin(keys, _having(connection, query.named, keys))
            shares = np.maximum(shares, LABELLED * given)
        words = np.minimum(shares, SURE) ** 4
        words[np.isin(keys, equal)] = 1.0
        meaning = self._meanings(connection, query, keys)
        if query.picture is not None:
            beside = (1 + np.maximum(agreements(query.picture, codes), 0)) / 2
            words, meaning = words * beside, meaning * beside
        same = _placed(keys, query.repeats.keys, query.repeats.sameness, 0.0)
        return Parts(keys, agreement, query.kinds(agreement), words, meaning, same)

    def _meanings(self, connection: sqlite3.Connection, query: Query, keys: Keys) -> Array:
        """Return ``meaning`` of the formula."""
        if not query.tokens or not len(keys):
            return np.zeros(len(keys))
        texts = meant_texts(connection, keys.tolist())
        listed = [texts.get(key, "").lower() for key in keys.tolist()]
        asked, *vectors = word_vectors().embed([query.text.lower(), *listed])
        meaning = np.minimum(_cosines(asked, np.array(vectors)), SURE) ** 4
        model = self.snapshot.model
        guess = model.guess if isinstance(model, OASIS) else None
        bare = [at for at, text in enumerate(listed) if not text]
        if guess is not None and bare:
            rows, pictures = kept_modality(connection, keys[bare].tolist(), guess[0])
            if len(rows):
                cosines = _cosines(asked, picture_meaning(pictures))
                chances = SURE / (1 + np.exp(_STEEP * (PICTURED - cosines)))
                meaning[np.array(bare)[rows]] = chances
        return meaning

    # -- hits ----------------------------------------------------------------------------------

    def _answers(
        self,
        connection: sqlite3.Connection,
        queries: Sequence[Query],
        ranked: Sequence[Ranked],
        question: Question,
    ) -> list[Answer]:
        page = slice(question.offset, question.offset + question.k)
        shown = Counter(key for each in ranked for key in each.keys[page].tolist())
        rows: dict[int, ItemRow] = {}
        columns = ITEM_COLUMNS if question.payload else ITEM_COLUMNS.replace("payload", "NULL")
        n_bytes = 0
        for values in self.catalog.rows(connection, columns, shown):
            row = rows[values[0]] = ItemRow(*values)
            n_bytes += row.payload_bytes * shown[row.key]
            if question.max_bytes is not None and n_bytes > question.max_bytes:
                raise TooLargeError(
                    f"the payloads of the hits have more than {question.max_bytes} bytes together; "
                    "ask for fewer hits, or without their payload"
                )
        names = self.catalog.names_from(connection, self.snapshot.classes)
        answers = []
        for query, each in zip(queries, ranked, strict=True):
            scores, sure = each.scores.tolist(), query.sure
            if query.is_scored and scores:
                sure = min(1.0, max(sure, scores[0] / FOUND))
            same = [a == b for a, b in pairwise([nan, *scores, nan])]
            tied = [before or after for before, after in pairwise(same)]
            code = int.from_bytes(query.code.tobytes(), "little")
            hits = [
                _hit(rows[key], names, score, code, tie, sure < WEAK, question.payload)
                for key, score, tie in zip(
                    each.keys[page].tolist(), scores[page], tied[page], strict=True
                )
            ]
            answers.append(Answer(hits, sure))
        return answers


def agreements(projection: Single, codes: Codes) -> Array:
    """Return how codes agree with a projection, from -1 to 1: ``sum p s / sum |p|``."""
    values = projection.astype(np.float64)
    total = np.abs(values).sum()
    if total == 0:
        return np.zeros(len(codes))
    # what each value of each byte of a code adds: 8 signs each
    tables = ((values / total).reshape(-1, 8) @ _SIGNS).reshape(-1)  # n_bits / 8 times 256
    starts = np.arange(0, len(tables), 256)
    agreed: Array = np.clip(tables[codes + starts].sum(axis=1), -1, 1)
    return agreed


def _placed(keys: Keys, found: Keys, values: Array, default: float) -> Array:
    """Return by ascending keys the values of those that are found, and else a default."""
    placed = np.full(len(keys), default)
    known = np.isin(found, keys)
    placed[np.searchsorted(keys, found[known])] = values[known]
    return placed


def _having(connection: sqlite3.Connection, classes: Iterable[int], keys: Keys) -> Keys:
    """Return those of the keys whose items were given all of the classes."""
    numbers = list(classes)
    rows = connection.execute(
        "SELECT key FROM members WHERE predicted = 0 AND class IN (SELECT value FROM json_each(?)) "
        "AND key IN (SELECT value FROM json_each(?)) GROUP BY key HAVING count(*) = ?",
        (json.dumps(numbers), json.dumps(keys.tolist()), len(numbers)),
    )
    return np.array([key for (key,) in rows], dtype=np.int64)


def _cosines(asked: Single, vectors: Single) -> Array:
    """Return the cosines (n,) of a vector with others (n, d); at least 0, and 0 for zeros."""
    cosines: Array = np.zeros(len(vectors))
    products = vectors @ asked
    scale = np.linalg.norm(vectors, axis=1) * np.linalg.norm(asked)
    np.divide(products, scale, out=cosines, where=(scale > 0) & (products > 0))
    return cosines


def _hit(
    row: ItemRow,
    names: Sequence[str],
    score: float,
    code: int,
    tied: bool,
    weak: bool,
    payload: bool,
) -> Hit:
    """Return a hit; ``code`` is that of the query."""
    if payload:
        row.check()
    elif not isinstance(row.code, bytes):  # without its payload a row cannot be compared
        raise FormatError(f"the item with key {row.key} is damaged: its code is no blob")
    return Hit(
        row.id,
        score,
        (int.from_bytes(row.code, "little") ^ code).bit_count(),
        row.decoded_payload() if payload else {},
        row.label_names(names),
        tied,
        weak,
        row.predicted_names(names),
        looks=row.names_of_looks,
    )
