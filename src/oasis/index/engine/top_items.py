"""One search: scan the distinct codes, expand them, and prove the answer or look again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.index.engine.expand import expand
from oasis.index.engine.permits import AllowList
from oasis.index.engine.postings import Ints
from oasis.index.engine.snapshot import DistinctCodes, Snapshot

# what things cost in nanoseconds, roughly, to choose between two ways that are both exact
_SCAN_CODE = 1
_LOOK_AT_ROW = 150
_GATHER_ROW = 500

_MOST_LOOKED_AT = 1 << 17

Scan = Callable[[DistinctCodes, Ints, int], tuple[npt.NDArray[Any], Ints]]
"""(view, which queries, how many) -> keys (lower is better) and slots, by (key, slot)."""


class TopItems:
    """The k first items, by (key, row), of blocks of queries in one snapshot.

    Attributes
    ----------
    n_looked_at : int
        Number of slots, and of rows of each, that a query reads first: a block's temporary arrays
        grow with it.
    """

    def __init__(
        self, snapshot: Snapshot, scan: Scan, q: int, k: int, allowed: AllowList | None
    ) -> None:
        self._snapshot = snapshot
        self._scan = scan
        self._k = k
        self._allowed = allowed
        self._permit = snapshot.permit(allowed)
        self._permitted: DistinctCodes | None = None
        n = snapshot.n_items if allowed is None else min(snapshot.n_items, allowed.count)
        self.n_looked_at = k
        self._apart = False
        if self._permit is not None:
            # enough rows that k of them should be permitted, and some to spare
            self.n_looked_at = int(1.5 * k * snapshot.n_rows / n) + 16
            # or else the permitted rows alone, where they are few or the queries many
            together = q * (_SCAN_CODE * snapshot.n_slots + _LOOK_AT_ROW * self.n_looked_at)
            self._apart = allowed is not None and (
                _GATHER_ROW * n < together or self.n_looked_at > max(_MOST_LOOKED_AT, 4 * k)
            )
        if self._apart:
            self.n_looked_at = k

    def __call__(self, which: Ints) -> tuple[Ints, npt.NDArray[Any]]:
        if self._apart:
            return self._among_permitted(which)
        view = self._snapshot.view()
        s = min(self.n_looked_at, view.n_slots)
        keys, slots = self._scan(view, which, s)
        found = expand(
            view.postings,
            slots,
            keys,
            self._k,
            n_rows=view.n_rows,
            complete=s == view.n_slots,
            permit=self._permit,
            target=self.n_looked_at,
        )
        if found.exact is not None and not found.exact.all():
            rest = np.flatnonzero(~found.exact)
            found.rows[rest], found.keys[rest] = self._among_permitted(which[rest])
        return found.rows, found.keys

    def _among_permitted(self, which: Ints) -> tuple[Ints, npt.NDArray[Any]]:
        if self._permitted is None:
            self._permitted = self._snapshot.permitted_view(self._allowed)
        view = self._permitted
        if not view.n_rows or view.rows is None:
            blank = np.full((len(which), self._k), -1, dtype=np.int64)
            return blank, np.zeros(blank.shape)
        s = min(self._k, view.n_slots)
        keys, slots = self._scan(view, which, s)
        found = expand(
            view.postings,
            slots,
            keys,
            self._k,
            n_rows=view.n_rows,
            complete=s == view.n_slots,
            permit=None,
            target=self._k,
        )
        rows = np.where(found.rows >= 0, view.rows[np.maximum(found.rows, 0)], -1)
        return rows, found.keys
