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
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from oasis.arrays import Matrix, checked_csr
from oasis.datasets.dataset import (
    Dataset,
    RowSource,
    Source,
)
from oasis.errors import DataError, InputError
from oasis.hashers.chunk import check_finite

# what zipfile and NumPy were seen to raise on damaged files
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    LookupError,
    NotImplementedError,
    OSError,
    RuntimeError,
    ValueError,
)
_RESERVED = ("labels", "label_names", "label_vectors", "arrival")


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
    arrays = _arrays(path)
    name = path.stem if name is None else name
    if not any(each.startswith("labels") for each in arrays):
        raise DataError(
            f"{path}: no labels, and measures need them; it holds {', '.join(sorted(arrays))}. "
            "A mapping names them: --map image=ARRAY --map labels=ARRAY"
        )
    if "label_names" not in arrays:
        shown = ", ".join(list(arrays)[:20])
        raise DataError(
            f"{path}: no array 'label_names' of the c class names; its arrays are {shown}. "
            "A mapping uses arrays of other names: --map image=ARRAY --map labels=ARRAY"
        )
    classes = tuple(str(label) for label in arrays["label_names"])
    L = _labels(path, arrays, len(classes))
    modalities = _modalities(path, arrays, len(L))
    vectors = arrays.get("label_vectors")
    payload = {
        key: column
        for key, column in arrays.items()
        if key not in _RESERVED and column.shape == (len(L),) and not _is_part(key, arrays)
    }
    if vectors is not None and (vectors.ndim != 2 or len(vectors) != len(classes)):
        raise DataError(
            f"{path}: 'label_vectors' has shape {vectors.shape}, expected ({len(classes)}, f)"
        )
    arrival = arrays.get("arrival")
    if arrival is not None and arrival.dtype.kind not in "iu":
        raise DataError(f"{path}: 'arrival' holds {arrival.dtype}, expected integers")
    try:
        dataset = Dataset(
            name,
            modalities,
            L,
            classes,
            arrival=None if arrival is None else arrival.astype(np.int64),
            payload=payload,
            vectors=None
            if vectors is None
            else dict(zip(classes, vectors.astype(np.float32), strict=True)),
            sources=(Source.of(path),),
        )
    except InputError as error:
        raise DataError(f"{path}: {error}") from error
    dropped = list(drop)
    return dataset.without(dropped, name) if dropped else dataset


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
    arrays: dict[str, npt.NDArray[Any]] = {
        "labels": dataset.L,
        "label_names": np.array(dataset.classes, dtype=str),
    }
    if dataset.arrival is not None:
        arrays["arrival"] = dataset.arrival
    if dataset.vectors is not None:
        arrays["label_vectors"] = np.stack([dataset.vectors[name] for name in dataset.classes])
    parts: dict[str, npt.NDArray[Any]] = dict(dataset.payload)
    for name, source in dataset.X.items():
        matrix = _whole(source)
        if isinstance(matrix, sp.csr_array):
            parts[f"{name}_data"], parts[f"{name}_indices"] = matrix.data, matrix.indices
            parts[f"{name}_indptr"] = matrix.indptr
            parts[f"{name}_shape"] = np.array(matrix.shape, dtype=np.int64)
        else:
            parts[name] = matrix
    clash = sorted(set(parts) & set(arrays))
    if clash:
        raise InputError(f"{dataset.name}: {clash[0]!r} is a name of the file layout; rename it")
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as stream:
            _pack({**arrays, **parts}, stream)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _pack(arrays: Mapping[str, npt.NDArray[Any]], stream: BinaryIO) -> None:
    # not np.savez: it cannot store an array named "file", and stamps members with the time
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy")
            member.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(member, "w", force_zip64=True) as out:
                np.lib.format.write_array(out, np.asarray(array), allow_pickle=False)


def _whole(source: Matrix | RowSource) -> Matrix:
    if isinstance(source, (np.ndarray, sp.csr_array)):
        return source
    return source[np.arange(source.shape[0])]


def _arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    try:
        if not zipfile.is_zipfile(path) and path.is_file():
            raise DataError(
                f"{path}: not a readable .npz file; it is not an archive, or incomplete"
            )
        # opened here, because NumPy leaves a damaged file open
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except _DAMAGE as error:
        raise DataError(
            f"{path}: not a readable .npz file ({error}); expected plain arrays, no pickles"
        ) from error


def _labels(
    path: Path, arrays: Mapping[str, npt.NDArray[Any]], n_classes: int
) -> npt.NDArray[np.uint8]:
    if "labels" in arrays:
        labels = arrays["labels"]
    elif "labels_indptr" in arrays:
        labels = _csr(path, arrays, "labels").toarray()
    else:
        raise DataError(f"{path}: no array 'labels'; expected an (n, {n_classes}) indicator")
    if labels.ndim != 2 or labels.shape[1] != n_classes:
        raise DataError(
            f"{path}: 'labels' has shape {labels.shape}, expected (n, {n_classes}): "
            f"one column per name in 'label_names'"
        )
    if not np.isin(labels, (0, 1)).all():
        raise DataError(f"{path}: 'labels' holds values other than 0 and 1")
    return np.ascontiguousarray(labels, dtype=np.uint8)


def _modalities(
    path: Path, arrays: Mapping[str, npt.NDArray[Any]], n_samples: int
) -> dict[str, Matrix]:
    found: dict[str, Matrix] = {}
    for key, array in arrays.items():
        if key in _RESERVED:
            continue
        name = key.rpartition("_")[0]
        if key.endswith("_u8") and f"{name}_scale" in arrays:
            found[name] = _dequantised(path, name, array, arrays[f"{name}_scale"])
        elif key.endswith("_indptr") and name != "labels":
            found[name] = _csr(path, arrays, name)
        elif array.ndim == 2:
            if array.dtype.kind not in "fiub":
                raise DataError(f"{path}: modality {key!r} holds {array.dtype}, expected numbers")
            found[key] = np.ascontiguousarray(array, dtype=np.float32)
    if not found:
        raise DataError(f"{path}: no modality; expected an (n, d) array such as 'image'")
    for name, matrix in found.items():
        if matrix.shape[0] != n_samples:
            raise DataError(
                f"{path}: modality {name!r} has {matrix.shape[0]} rows, 'labels' has {n_samples}"
            )
        try:
            check_finite(matrix, name)  # here, so that errors count rows as the file does
        except InputError as error:
            raise DataError(f"{path}: {error}") from error
    return found


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


def _csr(path: Path, arrays: Mapping[str, npt.NDArray[Any]], name: str) -> sp.csr_array:
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
    if part in ("indices", "indptr", "data", "shape"):
        return f"{name}_indptr" in arrays
    return part == "scale" and f"{name}_u8" in arrays
