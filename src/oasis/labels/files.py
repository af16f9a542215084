"""Word vectors in files: word2vec text, word2vec binary and GloVe text, found by one scan.

::

    word2vec text     a header line "n_words width", then one line "word v1 v2 ..." per word
    GloVe text        the same without the header
    word2vec binary   the same header, then per word "word ", width little-endian float32 and,
                      depending on who wrote it, a newline

The format is recognised from the content. Memory holds one block of the file and the words that
were asked for.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from oasis.errors import DataError, FormatError

Vector = npt.NDArray[np.float64]

_BLOCK = 1 << 20
_MAX_LINE = 1 << 22
_MAX_WORD = 1 << 16
_MAX_WIDTH = 100_000
_HEADER = re.compile(rb"(\d{1,18}) (\d{1,9})[ \t\r]*\n")
_BOM = b"\xef\xbb\xbf"
_PACKED = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}
# control characters do not occur in text; nearly every float32 has one or is not UTF-8
_NOT_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1f]")


def fingerprint(path: Path) -> str:
    """Return a sha256 of the file's size, its first and last MiB and 16 blocks in between.

    At most 3 MiB are read: enough to tell published files apart, but no defence against a file that
    was changed on purpose.
    """
    with _opened(path) as file:
        size = file.seek(0, os.SEEK_END)
        digest = hashlib.sha256(str(size).encode())
        inner = [(i * size // 17, _BLOCK // 16) for i in range(1, 17)]
        for start, length in [(0, _BLOCK), *inner, (max(0, size - _BLOCK), _BLOCK)]:
            file.seek(start)
            digest.update(file.read(length))
    return digest.hexdigest()


def find_words(path: Path, wanted: Collection[str], until: Collection[str]) -> dict[str, Vector]:
    """Look words up in a file of word vectors; those it does not have are left out.

    Parameters
    ----------
    path : the file, in any of the three formats
    wanted : words to find, compared exactly (as UTF-8)
    until : the scan ends as soon as all of these are found; else it ends with the file

    Returns
    -------
    dict of word to its (width,) float64 vector; of a word that occurs twice, the first

    Raises
    ------
    DataError
        The file cannot be opened.
    FormatError
        The file has none of the formats, a wanted record is damaged, or a scan to the end found the
        last record cut off or another number of records than the header says. Records of other
        words are not checked.

    Notes
    -----
    Cost: at most one sequential read of the file, and a few MiB of memory whatever its size.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "vectors.txt"
    ...     _ = path.write_text("sky 0 1\\nsea 0.5 0.5\\n")
    ...     find_words(path, {"sea", "sand"}, until={"sea"})
    {'sea': array([0.5, 0.5])}
    """
    missing = {word.encode() for word in until}
    keys = {word.encode(): word for word in wanted}
    found: dict[str, Vector] = {}
    if not keys:
        return found
    with _opened(path) as file:
        for token, values in _records(file, path, keys):
            word = keys.pop(token)
            found[word] = values
            missing.discard(token)
            if not missing or not keys:
                break
    return found


def read_width(path: Path) -> int:
    """Return the number of values per word, from the header or the first line of a file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "vectors.txt"
    ...     _ = path.write_text("sky 0 1 2\\nsea 0.5 0.5 0\\n")
    ...     read_width(path)
    3
    """
    with _opened(path) as file:
        return _read_start(file, path)[0]


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb", buffering=_BLOCK)
    except OSError as error:
        raise DataError(
            f"cannot read word vectors from {path}: {error.strerror}; if the file has moved, pass "
            "its new path"
        ) from error


def _records(file: BinaryIO, path: Path, keys: Collection[bytes]) -> Iterator[tuple[bytes, Vector]]:
    """Recognise the format and yield the records whose word is in ``keys``, which may shrink."""
    width, n_words = _read_start(file, path)
    if n_words is None:
        yield from _text_records(file, path, keys, width, n_words)
        return
    body = file.tell()
    binary = _is_binary(file.readline(_MAX_LINE), width)
    file.seek(body)
    if binary:
        yield from _binary_records(file, path, keys, width, n_words)
    else:
        yield from _text_records(file, path, keys, width, n_words)


def _read_start(file: BinaryIO, path: Path) -> tuple[int, int | None]:
    """Read up to the first record; return the width, and the number of words if a header has it."""
    start = file.read(8)
    for magic, packer in _PACKED.items():
        if start.startswith(magic):
            raise FormatError(f"{path} is packed with {packer}; unpack it first")
    body = file.seek(len(_BOM) if start.startswith(_BOM) else 0)
    header = _HEADER.fullmatch(file.readline(_MAX_LINE))
    if header is None:
        file.seek(body)
        width = _width_of_first_line(file, path)
        file.seek(body)
        return width, None
    width = int(header[2])
    if not 1 <= width <= _MAX_WIDTH:
        raise FormatError(
            f"{path}: the header says {width} values per word, expected 1 to {_MAX_WIDTH}"
        )
    return width, int(header[1])


def _width_of_first_line(file: BinaryIO, path: Path) -> int:
    line = file.readline(_MAX_LINE)
    n_values = line.rstrip().count(b" ")
    if _is_binary(line, n_values) or not 1 <= n_values <= _MAX_WIDTH:
        raise FormatError(
            f"{path} is not a file of word vectors: expected a line 'word value value ...' or a "
            f"header 'n_words width', found {line[:40]!r}"
        )
    return n_values


def _is_binary(line: bytes, width: int) -> bool:
    """Return whether a first record is binary: neither a line of numbers nor valid text.

    A damaged line of text is not binary, so that the error can name its line.
    """
    fields = _fields(line, width)
    if len(fields) == width + 1 and all(map(_is_number, fields[1:])):
        return False
    try:
        line.decode()
    except UnicodeDecodeError:
        return True
    return _NOT_TEXT.search(line) is not None


def _text_records(
    file: BinaryIO, path: Path, keys: Collection[bytes], width: int, n_words: int | None
) -> Iterator[tuple[bytes, Vector]]:
    seen, last = 0, (0, b"")
    lines = iter(partial(file.readline, _MAX_LINE), b"")
    for number, line in enumerate(lines, start=1 if n_words is None else 2):
        if len(line) == _MAX_LINE and not line.endswith(b"\n"):
            raise FormatError(f"{path}, line {number}: longer than {_MAX_LINE} bytes")
        if line.isspace():
            continue
        seen, last = seen + 1, (number, line)
        token = line[: line.find(b" ")] if b" " in line else line.rstrip()
        if token not in keys:
            continue
        # some published files have a few words with spaces: "at the" is not "at"
        if _fields(line, width)[0] == token or _is_number(line.split(b" ", 2)[1]):
            yield token, _parsed_line(line, width, f"{path}, line {number}")
    if seen:
        _parsed_line(last[1], width, f"{path}, line {last[0]} (the last)")
    if n_words is not None and seen != n_words:
        raise FormatError(f"{path} has {seen} words, its header says {n_words}; it may be cut off")


def _fields(line: bytes, width: int) -> list[bytes]:
    """Split a line into its word (which may have spaces) and the last ``width`` fields."""
    return line.rstrip().rsplit(b" ", width)


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _parsed_line(line: bytes, width: int, where: str) -> Vector:
    fields = _fields(line, width)
    extra = fields[0].split(b" ")[1:]
    if len(fields) != width + 1 or (extra and all(map(_is_number, extra))):
        n_values = line.rstrip().count(b" ")
        raise FormatError(f"{where}: {n_values} values, expected {width}")
    try:
        values = np.array([float(field) for field in fields[1:]])
    except ValueError as error:
        raise FormatError(f"{where}: not all values are numbers ({error})") from error
    return _finite(values, where)


def _binary_records(
    file: BinaryIO, path: Path, keys: Collection[bytes], width: int, n_words: int
) -> Iterator[tuple[bytes, Vector]]:
    n_bytes = 4 * width
    buffer, at = b"", 0
    for number in range(1, n_words + 1):
        while (space := buffer.find(b" ", at)) < 0 or space + 1 + n_bytes > len(buffer):
            if space < 0 and len(buffer) - at > _MAX_WORD:
                break
            block = file.read(_BLOCK)
            if not block:
                raise FormatError(
                    f"{path}: record {number} of {n_words} is cut off; the file is truncated"
                )
            buffer, at = buffer[at:] + block, 0
        if space < 0 or space - at > _MAX_WORD:
            raise FormatError(
                f"{path}, record {number}: no word of at most {_MAX_WORD} bytes; it is damaged"
            )
        token = buffer[at:space].lstrip(b"\n")
        at = space + 1 + n_bytes
        if token in keys:
            values = np.frombuffer(buffer, dtype="<f4", count=width, offset=space + 1)
            yield token, _finite(values.astype(np.float64), f"{path}, record {number}")
    if (buffer[at:] + file.read(2)).strip(b"\n"):
        raise FormatError(f"{path} has more than the {n_words} words that its header says")


def _finite(values: Vector, where: str) -> Vector:
    if not np.isfinite(values).all():
        raise FormatError(
            f"{where}: holds {values[~np.isfinite(values)][0]}, expected finite numbers"
        )
    return values
