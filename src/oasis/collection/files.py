"""The files beside the catalog: model and index.

Every file is written under a number never used before and made durable before a commit names it.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from pathlib import Path

from oasis import store
from oasis.collection.lock import WriterLock, check_progress
from oasis.collection.rows import Head
from oasis.errors import CollectionError, FormatError
from oasis.index import HammingIndex
from oasis.model import AnyModel

_GENERATION = re.compile(r"(?:model|index)-(\d+)\.\w+")
_LEFT_OVER = re.compile(r"(?:model|index)-\d+\.\w+|\..*\.tmp")


class Files:
    """Writes generations of files in one directory; numbers are never used twice.

    A new file never replaces one that a commit refers to, so the files of a commit exist even if it
    is unknown whether it was made.
    """

    def __init__(self, directory: Path, lock: WriterLock | None = None) -> None:
        self.directory = directory
        self._lock = lock
        self._last = 0

    def write_model(self, head: Head, model: AnyModel) -> Head:
        """Write the whole model; the head that names it needs no journal."""
        new = replace(head, model=self._next(), journal_bytes=0, journal_entries=0)
        path = self.directory / new.model_name
        model.save(path)
        n_bytes, crc = store.recorded_checksum(path)
        return replace(new, model_bytes=n_bytes, model_crc=crc)

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

    def begin(self, head: Head) -> None:
        """Record that the commit after ``head`` has begun; raise if this process may not write.

        The record is flushed before the commit writes a new file.
        """
        if self._lock is not None:
            self._lock.begin(head.commits + 1)

    def finish(self, head: Head) -> None:
        """Record that the commit of ``head`` is finished."""
        if self._lock is not None:
            self._lock.finish(head.commits)

    def recover(self, head: Head) -> None:
        """Remove what a crash has left, if it was a crash and not an outdated catalog.

        Raises
        ------
        FormatError
            The catalog is older than the files beside it; nothing is removed.
        """
        progress = None if self._lock is None else self._lock.progress
        check_progress(self.directory, head.commits, progress)
        newer = []
        if progress is None or progress.begun != head.commits + 1:
            # an index is derived from the catalog, so it can be removed
            newer = [
                name
                for name in self.left_over(head)
                if _number(name) > head.generation and not name.startswith("index")
            ]
        if newer:
            raise FormatError(
                f"{self.directory} holds {newer[0]}, which is newer than commit {head.commits} "
                "of its catalog: the catalog is an older copy, or was copied without its -wal "
                "file. Nothing was removed. Put the right catalog back, or restore a backup; "
                f"only if there is none, move {newer[0]} away"
            )
        self.sweep(head)

    def tidy(self, head: Head) -> None:
        """Sweep; if that fails, the next commit or opening tries again."""
        with contextlib.suppress(OSError, CollectionError):
            if self._lock is not None:
                self._lock.check()
            self.sweep(head)

    def sweep(self, head: Head) -> None:
        """Remove all files of a collection that the head does not refer to."""
        for name in self.left_over(head):
            store.disk.remove(self.directory / name)

    def left_over(self, head: Head) -> list[str]:
        """Return the names of generations and temporary files that the head does not name."""
        return sorted(
            path.name
            for path in self.directory.iterdir()
            if _LEFT_OVER.fullmatch(path.name) and path.name not in head.file_names
        )

    def sizes(self) -> dict[str, int]:
        """Return bytes on disk by kind of file: catalog (with its WAL), model, index."""
        kinds = dict.fromkeys(("catalog", "model", "index"), 0)
        for path in self.directory.iterdir():
            kind = re.split(r"[.-]", path.name)[0]
            if kind in kinds:
                with contextlib.suppress(FileNotFoundError):  # another process may be writing
                    kinds[kind] += path.stat().st_size
        return kinds

    def _next(self) -> int:
        """Return a number for a new file, after the begun commit is recorded durably."""
        if self._lock is not None:
            self._lock.keep()
        taken = (_number(path.name) for path in self.directory.iterdir())
        self._last = max(self._last, *taken, 0) + 1
        return self._last


def _number(name: str) -> int:
    """Return the generation of a file; 0 for one that is no generation."""
    match = _GENERATION.fullmatch(name)
    return int(match[1]) if match else 0
