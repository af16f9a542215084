"""What pictures are called where they are sent."""

from __future__ import annotations

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)


def media_type(picture: bytes) -> str:
    """Return the type of a picture that a browser may show; of anything else, that of bytes.

    >>> media_type(b"GIF89a..."), media_type(b"<svg onload='...'>")
    ('image/gif', 'application/octet-stream')
    """
    for magic, kind in _MAGIC:
        if picture.startswith(magic):
            return kind
    if picture[:4] == b"RIFF" and picture[8:12] == b"WEBP":
        return "image/webp"
    return "application/octet-stream"
