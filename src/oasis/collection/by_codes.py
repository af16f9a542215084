"""From projections to hits: ask the index, fetch the items, keep what passes the filter."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from itertools import islice
from math import nan
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from oasis.codes import pack
from oasis.collection.catalog import Catalog
from oasis.collection.committed import Committed
from oasis.collection.filters import AllowList, AllowLists, Filter
from oasis.collection.hits import FetchedRows, fetch_rows, made_hit, ties, too_much
from oasis.collection.question import Question
from oasis.collection.records import Hit
from oasis.collection.rows import Keys
from oasis.errors import CollectionError

_OVERSAMPLE = 16
_SPARE = 64
_MOST = 10_000
"""Oversampling fetches at most so many rows; beyond that an allow-list costs less."""


class _Found(NamedTuple):
    """Keys in the order of the answer, -1 where there are no more, and their agreements."""

    keys: Keys
    scores: npt.NDArray[np.float64]


_Ask: TypeAlias = Callable[[int, Keys | None], _Found]


class _Chosen(NamedTuple):
    """What was found for several queries.

    Attributes
    ----------
    found : answers of the index
    rows : of items, by key
    lists : per query the positions of its hits among the answers
    beyond : per query the score of the item after the hits that are wanted; NaN for none
    """

    found: _Found
    rows: FetchedRows
    lists: list[list[int]]
    beyond: list[float]


def answer_by_codes(
    snapshot: Committed,
    catalog: Catalog,
    allow_lists: AllowLists,
    question: Question,
) -> tuple[list[list[Hit]], int]:
    """Return the hits of each query, best first; ties by age, the older item first.

    Also the bytes of JSON that their payloads have together; a hit of several queries counts
    several times.

    Beyond the time of the index: the rows of the hits, about 10 microseconds each. A filter that
    lets most items pass costs a larger search; one that lets few pass needs an allow-list, which
    is made on its first use.
    """
    q = len(question.projections)
    if not q or not snapshot.head.n_items:
        return [[] for _ in range(q)], 0
    wanted = question.k + question.offset
    if question.where is not None:
        chosen = _filtered(snapshot, catalog, allow_lists, question, question.where)
        if chosen is None:
            allow = allow_lists.of(question.where)
            chosen = best_by_codes(snapshot, catalog, question, allow)
    else:
        chosen = best_by_codes(snapshot, catalog, question)
    found, rows, lists, beyond = chosen
    keys = (int(found.keys[i, j]) for i in range(q) for j in lists[i][question.offset : wanted])
    n_bytes = sum(rows[key].payload_bytes for key in keys) if question.payload else 0
    if question.max_bytes is not None and n_bytes > question.max_bytes:
        raise too_much(question.max_bytes)
    before = min(question.offset, 1)
    answers = []
    for i, query in enumerate(question.signs()):
        places, weak = lists[i][question.offset - before : wanted], question.is_weak(i)
        scores = question.kinds(i, np.append(found.scores[i, places], beyond[i])).tolist()
        keys_of_hits = found.keys[i, places].tolist()
        hits = zip(keys_of_hits, scores[:-1], ties(scores)[:-1], strict=True)
        answers.append(
            [
                made_hit(rows, key, score, query, question.payload, tied, weak)
                for key, score, tied in islice(hits, before, None)
            ]
        )
    return answers, n_bytes


def _asker(snapshot: Committed, question: Question) -> _Ask:
    n_bits = snapshot.replica.n_bits
    projections = question.projections
    if question.mode == "hamming":
        codes = pack(projections)

        def ask(n: int, allow: Keys | None) -> _Found:
            keys, distances = snapshot.replica.search(codes, n, allow, snapshot.head.next_key)
            return _Found(keys, 1 - 2 * distances / n_bits)

        return ask

    totals = np.abs(projections).sum(axis=1, dtype=np.float64)
    scale = np.divide(1.0, totals, out=np.zeros_like(totals), where=totals > 0)

    def ask_real(n: int, allow: Keys | None) -> _Found:
        keys, scores = snapshot.replica.search_asymmetric(
            projections, n, allow, snapshot.head.next_key
        )
        with np.errstate(invalid="ignore"):  # -inf marks what is not there
            return _Found(keys, np.clip(scores * scale[:, None], -1, 1))

    return ask_real


def best_by_codes(
    snapshot: Committed,
    catalog: Catalog,
    question: Question,
    allow: AllowList | None = None,
    payload: bool | None = None,
) -> _Chosen:
    """Return the first hits; asks for more where some in the index are no items of this commit.

    Items in ``allow`` that were changed since, and pass its filter no longer, count as such.
    """
    ask = _asker(snapshot, question)
    payload = question.payload if payload is None else payload
    wanted, most = question.k + question.offset, snapshot.replica.most
    n = min(wanted + (question.without is not None), snapshot.head.n_items)
    while True:
        # the last one is beyond the hits
        found = ask(max(n, min(n + 1, most)), None if allow is None else allow.keys)
        keys = found.keys[:, :n]
        with catalog.reading() as connection:
            # hits that are skipped stand at the places before the offset
            shown = keys[:, question.offset :] if payload else None
            rows = fetch_rows(snapshot, catalog, connection, keys, shown, question.max_bytes, allow)
            if rows is None:
                raise too_much(question.max_bytes)
            there = [[j for j, key in enumerate(row) if key in rows] for row in keys.tolist()]
            lists = there
            if question.without is not None:
                lists = [
                    [j for j in row if rows[int(keys[i, j])].id != question.without]
                    for i, row in enumerate(there)
                ]
            beyond = _beyond(snapshot, catalog, connection, question, found, lists, n)
            n_there = 0
            if allow is None and keys.min() < 0:
                n_there = catalog.count(connection, snapshot.head.next_key)
        lost = []
        for i, last in enumerate(keys[:, -1].tolist()):
            if last >= 0:
                lost.append(n - len(there[i]) if len(lists[i]) < wanted else beyond[i] is None)
            elif len(there[i]) < n_there:
                # a -1 comes after all that the index has, and deletions are committed first
                raise CollectionError(
                    f"the index lacks {n_there - len(there[i])} items of this collection; opening "
                    "it for writing sends them"
                )
        if not any(lost):
            return _Chosen(found, rows, lists, [nan if each is None else each for each in beyond])
        if n >= most:
            raise CollectionError(
                f"among the {n} items nearest to a query the index at {snapshot.replica.address} "
                f"has {max(lost)} that are deleted; opening the collection for writing removes them"
            )
        n = min(n + max(lost), most)


def nearest_keys(
    snapshot: Committed, catalog: Catalog, question: Question, n: int, allow: AllowList | None
) -> Keys:
    """Return the keys of the n items that are nearest to the first query by its code.

    Fewer where there are no more. Otherwise some may be no items of the snapshot's commit.
    """
    keys: Keys = _asker(snapshot, question)(n, None if allow is None else allow.keys).keys[0]
    if keys[-1] >= 0:
        return keys
    # all that there are: whether the index lacks any is looked at
    found = best_by_codes(snapshot, catalog, question._replace(k=n, offset=0), allow, payload=False)
    all_keys: Keys = found.found.keys[0]
    return all_keys[found.lists[0]]


def _beyond(
    snapshot: Committed,
    catalog: Catalog,
    connection: sqlite3.Connection,
    question: Question,
    found: _Found,
    lists: list[list[int]],
    n: int,
) -> list[float | None]:
    """Return the score of the item after the hits of each query, NaN where there is none.

    None where the one after the first n answers ties with the last hit, but is no item of the
    snapshot's commit, or the one that is left out, so that more answers are needed.
    """
    wanted = question.k + question.offset
    scores: list[float | None] = []
    tied: dict[int, int] = {}
    for i, hits in enumerate(lists):
        if len(hits) > wanted:
            scores.append(float(found.scores[i, hits[wanted]]))
        elif found.keys.shape[1] > n and found.keys[i, n] >= 0:
            scores.append(float(found.scores[i, n]))
            if hits and scores[i] == found.scores[i, hits[-1]]:
                tied[i] = int(found.keys[i, n])
        else:
            scores.append(nan)
    ids: dict[int, Any] = dict.fromkeys(tied.values(), question.without)
    if snapshot.replica.is_local and question.without is None:
        ids = {}  # memory holds no items that are deleted
    elif tied:
        ids.update(catalog.rows(connection, "key, id", ids))
    for i, key in tied.items():
        if (key in ids and ids[key] == question.without) or key >= snapshot.head.next_key:
            scores[i] = None
    return scores


def _filtered(
    snapshot: Committed,
    catalog: Catalog,
    allow_lists: AllowLists,
    question: Question,
    where: Filter,
) -> _Chosen | None:
    """Return the hits that pass among more than needed; None where that takes too many."""
    ask = _asker(snapshot, question)
    q, wanted = len(question.projections), question.k + question.offset
    n = _OVERSAMPLE * wanted + _SPARE
    while n * q <= _MOST and n * 4 < snapshot.head.n_items and not allow_lists.is_kept(where):
        found = ask(n, None)
        with catalog.reading() as connection:
            keys = np.unique(found.keys[found.keys >= 0])
            allowed = where.keys(connection, keys.tolist())
            shown = allowed if question.payload else None
            rows = fetch_rows(snapshot, catalog, connection, allowed, shown, question.max_bytes)
        if rows is None:
            return None
        passing = {key for key, row in rows.items() if row.id != question.without}
        lists = [[j for j, key in enumerate(row) if key in passing] for row in found.keys.tolist()]
        if all(len(hits) > wanted for hits in lists):
            beyond = [float(found.scores[i, hits[wanted]]) for i, hits in enumerate(lists)]
            return _Chosen(found, rows, lists, beyond)
        n *= _OVERSAMPLE
    return None
