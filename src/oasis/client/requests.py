"""Requests as they are sent: JSON, and matrices as safetensors."""

from __future__ import annotations

import io
import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from oasis.collection.records import check_id
from oasis.errors import DataError, InputError

JSON = "application/json"
TENSORS = "application/x-safetensors"

_PNG_MODES = ("1", "L", "LA", "I;16", "P", "RGB", "RGBA")


def question(
    k: int,
    mode: str,
    where: Mapping[str, Any] | None,
    offset: int,
    payload: bool,
    content: float | None = None,
) -> dict[str, Any]:
    asked = {"k": k, "mode": mode, "where": where, "offset": offset, "payload": payload}
    return asked if content is None else {**asked, "content": content}


def plain(asked: dict[str, Any]) -> tuple[bytes, str]:
    """Return a request as JSON, with its type."""
    try:
        return json.dumps(asked, allow_nan=False, default=_number).encode(), JSON
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the request is no JSON: {error}") from error


def _number(value: object) -> Any:
    """Return a number of NumPy as one of Python."""
    if hasattr(value, "dtype") and getattr(value, "ndim", None) == 0:
        return value.item()  # type: ignore[attr-defined]
    raise TypeError(f"{type(value).__name__} is no JSON")


def pack(X: Mapping[str, Any], rest: dict[str, Any]) -> tuple[bytes, str]:
    """Return matrices by modality, and the rest of a request, as safetensors with their type."""
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
            tensors[f"{name}:data"] = rows.data
            tensors[f"{name}:indices"] = rows.indices
            tensors[f"{name}:indptr"] = rows.indptr
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


def raw(item: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of a raw item as JSON has them; a picture becomes its bytes in base64."""
    found = {}
    for name in names:
        value = item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)
        if value is None:
            continue
        if name == "image":
            value = _base64(_content(value))
        elif name == "vectors":
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
    if isinstance(picture, (str, Path)):
        try:
            return Path(picture).read_bytes()
        except OSError as error:
            raise DataError(f"the picture {picture} cannot be read: {error.strerror}") from error
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


def _base64(content: bytes) -> str:
    return b64encode(content).decode()


def pictures(thumbnails: Iterable[bytes | None]) -> list[str | None]:
    return [None if each is None else _base64(_content(each)) for each in thumbnails]


def names_of(names: Any) -> list[Any]:
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise InputError(f"labels are lists of class names, got {names!r}; write [name] for one")
    return list(names)


def listed(values: Any, what: str) -> list[Any]:
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise InputError(f"{what} must be a list, got {type(values).__name__}")
    return list(values)


def address_of(key: Any) -> str:
    """Return an id as the query of an address."""
    checked = check_id(key)
    return urlencode({"id": checked, "kind": "text" if isinstance(checked, str) else "number"})


def _csr(name: str, matrix: Any) -> Any:
    # SciPy is there where a sparse matrix is
    from oasis.arrays import checked_csr

    try:
        return checked_csr(matrix)
    except InputError as error:
        raise InputError(f"modality {name!r} {error}") from error
