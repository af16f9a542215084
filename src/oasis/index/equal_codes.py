"""Equal codes among many, and runs of numbers: what sorting codes into groups takes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from oasis.codes import Codes, words

Ints = npt.NDArray[np.int64]


def equal_codes(codes: Codes) -> tuple[Ints, Ints]:
    """Return an order in which equal codes are side by side, and where each group begins.

    Codes of one hash may alternate: then there are more groups than codes, which costs some space.

    >>> import numpy as np
    >>> order, begin = equal_codes(np.array([[5], [3], [5]], dtype=np.uint8))
    >>> sorted(np.split(order, begin[1:]), key=len)[1].tolist()
    [0, 2]
    """
    n = len(codes)
    # sorting numbers is far faster than sorting positions by them: the low bits of each hash give
    # way to the position
    room = np.uint64(max(1, n).bit_length())
    keys = (_hashes(codes) >> room << room) | np.arange(n, dtype=np.uint64)
    keys.sort()
    order = (keys & ((np.uint64(1) << room) - np.uint64(1))).astype(np.int64)
    ordered = words(codes[order])
    differs = np.ones(n, dtype=np.bool_)
    differs[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return order, np.flatnonzero(differs)


def _hashes(codes: Codes) -> npt.NDArray[np.uint64]:
    """Return a hash of each code, one uint64."""
    keys = np.zeros(len(codes), dtype=np.uint64)
    factor, shift = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
    for column in words(codes).T:
        keys += column
        keys *= factor
        keys ^= keys >> shift
        keys *= factor
    return keys


def ranges(start: Ints, lengths: Ints) -> Ints:
    """Return ``start[i], start[i] + 1, ...``, ``lengths[i]`` numbers each, as one array.

    >>> import numpy as np
    >>> ranges(np.array([5, 9]), np.array([2, 3])).tolist()
    [5, 6, 9, 10, 11]
    """
    total = int(lengths.sum())
    offsets: Ints = start - (np.cumsum(lengths) - lengths)
    return np.arange(total) + np.repeat(offsets, lengths)
