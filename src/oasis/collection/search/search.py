"""From projections to hits: ask the index, fetch the items, keep what passes the filter."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array, Single
from oasis.codes import Codes, pack, unpack
from oasis.collection.catalog.catalog import Catalog
from oasis.collection.catalog.commits import ITEM_COLUMNS, ItemRow, Keys
from oasis.collection.committed import Committed
from oasis.collection.filters.where import AllowLists, Filter
from oasis.collection.records import Hit, Mode
from oasis.collection.texts.fusion import ClassWords, QueryWords, Shares, missed, word_shares
from oasis.errors import CollectionError, FormatError, InputError, TooLargeError

MAX_HITS = 1_000_000
"""Most hits, skipped ones included, that one query may ask for."""

_OVERSAMPLE = 16
_SPARE = 64
_ROUNDING = 1e-6
"""Difference at most between a cosine here and one of the index, in single precision."""
_FIRST, _AT_ONCE = 256, 4096
"""Items with words of a query that are scored together: at first, and then."""
_MOST = 10_000
"""Rows that are fetched in the hope of finding enough that pass; a list of all is dearer still."""


class Question(NamedTuple):
    """What is asked: (q, n_bits) projections, how many hits to skip and to return, a filter.

    ``payload`` says whether hits carry theirs, and ``max_bytes`` how many bytes of JSON the
    payloads that are read may have together; None for any number. ``codes`` are those that the
    distances of hits are counted from, the signs of the projections if not given. ``words`` are
    those of each query, to be found in texts and labels beside its code, and ``trust`` is how much
    each code counts beside them, from 0 to 1.
    """

    projections: npt.NDArray[np.float32]
    mode: Mode
    k: int
    offset: int
    where: Filter | None
    payload: bool = True
    max_bytes: int | None = None
    codes: Codes | None = None
    words: Sequence[QueryWords] | None = None
    trust: Single | None = None

    @classmethod
    def of(
        cls,
        projections: npt.NDArray[np.float32],
        mode: Any,
        k: Any,
        offset: Any,
        where: Any,
        payload: bool = True,
        max_bytes: int | None = None,
    ) -> Question:
        """Check what a user asks for."""
        if mode not in ("asymmetric", "hamming"):
            raise InputError(f"mode must be 'asymmetric' or 'hamming', got {mode!r}")
        for name, value, least in (("k", k, 1), ("offset", offset, 0)):
            whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
            if not whole or value < least:
                raise InputError(
                    f"{name} must be a whole number of at least {least}, got {value!r}"
                )
        if k + offset > MAX_HITS:
            raise InputError(f"k + offset may be at most {MAX_HITS}, got {k + offset}")
        parsed = None if where is None or where == {} else Filter.of(where)
        return cls(projections, mode, int(k), int(offset), parsed, payload, max_bytes)

    def at(self, row: int) -> Question:
        """Return one of the queries alone."""
        return self._replace(
            projections=self.projections[row : row + 1],
            codes=None if self.codes is None else self.codes[row : row + 1],
            words=None if self.words is None else self.words[row : row + 1],
            trust=None if self.trust is None else self.trust[row : row + 1],
        )


class _Found(NamedTuple):
    """Keys in the order of the answer, -1 where there are no more, and their scores."""

    keys: Keys
    scores: npt.NDArray[np.float64]


_Ask: TypeAlias = Callable[[int, Keys | None], _Found]


def answer(
    snapshot: Committed,
    catalog: Catalog,
    allow_lists: AllowLists,
    question: Question,
    class_words: ClassWords,
) -> list[list[Hit]]:
    """Return the hits of each query, best first; ties by age, the older item first.

    Beyond the time of the index: the rows of the hits, about 10 microseconds each. A filter that
    lets most items pass costs a larger search; one that lets few pass needs an allow-list, which
    is made on its first use.
    """
    q = len(question.projections)
    if not q or not snapshot.head.n_items:
        return [[] for _ in range(q)]
    if question.words is not None and any(each.words for each in question.words):
        # each by itself: words of different queries have nothing in common
        return [
            _answer_fused(snapshot, catalog, allow_lists, question.at(row), class_words)
            for row in range(q)
        ]
    ask = _asker(snapshot, question)
    wanted = question.k + question.offset
    if question.where is not None:
        chosen = _filtered(snapshot, catalog, allow_lists, question, question.where, ask)
        if chosen is None:
            allow = allow_lists.keys(question.where)
            chosen = _plain(snapshot, catalog, question, ask, allow)
    else:
        chosen = _plain(snapshot, catalog, question, ask)
    found, rows, lists = chosen
    if question.payload and question.max_bytes is not None:
        # an item that is a hit of several queries counts several times
        keys = (int(found.keys[i, j]) for i in range(q) for j in lists[i][question.offset : wanted])
        if sum(len(rows[key].payload or "") for key in keys) > question.max_bytes:
            raise _too_much(question.max_bytes)
    codes = pack(question.projections) if question.codes is None else question.codes
    queries = [int.from_bytes(code.tobytes(), "little") for code in codes]
    return [
        [
            _hit(
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
        (hits,) = answer(snapshot, catalog, allow_lists, question._replace(words=None), class_words)
        return hits
    n = question.k + question.offset
    allow = None if question.where is None else allow_lists.keys(question.where)
    best, _, (places,) = _plain(
        snapshot, catalog, question, _asker(snapshot, question), allow, payload=False
    )
    by_codes = best.keys[0][places]
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
        candidates = _candidates(snapshot, catalog, connection, question, by_codes, shares, n)
        order = candidates.order(asked.are_exactly(connection, shares))[:n]
        fetched = _fetch(
            snapshot,
            catalog,
            connection,
            candidates.keys[order],
            question.payload,
            question.max_bytes,
        )
    if fetched is None:
        raise _too_much(question.max_bytes)
    codes = pack(question.projections) if question.codes is None else question.codes
    query = int.from_bytes(codes[0].tobytes(), "little")
    return [
        _hit(snapshot, fetched[key], float(1 - candidates.missed[at]), query, question.payload)
        for at, key in zip(order.tolist(), candidates.keys[order].tolist(), strict=True)
        if key in fetched
    ][question.offset :]


_Chosen: TypeAlias = tuple[_Found, dict[int, ItemRow], list[list[int]]]
"""Answers of the index, rows by key, and per query the positions of its hits among the answers."""


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


def _plain(
    snapshot: Committed,
    catalog: Catalog,
    question: Question,
    ask: _Ask,
    allow: Keys | None = None,
    payload: bool | None = None,
) -> _Chosen:
    """Return the first hits; asks for more where the index holds what is no item of this commit."""
    payload = question.payload if payload is None else payload
    wanted = question.k + question.offset
    n = min(wanted, snapshot.head.n_items)
    while True:
        found = ask(n, allow)
        with catalog.reading() as connection:
            rows = _fetch(snapshot, catalog, connection, found.keys, payload, question.max_bytes)
            if rows is None:
                raise _too_much(question.max_bytes)
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
    ask: _Ask,
) -> _Chosen | None:
    """Return the hits that pass among more than needed; None where that takes too many."""
    if where.phrases:
        return None  # postings of words have the answer
    q, wanted = len(question.projections), question.k + question.offset
    n = _OVERSAMPLE * wanted + _SPARE
    while n * q <= _MOST and n * 4 < snapshot.head.n_items and not allow_lists.is_kept(where):
        found = ask(n, None)
        with catalog.reading() as connection:
            rows = _fetch(
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


def _fetch(
    snapshot: Committed,
    catalog: Catalog,
    connection: sqlite3.Connection,
    keys: npt.NDArray[np.int64],
    payload: bool,
    max_bytes: int | None,
) -> dict[int, ItemRow] | None:
    """Return the rows of the keys that are items of the snapshot's commit, and still there.

    None where their payloads have more than ``max_bytes`` together. A key beyond the commit may
    have been searched with the code of a chunk that failed, and belong to another one by now.
    """
    columns = ITEM_COLUMNS if payload else ITEM_COLUMNS.replace("payload", "NULL")
    there = keys[(keys >= 0) & (keys < snapshot.head.next_key)]
    wanted = sorted(set(there.tolist()))  # np.unique imports numpy.ma: half of a short search
    found: dict[int, ItemRow] = {}
    n_bytes = 0
    for values in catalog.rows(connection, columns, wanted):
        row = found[values[0]] = ItemRow(*values)
        n_bytes += len(row.payload or "")
        if max_bytes is not None and n_bytes > max_bytes:
            return None
    return found


def _too_much(max_bytes: int | None) -> TooLargeError:
    return TooLargeError(
        f"the payloads of the hits have more than {max_bytes} bytes together; ask for fewer hits, "
        "or without their payload"
    )


def _hit(snapshot: Committed, row: ItemRow, score: float, query: int, payload: bool) -> Hit:
    if payload:
        row.check()
    elif not isinstance(row.code, bytes):  # without its payload a row cannot be compared
        raise FormatError(f"the item with key {row.key} is damaged: its code is no blob")
    distance = (int.from_bytes(row.code, "little") ^ query).bit_count()
    labels = row.label_names(snapshot.classes)
    return Hit(row.id, score, distance, row.decoded_payload() if payload else {}, labels)
