"""Readers of MATLAB's ``.mat`` files, MAT 5 and MAT 7.3 (HDF5): shapes, then rows in blocks."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.io
import scipy.io.matlab
import scipy.sparse as sp

from oasis.arrays import checked_csr
from oasis.datasets import mat5
from oasis.errors import DataError, InputError, MissingExtraError, OasisError

_HDF5 = b"\x89HDF\r\n\x1a\n"
_BLOCK = 4096

# what SciPy and h5py were seen to raise on damaged files
_DAMAGE = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    NotImplementedError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    zlib.error,
    scipy.io.matlab.MatReadError,
)


class MatFile(ABC):
    """A ``.mat`` file: the shapes of its variables, and then their rows in blocks."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> MatFile:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    @abstractmethod
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every variable that is an array, as MATLAB shows it."""

    @abstractmethod
    def blocks(self, variable: str) -> Iterator[tuple[int, Any]]:
        """Pairs of a first row and a block of rows, dense or sparse."""

    @abstractmethod
    def strings(self, variable: str) -> list[str]:
        """The rows of a character matrix without their padding, or the texts of a cell array."""

    def _wrong_type(self, variable: str, found: object, expected: str) -> DataError:
        return DataError(f"{self.path}: variable {variable} is {found}, expected {expected}")


class _Mat5(MatFile):
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: each.shape for name, each in self._variables().items()}

    def blocks(self, variable: str) -> Iterator[tuple[int, Any]]:
        found = self._variable(variable)
        if not found.is_numeric:
            raise self._wrong_type(variable, found.what, "a numeric matrix")
        with _reading(self.path, f"variable {variable}"):
            values = mat5.numbers(self.path, found)
        yield 0, values if isinstance(values, np.ndarray) else _checked(self.path, variable, values)

    def strings(self, variable: str) -> list[str]:
        found = self._variable(variable)
        with _reading(self.path, f"variable {variable}"):
            texts = mat5.texts(self.path, found)
        if texts is None:
            raise self._wrong_type(variable, found.what, "a character matrix or cells of texts")
        return texts

    def _variable(self, name: str) -> mat5.Variable:
        with _reading(self.path, f"variable {name}"):
            return self._variables()[name]

    def _variables(self) -> dict[str, mat5.Variable]:
        with _reading(self.path, "the list of variables"):
            return mat5.variables(self.path)


class _Mat4(MatFile):
    """The format before MAT 5: full matrices; read by SciPy, whose reader for it is pure Python."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        with _reading(self.path, "the list of variables"):
            return {name: tuple(shape) for name, shape, _ in scipy.io.whosmat(self.path)}

    def blocks(self, variable: str) -> Iterator[tuple[int, Any]]:
        values = self._load(variable)
        if sp.issparse(values):
            yield 0, _checked(self.path, variable, values)
        elif values.dtype.kind in "fiub":
            yield 0, values
        else:
            raise self._wrong_type(variable, values.dtype, "a numeric matrix")

    def strings(self, variable: str) -> list[str]:
        values = self._load(variable)
        if sp.issparse(values) or values.dtype.kind != "U":
            raise self._wrong_type(variable, values.dtype, "a character matrix")
        return [str(text).strip() for text in np.atleast_1d(values)]

    def _load(self, variable: str) -> Any:
        with _reading(self.path, f"variable {variable}"):
            return scipy.io.loadmat(self.path, variable_names=[variable], spmatrix=False)[variable]


class _Mat73(MatFile):
    """HDF5: MATLAB's column-major arrays appear transposed, sparse ones as groups (CSC)."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            import h5py
        except ImportError as error:
            raise MissingExtraError("h5py", extra="paper", what="reading MAT 7.3") from error
        with _reading(path, "the MAT 7.3 file"):
            self._file = h5py.File(path, "r")

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def shapes(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        with _reading(self.path, "the list of variables"):
            for name, item in self._file.items():
                if "MATLAB_sparse" in item.attrs:
                    found[name] = (int(item.attrs["MATLAB_sparse"]), len(item["jc"]) - 1)
                elif hasattr(item, "shape"):
                    found[name] = tuple(int(size) for size in reversed(item.shape))
        return found

    def blocks(self, variable: str) -> Iterator[tuple[int, Any]]:
        item = self._file[variable]
        if "MATLAB_sparse" in item.attrs:
            yield 0, self._sparse(variable)
            return
        if item.dtype.kind not in "fiub":
            raise self._wrong_type(variable, item.dtype, "a numeric matrix")
        for start in range(0, item.shape[1], _BLOCK):
            with _reading(self.path, f"variable {variable}"):
                block = item[:, start : start + _BLOCK].T
            yield start, block

    def strings(self, variable: str) -> list[str]:
        item = self._file[variable]
        dtype = getattr(item, "dtype", "a group")
        with _reading(self.path, f"variable {variable}"):
            if getattr(dtype, "kind", "") == "O":  # a cell array: references to rows
                cells = [self._file[cell] for cell in np.ravel(item[:].T)]
                if all(cell.dtype == np.uint16 for cell in cells):
                    return ["".join(map(chr, np.ravel(cell[:]))).strip() for cell in cells]
            if dtype == np.uint16:
                return ["".join(map(chr, codes)).strip() for codes in item[:].T]
        raise self._wrong_type(variable, dtype, "a character matrix or cells of texts")

    def _sparse(self, variable: str) -> sp.csr_array:
        item = self._file[variable]
        with _reading(self.path, f"variable {variable}"):
            jc = item["jc"][:].astype(np.int64)
            # MATLAB leaves data and ir out of a matrix without non-zeros
            ir = item["ir"][:].astype(np.int64) if "ir" in item else np.zeros(0, np.int64)
            data = item["data"][:] if "data" in item else np.zeros(0)
            shape = (int(item.attrs["MATLAB_sparse"]), len(jc) - 1)
            matrix = sp.csc_array((data, ir, jc), shape=shape)
        return _checked(self.path, variable, matrix)


def open_mat(path: Path) -> MatFile:
    """Open a file of either format; use it in a ``with`` statement."""
    with path.open("rb") as stream:
        head = stream.read(2048 + len(_HDF5))
    # MATLAB puts a 512-byte header of its own before the HDF5 signature
    if any(head[at : at + len(_HDF5)] == _HDF5 for at in (0, 512, 1024, 2048)):
        return _Mat73(path)
    return _Mat4(path) if mat5.is_mat4(head) else _Mat5(path)


def dense(block: Any) -> npt.NDArray[Any]:
    """Return a block, dense or sparse, as a dense array."""
    to_dense = getattr(block, "toarray", None)
    return np.asarray(block if to_dense is None else to_dense())


def _checked(path: Path, variable: str, matrix: Any) -> sp.csr_array:
    """Check the structure of a CSC matrix and return it as CSR."""
    with _reading(path, f"variable {variable}"):
        try:
            return checked_csr(matrix)
        except InputError as error:
            raise ValueError(f"it {error}") from error


@contextmanager
def _reading(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except OasisError:
        raise
    except _DAMAGE as error:
        raise DataError(
            f"{path}: {what} cannot be read ({error}); is the file whole, and a MAT file?"
        ) from error
