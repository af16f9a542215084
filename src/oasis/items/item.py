"""Items, and rows that are none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy.typing as npt

Vector: TypeAlias = npt.NDArray[Any]
"""Features of one item in one modality: (d,) real numbers, in their original precision."""

Row: TypeAlias = tuple[str, dict[str, Any] | str]
"""Position in the file, and the values by field name or the reason why there are none."""


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to learn or to find: a picture, a text, vectors, with labels and payload.

    ``vectors`` are features computed elsewhere, by modality. They replace the features of the
    picture or text in that modality. They are not compared by ``==``.
    """

    id: str | int
    image: Path | bytes | None = None
    text: str | None = None
    labels: tuple[str, ...] = ()
    payload: dict[str, Any] = field(default_factory=dict)
    where: str = field(default="", compare=False)
    vectors: Mapping[str, Vector] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Reject:
    """A row that cannot be used: its file and line, its id if that could be read, and why."""

    where: str
    id: str | int | None
    reason: str
