"""What an index of packed codes is asked and what it answers, wherever it keeps them.

Every index checks its arguments with the functions of this file, so all refuse the same things in
the same words.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from oasis.codes import Codes
from oasis.errors import InputError

Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_BITMAP_BYTES_PER_ID = 64


class Matches(NamedTuple):
    """The answer to a search: row i holds the matches of query i, best first.

    Padded with id -1 (and distance -1, or score -inf) where fewer than k items are there.
    """

    ids: Ids
    distances: npt.NDArray[np.int32]


class ScoredMatches(NamedTuple):
    """As `Matches`, with scores: higher is better."""

    ids: Ids
    scores: npt.NDArray[np.float32]


class RangeMatches(NamedTuple):
    """The answer to a range search: query i has entries ``offsets[i]`` to ``offsets[i + 1]``."""

    offsets: Ids
    ids: Ids
    distances: npt.NDArray[np.int32]


class CodeIndex(Protocol):
    """Packed codes by id; arguments and answers as `HammingIndex` has them.

    Distances and scores are exact in every index. `HammingIndex` answers by (distance, insertion);
    another one may choose among the items tied at the k-th distance, and may answer an asymmetric
    search from candidates, if it says so.

    >>> from oasis.index import HammingIndex
    >>> index: CodeIndex = HammingIndex(n_bits=16)
    >>> index.n_bits, len(index)
    (16, 0)
    """

    @property
    def n_bits(self) -> int:
        """Length of a code."""

    def __len__(self) -> int: ...

    def add(self, codes: Codes, ids: Any) -> None:
        """Add items: (n, n_bits / 8) codes and n ids."""

    def remove(self, ids: Any) -> None:
        """Remove items by id; every id must be there."""

    def search(self, codes: Codes, k: int, allow: Any = None) -> Matches:
        """Return the k nearest items of each query by Hamming distance."""

    def search_asymmetric(self, projections: Any, k: int, allow: Any = None) -> ScoredMatches:
        """Return the k items whose signs have the largest inner product with each query."""

    def range_search(self, codes: Codes, radius: int) -> RangeMatches:
        """Return every item at distance <= radius of each query."""

    def codes_of(self, ids: Any) -> Codes:
        """Return the codes of items by id; every id must be there."""

    def items(self) -> tuple[Codes, Ids]:
        """Return the codes and ids of all items."""


class AllowList:
    """An allow-list: a bitmap (``allow[id]`` says whether id is admitted) or an array of ids.

    Ids that the index does not hold are ignored.

    >>> import numpy as np
    >>> allowed = AllowList([7, 3, 7])
    >>> allowed.ids().tolist(), allowed.admits(np.array([3, 4])).tolist()
    ([3, 7], [True, False])
    """

    def __init__(self, allow: Any) -> None:
        array = np.asarray(allow)
        if array.ndim != 1:
            raise InputError(
                "allow must be one-dimensional (ids, or a bool array indexed by id), "
                f"got shape {array.shape}"
            )
        if array.size == 0:
            array = np.empty(0, dtype=np.int64)
        self._bitmap: Mask | None = None
        self._ids = np.empty(0, dtype=np.int64)
        if array.dtype == np.bool_:
            self._bitmap = array
            self.count = int(np.count_nonzero(array))
        elif array.dtype.kind in "iu":
            if array.dtype == np.uint64:
                array = array[array <= np.uint64(np.iinfo(np.int64).max)]
            ids = array.astype(np.int64, copy=False)
            ids = ids[ids >= 0]
            self.count = len(ids)
            top = int(ids.max(initial=-1))
            if top < _BITMAP_BYTES_PER_ID * max(len(ids), 1024):
                # a bitmap of this size is built and read much faster than ids are sorted
                self._bitmap = np.zeros(top + 1, dtype=np.bool_)
                self._bitmap[ids] = True
            else:
                self._ids = np.unique(ids)
        else:
            raise InputError(
                f"allow must hold integers (ids) or bools (indexed by id), got {array.dtype}"
            )

    def ids(self) -> Ids:
        """Return the admitted ids, ascending and distinct."""
        return self._ids if self._bitmap is None else np.flatnonzero(self._bitmap)

    def admits(self, ids: Ids) -> Mask:
        """Return which of these ids are admitted."""
        if self._bitmap is None:
            at = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
            admits: Mask = self._ids[at] == ids
            return admits
        if not len(self._bitmap):
            return np.zeros(ids.shape, dtype=np.bool_)
        return self._bitmap.take(ids, mode="clip") & (ids < len(self._bitmap))


def check_k(k: Any) -> int:
    """Return k as an int, or refuse it: an integer of at least 1.

    >>> check_k(10)
    10
    """
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise InputError(f"k must be an integer of at least 1, got {k!r}")
    return int(k)


def check_radius(radius: Any) -> int:
    """Return a radius in bits as an int, or refuse it: an integer of at least 0.

    >>> check_radius(0)
    0
    """
    if isinstance(radius, bool) or not isinstance(radius, (int, np.integer)) or radius < 0:
        raise InputError(f"radius must be an integer of at least 0, got {radius!r}")
    return int(radius)


def check_ids(ids: Any) -> Ids:
    """Return ids as an (n,) int64 array, or refuse them: integers from 0 to 2**63 - 1.

    >>> check_ids([3, 1])
    array([3, 1])
    """
    array = np.asarray(ids)
    if array.ndim != 1:
        raise InputError(f"ids must be one-dimensional, got shape {array.shape}")
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.dtype.kind not in "iu":
        raise InputError(f"ids must be integers, got {array.dtype}")
    if int(array.min()) < 0 or int(array.max()) > np.iinfo(np.int64).max:
        bad = int(array.min()) if int(array.min()) < 0 else int(array.max())
        raise InputError(f"ids must lie between 0 and 2**63 - 1, got {bad}")
    return array.astype(np.int64, copy=False)


def check_distinct(ids: Ids) -> None:
    """Refuse ids of which one is given more than once.

    >>> import numpy as np
    >>> check_distinct(np.array([3, 1]))
    """
    if bool((ids[1:] > ids[:-1]).all()):
        return
    ordered = np.sort(ids)
    repeated = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(repeated):
        raise InputError(f"id {int(ordered[repeated[0]])} is given more than once")


def check_ids_of(codes: Codes, ids: Any) -> Ids:
    """Return the ids of items to be added: as many as there are codes, all distinct.

    >>> import numpy as np
    >>> check_ids_of(np.zeros((2, 8), dtype=np.uint8), [3, 1])
    array([3, 1])
    """
    keys = check_ids(ids)
    if len(keys) != len(codes):
        raise InputError(f"got {len(codes)} codes and {len(keys)} ids; expected as many")
    check_distinct(keys)
    return keys


def unknown_ids(ids: Ids) -> InputError:
    """Return the error for ids that are not in the index.

    >>> import numpy as np
    >>> str(unknown_ids(np.array([7, 9])))
    'id 7 and 1 more is not in the index'
    """
    more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
    return InputError(f"id {int(ids[0])}{more} is not in the index")


def check_projections(projections: Any, n_bits: int) -> npt.NDArray[Any]:
    """Return real-valued queries as a (q, n_bits) array, or refuse them by type or shape.

    >>> check_projections([[0.5] * 8], 8).shape
    (1, 8)
    """
    array = np.asarray(projections)
    if array.dtype.kind not in "fiub":
        raise InputError(f"projections must be real numbers, got {array.dtype}")
    if array.ndim != 2 or array.shape[1] != n_bits:
        raise InputError(f"projections must have shape (q, {n_bits}), got {array.shape}")
    return array
