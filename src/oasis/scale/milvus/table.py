"""The rows of one Milvus collection: written in batches, read by id, searched by distance."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from oasis.codes import Codes
from oasis.index import Ids
from oasis.scale.milvus.connection import Connection
from oasis.scale.milvus.copies import repeated
from oasis.scale.milvus.expressions import IDS_AT_ONCE, ids_in
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
from oasis.scale.milvus.schema import KINDS, PROBES, Schema

MOST = 16_384
"""Maximum number of items that Milvus returns for a query, and of rows in a page."""

GUARANTEES = {"Strong": 0, "Session": None, "Bounded": 2, "Eventually": 1}
"""Guarantee timestamp of a search, per consistency; None: that of the last write."""

_BATCH_ROWS = 20_000
_AT_ONCE = 2
_BATCH_BYTES = 1 << 23
_BLOCK_QUERIES = 1024
_BLOCK_ENTRIES = 1 << 19


class Table:
    """The rows of the collection that a connection's address names. Threads may share it.

    Parameters
    ----------
    connection : Connection
    n_bits : int
    copies : int or None
        Number of stored copies of each bit; None: that of the existing collection.
    kind : str
        A key of `KINDS`.
    consistency : str
        A key of `GUARANTEES`.
    description : str
        Description of a new collection.
    """

    def __init__(
        self,
        connection: Connection,
        n_bits: int,
        *,
        copies: int | None,
        kind: str,
        consistency: str,
        description: str,
    ) -> None:
        self.name = connection.address.name
        self.schema = Schema(connection, n_bits, copies=copies, kind=kind, description=description)
        self._connection = connection
        self._n_bytes = n_bits // 8
        self._kind = kind
        self._consistency = consistency
        self.written = 1
        self._writing = threading.Lock()

    def upsert(self, keys: Ids, codes: Codes, extras: list[bytes] | None) -> None:
        """Write rows in batches; each batch is atomic."""

        def send(part: slice) -> None:
            chosen = None if extras is None else extras[part]
            stored = repeated(codes[part], copies)
            self._write("Upsert", upsert_request(self.name, keys[part], stored, chosen))

        copies = self.schema.copies
        parts = list(batches(len(keys), copies * codes.shape[1], extras))
        # the next batch is prepared while the server works on one; ids are distinct, so the order
        # of batches does not matter
        with ThreadPoolExecutor(min(_AT_ONCE, max(1, len(parts)))) as pool:
            for _ in pool.map(send, parts):
                pass

    def delete(self, expression: str) -> None:
        """Delete the rows that satisfy an expression."""
        self._write("Delete", delete_request(self.name, expression))

    def count(self) -> int:
        """Return the number of rows."""
        return read_count(self._call("Query", query_request(self.name, "", ["count(*)"], None)))

    def rows(
        self, expression: str, fields: list[str], limit: int | None = None
    ) -> tuple[Ids, Codes]:
        """Return ids and codes of the rows that satisfy an expression, by id."""
        answer = self._call("Query", query_request(self.name, expression, fields, limit))
        return read_rows(answer, self._n_bytes, self.schema.copies)

    def rows_of(self, ids: Ids, fields: list[str]) -> tuple[Ids, Codes]:
        """Return ids and codes of the existing rows among these ascending ids, by id."""
        found = [
            self.rows(ids_in(ids[start : start + IDS_AT_ONCE]), fields)
            for start in range(0, len(ids), IDS_AT_ONCE)
        ]
        codes = [np.empty((0, self._n_bytes), dtype=np.uint8), *(part for _, part in found)]
        keys = [np.empty(0, dtype=np.int64), *(part for part, _ in found)]
        return np.concatenate(keys), np.concatenate(codes)

    def pages(self, fields: list[str]) -> Iterator[tuple[Ids, Codes]]:
        """Yield ids and codes of all rows, by id, in pages."""
        low = 0
        while True:
            ids, codes = self.rows(f"id >= {low}", fields, MOST)
            if len(ids):
                yield ids, codes
            if len(ids) < MOST:
                return
            low = int(ids[-1]) + 1

    def nearest(
        self,
        queries: Codes,
        k: int,
        expression: str,
        *,
        params: dict[str, float] | None = None,
        with_codes: bool = False,
    ) -> Hits:
        """Return the k nearest rows of each query, by (query, distance, id).

        Queries and distances include all copies, like stored vectors. Queries are sent in blocks to
        bound the size of an answer.
        """
        guarantee = GUARANTEES[self._consistency]
        found = []
        block = max(1, min(_BLOCK_QUERIES, _BLOCK_ENTRIES // k))
        for start in range(0, len(queries), block):
            request = search_request(
                self.name,
                queries[start : start + block],
                k,
                expression,
                params=PROBES[self._kind] | (params or {}),
                # milvus-lite fails if a search has to return vectors
                with_codes=with_codes and not self._connection.address.lite,
                consistency=self._consistency,
                guarantee=self.written if guarantee is None else guarantee,
            )
            hits = read_hits(self._call("Search", request), self._n_bytes, self.schema.copies)
            found.append(hits.shifted(start))
        return joined(found)

    def within(self, queries: Codes, radius: int) -> Hits:
        """Return every row at distance <= radius of each query, by (query, distance, id).

        Queries, radius and distances count all copies.
        """
        # Milvus's radius is strict
        params = {"radius": float(radius + 1)}
        if lists := KINDS[self._kind].get("nlist"):
            params["nprobe"] = lists
        hits = self.nearest(queries, MOST, "", params=params)
        found = np.bincount(hits.query, minlength=len(queries))
        for row in np.flatnonzero(found == MOST).tolist():
            rest = hits.at(hits.query != row)
            whole = self._halves(queries[row : row + 1], params, 0, np.iinfo(np.int64).max)
            hits = joined([rest, *(part.shifted(row) for part in whole)])
        return hits.ordered()

    def _halves(
        self, query: Codes, params: dict[str, float], low: int, high: int
    ) -> Iterator[Hits]:
        """Yield all hits with ids from low to high; a range with too many hits is halved."""
        hits = self.nearest(query, MOST, f"id >= {low} and id <= {high}", params=params)
        if len(hits.ids) < MOST:
            yield hits
            return
        middle = int(np.partition(hits.ids, MOST // 2)[MOST // 2])
        yield from self._halves(query, params, low, middle - 1)
        yield from self._halves(query, params, middle, high)

    def _write(self, method: str, request: Any) -> None:
        answer = self._call(method, request)
        with self._writing:
            self.written = max(self.written, int(answer.timestamp))

    def _call(self, method: str, request: Any) -> Any:
        # after a restart the server has the collection, but not in memory
        return self._connection.call(method, request, reload=self.schema.load)


def batches(n: int, n_bytes: int, extras: list[bytes] | None) -> Iterator[slice]:
    """Yield slices of items of bounded rows and bytes, at least one row each."""
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
