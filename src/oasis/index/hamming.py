"""HammingIndex: exact search over packed codes."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.codes import Codes, check_codes, check_n_bits
from oasis.errors import InputError
from oasis.index import file
from oasis.index.label_groups import ranges
from oasis.index.projections import Ints, Projections
from oasis.index.protocol import (
    AllowList,
    Ids,
    Matches,
    RangeMatches,
    ScoredMatches,
    check_distinct,
    check_ids,
    check_ids_of,
    check_k,
    check_projections,
    check_radius,
    unknown_ids,
)
from oasis.index.search import best, nearest, top_items, within
from oasis.index.segment import ROW_BITS, Snapshot, Tail


class HammingIndex:
    """Exact nearest-neighbour search over packed codes, many of which may be equal.

    Distinct codes are kept once, with the items that have them; a search scans the distinct codes
    and expands them. Answers equal brute force over all items, order included: by distance (or
    score), then by insertion, also where a tie is cut at k.

    Any number of threads may search while one adds or removes; each search uses the state at its
    beginning. Scans release the GIL. Searches use as many threads as faiss is given
    (``OMP_NUM_THREADS``, ``faiss.omp_set_num_threads``), over the queries of a batch.

    Parameters
    ----------
    n_bits : int
        Length of a code, a multiple of 8.
    label_bits : int, optional
        Number of label bits at the beginning of a code, a multiple of 8 below ``n_bits``. If few
        different label parts occur, and queries weigh the other bits less, asymmetric search is
        many times faster with it. Answers are the same.

    Examples
    --------
    >>> import numpy as np
    >>> index = HammingIndex(n_bits=8)
    >>> index.add(np.array([[0b0001], [0b0111], [0b0001]], dtype=np.uint8), ids=[10, 20, 30])
    >>> index.search(np.array([[0b0000]], dtype=np.uint8), k=2)
    Matches(ids=array([[10, 30]]), distances=array([[1, 1]], dtype=int32))
    >>> index.remove([10])
    >>> len(index), index.n_codes
    (2, 2)
    """

    def __init__(self, n_bits: int = 64, label_bits: int = 0) -> None:
        self.n_bits = check_n_bits(n_bits)
        self.label_bits = _check_label_bits(label_bits, self.n_bits)
        self._snapshot = Snapshot.of(Tail.empty(self.n_bits // 8, self.label_bits // 8))
        self._check: Callable[[], None] | None = None
        self._writer = threading.Lock()
        self._mapped: mmap.mmap | None = None

    def __len__(self) -> int:
        return self._snapshot.n_items

    def __repr__(self) -> str:
        return f"<HammingIndex: {len(self)} items, {self.n_codes} codes of {self.n_bits} bits>"

    def __contains__(self, item: object) -> bool:
        if not isinstance(item, (int, np.integer)) or not 0 <= item <= np.iinfo(np.int64).max:
            return False
        return bool(self._current().find(np.array([item], dtype=np.int64))[0] >= 0)

    @property
    def n_codes(self) -> int:
        """Number of codes that a search scans: distinct ones, counted in each segment."""
        return sum(segment.n_codes for segment in self._snapshot.segments)

    @property
    def nbytes(self) -> int:
        """Bytes in use, including mapped files, without room reserved for growth."""
        return self._snapshot.nbytes

    def add(self, codes: Codes, ids: Any) -> None:
        """Add items: all of them or, with an error, none.

        Cost is in proportion to the chunk, amortised, whatever the size of the index.

        Parameters
        ----------
        codes : (n, n_bits / 8) uint8
        ids : (n,) integers, >= 0, distinct and not in the index
        """
        codes = check_codes(codes, self.n_bits)
        keys = check_ids_of(codes, ids)
        if not len(keys):
            return
        with self._writer:
            snapshot = self._current()
            present = snapshot.find(keys)
            if bool((present >= 0).any()):
                again = int(keys[np.argmax(present >= 0)])
                raise InputError(f"id {again} is in the index already; remove it first")
            self._snapshot = snapshot.plus(codes, keys)

    def remove(self, ids: Any) -> None:
        """Remove items by id; every id must be there, and only once in ``ids``.

        An id that was removed may be added again, and is then the newest.
        """
        keys = check_ids(ids)
        check_distinct(keys)
        if not len(keys):
            return
        with self._writer:
            snapshot = self._current()
            self._snapshot = snapshot.minus(_rows_of(snapshot, keys))

    def search(self, codes: Codes, k: int, allow: Any = None) -> Matches:
        """Return the k nearest items of each query by Hamming distance, ties by insertion.

        Parameters
        ----------
        codes : (q, n_bits / 8) uint8
        k : int
            At least 1; if it exceeds the number of items, the answer is padded with -1.
        allow : array of ids, or bool array indexed by id, optional
            Return only these items. Ids that are not in the index are ignored.

        Returns
        -------
        Matches
            ids (q, k) int64 and distances (q, k) int32, in bits.
        """
        queries = check_codes(codes, self.n_bits)
        k, allowed, snapshot = check_k(k), _allowed(allow), self._current()

        def scan(snapshot: Snapshot, which: Ints, s: int) -> tuple[npt.NDArray[Any], Ints]:
            some = queries if len(which) == len(queries) else queries[which]
            return nearest(snapshot, some, s)

        every = np.arange(len(queries))
        return Matches(*top_items(snapshot, scan, every, k, allowed, np.int32(-1)))

    def search_asymmetric(self, projections: Any, k: int, allow: Any = None) -> ScoredMatches:
        """Return the k items whose signs have the largest inner product with each query.

        The score is the sum of ``projection * sign`` over the bits, computed in float64 and rounded
        once to float32; ties of that float32 number are ordered by insertion. So equal codes have
        equal scores, and results are reproducible and equal to brute force.

        Parameters
        ----------
        projections : (q, n_bits) real numbers
            Finite, and with a sum of absolute values that fits float32.
        k, allow
            As in `search`.

        Returns
        -------
        ScoredMatches
            ids (q, k) int64, padded with -1, and scores (q, k) float32, padded with -inf.
        """
        queries = Projections.of(check_projections(projections, self.n_bits))
        k, allowed, snapshot = check_k(k), _allowed(allow), self._current()

        def scan(snapshot: Snapshot, which: Ints, s: int) -> tuple[npt.NDArray[Any], Ints]:
            some = queries if len(which) == len(queries) else queries[which]
            scores, slots = best(snapshot, some, s)
            return -scores, slots

        every = np.arange(len(queries))
        ids, keys = top_items(snapshot, scan, every, k, allowed, np.float32(np.inf))
        return ScoredMatches(ids, -keys)

    def range_search(self, codes: Codes, radius: int) -> RangeMatches:
        """Return every item at distance <= radius of each query, by distance, then insertion.

        Returns
        -------
        RangeMatches
            offsets (q + 1,), ids and distances; query i has the stretch between its two offsets.
        """
        queries = check_codes(codes, self.n_bits)
        radius = min(check_radius(radius), self.n_bits)
        snapshot = self._current()
        if not snapshot.n_items or not len(queries):
            nothing = np.empty(0, dtype=np.int64)
            offsets = np.zeros(len(queries) + 1, dtype=np.int64)
            return RangeMatches(offsets, nothing, nothing.astype(np.int32))
        query, slot, distance = within(snapshot, queries, radius)
        counts = snapshot.counts(slot)
        first = np.zeros(len(slot), dtype=np.int64)
        rows = snapshot.rows_at(np.repeat(slot, counts), ranges(first, counts))
        # one integer sorts by query, then distance, then row
        order = (np.repeat(query * (self.n_bits + 1) + distance, counts) << ROW_BITS) | rows
        order = np.sort(order[~snapshot.is_removed(rows)])
        rows = order & ((1 << ROW_BITS) - 1)
        query, distance = np.divmod(order >> ROW_BITS, self.n_bits + 1)
        offsets = np.searchsorted(query, np.arange(len(queries) + 1))
        return RangeMatches(offsets, snapshot.ids_of(rows), distance.astype(np.int32))

    def codes_of(self, ids: Any) -> Codes:
        """Return the (n, n_bits / 8) codes of items by id; every id must be there."""
        snapshot = self._current()
        return snapshot.code_of(_rows_of(snapshot, check_ids(ids)))

    def items(self) -> tuple[Codes, Ids]:
        """Return the codes (n, n_bits / 8) and ids (n,) of all items, in order of insertion."""
        snapshot = self._current()
        rows = snapshot.live_rows()
        return snapshot.code_of(rows), snapshot.ids_of(rows)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index to a file, atomically and durably; the format is in `oasis.index.file`.

        A file that an index was opened from may be saved over.
        """
        file.save(self._current().compact(), Path(path))

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, verify: bool | None = None) -> HammingIndex:
        """Open a saved index; it can be added to, which leaves the file as it is.

        A file of more than 16 MiB is mapped, a smaller one read. If another program truncates a
        mapped file, a search raises `FormatError`; if it does so during a search, or overwrites the
        file in place, the behaviour is undefined. `save` replaces files, which is safe.

        Parameters
        ----------
        path : path-like
        verify : bool, optional
            Read the whole file and compare checksums. By default only files up to 16 MiB are read;
            of larger ones the header is checked at once and positions before they are first used.

        Raises
        ------
        FormatError
            The file is foreign, damaged or truncated.
        NewerVersionError
            The file was written by a newer oasis.
        """
        segment, mapped = file.load(Path(path), verify=verify)
        index = cls(8 * segment.codes.shape[1], 8 * segment.n_label_bytes)
        index._snapshot = Snapshot.of(segment)
        index._check, index._mapped = segment.check, mapped
        return index

    def _current(self) -> Snapshot:
        """Return what a search sees now; raise if the file below it is damaged or truncated.

        A file up to 16 MiB is a copy in memory.
        """
        if self._mapped is not None:
            file.check_length(self._mapped)
        check = self._check
        if check is not None:
            check()
            self._check = None
        return self._snapshot


def _allowed(allow: Any) -> AllowList | None:
    return None if allow is None else AllowList(allow)


def _rows_of(snapshot: Snapshot, ids: Ids) -> Ints:
    rows = snapshot.find(ids)
    if bool((rows < 0).any()):
        raise unknown_ids(ids[rows < 0])
    return rows


def _check_label_bits(label_bits: Any, n_bits: int) -> int:
    """Return the number of label bits as an int: a multiple of 8, at least 0 and below n_bits."""
    if (
        isinstance(label_bits, bool)
        or not isinstance(label_bits, (int, np.integer))
        or label_bits % 8
        or not 0 <= label_bits < n_bits
    ):
        raise InputError(
            f"label_bits must be a multiple of 8 from 0 to below {n_bits}, got {label_bits!r}"
        )
    return int(label_bits)
