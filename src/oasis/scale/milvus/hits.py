"""The hits of several queries as flat arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oasis.codes import Codes
from oasis.index import Ids


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

    def shifted(self, start: int) -> Hits:
        """Return the same hits for queries that are numbered from ``start``."""
        return self._replace(query=self.query + start)

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
