"""Queries against a base by Hamming distance: the basis of every measure over packed codes.

For ``ties="expected"`` the joint histogram of (distance, similar or not) suffices: one pass over
the base without a sort. For ``ties="stable"`` distances are small integers, so a counting sort
orders them. In both cases memory is a few arrays over the base, not queries x base.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from oasis.arrays import Array
from oasis.codes import Codes, check_codes
from oasis.errors import InputError
from oasis.metrics.columns import Columns, Rows, group_equal_rows, take_rows, to_columns
from oasis.metrics.relevance import LabelSets, check_label_pair

_Value = TypeVar("_Value", np.bool_, np.float64)

_QUERY_BLOCK = 1024
# the words of one block, their XOR and the popcounts stay in the second-level cache
_BASE_BLOCK = 1 << 16
# below this, adding up the table of pairs takes longer than counting in pairs saves
_PAIRED_MIN_KEYS = 1 << 16
# finding equal items costs about as much as this number of queries
_MERGE_MIN_QUERIES = 64


class TieGroups(NamedTuple):
    """Histograms over the distances 0 to n_bits of a block of queries, each (b, n_bits + 1)."""

    rows: slice
    counts: Array
    hits: Array


class GainGroups(NamedTuple):
    """Like `TieGroups` with the sum of gains at each distance, and in ``ideal_counts`` the number
    of items that share m labels, (b, most labels of any query + 1), largest m first."""

    rows: slice
    counts: Array
    gains: Array
    ideal_counts: Array


@dataclass(frozen=True)
class Comparison:
    """Codes and labels of queries and base, checked."""

    n_bits: int
    queries: Columns
    query_labels: LabelSets
    base: Columns
    base_labels: LabelSets

    @property
    def n_queries(self) -> int:
        return len(self.queries[0])

    @property
    def n_base(self) -> int:
        return len(self.base[0])

    def with_queries(self, rows: Rows, labels: LabelSets) -> Comparison:
        """Return the comparison with the queries at ``rows``, which get new labels."""
        return replace(self, queries=take_rows(self.queries, rows), query_labels=labels)

    def tie_groups(self) -> Iterator[TieGroups]:
        """Yield, in order of the queries, the number of items and of similar items per distance.

        Cost: one pass over the distinct (code, label set) pairs of the base per query.
        """
        base = _MergedBase.of(self)
        width = self.n_bits + 1
        key_type = np.min_scalar_type(2 * width - 1)
        keys = np.empty(len(base.labels), dtype=key_type)
        for rows, labels in self._query_blocks():
            joint = np.zeros((len(labels), 2 * width))
            for group in labels.groups():
                similar = base.labels.similar_to(labels, int(group[0]))
                offset = similar.astype(key_type) * key_type.type(width)
                for i in group:
                    query = _row(self.queries, rows.start + int(i))
                    for block in _blocks(len(keys)):
                        distances = _distances(base.columns, query, block, key_type)
                        np.add(distances, offset[block], out=keys[block])
                    joint[i] = _histogram(keys, base.counts, 2 * width)
            yield TieGroups(rows, joint[:, :width] + joint[:, width:], joint[:, width:])

    def gain_groups(self, gain_of_shared: Array) -> Iterator[GainGroups]:
        """Yield, in order of the queries, the number of items and the sum of gains per distance.

        Parameters
        ----------
        gain_of_shared : (most labels of any query + 1,)
            Entry m is the gain of an item that shares m labels with the query.
        """
        base = _MergedBase.of(self)
        width, levels = self.n_bits + 1, len(gain_of_shared)
        key_type = np.min_scalar_type(width)
        for rows, labels in self._query_blocks():
            counts = np.zeros((len(labels), width))
            gains = np.zeros((len(labels), width))
            ideal = np.zeros((len(labels), levels))
            for group in labels.groups():
                shared = base.labels.n_shared_with(labels, int(group[0]))
                ideal[group] = np.bincount(shared, base.counts, minlength=levels)[::-1]
                gain = gain_of_shared[shared]
                if base.counts is not None:
                    gain *= base.counts
                for i in group:
                    query = _row(self.queries, rows.start + int(i))
                    for block in _blocks(len(base.labels)):
                        keys = _distances(base.columns, query, block, key_type)
                        weights = None if base.counts is None else base.counts[block]
                        counts[i] += np.bincount(keys, weights, minlength=width)
                        gains[i] += np.bincount(keys, gain[block], minlength=width)
            yield GainGroups(rows, counts, gains, ideal)

    def ranked(self, row: int, values: npt.NDArray[_Value]) -> npt.NDArray[_Value]:
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
        by_arrival.indices, by_arrival.data = distances, values
        return by_arrival.tocsc().data

    @cached_property
    def _by_arrival(self) -> sp.csr_array:
        """A matrix of one row whose columns are distances."""
        none = np.zeros(self.n_base, dtype=np.int32)
        ends = np.array([0, self.n_base], dtype=np.int32)
        return sp.csr_array((none, none, ends), shape=(1, self.n_bits + 1))

    def _query_blocks(self) -> Iterator[tuple[slice, LabelSets]]:
        for rows in _blocks(self.n_queries, _QUERY_BLOCK):
            yield rows, self.query_labels.take(rows)


def check_comparison(
    query_codes: Any, base_codes: Any, query_labels: Any, base_labels: Any
) -> Comparison:
    """Check the arguments of a measure over packed codes, and return them in columns."""
    queries, base = check_code_pair(query_codes, base_codes)
    labels = check_label_pair(query_labels, base_labels, len(queries), len(base))
    return Comparison(
        n_bits=queries.shape[1] * 8,
        queries=to_columns(queries),
        query_labels=labels[0],
        base=to_columns(base),
        base_labels=labels[1],
    )


def check_code_pair(query_codes: Any, base_codes: Any) -> tuple[Codes, Codes]:
    """Check the codes of queries and base, which must have the same width."""
    queries = _check_codes(query_codes, "query_codes")
    base = _check_codes(base_codes, "base_codes")
    if queries.shape[1] != base.shape[1]:
        raise InputError(
            f"query_codes have {queries.shape[1] * 8} bits, base_codes have {base.shape[1] * 8}; "
            "expected the same width"
        )
    return queries, base


def distance_histograms(
    queries: Columns, base: Columns, n_bits: int
) -> Iterator[tuple[slice, Array]]:
    """Yield for blocks of queries the number of base items per distance, (b, n_bits + 1)."""
    key_type = np.min_scalar_type(n_bits)
    keys = np.empty(len(base[0]), dtype=key_type)
    for rows in _blocks(len(queries[0]), _QUERY_BLOCK):
        counts = np.zeros((rows.stop - rows.start, n_bits + 1))
        for i in range(len(counts)):
            query = _row(queries, rows.start + i)
            for block in _blocks(len(keys)):
                keys[block] = _distances(base, query, block, key_type)
            counts[i] = _histogram(keys, None, n_bits + 1)
        yield rows, counts


@dataclass(frozen=True)
class _MergedBase:
    """The base with items of equal code and equal label set merged, if this saves time.

    Codes often depend only on label sets, so a base may hold the same pair many times.
    """

    columns: Columns
    labels: LabelSets
    counts: Array | None

    @staticmethod
    def of(comparison: Comparison) -> _MergedBase:
        base, labels = comparison.base, comparison.base_labels
        plain = _MergedBase(base, labels, None)
        if comparison.n_queries < _MERGE_MIN_QUERIES or comparison.n_base == 0:
            return plain
        # distinct first words are a lower bound of distinct pairs, and cheap to count
        first_words = np.sort(base[0])
        if np.count_nonzero(first_words[1:] != first_words[:-1]) > comparison.n_base // 2:
            return plain
        order, starts = group_equal_rows((*base, *labels.columns))
        if len(starts) > comparison.n_base // 2:
            return plain
        rows = order[starts]
        counts = np.diff(starts, append=len(order)).astype(np.float64)
        return _MergedBase(take_rows(base, rows), labels.take(rows), counts)


def _check_codes(codes: Any, name: str) -> npt.NDArray[np.uint8]:
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


def _distances(
    base: Columns,
    query: tuple[np.unsignedinteger[Any], ...],
    block: slice,
    dtype: np.dtype[Any],
) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Return the Hamming distances of one query to a block of the base, in the given type."""
    total = np.empty(block.stop - block.start, dtype=dtype)
    _distances_into(total, base, query, block)
    return total


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
