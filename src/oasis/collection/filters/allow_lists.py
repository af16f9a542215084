"""Allow-lists: the keys of all items that pass a filter.

A list is made by one pass over the items (about a second for a million; classes and phrases come
from postings, in milliseconds) and kept. Afterwards only new or changed items are tested. A
distinct value is tested once.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from functools import reduce
from typing import Any, NamedTuple

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
from oasis.collection.filters.tree import (
    All,
    AnyOf,
    Condition,
    Facts,
    Field,
    HasField,
    HasLabel,
    HasText,
    Not,
    Part,
    Scalar,
    field_names,
    is_of_payload,
    leaves,
)
from oasis.collection.filters.where import Filter
from oasis.collection.texts.postings import containing, texts_of
from oasis.errors import FormatError

_KEPT = 16
_KEPT_KEYS = 16_000_000
"""Lists, and keys of all lists together at 8 bytes each, that are kept; the last list always."""
_VERDICTS = 100_000
_SHORT = 200
"""So many values of at most so many characters have their verdict kept during a pass."""
_COLUMNS = 32
"""A filter by more fields reads payloads whole: SQLite takes longer to cut so many values out."""
_FEW = 10
"""Where less than one item in so many has a class or phrase, only their payloads are read."""


class AllowList(NamedTuple):
    """The keys up to ``last``, ascending, of the items that passed at commit ``commits``."""

    where: Filter
    keys: Keys
    last: int
    commits: int

    def refused(
        self, catalog: Catalog, connection: sqlite3.Connection, rows: Iterable[ItemRow]
    ) -> set[int]:
        """Return the keys of rows that were changed since, and pass no longer."""
        changed = {row.key for row in rows if row.changed and row.changed > self.commits}
        if not changed:
            return changed
        keys = np.array(sorted(changed), dtype=np.int64)
        return changed.difference(_passing(catalog, connection, self.where, keys).tolist())


class AllowLists:
    """Allow-lists of the filters used last, for one catalog; any thread may ask."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._kept: OrderedDict[str, AllowList] = OrderedDict()
        self._guard = threading.Lock()

    def is_kept(self, where: Filter) -> bool:
        """Return whether the list of a filter is kept, of this commit or an older one."""
        with self._guard:
            return where.text in self._kept

    def of(self, where: Filter) -> AllowList:
        """Return the list of all committed items that pass.

        Items that were deleted after a list was made may still be in it.
        """
        with self._guard:
            known = self._kept.get(where.text)
        with self._catalog.reading() as connection:
            head = self._catalog.head(connection)
            keys, last = np.empty(0, dtype=np.int64), 0
            if known is not None:
                changed = self._catalog.changed(connection, known.commits, known.last)
                if len(changed) * _FEW < known.last:  # otherwise all items are tested again
                    keys, last = known.keys, known.last
                    if len(changed):
                        passing = _passing(self._catalog, connection, where, changed)
                        keys = _judged_anew(keys, changed, passing)
            if (top := head.next_key - 1) > last:
                scan = _Scan(self._catalog, connection, last, top)
                keys = np.concatenate([keys, scan.keys(where.root)])
        made = AllowList(where, keys, top, head.commits)
        with self._guard:
            self._kept[where.text] = made
            self._kept.move_to_end(where.text)
            n_keys = sum(len(each.keys) for each in self._kept.values())
            while len(self._kept) > (_KEPT if n_keys <= _KEPT_KEYS else 1):
                _, oldest = self._kept.popitem(last=False)
                n_keys -= len(oldest.keys)
        return made


def _passing(catalog: Catalog, connection: sqlite3.Connection, where: Filter, keys: Keys) -> Keys:
    """Return those of the keys, ascending, whose items pass."""
    names = catalog.class_names(connection) if where.has_labels else []
    texts = dict(texts_of(connection, keys.tolist())) if where.has_texts else {}
    passing = []
    for values in catalog.rows(connection, ITEM_COLUMNS, keys.tolist()):
        row = ItemRow(*values)
        if where.matches(
            row.decoded_payload(),
            row.label_names(names) if names else (),
            texts.get(row.key),
            row.predicted_names(names) if names else (),
        ):
            passing.append(row.key)
    return np.array(sorted(passing), dtype=np.int64)


def _judged_anew(keys: Keys, judged: Keys, passing: Keys) -> Keys:
    """Return ascending keys after some were tested again; one copy, without sorting.

    >>> _judged_anew(np.array([1, 3, 5, 9]), np.array([3, 4, 5]), np.array([4, 5])).tolist()
    [1, 4, 5, 9]
    """
    at = np.searchsorted(keys, judged)
    inside = at < len(keys)
    at, judged = at[inside], judged[inside]
    left = np.delete(keys, at[keys[at] == judged])
    return np.insert(left, np.searchsorted(left, passing), passing)


class _Scan:
    """One pass over the items with keys beyond ``last``, up to ``top``."""

    def __init__(
        self, catalog: Catalog, connection: sqlite3.Connection, last: int, top: int
    ) -> None:
        self._catalog, self._connection = catalog, connection
        self._last, self._top = last, top

    def keys(self, part: Part) -> Keys:
        """Return the keys, ascending, of the items that pass."""
        if is_of_payload(part):
            return self._of_payload(part)
        match part:
            case HasLabel():
                return self._having(part)
            case HasText():
                return self._with_text(part)
            case Not():
                return np.setdiff1d(self._selected("1"), self.keys(part.part), assume_unique=True)
            case AnyOf():
                return reduce(np.union1d, [self.keys(each) for each in _grouped(part)])
            case All():
                return self._all(part)
        raise TypeError(f"{type(part).__name__} is no part of a filter")

    def _all(self, part: All) -> Keys:
        """Return the keys of the items that pass every part, those of postings first."""
        parts = _grouped(part)
        found = reduce(_common, [self.keys(each) for each in parts if not is_of_payload(each)])
        for each in parts:
            if not is_of_payload(each):
                continue
            if len(found) * _FEW < self._top - self._last:
                rows = self._catalog.rows(self._connection, "key, payload", found.tolist())
                found = np.sort(_judged(rows, each))
            else:
                found = _common(found, self._of_payload(each))
        return found

    def _having(self, label: HasLabel) -> Keys:
        """Return the keys of the items that have a class, or any."""
        if label.name is None:
            has = "labels IS NOT NULL"
            return self._selected(f"({has} OR predicted IS NOT NULL)" if label.predicted else has)
        # by all rows, which have checksums; the index of their names has none
        names = self._catalog.class_names(self._connection)
        if label.name not in names:
            check_count(self._connection, "classes", len(names))
            return np.empty(0, dtype=np.int64)
        number = names.index(label.name)
        found = class_postings(self._connection, number, self._last)
        if not label.predicted:
            return found
        return np.union1d(
            found, class_postings(self._connection, number, self._last, predicted=True)
        )

    def _with_text(self, part: HasText) -> Keys:
        """Return the keys of the items with a kept text in which the phrase stands, if any."""
        if part.phrase is None:
            return self._selected("key IN (SELECT key FROM texts)")
        return containing(self._connection, part.phrase, self._last)

    def _check_items(self) -> None:
        """Raise `FormatError` where items are lost, in a pass over all of them."""
        if not self._last:
            # the table itself: an index of it may have rows that it has lost
            (n,) = self._connection.execute("SELECT count(*) FROM items NOT INDEXED").fetchone()
            check_count(self._connection, "items", n)

    def _selected(self, test: str) -> Keys:
        self._check_items()
        rows = self._connection.execute(
            f"SELECT key FROM items WHERE key > ? AND {test} ORDER BY key",  # noqa: S608
            (self._last,),
        )
        return np.array([key for (key,) in rows], dtype=np.int64)

    def _of_payload(self, part: Part) -> Keys:
        """Return the keys of the items whose payload passes."""
        self._check_items()
        # SQLite cuts the value out of the payload as it is written. Whether it is one of a list is
        # looked up there; anything else is judged in Python, so that numbers are compared as they
        # are everywhere else. A row that fails never leaves SQLite
        names = field_names(part)
        paths = [json_path(name) for name in names]
        if not names or None in paths or len(names) > _COLUMNS:
            rows = self._connection.execute(
                "SELECT key, payload FROM items WHERE key > ? ORDER BY key", (self._last,)
            )
            return _judged(rows, part)
        query = _Query(part, names)
        test = query.test(part)
        columns = ", ".join(f"payload -> ? AS v{number}" for number in range(len(names)))
        for name, verdicts in query.judges.items():
            self._connection.create_function(name, 1, verdicts.__getitem__)
        try:
            # the limit keeps SQLite from cutting a value out anew wherever it is used
            found = self._connection.execute(
                f"SELECT key FROM (SELECT key, {columns} FROM items WHERE key > ? LIMIT -1) "  # noqa: S608
                f"WHERE {test} ORDER BY key",
                (*paths, self._last, *query.lists),
            ).fetchall()
        finally:
            for name in query.judges:
                self._connection.create_function(name, 1, None)
        return np.array([key for (key,) in found], dtype=np.int64)


_LISTED = """
CASE WHEN {value} IN (SELECT value FROM json_each(?)) THEN 1
     WHEN {value} GLOB '"*' AND instr({value}, '\\') = 0 THEN 0
     WHEN ltrim({value}, '-') NOT GLOB '*[^0-9]*' THEN 0
     ELSE {judge}({value}) END"""
"""Whether a value is one of a list: its JSON text is among the spellings of the list's values.

A text without escapes and a whole number have one spelling; numbers spelled otherwise are judged.
"""


class _Query:
    """A part of a filter in SQL: functions by name, and lists in the order of their use."""

    def __init__(self, part: Part, names: list[str]) -> None:
        self._columns = {name: f"v{number}" for number, name in enumerate(names)}
        n_judges = sum(isinstance(leaf, Field) for leaf in leaves(part))
        self._kept = _VERDICTS // max(1, n_judges)
        self.judges: dict[str, _Verdicts] = {}
        self.lists: list[str] = []

    def test(self, part: Part) -> str:
        """Return an expression that is 1 or 0."""
        match part:
            case All() | AnyOf():
                sign, nothing = (" AND ", "1") if isinstance(part, All) else (" OR ", "0")
                return f"({sign.join(map(self.test, part.parts)) or nothing})"
            case Not():
                return f"NOT {self.test(part.part)}"
            case HasField():
                return f"({self._columns[part.name]} IS NOT NULL)"
            case Field():
                return f"({self._condition(part)})"
        raise TypeError(f"{type(part).__name__} is no part of a filter by payload")

    def _condition(self, part: Field) -> str:
        judge, value = f"judge{len(self.judges)}", self._columns[part.name]
        self.judges[judge] = _Verdicts(part.condition, self._kept)
        if not part.condition.is_list:
            return f"{judge}({value})"
        self.lists.append(json.dumps(_spellings(part.condition.among or ())))
        return _LISTED.format(value=value, judge=judge)


def _grouped(part: All | AnyOf) -> tuple[Part, ...]:
    """Return the parts, those that look at payloads alone together: they take one pass."""
    mine = [each for each in part.parts if is_of_payload(each)]
    others = [each for each in part.parts if not is_of_payload(each)]
    return (*others, type(part)(tuple(mine))) if mine else tuple(others)


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
    """Whether a value, as JSON text, meets a condition; None stands for a field that is missing.

    The verdicts of ``most`` short values are kept: payloads may hold many long ones.
    """

    def __init__(self, condition: Condition, most: int) -> None:
        super().__init__({None: False})
        self._condition, self._most = condition, most

    def __missing__(self, text: str) -> bool:
        verdict = self._condition.holds(_decoded(text))
        if len(text) <= _SHORT and len(self) < self._most:
            self[text] = verdict
        return verdict


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise FormatError(f"a payload in the catalog is damaged: {error}") from error


def _judged(rows: Iterable[tuple[int, str | None]], part: Part) -> Keys:
    """Return the keys of the rows whose payload passes."""
    passed = [key for key, text in rows if part.passes(Facts(decoded_payload(text)))]
    return np.array(passed, dtype=np.int64)


def _common(a: Keys, b: Keys) -> Keys:
    return np.intersect1d(a, b, assume_unique=True)


def json_path(name: str) -> str | None:
    """Return a JSON path to a top-level key, or None for a key that SQLite cannot quote.

    >>> json_path("year"), json_path('a "b"')
    ('$."year"', None)
    """
    plain = name and all(c not in '"\\' and c.isprintable() for c in name)
    return f'$."{name}"' if plain else None
