"""What comes with a chunk besides features and labels: ids, payloads and thumbnails, checked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from oasis.collection.records import Id
from oasis.errors import DuplicateIdError, InputError

MAX_ID_BYTES = 1024
MAX_PAYLOAD_BYTES = 1 << 20
MAX_THUMBNAIL_BYTES = 10 * 1024

_INT64 = range(-(2**63), 2**63)
_TO_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_PLAIN = {str, int, float, bool, type(None)}


@dataclass(frozen=True)
class Intake:
    """The checked facts of a chunk's items, in their order.

    ``payloads`` are JSON texts, None for an empty payload; ``thumbnails`` are None where there is
    none.
    """

    ids: list[Id]
    payloads: list[str | None]
    thumbnails: list[bytes | None]


def check_intake(n: int, first_key: int, ids: Any, payload: Any, thumbnails: Any) -> Intake:
    """Check what comes with n items; items without ids get their keys, from ``first_key`` on."""
    if ids is None:
        checked: list[Id] = list(range(first_key, first_key + n))
    else:
        checked = [check_id(value) for value in _as_many(ids, n, "ids")]
        if len(set(checked)) < n:
            seen: set[Id] = set()
            # 1 and "1" are different ids, and different in a set
            again = next(value for value in checked if value in seen or seen.add(value))  # type: ignore[func-returns-value]
            raise DuplicateIdError(f"id {again!r} is given more than once")
    payloads: list[str | None] = [None] * n
    if payload is not None:
        payloads = [
            _payload(row, value) for row, value in enumerate(_as_many(payload, n, "payload"))
        ]
    pictures: list[bytes | None] = [None] * n
    if thumbnails is not None:
        pictures = [
            _thumbnail(row, value)
            for row, value in enumerate(_as_many(thumbnails, n, "thumbnails"))
        ]
    return Intake(checked, payloads, pictures)


def check_id(value: Any) -> Id:
    """Return an id as it is kept, or refuse it.

    >>> check_id("a.jpg"), check_id(7)
    ('a.jpg', 7)
    """
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        if int(value) not in _INT64:
            raise InputError(f"id {value} is beyond 64 bits; write it as a text")
        return int(value)
    if not isinstance(value, str) or not value:
        raise InputError(f"ids are whole numbers or texts that are not empty, got {value!r}")
    text = str(value)
    if len(_utf8(text, "an id")) > MAX_ID_BYTES:
        raise InputError(
            f"an id has at most {MAX_ID_BYTES} bytes, got one of {len(text)} characters"
        )
    return text


def _as_many(values: Any, n: int, what: str) -> list[Any]:
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise InputError(f"{what} must hold one entry per sample, got {type(values).__name__}")
    listed = list(values)
    if len(listed) != n:
        raise InputError(f"got {what} for {len(listed)} samples, but features for {n}")
    return listed


def _payload(row: int, value: Any) -> str | None:
    if value is None or value == {}:
        return None
    if not isinstance(value, Mapping):
        raise InputError(f"the payload of sample {row} must be an object, got {value!r}")
    try:
        text = _TO_JSON(dict(value))
        plain = all(type(key) is str and type(each) in _PLAIN for key, each in value.items())
        same = plain or json.loads(text) == value
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the payload of sample {row} is no JSON: {error}") from error
    if not same:
        raise InputError(
            f"the payload of sample {row} would come back changed; use texts as keys, and lists "
            "instead of tuples"
        )
    if (size := len(_utf8(text, f"the payload of sample {row}"))) > MAX_PAYLOAD_BYTES:
        raise InputError(
            f"the payload of sample {row} has {size} bytes as JSON, at most {MAX_PAYLOAD_BYTES} "
            "are kept"
        )
    return text


def _thumbnail(row: int, value: Any) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise InputError(
            f"the thumbnail of sample {row} must be the bytes of a picture file, got "
            f"{type(value).__name__}"
        )
    picture = bytes(value)
    if not 0 < len(picture) <= MAX_THUMBNAIL_BYTES:
        raise InputError(
            f"the thumbnail of sample {row} has {len(picture)} bytes, expected 1 to "
            f"{MAX_THUMBNAIL_BYTES}"
        )
    return picture


def _utf8(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{what} holds half a surrogate pair, which no text can") from error
