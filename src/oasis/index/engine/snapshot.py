"""One snapshot of an index: lengths, marks and maps over buffers that only grow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from oasis.codes import Codes, words
from oasis.errors import InputError
from oasis.index.engine.buffers import Buffer
from oasis.index.engine.compact import CompactIndex, arrange
from oasis.index.engine.expand import Permit
from oasis.index.engine.keys import Keys, SortedRuns, append_run, argsort, code_keys, find
from oasis.index.engine.packed_codes import PackedCodes
from oasis.index.engine.permits import AllowList, Mask, RemovedRows
from oasis.index.engine.postings import Ints, Postings

MAX_ROWS = 2**30
"""Rows are int32 and lists in the pool may take four times their length."""


@dataclass(frozen=True)
class DistinctCodes:
    """Distinct codes and their lists, as a search needs them.

    ``rows`` maps the view's rows to those of the index; None when they are the same.
    """

    codes: Buffer
    n_slots: int
    packed: PackedCodes
    postings: Postings
    n_rows: int
    rows: Ints | None = None

    def parts(self) -> list[Codes]:
        return self.codes.parts(self.n_slots)


@dataclass(frozen=True)
class Snapshot:
    """What a search sees. A snapshot is never changed; adding and removing make the next one.

    The snapshots of an index share their buffers. Entries beyond a snapshot's lengths belong to
    later snapshots. Only one thread at a time may make the next snapshot, from the newest one.
    """

    ids: Buffer
    codes: Buffer
    packed: PackedCodes
    slots: Buffer
    postings: Postings
    n_rows: int
    n_slots: int
    prefix: int
    removed: RemovedRows
    id_runs: SortedRuns
    code_runs: SortedRuns
    n_label_bytes: int
    check_content: Callable[[], None]

    @classmethod
    def of(cls, compact: CompactIndex, *, trusted: bool) -> Snapshot:
        """Start from compact arrays; untrusted ones are checked before their first use."""
        n, s = len(compact.ids), len(compact.codes)
        return cls(
            Buffer(compact.ids),
            Buffer(compact.codes),
            PackedCodes(compact.n_label_bytes),
            Buffer(compact.slots),
            Postings(s, n, compact.offsets, compact.rows),
            n,
            s,
            compact.prefix,
            RemovedRows.none(),
            (compact.id_run,) if n else (),
            (compact.code_run,) if s else (),
            compact.n_label_bytes,
            _nothing if trusted else _Once(compact.check_content),
        )

    @property
    def n_items(self) -> int:
        return self.n_rows - self.removed.count

    @property
    def nbytes(self) -> int:
        """Bytes in use, memory maps included."""
        total: int = (
            8 * self.n_rows
            + self.n_slots * self.codes.base.shape[1]
            + self.packed.nbytes
            + 4 * (self.n_rows - self.prefix)
            + self.postings.nbytes(self.n_slots)
            + len(self.removed.bits)
            + sum(run.nbytes for run in self.id_runs + self.code_runs)
        )
        return total

    def view(self) -> DistinctCodes:
        self.postings.check_base()
        return DistinctCodes(self.codes, self.n_slots, self.packed, self.postings, self.n_rows)

    def slot_of(self, rows: Ints) -> Ints:
        """Return the slot of each row."""
        self.check_content()
        if self.prefix == self.n_rows:
            return rows
        slots = rows.copy()
        late = rows >= self.prefix
        slots[late] = self.slots.take(rows[late] - self.prefix)
        return slots

    def row_of(self, ids: npt.NDArray[np.int64]) -> Ints:
        """Return the row of each id, -1 for ids that are not there."""
        self.check_content()
        rows = find(self.id_runs, ids, self.ids, self.ids.take)
        if self.removed.count:
            there = np.flatnonzero(rows >= 0)
            rows[there[self.removed.has(rows[there])]] = -1
        return rows

    def code_of(self, rows: Ints) -> Codes:
        """Return the codes of rows."""
        codes: Codes = self.codes.take(self.slot_of(rows))
        return codes

    def live_rows(self) -> Ints:
        """Return the rows that are not removed, ascending."""
        rows = np.arange(self.n_rows)
        return rows[~self.removed.has(rows)] if self.removed.count else rows

    def permit(self, allowed: AllowList | None) -> Permit | None:
        """Return a test for rows; None when there is nothing to test."""
        if allowed is None and not self.removed.count:
            return None

        def test(rows: Ints) -> Mask:
            mask = ~self.removed.has(rows)
            return mask if allowed is None else mask & allowed.admits(self.ids.take(rows))

        return test

    def permitted_view(self, allowed: AllowList | None) -> DistinctCodes:
        """Return a view of the permitted rows alone; costs a sort of them."""
        if allowed is not None and allowed.count < self.n_rows // 4:
            rows = self.row_of(allowed.ids())
            rows = np.sort(rows[rows >= 0])
        else:
            rows = self.live_rows()
            if allowed is not None:
                rows = rows[allowed.admits(self.ids.take(rows))]
        used, _, offsets, lists = arrange(self.slot_of(rows))
        postings = Postings(len(used), len(rows), offsets, lists)
        codes = Buffer(self.codes.take(used))
        return DistinctCodes(codes, len(used), PackedCodes(), postings, len(rows), rows)

    def compact(self) -> CompactIndex:
        """Return the same items, compact. Reads nothing that a later snapshot may change."""
        rows = self.live_rows()
        codes = self.codes.whole(self.n_slots)
        return CompactIndex.build(
            self.ids.take(rows), self.slot_of(rows), codes, self.n_label_bytes
        )

    def plus(self, codes: Codes, ids: npt.NDArray[np.int64]) -> Snapshot:
        """Return the next snapshot, with these items; they are checked already."""
        m = len(ids)
        if self.n_rows + m > MAX_ROWS:
            raise InputError(
                f"an index holds at most {MAX_ROWS} rows, this would make {self.n_rows + m}; "
                "see oasis.scale for more"
            )
        order, begin, slots = self._group(codes)
        counts = np.diff(begin, append=m)
        slot_of_row = np.empty(m, dtype=np.int64)
        slot_of_row[order] = np.repeat(slots, counts)
        fresh = np.sort(order[begin[slots >= self.n_slots]])
        n_rows, n_slots = self.n_rows + m, self.n_slots + len(fresh)
        prefix = self.prefix
        if prefix == self.n_rows:
            repeated = np.flatnonzero(slot_of_row != np.arange(self.n_rows, n_rows))
            prefix += int(repeated[0]) if len(repeated) else m

        self.ids.write(self.n_rows, ids)
        new_codes = codes[fresh]
        self.codes.write(self.n_slots, new_codes)
        first = max(self.n_rows, prefix)
        self.slots.write(first - prefix, slot_of_row[first - self.n_rows :])
        id_runs = append_run(self.id_runs, ids, self.n_rows, self.ids, self.ids.take)
        code_runs = self.code_runs
        if len(fresh):
            keys = code_keys(new_codes)
            code_runs = append_run(code_runs, keys, self.n_slots, self.codes, self._code_keys)
        self.postings.append(slots, counts, order + self.n_rows, self.n_slots, n_rows)
        return replace(
            self,
            n_rows=n_rows,
            n_slots=n_slots,
            prefix=prefix,
            id_runs=id_runs,
            code_runs=code_runs,
        )

    def minus(self, rows: Ints) -> Snapshot:
        """Return the next snapshot, without these rows; they are there."""
        snapshot = replace(self, removed=self.removed.plus(rows, self.n_rows))
        # amortised, this costs as much as a few removals, and removed rows no longer slow searches
        if 3 * snapshot.removed.count > snapshot.n_rows:
            return Snapshot.of(snapshot.compact(), trusted=True)
        return snapshot

    def _code_keys(self, slots: npt.NDArray[np.int64]) -> Keys:
        return code_keys(self.codes.take(slots))

    def _group(self, codes: Codes) -> tuple[Ints, Ints, Ints]:
        """Group a chunk by code: rows list by list, where each list begins, and its slot.

        New slots are numbered from ``n_slots`` on, by first row. A code that shares its hash with
        another may get a slot again: this costs some space, but results stay exact: nothing relies
        on slots having different codes.
        """
        self.check_content()
        keys = code_keys(codes)
        order = argsort(keys)
        differs = _changes(codes[order])
        if int(differs.sum()) != 1 + int(np.count_nonzero(np.diff(keys[order]))):
            # codes of one hash may alternate, and must be one group each
            order = np.lexsort((*codes.T, keys))
            differs = _changes(codes[order])
        begin = np.flatnonzero(differs)
        first = order[begin]
        slots = find(self.code_runs, keys[first], self.codes, self._code_keys)
        known = np.flatnonzero(slots >= 0)
        same = (self.codes.take(slots[known]) == codes[first[known]]).all(axis=1)
        slots[known[~same]] = -1
        fresh = np.flatnonzero(slots < 0)
        fresh = fresh[np.argsort(first[fresh])]
        slots[fresh] = self.n_slots + np.arange(len(fresh))
        return order, begin, slots


def _changes(codes: Codes) -> Mask:
    """Return where a code differs from the one before it; the first does."""
    differs = np.ones(len(codes), dtype=np.bool_)
    pairs = words(codes)
    differs[1:] = (pairs[1:] != pairs[:-1]).any(axis=1)
    return differs


class _Once:
    """Call a check until it has passed once."""

    def __init__(self, check: Callable[[], None]) -> None:
        self._check: Callable[[], None] | None = check

    def __call__(self) -> None:
        check = self._check
        if check is not None:
            check()
            self._check = None


def _nothing() -> None:
    """Check nothing: the arrays were made by this process."""
