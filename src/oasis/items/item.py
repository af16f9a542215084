"""Items, rows that are none, and the file that lists these."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Self, TypeAlias

import numpy.typing as npt

from oasis.errors import DataError, InputError

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


class Refused(Exception):
    """Why a row cannot be used; readers turn it into a `Reject`."""


class RejectsFile:
    """Writes rejects to a JSONL file, one per line; an existing file is replaced.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with RejectsFile(Path(folder, "rejects.jsonl")) as rejects:
    ...         rejects.write(Reject("items.jsonl:7", "b", "labels is a text"))
    ...     print(rejects.count, Path(folder, "rejects.jsonl").read_text().strip())
    1 {"where": "items.jsonl:7", "id": "b", "reason": "labels is a text"}
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.count = 0
        self.first: Reject | None = None
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        try:
            self._file = self.path.open("w", encoding="utf-8")
        except OSError as error:
            raise self._not_written(error) from error
        return self

    def write(self, reject: Reject) -> None:
        """Write and flush one line, so that it survives a crash of this process."""
        if self._file is None:
            raise InputError("the rejects file is not open; use it in a with statement")
        try:
            self._file.write(json.dumps(asdict(reject)) + "\n")
            self._file.flush()
        except OSError as error:
            raise self._not_written(error) from error
        self.count += 1
        self.first = self.first or reject

    def told(self) -> str:
        """Return where the reasons are, with the first of them, for a message."""
        if self.first is None:
            return f"{self.path} says why"
        return f"{self.path} says why; the first: {self.first.where}: {self.first.reason}"

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _not_written(self, error: OSError) -> DataError:
        return DataError(f"cannot write the rejects file {self.path}: {error.strerror}")
