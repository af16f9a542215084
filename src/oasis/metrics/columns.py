"""Rows of bytes as columns of machine words, the layout in which an evaluation compares them.

A row of up to 8 bytes is one unsigned word of 8, 16, 32 or 64 bits; a longer row is several words
of 64 bits, the last one padded with zeros. Each column of words is contiguous in memory, so that an
XOR or AND with a query runs over a whole block of rows at full speed for any width.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Column: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
Columns: TypeAlias = tuple[Column, ...]
"""One contiguous array of n words for each word of a row."""

Rows: TypeAlias = npt.NDArray[np.intp]
"""Positions of rows."""

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
