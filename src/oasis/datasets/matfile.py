"""Readers of untrusted ``.mat`` files, MAT 5 and MAT 7.3 (HDF5): shapes, then rows in blocks.

SciPy's reader of MAT 5 uses the type of an element as an index into a table without a bounds check,
so one changed byte can crash the process. This one, in Python and NumPy, supports what data sets
hold: numeric, logical and character arrays, sparse matrices, and cells of texts. Every length is
checked against the available bytes before anything of that length is read.

A MAT 5 file is a header of 128 bytes, followed by elements. An element is a tag (type and length,
four bytes each), the data, and padding to a multiple of 8. A variable is an element of type 14 (a
matrix), which contains elements itself: flags and class, dimensions, name, data. Type 15 is such an
element compressed by zlib. Up to four bytes of data may be in the tag itself.
"""

from __future__ import annotations

import math
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from oasis.arrays import checked_csr
from oasis.errors import DataError, InputError, MissingExtraError, OasisError

_HDF5 = b"\x89HDF\r\n\x1a\n"
_BLOCK = 4096  # rows that are read at once from MAT 7.3

_HEADER = 128
_HEAD = 1 << 16  # bytes of a variable in which its class, dimensions and name must be
_INT8, _INT32, _UINT32, _MATRIX, _COMPRESSED = 1, 5, 6, 14, 15
_CELL, _CHAR, _SPARSE = 1, 4, 5
_COMPLEX = 0x0800
_INTEGERS = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")
_STORED = {**dict(zip((1, 2, 3, 4, 5, 6, 12, 13), _INTEGERS, strict=True)), 7: "f4", 9: "f8"}
_NUMERIC = {6: "f8", 7: "f4", **dict(zip(range(8, 16), _INTEGERS, strict=True))}  # of classes

# what h5py, zlib and wrong lengths were seen to raise on damaged files
_DAMAGE = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, NotImplementedError),
    *(OSError, RuntimeError, TypeError, ValueError, zlib.error),
)


class MatFile:
    """A ``.mat`` file: the shapes of its variables, and then their rows in blocks."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every variable that is an array, as MATLAB shows it."""
        with self._reading("the list of variables"):
            return self._shapes()

    def blocks(self, variable: str) -> Iterator[tuple[int, Any]]:
        """Pairs of a first row and a block of rows, dense or CSR."""
        blocks = self._blocks(variable)
        while True:
            with self._reading(f"variable {variable}"):
                try:
                    start, values = next(blocks)
                    if sp.issparse(values):
                        values = checked_csr(values)
                except StopIteration:
                    return
                except InputError as error:
                    raise ValueError(f"it {error}") from error
            yield start, values

    def strings(self, variable: str) -> list[str]:
        """The rows of a character matrix without their padding, or the texts of a cell array."""
        with self._reading(f"variable {variable}"):
            return self._strings(variable)

    def close(self) -> None:
        """Close the file."""

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        raise NotImplementedError

    def _blocks(self, variable: str) -> Iterator[tuple[int, Any]]:
        raise NotImplementedError

    def _strings(self, variable: str) -> list[str]:
        raise NotImplementedError

    def _wrong_type(self, variable: str, found: object, expected: str) -> DataError:
        return DataError(f"{self.path}: variable {variable} is {found}, expected {expected}")

    @contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        try:
            yield
        except OasisError:
            raise
        except _DAMAGE as error:
            raise DataError(
                f"{self.path}: {what} cannot be read ({error}); is the file whole, and of MAT 5 or "
                "7.3?"
            ) from error


@contextmanager
def open_mat(path: Path) -> Iterator[MatFile]:
    """Open a file of either format, in a ``with`` statement."""
    with path.open("rb") as stream:
        head = stream.read(2048 + len(_HDF5))
    # MATLAB puts a 512-byte header of its own before the HDF5 signature
    is_73 = any(head[at : at + len(_HDF5)] == _HDF5 for at in (0, 512, 1024, 2048))
    opened: MatFile = _Mat73(path) if is_73 else _Mat5(path)
    try:
        yield opened
    finally:
        opened.close()


def dense(block: Any) -> npt.NDArray[Any]:
    """Return a block, dense or sparse, as a dense array."""
    to_dense = getattr(block, "toarray", None)
    return np.asarray(block if to_dense is None else to_dense())


class _Mat73(MatFile):
    """HDF5: MATLAB's column-major arrays appear transposed, sparse ones as groups (CSC)."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            import h5py
        except ImportError as error:
            raise MissingExtraError("h5py", extra="paper", what="reading MAT 7.3") from error
        with self._reading("the MAT 7.3 file"):
            self._file = h5py.File(path, "r")

    def close(self) -> None:
        self._file.close()

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for name, item in self._file.items():
            if "MATLAB_sparse" in item.attrs:
                found[name] = (int(item.attrs["MATLAB_sparse"]), len(item["jc"]) - 1)
            elif hasattr(item, "shape"):
                found[name] = tuple(int(size) for size in reversed(item.shape))
        return found

    def _blocks(self, variable: str) -> Iterator[tuple[int, Any]]:
        item = self._file[variable]
        if "MATLAB_sparse" in item.attrs:
            jc = item["jc"][:].astype(np.int64)
            # MATLAB leaves data and ir out of a matrix without non-zeros
            ir = item["ir"][:].astype(np.int64) if "ir" in item else np.zeros(0, np.int64)
            data = item["data"][:] if "data" in item else np.zeros(0)
            shape = (int(item.attrs["MATLAB_sparse"]), len(jc) - 1)
            yield 0, sp.csc_array((data, ir, jc), shape=shape)
            return
        if item.dtype.kind not in "fiub":
            raise self._wrong_type(variable, item.dtype, "a numeric matrix")
        for start in range(0, item.shape[1], _BLOCK):
            yield start, item[:, start : start + _BLOCK].T

    def _strings(self, variable: str) -> list[str]:
        item = self._file[variable]
        dtype = getattr(item, "dtype", "a group")
        rows: list[Any] = []
        if getattr(dtype, "kind", "") == "O":  # a cell array: references to rows
            rows = [self._file[cell][:] for cell in np.ravel(item[:].T)]
        elif dtype == np.uint16:
            rows = list(item[:].T)
        if not rows or any(row.dtype != np.uint16 for row in rows):
            raise self._wrong_type(variable, dtype, "a character matrix or cells of texts")
        return ["".join(map(chr, np.ravel(row))).strip() for row in rows]


class _Variable(NamedTuple):
    """The head of a variable of MAT 5, and its position in the file.

    ``kind`` is the number of its class; ``flags`` has it too, and whether numbers are complex.
    ``start`` and ``size`` are the position of its tag and the bytes of its data.
    """

    shape: tuple[int, ...]
    kind: int
    flags: int
    start: int
    size: int

    @property
    def what(self) -> str:
        """Its class in words, for errors."""
        if self.flags & _COMPLEX:
            return "complex"
        if self.kind in _NUMERIC:
            return np.dtype(_NUMERIC[self.kind]).name
        return {_CELL: "a cell array", _CHAR: "characters", 2: "a struct"}.get(
            self.kind, f"of class {self.kind}"
        )


class _Mat5(MatFile):
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: each.shape for name, each in self._variables().items()}

    def _blocks(self, variable: str) -> Iterator[tuple[int, Any]]:
        found, body, order = self._body(variable)
        if found.kind not in (*_NUMERIC, _SPARSE) or found.flags & _COMPLEX:
            raise self._wrong_type(variable, found.what, "a numeric matrix")
        yield 0, _sparse(body, order) if found.kind == _SPARSE else _array(body, order)

    def _strings(self, variable: str) -> list[str]:
        found, body, order = self._body(variable)
        texts = None
        if found.kind == _CHAR:
            texts = _rows_of_text(body, order)
        elif found.kind == _CELL:
            texts = _texts_of_cells(body, order)
        if texts is None:
            raise self._wrong_type(variable, found.what, "a character matrix or cells of texts")
        return texts

    def _variables(self) -> dict[str, _Variable]:
        """Return the variables of the file by name; only the head of each is read."""
        with self.path.open("rb") as stream:
            order, size = _byte_order(stream), os.fstat(stream.fileno()).st_size
            found: dict[str, _Variable] = {}
            start = _HEADER
            while start < size:
                kind, length = struct.unpack(f"{order}II", _exactly(stream, start, 8))
                if kind not in (_MATRIX, _COMPRESSED) or start + 8 + length > size:
                    raise ValueError(f"element of type {kind} and {length} bytes at byte {start}")
                head = _exactly(stream, start + 8, min(length, _HEAD))
                if kind == _COMPRESSED:
                    head = zlib.decompressobj().decompress(head, _HEAD)
                    if len(head) < 8 or struct.unpack(f"{order}I", head[:4])[0] != _MATRIX:
                        raise ValueError(f"compressed element at byte {start} holds no matrix")
                    head = head[8:]
                flags, shape, name, _ = _head(memoryview(head), order)
                if name:
                    found[name] = _Variable(shape, flags & 0xFF, flags, start, length)
                start += 8 + length
        return found

    def _body(self, name: str) -> tuple[_Variable, memoryview, str]:
        """Return a variable, all that follows its tag, and the byte order."""
        variable = self._variables()[name]
        with self.path.open("rb") as stream:
            order = _byte_order(stream)
            kind, length = struct.unpack(f"{order}II", _exactly(stream, variable.start, 8))
            data = _exactly(stream, variable.start + 8, min(length, variable.size))
        if kind == _MATRIX:
            return variable, memoryview(data), order
        unpacker = zlib.decompressobj()
        kind, length = struct.unpack(f"{order}II", unpacker.decompress(data, 8))
        body = unpacker.decompress(unpacker.unconsumed_tail, length) if length else b""
        if kind != _MATRIX or len(body) != length:
            raise ValueError(f"{len(body)} of {length} bytes after decompression")
        # the checksum of zlib is at the end of the stream
        while not unpacker.eof and unpacker.unconsumed_tail:
            if unpacker.decompress(unpacker.unconsumed_tail, 1):
                raise ValueError("more data than the variable has")
        if not unpacker.eof:
            raise ValueError("the compressed data are cut off")
        return variable, memoryview(body), order


def _byte_order(stream: BinaryIO) -> str:
    header = stream.read(_HEADER)
    orders = {b"IM": "<", b"MI": ">"}
    if len(header) < _HEADER or header[126:128] not in orders:
        raise ValueError("no header of MAT 5")
    return orders[header[126:128]]


def _exactly(stream: BinaryIO, start: int, size: int) -> bytes:
    stream.seek(start)
    data = stream.read(size)
    if len(data) != size:
        raise ValueError(f"{len(data)} of {size} bytes at byte {start}: the file is cut off")
    return data


def _elements(data: memoryview, order: str) -> Iterator[tuple[int, memoryview, int]]:
    """Yield type, data and end of consecutive elements."""
    start = 0
    while start < len(data):
        if start + 8 > len(data):
            raise ValueError("an element without its tag")
        first, length = struct.unpack(f"{order}II", data[start : start + 8])
        if first >> 16:  # the data, four bytes at most, are in the tag
            kind, length, at, end = first & 0xFFFF, first >> 16, start + 4, start + 8
            if length > 4:
                raise ValueError(f"{length} bytes in a tag")
        else:
            kind, at = first, start + 8
            end = at + length + -length % 8
            if at + length > len(data):
                raise ValueError(f"an element of {length} bytes where {len(data) - at} are left")
        yield kind, data[at : at + length], end
        start = end


def _head(data: memoryview, order: str) -> tuple[int, tuple[int, ...], str, memoryview]:
    """Return flags, dimensions and name of a matrix, and what follows."""
    first = list(islice(_elements(data, order), 3))
    if [kind for kind, _, _ in first] != [_UINT32, _INT32, _INT8]:
        raise ValueError(f"a matrix with elements of types {[kind for kind, _, _ in first]}")
    flags, dimensions, name = (part for _, part, _ in first)
    if len(flags) != 8 or len(dimensions) < 8 or len(dimensions) % 4:
        raise ValueError("a matrix without class or dimensions")
    shape = struct.unpack(f"{order}{len(dimensions) // 4}i", dimensions)
    if min(shape) < 0 or len(shape) > 32:
        raise ValueError(f"dimensions {shape[:4]}")
    end = first[-1][2]
    return struct.unpack(f"{order}II", flags)[0], shape, bytes(name).decode("latin-1"), data[end:]


def _values(kind: int, data: memoryview, order: str) -> npt.NDArray[Any]:
    if kind not in _STORED:
        raise ValueError(f"numbers of type {kind}")
    dtype = np.dtype(order + _STORED[kind])
    if len(data) % dtype.itemsize:
        raise ValueError(f"{len(data)} bytes of {dtype}")
    return np.frombuffer(data, dtype)


def _array(body: memoryview, order: str) -> npt.NDArray[Any]:
    flags, shape, _, rest = _head(body, order)
    values = _values(*_first(rest, order), order)
    if len(values) != math.prod(shape):
        raise ValueError(f"{len(values)} numbers for the shape {shape}")
    # MATLAB stores numbers in a smaller type than their class if they fit
    return values.astype(_NUMERIC[flags & 0xFF], copy=False).reshape(shape, order="F")


def _sparse(body: memoryview, order: str) -> sp.csc_array:
    _, shape, _, rest = _head(body, order)
    parts = [_values(kind, data, order) for kind, data, _ in _elements(rest, order)]
    if len(parts) != 3 or len(shape) != 2:
        raise ValueError(f"a sparse matrix of {len(parts)} parts and {len(shape)} dimensions")
    rows, ends, values = parts
    if len(ends) != shape[1] + 1 or any(each.dtype.kind not in "iu" for each in (rows, ends)):
        raise ValueError(f"{len(ends)} ends of columns, expected {shape[1] + 1}")
    n = int(ends[-1])  # MATLAB may reserve more
    if not 0 <= n <= min(len(rows), len(values)):
        raise ValueError(f"{n} entries, of which {min(len(rows), len(values))} are there")
    native = [each.astype(each.dtype.newbyteorder("="), copy=False) for each in (rows, ends)]
    data = values[:n].astype(np.float64)
    return sp.csc_array((data, native[0][:n], native[1]), shape=shape)


def _rows_of_text(body: memoryview, order: str) -> list[str]:
    _, shape, _, rest = _head(body, order)
    if len(shape) != 2:
        raise ValueError(f"characters in {len(shape)} dimensions")
    n, width = shape
    if not n * width:
        return [""] * min(n, 1)
    kind, data = _first(rest, order)
    if kind == 16:
        text = bytes(data).decode("utf-8")
    elif kind == 17:
        text = bytes(data).decode("utf-16-le" if order == "<" else "utf-16-be")
    elif kind in (1, 2, 3, 4):
        text = "".join(map(chr, _values(kind, data, order).tolist()))
    else:
        raise ValueError(f"characters of type {kind}")
    if len(text) != n * width:
        raise ValueError(f"{len(text)} characters for the shape {shape}")
    return ["".join(text[row::n]).strip() for row in range(n)]


def _texts_of_cells(body: memoryview, order: str) -> list[str] | None:
    """Return the texts of a cell array in order of rows; None if a cell is no text."""
    _, shape, _, rest = _head(body, order)
    cells = [data for kind, data, _ in _elements(rest, order) if kind == _MATRIX]
    if len(cells) != math.prod(shape):
        raise ValueError(f"{len(cells)} cells, expected {math.prod(shape)}")
    found: list[str] = []
    for number in np.arange(len(cells)).reshape(shape, order="F").ravel().tolist():
        if len(cells[number]) == 0 or _head(cells[number], order)[0] & 0xFF != _CHAR:
            return None
        rows = _rows_of_text(cells[number], order)
        if len(rows) > 1:
            return None
        found.append(rows[0] if rows else "")
    return found


def _first(data: memoryview, order: str) -> tuple[int, memoryview]:
    found = next(_elements(data, order), None)
    if found is None:
        raise ValueError("a matrix without data")
    return found[:2]
