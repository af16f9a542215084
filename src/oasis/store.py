"""Durable bytes: files that are there whole or not at all. Knows no model.

Everything that changes a file goes through `disk`, one object with one method per operation, so
that tests can let any single operation fail, or cut the power after it.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_BLOCK = 1 << 20


class Disk:
    """The operations that change what is on disk."""

    def write(self, path: Path, offset: int, data: bytes) -> None:
        """Cut the file at ``offset``, creating it where it is missing, and write from there on."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            os.ftruncate(descriptor, offset)
            view = memoryview(data)
            while view:
                written = os.pwrite(descriptor, view, offset)
                offset, view = offset + written, view[written:]
        finally:
            os.close(descriptor)

    def sync(self, path: Path) -> None:
        """Wait until a file's content, or the entries of a directory, are on the medium."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def replace(self, source: Path, target: Path) -> None:
        """Give ``source`` the name ``target``; a file of that name is gone in the same moment."""
        source.replace(target)

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""
        path.unlink(missing_ok=True)


disk = Disk()
"""Where every change goes; tests put another one here."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path; on success its file takes the place of ``path``, durably.

    The temporary file is flushed to disk before it is renamed, and the directory after it. When
    the block raises, the temporary file is removed and ``path`` is left as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.touch()
    mode = temporary.stat().st_mode
    try:
        yield temporary
        temporary.chmod(mode)  # some libraries write files that nobody else may read
        disk.sync(temporary)
        disk.replace(temporary, path)
        disk.sync(path.parent)
    finally:
        # not through `disk`: it undoes what failed, and after a success there is nothing to do
        temporary.unlink(missing_ok=True)


def append(path: Path, offset: int, data: bytes) -> None:
    """Make ``data`` the end of a file, from ``offset`` on, durably; what stood there is cut off.

    Whoever keeps the length of the file elsewhere, and commits it after this returns, finds either
    the old length or all of the data.
    """
    created = not path.exists()
    disk.write(path, offset, data)
    disk.sync(path)
    if created:
        disk.sync(path.parent)


def checksum(path: Path) -> tuple[int, int]:
    """Return the length of a file in bytes and the crc32 of its content.

    It tells a damaged file, not a forged one. Cost: one pass, about 2 GB a second.
    """
    length, value = 0, 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            length, value = length + len(block), zlib.crc32(block, value)
    return length, value
