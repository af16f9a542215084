"""What ``where`` means.

::

    {"year": 2024}                            the field is equal
    {"year": {"gte": 2020, "lt": 2024}}       gt, gte, lt, lte: numbers, or texts
    {"kind": {"in": ["cat", "dog"]}}          equal to one of them
    {"title": {"contains": "boat"}}           a text with this in it, or a list with this element
    {"year": {"exists": true}}                the payload has the field; false: it has not
    {"kind": {"not": "cat"}}                  the field does not meet a condition, or is not there
    {"year": {"any": [{"lt": 2000}, 2024]}}   it meets one of several conditions; all: each of them
    {"$labels": {"has": "sky"}}               the item has this class
    {"$labels": {"has": "sky", "predicted": true}}    it has it, or it is predicted of it
    {"$labels": {"exists": false}}            it has no label
    {"$text": {"contains": "double decker"}}  these words follow each other in its kept text
    {"$any": [{"year": 2024}, {"kind": "cat"}]}       one of several filters passes; $all: each
    {"$not": {"year": 2024, "kind": "cat"}}   a filter does not pass

Several fields, and several operators on one, must all hold; ``any``, ``all`` and ``not`` go with
every field, ``$labels`` and ``$text`` too. A field is a key of the payload's top level. Values are
compared as JSON has them: 1 equals 1.0, true is no number, and null equals null alone; of
``contains`` case counts. An item without the field does not match, nor does a field that holds a
list or an object; ``not`` passes exactly the items that its condition does not. Words of a kept
text are compared without case, accents and punctuation; of scripts without spaces, each character
is one.

A filter has at most 256 conditions, empty filters included, 16 levels and 100,000 values.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from oasis.collection.filters.tree import (
    RANGES,
    All,
    AnyOf,
    Condition,
    Facts,
    Field,
    HasField,
    HasLabel,
    HasText,
    Not,
    Part,
    Scalar,
    is_of_payload,
    kind_of,
    leaves,
)
from oasis.collection.records import utf8
from oasis.collection.texts.phrases import Phrase
from oasis.errors import InputError

LABELS = "$labels"
"""The field that stands for an item's labels."""

TEXT = "$text"
"""The field that stands for an item's kept text."""

ANY, ALL, NOT = "$any", "$all", "$not"
"""What stands for filters put together."""

MAX_CONDITIONS = 256
MAX_LEVELS = 16
MAX_VALUES = 100_000

_SHOWN = reprlib.Repr()
_SHOWN.maxlevel, _SHOWN.maxdict, _SHOWN.maxlist, _SHOWN.maxstring, _SHOWN.maxother = 3, 4, 4, 60, 60


@dataclass(frozen=True)
class Filter:
    """A parsed ``where``.

    >>> year = Filter.of({"year": {"gte": 2020, "lt": 2024}})
    >>> year.matches({"year": 2023}), year.matches({"year": "2023"})
    (True, False)
    """

    root: Part

    @classmethod
    def of(cls, where: Any) -> Filter:
        """Parse a ``where``, or say what is wrong with it."""
        return cls(_Parser().where(where, 0))

    @cached_property
    def text(self) -> str:
        """The filter as one text; equal texts, equal filters."""
        return json.dumps(self.root.told(), default=list)

    @cached_property
    def has_labels(self) -> bool:
        """Whether labels are looked at."""
        return any(isinstance(leaf, HasLabel) for leaf in leaves(self.root))

    @cached_property
    def has_texts(self) -> bool:
        """Whether kept texts are looked at."""
        return any(isinstance(leaf, HasText) for leaf in leaves(self.root))

    @cached_property
    def is_of_payload(self) -> bool:
        """Whether nothing but payloads is looked at."""
        return is_of_payload(self.root)

    @cached_property
    def has_fields(self) -> bool:
        """Whether payloads are looked at."""
        return any(isinstance(leaf, (Field, HasField)) for leaf in leaves(self.root))

    def matches(
        self,
        payload: Mapping[str, Any],
        labels: Collection[str] = (),
        text: str | None = None,
        predicted: Collection[str] = (),
    ) -> bool:
        """Return whether an item with this payload, these labels and this text passes."""
        return self.root.passes(Facts(payload, labels, predicted, text))


class _Parser:
    """Reads one filter; its size is bounded."""

    def __init__(self) -> None:
        self._n_conditions = self._n_values = 0

    def where(self, where: Any, level: int) -> Part:
        """Return a filter as a tree."""
        if not isinstance(where, Mapping):
            raise InputError(
                "where must map fields to conditions, such as {'year': 2024}, got " + _shown(where)
            )
        _check_level(level)
        if not where:
            self._count()
        parts: list[Part] = []
        for name, condition in where.items():
            if not isinstance(name, str):
                raise InputError(f"the fields of where are texts, got {_shown(name)}")
            utf8(name, "a field of where")
            if name in (ANY, ALL):
                several = tuple(
                    self.where(each, level + 1) for each in _listed(name, condition, "filters")
                )
                if not several:
                    self._count()
                parts.append(AnyOf(several) if name == ANY else All(several))
            elif name == NOT:
                parts.append(Not(self.where(condition, level + 1)))
            else:
                parts.append(self._on(name, condition, level + 1))
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _on(self, name: str, condition: Any, level: int) -> Part:
        """Return a condition on a field, on labels or on texts."""
        _check_level(level)
        read: Callable[[str, Any], Part] = {LABELS: self._label, TEXT: self._phrase}.get(
            name, self._field
        )
        if not isinstance(condition, Mapping):
            return read(name, condition)
        parts: list[Part] = []
        own: dict[Any, Any] = {}
        for key, operand in condition.items():
            if key in ("any", "all"):
                several = tuple(
                    self._on(name, each, level + 1)
                    for each in _listed(f"{name!r}: {key!r}", operand, "conditions")
                )
                if not several:
                    self._count()
                parts.append(AnyOf(several) if key == "any" else All(several))
            elif key == "not":
                parts.append(Not(self._on(name, operand, level + 1)))
            else:
                own[key] = operand
        if own or not parts:
            parts.append(read(name, own))
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _field(self, name: str, condition: Any) -> Part:
        self._count()
        if kind_of(condition) is not None:
            return Field(name, Condition((self._scalar(name, condition),)))
        if not isinstance(condition, Mapping) or not condition:
            raise InputError(
                f"where {name!r} must be a text, a number, true, false, null, or operators such as "
                f"{{'in': [...]}} and {{'gte': ...}}, got {_shown(condition)}"
            )
        among: tuple[Scalar, ...] | None = None
        ranges: list[tuple[str, Scalar]] = []
        contained: tuple[Scalar, ...] = ()
        exists: Part | None = None
        for key, operand in condition.items():
            if key == "in":
                among = tuple(
                    self._scalar(name, value)
                    for value in _listed(f"{name!r}: 'in'", operand, "values")
                )
            elif key == "contains":
                contained = (self._scalar(name, operand),)
            elif key == "exists":
                exists = _existing(name, operand, HasField(name))
            elif key in RANGES:
                if kind_of(operand) not in ("number", "text"):
                    raise InputError(
                        f"where {name!r}: {key!r} takes a number or text, got {_shown(operand)}"
                    )
                ranges.append((key, self._scalar(name, operand)))
            else:
                known = ", ".join(["in", *RANGES, "contains", "exists", "not", "any", "all"])
                raise InputError(
                    f"where {name!r} has the operator {_shown(key)}; known are {known}"
                )
        if exists is not None and len(condition) == 1:
            return exists
        tested = Field(name, Condition(among, tuple(ranges), contained))
        return tested if exists is None else All((exists, tested))

    def _scalar(self, name: str, value: Any) -> Scalar:
        self._n_values += 1
        if self._n_values > MAX_VALUES:
            raise InputError(f"where compares with more than {MAX_VALUES:,} values; ask for fewer")
        kind = kind_of(value)
        if kind is None or (isinstance(value, float) and not math.isfinite(value)):
            raise InputError(
                f"where {name!r} compares with texts, finite numbers, true, false and null, got "
                f"{_shown(value)}"
            )
        scalar: Scalar = value
        return scalar

    def _label(self, name: str, condition: Any) -> Part:
        self._count()
        match condition:
            case {"has": str(wanted), "predicted": bool(predicted), **rest} if not rest:
                utf8(wanted, "the class of a filter")
                return HasLabel(wanted, predicted)
            case {"has": str(wanted), **rest} if not rest:
                utf8(wanted, "the class of a filter")
                return HasLabel(wanted)
            case {"exists": exists, "predicted": bool(predicted), **rest} if not rest:
                return _existing(name, exists, HasLabel(None, predicted))
            case {"exists": exists, **rest} if not rest:
                return _existing(name, exists, HasLabel(None))
        raise InputError(
            f"where {LABELS!r} takes one operator, such as {{'has': 'sky'}} or {{'exists': true}}, "
            f"and beside it 'predicted': true or false, got {_shown(condition)}"
        )

    def _phrase(self, name: str, condition: Any) -> Part:
        self._count()
        match condition:
            case {"contains": phrase, **rest} if not rest:
                return HasText(Phrase.of(phrase))
            case {"exists": exists, **rest} if not rest:
                return _existing(name, exists, HasText(None))
        raise InputError(
            f"where {TEXT!r} takes one operator, such as {{'contains': 'double decker'}} or "
            f"{{'exists': true}}, got {_shown(condition)}"
        )

    def _count(self) -> None:
        """Count a leaf of the tree: a condition, or a list or filter that is empty."""
        self._n_conditions += 1
        if self._n_conditions > MAX_CONDITIONS:
            raise InputError(
                f"where has more than {MAX_CONDITIONS} conditions; 'in' takes a long list of values"
            )


def _existing(name: str, exists: Any, part: Part) -> Part:
    if not isinstance(exists, bool):
        raise InputError(f"where {name!r}: 'exists' takes true or false, got {_shown(exists)}")
    return part if exists else Not(part)


def _check_level(level: int) -> None:
    if level > MAX_LEVELS:
        raise InputError(f"where has more than {MAX_LEVELS} levels of 'any', 'all' and 'not'")


def _listed(what: str, operand: Any, of: str) -> Iterable[Any]:
    if isinstance(operand, (str, bytes, Mapping)) or not isinstance(operand, Iterable):
        raise InputError(f"where {what} takes a list of {of}, got {_shown(operand)}")
    return operand


def _shown(value: Any) -> str:
    """Return a value for an error: cut to one short line, however large or deep it is."""
    return _SHOWN.repr(value)
