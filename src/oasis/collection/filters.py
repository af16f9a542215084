"""Conditions on payload and labels: what ``where`` means.

::

    {"year": 2024}                            the field is equal
    {"year": {"gte": 2020, "lt": 2024}}       gt, gte, lt, lte: numbers, or texts
    {"kind": {"in": ["cat", "dog"]}}          equal to one of them
    {"$labels": {"has": "sky"}}               the item has this class

Several fields, and several operators on one, must all hold. A field is a key of the payload's top
level. Values are compared as JSON has them: 1 equals 1.0, true is no number, and null equals null
alone. An item without the field does not match, nor does a field that holds a list or an object.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from oasis.errors import InputError

LABELS = "$labels"
"""The field that stands for an item's labels."""

Scalar: TypeAlias = str | int | float | bool | None

_RANGES: dict[str, Callable[[Any, Any], bool]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}


def _kind(value: object) -> str | None:
    """Return the JSON type of a scalar, and None for anything else."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "text"
    return None


def _equal(value: object, other: object) -> bool:
    return _kind(value) == _kind(other) and value == other


@dataclass(frozen=True)
class Condition:
    """What one field must be: in one of some scalars (if given), and within ranges."""

    among: tuple[Scalar, ...] | None
    ranges: tuple[tuple[str, Scalar], ...]

    def holds(self, value: object) -> bool:
        """Return whether a value of the payload meets the condition."""
        kind = _kind(value)
        if kind is None:
            return False
        if self.among is not None and not any(_equal(value, other) for other in self.among):
            return False
        return all(
            _kind(bound) == kind and _RANGES[name](value, bound) for name, bound in self.ranges
        )


@dataclass(frozen=True)
class Filter:
    """A parsed ``where``: conditions by payload field, and classes that an item must have.

    >>> year = Filter.of({"year": {"gte": 2020, "lt": 2024}})
    >>> year.matches({"year": 2023}, ()), year.matches({"year": "2023"}, ())
    (True, False)
    """

    fields: tuple[tuple[str, Condition], ...]
    labels: tuple[str, ...]

    @classmethod
    def of(cls, where: Any) -> Filter:
        """Parse a ``where``, or say what is wrong with it."""
        if not isinstance(where, Mapping):
            raise InputError(
                f"where must map fields to conditions, such as {{'year': 2024}}, got {where!r}"
            )
        fields: list[tuple[str, Condition]] = []
        labels: tuple[str, ...] = ()
        for name, condition in where.items():
            if not isinstance(name, str):
                raise InputError(f"the fields of where are texts, got {name!r}")
            if name == LABELS:
                labels = (_label(condition),)
            else:
                fields.append((name, _condition(name, condition)))
        return cls(tuple(fields), labels)

    @property
    def text(self) -> str:
        """The filter as one text; equal texts, equal filters."""
        return json.dumps(
            [sorted((name, c.among, c.ranges) for name, c in self.fields), self.labels],
            default=list,
        )

    def matches(self, payload: Mapping[str, Any], labels: Collection[str]) -> bool:
        """Return whether an item with this payload and these labels passes."""
        return all(label in labels for label in self.labels) and all(
            name in payload and condition.holds(payload[name]) for name, condition in self.fields
        )


def _condition(name: str, condition: Any) -> Condition:
    if _kind(condition) is not None:
        return Condition((_scalar(name, condition),), ())
    if not isinstance(condition, Mapping) or not condition:
        raise InputError(
            f"where {name!r} must be a text, a number, true, false, null, or operators such as "
            f"{{'in': [...]}} and {{'gte': ...}}, got {condition!r}"
        )
    among: tuple[Scalar, ...] | None = None
    ranges: list[tuple[str, Scalar]] = []
    for key, operand in condition.items():
        if key == "in":
            if isinstance(operand, (str, bytes, Mapping)) or not isinstance(operand, Iterable):
                raise InputError(f"where {name!r}: 'in' takes a list of values, got {operand!r}")
            among = tuple(_scalar(name, value) for value in operand)
        elif key in _RANGES:
            if _kind(operand) not in ("number", "text"):
                raise InputError(f"where {name!r}: {key!r} takes a number or text, got {operand!r}")
            ranges.append((key, _scalar(name, operand)))
        else:
            raise InputError(
                f"where {name!r} has the operator {key!r}; known are in, {', '.join(_RANGES)}"
            )
    return Condition(among, tuple(ranges))


def _scalar(name: str, value: Any) -> Scalar:
    kind = _kind(value)
    if kind is None or (isinstance(value, float) and not math.isfinite(value)):
        raise InputError(
            f"where {name!r} compares with texts, finite numbers, true, false and null, got "
            f"{value!r}"
        )
    scalar: Scalar = value
    return scalar


def _label(condition: Any) -> str:
    match condition:
        case {"has": str(name), **rest} if not rest:
            return name
    raise InputError(
        f"where {LABELS!r} takes one operator, such as {{'has': 'sky'}}, got {condition!r}"
    )
