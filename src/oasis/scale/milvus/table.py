"""One Milvus collection: created or checked, loaded, written, read by id, searched by distance."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oasis.codes import Codes
from oasis.errors import InputError
from oasis.index import Ids
from oasis.scale.milvus.connection import Connection, NotThereError, pymilvus
from oasis.scale.milvus.copies import repeated

ID = "id"
CODE = "code"

KINDS: dict[str, dict[str, int]] = {"BIN_FLAT": {}, "BIN_IVF_FLAT": {"nlist": 128}}
"""The kinds of index, with their build parameters."""

_PROBES: dict[str, dict[str, int]] = {"BIN_FLAT": {}, "BIN_IVF_FLAT": {"nprobe": 32}}

CONSISTENCIES = ("Strong", "Session", "Bounded", "Eventually")

COPIES = 4
"""Default number of stored copies of each bit."""

MOST = 16_384
"""Maximum number of items that Milvus returns for a query, and of rows in a page."""

IDS_AT_ONCE = 8192
"""Maximum number of ids in one expression: about 100 kB of text, parsed in milliseconds."""

_BATCH_ROWS = 20_000
_BATCH_BYTES = 1 << 23
_AT_ONCE = 2
_BLOCK_QUERIES = 1024
_BLOCK_ENTRIES = 1 << 19
_WIDTH = re.compile(r"([0-9]{1,6}) bits, ([0-9]{1,3}) copies")
"""Description of the field of the codes."""


class Hits(NamedTuple):
    """The hits of several queries, concatenated in the order of the queries.

    Attributes
    ----------
    query : (n,) int64, the query of each hit
    ids : (n,) int64
    distances : (n,) int32
    codes : (n, n_bits / 8) uint8, or None if they were not requested
    """

    query: Ids
    ids: Ids
    distances: npt.NDArray[np.int32]
    codes: Codes | None

    def at(self, which: npt.NDArray[Any]) -> Hits:
        """Return some of the hits, by position or by mask."""
        codes = None if self.codes is None else self.codes[which]
        return Hits(self.query[which], self.ids[which], self.distances[which], codes)

    def ordered(self) -> Hits:
        """Return the hits by query, then distance, then id."""
        return self.at(np.lexsort((self.ids, self.distances, self.query)))

    def rank(self) -> npt.NDArray[np.int64]:
        """Return the rank of each hit within its query, from 0; the hits are ordered by query.

        >>> query, nothing = np.array([0, 0, 3]), np.zeros(3, dtype=np.int64)
        >>> Hits(query, nothing, nothing.astype(np.int32), None).rank().tolist()
        [0, 1, 0]
        """
        return np.arange(len(self.query)) - np.searchsorted(self.query, self.query)


def joined(parts: Iterable[Hits]) -> Hits:
    """Return the concatenated hits of several answers."""
    some = [part for part in parts if len(part.ids)]
    if not some:
        nothing = np.empty(0, dtype=np.int64)
        return Hits(nothing, nothing, nothing.astype(np.int32), None)
    codes = [part.codes for part in some if part.codes is not None]
    return Hits(
        np.concatenate([part.query for part in some]),
        np.concatenate([part.ids for part in some]),
        np.concatenate([part.distances for part in some]),
        np.concatenate(codes) if codes else None,
    )


class Table:
    """The collection that a connection's address names. Threads may share it.

    It is created with its index if it does not exist, and checked if it does.

    Parameters
    ----------
    connection : Connection
    n_bits : int
    copies : int or None
        Number of stored copies of each bit; None: 4 in a new collection, else as found.
    kind : str
        A key of `KINDS`.
    consistency : str
        One of `CONSISTENCIES`.
    description : str
        Description of a new collection.

    Attributes
    ----------
    copies : int
        Number of stored copies of each bit.
    description : str
        Description of the existing collection.
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
        self._connection = connection
        self._n_bits = n_bits
        self._words = [f"bits{number}" for number in range(-(-n_bits // 64))]
        self._kind = kind
        self._consistency = consistency
        self._place = f"the Milvus collection {connection.address.name!r} at {connection.address}"
        try:
            found = connection.call("describe_collection")
        except NotThereError:
            self._create(COPIES if copies is None else copies, description)
            # another process may have created it at the same time, with other settings
            found = connection.call("describe_collection")
        self.copies = self._check(found, copies)
        self.description = str(found["description"])
        self._index()
        self._load(connection.timeout)

    def upsert(self, ids: Ids, codes: Codes) -> None:
        """Write rows in batches, each of which is atomic."""
        n = max(1, min(_BATCH_ROWS, _BATCH_BYTES // (self.copies * codes.shape[1] + 8)))

        def send(start: int) -> None:
            part = slice(start, start + n)
            words = np.zeros((len(codes[part]), 8 * len(self._words)), dtype=np.uint8)
            words[:, : codes.shape[1]] = codes[part]
            columns = dict(zip(self._words, words.view(np.int64).T.tolist(), strict=True))
            columns |= {ID: ids[part].tolist()}
            columns |= {CODE: [code.tobytes() for code in repeated(codes[part], self.copies)]}
            rows = [
                dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
            ]
            self._call("upsert", rows)

        # the next batch is prepared while the server works on one; ids are distinct, so the order
        # of batches does not matter
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in pool.map(send, range(0, len(ids), n)):
                pass

    def delete(self, expression: str) -> None:
        """Delete the rows that satisfy an expression."""
        self._call("delete", filter=expression)

    def count(self) -> int:
        """Return the number of rows."""
        return int(self._query("", ["count(*)"])[0]["count(*)"])

    def rows(
        self, expression: str, limit: int | None = None, *, with_codes: bool = False
    ) -> tuple[Ids, Codes]:
        """Return ids and codes of the rows that satisfy an expression, by id.

        The lowest ids come first; without ``with_codes`` there are no codes.
        """
        options = {} if limit is None else {"limit": limit}
        found = list(self._query(expression, [ID, *(self._words if with_codes else [])], **options))
        ids = np.array([row[ID] for row in found], dtype=np.int64)
        codes = self._codes(found if with_codes else [])
        order = np.argsort(ids, kind="stable")
        return ids[order], codes[order] if with_codes else codes

    def rows_of(self, ids: Ids, *, with_codes: bool = False) -> tuple[Ids, Codes]:
        """Return ids and codes of the existing rows among these ascending ids, by id."""
        found = [
            self.rows(ids_in(ids[start : start + IDS_AT_ONCE]), with_codes=with_codes)
            for start in range(0, len(ids), IDS_AT_ONCE)
        ]
        keys = [np.empty(0, dtype=np.int64), *(part for part, _ in found)]
        return np.concatenate(keys), np.concatenate([self._codes([]), *(part for _, part in found)])

    def pages(self) -> Iterator[tuple[Ids, Codes]]:
        """Yield ids and codes of all rows, by id, in pages."""
        low = 0
        while True:
            ids, codes = self.rows(f"id >= {low}", MOST, with_codes=True)
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
        found = []
        block = max(1, min(_BLOCK_QUERIES, _BLOCK_ENTRIES // k))
        for start in range(0, len(queries), block):
            answer = self._call(
                "search",
                [code.tobytes() for code in queries[start : start + block]],
                filter=expression,
                limit=k,
                output_fields=self._words if with_codes else None,
                search_params={
                    "metric_type": "HAMMING",
                    "params": _PROBES[self._kind] | (params or {}),
                },
                anns_field=CODE,
                consistency_level=self._consistency,
            )
            codes = None
            if with_codes:
                codes = self._codes([hit["entity"] for hits in answer for hit in hits])
            counts = [len(hits.ids) for hits in answer]
            found.append(
                Hits(
                    start + np.repeat(np.arange(len(counts)), counts),
                    np.array([key for hits in answer for key in hits.ids], dtype=np.int64),
                    np.array([d for hits in answer for d in hits.distances]).astype(np.int32),
                    codes,
                )
            )
        return joined(found).ordered()

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
            hits = joined([rest, *(part._replace(query=part.query + row) for part in whole)])
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

    def _codes(self, rows: Sequence[Mapping[str, int]]) -> Codes:
        """Return the codes of rows."""
        words = [[row[name] for row in rows] for name in self._words]
        stored = np.ascontiguousarray(np.array(words, dtype=np.int64).T).view(np.uint8)
        return stored.reshape(len(rows), 8 * len(words))[:, : self._n_bits // 8]

    def _query(self, expression: str, fields: list[str], **options: Any) -> Any:
        return self._call(
            "query",
            filter=expression,
            output_fields=fields,
            consistency_level="Strong",
            **options,
        )

    def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        # after a restart the server has the collection, but not in memory
        return self._connection.call(method, *arguments, reload=self._load, **options)

    def _load(self, within: float) -> None:
        """Let the server load the collection, and wait for it, at most ``within`` seconds."""
        self._connection.call("load_collection", within=within)

    def _create(self, copies: int, description: str) -> None:
        library = pymilvus()
        schema = library.MilvusClient.create_schema(auto_id=False, description=description)
        schema.add_field(ID, library.DataType.INT64, is_primary=True)
        schema.add_field(
            CODE,
            library.DataType.BINARY_VECTOR,
            dim=self._n_bits * copies,
            description=f"{self._n_bits} bits, {copies} copies",
        )
        for name in self._words:
            schema.add_field(name, library.DataType.INT64)
        self._connection.call(
            "create_collection", schema=schema, num_shards=1, consistency_level="Strong"
        )

    def _check(self, found: dict[str, Any], wanted: int | None) -> int:
        """Raise if a collection is not as expected; return its number of copies of each bit."""
        types = pymilvus().DataType
        fields = {each["name"]: each for each in found["fields"]}
        expected = {ID: types.INT64, CODE: types.BINARY_VECTOR}
        held_types = {name: each["type"] for name, each in fields.items()}
        if (
            not expected.items() <= held_types.items()
            or not fields[ID].get("is_primary")
            or fields[ID].get("auto_id")
        ):
            held = ", ".join(f"{name} ({types(f['type']).name})" for name, f in fields.items())
            raise InputError(
                f"{self._place} is not one of ours: it has the fields {held}; expected {ID} "
                f"(INT64, primary), {CODE} (BINARY_VECTOR) and the bits; choose another name"
            )
        dim = int(fields[CODE]["params"]["dim"])
        told = _WIDTH.fullmatch(fields[CODE]["description"])
        n_bits, copies = (0, 0) if told is None else (int(told[1]), int(told[2]))
        words = sum(name.startswith("bits") for name in fields)
        if n_bits * copies != dim or words != -(-n_bits // 64):
            raise InputError(
                f"{self._place} says {fields[CODE]['description']!r} of vectors of {dim} bits; "
                "choose another name"
            )
        if n_bits != self._n_bits:
            raise InputError(
                f"{self._place} holds codes of {n_bits} bits, expected {self._n_bits}; "
                f"open it with n_bits={n_bits}, or choose another name"
            )
        if wanted not in (None, copies):
            raise InputError(
                f"{self._place} stores each bit {copies} times, expected {wanted}; "
                f"open it with copies={copies}, or choose another name"
            )
        return copies

    def _index(self) -> None:
        """Create the index of the codes, or check the existing one."""
        if not self._connection.call("list_indexes"):
            params = pymilvus().MilvusClient.prepare_index_params()
            params.add_index(
                CODE,
                index_type=self._kind,
                index_name=CODE,
                metric_type="HAMMING",
                params=KINDS[self._kind],
            )
            self._connection.call("create_index", params, sync=False)
            return
        held = self._connection.call("describe_index", CODE)
        kind, metric = held.get("index_type"), held.get("metric_type")
        if (kind, metric) != (self._kind, "HAMMING"):
            raise InputError(
                f"{self._place} has an index of kind {kind} by {metric}, expected {self._kind} by "
                f"HAMMING; open it with kind={kind!r}, or choose another name"
            )


def ids_in(ids: Ids) -> str:
    """Return the expression that matches these ids.

    >>> ids_in(np.array([3, 1]))
    'id in [3, 1]'
    """
    return f"id in {ids.tolist()}"


def pieces(ids: Ids) -> Iterator[str]:
    """Yield disjoint expressions that together match these ascending ids.

    Long runs of consecutive ids become ranges, the others lists.

    >>> list(pieces(np.array([3, 7])))
    ['id in [3, 7]']
    >>> list(pieces(np.arange(100_000)))
    ['id >= 0 and id <= 99999']
    """
    begin = np.flatnonzero(np.diff(ids, prepend=-2) != 1)
    end = np.append(begin[1:], len(ids))
    long = np.flatnonzero(end - begin >= IDS_AT_ONCE)
    alone = np.ones(len(ids), dtype=np.bool_)
    for start, stop in zip(begin[long].tolist(), end[long].tolist(), strict=True):
        alone[start:stop] = False
        yield f"id >= {ids[start]} and id <= {ids[stop - 1]}"
    rest = ids[alone]
    for start in range(0, len(rest), IDS_AT_ONCE):
        yield ids_in(rest[start : start + IDS_AT_ONCE])
