"""Requests as they are sent: JSON, matrices as safetensors, and forms with pictures."""

from __future__ import annotations

import io
import json
import secrets
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from oasis.collection.records import check_id, query_name
from oasis.errors import DataError, InputError

JSON = "application/json"
TENSORS = "application/x-safetensors"
FORM = "multipart/form-data"

Sent = tuple[bytes, str]
"""A body, and its type."""

REQUEST_BYTES = 16 << 20
"""Most bytes of the pictures of one request, so that it arrives in a minute at 2.2 Mbit/s."""

_QUERY = ("text", "vectors")
_ITEM = (*_QUERY, "id", "labels", "payload")
_PNG_MODES = ("1", "L", "LA", "I;16", "P", "RGB", "RGBA")
_SPARE_BYTES = 1024  # for the syntax around an item and its picture


def question(
    k: int, mode: str, where: Mapping[str, Any] | None, offset: int, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the part of a search that all kinds share; options that are not set are left out."""
    asked = {"k": k, "mode": mode, "where": where, "offset": offset, **options}
    if asked.pop("max_bytes", None) is not None:
        raise InputError("max_bytes is for collections here; a service bounds its answers itself")
    if asked.get("fuse") is not False:
        asked.pop("fuse", None)
    return asked


def plain(asked: dict[str, Any]) -> Sent:
    """Return a request as JSON."""
    try:
        return json.dumps(asked, allow_nan=False, default=_number).encode(), JSON
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the request is no JSON: {error}") from error


def _number(value: object) -> Any:
    """Return a number of NumPy as one of Python."""
    if hasattr(value, "dtype") and getattr(value, "ndim", None) == 0:
        return value.item()  # type: ignore[attr-defined]
    raise TypeError(f"{type(value).__name__} is no JSON")


def names_of(names: Any) -> list[Any]:
    """Return labels as a list; a plain text is refused."""
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise InputError(f"labels are lists of class names, got {names!r}; write [name] for one")
    return list(names)


def listed(values: Any, what: str) -> list[Any]:
    """Return any values as a list; a plain text or a mapping is refused."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise InputError(f"{what} must be a list, got {type(values).__name__}")
    return list(values)


def address_of(key: Any) -> str:
    """Return an id as the query of an address."""
    checked = check_id(key)
    return urlencode({"id": checked, "kind": "text" if isinstance(checked, str) else "number"})


# -- matrices ----------------------------------------------------------------------------------


def pack(X: Mapping[str, Any], rest: dict[str, Any]) -> Sent:
    """Return matrices by modality, and the rest of a request, as safetensors."""
    if not isinstance(X, Mapping) or not X:
        raise InputError(f"X must map modality names to matrices, got {type(X).__name__}")
    # whoever has matrices has NumPy; a client without them loads the standard library alone
    import safetensors.numpy

    tensors: dict[str, Any] = {}
    widths: dict[str, int] = {}
    for name, matrix in X.items():
        if hasattr(matrix, "tocsr"):
            rows = _csr(name, matrix)
            widths[name] = rows.shape[1]
            for part in ("data", "indices", "indptr"):
                tensors[f"{name}:{part}"] = getattr(rows, part)
        else:
            tensors[name] = _numbers(name, matrix)
    metadata = {"request": plain(rest)[0].decode(), "sparse": json.dumps(widths)}
    return safetensors.numpy.save(tensors, metadata), TENSORS


def as_list(vector: Any) -> Any:
    """Return an array, or whatever can become one, as lists of numbers."""
    import numpy as np

    return np.asarray(vector).tolist()


def _numbers(name: str, matrix: Any) -> Any:
    import numpy as np

    try:
        values = np.asarray(matrix)
    except ValueError as error:
        raise InputError(f"modality {name!r} is no matrix: {error}") from error
    if values.dtype.kind not in "biuf":
        raise InputError(f"modality {name!r} holds {values.dtype}, expected numbers")
    return np.ascontiguousarray(values.astype(np.uint8) if values.dtype.kind == "b" else values)


def _csr(name: str, matrix: Any) -> Any:
    # SciPy is there where a sparse matrix is
    from oasis.arrays import checked_csr

    try:
        return checked_csr(matrix)
    except InputError as error:
        raise InputError(f"modality {name!r} {error}") from error


# -- raw items, their pictures as files --------------------------------------------------------


def queries(items: Any, asked: dict[str, Any]) -> Sent:
    """Return a search with raw queries; one whose picture cannot be read is refused."""
    wanted = listed(items, "queries")
    files, unread = picture_files(wanted)
    for row, reason in unread.items():
        raise InputError(f"{query_name(row, len(wanted))} cannot be used: image: {reason}")
    return form({**asked, "items": raw_items(wanted, _QUERY)}, files)


def raw_items(items: Iterable[Any], names: tuple[str, ...] = _ITEM) -> list[dict[str, Any]]:
    """Return the fields of raw items as JSON has them; their pictures are sent beside (`form`)."""
    found = []
    for item in items:
        given = {name: field(item, name) for name in names}
        if given["vectors"] is not None:
            given["vectors"] = _vectors(given["vectors"]) or None
        if given.get("labels") is not None:
            given["labels"] = names_of(given["labels"])
        if given.get("id") is not None:
            given["id"] = check_id(given["id"])
        found.append({name: value for name, value in given.items() if value is not None})
    return found


def field(item: Any, name: str) -> Any:
    """Return a field of a raw item, which is a mapping or has attributes; None if it has none."""
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def _vectors(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise InputError(
            f"the vectors of an item are {type(given).__name__}, expected a mapping of modality to "
            "vector"
        )
    return {
        name: as_list(vector.toarray().ravel() if hasattr(vector, "toarray") else vector)
        for name, vector in given.items()
        if vector is not None
    }


def form(asked: dict[str, Any], files: Mapping[int, bytes]) -> Sent:
    """Return a request with pictures by row; without pictures it is plain JSON.

    A form takes the bytes of the pictures, base64 in JSON would take a third more.
    """
    if not files:
        return plain(asked)
    boundary = secrets.token_hex(16)  # 128 random bits, so that no file holds it
    start = f'--{boundary}\r\nContent-Disposition: form-data; name="'
    sent = [f'{start}request"\r\n\r\n'.encode(), plain(asked)[0], b"\r\n"]
    for row, content in files.items():
        sent.append(f'{start}image.{row}"; filename="{row}"\r\n\r\n'.encode())
        sent += [content, b"\r\n"]
    sent.append(f"--{boundary}--\r\n".encode())
    return b"".join(sent), f"{FORM}; boundary={boundary}"


def n_fitting(items: Sequence[Any], limits: Mapping[str, int]) -> int:
    """Return how many of the first items one request can take; see `Client.fitting`."""
    n_json, n_bytes, n_values = _SPARE_BYTES, 0, 0
    for row, item in enumerate(items[: limits["raw_batch"]]):
        text = plain(raw_items([item])[0])[0]
        n_json += len(text) + 2
        n_values += text.count(b",") + text.count(b"{") + text.count(b"[") + 1
        n_bytes += _size(field(item, "image"))
        if (
            n_json > limits["json_bytes"]
            or n_values > limits.get("json_values", n_values)
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


def in_base64(thumbnails: Iterable[bytes | None]) -> list[str | None]:
    """Return small pictures as JSON has them."""
    return [None if each is None else b64encode(_content(each)).decode() for each in thumbnails]


def _size(picture: Any) -> int:
    """Return about how many bytes a picture takes in a request."""
    if isinstance(picture, (str, Path)):
        try:
            return Path(picture).stat().st_size + _SPARE_BYTES
        except (OSError, ValueError):  # it is listed when it is read
            return _SPARE_BYTES
    return 0 if picture is None else len(_content(picture)) + _SPARE_BYTES


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
