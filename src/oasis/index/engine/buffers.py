"""Arrays that only grow at their end, so that readers need no lock."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_FIRST_ROOM = 1024


class Buffer:
    """A frozen base (often a memory map) followed by a tail that grows.

    The buffer does not record how much of it is in use: who publishes a length must have written
    everything below it. Growing replaces the tail by a longer copy, so an array that a reader
    already holds stays valid for every length published before. Room that was reserved but never
    written costs address space and no memory.

    >>> import numpy as np
    >>> b = Buffer(np.array([1, 2]))
    >>> b.write(2, np.array([3, 4]))
    >>> b.take(np.array([0, 3])).tolist()
    [1, 4]
    """

    def __init__(self, base: Array) -> None:
        self.base = base
        self.tail: Array = np.empty((0, *base.shape[1:]), dtype=base.dtype)

    def take(self, positions: Array) -> Array:
        """Return a copy of the entries at ``positions`` (any shape, all below the length)."""
        tail = self.tail
        n_base = len(self.base)
        if n_base == 0:
            return np.take(tail, positions, axis=0)
        if len(tail) == 0:
            return np.take(self.base, positions, axis=0)
        out = np.take(self.base, positions, axis=0, mode="clip")
        late = positions >= n_base
        if late.any():
            out[late] = tail[positions[late] - n_base]
        return out

    def parts(self, length: int) -> list[Array]:
        """Return views that together hold the first ``length`` entries; none of them is empty."""
        n_base = len(self.base)
        views = [self.base[:length], self.tail[: max(0, length - n_base)]]
        return [view for view in views if len(view)]

    def whole(self, length: int) -> Array:
        """Return the first ``length`` entries as one array, copied only from two parts."""
        views = self.parts(length)
        return views[0] if len(views) == 1 else np.concatenate([self.base[:0], *views])

    def between(self, start: int, stop: int) -> Array:
        """Return the entries from ``start`` to ``stop``, copied only where two parts meet."""
        n_base = len(self.base)
        if stop <= n_base:
            return self.base[start:stop]
        tail = self.tail[max(0, start - n_base) : stop - n_base]
        return tail if start >= n_base else np.concatenate([self.base[start:], tail])

    def reserve(self, length: int) -> None:
        """Make room for ``length`` entries in all; growth is geometric."""
        needed = length - len(self.base)
        if needed > len(self.tail):
            room = max(needed, len(self.tail) * 3 // 2, _FIRST_ROOM)
            tail = np.empty((room, *self.base.shape[1:]), dtype=self.base.dtype)
            tail[: len(self.tail)] = self.tail
            self.tail = tail

    def write(self, start: int, values: Array) -> None:
        """Write ``values`` at ``start``, which must not lie in the base."""
        self.reserve(start + len(values))
        begin = start - len(self.base)
        self.tail[begin : begin + len(values)] = values

    def put(self, positions: Array, values: Array) -> None:
        """Overwrite entries in place, base included (which then must be writable)."""
        n_base = len(self.base)
        late = positions >= n_base
        if not late.all():
            self.base[positions[~late]] = values[~late]
        if late.any():
            self.tail[positions[late] - n_base] = values[late]
