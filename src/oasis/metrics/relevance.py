"""Which samples are similar: label sets, packed, and compared one query against many.

Two samples are similar when they share a label. Rows of bits, be they codes or label sets, are kept
as columns of machine words, the layout in which an evaluation compares them. A row of up to 8 bytes
is one unsigned word of 8, 16, 32 or 64 bits; a longer row is several words of 64 bits, the last one
padded with zeros. Each column of words is contiguous in memory, so that an XOR or AND with a query
runs over a whole block of rows at full speed for any width.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from oasis.arrays import checked_csr
from oasis.errors import InputError

Column: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
Columns: TypeAlias = tuple[Column, ...]
"""One contiguous array of n words for each word of a row."""

Rows: TypeAlias = npt.NDArray[np.intp]
"""Positions of rows."""

_BLOCK_CELLS = 1 << 22
_WORD_TYPES = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def to_columns(rows: npt.NDArray[np.uint8]) -> Columns:
    """Turn (n, n_bytes) bytes into columns of words; the padding is zero.

    >>> import numpy as np
    >>> [column.dtype.name for column in to_columns(np.zeros((5, 3), dtype=np.uint8))]
    ['uint32']
    >>> len(to_columns(np.zeros((5, 17), dtype=np.uint8)))
    3
    """
    n_rows, n_bytes = rows.shape
    n_word_bytes = next((size for size in _WORD_TYPES if n_bytes <= size), 8)
    n_words = max(1, -(-n_bytes // n_word_bytes))
    padded = np.zeros((n_rows, n_words * n_word_bytes), dtype=np.uint8)
    padded[:, :n_bytes] = rows
    words: Column = padded.view(_WORD_TYPES[n_word_bytes])
    return tuple(np.ascontiguousarray(words[:, i]) for i in range(n_words))


def take_rows(columns: Columns, rows: Rows | slice) -> Columns:
    """Return the columns of some of the rows."""
    return tuple(column[rows] for column in columns)


def group_equal_rows(columns: Columns) -> tuple[Rows, Rows]:
    """Return an order that puts equal rows together, and the start of each group in it.

    Within a group the rows keep their order. Costs one sort of n rows per column.

    >>> import numpy as np
    >>> order, starts = group_equal_rows(to_columns(np.array([[7], [2], [7]], dtype=np.uint8)))
    >>> order.tolist(), starts.tolist()
    ([1, 0, 2], [0, 1])
    """
    order = np.lexsort(columns)
    first = np.zeros(len(order), dtype=np.bool_)
    first[:1] = True
    for column in columns:
        in_order = column[order]
        first[1:] |= in_order[1:] != in_order[:-1]
    return order, np.flatnonzero(first)


@dataclass(frozen=True)
class LabelSets:
    """The label sets of n samples over one list of classes, a bit for each class.

    Attributes
    ----------
    columns : Columns
        Bit j of a row's words is class j.
    n_classes : int
    """

    columns: Columns
    n_classes: int

    def __len__(self) -> int:
        return len(self.columns[0])

    def take(self, rows: Rows | slice) -> LabelSets:
        """Return the label sets of some of the samples."""
        return LabelSets(take_rows(self.columns, rows), self.n_classes)

    def max_labels(self) -> int:
        """Return the largest number of labels of a sample."""
        n_labels = np.zeros(len(self), dtype=np.intp)
        for column in self.columns:
            n_labels += np.bitwise_count(column)
        return int(n_labels.max(initial=0))

    def similar_to(self, other: LabelSets, row: int) -> npt.NDArray[np.bool_]:
        """Return for each sample, (n,), whether it shares a label with sample ``row`` of other."""
        similar = np.zeros(len(self), dtype=np.bool_)
        for mine, theirs in zip(self.columns, other.columns, strict=True):
            if theirs[row]:
                similar |= (mine & theirs[row]) != 0
        return similar

    def n_shared_with(self, other: LabelSets, row: int) -> npt.NDArray[np.intp]:
        """Return for each sample, (n,), how many labels it shares with sample ``row`` of other."""
        shared = np.zeros(len(self), dtype=np.intp)
        for mine, theirs in zip(self.columns, other.columns, strict=True):
            if theirs[row]:
                shared += np.bitwise_count(mine & theirs[row])
        return shared

    def groups(self) -> Iterator[Rows]:
        """Yield the rows of each distinct label set: queries of one set share their relevance."""
        order, starts = group_equal_rows(self.columns)
        yield from np.split(order, starts[1:]) if len(order) else ()


def check_label_sets(labels: Any, name: str, n_samples: int | None = None) -> LabelSets:
    """Return (n, n_classes) zeros and ones, dense or sparse, as label sets; errors say ``name``.

    >>> len(check_label_sets([[1, 0, 0], [0, 1, 1]], "labels"))
    2
    """
    is_sparse: bool = sp.issparse(labels)
    try:
        matrix: Any = checked_csr(labels) if is_sparse else np.asarray(labels)
    except InputError as error:
        raise InputError(f"{name} {error}") from error
    except ValueError as error:
        raise InputError(f"{name} is not a rectangular array: {error}") from error
    if matrix.ndim != 2:
        raise InputError(f"{name} must have shape (n_samples, n_classes), got {matrix.shape}")
    if matrix.dtype.kind not in "biuf":
        raise InputError(
            f"{name} must hold zeros and ones (1: has the class), got dtype {matrix.dtype}"
        )
    n_rows, n_classes = matrix.shape
    if n_samples is not None and n_rows != n_samples:
        raise InputError(f"{name} has {n_rows} rows, expected {n_samples}, one for each sample")
    packed = np.zeros((n_rows, -(-n_classes // 8)), dtype=np.uint8)
    block = max(1, _BLOCK_CELLS // max(1, n_classes))
    for start in range(0, n_rows, block):
        part = matrix[start : start + block]
        cells = part.toarray() if is_sparse else part
        bits = cells == 1
        if not np.array_equal(bits, cells != 0):
            row, column = (int(i) for i in np.argwhere(bits != (cells != 0))[0])
            raise InputError(
                f"{name} holds {cells[row, column]} at row {start + row}, column {column}; "
                "expected 0 or 1"
            )
        packed[start : start + block] = np.packbits(bits, axis=1, bitorder="little")
    return LabelSets(to_columns(packed), n_classes)


def check_label_pair(
    query_labels: Any,
    base_labels: Any,
    n_queries: int | None = None,
    n_base: int | None = None,
) -> tuple[LabelSets, LabelSets]:
    """Check the labels of queries and base, which must be over the same classes."""
    queries = check_label_sets(query_labels, "query_labels", n_queries)
    base = check_label_sets(base_labels, "base_labels", n_base)
    if queries.n_classes != base.n_classes:
        raise InputError(
            f"query_labels has {queries.n_classes} classes, base_labels has {base.n_classes}; "
            "expected the same classes in the same order"
        )
    return queries, base
