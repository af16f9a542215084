"""The file that lists the items that were left out, and why."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from oasis.errors import DataError, InputError
from oasis.items.item import Reject


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
            raise DataError(
                f"cannot write the rejects file {self.path}: {error.strerror}"
            ) from error
        return self

    def write(self, reject: Reject) -> None:
        """Write and flush one line, so that it survives a crash of this process."""
        if self._file is None:
            raise InputError("the rejects file is not open; use it in a with statement")
        line = {"where": reject.where, "id": reject.id, "reason": reject.reason}
        try:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
        except OSError as error:
            raise DataError(
                f"cannot write the rejects file {self.path}: {error.strerror}"
            ) from error
        self.count += 1
        self.first = self.first or reject

    def told(self) -> str:
        """Return where the reasons are, with the first of them, for a message."""
        if self.first is None:
            return f"{self.path} says why"
        return f"{self.path} says why; the first: {self.first.where}: {self.first.reason}"

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
