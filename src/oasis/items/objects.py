"""JSON objects out of bytes, and why a value is refused."""

from __future__ import annotations

import datetime
import json
import math
from typing import Any


class Refused(Exception):
    """Why a row cannot be used; readers turn it into a `Reject`."""


def is_unicode(text: str) -> bool:
    """Return whether a text can be stored as UTF-8; half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def kind_of(value: object) -> str:
    """Name a value in a message, in the words of JSON.

    >>> kind_of("sky"), kind_of(None)
    ("the text 'sky'", 'null')
    """
    match value:
        case bool():
            return f"the truth value {value}"
        case int() | float():
            return f"the number {value!r}"
        case str():
            return f"the text {value[:40]!r}"
        case list():
            return "a list"
        case dict():
            return "an object"
        case None:
            return "null"
    return f"of type {type(value).__name__}"


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:40]} is too large a number")
    return number


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)


def parse_object(data: bytes, name: str | None = None) -> dict[str, Any]:
    """Parse a JSON object from bytes; ``name`` is the field they come from, if any."""
    what = "the line" if name is None else repr(name)
    try:
        value = _DECODER.decode(data.decode())
    except UnicodeDecodeError as error:
        raise Refused(f"{what} is not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise Refused(f"{what} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise Refused(f"{what} is {kind_of(value)}, expected an object")
    # half of a surrogate pair can be written as an escape, but not stored
    if b"\\u" in data and not is_unicode(json.dumps(value, ensure_ascii=False)):
        raise Refused(f"{what} is not valid Unicode")
    return value


def as_json(payload: dict[str, Any]) -> dict[str, Any]:
    """Return a payload after a round trip through JSON; dates become ISO text.

    >>> as_json({"day": datetime.date(2024, 5, 1), "n": 1.5})
    {'day': '2024-05-01', 'n': 1.5}
    """

    def text(value: object) -> str:
        if isinstance(value, (datetime.date, datetime.time)):
            return value.isoformat()
        raise Refused(f"the payload holds {kind_of(value)}, which JSON cannot")

    try:
        result: dict[str, Any] = json.loads(json.dumps(payload, default=text, allow_nan=False))
    except (ValueError, RecursionError) as error:
        raise Refused(f"the payload cannot be written as JSON: {error}") from error
    return result
