"""Fingerprints: 64 bits of an item's features in each modality, kept beside its code.

A code of 128 bits has about twenty for the content of a picture. Thousands of pictures share them,
so a code cannot tell which of these was asked for. A fingerprint can: bit i is the sign of
``(x - m) h_i``, with x the features at unit length, m their mean over the first chunk of a
collection (0 for sparse features), and h_i a random direction that depends only on the name and
width of the modality. Two feature vectors at an angle a differ in ``64 a / pi`` bits on average.
The same features give the same bits but for rounding; those of a picture that was saved again
differ in few.

A fingerprint serves one purpose: to recognise an item that is asked with its own features
(`oasis.collection.repeats.lookup`). It is no part of the code, no index scans it, and it is deleted
with its item.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy

from oasis.arrays import Matrix, Single, in_range, is_sparse
from oasis.errors import FormatError

Prints: TypeAlias = npt.NDArray[np.uint64]
"""Fingerprints of items, (n, m), a column for each modality; 0 where an item lacks it."""

BITS = 64

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


def packed(prints: Prints) -> list[bytes | None]:
    """Return the fingerprints of each item as a row of the catalog keeps them; None without any.

    >>> packed(np.array([[1, 0], [0, 0]], dtype=np.uint64))[0][:2], packed(np.zeros((1, 0), "u8"))
    (b'\\x01\\x00', [None])
    """
    n, m = prints.shape
    data, size = prints.astype("<u8").tobytes(), 8 * m
    return [data[at * size : (at + 1) * size] or None for at in range(n)]


def _prints(name: str, X: Matrix, mean: Single) -> npt.NDArray[np.uint64]:
    planes = _planes(name, X.shape[1])
    rows, scale = in_range(X)
    values = np.asarray(rows @ planes) * scale[:, None] - mean @ planes
    bits = np.packbits(values > 0, axis=1, bitorder="little")
    prints: npt.NDArray[np.uint64] = bits.view("<u8")[:, 0].astype(np.uint64)
    prints[prints == 0] = 1  # 0 stands for no features
    prints[scale == 0] = 0
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
