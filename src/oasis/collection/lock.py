"""The writer's lock: one writer per collection, and its last commits."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import NamedTuple
from weakref import WeakSet

from oasis import store
from oasis.errors import CollectionError, FormatError, LockedError

LOCK_NAME = "writer.lock"

_PAUSE = 0.02


class Progress(NamedTuple):
    """The numbers of the last commits begun and finished.

    A commit is recorded as begun before any of its files is written (flushed if it writes new
    files), and as finished after it. This distinguishes a catalog that is older, because it was
    emptied or copied without its -wal file, from one whose last change a crash has interrupted.
    """

    begun: int
    finished: int


class WriterLock:
    """A lock on a file, which the kernel releases when the process ends, also by a kill.

    The file itself stays. It contains the id of the process that locked it last, for messages, and
    the `Progress`. Two locks exclude each other within one process too. A lock belongs
    to the process that took it: a forked child closes its copy.

    Parameters
    ----------
    path : Path
        Created where it is missing; a link is not followed.
    timeout : float
        Seconds to wait for another writer to finish; 0 tries once.

    Attributes
    ----------
    progress : Progress or None
        None where the file is new, or what it held cannot be read.
    """

    def __init__(self, path: Path, timeout: float = 0.0) -> None:
        self._path, self._pid = path, os.getpid()
        self._is_durable = False
        deadline = time.monotonic() + timeout
        self._descriptor = -1
        try:
            while not self._try():
                if time.monotonic() >= deadline:
                    holder = path.read_bytes()[:20].decode(errors="replace").strip()
                    raise LockedError(
                        f"{path.parent} is open in another writer (process "
                        f"{holder or 'unknown'}); try again when it has ended or, if it is a "
                        "service, give its address to commands; in Python, timeout=60 waits and "
                        "readonly=True reads at the same time"
                    )
                time.sleep(_PAUSE)
            self.progress = read_progress(path)
            self._note()
        except BaseException:
            self.release()
            raise
        _LOCKS.add(self)

    def _try(self) -> bool:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self._path, flags, 0o666)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            return False
        if self._is_there():
            return True
        self.release()  # the file was removed meanwhile
        return False

    def _is_there(self) -> bool:
        try:
            found = self._path.stat(follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(found, os.fstat(self._descriptor))

    def check(self) -> None:
        """Raise unless this process, and nobody else, may write."""
        if os.getpid() != self._pid or self._descriptor < 0:
            raise CollectionError(
                f"process {self._pid} opened {self._path.parent} for writing, before it forked "
                "this one; open it again in this process"
            )
        if not self._is_there():
            raise CollectionError(
                f"{self._path} was removed or replaced under the writer, so another one may have "
                "begun; nothing was changed: close the collection and open it again"
            )

    def begin(self, commit: int) -> None:
        """Record that a commit has begun."""
        self.check()
        self.progress = Progress(commit, self.progress.finished if self.progress else 0)
        self._note()

    def keep(self) -> None:
        """Flush the last record to disk."""
        if not self._is_durable:
            store.disk.sync(self._path)
            self._is_durable = True

    def finish(self, commit: int) -> None:
        """Record that a commit is finished; this need not be durable."""
        self.progress = Progress(commit, commit)
        with contextlib.suppress(OSError):
            self._note()

    def _note(self) -> None:
        begun, finished = self.progress or (-1, -1)
        self._is_durable = False
        store.disk.write(self._path, 0, lock_record(self._pid, begun, finished))

    def release(self) -> None:
        """Release the lock; a second call, or one in a forked child, does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


_LOCKS: WeakSet[WriterLock] = WeakSet()


def _close_copies() -> None:
    """Close the descriptors in a forked child, which would otherwise hold the locks."""
    for lock in list(_LOCKS):
        lock.release()


os.register_at_fork(after_in_child=_close_copies)


def lock_record(pid: int, begun: int, finished: int) -> bytes:
    """Return what stands in a lock file; `read_progress` reads it."""
    return f"{pid:<20}\n{begun:<20}\n{finished:<20}\n".encode()


def read_progress(path: Path) -> Progress | None:
    """Return what a lock file says of the commits begun and finished; None if it says nothing."""
    try:
        lines = path.read_bytes().decode("ascii").split("\n")
        begun, finished = int(lines[1]), int(lines[2])
    except (OSError, ValueError, IndexError):
        return None
    return Progress(begun, finished) if len(lines) == 4 and finished >= 0 else None


def check_progress(directory: Path, commits: int, progress: Progress | None) -> None:
    """Raise if the catalog, at this commit, is older than the recorded progress."""
    if progress is not None and (progress.finished > commits or progress.begun > commits + 1):
        raise FormatError(
            f"{directory} is damaged: its catalog shows commit {commits}, but commit "
            f"{max(progress)} was made. The catalog was emptied, or copied without its -wal file, "
            "or an older one was put in its place. Nothing was changed. Put the right one back, or "
            f"restore a backup; to go on with commit {commits}, remove {LOCK_NAME}"
        )
