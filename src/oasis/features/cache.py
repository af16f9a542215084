"""The cache folder: files that can be made again at any time.

``$OASIS_CACHE`` if it is set, else ``$XDG_CACHE_HOME/oasis``, else ``~/.cache/oasis``. The name of
a file contains the SHA-256 of its content, so a reader can detect a damaged file, and a partly
written file is never used.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """Return the cache folder, which may not exist yet; environment variables are read each time.

    >>> from unittest.mock import patch
    >>> with patch.dict(os.environ, OASIS_CACHE="/somewhere"):
    ...     cache_folder().as_posix()
    '/somewhere'
    """
    own = os.environ.get("OASIS_CACHE")
    if own:
        return Path(own)
    # the XDG convention: a relative path there is invalid and is to be ignored
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "oasis"


def read_cached(stem: str, suffix: str) -> bytes | None:
    """Return the content of the cached file ``<stem>-<sha256><suffix>``, or None if there is none.

    A file that cannot be read, or whose content does not match its name, is skipped; the caller
    makes it again.
    """
    for path in sorted(cache_folder().glob(f"{stem}-*{suffix}")):
        try:
            data = path.read_bytes()
        except OSError:
            continue
        if path.name == _file_name(stem, suffix, data):
            return data
    return None


def write_cached(stem: str, suffix: str, data: bytes) -> Path:
    """Write a file into the cache folder atomically, through a temporary file; return its path.

    Raises OSError if the folder cannot be written; then no file is left behind.
    """
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / _file_name(stem, suffix, data)
    handle, name = tempfile.mkstemp(dir=folder, prefix=f".{stem}-", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return target


def _file_name(stem: str, suffix: str, data: bytes) -> str:
    return f"{stem}-{hashlib.sha256(data).hexdigest()}{suffix}"
