"""What is written on a command line to mean a filter, or an id."""

from __future__ import annotations

import json
import re
from collections.abc import Container
from typing import Any

from oasis.errors import InputError

_CONDITION = re.compile(r"\s*([^<>=\s][^<>=]*?)\s*(<=|>=|=|<|>)\s*(.*)", re.DOTALL)
_OPERATORS = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}


def parse_where(conditions: list[str]) -> dict[str, Any]:
    """Return the filter that conditions make together.

    >>> parse_where(["year>=2020", "year<2024", "kind=photo"])
    {'year': {'gte': 2020, 'lt': 2024}, 'kind': 'photo'}
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
                raise InputError(
                    f"--where {condition!r} is no condition; expected year=2024, 'year>=2020' or "
                    "a JSON object"
                )
            name, sign, value = match.groups()
            scalar = _scalar(value)
            parts = {name: scalar if sign == "=" else {_OPERATORS[sign]: scalar}}
        for name, wanted in parts.items():
            known = where.get(name)
            if name in where and not (isinstance(known, dict) and isinstance(wanted, dict)):
                raise InputError(f"--where has two conditions on {name!r} that are not ranges")
            where[name] = {**known, **wanted} if isinstance(known, dict) else wanted
    return where


def stored_id(opened: Container[str | int], text: str) -> str | int:
    """Return the id that a text on the command line means: the text itself, or a whole number."""
    if text not in opened and re.fullmatch(r"-?\d{1,18}", text) and int(text) in opened:
        return int(text)
    return text


def _scalar(text: str) -> Any:
    """Return a JSON scalar, or the text itself where it is none."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, (list, dict)) else value
