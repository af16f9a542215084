"""Filters as Milvus's boolean expressions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from oasis.errors import InputError
from oasis.index import Ids

IDS_AT_ONCE = 8192
"""Maximum number of ids in one expression: about 100 kB of text, parsed in milliseconds."""


def ids_in(ids: Ids) -> str:
    """Return the expression that matches these ids.

    >>> ids_in(np.array([3, 1]))
    'id in [3, 1]'
    """
    return f"id in {ids.tolist()}"


def pieces(ids: Ids) -> Iterator[str]:
    """Yield disjoint expressions that together match these ascending ids.

    Long runs of consecutive ids become ranges, the others lists.

    >>> list(pieces(np.array([3, 7])))
    ['id in [3, 7]']
    >>> list(pieces(np.arange(100_000)))
    ['id >= 0 and id <= 99999']
    """
    begin = np.flatnonzero(np.diff(ids, prepend=-2) != 1)
    end = np.append(begin[1:], len(ids))
    long = np.flatnonzero(end - begin >= IDS_AT_ONCE)
    alone = np.ones(len(ids), dtype=np.bool_)
    for start, stop in zip(begin[long].tolist(), end[long].tolist(), strict=True):
        alone[start:stop] = False
        yield f"id >= {ids[start]} and id <= {ids[stop - 1]}"
    rest = ids[alone]
    for start in range(0, len(rest), IDS_AT_ONCE):
        yield ids_in(rest[start : start + IDS_AT_ONCE])


def check_where(where: Any) -> str:
    """Return a caller's expression, or an empty one for None; blank text is refused.

    >>> check_where('payload["year"] > 2020')
    'payload["year"] > 2020'
    """
    if where is None:
        return ""
    if not isinstance(where, str) or not where.strip():
        raise InputError(
            "where must be a Milvus expression over id, labels and payload, such as "
            f"payload['year'] > 2020, got {where!r}"
        )
    return where


def both(first: str, second: str) -> str:
    """Return the conjunction of two expressions, either of which may be empty.

    >>> both("id > 3", ""), both("id > 3", "id < 9")
    ('id > 3', '(id > 3) and (id < 9)')
    """
    return f"({first}) and ({second})" if first and second else first or second
