"""The arrays of a compact index: what a file holds, and what an index starts from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oasis.codes import Codes
from oasis.errors import FormatError
from oasis.index.engine.keys import STRIDE, SortedRun, code_keys, sort_run, sorted_order
from oasis.index.engine.postings import ranges

Ints32 = npt.NDArray[np.int32]


@dataclass(frozen=True)
class CompactIndex:
    """An index without removed rows and without growth.

    Attributes
    ----------
    ids : (n,) int64, in order of insertion
    codes : (s, n_bytes) uint8, in order of first insertion
    prefix : int
        Row i is the first of slot i for every i below this.
    slots : (n - prefix,) int32: the slot of each later row
    offsets, rows : (s + 1,) and (n,) int32: the rows of each slot; None when s = n
    id_order, id_samples : (n,) int32 and int64; None when ids ascend
    code_order, code_samples : (s,) int32 and uint64; see `oasis.index.engine.keys`
    n_label_bytes : int
        Number of bytes of a code that are label bits; 0 if codes have none.
    """

    ids: npt.NDArray[np.int64]
    codes: Codes
    prefix: int
    slots: Ints32
    offsets: Ints32 | None
    rows: Ints32 | None
    id_order: Ints32 | None
    id_samples: npt.NDArray[np.int64] | None
    code_order: Ints32
    code_samples: npt.NDArray[np.uint64]
    n_label_bytes: int = 0

    @classmethod
    def empty(cls, n_bytes: int, n_label_bytes: int = 0) -> CompactIndex:
        """Return the arrays of an empty index."""
        none = np.empty(0, np.int64)
        return cls.build(none, none, np.empty((0, n_bytes), np.uint8), n_label_bytes)

    @classmethod
    def build(
        cls,
        ids: npt.NDArray[np.int64],
        slots: npt.NDArray[np.int64],
        codes: Codes,
        n_label_bytes: int = 0,
    ) -> CompactIndex:
        """Arrange items in order of insertion; ``slots`` says which of ``codes`` each one has.

        Codes that no item has are dropped, the others are numbered anew by their first items.
        """
        n = len(ids)
        used, slots, offsets, rows = arrange(slots)
        codes = codes[used]
        repeated = np.flatnonzero(slots != np.arange(n))
        prefix = int(repeated[0]) if len(repeated) else n
        id_run = sort_run(ids, 0, stored=True)
        code_order, code_samples = sorted_order(code_keys(codes), 0)
        return cls(
            ids,
            codes,
            prefix,
            slots[prefix:].astype(np.int32),
            offsets,
            rows,
            id_run.order,
            id_run.samples,
            code_order,
            code_samples,
            n_label_bytes,
        )

    @property
    def id_run(self) -> SortedRun:
        return SortedRun(0, len(self.ids), self.id_order, self.id_samples)

    @property
    def code_run(self) -> SortedRun:
        return SortedRun(0, len(self.codes), self.code_order, self.code_samples)

    def check_shapes(self) -> None:
        """Check the lengths of all arrays against one another; touches no content."""
        n, s = len(self.ids), len(self.codes)
        expected = {
            "slots": (self.slots, n - self.prefix),
            "offsets": (self.offsets, s + 1),
            "rows": (self.rows, n),
            "id_order": (self.id_order, n),
            "id_samples": (self.id_samples, -(-n // STRIDE)),
            "code_order": (self.code_order, s),
            "code_samples": (self.code_samples, -(-s // STRIDE)),
        }
        wrong = [
            f"{name} has {len(array)} entries, expected {length}"
            for name, (array, length) in expected.items()
            if array is not None and len(array) != length
        ]
        if (
            wrong
            or not 0 <= self.prefix <= s <= n
            or (self.prefix < n) != (s < n)
            or (self.offsets is None) != (s == n)
            or (self.rows is None) != (s == n)
            or (self.id_order is None) != (self.id_samples is None)
        ):
            detail = wrong[0] if wrong else f"{n} items, {s} codes, prefix {self.prefix}"
            raise FormatError(f"the index file is damaged: its parts do not fit ({detail})")

    def check_content(self) -> None:
        """Check that every position stored for adding and removing lies in range."""
        n, s = len(self.ids), len(self.codes)
        for name, array, limit in (
            ("slots", self.slots, s),
            ("id_order", self.id_order, n),
            ("code_order", self.code_order, s),
        ):
            if (
                array is not None
                and len(array)
                and (int(array.min()) < 0 or int(array.max()) >= limit)
            ):
                raise FormatError(f"the index file is damaged: {name} points outside of the index")


def arrange(
    slots: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Ints32 | None, Ints32 | None]:
    """Group rows by slot, and number the slots anew in order of their first rows.

    Returns the old numbers in the new order, the new slot of every row, and the offsets and rows
    of the lists (None when every slot has one row). Cost: one sort of the rows.

    >>> import numpy as np
    >>> used, slots, offsets, rows = arrange(np.array([7, 5, 7]))
    >>> used.tolist(), slots.tolist(), offsets.tolist(), rows.tolist()
    ([7, 5], [0, 1, 0], [0, 2, 3], [0, 2, 1])
    """
    n = len(slots)
    if bool((slots == np.arange(n)).all()):
        return slots, slots, None, None
    both = np.sort((slots << 32) | np.arange(n))
    row = both & 0xFFFFFFFF
    both >>= 32
    begin = np.flatnonzero(np.diff(both, prepend=-1))
    counts = np.diff(begin, append=n)
    order = np.argsort(row[begin])
    used = both[begin[order]]
    if len(used) == n:
        return used, np.arange(n), None, None
    counts = counts[order]
    row = row[ranges(begin[order], counts)]
    number = np.empty(n, dtype=np.int64)
    number[row] = np.repeat(np.arange(len(used)), counts)
    offsets = np.zeros(len(used) + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    return used, number, offsets, row.astype(np.int32)
