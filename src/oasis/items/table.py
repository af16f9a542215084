"""The rows of a table in memory: a pyarrow Table, a pandas DataFrame, or columns by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from oasis.errors import InputError
from oasis.items.fields import Fields, Kind
from oasis.items.item import Row
from oasis.items.parquet import batch_rows


def table_columns(table: Any) -> dict[str, Kind]:
    """Return the names of the columns of a table."""
    if hasattr(table, "to_batches"):
        return dict.fromkeys(table.column_names, "plain")
    if isinstance(table, Mapping) or hasattr(table, "columns"):
        return {str(name): "plain" for name in table}
    raise InputError(
        f"a table is a pyarrow Table, a DataFrame or a mapping of columns, got "
        f"{type(table).__name__}"
    )


def table_rows(table: Any, fields: Fields) -> Iterator[Row]:
    """Yield the rows of a table, counted from 0; without a column of ids, the id is the number."""
    read = set(fields.names())
    needed = [name for name in table_columns(table) if name in read]
    rows = _arrow_rows(table, needed, fields) if hasattr(table, "to_batches") else None
    for number, values in enumerate(_column_rows(table, needed) if rows is None else rows):
        yield f"row {number}", {fields.id: number, **values}


def _arrow_rows(table: Any, needed: list[str], fields: Fields) -> Iterator[dict[str, Any]]:
    for batch in table.select(needed).to_batches(max_chunksize=256):
        yield from batch_rows("the table", batch, fields)


def _column_rows(table: Any, needed: list[str]) -> Iterator[dict[str, Any]]:
    columns: dict[str, Sequence[Any]] = {}
    for name in needed:
        column = table[name]
        columns[name] = column.to_numpy() if hasattr(column, "to_numpy") else column
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"the table has columns of different lengths: {lengths}")
    for row in range(next(iter(lengths.values()), 0)):
        yield {name: _plain(column[row]) for name, column in columns.items()}


def _plain(value: Any) -> Any:
    """Return a NumPy scalar as a Python value, a missing one as None, a set of labels as a list."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value != value:
        return None
    return list(value) if isinstance(value, (tuple, set, frozenset)) else value
