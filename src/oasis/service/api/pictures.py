"""Pictures in answers: their media types, and originals from the operator's folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)
_OTHER = "application/octet-stream"
_FIELDS = ("path", "image", "file")


def media_type(picture: bytes) -> str:
    """Return the media type of a picture that browsers show; for anything else that of bytes.

    >>> media_type(b"GIF89a..."), media_type(b"<svg onload='...'>")
    ('image/gif', 'application/octet-stream')
    """
    for magic, kind in _MAGIC:
        if picture.startswith(magic):
            return kind
    if picture[:4] == b"RIFF" and picture[8:12] == b"WEBP":
        return "image/webp"
    return _OTHER


def original(
    folder: Path,
    id: str | int,  # noqa: A002
    payload: Mapping[str, Any],
    max_bytes: int,
) -> bytes | None:
    """Return the original picture of an item, or None if the folder does not have it.

    Its path is the item's id, or the field ``path``, ``image`` or ``file`` of its payload, relative
    to the folder or absolute. The resolved path must be a file inside the folder, of a kind that
    browsers show, and of at most ``max_bytes``.
    """
    root = folder.resolve()
    for name in _names(id, payload):
        try:
            path = (root / name).resolve(strict=True)
            if not path.is_relative_to(root) or not path.is_file():
                continue
            content = _content(path, max_bytes)
        except (OSError, ValueError, RuntimeError):  # not there, not readable, no path, a loop
            continue
        if content is not None and media_type(content) != _OTHER:
            return content
    return None


def _names(id: str | int, payload: Mapping[str, Any]) -> Iterator[str]:  # noqa: A002
    for value in (id, *(payload.get(field) for field in _FIELDS)):
        if isinstance(value, str) and value:
            yield value


def _content(path: Path, max_bytes: int) -> bytes | None:
    """Return the content of a file, None if it is too large; a symbolic link is not followed."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        content = file.read(max_bytes + 1)
    return content if len(content) <= max_bytes else None
