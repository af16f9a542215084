"""Queries against a base by Hamming distance: the basis of every measure over packed codes.

With ties in all orders, the joint histogram of (distance, number of shared labels) suffices: one
pass over the base without a sort. For one order, distances are small integers, so a counting sort
orders them. In both cases memory is a few arrays over the base, not queries x base.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from oasis.arrays import Array
from oasis.codes import Codes, check_codes
from oasis.errors import InputError
from oasis.metrics.relevance import (
    Columns,
    LabelSets,
    Rows,
    check_label_pair,
    group_equal_rows,
    take_rows,
    to_columns,
)

_HISTOGRAM_CELLS = 1 << 18  # of a block of queries
# the words of one block, their XOR and the popcounts stay in the second-level cache
_BASE_BLOCK = 1 << 16
# below this, adding up the table of pairs takes longer than counting in pairs saves
_PAIRED_MIN_KEYS = 1 << 16
# finding equal items costs about as much as this number of queries
_MERGE_MIN_QUERIES = 64


@dataclass(frozen=True)
class Comparison:
    """Codes of queries and base, and their labels if these matter, checked."""

    n_bits: int
    queries: Columns
    base: Columns
    query_labels: LabelSets | None = None
    base_labels: LabelSets | None = None

    @classmethod
    def of(
        cls, query_codes: Any, base_codes: Any, query_labels: Any = None, base_labels: Any = None
    ) -> Comparison:
        """Check the codes, and the labels of queries and base if there are any."""
        queries = _checked(query_codes, "query_codes")
        base = _checked(base_codes, "base_codes")
        if queries.shape[1] != base.shape[1]:
            raise InputError(
                f"query_codes have {queries.shape[1] * 8} bits, base_codes have "
                f"{base.shape[1] * 8}; expected the same width"
            )
        found = queries.shape[1] * 8, to_columns(queries), to_columns(base)
        if query_labels is None:
            return cls(*found)
        return cls(*found, *check_label_pair(query_labels, base_labels, len(queries), len(base)))

    @property
    def n_queries(self) -> int:
        return len(self.queries[0])

    @property
    def n_base(self) -> int:
        return len(self.base[0])

    def histograms(self, n_levels: int = 1) -> Iterator[tuple[slice, Array]]:
        """Yield for blocks of queries how many base items have each level and distance.

        The level of an item is the number of labels that it shares with the query, at most
        ``n_levels`` - 1. A block is (b, n_levels, n_bits + 1). Cost: one pass over the distinct
        (code, label set) pairs of the base per query.
        """
        base, counts = self._merged(n_levels > 1)
        width = self.n_bits + 1
        n_keys = n_levels * width
        key_type = np.min_scalar_type(n_keys - 1)
        keys = np.empty(len(base.base[0]), dtype=key_type)
        for rows in _blocks(self.n_queries, max(1, _HISTOGRAM_CELLS // n_keys)):
            joint = np.zeros((rows.stop - rows.start, n_keys))
            for group, levels in base._levels(rows, n_levels):
                offset = None if levels is None else levels.astype(key_type) * key_type.type(width)
                for i in group:
                    query = _row(self.queries, rows.start + int(i))
                    for block in _blocks(len(keys)):
                        _distances_into(keys[block], base.base, query, block)
                        if offset is not None:
                            keys[block] += offset[block]
                    joint[i] = _histogram(keys, counts, n_keys)
            yield rows, joint.reshape(-1, n_levels, width)

    def similar(self) -> Iterator[tuple[Rows, npt.NDArray[np.bool_]]]:
        """Yield queries of equal labels, and which base items, (n_base,), are similar to them."""
        if self.query_labels is not None and self.base_labels is not None:
            for rows in self.query_labels.groups():
                yield rows, self.base_labels.similar_to(self.query_labels, int(rows[0]))

    def ranked(self, row: int, similar: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return the base items' values, (n_base,), in order of their distance to one query;
        at equal distance, older items come first.
        """
        distances = np.empty(self.n_base, dtype=np.int32)
        query = _row(self.queries, row)
        for block in _blocks(self.n_base):
            _distances_into(distances[block], self.base, query, block)
        # CSR to CSC is a stable counting sort that also moves the values; it is faster than
        # argsort and take. One CSR matrix is reused for all queries: its constructor checks every
        # index, which takes half as long as the sort
        by_arrival = self._by_arrival
        by_arrival.indices, by_arrival.data = distances, similar
        ordered: npt.NDArray[np.bool_] = by_arrival.tocsc().data
        return ordered

    @cached_property
    def _by_arrival(self) -> sp.csr_array:
        """A matrix of one row whose columns are distances."""
        none = np.zeros(self.n_base, dtype=np.int32)
        ends = np.array([0, self.n_base], dtype=np.int32)
        return sp.csr_array((none, none, ends), shape=(1, self.n_bits + 1))

    def _levels(self, rows: slice, n_levels: int) -> Iterator[tuple[Rows, Any]]:
        """Yield the queries of a block by label set, and the level of every base item."""
        if n_levels == 1 or self.query_labels is None or self.base_labels is None:
            yield np.arange(rows.stop - rows.start), None
            return
        labels = self.query_labels.take(rows)
        for group in labels.groups():
            if n_levels == 2:
                yield group, self.base_labels.similar_to(labels, int(group[0]))
            else:
                yield group, self.base_labels.n_shared_with(labels, int(group[0]))

    def _merged(self, with_labels: bool) -> tuple[Comparison, Array | None]:
        """Return the base with items of equal code and label set merged, and their numbers.

        Codes often depend only on label sets, so a base may hold the same pair many times. It stays
        as it is, without numbers, if merging saves no time.
        """
        if self.n_queries < _MERGE_MIN_QUERIES or self.n_base == 0:
            return self, None
        # distinct first words are a lower bound of distinct pairs, and cheap to count
        first_words = np.sort(self.base[0])
        if np.count_nonzero(first_words[1:] != first_words[:-1]) > self.n_base // 2:
            return self, None
        labels = self.base_labels if with_labels else None
        order, starts = group_equal_rows((*self.base, *(labels.columns if labels else ())))
        if len(starts) > self.n_base // 2:
            return self, None
        rows = order[starts]
        merged = replace(
            self,
            base=take_rows(self.base, rows),
            base_labels=None if labels is None else labels.take(rows),
        )
        return merged, np.diff(starts, append=len(order)).astype(np.float64)


def _checked(codes: Any, name: str) -> Codes:
    try:
        return check_codes(codes)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error


def _blocks(n: int, size: int = _BASE_BLOCK) -> Iterator[slice]:
    for start in range(0, n, size):
        yield slice(start, min(n, start + size))


def _row(columns: Columns, row: int) -> tuple[np.unsignedinteger[Any], ...]:
    return tuple(column[row] for column in columns)


def _histogram(
    keys: npt.NDArray[np.unsignedinteger[Any]], weights: Array | None, width: int
) -> npt.NDArray[Any]:
    """Return how often each of the keys 0 to width - 1 occurs, or the sum of its weights, (width,).

    Keys of one byte without weights are counted in pairs, which takes two thirds of the time.
    """
    if weights is not None or keys.dtype != np.uint8 or len(keys) < _PAIRED_MIN_KEYS:
        return np.bincount(keys, weights, minlength=width)
    n_pairs = len(keys) // 2
    pairs = np.bincount(keys[: 2 * n_pairs].view(np.uint16), minlength=width * 256)
    table = pairs.reshape(width, 256)[:, :width]
    counts: npt.NDArray[Any] = table.sum(axis=0) + table.sum(axis=1)
    counts[keys[2 * n_pairs :]] += 1
    return counts


def _distances_into(
    out: npt.NDArray[np.integer[Any]],
    base: Columns,
    query: tuple[np.unsignedinteger[Any], ...],
    block: slice,
) -> None:
    """Write the Hamming distances of one query to a block of the base."""
    np.bitwise_count(base[0][block] ^ query[0], out=out, casting="same_kind")
    for column, word in zip(base[1:], query[1:], strict=True):
        out += np.bitwise_count(column[block] ^ word)
