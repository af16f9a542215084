"""Mistakes in a filter that finds nothing: names that no item has, and kinds of values."""

from __future__ import annotations

import difflib
import json
import reprlib
import sqlite3
from collections.abc import Callable, Collection, Iterable
from itertools import islice

from oasis.collection.filters.where import (
    ALL,
    ANY,
    LABELS,
    NOT,
    TEXT,
    Compared,
    FieldSql,
    Filter,
    kind_of,
)
from oasis.collection.rows import check_count
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
_SHOWN = 20
_COMPARED, _LONGEST = 10_000, 50


def check_meant(
    connection: sqlite3.Connection,
    where: Filter,
    classes: Collection[str],
    known: Callable[[], Iterable[str]],
) -> None:
    """Refuse a filter that names a field or class that no item has, or compares other kinds.

    Called if a filter found nothing. A condition ``exists`` is never refused, nor equality with
    null, nor anything of a field that is null in every item. ``known`` returns names of fields, for
    the nearest ones. Cost: a pass over all payloads for each field.
    """
    held = {name: _kinds(connection, name) for name in where.fields}
    for name in where.fields:
        if not held[name]:
            near = did_you_mean(name, [*known(), ALL, ANY, LABELS, NOT, TEXT])
            raise InputError(f"no item has a field {name[:100]!r} in its payload; {near}")
    for name in where.classes:
        if name not in classes:
            (n,) = connection.execute("SELECT count(*) FROM classes").fetchone()
            check_count(connection, "classes", n)
            near = did_you_mean(name, classes)
            raise InputError(f"no class is called {name[:100]!r}; {near}")
    for asked in where.compared:
        kinds = held[asked.field]
        if kinds.isdisjoint(asked.kinds) and kinds - {"null"}:
            raise InputError(_refusal(asked, kinds))


def _kinds(connection: sqlite3.Connection, name: str) -> set[str]:
    """Return the kinds of values that a field has in any item."""
    rows = connection.execute(f"SELECT DISTINCT {FieldSql.of(name).type} FROM items")  # noqa: S608
    return {_OF_JSON[each] for (each,) in rows if each is not None}


def _refusal(asked: Compared, held: set[str]) -> str:
    told = " and ".join(_TOLD[each] for each in _TOLD if each in held)
    field = f"the field {asked.field[:100]!r} holds {told} only"
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


def did_you_mean(name: str, known: Collection[str]) -> str:
    """Return a sentence with the known names that resemble a name, or with all names.

    Only the first names, and only short ones, are compared, which bounds the time.

    >>> did_you_mean("titel", ["title", "year"]), did_you_mean("x", ["title", "year", "$text"])
    ("did you mean 'title'?", 'known are title, year')
    """
    compared = islice((each for each in known if len(each) <= _LONGEST), _COMPARED)
    if near := difflib.get_close_matches(name[:_LONGEST], compared, n=3):
        return f"did you mean {' or '.join(map(repr, near))}?"
    listed = sorted(each for each in known if not each.startswith("$"))
    shown = ", ".join(each[:_LONGEST] for each in listed[:_SHOWN]) + (
        ", ..." if len(listed) > _SHOWN else ""
    )
    return f"known are {shown}" if listed else "there are none"
