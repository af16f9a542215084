"""What ``where`` means, and the keys of the items that pass it.

::

    {"year": 2024}                            the field is equal
    {"year": {"gte": 2020, "lt": 2024}}       gt, gte, lt, lte: numbers, or texts
    {"kind": {"in": ["cat", "dog"]}}          equal to one of them
    {"$labels": {"has": "sky"}}               the item has this class
    {"$labels": {"has": "sky", "predicted": true}}    it has it, or it is predicted of it
    {"$text": {"contains": "double decker"}}  these words follow each other in its kept text

Several fields, and several operators on one, must all hold. A field is a key of the payload's top
level. Values are compared as JSON has them: 1 equals 1.0, true is no number, and null equals null
alone. An item without the field does not match, nor does a field that holds a list or an object.
Words of a text are compared without case, accents and punctuation; of scripts without spaces, each
character is one.

An allow-list is the keys of all items that pass. It is made by one pass over the items (about a
second for a million; classes come from their postings, in milliseconds), kept, and afterwards only
the items that are new or changed are judged. A value is judged once, however often it occurs.
"""

from __future__ import annotations

import json
import math
import operator
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from oasis.collection.catalog.catalog import Catalog
from oasis.collection.catalog.class_postings import class_postings
from oasis.collection.catalog.commits import (
    ITEM_COLUMNS,
    ItemRow,
    Keys,
    check_count,
    decoded_payload,
)
from oasis.collection.records import utf8
from oasis.collection.texts.phrases import Phrase
from oasis.collection.texts.postings import containing, texts_of
from oasis.errors import FormatError, InputError

LABELS = "$labels"
"""The field that stands for an item's labels."""

TEXT = "$text"
"""The field that stands for an item's kept text."""

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


@dataclass(frozen=True)
class Condition:
    """What one field must be: in one of some scalars (if given), and within ranges.

    The cost of `holds` does not depend on how many scalars there are.
    """

    among: tuple[Scalar, ...] | None
    ranges: tuple[tuple[str, Scalar], ...]
    _known: frozenset[tuple[str | None, Scalar]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # with their kinds, as True == 1 in Python; 1 and 1.0 are equal, and so are their hashes
        known = frozenset((_kind(value), value) for value in self.among or ())
        object.__setattr__(self, "_known", known)

    def holds(self, value: object) -> bool:
        """Return whether a value of the payload meets the condition."""
        kind = _kind(value)
        if kind is None:
            return False
        if self.among is not None and (kind, value) not in self._known:
            return False
        return all(
            _kind(bound) == kind and _RANGES[name](value, bound) for name, bound in self.ranges
        )


class LabelCondition(NamedTuple):
    """A class that an item must have; with ``predicted``, it may be predicted of it instead."""

    name: str
    predicted: bool = False


@dataclass(frozen=True)
class Filter:
    """A parsed ``where``: conditions by payload field, classes and phrases that an item must have.

    >>> year = Filter.of({"year": {"gte": 2020, "lt": 2024}})
    >>> year.matches({"year": 2023}, ()), year.matches({"year": "2023"}, ())
    (True, False)
    """

    fields: tuple[tuple[str, Condition], ...]
    labels: tuple[LabelCondition, ...]
    phrases: tuple[Phrase, ...] = ()

    @classmethod
    def of(cls, where: Any) -> Filter:
        """Parse a ``where``, or say what is wrong with it."""
        if not isinstance(where, Mapping):
            raise InputError(
                f"where must map fields to conditions, such as {{'year': 2024}}, got {where!r}"
            )
        fields: list[tuple[str, Condition]] = []
        labels: tuple[LabelCondition, ...] = ()
        phrases: tuple[Phrase, ...] = ()
        for name, condition in where.items():
            if not isinstance(name, str):
                raise InputError(f"the fields of where are texts, got {name!r}")
            if name == LABELS:
                labels = (_label(condition),)
            elif name == TEXT:
                phrases = (_phrase(condition),)
            else:
                fields.append((name, _condition(name, condition)))
        return cls(tuple(fields), labels, phrases)

    @property
    def text(self) -> str:
        """The filter as one text; equal texts, equal filters."""
        return json.dumps(
            [
                sorted((name, c.among, c.ranges) for name, c in self.fields),
                self.labels,
                [phrase.tokens for phrase in self.phrases],
            ],
            default=list,
        )

    def matches(
        self,
        payload: Mapping[str, Any],
        labels: Collection[str],
        text: str = "",
        predicted: Collection[str] = (),
    ) -> bool:
        """Return whether an item with this payload, these labels and this text passes."""
        return (
            all(
                each.name in labels or (each.predicted and each.name in predicted)
                for each in self.labels
            )
            and all(
                name in payload and condition.holds(payload[name])
                for name, condition in self.fields
            )
            and all(phrase.stands_in(text) for phrase in self.phrases)
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


def _label(condition: Any) -> LabelCondition:
    match condition:
        case {"has": str(name), "predicted": bool(predicted), **rest} if not rest:
            utf8(name, "the class of a filter")
            return LabelCondition(name, predicted)
        case {"has": str(name), **rest} if not rest:
            utf8(name, "the class of a filter")
            return LabelCondition(name)
    raise InputError(
        f"where {LABELS!r} takes one operator, such as {{'has': 'sky'}}, and beside it "
        f"'predicted': true or false, got {condition!r}"
    )


def _phrase(condition: Any) -> Phrase:
    match condition:
        case {"contains": phrase, **rest} if not rest:
            return Phrase.of(phrase)
    raise InputError(
        f"where {TEXT!r} takes one operator, such as {{'contains': 'double decker'}}, got "
        f"{condition!r}"
    )


_KEPT = 16
_VERDICTS = 100_000
"""Distinct values of a field whose verdict is kept during a pass."""
_FEW = 10
"""Where less than one item in so many has a class or phrase, only their payloads are read."""


class _AllowList(NamedTuple):
    """The keys up to ``last``, ascending, of the items that passed at commit ``commits``."""

    keys: Keys
    last: int
    commits: int


class AllowLists:
    """Allow-lists of the filters used last, for one catalog; any thread may ask."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._kept: OrderedDict[str, _AllowList] = OrderedDict()
        self._guard = threading.Lock()

    def is_kept(self, where: Filter) -> bool:
        """Return whether most of the work for a filter is done already."""
        with self._guard:
            return where.text in self._kept

    def keys(self, where: Filter) -> Keys:
        """Return the keys, ascending, of all committed items that pass.

        Items that were deleted after a list was made may still be in it.
        """
        with self._guard:
            known = self._kept.get(where.text)
        with self._catalog.reading() as connection:
            head = self._catalog.head(connection)
            keys, last = np.empty(0, dtype=np.int64), 0
            if known is not None:
                changed = self._catalog.changed(connection, known.commits, known.last)
                if len(changed) * _FEW < known.last:  # else all are judged anew
                    keys, last = known.keys, known.last
                    if len(changed):
                        passing = self._passing_of(connection, where, changed)
                        keys = np.union1d(np.setdiff1d(keys, changed), passing)
            if (top := head.next_key - 1) > last:
                keys = np.concatenate([keys, self._scan(connection, where, last, top)])
        with self._guard:
            self._kept[where.text] = _AllowList(keys, top, head.commits)
            self._kept.move_to_end(where.text)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return keys

    def _passing_of(self, connection: sqlite3.Connection, where: Filter, keys: Keys) -> Keys:
        """Return those of the keys whose items pass."""
        names = self._catalog.class_names(connection) if where.labels else []
        texts = dict(texts_of(connection, keys.tolist())) if where.phrases else {}
        passing = []
        for values in self._catalog.rows(connection, ITEM_COLUMNS, keys.tolist()):
            row = ItemRow(*values)
            if where.matches(
                row.decoded_payload(),
                row.label_names(names) if names else (),
                texts.get(row.key, ""),
                row.predicted_names(names) if names else (),
            ):
                passing.append(row.key)
        return np.array(sorted(passing), dtype=np.int64)

    def _scan(self, connection: sqlite3.Connection, where: Filter, last: int, top: int) -> Keys:
        parts = [self._having(connection, each, last) for each in where.labels]
        parts += [containing(connection, phrase, last) for phrase in where.phrases]
        if not where.fields:
            return reduce(_common, parts)
        if parts:
            having = reduce(_common, parts)
            if len(having) * _FEW < top - last:
                rows = self._catalog.rows(connection, "key, payload", having.tolist())
                return np.sort(_judged(rows, where.fields))
            return _common(having, self._passing(connection, where.fields, last))
        return self._passing(connection, where.fields, last)

    def _having(self, connection: sqlite3.Connection, label: LabelCondition, last: int) -> Keys:
        """Return the keys beyond ``last`` of the items that have a class."""
        row = connection.execute(
            "SELECT number FROM classes WHERE name = ?", (label.name,)
        ).fetchone()
        if row is None:
            return np.empty(0, dtype=np.int64)
        given = class_postings(connection, row[0], last)
        if not label.predicted:
            return given
        return np.union1d(given, class_postings(connection, row[0], last, predicted=True))

    def _passing(
        self, connection: sqlite3.Connection, fields: tuple[tuple[str, Condition], ...], last: int
    ) -> Keys:
        """Return the keys beyond ``last`` of the items whose payload meets every condition."""
        if not last:
            # the table itself: an index of it may have rows that it has lost
            (n,) = connection.execute("SELECT count(*) FROM items NOT INDEXED").fetchone()
            check_count(connection, "items", n)
        # SQLite cuts the value out of the payload as it is written. Whether it is one of a list is
        # looked up there; anything else is judged in Python, so that numbers are compared as they
        # are everywhere else. A row that fails never leaves SQLite
        paths = [_path(name) for name, _ in fields]
        if None in paths:
            rows = connection.execute(
                "SELECT key, payload FROM items WHERE key > ? ORDER BY key", (last,)
            )
            return _judged(rows, fields)
        tests, lists = [], []
        for number, (_, condition) in enumerate(fields):
            connection.create_function(f"judge{number}", 1, _Verdicts(condition).__getitem__)
            listed = condition.among is not None and not condition.ranges
            tests.append((_LISTED if listed else "judge{0}(v{0})").format(number))
            lists += [json.dumps(_spellings(condition.among or ()))] * listed
        columns = ", ".join(f"payload -> ? AS v{number}" for number in range(len(fields)))
        # the limit keeps SQLite from cutting a value out anew wherever it is used
        found = connection.execute(
            f"SELECT key FROM (SELECT key, {columns} FROM items WHERE key > ? LIMIT -1) "  # noqa: S608
            f"WHERE {' AND '.join(tests)} ORDER BY key",
            (*paths, last, *lists),
        )
        return np.array([key for (key,) in found], dtype=np.int64)


_LISTED = """
CASE WHEN v{0} IN (SELECT value FROM json_each(?)) THEN 1
     WHEN v{0} GLOB '"*' AND instr(v{0}, '\\') = 0 THEN 0
     WHEN ltrim(v{0}, '-') NOT GLOB '*[^0-9]*' THEN 0
     ELSE judge{0}(v{0}) END"""
"""Whether a value is one of a list: its JSON text is among the spellings of the list's values.

A text without escapes and a whole number have one spelling; numbers spelled otherwise are judged.
"""


def _spellings(values: Iterable[Scalar]) -> list[str]:
    """Return the JSON texts of scalars as payloads have them; of whole numbers both spellings.

    >>> _spellings(["a", 1, 2.0, True, None])
    ['"a"', '1', '1.0', '2.0', '2', 'true', 'null']
    """
    texts = []
    for value in values:
        texts.append(json.dumps(value, ensure_ascii=False))
        if isinstance(value, float) and value.is_integer():
            texts.append(str(int(value)))
        elif isinstance(value, int) and not isinstance(value, bool):
            with suppress(OverflowError):
                texts += [repr(float(value))] * (float(value) == value)
    return texts


class _Verdicts(dict[str | None, bool]):
    """Whether a value, as JSON text, meets a condition; None stands for a field that is missing."""

    def __init__(self, condition: Condition) -> None:
        super().__init__({None: False})
        self._condition = condition

    def __missing__(self, text: str) -> bool:
        verdict = self._condition.holds(_decoded(text))
        if len(self) < _VERDICTS:
            self[text] = verdict
        return verdict


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise FormatError(f"a payload in the catalog is damaged: {error}") from error


def _judged(
    rows: Iterable[tuple[int, str | None]], fields: tuple[tuple[str, Condition], ...]
) -> Keys:
    """Return the keys of the rows whose payload meets every condition."""
    where = Filter(fields, ())
    passed = [key for key, text in rows if text and where.matches(decoded_payload(text), ())]
    return np.array(passed, dtype=np.int64)


def _common(a: Keys, b: Keys) -> Keys:
    return np.intersect1d(a, b, assume_unique=True)


def _path(name: str) -> str | None:
    """Return a JSON path to a top-level key, or None for a key that SQLite cannot quote.

    >>> _path("year"), _path('a "b"')
    ('$."year"', None)
    """
    plain = name and all(c not in '"\\' and c.isprintable() for c in name)
    return f'$."{name}"' if plain else None
