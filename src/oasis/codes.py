"""Packed bits: ``n_bits`` signs stored in ``n_bits / 8`` bytes.

Bit ``i`` of a code is bit ``i % 8`` (little: the least significant first) of byte ``i // 8``.
A set bit stands for +1, a clear bit for -1. A value of exactly zero packs as a clear bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.errors import InputError

Codes = npt.NDArray[np.uint8]
"""Packed codes, shape (n, n_bits / 8)."""

_BLOCK_BYTES = 1 << 22


def check_n_bits(n_bits: Any) -> int:
    """Return ``n_bits`` as an int; raise unless it is a positive multiple of 8.

    >>> check_n_bits(64)
    64
    """
    if (
        isinstance(n_bits, bool)
        or not isinstance(n_bits, (int, np.integer))
        or n_bits < 8
        or n_bits % 8
    ):
        raise InputError(f"n_bits must be a positive multiple of 8, got {n_bits!r}")
    return int(n_bits)


def check_codes(codes: Any, n_bits: int | None = None) -> Codes:
    """Return ``codes`` as a C-ordered (n, n_bits / 8) uint8 array; raise if they are not."""
    array = np.asarray(codes)
    if array.dtype != np.uint8:
        raise InputError(f"codes must be uint8 (packed bits), got {array.dtype}")
    if array.ndim != 2 or array.shape[1] == 0:
        raise InputError(f"codes must have shape (n, n_bits / 8), got {array.shape}")
    if n_bits is not None and array.shape[1] * 8 != n_bits:
        raise InputError(f"codes have {array.shape[1] * 8} bits, expected {n_bits}")
    return np.ascontiguousarray(array)


def pack(values: npt.NDArray[Any]) -> Codes:
    """Pack the signs of an (n, n_bits) array into (n, n_bits / 8) bytes; only values > 0 set a bit.

    >>> import numpy as np
    >>> pack(np.array([[1, -1, -1, -1, -1, -1, -1, 0.5]]))
    array([[129]], dtype=uint8)
    """
    if values.ndim != 2 or values.shape[1] % 8:
        raise InputError(f"expected shape (n, a multiple of 8), got {values.shape}")
    return np.packbits(values > 0, axis=1, bitorder="little")


def unpack(codes: Codes) -> npt.NDArray[np.int8]:
    """Return the signs, +1 or -1, of packed codes as an (n, n_bits) int8 array.

    >>> import numpy as np
    >>> unpack(np.array([[129]], dtype=np.uint8))
    array([[ 1, -1, -1, -1, -1, -1, -1,  1]], dtype=int8)
    """
    bits = np.unpackbits(codes, axis=1, bitorder="little").view(np.int8)
    bits *= 2
    bits -= 1
    return bits


def words(codes: Codes) -> npt.NDArray[np.unsignedinteger[Any]]:
    """View packed codes as the widest unsigned words that divide a row, for fast XOR and popcount.

    No copy is made. Shape (n, n_words); a code of 64 bits is one word.

    >>> import numpy as np
    >>> words(np.zeros((3, 16), dtype=np.uint8)).shape
    (3, 2)
    """
    n_bytes = codes.shape[1]
    dtype = next(
        t for t in (np.uint64, np.uint32, np.uint16, np.uint8) if n_bytes % t().nbytes == 0
    )
    return np.ascontiguousarray(codes).view(dtype)


def hamming(a: Codes, b: Codes) -> npt.NDArray[np.int32]:
    """Return the (len(a), len(b)) int32 matrix of Hamming distances.

    Meant for small sets and for tests; searches go through the index, measures through
    ``oasis.metrics``, and neither builds this matrix whole.

    >>> import numpy as np
    >>> hamming(np.array([[0]], dtype=np.uint8), np.array([[255], [1]], dtype=np.uint8))
    array([[8, 1]], dtype=int32)
    """
    a = check_codes(a)
    b = check_codes(b, a.shape[1] * 8)
    left, right = words(a), words(b)
    out = np.empty((len(a), len(b)), dtype=np.int32)
    block = max(1, _BLOCK_BYTES // max(1, b.nbytes))
    for start in range(0, len(a), block):
        xor = left[start : start + block, None, :] ^ right[None, :, :]
        np.bitwise_count(xor).sum(axis=2, dtype=np.int32, out=out[start : start + block])
    return out
