"""Comparisons in a filter with a kind of value that the field has in no item: an error."""

from __future__ import annotations

import json
import reprlib
import sqlite3
from collections.abc import Iterator
from typing import Any, NamedTuple

from oasis.collection.catalog.commits import decoded_payload
from oasis.collection.filters.allow_lists import json_path
from oasis.collection.filters.tree import Condition, Field, Scalar, kind_of, leaves
from oasis.collection.filters.where import Filter
from oasis.errors import InputError

_OF_JSON = {
    "text": "text",
    "integer": "number",
    "real": "number",
    "true": "boolean",
    "false": "boolean",
    "null": "null",
    "array": "list",
    "object": "object",
}
"""The kind of a value by the name that SQLite's ``json_type`` has for it."""

_TOLD = {
    "text": "texts",
    "number": "numbers",
    "boolean": "true and false",
    "null": "null",
    "list": "lists",
    "object": "objects",
}


class _Comparison(NamedTuple):
    """What a condition compares a value with, and the kinds of values that can meet it."""

    operand: Scalar
    kinds: frozenset[str | None]
    is_contained: bool = False


def check_kinds(connection: sqlite3.Connection, where: Filter) -> None:
    """Refuse a filter that compares a field with a kind of value that it has in no item.

    Called if a filter found nothing and `check_names` has found its fields. Equality with null is
    never refused, and nothing is of a field that is null in every item. Cost: a look at the first
    items that have such a value; where none has it, a pass over all payloads, about a second for a
    million.
    """
    fine: set[tuple[str, frozenset[str | None]]] = set()
    for leaf in leaves(where.root):
        if not isinstance(leaf, Field):
            continue
        for asked in _comparisons(leaf.condition):
            if (leaf.name, asked.kinds) in fine:
                continue
            if not _is_there(connection, leaf.name, asked.kinds):
                held = _kinds(connection, leaf.name)
                if held - {"null"}:
                    raise InputError(_refusal(leaf.name, asked, held))
            fine.add((leaf.name, asked.kinds))


def _comparisons(condition: Condition) -> Iterator[_Comparison]:
    among = condition.among or ()
    if among and None not in among:
        yield _Comparison(among[0], frozenset(map(kind_of, among)))
    for _, bound in condition.ranges:
        yield _Comparison(bound, frozenset([kind_of(bound)]))
    for part in condition.parts:
        kinds = ("text", "list") if isinstance(part, str) else ("list",)
        yield _Comparison(part, frozenset(kinds), is_contained=True)


def _refusal(name: str, asked: _Comparison, held: set[str]) -> str:
    told = " and ".join(_TOLD[each] for each in _TOLD if each in held)
    field = f"the field {name[:100]!r} holds {told} only"
    kind, value = kind_of(asked.operand), reprlib.repr(asked.operand)
    operand = f"the {kind} {value}" if kind in ("text", "number") else value
    way = ""
    if "text" in held and kind != "text":  # 'title=1984' on a command line
        way = f'; in double quotes, "{json.dumps(asked.operand)[:30]}", it is a text'
    if asked.is_contained:
        return f"{field}, which cannot contain {operand}{way}"
    if "list" in held:
        way = f"; {{'contains': {value}}} asks for an element of a list"
    return f"{field}, and where compares it with {operand}{way}"


def _is_there(connection: sqlite3.Connection, name: str, kinds: frozenset[str | None]) -> bool:
    """Return whether a field has a value of one of these kinds in some item."""
    if (path := json_path(name)) is None:
        return not kinds.isdisjoint(_kinds(connection, name))
    types = [each for each, kind in _OF_JSON.items() if kind in kinds]
    marks = ", ".join("?" * len(types))
    row = connection.execute(
        f"SELECT 1 FROM items WHERE json_type(payload, ?) IN ({marks}) LIMIT 1",  # noqa: S608
        (path, *types),
    ).fetchone()
    return row is not None


def _kinds(connection: sqlite3.Connection, name: str) -> set[str]:
    """Return the kinds of values that a field has."""
    if (path := json_path(name)) is not None:
        rows = connection.execute("SELECT DISTINCT json_type(payload, ?) FROM items", (path,))
        return {_OF_JSON[each] for (each,) in rows if each is not None}
    texts = connection.execute("SELECT payload FROM items WHERE payload IS NOT NULL")
    payloads = (decoded_payload(text) for (text,) in texts)
    return {_kind(payload[name]) for payload in payloads if name in payload}


def _kind(value: Any) -> str:
    return kind_of(value) or ("list" if isinstance(value, list) else "object")
