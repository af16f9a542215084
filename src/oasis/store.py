"""Durable bytes: files that are there whole or not at all, and tell when they are damaged.

Knows no model. `replacing` and `append` write durably, `write_arrays` and `read_arrays` are the one
container for named arrays: a safetensors file whose metadata holds a checksum of all of it.

Everything that changes a file goes through `disk`, one object with one method per operation, so
that tests can let any single operation fail, or cut the power after it.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors

from oasis.arrays import Pieces
from oasis.errors import FormatError, MissingFileError, OasisError, StorageError

_BLOCK = 1 << 20


class Disk:
    """The operations that change what is on disk."""

    def write(self, path: Path, offset: int, data: bytes) -> None:
        """Make ``data`` the end of a file, from ``offset`` on; one that is missing is created.

        A file with more than that beyond ``offset`` is cut there first. Others are not: a file that
        is cut and grows again needs new blocks, and takes twice as long to be flushed.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if os.fstat(descriptor).st_size > offset + len(data):
                os.ftruncate(descriptor, offset)
            view = memoryview(data)
            while view:
                written = os.pwrite(descriptor, view, offset)
                offset, view = offset + written, view[written:]
        finally:
            os.close(descriptor)

    def fill(self, path: Path, parts: Iterable[bytes | memoryview]) -> None:
        """Make the parts, one after the other, the content of a file."""
        with path.open("wb", buffering=_BLOCK) as file:
            for part in parts:
                file.write(part)

    def sync(self, path: Path) -> None:
        """Wait until a file's content, or the entries of a directory, are on the medium."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def replace(self, source: Path, target: Path) -> None:
        """Give ``source`` the name ``target``; a file of that name is gone in the same moment."""
        source.replace(target)

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""
        path.unlink(missing_ok=True)


disk = Disk()
"""Where every change goes; tests put another one here."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path; on success its file takes the place of ``path``, durably.

    The temporary file is new, with a random name, so that neither two threads nor a link that
    somebody has put there can meet. It is flushed to disk before it is renamed, and the directory
    after it. When the block raises, it is removed and ``path`` is left as it was.
    """
    temporary, mode = _temporary(path)
    try:
        yield temporary
        temporary.chmod(mode)  # some libraries write files that nobody else may read
        disk.sync(temporary)
        disk.replace(temporary, path)
        disk.sync(path.parent)
    finally:
        # not through `disk`: it undoes what failed, and after a success there is nothing to do
        temporary.unlink(missing_ok=True)


def _temporary(path: Path) -> tuple[Path, int]:
    """Create a file beside ``path`` that nobody else has; return it and the mode it got."""
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(temporary, flags, 0o666)
        except FileExistsError:
            continue
        try:
            return temporary, os.fstat(descriptor).st_mode
        finally:
            os.close(descriptor)


def append(path: Path, offset: int, data: bytes) -> None:
    """Make ``data`` the end of a file, from ``offset`` on, durably; what stood there is cut off.

    Whoever keeps the length of the file elsewhere, and commits it after this returns, finds either
    the old length or all of the data.
    """
    created = not path.exists()
    disk.write(path, offset, data)
    disk.sync(path)
    if created:
        disk.sync(path.parent)


def checksum(path: Path) -> tuple[int, int]:
    """Return the length of a file in bytes and the crc32 of its content.

    It tells a damaged file, not a forged one. Cost: one pass, about 2 GB a second.
    """
    length, value = 0, 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            length, value = length + len(block), zlib.crc32(block, value)
    return length, value


def write_arrays(
    path: Path, arrays: Mapping[str, npt.NDArray[Any] | Pieces], metadata: Mapping[str, str]
) -> None:
    """Write arrays and metadata to one safetensors file, atomically, with their checksum.

    Nothing is copied, which `safetensors.numpy.save_file` does twice. Cost: a pass over the arrays
    for the checksum, one for the file.

    Raises
    ------
    StorageError
        The disk refused.
    """
    sound = {name: _little_endian(array) for name, array in arrays.items()}
    sealed = {**metadata, _SEAL: _seal(sound, metadata)}
    # the largest type first, so that every array begins at a multiple of its type's size
    order = sorted(sound, key=lambda name: (-sound[name].dtype.itemsize, name))
    header: dict[str, Any] = {"__metadata__": sealed}
    end = 0
    for name in order:
        array = sound[name]
        begin, end = end, end + math.prod(array.shape) * array.dtype.itemsize
        kind = _TYPES[array.dtype.str]
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": (begin, end)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    content = (part for name in order for part in _parts(sound[name]))
    with replacing(path) as temporary:
        try:
            disk.fill(temporary, chain([len(text).to_bytes(8, "little"), text], content))
        except OSError as error:
            raise StorageError(f"{path} cannot be written: {error}; nothing was changed") from error


def read_arrays(
    path: Path, accept: Callable[[Mapping[str, str]], None]
) -> tuple[dict[str, str], dict[str, npt.NDArray[Any]]]:
    """Return the metadata and the arrays of a file that `write_arrays` wrote, checksum verified.

    ``accept`` is called with the metadata before anything else is read, and raises where the file
    is of another kind or version. The arrays are copies in memory.

    Raises
    ------
    MissingFileError
        There is no such file.
    FormatError
        It is no such file, truncated or damaged.
    """
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = dict(file.metadata() or {})
            seal = metadata.pop(_SEAL, None)
            accept(metadata)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except OasisError:
        raise
    except FileNotFoundError as error:
        raise MissingFileError(f"there is no file at {path}") from error
    except (OSError, ValueError, TypeError, safetensors.SafetensorError) as error:
        raise FormatError(f"{path} is not a safetensors file, or is truncated: {error}") from error
    if seal != _seal(arrays, metadata):
        raise FormatError(f"{path} is damaged: its checksum does not match its content")
    return metadata, arrays


def recorded_checksum(path: Path) -> tuple[int, int]:
    """Return the length of a file that `write_arrays` wrote, and the checksum that stands in it.

    Cost: its header. Whether the content matches is for `read_arrays` to say.
    """
    try:
        n_bytes = path.stat().st_size
        with safetensors.safe_open(path, framework="numpy") as file:
            seal = (file.metadata() or {}).get(_SEAL, "")
        return n_bytes, int(seal, 16)
    except FileNotFoundError as error:
        raise MissingFileError(f"there is no file at {path}") from error
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise FormatError(f"{path} is not a file of ours, or is truncated: {error}") from error


_SEAL = "folded-crc32"
_TYPES = {"|b1": "BOOL", "|u1": "U8", "|i1": "I8", "<f2": "F16", "<f4": "F32", "<f8": "F64"} | {
    f"<{kind}{size}": f"{kind.upper()}{8 * size}" for kind in "iu" for size in (2, 4, 8)
}
"""NumPy's name of a type -> that of safetensors."""


def _little_endian(array: npt.NDArray[Any] | Pieces) -> npt.NDArray[Any] | Pieces:
    if isinstance(array, Pieces):
        return array
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def _parts(array: npt.NDArray[Any] | Pieces) -> Iterator[memoryview]:
    """Yield the content of an array."""
    for part in array.parts if isinstance(array, Pieces) else [array]:
        if part.size:
            yield part.reshape(-1).view(np.uint8).data


def _seal(arrays: Mapping[str, npt.NDArray[Any] | Pieces], metadata: Mapping[str, str]) -> str:
    """Return the checksum of metadata, names, types, shapes and content, as hexadecimal text."""
    value = zlib.crc32(json.dumps(dict(metadata), sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        value = zlib.crc32(f"{name} {array.dtype.str} {array.shape}".encode(), value)
        value = folded_crc32(_parts(array), value)
    return f"{value:08x}"


_ROWS, _COLUMNS = 16, 1021
_GROUP = _ROWS * _COLUMNS * 8  # bytes
_GROUPS = 4  # at once: sums and words stay in the cache


def folded_crc32(parts: Iterable[bytes | memoryview], value: int = 0) -> int:
    """Return the crc32 of sums of words: it reads about 15 GB a second, crc32 alone about 4.

    The parts, one after the other, are 64-bit words in groups of 16 rows of 1,021. The rows of a
    group are added modulo 2^64, and the crc32 is that of the sums, and of the bytes after the last
    full group as they are.

    A change within 8 kB in a row changes some sum, so it is missed as seldom as by crc32, with
    probability 2^-32. So are exchanged sectors and pages: 1,021 is prime, and they fall on other
    columns or other groups. Two single bits cancel if they are the same bit of one column and
    group, one set and one cleared: 1 in 28 million pairs in a file of 27 MB.

    Parameters
    ----------
    parts : bytes, or memoryviews of bytes
    value : int
        Of what came before.
    """
    for block in _blocks(parts, _GROUPS * _GROUP):
        n = len(block) // _GROUP
        if n:
            words = block[: n * _GROUP].view("<u8").reshape(n, _ROWS, _COLUMNS)
            value = zlib.crc32(np.add.reduce(words, axis=1).astype("<u8", copy=False), value)
        value = zlib.crc32(block[n * _GROUP :].data, value)
    return value


def _blocks(parts: Iterable[bytes | memoryview], size: int) -> Iterator[npt.NDArray[np.uint8]]:
    """Yield the bytes of all parts in blocks of a size, and the rest; copies where parts are small.

    A block is valid until the next one is asked for.
    """
    buffer, begun = np.empty(size, np.uint8), 0
    for part in parts:
        rest = np.frombuffer(part, np.uint8)
        while len(rest):
            if not begun and len(rest) >= size:
                yield rest[:size]
                rest = rest[size:]
                continue
            n = min(size - begun, len(rest))
            buffer[begun : begun + n] = rest[:n]
            begun, rest = begun + n, rest[n:]
            if begun == size:
                yield buffer
                begun = 0
    yield buffer[:begun]
