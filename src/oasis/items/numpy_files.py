"""The rows of NumPy files, npz and npy, as values by field name.

An npz file has one array per column, all of the same length. Vectors are (n, d) arrays, in half,
single or double precision. Ids are (n,) integers or texts; without them an item's id is its row,
from 0. Labels are (n,) texts, with a separator between several labels, or an (n, c) matrix of 0 and
1 with the names in the array ``label_names``, as for ``oasis reproduce``, or ``classes``. Texts,
paths of pictures and payload fields are (n,) arrays; a single payload field holds objects as JSON
text. An npy file is one (n, d) array of vectors.

Nothing is unpickled, so arrays of Python objects are refused. An npz array is read whole, after
its declared size was compared with the file; an npy file is mapped into memory.
"""

from __future__ import annotations

import json
import math
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.arrays import checked_vector
from oasis.errors import DataError, InputError, OasisError
from oasis.items.fields import Fields, Kind, listed
from oasis.items.item import Row, Vector
from oasis.items.lines import open_file

CLASSES = ("label_names", "classes")
"""Arrays of an npz file that may name the columns of a label matrix."""

SMALL_BYTES = 1 << 28
"""Arrays of so many bytes in all are read, however small their file is."""

MAX_EXPANSION = 100
"""Larger arrays have at most so many times the bytes of their file."""


def npz_columns(path: Path, fields: Fields) -> dict[str, Kind]:
    """Return the names of the arrays of an npz file; its vectors must have been named."""
    columns: dict[str, Kind] = dict.fromkeys(npz_names(path), "plain")
    if not fields.vectors:
        others = [name for name in columns if name not in (fields.id, fields.labels)]
        raise DataError(
            f"{path}: which array holds the vectors of which modality? Its arrays are "
            f"[{listed(columns)}]; add --feature image={others[0] if others else 'ARRAY'}"
        )
    return columns


def npz_rows(path: Path, fields: Fields) -> Iterator[Row]:
    """Yield the rows of an npz file, counted from 1; only the arrays needed are read."""
    wanted = [*fields.names(), *CLASSES]
    held = npz_arrays(path, [name for name in npz_names(path) if name in wanted])
    arrays = {name: array for name, array in held.items() if name in fields.names()}
    classes = _names(path, held, arrays.get(fields.labels or ""))
    n = _check_arrays(path, arrays, fields)
    for row in range(n):
        values = {name: _value(array, row) for name, array in arrays.items()}
        if classes is not None:
            present = np.flatnonzero(arrays[str(fields.labels)][row])
            values[str(fields.labels)] = [classes[number] for number in present]
        yield f"{path.name}:{row + 1}", {fields.id: row, **values}


def npy_columns(path: Path, fields: Fields) -> dict[str, Kind]:
    """Return the one column that an npy file is, by the name that it was given."""
    if len(fields.vectors) != 1:
        raise DataError(
            f"{path} is one array, the vectors of one modality; got {len(fields.vectors)} "
            "modalities: add --feature image, or another name, once"
        )
    return dict.fromkeys([*fields.names()], "plain")


def npy_rows(path: Path, fields: Fields) -> Iterator[Row]:
    """Yield the rows of an npy file as vectors, counted from 1; their ids count from 0."""
    (column,) = fields.vectors.values()
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} cannot be read as npy: {error}") from error
    n = _check_arrays(path, {column: array}, fields)
    for row in range(n):
        yield f"{path.name}:{row + 1}", {fields.id: row, column: np.array(array[row])}


def read_vector(value: str) -> Vector:
    """Return one vector from a JSON list, or from the path of an npy file, (d,) or (1, d).

    >>> read_vector("[0.5, 2]")
    array([0.5, 2. ])
    """
    if value.lstrip().startswith("["):
        try:
            return checked_vector(json.loads(value))
        except (ValueError, RecursionError) as error:  # InputError is a ValueError too
            raise InputError(f"the vector {value[:40]!r} cannot be read: {error}") from error
    try:
        array = np.lib.format.open_memmap(value, mode="r")
        return checked_vector(np.array(array[0] if array.ndim == 2 and len(array) == 1 else array))
    except InputError as error:
        raise InputError(f"the vector in {value} {error}") from error
    except (OSError, ValueError, EOFError) as error:
        raise DataError(
            f"{value} cannot be read as npy: {error}; expected an .npy file, or a list such as "
            "[0.1, 0.2]"
        ) from error


def npz_names(path: Path) -> list[str]:
    """Return the names of the arrays of an npz file."""
    with _opened(path) as file:
        return list(file.files)


def npz_arrays(path: Path, names: Iterable[str] | None = None) -> dict[str, npt.NDArray[Any]]:
    """Return arrays of an npz file, all by default; raise `DataError` if they are too large."""
    with _opened(path) as file:
        wanted = list(file.files if names is None else names)
        _check_sizes(path, file, wanted)
        return {name: file[name] for name in wanted}


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open an npz file; what NumPy cannot read of it is a `DataError`."""
    try:
        # opened here, because NumPy leaves a broken file open
        with open_file(path) as opened:
            if not zipfile.is_zipfile(opened):
                raise ValueError("it is no zip file of arrays")
            with np.load(opened, allow_pickle=False) as file:
                yield file
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, OasisError):
            raise
        raise DataError(f"{path} cannot be read as npz: {error}") from error


def _check_sizes(path: Path, file: Any, names: list[str]) -> None:
    """Raise `DataError` if arrays declare more bytes than their file can be expected to hold."""
    total = 0
    members = set(file.zip.namelist())
    for name in names:
        member = file.zip.getinfo(name if name in members else f"{name}.npy")
        with file.zip.open(member) as opened:
            version = np.lib.format.read_magic(opened)
            header = np.lib.format.read_array_header_1_0
            if version != (1, 0):  # 2.0 and 3.0 differ in the encoding of names of fields alone
                header = np.lib.format.read_array_header_2_0
            shape, _, dtype = header(opened)
        n_bytes = math.prod(shape) * dtype.itemsize
        if n_bytes > member.file_size:
            raise DataError(
                f"{path}: the array {name!r} declares {n_bytes:,} bytes, the file holds "
                f"{member.file_size:,} of it"
            )
        total += n_bytes
    size = path.stat().st_size
    if total > max(SMALL_BYTES, MAX_EXPANSION * size):
        raise DataError(
            f"{path} has {size:,} bytes and declares arrays of {total:,}, more than "
            f"{MAX_EXPANSION} times as much; if that is right, save them with numpy.savez, "
            "without compression"
        )


def _names(
    path: Path, held: dict[str, npt.NDArray[Any]], labels: npt.NDArray[Any] | None
) -> list[str] | None:
    """Return the class names of a label matrix, or None if labels are texts."""
    if labels is None or labels.ndim != 2:
        return None
    names = next((held[name] for name in CLASSES if name in held), None)
    if names is None or names.dtype.kind != "U" or names.shape != labels.shape[1:]:
        raise DataError(
            f"{path} has labels of shape {labels.shape}; expected an array {CLASSES[0]!r} with the "
            f"{labels.shape[1]} names of its columns"
        )
    if labels.dtype.kind not in "biu" or (
        labels.size and not 0 <= labels.min() <= labels.max() <= 1
    ):
        raise DataError(f"{path} has a label matrix of {labels.dtype}; expected only 0 and 1")
    return [str(name) for name in names]


def _check_arrays(path: Path, arrays: dict[str, npt.NDArray[Any]], fields: Fields) -> int:
    """Return the common length of the arrays; the error names an array that does not fit."""
    for name, array in arrays.items():
        if name in fields.vectors.values():
            if array.ndim != 2 or array.dtype.kind not in "fiu" or not array.shape[1]:
                raise DataError(
                    f"{path}: the vectors {name!r} have shape {array.shape} and type "
                    f"{array.dtype}, expected (n, d) real numbers"
                )
        elif array.ndim != 1 and not (name == fields.labels and array.ndim == 2):
            raise DataError(f"{path}: {name!r} has shape {array.shape}, expected (n,)")
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"{path} has arrays of different lengths: {lengths}")
    return next(iter(lengths.values()))


def _value(array: npt.NDArray[Any], row: int) -> Any:
    """Return a vector as it is, and anything else as a Python value; NaN and "" are missing."""
    if array.ndim == 2:
        return array[row]
    value = array[row].item()
    return None if value == "" or value != value else value
