"""Which rows may be in an answer: removed rows, and allow-lists of ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.errors import InputError
from oasis.index.engine.postings import Ints

Mask = npt.NDArray[np.bool_]

_BITMAP_BYTES_PER_ID = 64


@dataclass(frozen=True)
class RemovedRows:
    """The removed rows, one bit each; never changed, only replaced.

    >>> import numpy as np
    >>> removed = RemovedRows.none().plus(np.array([1, 3]), 4)
    >>> removed.has(np.array([0, 1, 2, 3, 9])).tolist(), removed.count
    ([False, True, False, True, False], 2)
    """

    bits: npt.NDArray[np.uint8]
    count: int

    @classmethod
    def none(cls) -> RemovedRows:
        return cls(np.empty(0, dtype=np.uint8), 0)

    def plus(self, rows: Ints, n_rows: int) -> RemovedRows:
        """Return the same with ``rows`` too; they are distinct, below ``n_rows`` and not in it."""
        bits = np.zeros(-(-n_rows // 8), dtype=np.uint8)
        bits[: len(self.bits)] = self.bits
        np.bitwise_or.at(bits, rows >> 3, (1 << (rows & 7)).astype(np.uint8))
        return RemovedRows(bits, self.count + len(rows))

    def has(self, rows: Ints) -> Mask:
        """Return which rows are removed."""
        if not self.count:
            return np.zeros(rows.shape, dtype=np.bool_)
        at = rows >> 3
        byte = self.bits.take(at, mode="clip")
        marked: Mask = ((byte >> (rows & 7).astype(np.uint8)) & 1).astype(np.bool_)
        return marked & (at < len(self.bits))


class AllowList:
    """An allow-list: a bitmap (``allow[id]`` says whether id is admitted) or an array of ids.

    Ids that the index does not hold are ignored.
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
        self._sorted: npt.NDArray[np.int64] | None = None
        if array.dtype == np.bool_:
            self._bitmap = array
            self.count = int(np.count_nonzero(array))
        elif array.dtype.kind in "iu":
            if array.dtype == np.uint64:
                array = array[array <= np.uint64(np.iinfo(np.int64).max)]
            self._ids = array.astype(np.int64, copy=False)
            self._ids = self._ids[self._ids >= 0]
            self.count = len(self._ids)
        else:
            raise InputError(
                f"allow must hold integers (ids) or bools (indexed by id), got {array.dtype}"
            )

    def ids(self) -> npt.NDArray[np.int64]:
        """Return the admitted ids, ascending and distinct."""
        if self._sorted is None:
            self._sorted = (
                np.unique(self._ids) if self._bitmap is None else np.flatnonzero(self._bitmap)
            )
        return self._sorted

    def admits(self, ids: npt.NDArray[np.int64]) -> Mask:
        """Return which of these ids are admitted."""
        if self._bitmap is None and self._sorted is None:
            # a bitmap of this size is built and read much faster than the ids are sorted
            top = int(self._ids.max(initial=-1))
            if top < _BITMAP_BYTES_PER_ID * max(self.count, 1024):
                bitmap = np.zeros(top + 1, dtype=np.bool_)
                bitmap[self._ids] = True
                self._bitmap = bitmap
        if self._bitmap is not None:
            if not len(self._bitmap):
                return np.zeros(ids.shape, dtype=np.bool_)
            return self._bitmap.take(ids, mode="clip") & (ids < len(self._bitmap))
        admitted = self.ids()
        at = np.minimum(np.searchsorted(admitted, ids), len(admitted) - 1)
        admits: Mask = admitted[at] == ids
        return admits
