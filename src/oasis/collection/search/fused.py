"""Hits by codes and words together: the candidates of both, scored by one formula."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array
from oasis.codes import unpack
from oasis.collection.catalog.catalog import Catalog
from oasis.collection.catalog.commits import Keys
from oasis.collection.committed import Committed
from oasis.collection.filters.where import AllowLists
from oasis.collection.records import Hit
from oasis.collection.search.by_codes import answer_by_codes, best_by_codes
from oasis.collection.search.hits import fetch_rows, made_hit, ties, too_much
from oasis.collection.search.question import Question
from oasis.collection.texts.fusion import ClassWords, QueryWords, Shares, missed, word_shares

_ROUNDING = 1e-6
"""Difference at most between a cosine here and one of the index, in single precision."""
_FIRST, _AT_ONCE = 256, 4096
"""Items with words of a query that are scored together: at first, and then."""


def answer(
    snapshot: Committed,
    catalog: Catalog,
    allow_lists: AllowLists,
    question: Question,
    class_words: ClassWords,
) -> list[list[Hit]]:
    """Return the hits of each query, best first: by codes alone, or with words where it has some.

    Ties by age, the older item first.
    """
    if question.words is None or not any(each.words for each in question.words):
        return answer_by_codes(snapshot, catalog, allow_lists, question)
    if not snapshot.head.n_items:
        return [[] for _ in question.projections]
    # each by itself: words of different queries have nothing in common
    return [
        _answer_fused(snapshot, catalog, allow_lists, question.at(row), class_words)
        for row in range(len(question.projections))
    ]


def _answer_fused(
    snapshot: Committed,
    catalog: Catalog,
    allow_lists: AllowLists,
    question: Question,
    class_words: ClassWords,
) -> list[Hit]:
    """Return the hits of one query by its code and its words; see `oasis.collection.texts.fusion`.

    An item without a word of the query can be a hit only where it is one by codes alone. Of the
    others, ordered by share, only those are scored that can still be hits when their cosine is as
    large as the largest of all.
    """
    (asked,) = question.words or (QueryWords([], []),)
    if not asked.words:
        (plain,) = answer_by_codes(snapshot, catalog, allow_lists, question)
        return plain
    n = question.k + question.offset
    allow = None if question.where is None else allow_lists.keys(question.where)
    # one more than the hits, to know whether the last is tied with it
    more = min(n + 1, snapshot.replica.most)
    best = best_by_codes(
        snapshot, catalog, question._replace(k=more, offset=0), allow, payload=False
    )
    by_codes = best.found.keys[0][best.lists[0][:more]]
    with catalog.reading() as connection:
        shares = word_shares(
            connection,
            asked.words,
            class_words.having(snapshot.classes),
            snapshot.head.n_items,
            snapshot.head.next_key,
        )
        if allow is not None:
            shares = shares.among(allow)
        candidates = _candidates(snapshot, catalog, connection, question, by_codes, shares, more)
        order = candidates.order(asked.are_exactly(connection, shares))[:more]
        fetched = fetch_rows(
            snapshot,
            catalog,
            connection,
            candidates.keys[order[:n]],
            question.payload,
            question.max_bytes,
        )
    if fetched is None:
        raise too_much(question.max_bytes)
    (query,), weak = question.signs(), question.is_weak(0)
    scores = (1 - candidates.missed[order]).tolist()
    hits = zip(candidates.keys[order].tolist(), scores, ties(scores), strict=True)
    return [
        made_hit(snapshot, fetched[key], score, query, question.payload, tied, weak)
        for key, score, tied in hits
        if key in fetched
    ][question.offset :]


class _Candidates(NamedTuple):
    """Items that may be hits: their keys, what is missed of them, and their cosines."""

    keys: Keys
    missed: Array
    cosines: Array

    def order(self, exact: set[int]) -> npt.NDArray[np.intp]:
        """Return positions, best first: by score, then ``exact`` keys, then by cosine and age."""
        others = ~np.isin(self.keys, np.array(sorted(exact), dtype=np.int64))
        return np.lexsort((self.keys, -self.cosines, others, self.missed))


def _candidates(
    snapshot: Committed,
    catalog: Catalog,
    connection: sqlite3.Connection,
    question: Question,
    by_codes: Keys,
    shares: Shares,
    n: int,
) -> _Candidates:
    """Return the items that hold the first n places, and others tied with the last of them."""
    trust = 1.0 if question.trust is None else float(question.trust[0])
    scores = _Cosines(snapshot, catalog, connection, question.projections[0], trust)
    rest = ~np.isin(shares.keys, by_codes)
    keys, cosines = scores.of(np.sort(by_codes))
    found = _Candidates(keys, missed(cosines, shares.of(keys)), cosines)
    largest = float(cosines.max(initial=0.0)) + _ROUNDING
    order = np.argsort(-shares.shares[rest], kind="stable")
    more, theirs = shares.keys[rest][order], shares.shares[rest][order]
    start, size = 0, _FIRST
    while start < len(more):
        stop = min(start + size, len(more))
        if len(found.keys) >= n:
            worst = np.partition(found.missed, n - 1)[n - 1]
            bound = missed(largest, theirs[start:stop])  # ascending
            stop = start + int(np.searchsorted(bound, worst, side="right"))
        if stop == start:
            break
        keys, cosines = scores.of(np.sort(more[start:stop]))
        left = missed(cosines, shares.of(keys))
        found = _Candidates(
            np.concatenate([found.keys, keys]),
            np.concatenate([found.missed, left]),
            np.concatenate([found.cosines, cosines]),
        )
        start, size = stop, _AT_ONCE
    if len(found.keys) > n:
        # what cannot be among the first n need not be sorted
        near = found.missed <= np.partition(found.missed, n - 1)[n - 1]
        found = _Candidates(found.keys[near], found.missed[near], found.cosines[near])
    return found


class _Cosines:
    """Cosines of items by key with one query, times the trust in it, in double precision."""

    def __init__(
        self,
        snapshot: Committed,
        catalog: Catalog,
        connection: sqlite3.Connection,
        projection: npt.NDArray[np.float32],
        trust: float,
    ) -> None:
        self._snapshot, self._catalog, self._connection = snapshot, catalog, connection
        values = projection.astype(np.float64)
        length = np.sqrt(values @ values * len(values))
        if length > 0:
            values = values * (trust / length)
        # what each value of each byte of a code adds: 8 signs each
        signs = unpack(np.arange(256, dtype=np.uint8)[:, None]).astype(np.float64)
        self._tables = values.reshape(-1, 8) @ signs.T  # (n_bits / 8, 256)

    def of(self, keys: Keys) -> tuple[Keys, Array]:
        """Return those of the keys that are there, ascending, and their scores."""
        there, codes = self._snapshot.replica.codes_of(self._catalog, self._connection, keys)
        sums = np.zeros(len(there))
        for table, column in zip(self._tables, codes.T, strict=True):
            sums += table[column]
        return there, np.clip(sums, -1, 1)
