"""Raw items as they are sent: their fields as JSON, their pictures as files."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from oasis.client.requests import as_list, form, listed, names_of, plain
from oasis.collection.records import check_id, query_name
from oasis.errors import DataError, InputError

_QUERY = ("text", "vectors")
_ITEM = (*_QUERY, "id", "labels", "payload")
_PNG_MODES = ("1", "L", "LA", "I;16", "P", "RGB", "RGBA")
_SPARE_BYTES = 1024  # for the syntax around an item and its picture

REQUEST_BYTES = 16 << 20
"""Most bytes of the pictures of one request, so that it arrives in a minute at 2.2 Mbit/s."""


def queries_request(items: Any, asked: dict[str, Any]) -> tuple[bytes, str]:
    """Return a search with raw queries; one whose picture cannot be read is refused."""
    queries = listed(items, "queries")
    files, unread = picture_files(queries)
    for row, reason in unread.items():
        raise InputError(f"{query_name(row, len(queries))} cannot be used: image: {reason}")
    return form({**asked, "items": [_raw(item, _QUERY) for item in queries]}, files)


def items_request(
    items: Sequence[Any], files: Sequence[bytes | None], asked: dict[str, Any]
) -> tuple[bytes, str]:
    """Return an ingest of raw items with the files of their pictures."""
    given = {row: content for row, content in enumerate(files) if content is not None}
    return form({**asked, "items": [_raw(item, _ITEM) for item in items]}, given)


def n_fitting(items: Sequence[Any], limits: Mapping[str, int]) -> int:
    """Return how many of the first items one request can take; see `Client.fitting`."""
    n_json, n_bytes = _SPARE_BYTES, 0
    for row, item in enumerate(items[: limits["raw_batch"]]):
        n_json += len(plain(_raw(item, _ITEM))[0]) + 2
        n_bytes += _size(field(item, "image"))
        if (
            n_json > limits["json_bytes"]
            or n_json + n_bytes > limits["body_bytes"]
            or (row and n_bytes > REQUEST_BYTES)
        ):
            return row
    return min(len(items), limits["raw_batch"])


def picture_files(items: Sequence[Any]) -> tuple[dict[int, bytes], dict[int, str]]:
    """Return the pictures of raw items as bytes, and why some cannot be read, by row."""
    files: dict[int, bytes] = {}
    unread: dict[int, str] = {}
    for row, item in enumerate(items):
        picture = field(item, "image")
        try:
            if picture is not None:
                files[row] = _content(picture)
        except DataError as error:
            unread[row] = str(error)
    return files, unread


def _size(picture: Any) -> int:
    """Return about how many bytes a picture takes in a request."""
    if isinstance(picture, (bytes, bytearray, memoryview)):
        return len(picture) + _SPARE_BYTES
    if isinstance(picture, (str, Path)):
        try:
            return Path(picture).stat().st_size + _SPARE_BYTES
        except (OSError, ValueError):  # it is listed when it is read
            return _SPARE_BYTES
    return 0 if picture is None else len(_content(picture)) + _SPARE_BYTES


def field(item: Any, name: str) -> Any:
    """Return a field of a raw item, which is a mapping or has attributes; None if it has none."""
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def _raw(item: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of a raw item as JSON has them; its picture is sent beside (`form`)."""
    found = {}
    for name in names:
        value = field(item, name)
        if value is None:
            continue
        if name == "vectors":
            value = _vectors(value)
            if not value:
                continue
        elif name == "labels":
            value = names_of(value)
        elif name == "id":
            value = check_id(value)
        found[name] = value
    return found


def _vectors(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise InputError(
            f"the vectors of an item are {type(given).__name__}, expected a mapping of modality to "
            "vector"
        )
    dense = {
        name: vector.toarray().ravel() if hasattr(vector, "toarray") else vector
        for name, vector in given.items()
        if vector is not None
    }
    return {name: as_list(vector) for name, vector in dense.items()}


def _content(picture: Any) -> bytes:
    """Return a picture as the bytes of a file: read from a path, or encoded here."""
    if isinstance(picture, (str, Path)):
        path = Path(picture)
        try:
            if not path.is_file():  # a pipe or a device would never end
                raise DataError(f"the picture {path} is missing, or no regular file")
            return path.read_bytes()
        except (OSError, ValueError) as error:  # a ValueError: the name holds a NUL
            raise DataError(f"the picture cannot be read: {error}") from error
    if isinstance(picture, (bytes, bytearray, memoryview)):
        return bytes(picture)
    if hasattr(picture, "__array_interface__") and hasattr(picture, "shape"):
        picture = _image(picture)
    if hasattr(picture, "getexif") and hasattr(picture, "save"):
        # whoever has such a picture has Pillow
        file = io.BytesIO()
        kind = "PNG" if picture.mode in _PNG_MODES else "TIFF"
        picture.save(file, kind, exif=picture.getexif())
        return file.getvalue()
    raise InputError(
        f"a picture is a path, bytes, a PIL image or an array, got {type(picture).__name__}"
    )


def _image(array: Any) -> Any:
    from PIL import Image

    try:
        return Image.fromarray(array)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"the picture is an array of shape {array.shape} and type {array.dtype}, expected "
            "(height, width, 3) uint8"
        ) from error


def pictures(thumbnails: Iterable[bytes | None]) -> list[str | None]:
    """Return small pictures as JSON has them: in base64."""
    return [None if each is None else b64encode(_content(each)).decode() for each in thumbnails]
