"""Pictures at the border: how large they claim to be, and what they are called."""

from __future__ import annotations

import io
import warnings

from oasis.errors import InputError, MissingExtraError

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


def check_pixels(picture: bytes, limit: int) -> None:
    """Refuse a picture that declares too many pixels, from its head, before anything decodes it.

    One that cannot be read passes: what makes its features says what is wrong with it.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("Pillow", extra="images", what="reading images") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(picture)) as image:
                n = image.width * image.height
    except Image.DecompressionBombError:
        n = limit + 1
    except Exception:  # noqa: BLE001 - decoders raise anything on a broken file
        return
    if n > limit:
        raise InputError(f"the picture is refused undecoded: it declares more than {limit} pixels")
