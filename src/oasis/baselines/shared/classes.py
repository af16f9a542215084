"""Class names as columns: 0/1 indicator matrices, whose columns stand in order of arrival."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from oasis.errors import InputError

LabelSets = Sequence[tuple[str, ...]]
"""One tuple of distinct class names per sample."""


def grown(names: tuple[str, ...], label_sets: LabelSets) -> tuple[str, ...]:
    """Return the names with those of the label sets that are new at the end.

    >>> grown(("sky",), [("sea", "sky"), (), ("cat",)])
    ('sky', 'sea', 'cat')
    """
    return tuple(dict.fromkeys([*names, *(name for row in label_sets for name in row)]))


def indicator(label_sets: LabelSets, names: Sequence[str]) -> sp.csr_array:
    """Return L (n, c): 1 where a sample has a class, 0 elsewhere, float64.

    >>> indicator([("sea", "sky"), ()], ("sky", "cat", "sea")).toarray()
    array([[1., 0., 1.],
           [0., 0., 0.]])
    """
    column = {name: number for number, name in enumerate(names)}
    # sorted, so that sums are rounded in the same way whatever the order of a sample's names
    rows = [sorted(column[name] for name in row) for row in label_sets]
    indptr = np.cumsum([0, *(len(row) for row in rows)])
    indices = np.array([number for row in rows for number in row], dtype=np.int64)
    return sp.csr_array((np.ones(len(indices)), indices, indptr), shape=(len(rows), len(names)))


def check_announced(classes: Any) -> tuple[str, ...] | None:
    """Return the class names that were announced beforehand, or None when none were."""
    if classes is None:
        return None
    if isinstance(classes, (str, bytes)) or not isinstance(classes, Collection):
        raise InputError(f"classes must be a list of class names or None, got {classes!r}")
    for name in classes:
        if not isinstance(name, str) or not name.strip():
            raise InputError(f"class names are non-empty strings, classes holds {name!r}")
    return tuple(dict.fromkeys(name.strip() for name in classes))


def refuse_unannounced(label_sets: LabelSets, announced: tuple[str, ...], way_out: str) -> None:
    """Raise when a sample has a class that was not announced; the error ends with the way out."""
    known = set(announced)
    for row, names in enumerate(label_sets):
        for name in names:
            if name not in known:
                raise InputError(
                    f"sample {row} has class {name!r}, which is not one of the {len(announced)} "
                    f"announced; {way_out}"
                )
