"""Codes with several copies of each bit, so that a Hamming distance can weigh the bits of a query.

Milvus compares binary vectors by Hamming distance, in which all bits weigh the same. If every bit
is stored R times, a query can set ``a`` of its R copies of a bit to one and the others to zero. A
stored 1 then differs in R - a copies and a stored 0 in a copies. So the distance is, up to a
constant, ``-sum_i v_i sign_i / 2`` with the weight ``v_i = 2 a - R``, one of -R, -R + 2, ..., R.
The nearest vectors are those with the largest inner product with v, a quantised copy of the
real-valued query.

The query is quantised as ``v = round(q / step)``, clipped at R, and the best step depends on the
query. A small step preserves differences of small values, which decide among items that agree on
the large ones. A large step keeps large values above the sum of the small ones. The step that needs
the fewest candidates is chosen, under the assumption of independent bits:

1. The items of the answer follow a tilted distribution: bit i agrees with the sign of q_i with
   probability ``1 / (1 + exp(-2 l |q_i|))``, where l is such that one item in exp(11.5) is as good.
2. Their v scores have mean ``sum_i |v_i| tanh(l |q_i|)`` and variance
   ``sum_i v_i^2 / cosh(l |q_i|)^2``. Most of them reach the score t, two standard deviations below
   the mean.
3. At most ``exp(-I)`` of all codes reach t, ``I = max_m m t - sum_i log cosh(m v_i)`` (Chernoff).
   The step with the largest I is chosen.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array
from oasis.codes import Codes, pack

_RARITY = 11.5
_BELOW = 2.0
_STEPS = np.geomspace(1e-3, 1.0, 24)
"""Steps that are tried, as fractions of the smallest step without clipping."""

_BLOCK = 64


def repeated(codes: Codes, copies: int) -> Codes:
    """Return codes as they are stored: ``copies`` concatenated copies."""
    return codes if copies == 1 else np.tile(codes, (1, copies))


def query_codes(values: npt.NDArray[np.floating], copies: int) -> Codes:
    """Return binary vectors whose nearest stored codes have large inner products with the queries.

    Parameters
    ----------
    values : (q, n_bits) finite real numbers
    copies : int
        Number of stored copies of each bit.

    Returns
    -------
    (q, copies * n_bits / 8) uint8

    >>> query_codes(np.array([[9.0, -9, 1, 1, 9, 9, 9, 9]]), 4).tolist()
    [[253, 253, 253, 241]]
    """
    if copies == 1:
        return pack(values)
    weights = np.concatenate(
        [
            rounded(values[start : start + _BLOCK].astype(np.float64), copies)
            for start in range(0, len(values), _BLOCK)
        ]
        or [np.empty(values.shape)]
    )
    ones = (weights + copies) / 2
    return np.concatenate([pack(ones - number - 0.5) for number in range(copies)], axis=1)


def rounded(values: Array, copies: int) -> Array:
    """Return the weights v (q, n_bits): integers with the parity of ``copies``, |v| <= copies."""
    size = np.abs(values)
    largest = size.max(axis=1, keepdims=True)
    size /= np.where(largest > 0, largest, 1.0)
    tilt = _tilt(size)[:, None]
    mean = np.tanh(tilt * size)
    variance = 1 - mean**2
    # (q, steps, n_bits); for an odd number of copies no weight is zero
    parts = size[:, None, :] * copies / (2 * _STEPS[:, None])
    whole = np.floor(parts) * 2 + 1 if copies % 2 else np.rint(parts) * 2
    weight = np.minimum(whole, copies)
    least = (weight * mean[:, None]).sum(axis=2) - _BELOW * np.sqrt(
        (weight**2 * variance[:, None]).sum(axis=2)
    )
    best = _rate(weight, least, copies).argmax(axis=1)
    chosen: Array = np.take_along_axis(weight, best[:, None, None], axis=1)[:, 0]
    return np.where(values > 0, chosen, -chosen)


def _tilt(size: Array) -> Array:
    """Return l with ``sum_i l a_i tanh(l a_i) - log cosh(l a_i) = _RARITY``, for rows a of size."""
    low, high = np.full(len(size), 1e-2), np.full(len(size), 1e5)
    for _ in range(16):
        middle = np.sqrt(low * high)
        x = middle[:, None] * size
        rare = (x * np.tanh(x) - _log_cosh(x)).sum(axis=1) > _RARITY
        high, low = np.where(rare, middle, high), np.where(rare, low, middle)
    return low


def _rate(weight: Array, least: Array, copies: int) -> Array:
    """Return ``max_m m t - sum_i log cosh(m v_i)`` for weights (q, steps, n_bits) and t ``least``.

    Weights have few distinct values, so the sum runs over these, times their counts.
    """
    kinds = np.arange(2 - copies % 2, copies + 1, 2, dtype=np.float64)
    counts = np.stack([(weight == kind).sum(axis=2) for kind in kinds], axis=-1)
    low, high = np.full(least.shape, 1e-4), np.full(least.shape, 20.0)
    for _ in range(14):
        middle = np.sqrt(low * high)
        reached = (counts * kinds * np.tanh(middle[..., None] * kinds)).sum(axis=-1)
        over = reached > least
        high, low = np.where(over, middle, high), np.where(over, low, middle)
    rate: Array = low * least - (counts * _log_cosh(low[..., None] * kinds)).sum(axis=-1)
    return np.where(least > 0, rate, -1.0)


def _log_cosh(x: Array) -> Array:
    """Return log cosh x for x >= 0."""
    out: Array = x + np.log1p(np.exp(-2 * x)) - np.log(2)
    return out
