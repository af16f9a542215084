"""The readers: rows turned into items and rejects, one at a time."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeAlias

from oasis.errors import DataError, InputError
from oasis.items.folder import folder_rows
from oasis.items.item import Fields, Item, ItemBuilder, Refused, Reject, Row
from oasis.items.lines import check_separator, csv_rows, jsonl_rows, open_file, refine_csv
from oasis.items.numpy_files import npy_rows, npz_rows, refine_npz
from oasis.items.parquet import parquet_rows, refine_parquet
from oasis.items.table import table_rows

_Refine: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
"""Converts the values of a row, after its id is known so that a reject can name it."""


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

    Parameters
    ----------
    path : Path or str
    fields : Fields, optional
        Names of the fields; not for folders.
    separator : str
        Separator of labels within a CSV cell, or a text of an npz or Parquet file.
    labels_from_folders : bool
        Folders only: the names of the sub-folders that hold a picture are its labels.
    text_from_names : bool
        Folders only: a picture without a caption gets the words of its file name as its text.
    strict : bool
        Check everything first, and raise `InputError` at the first reject. Reads the data twice.
    allow_outside : bool
        Allow paths outside the folder of the data file.

    Raises
    ------
    DataError
        The file is missing (at once), or is unreadable or lacks a column (with the first item).
    InputError
        ``strict`` and a row has to be rejected.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "items.jsonl")
    ...     _ = path.write_text('{"id": 1, "text": "a boat", "labels": ["sea"]}\\n{"id": 2}\\n')
    ...     for result in read_items(path):
    ...         print(result)
    Item(id=1, image=None, text='a boat', labels=('sea',), payload={}, where='items.jsonl:1', ...)
    Reject(where='items.jsonl:2', id=2, reason='there is neither a picture nor a text')
    """
    path = Path(path)
    if fields is not None and fields.vectors:
        _check_has_vectors(path)
    if path.is_dir():
        return read_folder(
            path,
            labels_from_folders=labels_from_folders,
            text_from_names=text_from_names,
            strict=strict,
            allow_outside=allow_outside,
        )
    match path.suffix.lower():
        case ".jsonl" | ".ndjson":
            return read_jsonl(path, fields, strict=strict, allow_outside=allow_outside)
        case ".csv" | ".tsv":
            return read_csv(
                path, fields, separator=separator, strict=strict, allow_outside=allow_outside
            )
        case ".parquet":
            return read_parquet(
                path, fields, separator=separator, strict=strict, allow_outside=allow_outside
            )
        case ".npz" | ".npy":
            return read_numpy(
                path, fields, separator=separator, strict=strict, allow_outside=allow_outside
            )
    if not path.exists():
        raise DataError(f"there is no file or folder {path}")
    raise DataError(
        f"cannot tell what {path} is; expected a folder of pictures, or a file that ends in "
        ".jsonl, .ndjson, .csv, .tsv, .parquet, .npz or .npy"
    )


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
    fields = fields or Fields()
    return _read(
        lambda: table_rows(table, fields),
        ItemBuilder(fields, Path(), allow_outside=True),
        strict,
        lambda values: refine_npz(values, fields, separator),
    )


def _check_has_vectors(path: Path) -> None:
    if path.is_dir() or path.suffix.lower() in (".csv", ".tsv"):
        raise DataError(
            f"{path} cannot hold vectors; expected a .parquet, .npz, .npy, .jsonl or .ndjson file"
        )


def read_jsonl(
    path: Path | str,
    fields: Fields | None = None,
    *,
    strict: bool = False,
    allow_outside: bool = False,
) -> Iterator[Item | Reject]:
    """Read one JSON object per line (UTF-8); blank lines are skipped. See `read_items`."""
    path, fields = Path(path), fields or Fields()
    open_file(path).close()
    return _read(
        lambda: jsonl_rows(path, fields), ItemBuilder(fields, path.parent, allow_outside), strict
    )


def read_csv(
    path: Path | str,
    fields: Fields | None = None,
    *,
    separator: str = ";",
    delimiter: str | None = None,
    strict: bool = False,
    allow_outside: bool = False,
) -> Iterator[Item | Reject]:
    """Read comma-separated values (UTF-8) with a header; an empty cell is a missing value.

    ``delimiter`` is a comma, or a tab for .tsv, unless given. Ids are text. A cell holds at most
    128 KiB, the limit of the standard library's reader. See `read_items`.
    """
    path, fields = Path(path), fields or Fields()
    check_separator(separator)
    mark = delimiter or ("\t" if path.suffix.lower() == ".tsv" else ",")
    open_file(path).close()
    return _read(
        lambda: csv_rows(path, fields, mark),
        ItemBuilder(fields, path.parent, allow_outside),
        strict,
        lambda values: refine_csv(values, fields, separator),
    )


def read_parquet(
    path: Path | str,
    fields: Fields | None = None,
    *,
    separator: str = ";",
    strict: bool = False,
    allow_outside: bool = False,
) -> Iterator[Item | Reject]:
    """Read a Parquet file (extra ``parquet``), only the columns needed, in batches of 256 rows.

    A picture is a path, the bytes of a file, or a struct of ``bytes`` and ``path``; vectors are
    lists of numbers, of fixed size or not; labels are a list of strings, or one string with a
    separator between several; the payload is a struct or JSON text, and dates in it become ISO
    text. See `read_items`.
    """
    path, fields = Path(path), fields or Fields()
    check_separator(separator)
    open_file(path).close()
    return _read(
        lambda: parquet_rows(path, fields),
        ItemBuilder(fields, path.parent, allow_outside),
        strict,
        lambda values: refine_parquet(values, fields, separator),
    )


def read_numpy(
    path: Path | str,
    fields: Fields | None = None,
    *,
    separator: str = ";",
    strict: bool = False,
    allow_outside: bool = False,
) -> Iterator[Item | Reject]:
    """Read vectors with ids, labels and payload from an npz or npy file, see `read_items`.

    ``fields.vectors`` names the arrays of vectors. `oasis.items.numpy_files` describes the layout.
    """
    path, fields = Path(path), fields or Fields()
    check_separator(separator)
    open_file(path).close()
    rows = npy_rows if path.suffix.lower() == ".npy" else npz_rows
    return _read(
        lambda: rows(path, fields),
        ItemBuilder(fields, path.parent, allow_outside),
        strict,
        lambda values: refine_npz(values, fields, separator),
    )


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
    to folders are rejected. See `read_items`.
    """
    path = Path(path)
    if not path.is_dir():
        raise DataError(f"{path} is no folder")
    builder = ItemBuilder(Fields(), path, allow_outside)
    return _read(
        lambda: folder_rows(builder, labels_from_folders, text_from_names), builder, strict
    )


def _read(
    rows: Callable[[], Iterator[Row]],
    builder: ItemBuilder,
    strict: bool,
    refine: _Refine = dict,
) -> Iterator[Item | Reject]:
    if not strict:
        return _convert(rows(), builder, refine)
    for _ in _only_items(_convert(rows(), builder, refine)):
        pass
    # the second pass checks again, because the file may have changed meanwhile
    return _only_items(_convert(rows(), builder, refine))


def _only_items(results: Iterable[Item | Reject]) -> Iterator[Item]:
    for result in results:
        if isinstance(result, Reject):
            raise InputError(f"{result.where}: {result.reason}")
        yield result


def _convert(rows: Iterator[Row], builder: ItemBuilder, refine: _Refine) -> Iterator[Item | Reject]:
    seen = _Seen()
    for where, values in rows:
        key: str | int | None = None
        try:
            if isinstance(values, str):
                raise Refused(values)
            key = builder.id(values)
            item = builder.item(where, key, refine(values))
            if not seen.add(key):
                raise Refused(f"the id {key!r} occurs earlier in the same file")
        except Refused as refusal:
            yield Reject(where, key, str(refusal))
        else:
            yield item


class _Seen:
    """The ids seen so far, as 64-bit digests in an open-addressing hash table: 12 to 36 bytes each.

    In a file of a million rows, the probability of a false duplicate is 3e-8.
    """

    def __init__(self) -> None:
        self._slots = array("Q", bytes(8 << 10))
        self._count = 0

    def add(self, key: str | int) -> bool:
        """Return whether the id is new, and remember it; 1 and "1" are two ids."""
        digest = blake2b(f"{type(key).__name__} {key}".encode(), digest_size=8).digest()
        number = int.from_bytes(digest, "little") or 1  # zero marks a free slot
        slot = self._slot(number)
        if self._slots[slot]:
            return False
        self._slots[slot] = number
        self._count += 1
        if 3 * self._count > 2 * len(self._slots):
            old, self._slots = self._slots, array("Q", bytes(16 * len(self._slots)))
            for number in old:
                if number:
                    self._slots[self._slot(number)] = number
        return True

    def _slot(self, number: int) -> int:
        mask = len(self._slots) - 1
        slot = number & mask
        while self._slots[slot] not in (0, number):
            slot = (slot + 1) & mask
        return slot
