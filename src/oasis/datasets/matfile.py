"""Reading MATLAB's ``.mat`` files, MAT 5 and MAT 7.3 (HDF5) alike: shapes first, rows in blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.io
import scipy.sparse as sp

from oasis.errors import DataError, MissingExtraError

_HDF5 = b"\x89HDF\r\n\x1a\n"
_BLOCK = 4096


class MatFile(ABC):
    """A .mat file: shapes first, then the rows of a variable in blocks."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> MatFile:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    @abstractmethod
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every numeric or character variable, as MATLAB shows it."""

    @abstractmethod
    def blocks(self, variable: str) -> Iterator[tuple[int, Any]]:
        """Pairs of a first row and a block of rows, dense or sparse."""

    @abstractmethod
    def strings(self, variable: str) -> list[str]:
        """The rows of a character matrix, without their padding."""

    def _wrong_type(self, variable: str, found: str, expected: str) -> DataError:
        return DataError(f"{self.path}: variable {variable} is {found}, expected {expected}")


class _Mat5(MatFile):
    def shapes(self) -> dict[str, tuple[int, ...]]:
        try:
            listed = scipy.io.whosmat(self.path)
        except (ValueError, TypeError, OSError, NotImplementedError) as error:
            raise DataError(f"{self.path}: not a readable MAT file ({error})") from error
        return {name: tuple(shape) for name, shape, _ in listed}

    def blocks(self, variable: str) -> Iterator[tuple[int, Any]]:
        values = self._load(variable)
        if not sp.issparse(values) and values.dtype.kind not in "fiub":
            raise self._wrong_type(variable, str(values.dtype), "a numeric matrix")
        yield 0, values

    def strings(self, variable: str) -> list[str]:
        values = self._load(variable)
        if sp.issparse(values) or values.dtype.kind != "U":
            raise self._wrong_type(variable, str(values.dtype), "a character matrix")
        return [str(text).strip() for text in np.atleast_1d(values)]

    def _load(self, variable: str) -> Any:
        try:
            return scipy.io.loadmat(self.path, variable_names=[variable])[variable]
        except (ValueError, TypeError, OSError, KeyError) as error:
            raise DataError(
                f"{self.path}: variable {variable} cannot be read ({error}); is the file complete?"
            ) from error


class _Mat73(MatFile):
    """HDF5: MATLAB's column-major arrays appear transposed, sparse ones as groups (CSC)."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            import h5py
        except ImportError as error:
            raise MissingExtraError("h5py", extra="paper", what="reading MAT 7.3") from error
        try:
            self._file = h5py.File(path, "r")
        except OSError as error:
            raise DataError(f"{path}: not a readable MAT 7.3 file ({error})") from error

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def shapes(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for name, item in self._file.items():
            if "MATLAB_sparse" in item.attrs:
                found[name] = (int(item.attrs["MATLAB_sparse"]), len(item["jc"]) - 1)
            elif hasattr(item, "shape"):
                found[name] = tuple(int(size) for size in reversed(item.shape))
        return found

    def blocks(self, variable: str) -> Iterator[tuple[int, Any]]:
        item = self._file[variable]
        if "MATLAB_sparse" in item.attrs:
            columns, rows = len(item["jc"]) - 1, int(item.attrs["MATLAB_sparse"])
            if "data" in item:
                parts = (item["data"][:], item["ir"][:], item["jc"][:])
            else:  # MATLAB leaves data and ir out of a matrix without non-zeros
                parts = (np.zeros(0), np.zeros(0, np.int64), item["jc"][:])
            yield 0, sp.csc_array(parts, shape=(rows, columns)).tocsr()
            return
        if item.dtype.kind not in "fiub":
            raise self._wrong_type(variable, str(item.dtype), "a numeric matrix")
        for start in range(0, item.shape[1], _BLOCK):
            yield start, item[:, start : start + _BLOCK].T

    def strings(self, variable: str) -> list[str]:
        item = self._file[variable]
        if not hasattr(item, "dtype") or item.dtype != np.uint16:
            raise self._wrong_type(variable, str(getattr(item, "dtype", "a group")), "characters")
        return ["".join(map(chr, codes)).strip() for codes in item[:].T]


def open_mat(path: Path) -> MatFile:
    """Open a file of either format; use it in a ``with`` statement."""
    with path.open("rb") as stream:
        head = stream.read(2048 + len(_HDF5))
    # MATLAB puts a 512-byte header of its own before the HDF5 signature
    if any(head[at : at + len(_HDF5)] == _HDF5 for at in (0, 512, 1024, 2048)):
        return _Mat73(path)
    return _Mat5(path)


def dense(block: Any) -> npt.NDArray[Any]:
    """Return a block, dense or sparse, as a dense array."""
    to_dense = getattr(block, "toarray", None)
    return np.asarray(block if to_dense is None else to_dense())
