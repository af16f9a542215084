"""Hits by codes, words, meaning and fingerprints together, by one formula.

Four things tell that an item is what a query asks for. Each is a probability, and they are taken as
independent::

    score = 1 - (1 - kind) (1 - words) (1 - meaning) (1 - same)

    kind    = 0.99 evidence sqrt(agreement)    what the codes tell
    words   = share^4                          BM25 of the item over the sum of idf
    meaning = cosine^4                         of the word vectors of query and text
    same    = 1 - (b / 12)^4                   fingerprints differ in b <= 11 bits, else 0

``agreement`` is ``sum p s / sum |p|`` of the query's projection p and the item's signs s; below 0
it counts 0. ``evidence`` is `OASIS.evidence` of the query, or how near its text is to the names of
classes. Share and cosine are at most 0.99, but ``words`` is 1 for an item with a text, a line or a
text of its payload that is the query word for word, and ``0.9^4`` at least for one that was given
the classes that the query names. With a picture beside the words, ``words`` and
``meaning`` are multiplied by ``(1 + agreement) / 2`` of the picture alone: so the picture orders
what the words find.

The first `POOL` items by words and the first by codes are scored, and those that equal or repeat
the query. All others follow them, by their codes. Of equal scores the larger agreement comes
first, then the older item.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array, Single
from oasis.codes import unpack
from oasis.collection.by_codes import answer_by_codes, nearest_keys
from oasis.collection.catalog import Catalog
from oasis.collection.committed import Committed
from oasis.collection.duplicates import NO_REPEATS, Repeats, unlike
from oasis.collection.filters import AllowLists
from oasis.collection.hits import fetch_rows, made_hit, ties, too_much
from oasis.collection.question import SURE, WEAK, QueryText, Question
from oasis.collection.records import Hit
from oasis.collection.rows import ItemRow, Keys, label_numbers
from oasis.collection.words import (
    NO_MATCHES,
    best_matches,
    equal_lines,
    n_with,
    payload_texts,
    texts_of,
)
from oasis.wordllama import word_vectors

POOL = 100
"""Items by words, and items by codes, that are scored at least."""

LABELLED = 0.9
"""Share of the words of a query that an item has whose labels are the classes it names."""

FOUND = 0.6
"""Twice the score from which on a best hit makes a query without evidence no weak one."""

_CHARACTERS = 400
"""How much of a text its meaning is taken from."""

_SIGNS = unpack(np.arange(256, dtype=np.uint8)[:, None]).astype(np.float64).T
"""The signs of each value of a byte, (8, 256)."""


def answer(
    snapshot: Committed, catalog: Catalog, allow_lists: AllowLists, question: Question
) -> tuple[list[list[Hit]], list[float]]:
    """Return the hits of each query, best first, and how sure it is that any are what it asks for.

    By codes alone, or with the words of a query and the items that repeat it, where there are some.
    """
    q = len(question.projections)
    plain = [row for row in range(q) if not question.is_scored(row)]
    answers, n_bytes = answer_by_codes(snapshot, catalog, allow_lists, question.at(plain))
    lists = dict(zip(plain, answers, strict=True))
    evidence = [1.0] * q if question.evidence is None else question.evidence.tolist()
    for row in range(q):
        if row not in lists:
            # each by itself: words of different queries have nothing in common
            lists[row], more, evidence[row] = _answer_scored(
                snapshot, catalog, allow_lists, question.at([row])
            )
            n_bytes += more
            if question.max_bytes is not None and n_bytes > question.max_bytes:
                raise too_much(question.max_bytes)
    return [lists[row] for row in range(q)], evidence


def _answer_scored(
    snapshot: Committed, catalog: Catalog, allow_lists: AllowLists, question: Question
) -> tuple[list[Hit], int, float]:
    """Return the hits of one query, how many bytes of JSON their payloads have, its evidence."""
    evidence = 1.0 if question.evidence is None else float(question.evidence[0])
    if not snapshot.head.n_items:
        return [], 0, evidence
    n, wanted = question.k + question.offset, 0
    allow = None if question.where is None else allow_lists.of(question.where)
    while True:
        # more than the index gives is refused there
        wanted = max(n, min(2 * wanted or max(n + 1, POOL), snapshot.replica.most))
        nearest = nearest_keys(snapshot, catalog, question, wanted, allow)
        with catalog.reading() as connection:
            pool = _Pool.of(snapshot, connection, question, nearest[:POOL], allow and allow.keys, n)
            others = nearest[POOL:][~np.isin(nearest[POOL:], pool.keys)]
            keys = np.concatenate([pool.keys, others])
            # deleted, not of this commit, or changed so that they do not pass
            bare = fetch_rows(snapshot, catalog, connection, keys, None, None, allow)
            keys = keys[[key in (bare or ()) for key in keys.tolist()]]
            is_all = len(nearest) < wanted or wanted >= snapshot.replica.most
            if len(keys) <= n and not is_all:
                continue
            ranked = _ranked(snapshot, catalog, connection, question, pool, keys, bare or {})
            shown = ranked.keys[question.offset : n]
            fetched = fetch_rows(
                snapshot,
                catalog,
                connection,
                shown,
                shown if question.payload else None,
                question.max_bytes,
            )
        if fetched is None:
            raise too_much(question.max_bytes)
        break
    scores = ranked.scores[: n + 1].tolist()
    evidence = min(1.0, max(evidence, scores[0] / FOUND if scores else 0.0))
    (query,) = question.signs()
    hits = zip(ranked.keys[:n].tolist(), scores, ties(scores), strict=False)
    made = [
        made_hit(fetched, key, score, query, question.payload, tied, evidence < WEAK)
        for key, score, tied in islice(hits, question.offset, None)
        if key in fetched
    ]
    n_bytes = sum(row.payload_bytes for row in fetched.values()) if question.payload else 0
    return made, n_bytes, evidence


class _Pool(NamedTuple):
    """Items that are scored: keys, ascending, and of each the share of the words that it has.

    ``equal`` says which have a line that is the query.
    """

    keys: Keys
    shares: Array
    equal: npt.NDArray[np.bool_]
    repeats: Repeats

    @classmethod
    def of(
        cls,
        snapshot: Committed,
        connection: sqlite3.Connection,
        question: Question,
        nearest: Keys,
        allow: Keys | None,
        n: int,
    ) -> _Pool:
        (asked,) = question.texts or (QueryText.of(None),)
        (repeats,) = question.repeats or (NO_REPEATS,)
        matches, equal = NO_MATCHES, NO_MATCHES.keys
        if asked.tokens:
            counts = n_with(connection, asked.words)
            matches = best_matches(connection, counts, snapshot.head.n_items, POOL, allow)
            equal = _among(equal_lines(connection, asked.tokens), allow)[: n + 1]
        parts = [nearest, matches.keys, equal, _among(repeats.keys, allow)]
        keys = np.array(sorted(set(np.concatenate(parts).tolist())), dtype=np.int64)
        keys = keys[keys < snapshot.head.next_key]
        shares = np.zeros(len(keys))
        known = np.isin(matches.keys, keys)
        shares[np.searchsorted(keys, matches.keys[known])] = matches.shares[known]
        return cls(keys, shares, np.isin(keys, equal), repeats)


def _among(keys: Keys, allow: Keys | None) -> Keys:
    return keys if allow is None else keys[np.isin(keys, allow)]


class _Ranked(NamedTuple):
    keys: Keys
    scores: Array


def _ranked(
    snapshot: Committed,
    catalog: Catalog,
    connection: sqlite3.Connection,
    question: Question,
    pool: _Pool,
    keys: Keys,
    rows: Mapping[int, ItemRow],
) -> _Ranked:
    """Return some keys in the order of the answer: those of the pool, then the others."""
    keys = np.sort(keys)
    there, codes = snapshot.replica.codes_of(catalog, connection, keys)
    agreements = _agreements(question.projections[0], codes)
    kinds = question.kinds(0, agreements)
    scored = np.isin(there, pool.keys)
    at = np.searchsorted(pool.keys, there[scored])
    shares = pool.shares[at]
    if question.named and question.named[0]:
        given = [
            question.named[0] <= set(label_numbers(rows[key].labels))
            for key in there[scored].tolist()
        ]
        shares = np.maximum(shares, LABELLED * np.array(given))
    words = np.minimum(shares, SURE) ** 4
    means = np.minimum(_meanings(connection, question, there[scored]), SURE) ** 4
    words[pool.equal[at]] = 1.0
    if question.pictures is not None and question.pictures[0].any():
        beside = (1 + np.maximum(_agreements(question.pictures[0], codes[scored]), 0)) / 2
        words, means = words * beside, means * beside
    left = (1 - kinds[scored]) * (1 - words) * (1 - means)
    left *= unlike(pool.repeats, there[scored])
    order = np.lexsort((there[scored], -agreements[scored], left))
    first, others = there[scored][order], there[~scored]
    best = 1 - left[order]
    rest = np.lexsort((others, -agreements[~scored]))
    least = best[-1] if len(best) else 1.0
    return _Ranked(
        np.concatenate([first, others[rest]]),
        np.concatenate([best, np.minimum(kinds[~scored][rest], least)]),
    )


def _agreements(projection: Single, codes: npt.NDArray[np.uint8]) -> Array:
    """Return how codes agree with a projection, from -1 to 1; see `Question.kinds`."""
    values = projection.astype(np.float64)
    total = np.abs(values).sum()
    if total == 0:
        return np.zeros(len(codes))
    # what each value of each byte of a code adds: 8 signs each
    tables = ((values / total).reshape(-1, 8) @ _SIGNS).reshape(-1)  # n_bits / 8 times 256
    starts = np.arange(0, len(tables), 256)
    agreements: Array = np.clip(tables[codes + starts].sum(axis=1), -1, 1)
    return agreements


def _meanings(connection: sqlite3.Connection, question: Question, keys: Keys) -> Array:
    """Return the cosines of the word vectors of a query and of the texts of items; at least 0.

    An item without a kept text has the meaning of the texts in its payload.
    """
    if not question.texts or not question.texts[0].tokens:
        return np.zeros(len(keys))
    texts = texts_of(connection, keys.tolist(), begin=_CHARACTERS)
    if missing := [key for key in keys.tolist() if key not in texts]:
        texts |= _titles(connection, missing)
    listed = [texts.get(key, "") for key in keys.tolist()]
    vectors = word_vectors().embed([each.lower() for each in (question.texts[0].text, *listed)])
    lengths = np.linalg.norm(vectors, axis=1)
    products = vectors[1:] @ vectors[0]
    scale = lengths[1:] * lengths[0]
    cosines: Array = np.zeros(len(keys))
    np.divide(products, scale, out=cosines, where=(scale > 0) & (products > 0))
    return cosines


def _titles(connection: sqlite3.Connection, keys: list[int]) -> dict[int, str]:
    marks = ",".join("?" * len(keys))
    rows = connection.execute(
        f"SELECT key, payload FROM items WHERE payload IS NOT NULL AND key IN ({marks})",  # noqa: S608
        keys,
    )
    return {key: " ".join(payload_texts(payload))[:_CHARACTERS] for key, payload in rows}
