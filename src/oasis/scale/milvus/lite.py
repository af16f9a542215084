"""milvus-lite: a server process of our own for one file, stopped when its last user closes it."""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from pathlib import Path

from oasis.errors import EngineError, MissingExtraError

_lock = threading.Lock()
_users: Counter[str] = Counter()


def acquire(path: str) -> str:
    """Return the gRPC target of the server for a file; it is started if it is not running."""
    if not Path(path).parent.is_dir():
        raise EngineError(f"milvus-lite cannot open {path}: its folder does not exist; make it")
    try:
        with warnings.catch_warnings():
            # milvus-lite imports pkg_resources, which gives a deprecation warning
            warnings.simplefilter("ignore")
            from milvus_lite.server_manager import server_manager_instance
    except ImportError:
        raise MissingExtraError(
            "milvus-lite 2.5, which imports pkg_resources",
            command="pip install 'milvus-lite==2.5.1' 'setuptools<81'",
            what="a Milvus index in a file",
        ) from None
    with _lock:
        target: str | None = server_manager_instance.start_and_get_uri(path)
        if target is None:
            raise EngineError(
                f"milvus-lite cannot open {path}: it is in use by another process, or is no "
                "file of milvus-lite; close the other process, or choose another file"
            )
        _users[path] += 1
    return target


def release(path: str) -> None:
    """Release one use of a file's server."""
    from milvus_lite.server_manager import server_manager_instance

    with _lock:
        _users[path] -= 1
        if not _users[path]:
            del _users[path]
            server_manager_instance.release_server(path)
