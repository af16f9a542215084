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
list or an object; ``not`` passes exactly the items that its condition does not. Whole numbers
beyond 64 bits are compared as floating-point numbers. Words of a kept text are compared
without case, accents and punctuation; of scripts without spaces, each character is one.

A filter has at most 256 conditions, empty filters included, 16 levels and 100,000 values.

A filter becomes one condition of SQL on the table of items, with SQLite's JSON functions.
"""

from __future__ import annotations

import difflib
import json
import math
import reprlib
import sqlite3
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from oasis.collection.catalog import Catalog
from oasis.collection.class_members import check_members
from oasis.collection.records import FieldInfo, utf8
from oasis.collection.rows import Keys, check_count, decoded_payload
from oasis.collection.words import Phrase
from oasis.errors import InputError

Scalar: TypeAlias = str | int | float | bool | None

LABELS, TEXT = "$labels", "$text"
"""What stands for an item's labels, and for its kept text, among the fields."""

ANY, ALL, NOT = "$any", "$all", "$not"
"""What stands for filters put together."""

MAX_CONDITIONS = 256
MAX_LEVELS = 16
MAX_VALUES = 100_000
MAX_NAME = 1000

OFTEN = 3
"""Lists made by a field without an index, after which it gets one."""

LEAST_INDEXED, MOST_INDEXED = 10_000, 200_000
"""Items of a collection whose fields get an index by themselves: fewer are passed over at once, and
more take seconds, which `Collection.index_field` is for."""

_RANGES = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_TYPES = {"text": "= 'text'", "number": "IN ('integer', 'real')", "null": "= 'null'"}
_IN_LIST = "(SELECT value FROM json_each(?))"
_MEMBER = (
    "key IN (SELECT key FROM members WHERE class = (SELECT number FROM classes WHERE name = ?) "
    "AND predicted IN (0, {}))"
)
_INT64 = range(-(2**63), 2**63)
_SHOWN = reprlib.Repr()
_SHOWN.maxlevel, _SHOWN.maxdict, _SHOWN.maxlist, _SHOWN.maxstring, _SHOWN.maxother = 3, 4, 4, 60, 60


class Compared(NamedTuple):
    """A comparison of a field: with what, the kinds of values that can meet it, if by contains."""

    field: str
    operand: Scalar
    kinds: frozenset[str]
    is_contained: bool = False


class _Part(NamedTuple):
    """A condition in SQL, and its values in order; a `Phrase` stands for its items' keys."""

    sql: str
    values: tuple[Any, ...] = ()

    @classmethod
    def joined(cls, word: str, parts: Iterable[_Part]) -> _Part:
        """Return parts together; without any, all items pass ``AND``, and none ``OR``."""
        listed = list(parts)
        if len(listed) == 1:
            return listed[0]
        nothing = "1" if word == "AND" else "0"
        sql = f" {word} ".join(part.sql for part in listed)
        values = tuple(value for part in listed for value in part.values)
        return cls(f"({sql or nothing})", values)

    def inverted(self) -> _Part:
        """Return what exactly the others pass; SQL may answer NULL, too."""
        return _Part(f"({self.sql} IS NOT TRUE)", self.values)


@dataclass
class Filter:
    """A parsed ``where``.

    Attributes
    ----------
    sql, values : condition on a row of the items, and what stands in it
    fields : names of fields in it, but those that are asked whether they exist
    compared : comparisons of fields
    classes : names of classes in it
    """

    sql: str = ""
    values: tuple[Any, ...] = ()
    fields: list[str] = field(default_factory=list)
    compared: list[Compared] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    _n_conditions: int = 0
    _n_values: int = 0

    @classmethod
    def of(cls, where: Any) -> Filter:
        """Parse a ``where``, or say what is wrong with it.

        >>> Filter.of({"$labels": {"has": "sky"}}).classes
        ['sky']
        """
        parsed = cls()
        parsed.sql, parsed.values = parsed._filter(where, 0)
        return parsed

    @property
    def text(self) -> str:
        """The filter as one text; equal texts, equal filters."""
        return json.dumps([self.sql, self.values], default=str)

    def keys(self, connection: sqlite3.Connection, among: Iterable[int] | None = None) -> Keys:
        """Return the keys, ascending, of the items that pass, of all or of those ``among``."""
        connection.create_function("field_of", 2, _field_of, deterministic=True)
        values = [
            json.dumps(value.found_in(connection).tolist()) if isinstance(value, Phrase) else value
            for value in self.values
        ]
        some = ""
        if among is not None:
            some = f"key IN {_IN_LIST} AND "
            values.insert(0, json.dumps(list(among)))
        rows = connection.execute(f"SELECT key FROM items WHERE {some}{self.sql}", values)  # noqa: S608
        keys = np.fromiter((key for (key,) in rows), dtype=np.int64)
        keys.sort()
        return keys

    # -- reading one ---------------------------------------------------------------------------

    def _filter(self, where: Any, level: int) -> _Part:
        """Return a filter in SQL."""
        if not isinstance(where, Mapping):
            raise InputError(
                "where must map fields to conditions, such as {'year': 2024}, got " + _shown(where)
            )
        _check_level(level)
        if not where:
            self._count()
        parts: list[_Part] = []
        for name, condition in where.items():
            if not isinstance(name, str):
                raise InputError(f"the fields of where are texts, got {_shown(name)}")
            utf8(name, "a field of where")
            if name in (ANY, ALL, NOT):
                parts.append(self._several(name, name[1:], condition, self._filter, level))
            else:
                parts.append(self._on(name, condition, level + 1))
        return _Part.joined("AND", parts)

    def _several(
        self, what: str, word: str, operand: Any, read: Callable[[Any, int], _Part], level: int
    ) -> _Part:
        """Return what ``any``, ``all`` or ``not`` make of filters, or of conditions on a field."""
        if word == "not":
            return read(operand, level + 1).inverted()
        kind = "filters" if what.startswith("$") else "conditions"
        parts = [read(each, level + 1) for each in _listed(what, operand, kind)]
        if not parts:
            self._count()
        return _Part.joined("OR" if word == "any" else "AND", parts)

    def _on(self, name: str, condition: Any, level: int) -> _Part:
        """Return a condition on a field, on labels or on texts."""
        _check_level(level)
        special = {LABELS: self._label, TEXT: self._phrase}
        read: Callable[[str, Any], _Part] = special.get(name, self._field)
        if not isinstance(condition, Mapping):
            return read(name, condition)
        parts: list[_Part] = []
        own: dict[Any, Any] = {}
        for key, operand in condition.items():
            if key in ("any", "all", "not"):
                on_it = partial(self._on, name)
                parts.append(self._several(f"{name!r}: {key!r}", key, operand, on_it, level))
            else:
                own[key] = operand
        if own or not parts:
            parts.append(read(name, own))
        return _Part.joined("AND", parts)

    def _field(self, name: str, condition: Any) -> _Part:
        self._count()
        field = FieldSql.of(name)
        if kind_of(condition) is not None:
            return self._among(name, field, [self._scalar(name, condition)])
        if not isinstance(condition, Mapping) or not condition:
            raise InputError(
                f"where {name!r} must be a text, a number, true, false, null, or operators such as "
                f"{{'in': [...]}} and {{'gte': ...}}, got {_shown(condition)}"
            )
        parts = [self._operator(name, field, *each) for each in condition.items()]
        return _Part.joined("AND", parts)

    def _operator(self, name: str, field: FieldSql, key: Any, operand: Any) -> _Part:
        """Return one operator on a field."""
        if key == "in":
            values = _listed(f"{name!r}: 'in'", operand, "values")
            return self._among(name, field, [self._scalar(name, value) for value in values])
        if key == "contains":
            return self._contains(name, field, self._scalar(name, operand))
        if key == "exists":
            return _existing(name, operand, f"({field.type} IS NOT NULL)")
        if key not in _RANGES:
            known = ", ".join(["in", *_RANGES, "contains", "exists", "not", "any", "all"])
            raise InputError(f"where {name!r} has the operator {_shown(key)}; known are {known}")
        kind = kind_of(operand)
        if kind not in ("number", "text"):
            raise InputError(
                f"where {name!r}: {key!r} takes a number or text, got {_shown(operand)}"
            )
        bound = self._scalar(name, operand)
        self._note(name, bound, [kind])
        sql = f"({field.value} {_RANGES[key]} ? AND {field.type} {_TYPES[kind]})"
        return _Part(sql, (_bound(bound),))

    def _among(self, name: str, field: FieldSql, values: list[Scalar]) -> _Part:
        """Return whether a field equals one of the values."""
        self.fields.append(name)
        if values and None not in values:
            self._note(name, values[0], [str(kind_of(value)) for value in values])
        parts: list[_Part] = []
        for kind in ("text", "number"):
            wanted = [_bound(value) for value in values if kind_of(value) == kind]
            if len(wanted) == 1:
                sql = f"({field.value} = ? AND {field.type} {_TYPES[kind]})"
                parts.append(_Part(sql, (wanted[0],)))
            elif wanted:
                sql = f"({field.value} IN {_IN_LIST} AND {field.type} {_TYPES[kind]})"
                listed = [v for v in wanted if kind_of(v) and v not in (math.inf, -math.inf)]
                parts.append(_Part(sql, (json.dumps(listed),)))
        for value, type_ in ((None, "null"), (True, "true"), (False, "false")):
            if any(each is value for each in values):
                parts.append(_Part(f"({field.type} = '{type_}')"))
        return _Part.joined("OR", parts)

    def _contains(self, name: str, field: FieldSql, part: Scalar) -> _Part:
        """Return whether a text has another in it, or a list has an element."""
        self._note(name, part, ["text", "list"] if isinstance(part, str) else ["list"], True)
        kind, of_list = str(kind_of(part)), f"{field.type} = 'array' AND EXISTS"
        if kind == "boolean":
            kind = "true" if part else "false"
        some = f"SELECT 1 FROM {field.elements} WHERE type"  # noqa: S608 - no text of a user
        if part is None or isinstance(part, bool):
            return _Part(f"({of_list} ({some} = '{kind}'))")
        sql, value = f"{of_list} ({some} {_TYPES[kind]} AND atom = ?)", _bound(part)
        if kind == "number":
            return _Part(f"({sql})", (value,))
        text = f"{field.type} = 'text' AND instr({field.value}, ?) > 0"
        return _Part(f"(({text}) OR ({sql}))", (value, value))

    def _label(self, name: str, condition: Any) -> _Part:
        self._count()
        rest, predicted = condition, False
        match condition:
            case {"predicted": bool(also), **others} if others:
                rest, predicted = others, also
        match rest:
            case {"has": str(wanted), **more} if not more:
                utf8(wanted, "the class of a filter")
                self.classes.append(wanted)
                return _Part(f"({_MEMBER.format(int(predicted))})", (wanted,))
            case {"exists": exists, **more} if not more:
                guessed = " OR predicted IS NOT NULL" * predicted
                return _existing(name, exists, f"(labels IS NOT NULL{guessed})")
        raise InputError(
            f"where {LABELS!r} takes one operator, such as {{'has': 'sky'}} or {{'exists': true}}, "
            f"and beside it 'predicted': true or false, got {_shown(condition)}"
        )

    def _phrase(self, name: str, condition: Any) -> _Part:
        self._count()
        match condition:
            case {"contains": phrase, **rest} if not rest:
                return _Part(f"(key IN {_IN_LIST})", (Phrase.of(phrase),))
            case {"exists": exists, **rest} if not rest:
                return _existing(name, exists, "(key IN (SELECT key FROM texts))")
        raise InputError(
            f"where {TEXT!r} takes one operator, such as {{'contains': 'double decker'}} or "
            f"{{'exists': true}}, got {_shown(condition)}"
        )

    def _note(
        self, name: str, operand: Scalar, kinds: Iterable[str], is_contained: bool = False
    ) -> None:
        self.fields.append(name)
        self.compared.append(Compared(name, operand, frozenset(kinds), is_contained))

    def _scalar(self, name: str, value: Any) -> Scalar:
        self._n_values += 1
        if self._n_values > MAX_VALUES:
            raise InputError(f"where compares with more than {MAX_VALUES:,} values; ask for fewer")
        if kind_of(value) is None or (isinstance(value, float) and not math.isfinite(value)):
            raise InputError(
                f"where {name!r} compares with texts, finite numbers, true, false and null, got "
                f"{_shown(value)}"
            )
        scalar: Scalar = value
        return scalar

    def _count(self) -> None:
        """Count a condition, or a list or filter that is empty."""
        self._n_conditions += 1
        if self._n_conditions > MAX_CONDITIONS:
            raise InputError(
                f"where has more than {MAX_CONDITIONS} conditions; 'in' takes a long list of values"
            )


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


def _bound(value: Scalar) -> Scalar | bytes:
    """Return a scalar as SQLite takes it; bytes, which no text equals, for what is no text."""
    if isinstance(value, int) and not isinstance(value, bool) and value not in _INT64:
        return float(value) if abs(value) < 10**308 else math.copysign(math.inf, value)
    if isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
        return value.encode("utf-8", "surrogatepass")
    return value


def _existing(name: str, exists: Any, sql: str) -> _Part:
    if not isinstance(exists, bool):
        raise InputError(f"where {name!r}: 'exists' takes true or false, got {_shown(exists)}")
    return _Part(sql) if exists else _Part(sql).inverted()


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


# -- fields in SQL, and their indexes --------------------------------------------------------------


def _field_of(payload: str | None, name: str) -> str | None:
    """Return the value of a field as JSON, for names that SQLite's paths cannot quote."""
    fields = decoded_payload(payload)
    return json.dumps(fields[name]) if name in fields else None


class FieldSql(NamedTuple):
    """The type of a field, its value, and the elements of its list, in SQL."""

    type: str
    value: str
    elements: str

    @classmethod
    def of(cls, name: str) -> FieldSql:
        """Return the expressions of a field; those of a plain name are the same in its index.

        >>> print(FieldSql.of("year").value)
        json_extract(payload, '$."year"')
        """
        if len(name) > MAX_NAME:
            raise InputError(f"a field of where has at most {MAX_NAME} characters")
        if is_plain(name):
            quoted = name.replace("'", "''")
            value = f"payload, '$.\"{quoted}\"'"
        else:
            hexed = utf8(name, "a field of where").hex()
            value = f"field_of(payload, CAST(x'{hexed}' AS TEXT)), '$'"
        return cls(f"json_type({value})", f"json_extract({value})", f"json_each({value})")


def is_plain(name: str) -> bool:
    """Return whether SQLite's paths can quote a name; a field with another has no index."""
    return bool(name) and all(c not in '"\\' and c.isprintable() for c in name)


def index_field(connection: sqlite3.Connection, name: str) -> None:
    """Make an index of a field, which filters by it use from now on; inside a transaction."""
    field = FieldSql.of(name)
    if not is_plain(name):
        raise InputError(f"a field with the name {name[:100]!r} cannot have an index")
    connection.execute(
        f"CREATE INDEX IF NOT EXISTS {_index_name(name)} ON items ({field.value}, {field.type})"
    )


def _index_name(name: str) -> str:
    return f"field_{utf8(name, 'the field').hex()}"


class AllowList(NamedTuple):
    """The keys, ascending, of the items that passed at commit ``commits``."""

    keys: Keys
    commits: int


class AllowLists:
    """Allow-lists of the filters used last, for one catalog; any thread may ask.

    Attributes
    ----------
    wanted : fields that lists were made by often, and that have no index
    """

    MOST = 16
    MOST_KEYS = 16_000_000
    """Lists, and keys of all lists together at 8 bytes each, that are kept; the last always."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._kept: OrderedDict[str, AllowList] = OrderedDict()
        self._guard = threading.Lock()
        self._made_by: Counter[str] = Counter()
        self.wanted: set[str] = set()

    def has(self, where: Filter) -> bool:
        """Return whether the list of a filter is kept, of this commit or an older one."""
        with self._guard:
            return where.text in self._kept

    def of(self, where: Filter) -> AllowList:
        """Return the list of all committed items that pass.

        Cost: one pass over the payloads, 0.5 microseconds an item, unless its field has an index.
        """
        with self._catalog.reading() as connection:
            head = self._catalog.head(connection)
            with self._guard:
                known = self._kept.get(where.text)
            if known is not None and known.commits == head.commits:
                return known
            check_members(connection, where.classes)
            made = AllowList(where.keys(connection), head.commits)
            self._count(connection, where, head.n_items)
        with self._guard:
            self._kept[where.text] = made
            self._kept.move_to_end(where.text)
            n_keys = sum(len(each.keys) for each in self._kept.values())
            while len(self._kept) > (self.MOST if n_keys <= self.MOST_KEYS else 1):
                _, oldest = self._kept.popitem(last=False)
                n_keys -= len(oldest.keys)
        return made

    def _count(self, connection: sqlite3.Connection, where: Filter, n_items: int) -> None:
        """Note the fields that an index would help with, those compared by their values."""
        if not LEAST_INDEXED <= n_items <= MOST_INDEXED:
            return
        for name in {each.field for each in where.compared if not each.is_contained}:
            self._made_by[name] += 1
            if self._made_by[name] == OFTEN and is_plain(name):
                there = connection.execute(
                    "SELECT 1 FROM sqlite_master WHERE name = ?", (_index_name(name),)
                )
                if there.fetchone() is None:
                    self.wanted.add(name)


# -- mistakes --------------------------------------------------------------------------------------

_OF_JSON = {"integer": "number", "real": "number", "true": "boolean", "false": "boolean"}
_OF_JSON |= {"array": "list"}
"""The kind of a value by the name that SQLite's ``json_type`` has for it, where they differ."""

_TOLD = {
    "text": "texts",
    "number": "numbers",
    "boolean": "true and false",
    "null": "null",
    "list": "lists",
    "object": "objects",
}
_MOST_NAMES, _COMPARED, _LONGEST = 20, 10_000, 50


def check_meant(catalog: Catalog, where: Filter, known: Callable[[], Iterable[FieldInfo]]) -> None:
    """Refuse a filter that names a field or class that no item has, or compares other kinds.

    Called if a filter found nothing. A condition ``exists`` is never refused, nor equality with
    null, nor anything of a field that is null in every item. ``known`` returns fields, for the
    nearest names. Cost: a pass over all payloads for each field.
    """
    with catalog.reading() as connection:
        classes = [each.name for each in catalog.classes(connection)]
        held = {
            name: {
                _OF_JSON.get(each, each)
                for (each,) in connection.execute(
                    f"SELECT DISTINCT {FieldSql.of(name).type} FROM items"  # noqa: S608
                )
                if each is not None
            }
            for name in dict.fromkeys(where.fields)
        }
        (n,) = connection.execute("SELECT count(*) FROM classes").fetchone()
        check_count(connection, "classes", n)
    for name, kinds in held.items():
        if not kinds:
            near = did_you_mean(name, [*(each.name for each in known()), *_SPECIAL])
            raise InputError(f"no item has a field {name[:100]!r} in its payload; {near}")
    for name in where.classes:
        if name not in classes:
            raise InputError(f"no class is called {name[:100]!r}; {did_you_mean(name, classes)}")
    for asked in where.compared:
        kinds = held[asked.field]
        if kinds.isdisjoint(asked.kinds) and kinds - {"null"}:
            raise InputError(_refusal(asked, kinds))


_SPECIAL = (ALL, ANY, LABELS, NOT, TEXT)


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
    shown = ", ".join(each[:_LONGEST] for each in listed[:_MOST_NAMES]) + (
        ", ..." if len(listed) > _MOST_NAMES else ""
    )
    return f"known are {shown}" if listed else "there are none"
