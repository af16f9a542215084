"""MilvusIndex: the methods of `HammingIndex` over a Milvus collection."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import numpy as np

from oasis.codes import Codes, check_codes, check_n_bits
from oasis.errors import InputError
from oasis.index import AllowList, Ids, Matches, Projections, RangeMatches, ScoredMatches
from oasis.index.protocol import (
    check_distinct,
    check_ids,
    check_ids_of,
    check_k,
    check_projections,
    check_radius,
    unknown_ids,
)
from oasis.scale.milvus.address import Address
from oasis.scale.milvus.connection import Connection
from oasis.scale.milvus.copies import query_codes, repeated
from oasis.scale.milvus.table import (
    CONSISTENCIES,
    IDS_AT_ONCE,
    KINDS,
    MOST,
    Hits,
    Table,
    ids_in,
    joined,
    pieces,
)

_TIMEOUT = 10.0
_FEWEST_CANDIDATES = 2000
_MOST_COPIES = 64


class MilvusIndex:
    """Nearest-neighbour search over packed codes that live in a Milvus collection.

    It has the methods of `HammingIndex` and gives the same answers except for ties: distances are
    exact; among the items tied at the k-th distance the engine chooses; the result is ordered by
    distance, then id. The collection is created if it does not exist, and checked if it does.

    Writes are upserts: it is safe to send the same items again, also after a fault that leaves it
    unknown whether they arrived. Threads may share an index.

    Parameters
    ----------
    uri : str or path-like
        "milvus://host:port/name", "http://host:port" or "https://host:port", or the path of a
        milvus-lite file. Options follow a "?": ``timeout=60``, ``tls=1``, ``tls_ca=PATH``, and
        ``token_env=VARIABLE`` or ``token_file=PATH``, which name where the token is, or the
        password of the user in "milvus://user@host/name".
    n_bits : int
        Length of a code, a multiple of 8.
    name : str
        The collection's name, if ``uri`` has none.
    timeout : float, optional
        Seconds until a request that keeps failing ends with an `EngineError`. In a call of several
        requests it applies to each of them. Default: the option of ``uri``, else 10.
    consistency : {"Strong", "Session", "Bounded", "Eventually"}
        Which writes a search must see: with "Strong" all earlier ones, with "Session" those of this
        object. The others are faster and may miss the newest items.
    kind : {"BIN_FLAT", "BIN_IVF_FLAT"}
        Milvus's index. BIN_FLAT compares all codes. BIN_IVF_FLAT, on a server only, compares a
        quarter of them; it is faster and misses some of the nearest.
    copies : int, optional
        Number of stored copies of each bit. A query can weigh bits by ``copies`` + 1 levels, so
        asymmetric searches have a higher recall; memory and search time grow with it. Default: 4
        for a new collection, else that of the existing one.
    oversample : int, optional
        An asymmetric search rescores ``oversample * k`` candidates, at most 16,384. Default: 10 k,
        and at least 2,000.
    description : str
        Description of a new collection, such as its owner.

    Attributes
    ----------
    copies : int
        Number of stored copies of each bit.
    description : str
        Description of the collection, whoever created it.

    Examples
    --------
    >>> import numpy as np, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "codes.db"
    >>> with MilvusIndex(path, n_bits=8) as index:  # doctest: +SKIP
    ...     index.add(np.array([[0b0001], [0b0111]], dtype=np.uint8), [10, 20])
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
        copies: int | None = None,
        oversample: int | None = None,
        description: str = "",
    ) -> None:
        self.n_bits = check_n_bits(n_bits)
        address = Address.parse(uri, name)
        if timeout is None:
            timeout = _TIMEOUT if address.timeout is None else address.timeout
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
            raise InputError(f"timeout must be a number of seconds above 0, got {timeout!r}")
        for given, known, what in (
            (consistency, CONSISTENCIES, "consistency"),
            (kind, KINDS, "kind"),
        ):
            if given not in known:
                raise InputError(f"{what} must be one of {', '.join(known)}, got {given!r}")
        if address.lite and kind != "BIN_FLAT":
            raise InputError(f"milvus-lite has BIN_FLAT only, got {kind!r}; use a Milvus server")
        if oversample is not None:
            _check_positive(oversample, "oversample")
        if copies is not None and _check_positive(copies, "copies") > _MOST_COPIES:
            raise InputError(f"copies must be at most {_MOST_COPIES}, got {copies}")
        self.name = address.name
        self._oversample = oversample
        self._connection = Connection(address, float(timeout))
        try:
            self._table = Table(
                self._connection,
                self.n_bits,
                copies=copies,
                kind=kind,
                consistency=consistency,
                description=description,
            )
        except BaseException:
            self._connection.close()
            raise

    @property
    def copies(self) -> int:
        return self._table.copies

    @property
    def description(self) -> str:
        return self._table.description

    def __len__(self) -> int:
        return self._table.count()

    def __repr__(self) -> str:
        place = self._connection.address
        return f"<MilvusIndex: {self.name!r} at {place}, codes of {self.n_bits} bits>"

    def __contains__(self, item: object) -> bool:
        if not isinstance(item, (int, np.integer)) or not 0 <= item <= np.iinfo(np.int64).max:
            return False
        return bool(len(self._table.rows(ids_in(np.array([item], dtype=np.int64)))[0]))

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
        """Close the connection; the items stay in Milvus. Closing again does nothing."""
        self._connection.close()

    def add(self, codes: Codes, ids: Any) -> None:
        """Add items, or replace items with the same ids (upsert).

        Everything is checked before anything is sent. Items are sent in batches, each of which is
        atomic. After an error the earlier batches are stored, and the call can be repeated.

        Parameters
        ----------
        codes : (n, n_bits / 8) uint8
        ids : (n,) integers, >= 0, distinct
        """
        codes = check_codes(codes, self.n_bits)
        keys = check_ids_of(codes, ids)
        self._table.upsert(keys, codes)

    def remove(self, ids: Any) -> None:
        """Remove items by id; every id must exist, and be only once in ``ids``.

        If one is unknown, nothing is removed. A removed id may be added again.
        """
        keys = check_ids(ids)
        check_distinct(keys)
        here, _ = self._table.rows_of(keys)
        if len(here) != len(keys):
            raise unknown_ids(keys[~np.isin(keys, here)])
        self.discard(keys)

    def discard(self, ids: Any) -> None:
        """Remove items by id; unknown ids are ignored."""
        keys = check_ids(ids)
        for start in range(0, len(keys), IDS_AT_ONCE):
            self._table.delete(ids_in(keys[start : start + IDS_AT_ONCE]))

    def discard_from(self, first: int) -> None:
        """Remove every item whose id is ``first`` or higher."""
        (low,) = check_ids([first]).tolist()
        self._table.delete(f"id >= {low}")

    def blocks(self) -> Iterator[tuple[Ids, Codes]]:
        """Yield ids and codes of all items, ascending by id, in blocks of up to 16,384."""
        return self._table.pages()

    def codes_of(self, ids: Any) -> Codes:
        """Return the (n, n_bits / 8) codes of items by id; every id must exist."""
        keys = check_ids(ids)
        known, codes = self._table.rows_of(np.unique(keys), with_codes=True)
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

        Distances are exact. Among the items tied at the k-th distance the engine chooses; equal
        distances are ordered by id.

        Parameters
        ----------
        codes : (q, n_bits / 8) uint8
        k : int
            From 1 to 16,384; if it exceeds the number of items, the answer is padded with -1.
        allow : array of ids, or bool array indexed by id, optional
            Allow-list: return only these items. Costs one search per 8,192 ids that are not part of
            a long run of consecutive ids.
        where : str, optional
            Return only items that satisfy this Milvus expression over ``id``, as ``id < 100``.

        Returns
        -------
        Matches
            ids (q, k) int64 and distances (q, k) int32, in bits.
        """
        queries = check_codes(codes, self.n_bits)
        k = _check_most(check_k(k))
        hits = self._nearest(repeated(queries, self.copies), k, allow, where)
        ids = np.full((len(queries), k), -1, dtype=np.int64)
        distances = np.full((len(queries), k), -1, dtype=np.int32)
        place = hits.query, hits.rank()
        ids[place], distances[place] = hits.ids, hits.distances // self.copies
        return Matches(ids, distances)

    def search_asymmetric(
        self, projections: Any, k: int, allow: Any = None, where: Any = None
    ) -> ScoredMatches:
        """Return approximately the k items whose signs have the largest inner product with a query.

        The candidates are the items with the largest inner product with the query quantised to
        ``copies`` + 1 levels (`oasis.scale.milvus.copies`); with one copy these are the nearest to
        its signs. Their number is set by ``oversample``. They are rescored exactly, as in
        `HammingIndex.search_asymmetric`, and equal scores are ordered by id. So scores are exact,
        and the answer is exact if there are no more items than candidates; otherwise some of the
        best may be missing (docs/scale.md has the recall).

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
        n = max(10 * k, _FEWEST_CANDIDATES) if self._oversample is None else k * self._oversample
        coded = query_codes(values, self.copies)
        hits = self._nearest(coded, min(n, MOST), allow, where, with_codes=True)
        codes = self.codes_of(hits.ids) if hits.codes is None else hits.codes
        score = queries.score(hits.query, codes)
        order = np.lexsort((hits.ids, -score, hits.query))
        # the hits of a query stay in the same range, so positions within it remain valid
        rank = hits.rank()
        order, query, rank = order[rank < k], hits.query[rank < k], rank[rank < k]
        ids = np.full((len(queries), k), -1, dtype=np.int64)
        scores = np.full((len(queries), k), -np.inf, dtype=np.float32)
        ids[query, rank], scores[query, rank] = hits.ids[order], score[order]
        return ScoredMatches(ids, scores)

    def range_search(self, codes: Codes, radius: int) -> RangeMatches:
        """Return every item at distance <= radius of each query, by distance, then id.

        All items are compared, also with BIN_IVF_FLAT. A query with 16,384 hits or more takes
        several searches, by ranges of ids.

        Returns
        -------
        RangeMatches
            offsets (q + 1,), ids and distances; query i has the hits ``offsets[i]:offsets[i + 1]``.
        """
        queries = check_codes(codes, self.n_bits)
        reach = self.copies * min(check_radius(radius), self.n_bits)
        hits = self._table.within(repeated(queries, self.copies), reach)
        offsets = np.searchsorted(hits.query, np.arange(len(queries) + 1))
        return RangeMatches(offsets, hits.ids, hits.distances // self.copies)

    def _nearest(
        self, queries: Codes, k: int, allow: Any, where: Any, *, with_codes: bool = False
    ) -> Hits:
        """Return the k nearest items of each query, by (query, distance, id)."""
        condition = _check_where(where)
        if allow is None:
            return self._table.nearest(queries, k, condition, with_codes=with_codes)
        best = joined([])
        for piece in pieces(AllowList(allow).ids()):
            both = f"({condition}) and ({piece})" if condition else piece
            more = self._table.nearest(queries, k, both, with_codes=with_codes)
            best = joined([best, more]).ordered()
            best = best.at(best.rank() < k)
        return best


def _check_positive(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{name} must be an integer of at least 1, got {value!r}")
    return value


def _check_most(k: int) -> int:
    if k > MOST:
        raise InputError(f"k must be at most {MOST:,} on Milvus, got {k:,}")
    return k


def _check_where(where: Any) -> str:
    """Return a caller's expression, or an empty one for None; blank text is refused."""
    if where is None:
        return ""
    if not isinstance(where, str) or not where.strip():
        raise InputError(
            f"where must be a Milvus expression over id, such as id < 100, got {where!r}"
        )
    return where
