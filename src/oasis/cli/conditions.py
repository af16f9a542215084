"""Filters and ids as people write them on a command line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Protocol

from oasis.collection.filters import ALL, LABELS
from oasis.collection.records import Id
from oasis.errors import InputError

# a value that begins with the sign of an operator is a slip of the keyboard; JSON text can say it
_CONDITION = re.compile(
    r"\s*([^<>=!~\s][^<>=!~]*?)\s*(<=|>=|==|!=|=|<|>|~)\s*(?![<>=!~])(.*)", re.DOTALL
)
_OPERATORS = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte", "!=": "not", "~": "contains"}
_HAS = ("=", "==", "~", "!=")
_EXPECTED = (
    "expected FIELD OPERATOR VALUE with one of the operators = == != < <= > >= ~, such as "
    "year=2024, 'year>=2020' or 'title~boat', or a JSON object"
)


def parse_where(conditions: list[str]) -> dict[str, Any]:
    """Return the filter that conditions make together.

    >>> parse_where(["year>=2020", "year<2024", "kind=photo"])
    {'year': {'gte': 2020, 'lt': 2024}, 'kind': 'photo'}
    >>> parse_where(["kind!=cat", "kind!=dog", "title~boat"])
    {'kind': {'not': 'cat'}, 'title': {'contains': 'boat'}, '$all': [{'kind': {'not': 'dog'}}]}

    >>> parse_where(["$labels=sky", "$labels!=sea"])
    {'$labels': {'has': 'sky', 'not': {'has': 'sea'}}}

    ``==`` means the same as ``=``, ``~`` contains; of labels, all of them mean the whole name of a
    class. A value is a JSON scalar, or the text itself.
    """
    where: dict[str, Any] = {}
    more: list[dict[str, Any]] = []
    for condition in conditions:
        for name, wanted in _read(condition).items():
            known = where.get(name)
            if name not in where:
                where[name] = wanted
            elif not isinstance(known, dict | list) and not isinstance(wanted, dict | list):
                raise InputError(f"--where has two conditions on {name!r} that are not ranges")
            elif isinstance(known, dict) and isinstance(wanted, dict) and not known.keys() & wanted:
                where[name] = {**known, **wanted}
            else:
                more.append({name: wanted})
    return {**where, ALL: [{ALL: where[ALL]}, *more] if ALL in where else more} if more else where


def _read(condition: str) -> dict[str, Any]:
    """Return one condition as a filter."""
    if condition.lstrip().startswith("{"):
        try:
            read: dict[str, Any] = json.loads(condition)
        except (ValueError, RecursionError) as error:
            raise InputError(f"--where {condition[:200]!r} is no JSON: {error}") from error
        return read
    match = _CONDITION.fullmatch(condition)
    if match is None:
        raise InputError(f"--where {condition[:200]!r} is no condition; {_EXPECTED}")
    name, sign, value = match.groups()
    scalar = _scalar(value)
    if name == LABELS and sign in _HAS:
        has = {"has": scalar if isinstance(scalar, str) else value}
        return {name: {"not": has} if sign == "!=" else has}
    return {name: {_OPERATORS[sign]: scalar} if sign in _OPERATORS else scalar}


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
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, (list, dict)) else value
