"""Which fields payloads have, with examples of their values; from a sample of bounded size."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

from oasis.collection.records import FieldInfo
from oasis.collection.rows import decoded_payload

Kind: TypeAlias = Literal["number", "text", "boolean", "list", "object", "mixed"]

SAMPLE = 1000
"""Items looked at from the oldest on, and as many from the newest back."""

SAMPLE_BYTES = 8 << 20
"""Bytes of payload after which no more items are looked at."""

MAX_FIELDS = 64
MAX_VALUES = 20
MAX_TEXT = 100

_DISTINCT = 10_000


def sampled(connection: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    """Return payloads of the oldest and the newest items, by age; the cost does not grow."""
    found: dict[int, str] = {}
    for order in ("ASC", "DESC"):
        n_bytes = 0
        rows = connection.execute(
            f"SELECT key, payload FROM items ORDER BY key {order} LIMIT {SAMPLE}"  # noqa: S608
        )
        for key, payload in rows:
            n_bytes += len(payload or "")
            if n_bytes > SAMPLE_BYTES // 2:
                break
            found[key] = payload
    return (decoded_payload(found[key]) for key in sorted(found))


class _Field:
    """What was seen of one field."""

    def __init__(self) -> None:
        self.n = 0
        self.kinds: set[str] = set()
        self.values: Counter[Any] = Counter()
        self.left_out = False
        self.numbers: list[float] = []

    def add(self, value: Any) -> None:
        self.n += 1
        if value is None:
            return
        kind = _kind(value)
        self.kinds.add(kind)
        if kind == "number":
            self.numbers = [min([*self.numbers[:1], value]), max([*self.numbers[1:], value])]
        if kind in ("text", "boolean"):
            if kind == "text" and (not value or len(value) > MAX_TEXT):
                self.left_out = True
            elif value in self.values or len(self.values) < _DISTINCT:
                self.values[value] += 1

    def told(self, name: str) -> FieldInfo:
        kind = next(iter(self.kinds)) if len(self.kinds) == 1 else "mixed"
        values: tuple[Any, ...] = ()
        if kind in ("text", "boolean"):
            values = tuple(value for value, _ in self.values.most_common(MAX_VALUES))
        lowest, highest = self.numbers if kind == "number" else (None, None)
        complete = kind in ("text", "boolean") and not self.left_out
        return FieldInfo(
            name,
            kind,
            self.n,
            values,
            complete and len(self.values) <= MAX_VALUES,
            lowest,
            highest,
        )


def described(payloads: Iterable[Mapping[str, Any]]) -> list[FieldInfo]:
    """Return the fields of payloads, those of most items first, at most 64.

    >>> [(each.name, each.kind, each.n) for each in described([{"year": 1}, {"year": 2, "a": "b"}])]
    [('year', 'number', 2), ('a', 'text', 1)]
    """
    found: dict[str, _Field] = {}
    for payload in payloads:
        for name, value in payload.items():
            if name not in found:
                if len(found) >= 16 * MAX_FIELDS:
                    continue
                found[name] = _Field()
            found[name].add(value)
    # equal counts stay in the order of arrival
    ordered = sorted(found.items(), key=lambda each: -each[1].n)
    return [field.told(name) for name, field in ordered[:MAX_FIELDS]]


def _kind(value: Any) -> Kind:
    match value:
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "text"
        case list():
            return "list"
    return "object"
