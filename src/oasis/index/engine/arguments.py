"""What callers pass to an index, checked: every index refuses the same things in the same words."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.codes import Codes
from oasis.errors import InputError

Ids = npt.NDArray[np.int64]


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


def check_label_bits(label_bits: Any, n_bits: int) -> int:
    """Return the number of label bits as an int: a multiple of 8, at least 0 and below n_bits.

    >>> check_label_bits(64, 128)
    64
    """
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
