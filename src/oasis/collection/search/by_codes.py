"""From projections to hits: ask the index, fetch the items, keep what passes the filter."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from oasis.codes import pack
from oasis.collection.catalog.catalog import Catalog
from oasis.collection.catalog.commits import ItemRow, Keys
from oasis.collection.committed import Committed
from oasis.collection.filters.where import AllowLists, Filter
from oasis.collection.records import Hit
from oasis.collection.search.hits import fetch_rows, made_hit, too_much
from oasis.collection.search.question import Question
from oasis.errors import CollectionError

_OVERSAMPLE = 16
_SPARE = 64
_MOST = 10_000
"""Rows that are fetched in the hope of finding enough that pass; a list of all is dearer still."""


class _Found(NamedTuple):
    """Keys in the order of the answer, -1 where there are no more, and their scores."""

    keys: Keys
    scores: npt.NDArray[np.float64]


_Ask: TypeAlias = Callable[[int, Keys | None], _Found]


_Chosen: TypeAlias = tuple[_Found, dict[int, ItemRow], list[list[int]]]
"""Answers of the index, rows by key, and per query the positions of its hits among the answers."""


def answer_by_codes(
    snapshot: Committed,
    catalog: Catalog,
    allow_lists: AllowLists,
    question: Question,
) -> list[list[Hit]]:
    """Return the hits of each query, best first; ties by age, the older item first.

    Beyond the time of the index: the rows of the hits, about 10 microseconds each. A filter that
    lets most items pass costs a larger search; one that lets few pass needs an allow-list, which
    is made on its first use.
    """
    q = len(question.projections)
    if not q or not snapshot.head.n_items:
        return [[] for _ in range(q)]
    wanted = question.k + question.offset
    if question.where is not None:
        chosen = _filtered(snapshot, catalog, allow_lists, question, question.where)
        if chosen is None:
            allow = allow_lists.keys(question.where)
            chosen = best_by_codes(snapshot, catalog, question, allow)
    else:
        chosen = best_by_codes(snapshot, catalog, question)
    found, rows, lists = chosen
    if question.payload and question.max_bytes is not None:
        # an item that is a hit of several queries counts several times
        keys = (int(found.keys[i, j]) for i in range(q) for j in lists[i][question.offset : wanted])
        if sum(len(rows[key].payload or "") for key in keys) > question.max_bytes:
            raise too_much(question.max_bytes)
    queries = question.signs()
    return [
        [
            made_hit(
                snapshot,
                rows[int(found.keys[i, j])],
                float(found.scores[i, j]),
                queries[i],
                question.payload,
            )
            for j in lists[i][question.offset : wanted]
        ]
        for i in range(q)
    ]


def _asker(snapshot: Committed, question: Question) -> _Ask:
    n_bits = snapshot.replica.n_bits
    projections = question.projections
    if question.mode == "hamming":
        codes = pack(projections)

        def ask(n: int, allow: Keys | None) -> _Found:
            keys, distances = snapshot.replica.search(codes, n, allow, snapshot.head.next_key)
            return _Found(keys, 1 - 2 * distances / n_bits)

        return ask

    lengths = np.sqrt(np.vecdot(projections, projections, dtype=np.float64) * n_bits)
    scale = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)

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
    allow: Keys | None = None,
    payload: bool | None = None,
) -> _Chosen:
    """Return the first hits; asks for more where the index holds what is no item of this commit."""
    ask = _asker(snapshot, question)
    payload = question.payload if payload is None else payload
    wanted = question.k + question.offset
    n = min(wanted, snapshot.head.n_items)
    while True:
        found = ask(n, allow)
        with catalog.reading() as connection:
            rows = fetch_rows(
                snapshot, catalog, connection, found.keys, payload, question.max_bytes
            )
            if rows is None:
                raise too_much(question.max_bytes)
            n_there = 0
            if allow is None and found.keys.min() < 0:
                n_there = catalog.count(connection, snapshot.head.next_key)
        lists = [[j for j, key in enumerate(keys) if key in rows] for keys in found.keys.tolist()]
        lost = []
        for hits, last in zip(lists, found.keys[:, -1].tolist(), strict=True):
            if last >= 0:
                lost.append(n - len(hits) if len(hits) < wanted else 0)
            elif len(hits) < n_there:
                # a -1 comes after all that the index has, and deletions are committed first
                raise CollectionError(
                    f"the index lacks {n_there - len(hits)} items of this collection; opening it "
                    "for writing sends them"
                )
        if not any(lost):
            return found, rows, lists
        if n >= snapshot.replica.most:
            raise CollectionError(
                f"among the {n} items nearest to a query the index at {snapshot.replica.address} "
                f"has {max(lost)} that are deleted; opening the collection for writing removes them"
            )
        n = min(n + max(lost), snapshot.replica.most)


def _filtered(
    snapshot: Committed,
    catalog: Catalog,
    allow_lists: AllowLists,
    question: Question,
    where: Filter,
) -> _Chosen | None:
    """Return the hits that pass among more than needed; None where that takes too many."""
    if where.phrases:
        return None  # postings of words have the answer
    ask = _asker(snapshot, question)
    q, wanted = len(question.projections), question.k + question.offset
    n = _OVERSAMPLE * wanted + _SPARE
    while n * q <= _MOST and n * 4 < snapshot.head.n_items and not allow_lists.is_kept(where):
        found = ask(n, None)
        with catalog.reading() as connection:
            rows = fetch_rows(
                snapshot,
                catalog,
                connection,
                found.keys,
                question.payload or bool(where.fields),
                question.max_bytes,
            )
        if rows is None:
            return None
        passing = {
            key
            for key, row in rows.items()
            if where.matches(
                row.decoded_payload(), row.label_names(snapshot.classes) if where.labels else ()
            )
        }
        lists = [[j for j, key in enumerate(row) if key in passing] for row in found.keys.tolist()]
        if all(len(hits) >= wanted for hits in lists):
            return found, rows, lists
        n *= _OVERSAMPLE
    return None
