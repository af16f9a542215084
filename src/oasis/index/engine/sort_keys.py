"""One integer for a score and a slot, which sorts by falling score, then by slot."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from oasis.index.engine.projections import Scores, Slots

_SLOT_BITS = 31
_SLOT_MASK = (1 << _SLOT_BITS) - 1

NO_KEY = np.iinfo(np.int64).max
"""Behind every key."""


def sort_keys(scores: Scores, slots: Slots) -> Slots:
    """Return one integer each that sorts by falling score, then by slot."""
    return (-monotone(scores.view(np.int32)) << _SLOT_BITS) | slots


def from_sort_keys(keys: Slots) -> tuple[Scores, Slots]:
    """Return the scores and slots of keys."""
    bits = monotone((-(keys >> _SLOT_BITS)).astype(np.int32)).astype(np.int32)
    return bits.view(np.float32), keys & _SLOT_MASK


def first_of(scores: Scores, slots: Slots, s: int) -> tuple[Scores, Slots]:
    """Return the first s of (scores, slots) by falling score, then slot.

    >>> import numpy as np
    >>> scores, slots = first_of(np.float32([1, 3, 3]), np.array([5, 9, 7]), 2)
    >>> scores.tolist(), slots.tolist()
    ([3.0, 3.0], [7, 9])
    """
    keys = sort_keys(scores, slots)
    if len(keys) > 4 * s:
        keys = np.partition(keys, s - 1)[:s]
    keys.sort()
    return from_sort_keys(keys[:s])


def monotone(bits: npt.NDArray[np.int32]) -> Slots:
    """Map the bits of float32 numbers to integers of the same order; its own inverse."""
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).astype(np.int64)
