"""Names in a filter that no item has: an error that lists the nearest ones."""

from __future__ import annotations

import difflib
import sqlite3
from collections.abc import Callable, Collection, Iterable
from itertools import islice

from oasis.collection.catalog.commits import decoded_payload
from oasis.collection.filters.allow_lists import json_path
from oasis.collection.filters.tree import Field, HasLabel, leaves
from oasis.collection.filters.where import ALL, ANY, LABELS, NOT, TEXT, Filter
from oasis.errors import InputError

_SHOWN = 20
_COMPARED, _LONGEST = 10_000, 50


def check_names(
    connection: sqlite3.Connection,
    where: Filter,
    classes: Collection[str],
    known: Callable[[], Iterable[str]],
) -> None:
    """Refuse a filter that names a field or a class that no item has.

    Called if a filter found nothing. A condition ``exists`` is never refused. ``known`` returns
    names of fields, for the nearest ones. Cost: a look at the first items that have the
    fields; where one is missing, a pass over all payloads, about a second for a million.
    """
    fields = (leaf.name for leaf in leaves(where.root) if isinstance(leaf, Field))
    for name in dict.fromkeys(fields):
        if not _is_there(connection, name):
            near = nearest(name, [*known(), ALL, ANY, LABELS, NOT, TEXT])
            raise InputError(f"no item has a field {name[:100]!r} in its payload; {near}")
    for leaf in leaves(where.root):
        if isinstance(leaf, HasLabel) and leaf.name is not None and leaf.name not in classes:
            near = nearest(leaf.name, classes)
            raise InputError(f"no class is called {leaf.name[:100]!r}; {near}")


def _is_there(connection: sqlite3.Connection, name: str) -> bool:
    if (path := json_path(name)) is not None:
        row = connection.execute(
            "SELECT 1 FROM items WHERE payload -> ? IS NOT NULL LIMIT 1", (path,)
        ).fetchone()
        return row is not None
    rows = connection.execute("SELECT payload FROM items WHERE payload IS NOT NULL")
    return any(name in decoded_payload(text) for (text,) in rows)


def nearest(name: str, known: Collection[str]) -> str:
    """Return a sentence with the known names that resemble a name, or with all names.

    Only the first names, and only short ones, are compared, which bounds the time.

    >>> nearest("titel", ["title", "year"]), nearest("x", ["title", "year", "$text"])
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
