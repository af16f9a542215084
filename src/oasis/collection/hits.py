"""From keys to hits: the rows of items, read from the catalog."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import nan

import numpy as np
import numpy.typing as npt

from oasis.collection.catalog import Catalog
from oasis.collection.committed import Committed
from oasis.collection.filters import AllowList
from oasis.collection.records import Hit
from oasis.collection.rows import ITEM_COLUMNS, ItemRow
from oasis.errors import FormatError, TooLargeError


class FetchedRows(dict[int, ItemRow]):
    """Rows by key, and ``names``, the class names that their numbers mean."""

    names: Sequence[str] = ()


def fetch_rows(
    snapshot: Committed,
    catalog: Catalog,
    connection: sqlite3.Connection,
    keys: npt.NDArray[np.int64],
    with_payload: npt.NDArray[np.int64] | None,
    max_bytes: int | None,
    allow: AllowList | None = None,
) -> FetchedRows | None:
    """Return the rows of the keys that are items of the snapshot's commit, and still there.

    With a list, also those alone that still pass its filter.

    Payloads are read of the keys ``with_payload``, which are some of ``keys``; None for none. The
    answer is None where these have more than ``max_bytes`` together. A key beyond the commit may
    have been searched with the code of a chunk that failed, and belong to another one by now.
    Labels and payloads are those of the connection, which may be newer: it must have been opened
    after the index was asked.

    Raises
    ------
    FormatError
        An item of the index in memory has no row, and nothing was deleted meanwhile.
    """
    wanted = _committed(snapshot, keys)
    full = _committed(snapshot, keys[:0] if with_payload is None else with_payload)
    found = FetchedRows()
    found.names = catalog.names_from(connection, snapshot.classes)
    n_bytes = 0
    for values in catalog.rows(connection, ITEM_COLUMNS, sorted(full)):
        row = found[values[0]] = ItemRow(*values)
        n_bytes += row.payload_bytes
        if max_bytes is not None and n_bytes > max_bytes:
            return None
    if bare := wanted - full:
        columns = ITEM_COLUMNS.replace("payload", "NULL")
        for values in catalog.rows(connection, columns, sorted(bare)):
            found[values[0]] = ItemRow(*values)
    if len(found) < len(wanted):
        _check_deleted(snapshot, catalog, connection, sorted(wanted - found.keys()))
    if allow is not None:
        for key in allow.refused(connection, found.values()):
            del found[key]
    return found


def _committed(snapshot: Committed, keys: npt.NDArray[np.int64]) -> set[int]:
    """Return the keys that the snapshot's commit may have; np.unique would import numpy.ma."""
    return set(keys[(keys >= 0) & (keys < snapshot.head.next_key)].tolist())


def _check_deleted(
    snapshot: Committed, catalog: Catalog, connection: sqlite3.Connection, gone: list[int]
) -> None:
    """Raise `FormatError` where rows are missing and there is no commit after the snapshot's.

    An index elsewhere may hold for longer what is deleted.
    """
    if snapshot.replica.is_local and catalog.head(connection).commits == snapshot.head.commits:
        raise FormatError(
            f"the catalog is damaged: {len(gone)} of the items that the index finds are not in "
            f"it, such as the one with key {gone[0]}; 'oasis check' lists all damage, and a backup "
            "has what is lost"
        )


def too_much(max_bytes: int | None) -> TooLargeError:
    """Return the error of hits whose payloads are too large together."""
    return TooLargeError(
        f"the payloads of the hits have more than {max_bytes} bytes together; ask for fewer hits, "
        "or without their payload"
    )


def ties(scores: Iterable[float]) -> list[bool]:
    """Return whether each of successive scores equals the one before or after it.

    >>> ties([3, 3, 2, 1, 1])
    [True, True, False, True, True]
    """
    same = [a == b for a, b in pairwise([nan, *scores, nan])]
    return [before or after for before, after in pairwise(same)]


def made_hit(
    rows: FetchedRows,
    key: int,
    score: float,
    query: int,
    payload: bool,
    tied: bool,
    weak: bool,
) -> Hit:
    """Return a hit; ``query`` is the code that its distance is counted from."""
    row = rows[key]
    if payload:
        row.check()
    elif not isinstance(row.code, bytes):  # without its payload a row cannot be compared
        raise FormatError(f"the item with key {row.key} is damaged: its code is no blob")
    distance = (int.from_bytes(row.code, "little") ^ query).bit_count()
    return Hit(
        row.id,
        score,
        distance,
        row.decoded_payload() if payload else {},
        row.label_names(rows.names),
        tied,
        weak,
        row.predicted_names(rows.names),
    )
