"""Checks of a label space: of names, of weights, and of a saved state that is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.errors import FormatError, InputError
from oasis.labels.sources import FileWords, WordSource, source_from_state


def read_state(
    meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]], words: str | Path | None
) -> tuple[WordSource | None, float, tuple[str, ...], npt.NDArray[np.float64]]:
    """Return source, weight of the axes, class names and word columns, see `LabelSpace.from_state`.

    Raises
    ------
    FormatError
        The state is damaged.
    InputError
        ``words`` is no path, or the words do not come from a file.
    """
    if words is not None and not isinstance(words, (str, Path)):
        raise InputError(f"words must be the path of a file, got {type(words).__name__}")
    try:
        axes, described = check_axes(meta["axes"]), meta["source"]
        names = tuple(dict.fromkeys(check_names(meta["names"])))
        rows = np.array(arrays["rows"], dtype=np.float64, order="C")
        source = None if described is None else source_from_state(described, arrays, words)
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"the state of the label space is damaged: {error!r}") from error
    if words is not None and not isinstance(source, FileWords):
        raise InputError(
            f"words is the path of a file, but this label space has its words from {source}"
        )
    if rows.ndim != 2 or len(rows) != len(names) or len(names) != len(meta["names"]):
        raise FormatError(
            f"the label space has {len(meta['names'])} class names ({len(names)} distinct) and "
            f"vectors of shape {rows.shape}"
        )
    if not np.isfinite(rows).all():
        raise FormatError("the vectors of the label space hold NaN or infinity")
    if source is None and axes < 1:
        raise FormatError(f"the label space has no words, but axes of weight {axes}, not 1")
    # the width of a source that is not loaded may be unknown, 0
    expected = 0 if source is None else source.width or rows.shape[1]
    if names and rows.shape[1] != expected:
        raise FormatError(
            f"the classes of the label space have word vectors of {rows.shape[1]} values, "
            f"expected {expected}"
        )
    return source, axes, names, rows


def check_axes(axes: Any) -> float:
    """Return the weight of the axes as a float from 0 to 1, or refuse it."""
    try:
        weight = float(axes)
    except (TypeError, ValueError):
        weight = np.nan
    if isinstance(axes, (str, bool)) or not 0 <= weight <= 1:
        raise InputError(f"axes must be a number from 0 to 1, got {axes!r}")
    return weight


def check_names(names: Any) -> list[str]:
    """Return class names without the blanks around them, or refuse them."""
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise InputError(f"expected an iterable of class names, got {names!r}; write ['sky']")
    checked: list[str] = []
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise InputError(f"class names are non-empty strings, got {name!r}")
        checked.append(name.strip())
    return checked


def check_label_set(row: int, names: Any) -> None:
    """Refuse labels of a sample that are neither None nor an iterable of class names."""
    if isinstance(names, (str, bytes)) or not (names is None or isinstance(names, Iterable)):
        raise InputError(
            f"labels of sample {row} must be an iterable of class names, got {names!r}; write "
            "['sky'] for one class"
        )
