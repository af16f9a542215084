"""Items, the names of their fields, and the checks of their values."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy.typing as npt

from oasis.arrays import checked_vector
from oasis.errors import DataError, InputError, UnusedFieldWarning

_INT64 = range(-(2**63), 2**63)
_NEAR = 0.8  # "lables" and "labels" have 0.83, "test" and "text" 0.75

Vector: TypeAlias = npt.NDArray[Any]
"""Features of one item in one modality: (d,) real numbers, in their original precision."""

Row: TypeAlias = tuple[str, dict[str, Any] | str]
"""Position in the file, and the values by field name or the reason why there are none."""


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to learn or to find: a picture, a text, vectors, with labels and payload.

    ``vectors`` are features computed elsewhere, by modality. They replace the features of the
    picture or text in that modality. They are not compared by ``==``.
    """

    id: str | int
    image: Path | bytes | None = None
    text: str | None = None
    labels: tuple[str, ...] = ()
    payload: dict[str, Any] = field(default_factory=dict)
    where: str = field(default="", compare=False)
    vectors: Mapping[str, Vector] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Reject:
    """A row that cannot be used: its file and line, its id if that could be read, and why."""

    where: str
    id: str | int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Fields:
    """Names of the fields (JSONL) or columns (CSV, Parquet); None for a field that is not read.

    ``payload`` is one field that holds an object (in CSV: JSON text), or a tuple of fields that are
    gathered into an object; then a CSV cell with a JSON number becomes a number. A name other than
    the default must occur among the columns. ``vectors`` maps a modality to the column of its
    features; such a column is not read as a picture or text.
    """

    id: str = "id"
    image: str | None = "image"
    text: str | None = "text"
    labels: str | None = "labels"
    payload: str | tuple[str, ...] | None = "payload"
    vectors: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("image", "text"):
            if getattr(self, name) in self.vectors.values():
                object.__setattr__(self, name, None)

    def names(self) -> list[str]:
        """Return the names of all fields that are read.

        >>> Fields(image=None, payload=("year", "place"), vectors={"image": "clip"}).names()
        ['id', 'text', 'labels', 'year', 'place', 'clip']
        """
        gathered = self.payload if isinstance(self.payload, tuple) else (self.payload,)
        named = (self.id, self.image, self.text, self.labels, *gathered, *self.vectors.values())
        return [name for name in named if name is not None]

    def check(self, path: Path, columns: list[str]) -> None:
        """Raise `DataError` unless a file with these columns has the required fields."""
        twice = sorted({name for name in columns if columns.count(name) > 1})
        if twice:
            raise DataError(f"{path} has two columns called {twice[0]!r}")
        self.check_given(path, "column", columns, needed=[self.id])
        if not self.vectors and self.image not in columns and self.text not in columns:
            raise DataError(
                f"{path} has neither a column {self.image!r} for pictures nor {self.text!r} for "
                f"texts; its columns are {columns}"
            )

    def check_given(
        self, path: Path | str, what: str, found: list[str], needed: Sequence[str] = ()
    ) -> None:
        """Raise `DataError` if a name that is required, or not a default, was not found.

        Give an `UnusedFieldWarning` if a default one was not found, but a name near it.
        """
        defaults = Fields().names()
        missing = [name for name in self.names() if name not in found]
        wanted = [name for name in missing if name in needed or name not in defaults]
        if wanted:
            hint = "; name the one of the ids: --id-field NAME (in Python: id=NAME)"
            way = hint if wanted[0] == "id" else ""
            raise DataError(f"{path} has no {what} {wanted[0]!r}; its {what}s are {found}{way}")
        for near, name in self._misspelt(found).items():
            warnings.warn(
                f"{path}: the {what} {near!r} is not used; did you mean {name!r}?",
                UnusedFieldWarning,
                stacklevel=2,
            )

    def _misspelt(self, found: list[str]) -> dict[str, str]:
        """Return, by the name that was found, each missing name that it probably stands for."""
        unused = {name.lower(): name for name in found if name not in self.names()}
        return {
            unused[near]: name
            for name in self.names()
            if name not in found
            for near in difflib.get_close_matches(name, unused, n=1, cutoff=_NEAR)
        }

    def note_unkept(
        self, path: Path | str, columns: list[str], what: Literal["columns", "fields"] = "columns"
    ) -> None:
        """Give an `UnusedFieldWarning` if there is no payload, but columns that it could hold.

        Names that `check_given` takes for misspelt are not repeated.
        """
        known = {*self.names(), *self._misspelt(columns)}
        unused = [name for name in columns if name and name not in known]
        if unused and isinstance(self.payload, str) and self.payload not in columns:
            warnings.warn(
                f"{path}: {what} that are not kept: {', '.join(unused[:10])}"
                f"{', ...' if len(unused) > 10 else ''}; to see them in hits and to filter by "
                f"them, add --keep {unused[0]} and so on (in Python: payload=({unused[0]!r}, ...))",
                UnusedFieldWarning,
                stacklevel=2,
            )


class Refused(Exception):
    """Why a row cannot be used; readers turn it into a `Reject`."""


class ItemBuilder:
    """Makes items from values by field name, and refuses invalid ones."""

    def __init__(self, fields: Fields, folder: Path, allow_outside: bool) -> None:
        self.fields = fields
        self.folder = folder.resolve()
        self.allow_outside = allow_outside
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
        image = self._image(field_of(values, fields.image), fields.image)
        text = field_of(values, fields.text)
        if text is not None and not isinstance(text, str):
            raise Refused(f"{fields.text!r} is {kind_of(text)}, expected a text")
        labels = _labels(field_of(values, fields.labels), fields.labels)
        payload = self._payload(values)
        vectors = {
            modality: self._vector(values[column], modality, column)
            for modality, column in fields.vectors.items()
            if values.get(column) is not None
        }
        if image is None and not text and not vectors:
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
                raise Refused(f"the path {value[:200]!r} leads outside the folder of the data")
            return path if path.is_file() else None
        except (OSError, ValueError, RuntimeError) as error:  # too long, NUL, circular links
            raise Refused(f"the path {value[:200]!r} cannot be followed: {error}") from error

    def _image(self, value: Any, name: str | None) -> Path | bytes | None:
        if value is None or isinstance(value, bytes):
            return value
        if not isinstance(value, str):
            raise Refused(f"{name!r} is {kind_of(value)}, expected a path")
        path = self.regular_file(value)
        if path is None:
            raise Refused(f"the picture {value!r} is missing, or no regular file")
        return path

    def _vector(self, value: Any, modality: str, column: str) -> Vector:
        try:
            return checked_vector(value, self._widths.get(modality))
        except InputError as error:
            raise Refused(f"{column!r} {error}") from error

    def _payload(self, values: Mapping[str, Any]) -> dict[str, Any]:
        name = self.fields.payload
        if isinstance(name, tuple):
            return {part: values[part] for part in name if values.get(part) is not None}
        payload = field_of(values, name)
        if payload is None:
            return {}
        if not isinstance(payload, dict):
            raise Refused(f"{name!r} is {kind_of(payload)}, expected an object")
        return payload


def _labels(value: Any, name: str | None) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise Refused(f'{name!r} is {kind_of(value)}, expected a list, such as ["sky", "sea"]')
    for label in value:
        if not isinstance(label, str):
            raise Refused(f"{name!r} holds {kind_of(label)}, expected texts")
        if not label.strip():
            raise Refused(f"{name!r} holds an empty text")
    return tuple(dict.fromkeys(label.strip() for label in value))


def field_of(values: Mapping[str, Any], name: str | None) -> Any:
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
