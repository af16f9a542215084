"""From keys (ids, hashes of codes) to positions, by sorted runs.

A hash table of ten million int32 entries costs five to eight bytes an entry and must be rebuilt to
grow. A sorted run costs four, nothing at all where the keys ascend by themselves (as the keys of a
collection do), can be searched straight from a memory map, and a new chunk is simply a new run.
Runs of like size are merged, four or more at a time, so that there are few of them and each entry
is sorted again only a logarithmic number of times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.codes import Codes
from oasis.index.engine.buffers import Buffer
from oasis.index.engine.postings import ranges

Positions = npt.NDArray[np.int64]
Keys = npt.NDArray[Any]
Lookup = Callable[[npt.NDArray[Any]], Keys]

STRIDE = 64
"""One key in so many is kept beside a run, to find the right stretch of it without a gather."""

_FAN_IN = 4
_FEW = 16  # keys whose stretches are read whole: steps of a bisection take longer


@dataclass(frozen=True)
class SortedRun:
    """The positions ``start <= p < stop``, sorted by key; ties by position.

    ``order`` holds the positions and ``samples`` every 64th key; both are None where the keys
    ascend strictly.
    """

    start: int
    stop: int
    order: npt.NDArray[np.int32] | None
    samples: Keys | None

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def nbytes(self) -> int:
        if self.order is None or self.samples is None:
            return 0
        return self.order.nbytes + self.samples.nbytes


SortedRuns = tuple[SortedRun, ...]


def code_keys(codes: Codes) -> npt.NDArray[np.uint64]:
    """Return a hash of each code, one uint64; codes of up to 64 bits never share one."""
    n_bytes = codes.shape[1]
    if n_bytes % 8:
        padded = np.zeros((len(codes), -(-n_bytes // 8) * 8), dtype=np.uint8)
        padded[:, :n_bytes] = codes
        codes = padded
    words = np.ascontiguousarray(codes).view("<u8")
    keys = np.zeros(len(codes), dtype=np.uint64)
    factor, shift = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
    for column in range(words.shape[1]):
        # each step can be undone when the word is known, so nothing is lost before the second word
        keys += words[:, column]
        keys *= factor
        keys ^= keys >> shift
        keys *= factor
    return keys


def argsort(keys: Keys) -> Positions:
    """Return the stable order of keys (int64 >= 0, or uint64), several times faster than NumPy's.

    Sorting numbers is far faster than sorting positions by them, so each position is stored in the
    low bits of its key. The lost bits of keys seldom matter; where they do, the order is corrected.

    >>> import numpy as np
    >>> argsort(np.array([5, 3, 5, 1])).tolist()
    [3, 1, 0, 2]
    """
    n = len(keys)
    if n < 2:
        return np.arange(n)
    room = np.uint64(n.bit_length())
    unsigned = keys.view(np.uint64)
    cut = np.uint64(max(0, int(unsigned.max()).bit_length() + int(room) - 64))
    packed = ((unsigned >> cut) << room) | np.arange(n, dtype=np.uint64)
    packed.sort()
    order: Positions = (packed & ((np.uint64(1) << room) - np.uint64(1))).astype(np.int64)
    if not cut:
        return order
    by_key = unsigned[order]
    wrong = np.flatnonzero(by_key[1:] < by_key[:-1])
    if len(wrong):
        packed >>= room
        which = np.unique(packed[wrong])
        begin = np.searchsorted(packed, which, side="left")
        end = np.searchsorted(packed, which, side="right")
        members = ranges(begin, end - begin)
        positions = order[members]
        order[members] = positions[np.lexsort((positions, unsigned[positions]))]
    return order


def sort_run(keys: Keys, start: int, *, stored: bool) -> SortedRun:
    """Return the run of the positions ``start``, ``start + 1``, ... that have these keys.

    ``stored`` says that the keys lie in the buffer as they are (ids do, hashes of codes do not):
    only then can a run that ascends by itself be searched without an order.
    """
    stop = start + len(keys)
    if stored and bool((keys[1:] > keys[:-1]).all()):
        return SortedRun(start, stop, None, None)
    return SortedRun(start, stop, *sorted_order(keys, start))


def sorted_order(keys: Keys, start: int) -> tuple[npt.NDArray[np.int32], Keys]:
    """Return the order and the samples of a run; see `SortedRun`."""
    order = argsort(keys)
    return (order + start).astype(np.int32), keys[order[::STRIDE]]


def append_run(
    runs: SortedRuns, keys: Keys, start: int, buffer: Buffer, lookup: Lookup
) -> SortedRuns:
    """Return ``runs`` and the new positions from ``start`` on; their keys are in place already.

    Costs time in proportion to the new keys, amortised over calls.
    """
    n_base, stored = len(buffer.base), buffer.base.ndim == 1
    new = sort_run(keys, start, stored=stored)
    if runs and new.order is None and runs[-1].order is None:
        last = runs[-1]
        # an ascending run is searched where its keys lie, so it must not straddle base and tail
        together = last.start >= n_base or new.stop <= n_base
        if together and lookup(np.array([last.stop - 1]))[0] < keys[0]:
            return (*runs[:-1], SortedRun(last.start, new.stop, None, None))
    runs = (*runs, new)
    first, total = len(runs) - 1, len(new)
    while first > 0 and len(runs[first - 1]) <= 2 * total:
        first -= 1
        total += len(runs[first])
    if len(runs) - first < _FAN_IN:
        return runs
    begin = runs[first].start
    return (*runs[:first], sort_run(lookup(np.arange(begin, new.stop)), begin, stored=stored))


def find(runs: SortedRuns, wanted: Keys, buffer: Buffer, lookup: Lookup) -> Positions:
    """Return the last position of each wanted key, or -1 where there is none.

    ``lookup`` gives the keys at positions of ``buffer``; ascending runs are read from it directly.
    """
    if len(runs) == 1 and runs[0].order is None:  # as the keys of a collection are
        positions, hit = _find_ascending(runs[0], wanted, buffer)
        return positions if hit.all() else np.where(hit, positions, -1)
    found = np.full(len(wanted), -1, dtype=np.int64)
    missing = np.arange(len(wanted))
    for run in reversed(runs):
        if not len(missing):
            break
        keys = wanted[missing]
        if run.order is None or run.samples is None:
            positions, hit = _find_ascending(run, keys, buffer)
        else:
            positions, hit = _find_sorted(run.order, run.samples, keys, lookup)
        found[missing[hit]] = positions[hit]
        missing = missing[~hit]
    return found


def _find_ascending(
    run: SortedRun, wanted: Keys, buffer: Buffer
) -> tuple[Positions, npt.NDArray[np.bool_]]:
    n_base = len(buffer.base)
    if run.start >= n_base:
        keys = buffer.tail[run.start - n_base : run.stop - n_base]
    else:
        keys = buffer.base[run.start : run.stop]
    at = np.searchsorted(keys, wanted, side="right") - 1
    hit = (at >= 0) & (keys[np.maximum(at, 0)] == wanted)
    return at + run.start, hit


def _find_sorted(
    order: npt.NDArray[np.int32], samples: Keys, wanted: Keys, lookup: Lookup
) -> tuple[Positions, npt.NDArray[np.bool_]]:
    stretch = np.searchsorted(samples, wanted, side="right") - 1
    low = np.maximum(stretch, 0) * STRIDE
    high = np.minimum(low + STRIDE, len(order))
    if len(wanted) <= _FEW:
        places = low[:, None] + np.arange(STRIDE)  # (n, STRIDE)
        keys = lookup(order[np.minimum(places, len(order) - 1)].ravel()).reshape(places.shape)
        passed = (keys <= wanted[:, None]) & (places < high[:, None])
        low = low + np.count_nonzero(passed, axis=1)
    else:
        low = _bisected(order, low, high, wanted, lookup)
    positions = order[np.maximum(low - 1, 0)].astype(np.int64)
    return positions, (stretch >= 0) & (lookup(positions) == wanted)


def _bisected(
    order: npt.NDArray[np.int32], low: Positions, high: Positions, wanted: Keys, lookup: Lookup
) -> Positions:
    """Return how many keys of the order, up to ``high``, are at most each wanted one."""
    for _ in range(STRIDE.bit_length()):
        middle = np.minimum((low + high) >> 1, len(order) - 1)
        right = (lookup(order[middle]) <= wanted) & (low < high)
        low = np.where(right, middle + 1, low)
        high = np.where(right, high, np.maximum(middle, low))
    return low
