"""Your own data: arrays of a ``.mat``, ``.npz`` or Parquet file by a mapping, or pictures.

A mapping assigns variables to modalities: ``image=I_tr,I_te`` stacks the rows of two variables into
the modality ``image``. ``labels``, ``label_names``, ``label_vectors`` and ``arrival`` mean the same
as in `oasis.datasets.npz`; any other name is a modality. In the name of a data set the mapping
follows a question mark: ``data.mat?image=I_tr,I_te&labels=L_tr,L_te``.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from oasis.arrays import Indicator, Matrix
from oasis.datasets import npz
from oasis.datasets.dataset import Dataset, Source, label_indicator
from oasis.datasets.matfile import dense, open_mat
from oasis.errors import DataError, InputError, MissingExtraError

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
    arrays: dict[str, Any] = {
        each: read_texts(path, found) if each == "label_names" else read_arrays(path, found)
        for each, found in mapping.items()
    }
    L, classes = _labels(path, arrays.pop("labels"), arrays.pop("label_names", None))
    vectors, arrival = arrays.pop("label_vectors", None), arrays.pop("arrival", None)
    if vectors is not None and (vectors.ndim != 2 or len(vectors) != len(classes)):
        raise DataError(f"{path}: label_vectors are {vectors.shape}, expected ({len(classes)}, f)")
    modalities = {each: _features(path, each, values) for each, values in arrays.items()}
    try:
        return Dataset(
            path.stem,
            modalities,
            L,
            classes,
            arrival=None if arrival is None else dense(arrival).ravel().astype(np.int64),
            vectors=None
            if vectors is None
            else dict(zip(classes, dense(vectors).astype(np.float32), strict=True)),
            sources=(Source.of(path),),
            recipe={"mapping": {each: list(found) for each, found in mapping.items()}},
        )
    except InputError as error:
        raise DataError(f"{path}: {error}") from error


def variables(path: Path) -> list[str]:
    """Return the names of the variables, arrays or columns of a file."""
    _check_there(path)
    if path.suffix == ".mat":
        with open_mat(path) as mat:
            return list(mat.shapes())
    if path.suffix == ".parquet":
        return list(_parquet().read_schema(path).names)
    try:
        with zipfile.ZipFile(path) as archive:
            return [each.removesuffix(".npy") for each in archive.namelist()]
    except zipfile.BadZipFile as error:
        raise DataError(f"{path}: not a readable .npz file ({error})") from error


def read_arrays(path: Path, names: Sequence[str]) -> Any:
    """Return variables of a file with their rows stacked: an array, CSR, or a list.

    A list holds texts, or one tuple of texts per row.
    """
    held = variables(path)
    missing = [name for name in names if name not in held]
    if missing:
        raise DataError(
            f"{path}: no variable {missing[0]!r}; it holds {', '.join(sorted(held)) or 'nothing'}"
        )
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
    if any(_is_sparse(part) for part in parts):
        return sp.csr_array(sp.vstack(parts))
    return np.concatenate(parts)


def read_texts(path: Path, names: Sequence[str]) -> list[str]:
    """Return variables of a file that hold texts, such as the names of classes."""
    if path.suffix != ".mat":
        return [str(text).strip() for text in np.ravel(read_arrays(path, names))]
    with open_mat(path) as mat:
        held = mat.shapes()
        missing = [name for name in names if name not in held]
        if missing:
            raise DataError(f"{path}: no variable {missing[0]!r}; it holds {', '.join(held)}")
        return [text for name in names for text in mat.strings(name)]


def _read_one(path: Path, name: str) -> Any:
    if path.suffix == ".mat":
        return _mat_variable(path, name)
    if path.suffix == ".parquet":
        return _column(path, name)
    with np.load(path, allow_pickle=False) as archive:
        try:
            return archive[name]
        except ValueError as error:
            raise DataError(f"{path}: array {name!r} cannot be read ({error})") from error


def _mat_variable(path: Path, name: str) -> Any:
    with open_mat(path) as mat:
        blocks = [block for _, block in mat.blocks(name)]
    if any(_is_sparse(block) for block in blocks):
        return sp.csr_array(sp.vstack(blocks))
    return np.concatenate(blocks)


def _column(path: Path, name: str) -> Any:
    """Return a column: (n, d) of lists of numbers, a list of tuples of strings, or (n,)."""
    column = _parquet().read_table(path, columns=[name]).column(0).combine_chunks()
    kind = str(column.type)
    if "list" not in kind:
        return column.to_numpy(zero_copy_only=False)
    if "string" in kind:
        return [tuple(row or ()) for row in column.to_pylist()]
    rows = column.to_pylist()
    lengths = {None if row is None else len(row) for row in rows}
    if len(lengths) > 1:
        found = ", ".join(sorted(map(str, lengths)))
        raise DataError(f"{path}: the lists of column {name!r} have several lengths: {found}")
    return np.array(rows)


def _labels(path: Path, values: Any, names: Any) -> tuple[Indicator, tuple[str, ...]]:
    """Return the indicator and class names of labels in any supported form.

    A matrix is an indicator, 0 or 1; a vector of numbers or texts has one class per sample; lists
    of texts are label sets.
    """
    given = None if names is None else tuple(str(name).strip() for name in np.ravel(names))
    if isinstance(values, list) or np.asarray(values).dtype.kind in "OUS":
        sets = [
            tuple(row) if isinstance(row, (tuple, list)) else (str(row).strip(),) for row in values
        ]
        classes = given or tuple(sorted({name for row in sets for name in row}))
        return label_indicator(sets, classes), classes
    matrix = dense(values)
    if matrix.ndim == 2 and 1 in matrix.shape and matrix.size > 1:
        matrix = matrix.ravel()
    if matrix.ndim == 1:
        numbers, column = np.unique(matrix, return_inverse=True)
        L = np.eye(len(numbers), dtype=np.uint8)[column]
        found = tuple(f"class {number:g}" for number in numbers)
        return L, _class_names(path, given, found)
    if not np.isin(matrix, (0, 1)).all():
        raise DataError(f"{path}: labels hold values other than 0 and 1")
    found = tuple(f"class {j + 1}" for j in range(matrix.shape[1]))
    return np.ascontiguousarray(matrix, dtype=np.uint8), _class_names(path, given, found)


def _class_names(
    path: Path, given: tuple[str, ...] | None, found: tuple[str, ...]
) -> tuple[str, ...]:
    if given is not None and len(given) != len(found):
        raise DataError(f"{path}: {len(given)} label_names for {len(found)} classes")
    return given or found


def _features(path: Path, name: str, values: Any) -> Matrix:
    if _is_sparse(values):
        return sp.csr_array(values, dtype=np.float32)
    array = np.asarray(values)
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        raise DataError(
            f"{path}: modality {name!r} is {array.dtype} {array.shape}, expected (n, d) numbers"
        )
    return np.ascontiguousarray(array, dtype=np.float32)


def _pictures(path: Path) -> Dataset:
    from oasis.features.extractor import Extractor
    from oasis.items import Item, read_folder

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


def _is_sparse(values: Any) -> bool:
    return bool(sp.issparse(values))


def _check_there(path: Path) -> None:
    if not path.is_file():
        raise DataError(f"{path}: no such file")


def _parquet() -> Any:
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", extra="parquet", what="reading Parquet") from error
    return parquet
