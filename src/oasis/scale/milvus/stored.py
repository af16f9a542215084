"""Items as Milvus stores them: codes with several copies of each bit, labels and payloads.

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

import json
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array
from oasis.codes import Codes, pack
from oasis.errors import InputError
from oasis.index import Ids

_RARITY = 11.5
_BELOW = 2.0
_STEPS = np.geomspace(1e-3, 1.0, 24)
"""Steps that are tried, as fractions of the smallest step without clipping."""

_BLOCK = 64

_MOST_BYTES = 65_536  # Milvus refuses longer ones
_SETS = (tuple, list, set, frozenset)
_LONG_NUMBER = re.compile(r"[0-9]{19}")


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


def extra_fields(ids: Ids, labels: Any, payload: Any) -> tuple[list[dict[str, Any]], Ids]:
    """Return further fields of each row, and their bytes as JSON.

    >>> import numpy as np
    >>> extra_fields(np.array([7]), [("sky",)], [{"year": 2024}])
    ([{'labels': ['sky'], 'payload': {'year': 2024}}], array([44]))
    """
    all_labels = _as_many(ids, labels, "labels", "tuple of labels")
    payloads = _as_many(ids, payload, "payload", "dict")
    extras, sizes = [], np.zeros(len(ids), dtype=np.int64)
    for row, (key, names, fields) in enumerate(
        zip(ids.tolist(), all_labels, payloads, strict=True)
    ):
        extra: dict[str, Any] = {}
        if labels is not None:
            if not isinstance(names, _SETS) or not all(isinstance(name, str) for name in names):
                raise InputError(f"labels of id {key} must be a tuple of str, got {names!r}")
            extra["labels"] = list(names)
        if payload is not None:
            if not isinstance(fields, dict):
                raise InputError(f"payload of id {key} must be a dict, got {fields!r}")
            extra["payload"] = fields
        if extra:
            extra, sizes[row] = _checked(key, extra)
        extras.append(extra)
    return extras, sizes


def _as_many(ids: Ids, values: Any, name: str, what: str) -> list[Any]:
    if values is None:
        return [None] * len(ids)
    if isinstance(values, (str, bytes, dict)):
        raise InputError(f"{name} must hold one {what} per item, got {values!r}")
    found = list(values)
    if len(found) != len(ids):
        raise InputError(f"got {len(ids)} ids and {len(found)} {name}; expected as many")
    return found


def _checked(key: int, extra: dict[str, Any]) -> tuple[dict[str, Any], int]:
    try:
        text = json.dumps(extra, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        size = len(text.encode())
    except (TypeError, ValueError) as error:
        raise InputError(f"labels and payload of id {key} are no JSON: {error}") from None
    if size > _MOST_BYTES:
        raise InputError(
            f"labels and payload of id {key} take {size:,} bytes as JSON, "
            f"at most {_MOST_BYTES:,} are possible"
        )
    if _LONG_NUMBER.search(text):
        # pymilvus refuses integers of more than 64 bits
        extra = json.loads(text, parse_int=_number)
    return extra, size


def _number(text: str) -> int | float:
    value = int(text)
    return value if -(2**63) <= value < 2**63 else float(text)
