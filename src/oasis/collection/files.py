"""The files beside the catalog: model, journal, index; written before a commit names them."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from pathlib import Path

import safetensors

from oasis import store
from oasis.collection.journal import Entry
from oasis.collection.schema import Head
from oasis.errors import StorageError
from oasis.index import HammingIndex
from oasis.model import OASIS

LOCK_NAME = "writer.lock"

_GENERATION = re.compile(r"(?:model|journal|index)-(\d+)\.\w+")
_LEFT_OVER = re.compile(r"(?:model|journal|index)-\d+\.\w+|\..*\.tmp")


class Files:
    """Writes generations of files in one directory; numbers are never used twice.

    A new file never takes the place of one that a commit names, so a commit that fails, or whose
    fate is unknown, finds what it named.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        matches = (_GENERATION.fullmatch(path.name) for path in directory.iterdir())
        self._last = max((int(match[1]) for match in matches if match), default=0)

    def write_model(self, head: Head, model: OASIS) -> Head:
        """Write the whole model; the head that names it needs no journal."""
        new = replace(head, model=self._next(), journal=0, journal_bytes=0, journal_entries=0)
        path = self.directory / new.model_name
        try:
            model.save(path)
        except safetensors.SafetensorError as error:  # its way to say that a write failed
            raise StorageError(f"{path} cannot be written: {error}; nothing was changed") from error
        n_bytes, crc = store.checksum(path)
        return replace(new, model_bytes=n_bytes, model_crc=crc)

    def append_entry(self, head: Head, entry: Entry) -> Head:
        """Append a small chunk to the journal."""
        new = head if head.journal else replace(head, journal=self._next())
        data = entry.to_bytes()
        store.append(self.directory / new.journal_name, head.journal_bytes, data)
        return replace(
            new,
            journal_bytes=head.journal_bytes + len(data),
            journal_entries=head.journal_entries + 1,
        )

    def write_index(self, head: Head, shown: Head, index: HammingIndex) -> Head:
        """Write the index, which shows the commit of ``shown``."""
        new = replace(
            head,
            index=self._next(),
            index_commits=shown.commits,
            index_key=shown.next_key - 1,
        )
        index.save(self.directory / new.index_name)
        return new

    def tidy(self, head: Head) -> None:
        """Sweep if that can be done; where it cannot, the next commit or opening tries again."""
        with contextlib.suppress(OSError):
            self.sweep(head)

    def sweep(self, head: Head) -> None:
        """Remove all of ours that the head does not name, be it of the past, a crash or a failure.

        The journal is cut at its committed length: no features of a refused chunk stay behind.
        """
        for name in self.left_over(head):
            store.disk.remove(self.directory / name)
        journal = self.directory / head.journal_name
        if head.journal and journal.is_file() and journal.stat().st_size > head.journal_bytes:
            store.disk.write(journal, head.journal_bytes, b"")

    def left_over(self, head: Head) -> list[str]:
        """Return the names of generations and temporary files that the head does not name."""
        return sorted(
            path.name
            for path in self.directory.iterdir()
            if _LEFT_OVER.fullmatch(path.name) and path.name not in head.file_names
        )

    def sizes(self) -> dict[str, int]:
        """Return bytes on disk by kind of file: catalog (with its WAL), model, journal, index."""
        kinds = dict.fromkeys(("catalog", "model", "journal", "index"), 0)
        for path in self.directory.iterdir():
            kind = re.split(r"[.-]", path.name)[0]
            if kind in kinds:
                with contextlib.suppress(FileNotFoundError):  # another process may be writing
                    kinds[kind] += path.stat().st_size
        return kinds

    def _next(self) -> int:
        self._last += 1
        return self._last
