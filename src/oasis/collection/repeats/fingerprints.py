"""Fingerprints: 64 bits of an item's features in each modality, kept beside its code.

A code of 256 bits has about fifty for the content of a picture, one of 128 bits twenty. Thousands
of pictures may have the same twenty, so codes alone do not identify a picture; fingerprints do. Bit
i is the sign of ``(x - m) h_i``, with x the features at unit length, m their mean over the first
chunk of a collection (0 for sparse features), and h_i a random direction that depends only on the
name and width of the modality. Two feature vectors at an angle a differ in ``64 a / pi`` bits on
average. The same features give the same bits but for rounding; those of a picture that was saved
again differ in few.

A fingerprint serves one purpose: to recognise an item that is asked with its own features
(`oasis.collection.repeats.lookup`). It is no part of the code, no index scans it, and it is deleted
with its item.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy

from oasis.arrays import Matrix, Single, in_range, is_sparse
from oasis.errors import FormatError
from oasis.model.threads import in_threads

Prints: TypeAlias = npt.NDArray[np.uint64]
"""Fingerprints of items, (n, m), a column for each modality; 0 where an item lacks it."""

BITS = 64
_ODD = np.uint64(0x9E3779B97F4A7C15)

_BLOCK = 1024  # rows at a time

LEAST_FEATURES = 16
"""A modality with fewer features has no fingerprint: different items are too often alike in it."""


class Fingerprints:
    """The function from features to fingerprints that a collection uses.

    Parameters
    ----------
    means : modality name -> mean (d,) of its features at unit length, or zeros

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = {"image": rng.random((100, 32)), "price": rng.random((100, 1))}
    >>> prints = Fingerprints.of_chunk(X)
    >>> prints.names, prints.of({"image": 2 * X["image"][:1]}) == prints.of(X)[:1]
    (['image'], array([[ True]]))
    """

    def __init__(self, means: Mapping[str, Single]) -> None:
        self._means = {name: means[name] for name in sorted(means)}

    @classmethod
    def of_chunk(cls, X: Mapping[str, Matrix]) -> Fingerprints:
        """Return the function for a collection whose first chunk is X."""
        return cls(
            {name: _mean(matrix) for name, matrix in X.items() if matrix.shape[1] >= LEAST_FEATURES}
        )

    @property
    def names(self) -> list[str]:
        """The modalities that have fingerprints, in the order of the columns."""
        return list(self._means)

    def of(self, X: Mapping[str, Matrix]) -> Prints:
        """Return the fingerprints (n, m) of checked rows; a modality may be missing.

        Cost: a product of n x d x 64 for each modality.
        """
        n = next(iter(X.values())).shape[0]
        prints = np.zeros((n, len(self._means)), dtype=np.uint64)
        for column, (name, mean) in enumerate(self._means.items()):
            if name in X:
                prints[:, column] = _prints(name, X[name], mean)
        return prints

    def packed(self, X: Mapping[str, Matrix], rows: slice, first_key: int) -> list[bytes | None]:
        """Return `packed` fingerprints of some of checked rows, whose keys begin with the first."""
        some = {name: matrix[rows] for name, matrix in X.items()}
        return packed(self.of(some), first_key + rows.start)

    def to_bytes(self) -> bytes:
        """Return what `from_bytes` reads."""
        return safetensors.numpy.save(dict(self._means))

    @classmethod
    def from_bytes(cls, data: bytes) -> Fingerprints:
        """Return the function that was saved."""
        try:
            means = safetensors.numpy.load(data)
        except (TypeError, safetensors.SafetensorError) as error:
            raise FormatError(f"the record of fingerprints cannot be read: {error}") from error
        return cls(means)


def blocks_of(n: int) -> list[slice]:
    """Return blocks of n rows: they are read twice, and the second time are in the cache.

    >>> blocks_of(1500)
    [slice(0, 1024, None), slice(1024, 1500, None)]
    """
    return [slice(at, min(at + _BLOCK, n)) for at in range(0, n, _BLOCK)]


def packed(prints: Prints, first_key: int) -> list[bytes | None]:
    """Return the fingerprints of items as their rows in the catalog keep them; None without any.

    The keys of the items follow each other. 8 bytes for each modality, and 2 for a checksum of
    these and the key: the checksum of a row also covers its payload, which is not read with them.

    >>> rows = packed(np.array([[1, 0], [0, 0]], dtype=np.uint64), first_key=7)
    >>> len(rows[0]), unpacked(rows, np.array([7, 8]), 2).tolist()
    (18, [[1, 0], [0, 0]])
    """
    n, m = prints.shape
    if not m:
        return [None] * n
    rows = np.empty((n, 8 * m + 2), dtype=np.uint8)
    rows[:, :-2] = prints.astype("<u8").view(np.uint8)
    rows[:, -2:] = _checks(prints, np.arange(first_key, first_key + n))[:, None].view(np.uint8)
    data, size = rows.tobytes(), rows.shape[1]
    return [data[at : at + size] for at in range(0, len(data), size)]


def unpacked(rows: Sequence[bytes | None], keys: npt.NDArray[np.int64], m: int) -> Prints:
    """Return the fingerprints (n, m) of items from their rows, or refuse those that are damaged."""
    size = 8 * m + 2
    if all(isinstance(row, bytes) and len(row) == size for row in rows):
        data = np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(-1, size)  # type: ignore[arg-type]
        prints = np.ascontiguousarray(data[:, :-2]).view("<u8").astype(np.uint64)
        checks = np.ascontiguousarray(data[:, -2:]).view("<u2")[:, 0]
        if (checks == _checks(prints, keys)).all():
            return prints
    raise fault_of_damage()


def fault_of_damage() -> FormatError:
    """Return the error of fingerprints that are not as they were written."""
    return FormatError(
        "the catalog is damaged: fingerprints of items cannot be read; 'oasis check' lists all "
        "damage"
    )


def _checks(prints: Prints, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.uint16]:
    """Return a checksum of each item's fingerprints and key, (n,)."""
    mixed = keys.astype(np.uint64) * _ODD
    for column in prints.T:
        mixed = ((mixed ^ column) * _ODD) ^ (mixed >> np.uint64(29))
    return (mixed >> np.uint64(48)).astype("<u2")


def _prints(name: str, X: Matrix, mean: Single) -> npt.NDArray[np.uint64]:
    planes = _planes(name, X.shape[1])
    centre = mean @ planes
    prints = np.empty(X.shape[0], dtype=np.uint64)

    def work(block: slice) -> None:
        rows, scale = in_range(X[block])
        values = np.asarray(rows @ planes) * scale[:, None] - centre
        bits = np.packbits(values > 0, axis=1, bitorder="little")
        found = bits.view("<u8")[:, 0].astype(np.uint64)
        found[found == 0] = 1  # 0 stands for no features
        found[scale == 0] = 0
        prints[block] = found

    in_threads(work, blocks_of(len(prints)))
    return prints


def _mean(X: Matrix) -> Single:
    if is_sparse(X):
        return np.zeros(X.shape[1], dtype=np.float32)
    rows, scale = in_range(X)
    n = max(int(np.count_nonzero(scale)), 1)
    mean: Single = (np.asarray(scale @ rows) / n).astype(np.float32)
    return mean


@lru_cache(maxsize=16)
def _planes(name: str, d: int) -> Single:
    """Return the directions (d, 64) of a modality: the same on every machine."""
    rng = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode(errors="surrogatepass"))))
    return rng.standard_normal((d, BITS), dtype=np.float32)
