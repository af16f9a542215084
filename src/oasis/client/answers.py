"""Answers of a service as the records of a collection.

A field that this version does not know is left out, so that a newer service can be asked; one that
is missing is an error that names both versions.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from oasis.collection.records import ClassInfo, FieldInfo, Hit, Rejected, Round, Stats, Stored

Record = TypeVar("Record")


class Strange(Exception):
    """An answer without the expected shape; the message says what is missing."""


def part(found: Any, name: str) -> Any:
    """Return a field of an answer.

    >>> part({"n": 3}, "n")
    3
    """
    if not isinstance(found, Mapping) or name not in found:
        raise Strange(f"its answer lacks {name!r}")
    return found[name]


def parts(found: Any, name: str) -> list[Any]:
    """Return a field of an answer that holds a list."""
    value = part(found, name)
    if not isinstance(value, list):
        raise Strange(f"its answer has no list in {name!r}")
    return value


def value_in(name: str) -> Callable[[Any], Any]:
    """Return a function that reads a field of an answer, for `Transport.ask`."""
    return lambda found: part(found, name)


def list_in(name: str) -> Callable[[Any], list[Any]]:
    """Return a function that reads a list of an answer, for `Transport.ask`."""
    return lambda found: parts(found, name)


def record(kind: type[Record], found: Any, **changed: Any) -> Record:
    """Return a record made of the fields of an answer that it has.

    >>> record(ClassInfo, {"name": "sky", "n": 2, "round": 1, "colour": "blue"})
    ClassInfo(name='sky', n=2, round=1, n_predicted=0)
    """
    known: dict[str, Any] = {}
    for each in fields(kind):  # type: ignore[arg-type]
        if each.name in changed:
            known[each.name] = changed[each.name]
        elif isinstance(found, Mapping) and each.name in found:
            known[each.name] = found[each.name]
        elif each.default is MISSING and each.default_factory is MISSING:
            raise Strange(f"its answer lacks {each.name!r}")
    return kind(**known)


def hits(found: Any) -> list[list[Hit]]:
    """Return the hits of each query; where payloads were not asked for, they are empty."""
    return [
        [
            record(
                Hit,
                each,
                payload=each.get("payload", {}),
                labels=tuple(parts(each, "labels")),
                predicted=tuple(each.get("predicted", ())),
            )
            for each in one
        ]
        for one in parts(found, "results")
    ]


def stored(found: Any) -> Stored:
    """Return an item as it is stored."""
    return record(
        Stored,
        found,
        labels=tuple(parts(found, "labels")),
        code=b64decode(part(found, "code")),
        predicted=tuple(found.get("predicted", ())),
    )


def latest(found: Any) -> list[Stored]:
    """Return the items that came last."""
    return [stored(each) for each in parts(found, "items")]


def classes(found: Any) -> list[ClassInfo]:
    """Return the classes in order of arrival."""
    return [record(ClassInfo, each) for each in parts(found, "classes")]


def described_fields(found: Any) -> list[FieldInfo]:
    """Return the fields of payloads."""
    return [
        record(FieldInfo, each, values=tuple(parts(each, "values")))
        for each in parts(found, "fields")
    ]


def rounds(found: Any) -> list[Round]:
    """Return the chunks."""
    return [
        record(Round, each, new_classes=tuple(parts(each, "new_classes")))
        for each in parts(found, "rounds")
    ]


def stats(found: Any) -> Stats:
    """Return the collection in numbers."""
    return record(Stats, found)


def rejected(found: Any) -> list[Rejected]:
    """Return the items that were left out."""
    return [record(Rejected, each) for each in parts(found, "rejected")]
