"""Your own data: one documented ``.npz`` layout.

A file holds plain arrays (no pickles). ``n`` is the number of samples, ``m`` the name of a
modality, chosen freely.

==============================================  ===================================================
arrays                                          meaning
==============================================  ===================================================
``m`` (n, d)                                    a dense modality
``m_u8`` (n, d) uint8, ``m_scale`` (d,)         the same, quantised: features are ``m_u8 * m_scale``
``m_indices``, ``m_indptr``, ``m_shape``        a CSR modality; ``m_data`` is optional and all ones
                                                when absent
``labels`` (n, c)                               the label indicator, 0 or 1 (or its CSR arrays,
                                                ``labels_indices`` and so on)
``label_names`` (c,)                            the class names
``label_vectors`` (c, f), optional              vectors of the class names
``arrival`` (n,) integers, optional             when a sample arrived; equal numbers came together
any other (n,) array                            a payload column: ids, file names, a year
==============================================  ===================================================

Other arrays (a vocabulary, say) are ignored.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from oasis.arrays import Indicator, Matrix, checked_csr
from oasis.datasets.dataset import Dataset, Source, label_indicator
from oasis.datasets.matfile import dense
from oasis.errors import DataError, InputError
from oasis.hashers.chunk import check_finite
from oasis.items.numpy_files import npz_arrays

RESERVED = ("labels", "label_names", "label_vectors", "arrival")
"""Names of a layout or mapping that are no modality."""

_PARTS = ("indices", "indptr", "data", "shape")


def read(path: str | Path, *, name: str | None = None, drop: Iterable[str] = ()) -> Dataset:
    """Read a data set from an ``.npz`` file in the layout above.

    Parameters
    ----------
    path : the file
    name : what to call the data set; the file's stem by default
    drop : class names to leave out, together with the samples that are then unlabelled

    Notes
    -----
    Features become float32. The file is read once more for its SHA-256.
    """
    path = Path(path)
    arrays = npz_arrays(path)
    found: dict[str, Any] = {k: each for k, each in arrays.items() if not _is_part(k, arrays)}
    for key in arrays:
        each, _, part = key.rpartition("_")
        if part == "u8" and f"{each}_scale" in arrays:
            found[each] = _dequantised(path, each, arrays[key], arrays[f"{each}_scale"])
        elif part == "indptr" and each not in arrays:
            found[each] = _csr(path, each, arrays)
    for each in ("labels", "label_names"):
        if each not in found:
            raise DataError(
                f"{path}: no array {each!r}, and measures need the names and the indicator of "
                f"classes; it holds {', '.join(list(arrays)[:20])}. A mapping uses arrays of other "
                "names: --map image=ARRAY --map labels=ARRAY"
            )
    n = found["labels"].shape[0]
    payload = {
        key: value
        for key, value in found.items()
        if key not in RESERVED and value.ndim == 1 and len(value) == n
    }
    named = {key: each for key, each in found.items() if key in RESERVED or each.ndim == 2}
    dataset = assembled(path, named, path.stem if name is None else name, payload=payload)
    dropped = list(drop)
    return dataset.without(dropped, name) if dropped else dataset


def assembled(path: Path, named: Mapping[str, Any], name: str, **more: Any) -> Dataset:
    """Return the data set of arrays by their names in the layout; what is wrong is a `DataError`.

    ``labels`` may be an indicator, a vector of one number or text per sample, or a list of label
    sets. ``more`` are further fields of the data set.
    """
    L, classes = _labels(path, named["labels"], named.get("label_names"))
    vectors, arrival = named.get("label_vectors"), named.get("arrival")
    if vectors is not None and (vectors.ndim != 2 or vectors.shape[0] != len(classes)):
        raise DataError(
            f"{path}: 'label_vectors' has shape {vectors.shape}, expected ({len(classes)}, f)"
        )
    if arrival is not None:
        arrival = dense(arrival).ravel()
        if arrival.dtype.kind not in "fiu" or (arrival != np.floor(arrival)).any():
            raise DataError(f"{path}: 'arrival' holds {arrival.dtype}, expected whole numbers")
    try:
        return Dataset(
            name,
            {each: _features(each, X) for each, X in named.items() if each not in RESERVED},
            L,
            classes,
            arrival=None if arrival is None else arrival.astype(np.int64),
            vectors=None
            if vectors is None
            else dict(zip(classes, dense(vectors).astype(np.float32), strict=True)),
            sources=(Source.of(path),),
            **more,
        )
    except InputError as error:
        raise DataError(f"{path}: {error}") from error


def write(dataset: Dataset, path: str | Path) -> None:
    """Write a data set in the layout above, compressed; an existing file is replaced at the end.

    A modality whose rows are computed on demand is computed completely first.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> toy = Dataset("toy", {"image": np.eye(2, dtype=np.float32)},
    ...               np.eye(2, dtype=np.uint8), ("sky", "sea"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(toy, f"{folder}/toy.npz")
    ...     read(f"{folder}/toy.npz").labels()
    [('sky',), ('sea',)]
    """
    path = Path(path)
    arrays: dict[str, npt.NDArray[Any]] = dict(dataset.payload)
    for name, matrix in dataset.take(np.arange(dataset.n_samples)).items():
        if isinstance(matrix, sp.csr_array):
            arrays |= {f"{name}_{part}": getattr(matrix, part) for part in _PARTS[:3]}
            arrays[f"{name}_shape"] = np.array(matrix.shape, dtype=np.int64)
        else:
            arrays[name] = matrix
    if clash := sorted(set(arrays) & set(RESERVED)):
        raise InputError(f"{dataset.name}: {clash[0]!r} is a name of the file layout; rename it")
    arrays |= {"labels": dataset.L, "label_names": np.array(dataset.classes, dtype=str)}
    if dataset.arrival is not None:
        arrays["arrival"] = dataset.arrival
    if dataset.vectors is not None:
        arrays["label_vectors"] = np.stack([dataset.vectors[name] for name in dataset.classes])
    temporary = path.with_name(path.name + ".tmp")
    try:
        # not np.savez: it cannot store an array named "file", and stamps members with the time
        with temporary.open("wb") as stream:
            with zipfile.ZipFile(stream, "w") as archive:
                for name, array in arrays.items():
                    member = zipfile.ZipInfo(f"{name}.npy")
                    member.compress_type = zipfile.ZIP_DEFLATED
                    with archive.open(member, "w", force_zip64=True) as out:
                        np.lib.format.write_array(out, np.asarray(array), allow_pickle=False)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _labels(path: Path, values: Any, names: Any) -> tuple[Indicator, tuple[str, ...]]:
    """Return the indicator and class names of labels in any supported form."""
    given = None if names is None else tuple(str(name).strip() for name in np.ravel(names))
    if isinstance(values, list) or dense(values).dtype.kind in "OUS":
        sets = [
            tuple(row) if isinstance(row, (tuple, list)) else (str(row).strip(),) for row in values
        ]
        classes = given or tuple(sorted({name for row in sets for name in row}))
        return label_indicator(sets, classes), classes
    matrix = dense(values)
    is_line = matrix.ndim == 2 and 1 in matrix.shape and matrix.shape[1] != len(given or ())
    if matrix.ndim == 1 or (is_line and matrix.size > 1):
        numbers, column = np.unique(matrix.ravel(), return_inverse=True)
        L = np.eye(len(numbers), dtype=np.uint8)[column]
        found = tuple(f"class {number:g}" for number in numbers)
    else:
        if not np.isin(matrix, (0, 1)).all():
            raise DataError(f"{path}: 'labels' holds values other than 0 and 1")
        L = np.ascontiguousarray(matrix, dtype=np.uint8)
        found = tuple(f"class {j + 1}" for j in range(matrix.shape[1]))
    if given is not None and len(given) != len(found):
        raise DataError(
            f"{path}: 'labels' has shape {matrix.shape}, expected (n, {len(given)}): one column "
            "per name in 'label_names'"
        )
    return L, given or found


def _features(name: str, values: Any) -> Matrix:
    """Return the features of a modality as float32, checked: an error counts rows as the file."""
    is_sparse: bool = sp.issparse(values)
    if is_sparse:
        matrix: Matrix = sp.csr_array(values, dtype=np.float32)
    else:
        array = np.asarray(values)
        if array.ndim != 2 or array.dtype.kind not in "fiub":
            raise InputError(
                f"modality {name!r} holds {array.dtype} {array.shape}, expected (n, d) numbers"
            )
        matrix = np.ascontiguousarray(array, dtype=np.float32)
    check_finite(matrix, name)
    return matrix


def _dequantised(
    path: Path, name: str, values: npt.NDArray[Any], scale: npt.NDArray[Any]
) -> npt.NDArray[np.float32]:
    if values.ndim != 2 or scale.shape != (values.shape[1],):
        raise DataError(
            f"{path}: '{name}_scale' has shape {scale.shape}, expected one number per column of "
            f"'{name}_u8', which has shape {values.shape}"
        )
    features: npt.NDArray[np.float32] = values * scale.astype(np.float32)
    return features


def _csr(path: Path, name: str, arrays: Mapping[str, npt.NDArray[Any]]) -> sp.csr_array:
    missing = [part for part in ("indices", "indptr", "shape") if f"{name}_{part}" not in arrays]
    if missing:
        raise DataError(
            f"{path}: no array '{name}_{missing[0]}'; a sparse modality has {name}_indices, "
            f"{name}_indptr and {name}_shape"
        )
    indices, indptr = arrays[f"{name}_indices"], arrays[f"{name}_indptr"]
    data = arrays.get(f"{name}_data")
    values = np.ones(len(indices), np.float32) if data is None else data.astype(np.float32)
    try:
        n_rows, n_columns = (int(size) for size in arrays[f"{name}_shape"])
        # every check of the structure comes first: an index out of range would read past the end
        matrix = checked_csr(sp.csr_array((values, indices, indptr), shape=(n_rows, n_columns)))
    except (ValueError, TypeError) as error:
        raise DataError(f"{path}: {name!r} is not a valid CSR matrix: {error}") from error
    matrix.sum_duplicates()
    return matrix


def _is_part(key: str, arrays: Mapping[str, npt.NDArray[Any]]) -> bool:
    """Whether an array is one of the pieces of a sparse or quantised modality."""
    name, _, part = key.rpartition("_")
    if part in ("u8", "scale"):
        return f"{name}_u8" in arrays and f"{name}_scale" in arrays
    return part in _PARTS and f"{name}_indptr" in arrays
