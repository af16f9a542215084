"""Filters and ids as people write them on a command line."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from oasis.collection.filters.where import LABELS, TEXT
from oasis.collection.records import ClassInfo, Id
from oasis.errors import InputError

# a value that begins with the sign of an operator is a slip of the keyboard; JSON text can say it
_CONDITION = re.compile(r"\s*([^<>=!\s][^<>=!]*?)\s*(<=|>=|==|=|<|>)\s*(?![<>=!])(.*)", re.DOTALL)
_OPERATORS = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
_EXPECTED = (
    "expected FIELD OPERATOR VALUE with one of the operators = == < <= > >=, such as year=2024 or "
    "'year>=2020', or a JSON object"
)


def parse_where(conditions: list[str]) -> dict[str, Any]:
    """Return the filter that conditions make together.

    >>> parse_where(["year>=2020", "year<2024", "kind=photo"])
    {'year': {'gte': 2020, 'lt': 2024}, 'kind': 'photo'}

    ``==`` means the same as ``=``. A value is a JSON scalar, or the text itself. There is no
    operator that excludes a value.
    """
    where: dict[str, Any] = {}
    for condition in conditions:
        if condition.lstrip().startswith("{"):
            try:
                parts = json.loads(condition)
            except ValueError as error:
                raise InputError(f"--where {condition!r} is no JSON: {error}") from error
        else:
            match = _CONDITION.fullmatch(condition)
            if match is None:
                raise InputError(f"--where {condition!r} is no condition; {_EXPECTED}")
            name, sign, value = match.groups()
            scalar = _scalar(value)
            parts = {name: {_OPERATORS[sign]: scalar} if sign in _OPERATORS else scalar}
        for name, wanted in parts.items():
            known = where.get(name)
            if name in where and not (isinstance(known, dict) and isinstance(wanted, dict)):
                raise InputError(f"--where has two conditions on {name!r} that are not ranges")
            where[name] = {**known, **wanted} if isinstance(known, dict) else wanted
    return where


class _Searched(Protocol):
    def field_names(self) -> set[str]: ...

    def classes(self) -> Iterable[ClassInfo]: ...


def check_names(collection: _Searched, where: Mapping[str, Any]) -> None:
    """Refuse a filter that names a field or a class that no item has.

    For a filter that found nothing: reads all payloads, about 6 seconds for a million.
    """
    named = set(where) - {LABELS, TEXT}
    known = collection.field_names() if named else set()
    for name in sorted(named - known):
        raise InputError(f"no item has a field {name!r} in its payload; {_nearest(name, known)}")
    match where.get(LABELS):
        case {"has": str(wanted)}:
            names = {each.name for each in collection.classes()}
            if wanted not in names:
                raise InputError(f"no class is called {wanted!r}; {_nearest(wanted, names)}")


_SHOWN = 20


def _nearest(name: str, known: set[str]) -> str:
    near = difflib.get_close_matches(name, known, n=3)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    shown = ", ".join(sorted(known)[:_SHOWN]) + (", ..." if len(known) > _SHOWN else "")
    return f"known are {shown}" if known else "there are none"


class _Asked(Protocol):
    def known(self, ids: Iterable[Id]) -> set[Id]: ...


def stored_ids(opened: _Asked, texts: Iterable[str]) -> list[Id]:
    """Return the ids that texts on the command line mean: the texts themselves, or whole numbers.

    A text that is no id, but would be one as a number, is that number.
    """
    listed = list(texts)
    numbers = {text: int(text) for text in listed if re.fullmatch(r"-?\d{1,18}", text)}
    known = opened.known([*listed, *numbers.values()])
    return [
        numbers[text] if text not in known and numbers.get(text) in known else text
        for text in listed
    ]


def _scalar(text: str) -> Any:
    """Return a JSON scalar, or the text itself where it is none."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, (list, dict)) else value
