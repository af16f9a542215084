"""How well stored codes discriminate: distinct codes, entropy of bits, ties at the k-th hit.

If codes depend only on the label set, there are few distinct codes, and ties at every rank. MAP by
labels does not show this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oasis.arrays import Array
from oasis.codes import check_codes
from oasis.errors import InputError
from oasis.metrics.comparison import Comparison
from oasis.metrics.relevance import group_equal_rows, to_columns
from oasis.metrics.ties import check_has_queries, check_places

_ROWS = 1 << 16


@dataclass(frozen=True, eq=False)
class CodeStatistics:
    """Statistics of some codes.

    Attributes
    ----------
    n_codes, n_distinct : int
    largest_group : int
        Number of items with the most frequent code.
    bit_entropy : (n_bits,) float64
        Entropy of each bit over the items, from 0 (constant) to 1 (half of the items have it).
    """

    n_codes: int
    n_distinct: int
    largest_group: int
    bit_entropy: Array

    @property
    def n_constant(self) -> int:
        """Number of bits that have the same value in all items."""
        return int((self.bit_entropy == 0).sum())

    def as_dict(self) -> dict[str, float | int]:
        """Return plain values; ``entropy`` is the mean of a bit."""
        return {
            "codes": self.n_codes,
            "distinct": self.n_distinct,
            "largest_group": self.largest_group,
            "entropy": float(self.bit_entropy.mean()),
            "constant_bits": self.n_constant,
        }


def code_statistics(codes: Any) -> CodeStatistics:
    """Return the number of distinct codes, and the entropy of each bit. Cost: one sort.

    Parameters
    ----------
    codes : (n, n_bits / 8) uint8
        Packed codes, at least one.

    Examples
    --------
    >>> import numpy as np
    >>> found = code_statistics(np.array([[1], [1], [0], [2]], dtype=np.uint8))
    >>> found.n_distinct, found.n_constant, found.bit_entropy[0].item()
    (3, 6, 1.0)
    """
    rows = check_codes(codes)
    if not len(rows):
        raise InputError("there are no codes; statistics need at least one")
    order, starts = group_equal_rows(to_columns(rows))
    set_bits = np.zeros(rows.shape[1] * 8, dtype=np.int64)
    for start in range(0, len(rows), _ROWS):
        bits = np.unpackbits(rows[start : start + _ROWS], axis=1, bitorder="little")
        set_bits += bits.sum(axis=0, dtype=np.int64)
    share = set_bits / len(rows)
    inside = (share > 0) & (share < 1)
    p = np.where(inside, share, 0.5)
    entropy = np.where(inside, -(p * np.log2(p) + (1 - p) * np.log2(1 - p)), 0.0)
    sizes = np.diff(starts, append=len(order))
    return CodeStatistics(len(rows), len(starts), int(sizes.max()), entropy)


def tied_at_k(query_codes: Any, base_codes: Any, k: int) -> float:
    """Return the share of queries whose k-th hit by Hamming distance is in a tie.

    A hit is in a tie when another item of the base has the same distance; k is from 1 to n_base.

    Examples
    --------
    >>> import numpy as np
    >>> base = np.array([[0], [1], [2]], dtype=np.uint8)
    >>> query = np.array([[0]], dtype=np.uint8)
    >>> tied_at_k(query, base, 1), tied_at_k(query, base, 2)
    (0.0, 1.0)
    """
    comparison = Comparison.of(query_codes, base_codes)
    place = check_places(k)
    if place > comparison.n_base:
        raise InputError(f"k is {place}, but the base has {comparison.n_base} items")
    check_has_queries(comparison.n_queries)
    n_tied = 0
    for _, joint in comparison.histograms():
        counts = joint[:, 0]
        kth = (np.cumsum(counts, axis=1) < place).sum(axis=1)
        n_tied += int((counts[np.arange(len(counts)), kth] > 1).sum())
    return n_tied / comparison.n_queries
