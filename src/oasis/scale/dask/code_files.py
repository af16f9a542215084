"""A directory of Parquet files with the codes of a corpus, one file per block."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from oasis.codes import Codes
from oasis.errors import FormatError, MissingExtraError
from oasis.index.export import parquet_writer
from oasis.model.base import HashFunction
from oasis.store import replacing

_PREFIX, _SUFFIX, _MODEL, _IDS = "codes-", ".parquet", "hash_function", "ids"


class Kept(NamedTuple):
    """What a file that is there holds: so many rows, with ids of this checksum."""

    n_rows: int
    ids: str


class CodeFiles:
    """The files of one encoding, which an interrupted one is taken up from.

    Parameters
    ----------
    folder : made where it is missing
    hash_function : every file records what made its codes, by checksum
    """

    def __init__(self, folder: Path, n_bits: int, hash_function: HashFunction) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._n_bits = folder, n_bits
        self._made_by = checksum_of(hash_function)

    def done(self) -> dict[int, Kept]:
        """Return the blocks that are there, by number; refuse files of another model."""
        return {
            int(path.name[len(_PREFIX) : -len(_SUFFIX)]): self._kept(path) for path in self._paths()
        }

    def write(self, number: int, codes: Codes, ids: Any) -> None:
        """Write the codes of one block with their ids, durably, or leave nothing behind."""
        write = parquet_writer(codes, ids, {_MODEL: self._made_by, _IDS: checksum_of_ids(ids)})
        path = self._folder / f"{_PREFIX}{number:08d}{_SUFFIX}"
        with replacing(path) as temporary, temporary.open("wb") as out:
            write(out)

    def _paths(self) -> list[Path]:
        return sorted(self._folder.glob(f"{_PREFIX}{'[0-9]' * 8}{_SUFFIX}"))

    def _kept(self, path: Path) -> Kept:
        try:
            import pyarrow as pa
            from pyarrow import parquet
        except ImportError as error:
            raise MissingExtraError("pyarrow", extra="parquet", what="reading Parquet") from error
        try:
            found = parquet.read_metadata(path)
        except (OSError, pa.ArrowException) as error:
            raise FormatError(f"{path} is no Parquet file, or is damaged: {error}") from error
        metadata = found.metadata or {}
        if metadata.get(b"n_bits") != str(self._n_bits).encode():
            raise FormatError(
                f"{path} does not hold codes of {self._n_bits} bits; encode into another directory"
            )
        if metadata.get(_MODEL.encode()) != self._made_by.encode():
            raise FormatError(
                f"{path} was written by another model, or by this one before it learned more; "
                "encode into another directory"
            )
        return Kept(int(found.num_rows), metadata.get(_IDS.encode(), b"").decode())


def checksum_of(hash_function: HashFunction) -> str:
    """Return a checksum of all that decides a code.

    >>> import numpy as np
    >>> from oasis.model.hash_functions import LinearMap
    >>> one, other = ({"image": np.full((8, 3), value)} for value in (1.0, 2.0))
    >>> checksum_of(LinearMap(one)) == checksum_of(LinearMap(dict(one)))
    True
    >>> checksum_of(LinearMap(one)) == checksum_of(LinearMap(other))
    False
    """
    digest = hashlib.sha256()
    for name, array in hash_function.arrays():
        digest.update(f"{name} {array.dtype} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def checksum_of_ids(ids: Any) -> str:
    """Return a checksum of ids, integers or strings, in order.

    >>> checksum_of_ids(range(3)) == checksum_of_ids([0, 1, 2]) != checksum_of_ids([0, 2, 1])
    True
    """
    digest = hashlib.sha256()
    for each in ids:
        digest.update(f"{each!s}\0".encode())
    return digest.hexdigest()
