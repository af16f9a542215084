"""MilvusIndex: the methods of `HammingIndex` over a Milvus collection."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

import numpy as np

from oasis.codes import Codes, check_codes, check_n_bits, pack
from oasis.errors import InputError
from oasis.index import Matches, RangeMatches, ScoredMatches
from oasis.index.engine.arguments import (
    Ids,
    check_distinct,
    check_ids,
    check_ids_of,
    check_k,
    check_projections,
    check_radius,
    unknown_ids,
)
from oasis.index.engine.permits import AllowList
from oasis.index.engine.projections import Projections
from oasis.scale.milvus.address import Address
from oasis.scale.milvus.connection import Connection
from oasis.scale.milvus.expressions import IDS_AT_ONCE, both, check_where, ids_in, pieces
from oasis.scale.milvus.extras import encode_extras
from oasis.scale.milvus.hits import Hits, joined
from oasis.scale.milvus.messages import (
    delete_request,
    query_request,
    read_count,
    read_hits,
    read_rows,
    search_request,
    upsert_request,
)
from oasis.scale.milvus.schema import CODE, ID, KINDS, PROBES, Schema

MOST = 16_384
"""The most items that Milvus returns for a query, and the most rows of a page."""

_TIMEOUT = 10.0
_GUARANTEES = {"Strong": 0, "Session": None, "Bounded": 2, "Eventually": 1}
_FEWEST_CANDIDATES = 500
_BATCH_ROWS = 20_000
_AT_ONCE = 2
_BATCH_BYTES = 1 << 23
_BLOCK_QUERIES = 1024
_BLOCK_ENTRIES = 1 << 19


class MilvusIndex:
    """Nearest-neighbour search over packed codes that live in a Milvus collection.

    It has the methods of `HammingIndex`, and answers alike but for ties: distances are exact, which
    of the items tied at the k-th distance come back is the engine's choice, and those that do are
    ordered by id. The collection is made when it is absent, and checked when it is there.

    Writes are upserts: sending the same items again is harmless, also after a fault that left it
    unknown whether they had arrived. Threads may share an index.

    Parameters
    ----------
    uri : str or path-like
        "milvus://host:port/name", "http://host:port", either perhaps with "?timeout=60" behind it,
        or the path of a milvus-lite file. There is no authentication and no TLS.
    n_bits : int
        Length of a code, a multiple of 8.
    name : str
        The collection's name, where ``uri`` has none.
    timeout : float, optional
        Seconds until a request that keeps failing is given up with an `EngineError`. A call that
        takes several requests allows it to each of them. If not given, as ``uri`` says, else 10.
    consistency : {"Strong", "Session", "Bounded", "Eventually"}
        What a search must see: with "Strong" whatever anyone has written before, with "Session"
        what this object has. The others are faster and may miss the newest items.
    kind : {"BIN_FLAT", "BIN_IVF_FLAT"}
        How Milvus keeps the codes. BIN_FLAT compares all of them. BIN_IVF_FLAT, on a server only,
        compares a quarter, faster, and misses some of the nearest.
    oversample : int
        An asymmetric search rescores so many times k candidates.
    description : str
        What a collection that is made here is to say of itself, such as whose it is.

    Attributes
    ----------
    description : str
        What the collection says, whoever has made it.

    Examples
    --------
    >>> import numpy as np, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "codes.db"
    >>> with MilvusIndex(path, n_bits=8) as index:  # doctest: +SKIP
    ...     index.add(np.array([[0b0001], [0b0111]], dtype=np.uint8), [10, 20], [("sky",), ()])
    ...     index.search(np.array([[0b0000]], dtype=np.uint8), k=2)
    Matches(ids=array([[10, 20]]), distances=array([[1, 3]], dtype=int32))
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        n_bits: int = 64,
        *,
        name: str = "oasis",
        timeout: float | None = None,
        consistency: str = "Strong",
        kind: str = "BIN_FLAT",
        oversample: int = 10,
        description: str = "",
    ) -> None:
        self.n_bits = check_n_bits(n_bits)
        address = Address.parse(uri, name)
        if timeout is None:
            timeout = _TIMEOUT if address.timeout is None else address.timeout
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
            raise InputError(f"timeout must be a number of seconds above 0, got {timeout!r}")
        for given, known, what in (
            (consistency, _GUARANTEES, "consistency"),
            (kind, KINDS, "kind"),
        ):
            if given not in known:
                raise InputError(f"{what} must be one of {', '.join(known)}, got {given!r}")
        if address.lite and kind != "BIN_FLAT":
            raise InputError(f"milvus-lite has BIN_FLAT only, got {kind!r}; use a Milvus server")
        if isinstance(oversample, bool) or not isinstance(oversample, int) or oversample < 1:
            raise InputError(f"oversample must be an integer of at least 1, got {oversample!r}")
        self.name = address.name
        self._kind = kind
        self._consistency = consistency
        self._oversample = oversample
        self._written = 1
        self._writing = threading.Lock()
        self._connection = Connection(address, float(timeout))
        self._schema = Schema(self._connection, self.n_bits, kind, description)
        try:
            self._schema.prepare()
        except BaseException:
            self._connection.close()
            raise

    @property
    def description(self) -> str:
        return self._schema.description

    def __len__(self) -> int:
        answer = self._call("Query", query_request(self.name, "", ["count(*)"], None))
        return read_count(answer)

    def __repr__(self) -> str:
        place = self._connection.address
        return f"<MilvusIndex: {self.name!r} at {place}, codes of {self.n_bits} bits>"

    def __contains__(self, item: object) -> bool:
        if not isinstance(item, (int, np.integer)) or not 0 <= item <= np.iinfo(np.int64).max:
            return False
        return bool(len(self._rows(ids_in(np.array([item], dtype=np.int64)), [ID])[0]))

    def __enter__(self) -> MilvusIndex:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; what was added stays in Milvus. Closing again does nothing."""
        self._connection.close()

    def add(self, codes: Codes, ids: Any, labels: Any = None, payload: Any = None) -> None:
        """Add items, or replace those whose ids are there; sending them again is harmless.

        Everything is checked before anything is sent. Items go in batches, each of which Milvus
        takes whole or not at all; after an error the earlier batches are there, and the call may
        simply be repeated.

        Parameters
        ----------
        codes : (n, n_bits / 8) uint8
        ids : (n,) integers, >= 0, distinct
        labels : sequence of n tuples of str, optional
        payload : sequence of n dicts, optional
            Both are for ``where`` in a search. They are replaced with the item: left out, they are
            gone. Together at most 65,536 bytes an item as JSON.
        """
        codes = check_codes(codes, self.n_bits)
        keys = check_ids_of(codes, ids)
        extras = encode_extras(keys, labels, payload)

        def send(part: slice) -> None:
            chosen = None if extras is None else extras[part]
            self._write("Upsert", upsert_request(self.name, keys[part], codes[part], chosen))

        parts = list(_batches(len(keys), codes.shape[1], extras))
        # the next batch is made ready while the server works on one; ids are distinct, so the order
        # in which batches arrive does not matter
        with ThreadPoolExecutor(min(_AT_ONCE, max(1, len(parts)))) as pool:
            for _ in pool.map(send, parts):
                pass

    def remove(self, ids: Any) -> None:
        """Remove items by id; every id must be there, and only once in ``ids``.

        Nothing is removed where one is unknown. An id that was removed may be added again.
        """
        keys = check_ids(ids)
        check_distinct(keys)
        here, _ = self._rows_of(keys, [ID])
        if len(here) != len(keys):
            raise unknown_ids(keys[~np.isin(keys, here)])
        self.discard(keys)

    def discard(self, ids: Any) -> None:
        """Remove items by id; ids that are not there are passed over."""
        keys = check_ids(ids)
        for start in range(0, len(keys), IDS_AT_ONCE):
            expression = ids_in(keys[start : start + IDS_AT_ONCE])
            self._write("Delete", delete_request(self.name, expression))

    def discard_from(self, first: int) -> None:
        """Remove every item whose id is ``first`` or higher."""
        (low,) = check_ids([first]).tolist()
        self._write("Delete", delete_request(self.name, f"id >= {low}"))

    def ids(self) -> Iterator[Ids]:
        """Yield the ids of all items, ascending, in int64 blocks of up to 16,384."""
        for ids, _ in self._pages([ID]):
            yield ids

    def blocks(self) -> Iterator[tuple[Ids, Codes]]:
        """Yield ids and codes of all items, ascending by id, in blocks of up to 16,384."""
        return self._pages([ID, CODE])

    def codes_of(self, ids: Any) -> Codes:
        """Return the (n, n_bits / 8) codes of items by id; every id must be there."""
        keys = check_ids(ids)
        known, codes = self._rows_of(np.unique(keys), [ID, CODE])
        at = np.searchsorted(known, keys)
        there = at < len(known)
        there[there] = known[at[there]] == keys[there]
        if not there.all():
            raise unknown_ids(keys[~there])
        return codes[at]

    def items(self) -> tuple[Codes, Ids]:
        """Return the codes (n, n_bits / 8) and ids (n,) of all items, by id."""
        found = list(self.blocks())
        codes = [np.empty((0, self.n_bits // 8), dtype=np.uint8), *(part for _, part in found)]
        ids = [np.empty(0, dtype=np.int64), *(part for part, _ in found)]
        return np.concatenate(codes), np.concatenate(ids)

    def search(self, codes: Codes, k: int, allow: Any = None, where: Any = None) -> Matches:
        """Return the k nearest items of each query by Hamming distance.

        Distances are exact; which of the items tied at the k-th come back is the engine's choice,
        and equal distances are ordered by id.

        Parameters
        ----------
        codes : (q, n_bits / 8) uint8
        k : int
            From 1 to 16,384; where it exceeds the number of items the answer is padded with -1.
        allow : array of ids, or bool array indexed by id, optional
            Answer with these items only. Costs one search for each 8,192 ids that are not part of a
            long run of successive ones.
        where : str, optional
            Answer with items that satisfy this Milvus expression over ``id``, ``labels`` and
            ``payload`` only, as in ``json_contains(labels, "sky") and payload["year"] > 2020``.

        Returns
        -------
        Matches
            ids (q, k) int64 and distances (q, k) int32, in bits.
        """
        queries = check_codes(codes, self.n_bits)
        k = _check_most(check_k(k))
        hits = self._nearest(queries, k, allow, where)
        ids = np.full((len(queries), k), -1, dtype=np.int64)
        distances = np.full((len(queries), k), -1, dtype=np.int32)
        place = hits.query, hits.rank()
        ids[place], distances[place] = hits.ids, hits.distances
        return Matches(ids, distances)

    def search_asymmetric(
        self, projections: Any, k: int, allow: Any = None, where: Any = None
    ) -> ScoredMatches:
        """Return the k items whose signs have the largest inner product with each query, nearly.

        The candidates are the nearest items to the query's signs by Hamming distance,
        ``oversample * k`` of them, at least 500 and at most 16,384; they are rescored exactly, as
        `HammingIndex.search_asymmetric` scores, and equal scores are ordered by id. So scores are
        exact, and the answer is exact where there are no more items than candidates; else some of
        the best may be missing (docs/scale.md states how many).

        Parameters
        ----------
        projections : (q, n_bits) real numbers
            Finite, and with a sum of absolute values that fits float32.
        k, allow, where
            As in `search`.

        Returns
        -------
        ScoredMatches
            ids (q, k) int64, padded with -1, and scores (q, k) float32, padded with -inf.
        """
        values = check_projections(projections, self.n_bits)
        queries = Projections.of(values)
        k = _check_most(check_k(k))
        n = min(max(k * self._oversample, _FEWEST_CANDIDATES), MOST)
        hits = self._nearest(pack(values), n, allow, where, with_codes=True)
        codes = self.codes_of(hits.ids) if hits.codes is None else hits.codes
        score = queries.score(hits.query, codes)
        order = np.lexsort((hits.ids, -score, hits.query))
        # the hits of a query stay in the same stretch, so places in it keep their meaning
        rank = hits.rank()
        order, query, rank = order[rank < k], hits.query[rank < k], rank[rank < k]
        ids = np.full((len(queries), k), -1, dtype=np.int64)
        scores = np.full((len(queries), k), -np.inf, dtype=np.float32)
        ids[query, rank], scores[query, rank] = hits.ids[order], score[order]
        return ScoredMatches(ids, scores)

    def range_search(self, codes: Codes, radius: int) -> RangeMatches:
        """Return every item at distance <= radius of each query, by distance, then id.

        All items are compared, with inverted lists too. A query with 16,384 items or more is
        answered in several searches, by ranges of ids.

        Returns
        -------
        RangeMatches
            offsets (q + 1,), ids and distances; query i has the stretch between its two offsets.
        """
        queries = check_codes(codes, self.n_bits)
        # Milvus's radius is strict
        params = {"radius": float(min(check_radius(radius), self.n_bits) + 1)}
        if lists := KINDS[self._kind].get("nlist"):
            params["nprobe"] = lists
        hits = self._hits(queries, MOST, "", params=params)
        found = np.bincount(hits.query, minlength=len(queries))
        for row in np.flatnonzero(found == MOST).tolist():
            rest = hits.at(hits.query != row)
            whole = self._halves(queries[row : row + 1], params, 0, np.iinfo(np.int64).max)
            hits = joined([rest, *(part.shifted(row) for part in whole)])
        hits = hits.ordered()
        offsets = np.searchsorted(hits.query, np.arange(len(queries) + 1))
        return RangeMatches(offsets, hits.ids, hits.distances)

    def _halves(
        self, query: Codes, params: dict[str, float], low: int, high: int
    ) -> Iterator[Hits]:
        """Yield all hits with ids from low to high, halving what is more than one answer holds."""
        hits = self._hits(query, MOST, f"id >= {low} and id <= {high}", params=params)
        if len(hits.ids) < MOST:
            yield hits
            return
        middle = int(np.partition(hits.ids, MOST // 2)[MOST // 2])
        yield from self._halves(query, params, low, middle - 1)
        yield from self._halves(query, params, middle, high)

    def _nearest(
        self, queries: Codes, k: int, allow: Any, where: Any, *, with_codes: bool = False
    ) -> Hits:
        """Return the k nearest items of each query, by (query, distance, id)."""
        condition = check_where(where)
        if allow is None:
            return self._hits(queries, k, condition, with_codes=with_codes)
        best = joined([])
        for piece in pieces(AllowList(allow).ids()):
            more = self._hits(queries, k, both(condition, piece), with_codes=with_codes)
            best = joined([best, more]).ordered()
            best = best.at(best.rank() < k)
        return best

    def _hits(
        self,
        queries: Codes,
        k: int,
        expression: str,
        *,
        params: dict[str, float] | None = None,
        with_codes: bool = False,
    ) -> Hits:
        """Search for blocks of queries that keep an answer's size in bounds."""
        guarantee = _GUARANTEES[self._consistency]
        found = []
        block = max(1, min(_BLOCK_QUERIES, _BLOCK_ENTRIES // k))
        for start in range(0, len(queries), block):
            request = search_request(
                self.name,
                queries[start : start + block],
                k,
                expression,
                params=PROBES[self._kind] | (params or {}),
                # milvus-lite fails where a search is to return vectors
                with_codes=with_codes and not self._connection.address.lite,
                consistency=self._consistency,
                guarantee=self._written if guarantee is None else guarantee,
            )
            hits = read_hits(self._call("Search", request), self.n_bits // 8)
            found.append(hits.shifted(start))
        return joined(found)

    def _rows_of(self, ids: Ids, fields: list[str]) -> tuple[Ids, Codes]:
        """Return ids and codes of those of these ascending ids that are there, by id."""
        found = [
            self._rows(ids_in(ids[start : start + IDS_AT_ONCE]), fields)
            for start in range(0, len(ids), IDS_AT_ONCE)
        ]
        codes = [np.empty((0, self.n_bits // 8), dtype=np.uint8), *(part for _, part in found)]
        keys = [np.empty(0, dtype=np.int64), *(part for part, _ in found)]
        return np.concatenate(keys), np.concatenate(codes)

    def _pages(self, fields: list[str]) -> Iterator[tuple[Ids, Codes]]:
        """Yield ids and codes of all items, by id, in pages."""
        low = 0
        while True:
            ids, codes = self._rows(f"id >= {low}", fields, MOST)
            if len(ids):
                yield ids, codes
            if len(ids) < MOST:
                return
            low = int(ids[-1]) + 1

    def _rows(
        self, expression: str, fields: list[str], limit: int | None = None
    ) -> tuple[Ids, Codes]:
        answer = self._call("Query", query_request(self.name, expression, fields, limit))
        return read_rows(answer, self.n_bits // 8)

    def _write(self, method: str, request: Any) -> None:
        answer = self._call(method, request)
        with self._writing:
            self._written = max(self._written, int(answer.timestamp))

    def _call(self, method: str, request: Any) -> Any:
        # a server that was restarted has the collection, but not in memory
        return self._connection.call(method, request, reload=self._schema.load)


def _check_most(k: int) -> int:
    if k > MOST:
        raise InputError(f"k must be at most {MOST:,} on Milvus, got {k:,}")
    return k


def _batches(n: int, n_bytes: int, extras: list[bytes] | None) -> Iterator[slice]:
    """Yield stretches of items of bounded rows and bytes, at least one row each."""
    row_bytes = np.full(n, n_bytes + 8, dtype=np.int64)
    if extras is not None:
        row_bytes += np.fromiter(map(len, extras), dtype=np.int64, count=n)
    total = np.cumsum(row_bytes)
    start = 0
    while start < n:
        before = int(total[start - 1]) if start else 0
        stop = int(np.searchsorted(total, before + _BATCH_BYTES, side="right"))
        stop = max(start + 1, min(stop, start + _BATCH_ROWS))
        yield slice(start, stop)
        start = stop
