"""The representation of samples: ``G = L K``, rows scaled to unit length."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_CANCEL = 1e-12
"""Vectors cancel when their sum is shorter than this share of the sum of their lengths."""


def represent(
    words: npt.NDArray[np.float64],
    axes: float,
    indptr: npt.NDArray[Any],
    numbers: npt.NDArray[Any],
) -> npt.NDArray[np.float64]:
    """Return G; the classes of sample j are ``numbers[indptr[j]:indptr[j + 1]]``.

    Parameters
    ----------
    words : (c, width), the word columns of K
    axes : weight of the axes; above 0, each class has a column of its own after the words
    """
    counts, (n_classes, width) = np.diff(indptr), words.shape
    G = np.zeros((len(counts), width + (n_classes if axes > 0 else 0)))
    for place in range(int(counts.max(initial=0))):  # L_j K, the columns of words
        samples = np.flatnonzero(counts > place)
        G[samples, :width] += words[numbers[indptr[samples] + place]]
    owners = np.repeat(np.arange(len(counts)), counts)
    if axes > 0:
        G[owners, width + numbers] = np.sqrt(axes)
    lengths = np.sqrt(np.vecdot(words, words) + axes)
    return to_unit(G, floor=_CANCEL * np.bincount(owners, lengths[numbers], len(counts)))


def to_unit(rows: npt.NDArray[np.float64], floor: Any = 0.0) -> npt.NDArray[np.float64]:
    """Scale rows to unit length, in place; rows not longer than ``floor`` become zero."""
    # vecdot: unlike einsum's, its rounding does not depend on the number of rows
    lengths = np.sqrt(np.vecdot(rows, rows))
    short = lengths <= floor
    rows[short] = 0
    rows /= np.where(short, 1, lengths)[:, None]
    return rows
