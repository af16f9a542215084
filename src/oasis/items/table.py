"""The rows of Parquet files (extra ``parquet``) and of tables in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from oasis.errors import DataError, InputError, MissingExtraError
from oasis.items.fields import Fields, Kind
from oasis.items.item import Row, Vector

_BATCH = 256


def parquet_columns(path: Path, _fields: Fields) -> dict[str, Kind]:
    """Return the columns of a Parquet file, and what they hold."""
    with opened_parquet(path) as file:
        return {each.name: _kind_of(each.type) for each in file.schema_arrow}


def parquet_rows(path: Path, fields: Fields) -> Iterator[Row]:
    """Yield the rows of a Parquet file, counted from 1."""
    number = 0
    with opened_parquet(path) as file:
        read = set(fields.names())
        needed = [name for name in file.schema_arrow.names if name in read]
        for batch in file.iter_batches(batch_size=_BATCH, columns=needed):
            for values in _batch_rows(str(path), batch, fields):
                number += 1
                yield f"{path.name}:{number}", values


@contextmanager
def opened_parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file; what pyarrow cannot read of it is a `DataError`."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", extra="parquet", what="reading Parquet") from error
    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as Parquet: {error}") from error


def _batch_rows(name: str, batch: Any, fields: Fields) -> Iterator[dict[str, Any]]:
    """Yield the rows of a record batch; ``name`` is the name of the file, for errors."""
    vectors = {}
    for column in fields.vectors.values():
        if column in batch.schema.names:
            _check_vectors(name, column, batch.schema.field(column).type)
            vectors[column] = _vectors(batch.column(column))
    plain = [column for column in batch.schema.names if column not in vectors]
    for row, values in enumerate(batch.select(plain).to_pylist()):
        yield values | {column: rows[row] for column, rows in vectors.items()}


def _kind_of(kind: Any) -> Kind:
    """Return what a column of a type of Arrow holds."""
    from pyarrow import types

    if _is_list(kind):
        if types.is_floating(kind.value_type):
            return "vectors"
        return "other" if types.is_integer(kind.value_type) else "plain"
    unkept = ("binary", "decimal", "duration", "map<")
    return "other" if any(name in str(kind) for name in unkept) else "plain"


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    return any(test(kind) for test in lists)


def _check_vectors(name: str, column: str, kind: Any) -> None:
    from pyarrow import types

    numbers = (types.is_floating, types.is_integer)
    if _is_list(kind) and any(test(kind.value_type) for test in numbers):
        return
    raise DataError(
        f"{name}: column {column!r} holds {kind}, expected lists of numbers, of fixed size or not"
    )


def _vectors(column: Any) -> list[Vector | None]:
    """Return the rows of a column of lists as arrays; a null is None, a null within a list NaN."""
    from pyarrow import compute

    values = column.flatten().to_numpy(zero_copy_only=False)  # without the lists that are null
    lengths = compute.list_value_length(column)
    counts = lengths.fill_null(0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(counts)
    return [
        values[end - count : end] if there else None
        for end, count, there in zip(ends, counts, lengths.is_valid().to_pylist(), strict=True)
    ]


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
    if hasattr(table, "to_batches"):
        batches = table.select(needed).to_batches(max_chunksize=_BATCH)
        rows: Iterator[dict[str, Any]] = (
            values for each in batches for values in _batch_rows("the table", each, fields)
        )
    else:
        rows = _column_rows(table, needed)
    for number, values in enumerate(rows):
        yield f"row {number}", {fields.id: number, **values}


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
