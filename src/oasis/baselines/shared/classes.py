"""Class names as columns of a 0/1 matrix L, in order of arrival, and similarity by shared classes.

The similarity ``S = 2LL' - 11'`` is used in products only and never formed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from oasis.arrays import Array, indicator
from oasis.errors import InputError

LabelSets = Sequence[tuple[str, ...]]
"""One tuple of distinct class names per sample."""


def grown(names: tuple[str, ...], label_sets: LabelSets) -> tuple[str, ...]:
    """Return the names, followed by the new names of the label sets.

    >>> grown(("sky",), [("sea", "sky"), (), ("cat",)])
    ('sky', 'sea', 'cat')
    """
    return tuple(dict.fromkeys([*names, *(name for row in label_sets for name in row)]))


def indicator_of(label_sets: LabelSets, names: Sequence[str]) -> sp.csr_array:
    """Return L (n, c): 1 where a sample has a class, 0 elsewhere, float64.

    >>> indicator_of([("sea", "sky"), ()], ("sky", "cat", "sea")).toarray()
    array([[1., 0., 1.],
           [0., 0., 0.]])
    """
    column = {name: number for number, name in enumerate(names)}
    return indicator([[column[name] for name in row] for row in label_sets], len(names))


def check_announced(classes: Any) -> tuple[str, ...] | None:
    """Return the class names that were announced in advance, or None if none were."""
    if classes is None:
        return None
    if isinstance(classes, (str, bytes)) or not isinstance(classes, Collection):
        raise InputError(f"classes must be a list of class names or None, got {classes!r}")
    for name in classes:
        if not isinstance(name, str) or not name.strip():
            raise InputError(f"class names are non-empty strings, classes holds {name!r}")
    return tuple(dict.fromkeys(name.strip() for name in classes))


def refuse_unannounced(label_sets: LabelSets, announced: tuple[str, ...], way_out: str) -> None:
    """Raise if a sample has a class that was not announced; the error ends with ``way_out``."""
    known = set(announced)
    for row, names in enumerate(label_sets):
        for name in names:
            if name not in known:
                raise InputError(
                    f"sample {row} has class {name!r}, which is not one of the {len(announced)} "
                    f"announced; {way_out}"
                )


def similarity_times(L: sp.csr_array, M: Array) -> Array:
    """Return ``S M`` (n, r) for 0/1 labels L (n, c) and M (n, r). Cost: n r per label.

    >>> import numpy as np, scipy.sparse as sp
    >>> similarity_times(sp.csr_array([[1.0, 0.0], [1.0, 1.0]]), np.eye(2))
    array([[1., 1.],
           [1., 3.]])
    """
    product: Array = 2 * (L @ (L.T @ M)) - M.sum(axis=0)
    return product


def similarity_between(L: sp.csr_array, left: Array, right: Array) -> Array:
    """Return ``left' S right`` (k, r) for left (n, k) and right (n, r). Cost: as above, and k r c.

    >>> import numpy as np, scipy.sparse as sp
    >>> similarity_between(sp.csr_array([[1.0, 0.0], [1.0, 1.0]]), np.eye(2), np.eye(2))
    array([[1., 1.],
           [1., 3.]])
    """
    product: Array = 2 * (L.T @ left).T @ (L.T @ right)
    product -= np.outer(left.sum(axis=0), right.sum(axis=0))
    return product


def similarity_squared(L: sp.csr_array) -> float:
    """Return ``|S|^2``, the sum of the squares of all its entries.

    >>> import scipy.sparse as sp
    >>> similarity_squared(sp.csr_array([[1.0, 0.0], [1.0, 1.0]]))
    12.0
    """
    counts = np.asarray(L.sum(axis=0)).ravel()
    return 4 * float((L.T @ L).power(2).sum()) - 4 * float(counts @ counts) + L.shape[0] ** 2
