"""Durable files: atomic writes, and a checksum that detects damage.

This module knows nothing about models. `replacing` writes durably. `write_arrays` and
`read_arrays` are the one container for named arrays: a safetensors file with a checksum of all
names, types, shapes and contents in its metadata.

Every change of a file goes through `disk`, one object with one method per operation, so that tests
can make any single operation fail, or simulate a power failure after it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import sys
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import safetensors

from oasis.errors import FormatError, MissingFileError, OasisError, StorageError

_BLOCK = 1 << 20
_LARGE = 8 << 20  # bytes; to free so many takes about a millisecond


class Blocks(Protocol):
    """An array that is made block by block while it is written."""

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    def blocks(self) -> Iterable[npt.NDArray[Any]]:
        """Yield the entries, one-dimensional, in order."""


ArrayToWrite: TypeAlias = npt.NDArray[Any] | Blocks
"""An array to be written."""

Part: TypeAlias = tuple[int, bytes | memoryview]
"""Bytes of a file, and the offset at which they stand."""


class Disk:
    """The operations that change what is on disk."""

    def write(self, path: Path, offset: int, data: bytes) -> None:
        """Write ``data`` at ``offset`` as the end of a file, which is created if missing.

        A file that is longer than ``offset + len(data)`` is truncated to ``offset`` first. A
        shorter one is overwritten in place: a file that is truncated and grows again needs new
        blocks, and a flush takes twice as long.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if os.fstat(descriptor).st_size > offset + len(data):
                os.ftruncate(descriptor, offset)
            _write_at(descriptor, offset, data)
        finally:
            os.close(descriptor)

    def fill(self, path: Path, parts: Iterable[Part]) -> None:
        """Write the content of a file in parts, each at its offset.

        The medium begins with each part at once, so that a flush afterwards waits for less.
        """
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            for offset, data in parts:
                _write_at(descriptor, offset, data)
                _begin_flush(descriptor, offset, len(data))
        finally:
            os.close(descriptor)

    def sync(self, path: Path) -> None:
        """Wait until a file's content, or the entries of a directory, are on the medium."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def replace(self, source: Path, target: Path) -> None:
        """Rename ``source`` to ``target``; an existing ``target`` is replaced atomically."""
        source.replace(target)

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there.

        The name is gone at once. A thread frees the blocks of a large file, which waits for the
        disk.
        """
        descriptor = _open_if_large(path)
        try:
            path.unlink(missing_ok=True)
        finally:
            if descriptor is not None:  # while a file is open, the system keeps its blocks
                threading.Thread(target=os.close, args=(descriptor,)).start()


def _write_at(descriptor: int, offset: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        offset, view = offset + written, view[written:]


def _begin_flush(descriptor: int, offset: int, length: int) -> None:
    """Let the system write a large part of a file to the medium, without waiting."""
    if sys.platform == "linux" and length >= _BLOCK:
        # Linux then writes the pages that are not on the medium yet, and keeps them in its cache
        with contextlib.suppress(OSError):
            os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_DONTNEED)


def _open_if_large(path: Path) -> int | None:
    """Return a descriptor of a file that takes the disk a while to free, or None."""
    try:
        if path.stat(follow_symlinks=False).st_size < _LARGE:
            return None
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None


disk = Disk()
"""Every change of a file goes through this object; tests replace it."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path; on success its file takes the place of ``path``, durably.

    The temporary file is new and has a random name, so that two threads never share one and a
    planted link is never followed. It is flushed to disk, renamed, and then the directory is
    flushed. When the block raises, the file is removed and ``path`` is unchanged.
    """
    temporary, mode = _temporary(path)
    try:
        yield temporary
        temporary.chmod(mode)  # some libraries write files that only their owner may read
        disk.sync(temporary)
        disk.replace(temporary, path)
        disk.sync(path.parent)
    finally:
        # not through `disk`: this cleans up after a failure and does nothing after a success
        temporary.unlink(missing_ok=True)


def _temporary(path: Path) -> tuple[Path, int]:
    """Create a new file beside ``path``; return its path and its mode."""
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


def checksum(path: Path) -> tuple[int, int]:
    """Return the length of a file in bytes and the crc32 of its content.

    This detects damage, not forgery. Cost: one pass, about 2 GB a second.
    """
    length, value = 0, 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            length, value = length + len(block), zlib.crc32(block, value)
    return length, value


def write_arrays(
    path: Path, arrays: Mapping[str, ArrayToWrite], metadata: Mapping[str, str]
) -> None:
    """Write arrays and metadata to one safetensors file, atomically, with their checksum.

    Cost: one pass over the arrays, in blocks that are in the cache for checksum and file.

    Raises
    ------
    StorageError
        The file cannot be written.
    """
    sound = {name: _little_endian(array) for name, array in arrays.items()}
    with replacing(path) as temporary:
        try:
            disk.fill(temporary, _file_parts(sound, metadata))
        except OSError as error:
            raise StorageError(f"{path} cannot be written: {error}; nothing was changed") from error


def _file_parts(arrays: Mapping[str, ArrayToWrite], metadata: Mapping[str, str]) -> Iterator[Part]:
    """Yield a safetensors file; its header, which has the checksum of all else, comes last."""
    facts: dict[str, Any] = {}
    end = 0
    # the largest type first, so that every array begins at a multiple of its type's size
    for name in sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name)):
        array = arrays[name]
        begin, end = end, end + math.prod(array.shape) * array.dtype.itemsize
        kind = _TYPES[array.dtype.str]
        facts[name] = {"dtype": kind, "shape": array.shape, "data_offsets": (begin, end)}

    def header(seal: _Seal) -> bytes:
        text = json.dumps({"__metadata__": {**metadata, _SEAL: str(seal)}} | facts).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text

    seal = _Seal(metadata)
    begin_of_content = len(header(seal))  # of the same length, whatever the checksum
    for name in sorted(arrays):
        at = begin_of_content + facts[name]["data_offsets"][0]
        for block in seal.passing(name, arrays[name]):
            yield at, block.data
            at += len(block)
    yield 0, header(seal)


def read_arrays(
    path: Path, accept: Callable[[Mapping[str, str]], None]
) -> tuple[dict[str, str], dict[str, npt.NDArray[Any]]]:
    """Return the metadata and the arrays of a file that `write_arrays` wrote, checksum verified.

    ``accept`` is called with the metadata before anything else is read, and raises if the kind or
    version of the file is wrong. The arrays are copies in memory.

    Raises
    ------
    MissingFileError
        There is no such file.
    FormatError
        It was not written by `write_arrays`, or is truncated or damaged.
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
    found = _Seal(metadata)
    for name in sorted(arrays):
        for _ in found.passing(name, arrays[name]):
            pass
    if seal != str(found):
        raise FormatError(f"{path} is damaged: its checksum does not match its content")
    return metadata, arrays


def recorded_checksum(path: Path) -> tuple[int, int]:
    """Return the length of a file that `write_arrays` wrote, and the checksum in its header.

    Only the header is read. The content is not verified; `read_arrays` does that.
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
"""NumPy's name of a type -> its name in safetensors."""


def _little_endian(array: ArrayToWrite) -> ArrayToWrite:
    if not isinstance(array, np.ndarray):
        return array
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def _parts(array: ArrayToWrite) -> Iterator[memoryview]:
    """Yield the content of an array."""
    for part in [array] if isinstance(array, np.ndarray) else array.blocks():
        if part.size:
            yield part.reshape(-1).view(np.uint8).data


class _Seal:
    """The checksum of metadata, names, types, shapes and contents, which pass by name."""

    def __init__(self, metadata: Mapping[str, str]) -> None:
        self._value = zlib.crc32(json.dumps(dict(metadata), sort_keys=True).encode())

    def passing(self, name: str, array: ArrayToWrite) -> Iterator[npt.NDArray[np.uint8]]:
        """Yield the content of the next array in blocks, each valid until the next one."""
        about = f"{name} {array.dtype.str} {array.shape}".encode()
        self._value = zlib.crc32(about, self._value)
        for block in _blocks(_parts(array)):
            self._value = _folded(block, self._value)
            yield block

    def __str__(self) -> str:
        return f"{self._value:08x}"


_ROWS, _COLUMNS = 16, 1021
_GROUP = _ROWS * _COLUMNS * 8  # bytes
_GROUPS = 16  # groups per block of 2 MB: few calls, each of which takes the interpreter's lock


def folded_crc32(parts: Iterable[bytes | memoryview], value: int = 0) -> int:
    """Return the crc32 of sums of words; about 15 GB a second, where crc32 alone reads about 4.

    The concatenated parts are read as 64-bit words, in groups of 16 rows of 1,021. The rows of a
    group are added modulo 2^64. The crc32 is taken over these sums, and over the bytes after the
    last full group.

    A change within 8 contiguous kB changes some sum, so it is missed with probability 2^-32, as by
    crc32 itself. The same holds for swapped sectors and pages: 1,021 is prime, so they fall on
    other columns or other groups. Two flipped bits cancel if they are the same bit of one column
    and group, one set and one cleared: 1 in 28 million pairs in a file of 27 MB.

    Parameters
    ----------
    parts : bytes, or memoryviews of bytes
    value : int
        Checksum of the bytes before the parts.
    """
    for block in _blocks(parts):
        value = _folded(block, value)
    return value


def _folded(block: npt.NDArray[np.uint8], value: int) -> int:
    """Return the checksum after a block of `_blocks`, from the one before it."""
    n = len(block) // _GROUP
    if n:
        words = block[: n * _GROUP].view("<u8").reshape(n, _ROWS, _COLUMNS)
        value = zlib.crc32(np.add.reduce(words, axis=1).astype("<u8", copy=False), value)
    return zlib.crc32(block[n * _GROUP :].data, value)


def _blocks(parts: Iterable[bytes | memoryview]) -> Iterator[npt.NDArray[np.uint8]]:
    """Yield the bytes of all parts in blocks of at most `_GROUPS` groups.

    All but the last consist of whole groups. They are views of the parts; only a group that more
    than one part has a share in, and what is left at the end, is copied, into a buffer that the
    next such group overwrites.
    """
    most = _GROUPS * _GROUP
    buffer, begun = np.empty(_GROUP, np.uint8), 0
    for part in parts:
        rest = np.frombuffer(part, np.uint8)
        while len(rest):
            whole = 0 if begun else min(len(rest), most) // _GROUP * _GROUP
            if whole:
                yield rest[:whole]
                rest = rest[whole:]
                continue
            n = min(_GROUP - begun, len(rest))
            buffer[begun : begun + n] = rest[:n]
            begun, rest = begun + n, rest[n:]
            if begun == _GROUP:
                yield buffer
                begun = 0
    yield buffer[:begun]
