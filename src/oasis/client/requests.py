"""Requests as they are sent: JSON, matrices as safetensors, and forms with pictures."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

from oasis.collection.records import check_id
from oasis.errors import InputError

JSON = "application/json"
TENSORS = "application/x-safetensors"
FORM = "multipart/form-data"


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


def form(asked: dict[str, Any], files: Mapping[int, bytes]) -> tuple[bytes, str]:
    """Return a request with pictures by row, with its type; without pictures it is plain JSON.

    A form takes the bytes of the pictures, base64 in JSON would take a third more.
    """
    if not files:
        return plain(asked)
    boundary = secrets.token_hex(16)  # 128 random bits, so that no file holds it
    start = f'--{boundary}\r\nContent-Disposition: form-data; name="'
    parts = [f'{start}request"\r\n\r\n'.encode(), plain(asked)[0], b"\r\n"]
    for row, content in files.items():
        parts.append(f'{start}image.{row}"; filename="{row}"\r\n\r\n'.encode())
        parts += [content, b"\r\n"]
    parts.append(f"--{boundary}--\r\n".encode())
    return b"".join(parts), f"{FORM}; boundary={boundary}"


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
