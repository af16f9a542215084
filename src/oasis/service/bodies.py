"""Bodies into requests: JSON, multipart forms with pictures, and safetensors for vectors.

==============================  ===================================================================
``application/json``            the request
``multipart/form-data``         a field ``request`` with the JSON, and files ``image.0``,
                                ``image.1``...: the pictures of its items by row
``application/x-safetensors``   one tensor a modality, (n, d); the rest of the request as JSON under
                                ``request`` in the metadata. A CSR matrix is three tensors,
                                ``text:data``, ``text:indices`` and ``text:indptr``, and its width
                                stands under ``sparse`` in the metadata, as JSON: ``{"text": 2048}``
==============================  ===================================================================

Vectors as safetensors take the bytes of their numbers (4 each for float32) and a head of some
hundred bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy
import scipy.sparse as sp
from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from oasis.errors import InputError
from oasis.service.problems import Problem, at_pointer
from oasis.service.settings import Limits
from oasis.service.work import Call

JSON = "application/json"
FORM = "multipart/form-data"
TENSORS = "application/x-safetensors"

_MAX_ERRORS = 20
_SMALL = 1 << 14
_BLOCK = 1 << 16
_FILE = re.compile(r"image\.(\d{1,6})")
_DTYPES = frozenset("fiu")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # as int8: one deeper, one less deep

Form = TypeVar("Form", bound=BaseModel)


@dataclass(frozen=True)
class Body(Generic[Form]):
    """A decoded body: the request, vectors by modality, and pictures by row."""

    request: Form
    vectors: dict[str, Any] = field(default_factory=dict)
    pictures: dict[int, bytes] = field(default_factory=dict)


async def read_body(request: Request, call: Call, form: type[Form], limit: int) -> Body[Form]:
    """Return the body of a request, or refuse it with what is wrong and where.

    ``limit`` is how many bytes of JSON the route takes.
    """
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    limits = call.limits
    decode: Callable[[], Body[Form]]
    if kind == JSON:
        content = await _at_most(request, limit)

        def decode() -> Body[Form]:
            return Body(_parse(form, content, limit, limits))

    elif kind == TENSORS:
        content = await request.body()

        def decode() -> Body[Form]:
            return _tensors(form, content, limit, limits)

    elif kind == FORM:
        content, pictures = await _form(request, limit, limits.raw_batch)

        def decode() -> Body[Form]:
            return Body(_parse(form, content, limit, limits), {}, pictures)

    else:
        raise Problem(
            415,
            "media-type",
            f"the body has the type {kind[:100]!r}, expected {JSON}, {FORM} or {TENSORS}",
        )
    # a large body is decoded in a thread: the event loop serves all requests
    return decode() if len(content) <= _SMALL else await call.decode(decode)


async def _at_most(request: Request, limit: int) -> bytes:
    """Return the body of a request; no more of it is read than the route takes."""
    parts, n = [], 0
    async for part in request.stream():
        parts.append(part)
        n += len(part)
        if n > limit:
            raise _too_large(limit)
    return b"".join(parts)


def _too_large(limit: int) -> Problem:
    return Problem(
        413,
        "too-large",
        f"the JSON has more than {limit} bytes, the most that is taken here; send smaller batches, "
        f"vectors as {TENSORS}, or pictures in a form",
        headers={"Connection": "close"},
    )


# -- JSON --------------------------------------------------------------------------------------


def _parse(form: type[Form], content: bytes, limit: int, limits: Limits) -> Form:
    if len(content) > limit:
        raise _too_large(limit)
    check_json(content, limits)
    try:
        return form.model_validate_json(content)
    except ValidationError as error:
        found = [
            (_pointer(each["loc"]), each["msg"])
            for each in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        shown = found[:_MAX_ERRORS]
        first = f"{shown[0][0] or 'the body'}: {shown[0][1]}"
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise Problem(422, "input", first + more, shown) from error


def check_json(content: bytes, limits: Limits) -> None:
    """Refuse JSON of too many values, or too deep, before it is parsed.

    Parsing holds the interpreter lock, half a second for 12 MB of ``[]``. This reads the bytes in
    blocks, each in less than a millisecond, and needs no more memory than a block. What is no JSON
    is refused by the parser, at the first byte that makes it so; up to there the counts are exact.

    >>> check_json(b'{"a": ["[[[", 1]}', Limits(json_containers=2, json_depth=2))
    >>> check_json(b'{"a": ["[[[", [1]]}', Limits(json_containers=2))
    Traceback (most recent call last):
        ...
    oasis.service.problems.Problem: the JSON has more than 2 lists and objects, ...
    """
    values = containers = depth = 0
    is_inside, rest = False, b""
    for start in range(0, len(content), _BLOCK):
        block = rest + content[start : start + _BLOCK]
        n_slashes = len(block) - len(block.rstrip(b"\\"))
        rest = b"\\" * (n_slashes % 2)  # it escapes the first byte of the next block
        block = block[: len(block) - len(rest)].replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = block.split(b'"')
        outside = b"".join(parts[is_inside::2])
        is_inside ^= len(parts) % 2 == 0
        values += outside.count(b",")
        brackets = outside.translate(_STEPS, _NO_BRACKETS)
        containers += brackets.count(1)
        depths = depth + np.frombuffer(brackets, dtype=np.int8).cumsum(dtype=np.int64)
        deepest, depth = (int(depths.max()), int(depths[-1])) if len(depths) else (depth, depth)
        for found, most, what in (
            (values + containers, limits.json_values, "values"),
            (containers, limits.json_containers, "lists and objects"),
            (deepest, limits.json_depth, "levels of nesting"),
        ):
            if found > most:
                raise Problem(
                    413,
                    "too-large",
                    f"the JSON has more than {most} {what}, the most that is taken; send smaller "
                    f"batches, or vectors as {TENSORS}",
                    headers={"Connection": "close"},
                )


def _pointer(loc: tuple[int | str, ...]) -> str:
    """Return a place in the body as a JSON pointer."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')[:100]}" for part in loc)


# -- forms -------------------------------------------------------------------------------------


async def _form(request: Request, limit: int, most: int) -> tuple[bytes, dict[int, bytes]]:
    """Return the JSON of a form's request, and its pictures by row."""
    pictures: dict[int, bytes] = {}
    content = None
    parser = MultiPartParser(
        request.headers, _whole(request), max_files=most, max_fields=1, max_part_size=limit
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise _bad_form(error.message) from error
    try:
        for name, value in form.multi_items():
            match = _FILE.fullmatch(name)
            if match is None and (name != "request" or content is not None):
                raise _bad_form(f"the part {name[:100]!r} is not known, or given twice")
            part = await value.read() if isinstance(value, UploadFile) else value.encode()
            if match is None:
                content = part
            elif int(match[1]) in pictures:  # image.1 and image.01
                raise _bad_form(f"the file image.{int(match[1])} is given twice")
            else:
                pictures[int(match[1])] = part
    finally:
        await form.close()
    return content or b"{}", pictures


async def _whole(request: Request) -> AsyncGenerator[bytes]:
    """Yield the body of a form, and refuse one that stops before its end.

    The parser takes such a body, and leaves the file of its last part open.
    """
    last = b""
    async for part in request.stream():
        last = (last + part)[-4:]
        yield part
    if not last.rstrip(b"\r\n").endswith(b"--"):
        raise _bad_form("it stops before its closing boundary")


def _bad_form(reason: str) -> Problem:
    return Problem(
        400,
        "form",
        f"the form cannot be read: {reason[:300]}; expected a field 'request' with JSON, and files "
        "image.0, image.1 and so on",
    )


# -- tensors -----------------------------------------------------------------------------------


def _tensors(form: type[Form], content: bytes, limit: int, limits: Limits) -> Body[Form]:
    metadata = _metadata(content, limits)
    try:
        loaded = safetensors.numpy.load(content)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _bad_tensors(str(error)) from error
    for name, tensor in loaded.items():
        if tensor.dtype.kind not in _DTYPES:
            raise _bad_tensors(f"the tensor {name[:100]!r} holds {tensor.dtype}, expected numbers")
    try:
        sparse, asked = metadata.get("sparse", "{}"), metadata.get("request", "{}")
        for text in (sparse, asked):
            check_json(text.encode(), limits)
        vectors = _matrices(loaded, json.loads(sparse))
        rest = json.loads(asked)
        if not isinstance(rest, dict):
            raise ValueError("request must be an object")
        # the model only checks that there are vectors; the arrays are passed beside it
        content = json.dumps({**rest, "vectors": {}}).encode()
    except (ValueError, RecursionError) as error:
        raise _bad_tensors(str(error)) from error
    return Body(_parse(form, content, limit, limits), vectors)


def _metadata(content: bytes, limits: Limits) -> dict[str, str]:
    try:
        head = content[8 : 8 + int.from_bytes(content[:8], "little")]
        check_json(head, limits)
        found = json.loads(head).get("__metadata__", {})
        if not all(isinstance(value, str) for value in found.values()):
            raise ValueError("metadata are texts")
    except (ValueError, AttributeError, RecursionError) as error:
        raise _bad_tensors("its head is no JSON object") from error
    return dict(found)


def _matrices(loaded: dict[str, Any], widths: Any) -> dict[str, Any]:
    """Return dense and CSR matrices by modality."""
    if not isinstance(widths, dict):
        raise ValueError("sparse must be an object")
    found: dict[str, Any] = {}
    for name, width in widths.items():
        parts = [loaded.pop(f"{name}:{part}", None) for part in ("data", "indices", "indptr")]
        data, indices, indptr = parts
        if data is None or indices is None or indptr is None or not isinstance(width, int):
            raise ValueError(f"the sparse modality {name[:100]!r} lacks a part, or its width")
        if any(part.ndim != 1 for part in parts if part is not None) or not len(indptr):
            raise ValueError(f"the parts of the sparse modality {name[:100]!r} must be vectors")
        try:
            matrix = sp.csr_array(
                (data, indices.astype(np.int64), indptr.astype(np.int64)),
                shape=(len(indptr) - 1, width),
            )
            matrix.check_format(full_check=True)
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(f"the sparse modality {name[:100]!r} is no CSR: {error}") from error
        found[name] = matrix
    for name, tensor in loaded.items():
        if tensor.ndim != 2:
            raise ValueError(f"the tensor {name[:100]!r} has shape {tensor.shape}, expected (n, d)")
        found[name] = tensor
    if not found:
        raise ValueError("there is no tensor")
    return found


def _bad_tensors(reason: str) -> Problem:
    return Problem(400, "tensors", f"the safetensors body cannot be read: {reason[:300]}")


# -- what the collection is given --------------------------------------------------------------


def matrices(body: Body[Any]) -> dict[str, Any]:
    """Return the vectors of a request as matrices by modality; lists become float64."""
    if body.vectors or not body.request.vectors:
        return body.vectors
    return {
        name: _matrix(f"/vectors/{name[:100]}", rows) for name, rows in body.request.vectors.items()
    }


def word_vectors(vectors: dict[str, Any]) -> dict[str, Any]:
    """Return the vectors of words as arrays."""
    return {name: _row(f"/vectors/{name[:100]}", row) for name, row in vectors.items()}


def _matrix(pointer: str, rows: Any) -> npt.NDArray[np.float64]:
    if not isinstance(rows, list):
        raise at_pointer(pointer, "expected a list of rows")
    found = [_row(f"{pointer}/{number}", row) for number, row in enumerate(rows)]
    if len({len(row) for row in found}) > 1:
        raise at_pointer(pointer, "its rows differ in length")
    return np.stack(found) if found else np.empty((0, 0))


def _row(pointer: str, row: Any) -> npt.NDArray[np.float64]:
    # one row at a time, so that other threads get the interpreter lock in between
    if not isinstance(row, list) or not set(map(type, row)) <= {int, float}:
        raise at_pointer(pointer, "expected a list of numbers")
    try:
        return np.array(row, dtype=np.float64)
    except OverflowError:
        raise at_pointer(pointer, "holds a number that is too large") from None


def raw_fields(body: Body[Any]) -> list[dict[str, Any]]:
    """Return the raw items of a request with their vectors and the pictures of its form."""
    found = [item.fields() for item in body.request.items or []]
    for row, item in enumerate(found):
        if item["vectors"] is not None:
            item["vectors"] = {
                name: _row(f"/items/{row}/vectors/{name[:100]}", vector)
                for name, vector in item["vectors"].items()
            }
    for row, picture in body.pictures.items():
        if row >= len(found):
            raise InputError(f"there is a file image.{row}, but only {len(found)} items")
        found[row]["image"] = picture
    return found
