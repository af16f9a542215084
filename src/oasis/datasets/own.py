"""Your own data: arrays of a ``.mat``, ``.npz`` or Parquet file by a mapping, or pictures.

A mapping assigns variables to modalities: ``image=I_tr,I_te`` stacks the rows of two variables into
the modality ``image``. ``labels``, ``label_names``, ``label_vectors`` and ``arrival`` mean the same
as in `oasis.datasets.npz`; any other name is a modality. In the name of a data set the mapping
follows a question mark: ``data.mat?image=I_tr,I_te&labels=L_tr,L_te``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from oasis.datasets import npz
from oasis.datasets.dataset import Dataset, label_indicator
from oasis.datasets.matfile import open_mat
from oasis.errors import DataError, InputError
from oasis.features.extractor import Extractor
from oasis.items import Item, read_folder
from oasis.items.numpy_files import npz_arrays, npz_names
from oasis.items.table import opened_parquet

SUFFIXES = (".npz", ".mat", ".parquet")
"""Suffixes of data files whose path can be given as the name of a data set."""


def is_own(name: str) -> bool:
    """Return whether a data set is named by a path: a file of data, or a folder that ends in "/".

    >>> is_own("mine.mat?image=I"), is_own("photos/"), is_own("coco79")
    (True, True, False)
    """
    path = name.partition("?")[0]
    return path.endswith(SUFFIXES) or path.endswith("/")


def split_name(name: str) -> tuple[Path, dict[str, tuple[str, ...]]]:
    """Return the path and the mapping of a data set that is named by a path.

    >>> split_name("mine.mat?image=I_tr,I_te&labels=L")
    (PosixPath('mine.mat'), {'image': ('I_tr', 'I_te'), 'labels': ('L',)})
    """
    path, _, query = name.partition("?")
    return Path(path), parse_mapping(query.split("&") if query else [])


def parse_mapping(pairs: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Parse a mapping from texts such as ``image=I_tr,I_te``.

    >>> parse_mapping(["image=I_tr,I_te"])
    {'image': ('I_tr', 'I_te')}
    """
    mapping: dict[str, tuple[str, ...]] = {}
    for pair in pairs:
        name, equals, variables = pair.partition("=")
        found = tuple(each.strip() for each in variables.split(",") if each.strip())
        if not equals or not name.strip() or not found:
            raise InputError(f"{pair!r} is not a mapping; expected NAME=VARIABLE, as image=I_tr")
        if name.strip() in mapping:
            raise InputError(f"the mapping gives {name.strip()!r} twice; join variables by a comma")
        mapping[name.strip()] = found
    return mapping


def with_mapping(name: str, pairs: Sequence[str]) -> str:
    """Return the name of a data set with a mapping added, which must be well-formed.

    >>> with_mapping("mine.mat", ["image=I", "labels=L"])
    'mine.mat?image=I&labels=L'
    """
    parse_mapping(pairs)
    return f"{name}?{'&'.join(pairs)}" if pairs and is_own(name) else name


def read(name: str) -> Dataset:
    """Read a data set that is named by a path, with a mapping or without.

    An ``.npz`` file without a mapping has the layout of `oasis.datasets.npz`. A folder has one
    picture per sample. Its labels are the names of the sub-folders, and its text is in a file of
    the same stem that ends in ``.txt``. Features are those of
    `oasis.features.extractor.Extractor.default`.
    """
    path, mapping = split_name(name)
    if path.is_dir() or name.endswith("/"):
        if mapping:
            raise InputError(f"{path} is a folder of pictures, which takes no mapping")
        return _pictures(path)
    if path.suffix == ".npz" and not mapping:
        return npz.read(path)
    if not mapping:
        held = ", ".join(sorted(variables(path))) or "nothing"
        raise InputError(
            f"{path} needs a mapping, such as image=VARIABLE labels=VARIABLE; it holds {held}"
        )
    if "labels" not in mapping:
        raise InputError(f"the mapping of {path} has no labels; add labels=VARIABLE")
    arrays = {
        each: read_texts(path, found) if each == "label_names" else read_arrays(path, found)
        for each, found in mapping.items()
    }
    recipe = {"mapping": {each: list(found) for each, found in mapping.items()}}
    return npz.assembled(path, arrays, path.stem, recipe=recipe)


def variables(path: Path) -> list[str]:
    """Return the names of the variables, arrays or columns of a file."""
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.suffix == ".mat":
        with open_mat(path) as mat:
            return list(mat.shapes())
    if path.suffix == ".parquet":
        with opened_parquet(path) as file:
            return list(file.schema_arrow.names)
    return npz_names(path)


def read_arrays(path: Path, names: Sequence[str]) -> Any:
    """Return variables of a file with their rows stacked: an array, CSR, or a list.

    A list holds texts, or one tuple of texts per row.
    """
    _check_held(path, names)
    parts = [_read_one(path, name) for name in names]
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, list) for part in parts):
        return [row for part in parts for row in part]
    widths = {part.shape[1:] for part in parts}
    if len(widths) > 1:
        raise DataError(
            f"{path}: {', '.join(names)} have the shapes "
            f"{', '.join(str(part.shape) for part in parts)}; expected the same columns"
        )
    return _stacked(parts)


def read_texts(path: Path, names: Sequence[str]) -> list[str]:
    """Return variables of a file that hold texts, such as the names of classes."""
    if path.suffix != ".mat":
        return [str(text).strip() for text in np.ravel(read_arrays(path, names))]
    _check_held(path, names)
    with open_mat(path) as mat:
        return [text for name in names for text in mat.strings(name)]


def _check_held(path: Path, names: Sequence[str]) -> None:
    held = variables(path)
    missing = [name for name in names if name not in held]
    if missing:
        raise DataError(
            f"{path}: no variable {missing[0]!r}; it holds {', '.join(sorted(held)) or 'nothing'}"
        )


def _read_one(path: Path, name: str) -> Any:
    if path.suffix == ".mat":
        with open_mat(path) as mat:
            return _stacked([block for _, block in mat.blocks(name)])
    if path.suffix == ".parquet":
        return _column(path, name)
    return npz_arrays(path, [name])[name]


def _stacked(parts: Sequence[Any]) -> Any:
    if any(sp.issparse(part) for part in parts):
        return sp.csr_array(sp.vstack(parts))
    return np.concatenate(parts)


def _column(path: Path, name: str) -> Any:
    """Return a column: (n, d) of lists of numbers, a list of tuples of strings, or (n,)."""
    with opened_parquet(path) as file:
        column = file.read(columns=[name]).column(0).combine_chunks()
    kind = str(column.type)
    if "list" not in kind:
        return column.to_numpy(zero_copy_only=False)
    rows = column.to_pylist()
    if "string" in kind:
        return [tuple(row or ()) for row in rows]
    lengths = {None if row is None else len(row) for row in rows}
    if len(lengths) > 1:
        found = ", ".join(sorted(map(str, lengths)))
        raise DataError(f"{path}: the lists of column {name!r} have several lengths: {found}")
    return np.array(rows)


def _pictures(path: Path) -> Dataset:
    found = list(read_folder(path, labels_from_folders=True))
    items = [each for each in found if isinstance(each, Item)]
    if not items:
        raise DataError(f"{path}: no picture in it")
    extractor = Extractor.default()
    X, failures = extractor.extract(items)
    bad = {failure.row for failure in failures}
    rows = np.array([row for row in range(len(items)) if row not in bad], dtype=np.int64)
    if not len(rows):
        raise DataError(f"{path}: no picture can be read; the first: {failures[0].reason}")
    if not any(items[row].text for row in rows):
        pictures = [name for name, (field, _) in extractor.sources.items() if field == "image"]
        X = {name: X[name] for name in pictures}
    classes = tuple(sorted({label for row in rows for label in items[row].labels}))
    return Dataset(
        path.resolve().name,
        {name: matrix[rows] for name, matrix in X.items()},
        label_indicator([items[row].labels for row in rows], classes),
        classes,
        payload={"file": np.array([str(items[row].id) for row in rows])},
        recipe={
            "features": extractor.name,
            "left_out": len(found) - len(rows),
            "n_bytes": sum((path / str(items[row].id)).stat().st_size for row in rows),
        },
    )
