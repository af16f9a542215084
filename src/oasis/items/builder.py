"""Items out of rows, and the checks of their values; JSON objects out of bytes."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oasis.arrays import checked_vector
from oasis.errors import InputError
from oasis.items.fields import Fields
from oasis.items.item import Item, Refused, Vector

_INT64 = range(-(2**63), 2**63)


class ItemBuilder:
    """Makes items from values by field name, and refuses invalid ones.

    ``separator`` separates labels that are one text.
    """

    def __init__(
        self, fields: Fields, folder: Path, *, allow_outside: bool, separator: str = ";"
    ) -> None:
        if not separator:
            raise InputError("the separator of labels is empty; expected something like ';'")
        self.fields = fields
        self.folder = folder.resolve()
        self.allow_outside = allow_outside
        self.separator = separator
        self._widths: dict[str, int] = {}

    def id(self, values: Mapping[str, Any]) -> str | int:
        """Return the id unchanged: a text, or an integer of at most 64 bits."""
        name = self.fields.id
        value = values.get(name)
        if value is None or value == "":
            raise Refused(f"there is no {name!r}")
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise Refused(f"{name!r} is {kind_of(value)}, expected a text or a whole number")
        if isinstance(value, int) and value not in _INT64:
            raise Refused(f"{name!r} is beyond 64 bits; write it as a text")
        return value

    def item(self, where: str, key: str | int, values: Mapping[str, Any]) -> Item:
        """Return the item with these values; raise `Refused` if they are invalid."""
        fields = self.fields
        image = self._image(_value(values, fields.image), fields.image)
        text = _value(values, fields.text)
        if text is not None and not isinstance(text, str):
            raise Refused(f"{fields.text!r} is {kind_of(text)}, expected a text")
        labels = self._labels(_value(values, fields.labels), fields.labels)
        payload = self._payload(values)
        vectors = {
            modality: self._vector(values[column], modality, column)
            for modality, column in fields.vectors.items()
            if values.get(column) is not None
        }
        if image is None and not text and not vectors and not fields.facts_alone:
            if fields.vectors:
                raise Refused(f"it has no vector in {sorted(fields.vectors.values())}")
            raise Refused("there is neither a picture nor a text")
        self._widths |= {modality: len(vector) for modality, vector in vectors.items()}
        return Item(key, image, text or None, labels, payload, where, vectors)

    def regular_file(self, value: str) -> Path | None:
        """Return the resolved path if it is allowed, and None if there is no regular file.

        Links and ``..`` are resolved first, and the result is checked.
        """
        try:
            path = (self.folder / value).resolve()
            if not self.allow_outside and not path.is_relative_to(self.folder):
                raise Refused(
                    f"the path {value[:200]!r} leads outside the folder of the data; to allow it, "
                    "add --allow-outside"
                )
            return path if path.is_file() else None
        except (OSError, ValueError, RuntimeError) as error:  # too long, NUL, circular links
            raise Refused(f"the path {value[:200]!r} cannot be followed: {error}") from error

    def _image(self, value: Any, name: str | None) -> Path | bytes | None:
        match value:
            case None | bytes():
                return value
            case {"bytes": bytes(content)}:
                return content
            case {"path": str(value)} | str(value):
                path = self.regular_file(value)
            case _:
                raise Refused(f"{name!r} is {kind_of(value)}, expected a path")
        if path is None:
            raise Refused(f"the picture {value!r} is missing in {self.folder}, or no regular file")
        return path

    def _labels(self, value: Any, name: str | None) -> tuple[str, ...]:
        if value is None:
            return ()
        if isinstance(value, str):
            value = [label for label in value.split(self.separator) if label.strip()]
        if not isinstance(value, list):
            raise Refused(f'{name!r} is {kind_of(value)}, expected a list, such as ["sky", "sea"]')
        for label in value:
            if not isinstance(label, str):
                raise Refused(f"{name!r} holds {kind_of(label)}, expected texts")
            if not label.strip():
                raise Refused(f"{name!r} holds an empty text")
        return tuple(dict.fromkeys(label.strip() for label in value))

    def _vector(self, value: Any, modality: str, column: str) -> Vector:
        try:
            return checked_vector(value, self._widths.get(modality))
        except InputError as error:
            raise Refused(f"{column!r} {error}") from error

    def _payload(self, values: Mapping[str, Any]) -> dict[str, Any]:
        name = self.fields.payload
        if isinstance(name, tuple):
            there = {part: values.get(part) for part in name}
            # NaN, as pandas writes what is missing, is not equal to itself
            return as_json({k: v for k, v in there.items() if v is not None and v == v})
        payload = _value(values, name)
        if payload is None:
            return {}
        if isinstance(payload, str):
            return parse_object(payload.encode(), name)
        if not isinstance(payload, dict):
            raise Refused(f"{name!r} is {kind_of(payload)}, expected an object")
        return as_json(payload)


def _value(values: Mapping[str, Any], name: str | None) -> Any:
    """Return the value of a field, or None if it is missing or not read."""
    return None if name is None else values.get(name)


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
