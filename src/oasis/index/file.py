"""The file of an index, format version 4.

Little-endian throughout. A header of 512 bytes, then the arrays of one
`oasis.index.segment.Segment`, each at a multiple of 64 bytes::

    8s   magic "OASISIDX"
    I    format version (4)
    I I  bits per code, label bits among them (or 0)
    I    0
    Q Q  items, distinct codes
    Q    length of the file
    then for each of ids, codes, slots, offsets, rows, id_order:
         Q offset, Q bytes, I crc32 of the content, I 1 if present and else 0
    zeros, and in the last four bytes the crc32 of the header before them

Opening maps the file and reads the header alone, whose checksum and lengths reveal a truncated or
foreign file. Content is checked against its checksums when asked for, and always in a small file.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.errors import FormatError, MissingFileError, NewerVersionError
from oasis.index.segment import Segment
from oasis.store import replacing

MAGIC = b"OASISIDX"
VERSION = 4
HEADER = 512

_ALIGN = 64
_FIXED = struct.Struct("<8sIIIIQQQ")
_ENTRY = struct.Struct("<QQII")
_DTYPES: dict[str, str] = {
    "ids": "<i8",
    "codes": "|u1",
    "slots": "<i4",
    "offsets": "<i4",
    "rows": "<i4",
    "id_order": "<i4",
}
_SMALL = 1 << 24


def save(segment: Segment, path: Path) -> None:
    """Write an index: afterwards ``path`` holds the whole new file, or what it held before."""
    path = Path(path)
    arrays = {
        name: np.ascontiguousarray(array, dtype=dtype)
        for name, dtype in _DTYPES.items()
        if (array := getattr(segment, name)) is not None
    }
    entries, end = [], HEADER
    for name in _DTYPES:
        if name in arrays:
            entries.append((end, arrays[name].nbytes, zlib.crc32(_bytes(arrays[name])), 1))
            end += -(-arrays[name].nbytes // _ALIGN) * _ALIGN
        else:
            entries.append((0, 0, 0, 0))
    n_bits, n_label_bits = 8 * segment.codes.shape[1], 8 * segment.n_label_bytes
    counts = (len(segment.ids), len(segment.codes))
    header = _FIXED.pack(MAGIC, VERSION, n_bits, n_label_bits, 0, *counts, end)
    header += b"".join(_ENTRY.pack(*entry) for entry in entries)
    header = header.ljust(HEADER - 4, b"\0")
    header += struct.pack("<I", zlib.crc32(header))

    with replacing(path) as temporary, temporary.open("wb") as out:
        out.write(header)
        for array in arrays.values():
            out.write(_bytes(array))
            out.write(bytes(-array.nbytes % _ALIGN))


def load(path: Path, *, verify: bool | None = None) -> tuple[Segment, mmap.mmap | None]:
    """Return the segment of a file and its map; see `HammingIndex.open`.

    A small file is read into memory, so that no other program can change it during a search; then
    there is no map.
    """
    path = Path(path)
    try:
        opened = path.open("rb")
    except FileNotFoundError as error:
        raise MissingFileError(f"there is no index file at {path}") from error
    with opened as source:
        size = os.fstat(source.fileno()).st_size
        if size < HEADER:
            raise FormatError(
                f"{path} has {size} bytes, fewer than the header of an index ({HEADER}): "
                "it is not an index file, or was truncated"
            )
        content: mmap.mmap | npt.NDArray[np.uint8]
        if size <= _SMALL:
            content, mapped = np.fromfile(source, dtype=np.uint8, count=size), None
            content.flags.writeable = False
        else:
            content = mapped = mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ)
    header = bytes(content[:HEADER])
    magic, version, n_bits, label_bits, zero, *counts = _FIXED.unpack_from(header)
    n_items, n_codes, length = counts
    if magic != MAGIC:
        raise FormatError(f"{path} is not an index file: it begins with {magic!r}, not {MAGIC!r}")
    if version > VERSION:
        raise NewerVersionError(
            f"{path} has format version {version}, this oasis reads {VERSION}; upgrade oasis"
        )
    if version < VERSION:
        raise FormatError(
            f"{path} has format version {version}, this oasis reads {VERSION}; "
            "build the index again from its codes"
        )
    if struct.unpack_from("<I", header, HEADER - 4)[0] != zlib.crc32(header[:-4]):
        raise FormatError(f"the header of {path} is damaged: its checksum does not match")
    if length != size:
        raise FormatError(f"{path} has {size} bytes, its header says {length}: it was truncated")
    if n_bits == 0 or n_bits % 8 or label_bits % 8 or label_bits >= n_bits or zero:
        raise FormatError(
            f"{path} says {n_bits} bits, {label_bits} of them for labels; that is no index"
        )

    arrays: dict[str, npt.NDArray[Any] | None] = {}
    for index, (name, dtype) in enumerate(_DTYPES.items()):
        entry = _ENTRY.unpack_from(header, _FIXED.size + index * _ENTRY.size)
        arrays[name] = _section(content, path, name, np.dtype(dtype), entry)
        check = verify if verify is not None else size <= _SMALL
        if check and arrays[name] is not None and zlib.crc32(_bytes(arrays[name])) != entry[2]:
            raise FormatError(f"{path} is damaged: the checksum of section {name} does not match")
    codes, listed = arrays["codes"], n_codes < n_items
    if codes is None or codes.nbytes != n_codes * (n_bits // 8):
        raise FormatError(f"{path} is damaged: {n_codes} codes of {n_bits} bits were expected")
    arrays["codes"] = codes.reshape(n_codes, n_bits // 8)
    expected = {"ids": n_items, "id_order": None if arrays["id_order"] is None else n_items}
    expected["slots"] = expected["rows"] = n_items if listed else None
    expected["offsets"] = n_codes + 1 if listed else None
    for name, length in expected.items():
        array = arrays[name]
        if (None if array is None else len(array)) != length or n_codes > n_items:
            raise FormatError(f"{path} is damaged: section {name} does not fit {n_items} items")
    return Segment(n_label_bytes=label_bits // 8, **arrays), mapped  # type: ignore[arg-type]


def check_length(mapped: mmap.mmap) -> None:
    """Raise if a mapped file was truncated: reading beyond its end would kill the process."""
    if (found := mapped.size()) < len(mapped):
        raise FormatError(
            f"the index file was truncated while it was open: it had {len(mapped)} bytes, now "
            f"{found}; open it again, or restore it"
        )


def _section(
    content: mmap.mmap | npt.NDArray[np.uint8],
    path: Path,
    name: str,
    dtype: np.dtype[Any],
    entry: tuple[int, ...],
) -> npt.NDArray[Any] | None:
    offset, nbytes, _, present = entry
    if not any(entry):
        return None
    if (
        present != 1
        or offset < HEADER
        or offset % _ALIGN
        or offset + nbytes > len(content)
        or nbytes % dtype.itemsize
    ):
        raise FormatError(f"{path} is damaged: section {name} does not lie within the file")
    return np.frombuffer(content, dtype=dtype, count=nbytes // dtype.itemsize, offset=offset)


def _bytes(array: npt.NDArray[Any] | None) -> memoryview:
    if array is None or array.size == 0:
        return memoryview(b"")
    return array.reshape(-1).view(np.uint8).data
