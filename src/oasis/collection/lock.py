"""The writer's lock: one writer per collection, across processes."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from oasis.errors import LockedError

_PAUSE = 0.02


class WriterLock:
    """A lock on a file that the kernel lets go when its holder dies, however it dies.

    The file itself stays: it holds the number of the process that locked it last, for messages
    alone. Two locks exclude each other within one process too.

    Parameters
    ----------
    path : Path
        Created where it is missing.
    timeout : float
        Seconds to wait for another writer to finish; 0 tries once.
    """

    def __init__(self, path: Path, timeout: float = 0.0) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        deadline = time.monotonic() + timeout
        try:
            while not self._try():
                if time.monotonic() >= deadline:
                    holder = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip()
                    raise LockedError(
                        f"{path.parent} is being written by another writer (process "
                        f"{holder or 'unknown'}); wait for it with timeout=seconds, or open it "
                        "with readonly=True"
                    )
                time.sleep(_PAUSE)
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        except BaseException:
            os.close(self._descriptor)
            raise

    def _try(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Let the next writer in; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
