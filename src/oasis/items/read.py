"""The readers: rows turned into items and rejects, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Any

from oasis.errors import DataError, InputError
from oasis.items.builder import ItemBuilder
from oasis.items.fields import Fields, Kind, listed
from oasis.items.folder import folder_rows
from oasis.items.item import Item, Refused, Reject, Row
from oasis.items.lines import csv_columns, csv_rows, jsonl_columns, jsonl_rows
from oasis.items.numpy_files import npy_columns, npy_rows, npz_columns, npz_rows
from oasis.items.table import parquet_columns, parquet_rows, table_columns, table_rows

_JSONL, _CSV = (jsonl_columns, jsonl_rows), (csv_columns, csv_rows)
_FORMATS: dict[
    str,
    tuple[Callable[[Path, Fields], Mapping[str, Kind]], Callable[[Path, Fields], Iterator[Row]]],
] = {
    ".jsonl": _JSONL,
    ".ndjson": _JSONL,
    ".csv": _CSV,
    ".tsv": _CSV,
    ".parquet": (parquet_columns, parquet_rows),
    ".npz": (npz_columns, npz_rows),
    ".npy": (npy_columns, npy_rows),
}
"""By suffix: the columns of a file, and its rows."""


def read_items(
    path: Path | str,
    fields: Fields | None = None,
    *,
    separator: str = ";",
    labels_from_folders: bool = False,
    text_from_names: bool = False,
    strict: bool = False,
    allow_outside: bool = False,
) -> Iterator[Item | Reject]:
    """Read a folder, or a file by its suffix: .jsonl, .ndjson, .csv, .tsv, .parquet, .npz, .npy.

    JSONL has one object per line, CSV a header and commas, semicolons or tabs; both are UTF-8. An
    empty cell is a missing value, ids of a CSV are text. Of Parquet (extra ``parquet``) only the
    columns needed are read; a picture is a path, the bytes of a file, or a struct of ``bytes`` and
    ``path``. `oasis.items.numpy_files` describes npz and npy, `read_folder` folders. Paths are
    relative to the folder of the file. A table has at most 4,096 columns, a cell of a CSV at most
    131,072 characters.

    Parameters
    ----------
    path : Path or str
    fields : Fields, optional
        Names of the fields; not for folders.
    separator : str
        Separator of labels that are one text, as in a CSV cell.
    labels_from_folders, text_from_names : bool, see `read_folder`
    strict : bool
        Check everything first, and raise `InputError` at the first reject. Reads the data twice.
    allow_outside : bool
        Allow paths outside the folder of the data file.

    Raises
    ------
    DataError
        The file is missing, or is unreadable or lacks a column.
    InputError
        ``strict`` and a row has to be rejected.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "items.csv")
    ...     _ = path.write_text("key,caption,tags,year\\n7,a boat,sea; sun,1999\\n8,,,2001\\n")
    ...     for result in read_items(path):
    ...         print(result)
    Item(id='7', image=None, text='a boat', labels=('sea', 'sun'), payload={'year': 1999}, ...)
    Reject(where='items.csv:3', id='8', reason='there is neither a picture nor a text')
    """
    path = Path(path)
    if path.is_dir() and not (fields and fields.vectors):
        return read_folder(
            path,
            labels_from_folders=labels_from_folders,
            text_from_names=text_from_names,
            strict=strict,
            allow_outside=allow_outside,
        )
    fields = fields_in(path, fields)
    builder = ItemBuilder(fields, path.parent, allow_outside=allow_outside, separator=separator)
    rows = _FORMATS[path.suffix.lower()][1]
    return _read(lambda: rows(path, fields), builder, strict)


def fields_in(path: Path | str, fields: Fields | None = None) -> Fields:
    """Return the names that fields have in a file; ``told`` of it says what was taken for what.

    Reads the header; of a JSONL file the first 256 objects. Raises `DataError` as `read_items`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "items.jsonl")
    ...     _ = path.write_text('{"file": "a.jpg", "label": "boat"}\\n')
    ...     print(fields_in(path).told)
    items.jsonl: pictures and ids from 'file', labels from 'label'
    """
    path, fields = Path(path), fields or Fields()
    suffix = path.suffix.lower()
    if fields.vectors and (path.is_dir() or suffix in (".csv", ".tsv")):
        raise DataError(
            f"{path} cannot hold vectors; expected a .parquet, .npz, .npy, .jsonl or .ndjson file"
        )
    if not path.exists():
        raise DataError(f"there is no file or folder {path}")
    if suffix not in _FORMATS:
        raise DataError(
            f"cannot tell what {path} is; expected a folder of pictures, or a file that ends in "
            f"{', '.join(_FORMATS)}"
        )
    columns = _FORMATS[suffix][0](path, fields)
    is_jsonl = suffix in (".jsonl", ".ndjson")
    if is_jsonl and not columns:  # nothing, or no JSON: each line is refused by itself
        return fields
    numbered = suffix in (".npz", ".npy")
    return fields.settled(path, columns, what="field" if is_jsonl else "column", numbered=numbered)


def read_folder(
    path: Path | str,
    *,
    labels_from_folders: bool = False,
    text_from_names: bool = False,
    strict: bool = False,
    allow_outside: bool = False,
) -> Iterator[Item | Reject]:
    """Read the pictures of a folder and its sub-folders, in the order of their names.

    The id is the path relative to the folder (with ``/``). The text is in a file of the same stem
    that ends in .txt. Hidden files, and files without the suffix of a picture, are skipped; links
    to folders are rejected.

    Parameters
    ----------
    path : Path or str
    labels_from_folders : bool
        The names of the sub-folders that hold a picture are its labels.
    text_from_names : bool
        A picture without a caption gets the words of its file name as its text.
    strict, allow_outside : as in `read_items`
    """
    path = Path(path)
    if not path.is_dir():
        raise DataError(f"{path} is no folder")
    builder = ItemBuilder(Fields(), path, allow_outside=allow_outside)
    return _read(
        lambda: folder_rows(builder, labels_from_folders, text_from_names), builder, strict
    )


def read_table(
    table: Any, fields: Fields | None = None, *, separator: str = ";", strict: bool = False
) -> Iterator[Item | Reject]:
    """Read the rows of a table in memory.

    Parameters
    ----------
    table : pyarrow Table, pandas DataFrame, or mapping of column name to values
        In a mapping, vectors are an (n, d) array or a list of vectors, labels a list of lists.
    fields : Fields, optional
        Without a column of ids an item's id is its row, from 0.
    separator : str
        Separator of labels, if they are one text.
    strict : see `read_items`

    Examples
    --------
    >>> table = {"id": ["a", "b"], "clip": [[1.0, 2.0], [3.0]], "labels": [["sky"], None]}
    >>> for result in read_table(table, Fields(vectors={"image": "clip"})):
    ...     print(result)
    Item(id='a', ..., labels=('sky',), ..., where='row 0', vectors={'image': array([1., 2.])})
    Reject(where='row 1', id='b', reason="'clip' has 1 values, expected 2")
    """
    fields, columns = fields or Fields(), table_columns(table)
    if unknown := [name for name in fields.vectors.values() if name not in columns]:
        raise InputError(
            f"the table has no column {unknown[0]!r}; its columns are [{listed(columns)}]"
        )
    fields = fields.settled("the table", columns, numbered=True)
    builder = ItemBuilder(fields, Path(), allow_outside=True, separator=separator)
    return _read(lambda: table_rows(table, fields), builder, strict)


def settled_fields(table: Any, fields: Fields) -> Fields:
    """Return the names that fields have in a file, or in a table in memory."""
    if isinstance(table, (str, PathLike)):
        return fields_in(Path(table), fields)
    return fields.settled("the table", table_columns(table), numbered=True)


def vector_widths(results: Iterable[Item | Reject], fields: Fields) -> dict[str, int]:
    """Return the width of each modality's vectors, from the first item that has one.

    Raises `DataError` if no item has a vector of some modality.

    Examples
    --------
    >>> import numpy as np
    >>> fields = Fields(vectors={"image": "clip"})
    >>> vector_widths(read_table({"clip": np.ones((2, 512))}, fields), fields)
    {'image': 512}
    """
    widths: dict[str, int] = {}
    refused: Reject | None = None
    for result in results:
        if isinstance(result, Reject):
            refused = refused or result
        else:
            for modality, vector in result.vectors.items():
                widths.setdefault(modality, len(vector))
        if len(widths) == len(fields.vectors):
            return widths
    column = next(name for modality, name in fields.vectors.items() if modality not in widths)
    why = "" if refused is None else f"; {refused.where} cannot be used: {refused.reason}"
    raise DataError(f"no row that can be used has a vector in {column!r}{why}")


def _read(
    rows: Callable[[], Iterator[Row]], builder: ItemBuilder, strict: bool
) -> Iterator[Item | Reject]:
    if not strict:
        return _convert(rows(), builder)
    for _ in _only_items(_convert(rows(), builder)):
        pass
    # the second pass checks again, because the file may have changed meanwhile
    return _only_items(_convert(rows(), builder))


def _only_items(results: Iterable[Item | Reject]) -> Iterator[Item]:
    for result in results:
        if isinstance(result, Reject):
            raise InputError(f"{result.where}: {result.reason}")
        yield result


def _convert(rows: Iterator[Row], builder: ItemBuilder) -> Iterator[Item | Reject]:
    seen: set[int] = set()  # at most 170 bytes an id, however long it is
    for where, values in rows:
        key: str | int | None = None
        try:
            if isinstance(values, str):
                raise Refused(values)
            key = builder.id(values)
            item = builder.item(where, key, values)
            if (digest := _digest(key)) in seen:
                raise Refused(f"the id {key!r} occurs earlier in the same file")
            seen.add(digest)
        except Refused as refusal:
            yield Reject(where, key, str(refusal))
        else:
            yield item


def _digest(key: str | int) -> int:
    """Return 64 bits of an id, 1 and "1" being two: in a million rows two agree with 3e-8."""
    text = f"{type(key).__name__} {key}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")
