"""The rows of a Parquet file, as values by field name (extra ``parquet``)."""

from __future__ import annotations

import datetime
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from oasis.errors import DataError, MissingExtraError, UnusedFieldWarning
from oasis.items.item import Fields, Refused, Row, Vector, field_of, kind_of
from oasis.items.lines import parse_object, split_labels

_BATCH = 256


def parquet_rows(path: Path, fields: Fields) -> Iterator[Row]:
    """Yield the rows of a Parquet file, counted from 1."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", extra="parquet", what="reading Parquet") from error

    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            columns = list(file.schema_arrow.names)
            _note_vectors(path, file.schema_arrow, fields)
            fields.check(path, columns)
            lists = {each.name for each in file.schema_arrow if _is_list_of(each.type)}
            fields.note_unkept(path, [name for name in columns if name not in lists])
            needed = [name for name in columns if name in fields.names()]
            for batch in file.iter_batches(batch_size=_BATCH, columns=needed):
                for values in batch_rows(str(path), batch, fields):
                    number += 1
                    yield f"{path.name}:{number}", values
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as Parquet after row {number}: {error}") from error


def batch_rows(name: str, batch: Any, fields: Fields) -> Iterator[dict[str, Any]]:
    """Yield the rows of a record batch; ``name`` is the name of the file, for errors."""
    columns = [column for column in fields.vectors.values() if column in batch.schema.names]
    for column in columns:
        _check_vectors(name, column, batch.schema.field(column).type)
    vectors = {column: _vectors(batch.column(column)) for column in columns}
    plain = [column for column in batch.schema.names if column not in vectors]
    for row, values in enumerate(batch.select(plain).to_pylist()):
        yield values | {column: rows[row] for column, rows in vectors.items()}


def _note_vectors(path: Path, schema: Any, fields: Fields) -> None:
    """Give a warning if there are vectors, but none is to be used."""
    from pyarrow import types

    unused = [] if fields.vectors else [each for each in schema if each.name not in fields.names()]
    found = [each.name for each in unused if _is_list_of(each.type, types.is_floating)]
    if found:
        warnings.warn(
            f"{path}: the vectors in column {found[0]!r} are not used; to use them, add --feature "
            f"image={found[0]}, or another name of a modality (in Python: ingest_table)",
            UnusedFieldWarning,
            stacklevel=2,
        )


def _is_list_of(kind: Any, *tests: Callable[[Any], bool]) -> bool:
    """Return whether a type is a list, and one of the tests, if any, holds for its elements."""
    from pyarrow import types

    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return is_list and (not tests or any(test(kind.value_type) for test in tests))


def _check_vectors(name: str, column: str, kind: Any) -> None:
    from pyarrow import types

    if _is_list_of(kind, types.is_floating, types.is_integer):
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


def refine_parquet(values: dict[str, Any], fields: Fields, separator: str) -> dict[str, Any]:
    """Return the values of a row: picture unwrapped, labels split, the payload as JSON values."""
    values = split_labels(values, fields, separator)
    match field_of(values, fields.image):
        case {"bytes": bytes(content)}:
            values[str(fields.image)] = content
        case {"path": str(path)}:
            values[str(fields.image)] = path
    if isinstance(fields.payload, tuple):
        return values | _plain({name: values.get(name) for name in fields.payload})
    if fields.payload is not None:
        match values.get(fields.payload):
            case str(payload):
                values[fields.payload] = parse_object(payload.encode(), fields.payload)
            case dict(payload):
                values[fields.payload] = _plain(payload)
    return values


def _plain(payload: dict[str, Any]) -> dict[str, Any]:
    """Return a payload after a round trip through JSON."""

    def text(value: object) -> str:
        if isinstance(value, (datetime.date, datetime.time)):
            return value.isoformat()
        raise Refused(f"the payload holds {kind_of(value)}, which JSON cannot")

    try:
        result: dict[str, Any] = json.loads(json.dumps(payload, default=text, allow_nan=False))
    except ValueError as error:
        raise Refused(f"the payload cannot be written as JSON: {error}") from error
    return result
