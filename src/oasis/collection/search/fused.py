"""Hits by codes, words and fingerprints together: the candidates of all, by one formula."""

from __future__ import annotations

import sqlite3
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array
from oasis.codes import unpack
from oasis.collection.catalog.catalog import Catalog
from oasis.collection.catalog.commits import Keys
from oasis.collection.committed import Committed
from oasis.collection.filters.allow_lists import AllowList, AllowLists
from oasis.collection.records import Hit
from oasis.collection.repeats.lookup import NO_REPEATS, Repeats, unlike
from oasis.collection.search.by_codes import answer_by_codes, nearest_keys
from oasis.collection.search.hits import fetch_rows, made_hit, ties, too_much
from oasis.collection.search.question import Question
from oasis.collection.texts.fusion import QueryWords, least_share, missed
from oasis.collection.texts.shares import WordShares, among, merged
from oasis.collection.texts.vocabulary import Vocabulary

_ROUNDING = 1e-6
"""Difference at most between a cosine here and one of the index, in single precision."""
_BY_CODES = 32
"""Best items by codes alone, at least, that are scored: the more, the fewer of the others."""
_SIGNS = unpack(np.arange(256, dtype=np.uint8)[:, None]).astype(np.float64).T
"""The signs of each value of a byte, (8, 256)."""
_FIRST, _AT_ONCE = 256, 4096
"""Items with a word of a query that are scored together: at first, and then."""


def answer(
    snapshot: Committed,
    catalog: Catalog,
    allow_lists: AllowLists,
    question: Question,
    vocabulary: Vocabulary,
) -> list[list[Hit]]:
    """Return the hits of each query, best first; ties by age, the older item first.

    By codes alone, or with the words of a query and the items that repeat it, where there are some.
    """
    q = len(question.projections)
    plain = [row for row in range(q) if not question.is_fused(row)]
    answers, n_bytes = answer_by_codes(snapshot, catalog, allow_lists, question.at(plain))
    lists = dict(zip(plain, answers, strict=True))
    for row in range(q):
        if row not in lists:
            # each by itself: words of different queries have nothing in common
            lists[row], more = _answer_fused(
                snapshot, catalog, allow_lists, question.at([row]), vocabulary
            )
            n_bytes += more
            if question.max_bytes is not None and n_bytes > question.max_bytes:
                raise too_much(question.max_bytes)
    return [lists[row] for row in range(q)]


def _answer_fused(
    snapshot: Committed,
    catalog: Catalog,
    allow_lists: AllowLists,
    question: Question,
    vocabulary: Vocabulary,
) -> tuple[list[Hit], int]:
    """Return the hits of one query by its code, its words and its fingerprints.

    Also how many bytes of JSON their payloads have.

    See `oasis.collection.texts.fusion`. The best items by codes alone and those that repeat the
    query are scored first. No other item has a larger cosine than the last of the best by codes, so
    of the others only those are scored whose share of the words can make up for it.
    """
    (asked,) = question.words or (QueryWords([], []),)
    (repeats,) = question.repeats or (NO_REPEATS,)
    if not snapshot.head.n_items:
        return [], 0
    n = question.k + question.offset
    allow = None if question.where is None else allow_lists.of(question.where)
    gone = np.empty(0, dtype=np.int64)
    while True:
        # more than the index gives is refused there
        wanted = max(n, min(max(n + 1, _BY_CODES) + len(gone), snapshot.replica.most))
        nearest = nearest_keys(snapshot, catalog, question, wanted, allow)
        with catalog.reading() as connection:
            head = snapshot.head
            shares = WordShares.read(connection, asked, vocabulary, snapshot.classes, head)
            search = _Search(snapshot, catalog, connection, question, shares, repeats, allow, gone)
            found = search.best(nearest, n + 1, is_all=len(nearest) < wanted)
            fetched = fetch_rows(
                snapshot,
                catalog,
                connection,
                found.keys[:n],
                found.keys[question.offset : n] if question.payload else None,
                question.max_bytes,
                allow,
            )
            if fetched is None:
                raise too_much(question.max_bytes)
            beyond = [key for key in found.keys[n:].tolist() if key < head.next_key]
            if not snapshot.replica.is_local:  # memory holds no items that are deleted
                beyond = [key for (key,) in catalog.rows(connection, "key", beyond)]
            there = {*fetched, *beyond}
        lost = [key for key in found.keys.tolist() if key not in there]
        if not lost:
            break
        # deleted, not of this commit, or changed so that it does not pass
        gone = merged([gone, np.array(sorted(lost), dtype=np.int64)])
    (query,), weak = question.signs(), question.is_weak(0)
    scores = (1 - found.missed).tolist()
    hits = zip(found.keys[:n].tolist(), scores, ties(scores), strict=False)
    made = [
        made_hit(fetched, key, score, query, question.payload, tied, weak)
        for key, score, tied in islice(hits, question.offset, None)
    ]
    shown = found.keys[question.offset : n].tolist() if question.payload else []
    return made, sum(fetched[key].payload_bytes for key in shown)


class _Candidates(NamedTuple):
    """Items that may be hits: their keys, what is missed of them, and their cosines."""

    keys: Keys
    missed: Array
    cosines: Array

    def plus(self, other: _Candidates) -> _Candidates:
        """Return both together."""
        return _Candidates(
            np.concatenate([self.keys, other.keys]),
            np.concatenate([self.missed, other.missed]),
            np.concatenate([self.cosines, other.cosines]),
        )

    def first(self, n: int) -> _Candidates:
        """Return the n best, in order: by score, then by cosine and age."""
        best = np.arange(len(self.keys))
        if len(best) > n:
            # what cannot be among the first n need not be sorted
            best = np.flatnonzero(self.missed <= self.worst(n))
        order = best[np.lexsort((self.keys[best], -self.cosines[best], self.missed[best]))][:n]
        return _Candidates(self.keys[order], self.missed[order], self.cosines[order])

    def worst(self, n: int) -> float:
        """Return how much is missed of the n-th best; infinity where there are fewer."""
        if len(self.keys) < n:
            return np.inf
        return float(np.partition(self.missed, n - 1)[n - 1])


class _Search:
    """One search by codes, words and fingerprints: which items are scored, and how."""

    def __init__(
        self,
        snapshot: Committed,
        catalog: Catalog,
        connection: sqlite3.Connection,
        question: Question,
        shares: WordShares,
        repeats: Repeats,
        allow: AllowList | None,
        gone: Keys,
    ) -> None:
        trust = 1.0 if question.trust is None else float(question.trust[0])
        self._cosines = _Cosines(snapshot, catalog, connection, question.projections[0], trust)
        self._shares = shares
        self._repeats = repeats
        self._allow = allow
        self._gone = gone

    def best(self, nearest: Keys, n: int, *, is_all: bool) -> _Candidates:
        """Return the first n items; ``nearest`` are the best by codes, or all that there are."""
        nearest = np.sort(self._without(nearest, self._gone))
        found = self._scored(nearest, self._shares.of(nearest))
        if is_all:
            return found.first(n)
        limit = float(found.cosines.min(initial=1.0)) + _ROUNDING
        again = self._repeats.keys[self._may_be_hits(self._repeats.keys, found)]
        if len(again):
            found = found.plus(self._scored(again, self._shares.of(again)))
        if len(just := self._shares.just):
            found = self._with(found, just, self._shares.of_just(), n, limit)
        for at in range(len(self._shares)):
            least = least_share(found.worst(n), limit)
            if self._shares.n_needed(least) <= at:
                break  # an item with none of the rarer words has too small a share
            keys = self._shares.having(at, least - _ROUNDING)
            shares = self._shares.of(keys)
            enough = shares >= least - _ROUNDING
            found = self._with(found, keys[enough], shares[enough], n, limit)
        return found.first(n)

    def _with(
        self, found: _Candidates, keys: Keys, shares: Array, n: int, limit: float
    ) -> _Candidates:
        """Return the candidates with those items, by share, that can still be hits."""
        may = self._may_be_hits(keys, found)
        keys, shares = keys[may], shares[may]
        order = np.argsort(-shares, kind="stable")
        start, size = 0, _FIRST
        while start < len(order):
            least = least_share(found.worst(n), limit) - _ROUNDING
            stop = start + int(np.count_nonzero(shares[order[start : start + size]] >= least))
            if stop == start:
                break
            taken = np.sort(order[start:stop])
            found = found.plus(self._scored(keys[taken], shares[taken]))
            start, size = stop, _AT_ONCE
        return found

    def _may_be_hits(self, keys: Keys, found: _Candidates) -> npt.NDArray[np.bool_]:
        """Return which of the keys may be hits and are not found yet."""
        may = ~among(keys, np.sort(found.keys))
        if len(self._gone):
            may &= ~among(keys, self._gone)
        if self._allow is not None:
            may &= among(keys, self._allow.keys)
        return may

    def _without(self, keys: Keys, others: Keys) -> Keys:
        return keys[~among(keys, others)] if len(others) else keys

    def _scored(self, keys: Keys, shares: Array) -> _Candidates:
        """Return items by ascending keys; those that are not there any more are left out."""
        there, cosines = self._cosines.of(keys)
        if len(there) < len(keys):
            shares = shares[among(keys, there)]
        left = missed(cosines, shares)
        if len(self._repeats.keys):
            left *= unlike(self._repeats, there)
        return _Candidates(there, left, cosines)


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
        self._tables = (values.reshape(-1, 8) @ _SIGNS).reshape(-1)  # n_bits / 8 times 256
        self._starts = np.arange(0, len(self._tables), 256)

    def of(self, keys: Keys) -> tuple[Keys, Array]:
        """Return those of the keys that are there, ascending, and their scores."""
        there, codes = self._snapshot.replica.codes_of(self._catalog, self._connection, keys)
        return there, np.clip(self._tables[codes + self._starts].sum(axis=1), -1, 1)
