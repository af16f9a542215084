"""A reader of untrusted MAT 5 files: pure Python and NumPy.

SciPy's reader uses the type of an element as an index into a table without a bounds check, so one
changed byte can crash the process. This reader supports what data sets hold: numeric, logical and
character arrays, sparse matrices, and cells of texts. Every length is checked against the available
bytes before anything of that length is read; a mismatch is a ValueError.

A file is a header of 128 bytes, followed by elements. An element is a tag (type and length, four
bytes each), the data, and padding to a multiple of 8. A variable is an element of type 14 (a
matrix), which contains elements itself: flags and class, dimensions, name, data. Type 15 is such an
element compressed by zlib. Up to four bytes of data may be in the tag itself.
"""

from __future__ import annotations

import math
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

_HEADER = 128
_HEAD = 1 << 16  # bytes of a variable in which its class, dimensions and name must be
_INT8, _INT32, _UINT32, _MATRIX, _COMPRESSED = 1, 5, 6, 14, 15
_CELL, _CHAR, _SPARSE = 1, 4, 5
_COMPLEX = 0x0800
_STORED = {
    1: "i1",
    2: "u1",
    3: "i2",
    4: "u2",
    5: "i4",
    6: "u4",
    7: "f4",
    9: "f8",
    12: "i8",
    13: "u8",
}
_NUMERIC = {
    6: "f8",
    7: "f4",
    8: "i1",
    9: "u1",
    10: "i2",
    11: "u2",
    12: "i4",
    13: "u4",
    14: "i8",
    15: "u8",
}
_CLASSES = {1: "a cell array", 2: "a struct", 3: "an object", 4: "characters", 5: "sparse"}


@dataclass(frozen=True)
class Variable:
    """The head of a variable, and its position in the file.

    Attributes
    ----------
    name : its name
    shape : its dimensions
    kind : number of its class
    flags : the class and, above it, whether numbers are complex
    start : position of its tag in the file
    size : bytes of its data in the file
    """

    name: str
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
        return _CLASSES.get(self.kind, f"of class {self.kind}")

    @property
    def is_numeric(self) -> bool:
        return (self.kind in _NUMERIC or self.kind == _SPARSE) and not self.flags & _COMPLEX


def is_mat4(head: bytes) -> bool:
    """Return whether a file is of the older format, which has no header of text."""
    return 0 in head[:4]


def variables(path: Path) -> dict[str, Variable]:
    """Return the variables of a file by name; only the head of each is read."""
    with path.open("rb") as stream:
        order, size = _byte_order(stream), os.fstat(stream.fileno()).st_size
        found: dict[str, Variable] = {}
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
                found[name] = Variable(name, shape, flags & 0xFF, flags, start, length)
            start += 8 + length
    return found


def numbers(path: Path, variable: Variable) -> npt.NDArray[Any] | sp.csc_array:
    """Return a numeric or sparse variable; the caller checks the structure of CSC."""
    body, order = _body(path, variable)
    return _sparse(body, order) if variable.kind == _SPARSE else _array(body, order)


def texts(path: Path, variable: Variable) -> list[str] | None:
    """Return the rows of a character matrix, or the texts of a cell array; None for the rest."""
    body, order = _body(path, variable)
    if variable.kind == _CHAR:
        return _rows_of_text(body, order)
    if variable.kind != _CELL:
        return None
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


def _body(path: Path, variable: Variable) -> tuple[memoryview, str]:
    """Return all of a variable that follows its tag, and the byte order."""
    with path.open("rb") as stream:
        order = _byte_order(stream)
        kind, length = struct.unpack(f"{order}II", _exactly(stream, variable.start, 8))
        data = _exactly(stream, variable.start + 8, min(length, variable.size))
    if kind == _MATRIX:
        return memoryview(data), order
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
    return memoryview(body), order


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


def _first(data: memoryview, order: str) -> tuple[int, memoryview]:
    found = next(_elements(data, order), None)
    if found is None:
        raise ValueError("a matrix without data")
    return found[:2]
