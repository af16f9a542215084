"""A filter as a tree: what an item must have, and all, any or none of several parts."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from oasis.collection.texts.phrases import Phrase

Scalar: TypeAlias = str | int | float | bool | None

RANGES: dict[str, Callable[[Any, Any], bool]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}


class Facts(NamedTuple):
    """What a filter looks at of an item; ``text`` is None where none is kept."""

    payload: Mapping[str, Any]
    labels: Collection[str] = ()
    predicted: Collection[str] = ()
    text: str | None = None


def kind_of(value: object) -> str | None:
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


@dataclass(frozen=True)
class Condition:
    """What one value must be: in one of some scalars (if given), within ranges, containing others.

    The cost of `holds` does not depend on how many scalars there are.
    """

    among: tuple[Scalar, ...] | None = None
    ranges: tuple[tuple[str, Scalar], ...] = ()
    parts: tuple[Scalar, ...] = ()
    _known: frozenset[tuple[str | None, Scalar]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # with their kinds, as True == 1 in Python; 1 and 1.0 are equal, and so are their hashes
        known = frozenset((kind_of(value), value) for value in self.among or ())
        object.__setattr__(self, "_known", known)

    @property
    def is_list(self) -> bool:
        """Whether it asks for one of some scalars, and for nothing else."""
        return self.among is not None and not self.ranges and not self.parts

    def holds(self, value: object) -> bool:
        """Return whether a value of the payload meets the condition."""
        kind = kind_of(value)
        if self.among is not None and (kind is None or (kind, value) not in self._known):
            return False
        return all(
            kind is not None and kind_of(bound) == kind and RANGES[name](value, bound)
            for name, bound in self.ranges
        ) and all(_contains(value, part) for part in self.parts)


def _contains(value: object, part: Scalar) -> bool:
    """Return whether a text has another in it, or a list has a scalar as an element."""
    if isinstance(value, str):
        return isinstance(part, str) and part in value
    if not isinstance(value, list):
        return False
    kind = kind_of(part)
    return any(kind_of(each) == kind and each == part for each in value)


@dataclass(frozen=True)
class Field:
    """A payload has a field, and its value meets a condition."""

    name: str
    condition: Condition

    def passes(self, item: Facts) -> bool:
        """Return whether an item passes."""
        return self.name in item.payload and self.condition.holds(item.payload[self.name])

    def told(self) -> list[Any]:
        """Return it as JSON has it; equal ones are told alike."""
        wanted = self.condition
        return ["field", self.name, wanted.among, wanted.ranges, wanted.parts]


@dataclass(frozen=True)
class HasField:
    """A payload has a field, whatever its value."""

    name: str

    def passes(self, item: Facts) -> bool:
        """Return whether an item passes."""
        return self.name in item.payload

    def told(self) -> list[Any]:
        """Return it as JSON has it."""
        return ["has field", self.name]


@dataclass(frozen=True)
class HasLabel:
    """An item has a class, or any for None; with ``predicted``, it may be predicted instead."""

    name: str | None
    predicted: bool = False

    def passes(self, item: Facts) -> bool:
        """Return whether an item passes."""
        lists = (item.labels, item.predicted) if self.predicted else (item.labels,)
        return any(each if self.name is None else self.name in each for each in lists)

    def told(self) -> list[Any]:
        """Return it as JSON has it."""
        return ["label", self.name, self.predicted]


@dataclass(frozen=True)
class HasText:
    """An item has a kept text, in which a phrase stands, if one is given."""

    phrase: Phrase | None

    def passes(self, item: Facts) -> bool:
        """Return whether an item passes."""
        if item.text is None:
            return False
        return self.phrase is None or self.phrase.stands_in(item.text)

    def told(self) -> list[Any]:
        """Return it as JSON has it."""
        return ["text", None if self.phrase is None else self.phrase.tokens]


Leaf: TypeAlias = Field | HasField | HasLabel | HasText


@dataclass(frozen=True)
class All:
    """Every part passes; without parts, every item does."""

    parts: tuple[Part, ...]

    def passes(self, item: Facts) -> bool:
        """Return whether an item passes."""
        return all(part.passes(item) for part in self.parts)

    def told(self) -> list[Any]:
        """Return it as JSON has it."""
        return ["all", *(part.told() for part in self.parts)]


@dataclass(frozen=True)
class AnyOf:
    """Some part passes; without parts, no item does."""

    parts: tuple[Part, ...]

    def passes(self, item: Facts) -> bool:
        """Return whether an item passes."""
        return any(part.passes(item) for part in self.parts)

    def told(self) -> list[Any]:
        """Return it as JSON has it."""
        return ["any", *(part.told() for part in self.parts)]


@dataclass(frozen=True)
class Not:
    """A part does not pass."""

    part: Part

    def passes(self, item: Facts) -> bool:
        """Return whether an item passes."""
        return not self.part.passes(item)

    def told(self) -> list[Any]:
        """Return it as JSON has it."""
        return ["not", self.part.told()]


Part: TypeAlias = Leaf | All | AnyOf | Not


def leaves(part: Part) -> Iterator[Leaf]:
    """Yield what a filter asks for, in order."""
    match part:
        case All() | AnyOf():
            for each in part.parts:
                yield from leaves(each)
        case Not():
            yield from leaves(part.part)
        case _:
            yield part


def is_of_payload(part: Part) -> bool:
    """Return whether nothing but payloads is looked at."""
    return all(isinstance(leaf, (Field, HasField)) for leaf in leaves(part))


def field_names(part: Part) -> list[str]:
    """Return the names of the payload fields that are looked at, each once."""
    found = [leaf.name for leaf in leaves(part) if isinstance(leaf, (Field, HasField))]
    return list(dict.fromkeys(found))
