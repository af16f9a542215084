"""The codebook: what the stored codes say about labels, kept as sums.

Stored codes are in effect a function of the label set. Read the other way round, a linear readout
of a code tells which labels its sample has: with centred codes B and labels L,

    ``D = (B'B + ridge n I)^-1 B'L``  (r, c)

so that ``b D_c`` is near 1 for codes of samples with class c and near 0 for others. A query whose
predicted labels weigh ``w`` (c,) is projected to ``D w``: its inner product with a stored code is
then the code's labels, weighed by ``w``, which is what a search wants to rank by.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve

from oasis.updates import Array

READOUT_RIDGE = 0.1
"""Ridge of the readout, per stored code."""


@dataclass(frozen=True)
class Codebook:
    """Sums over all stored codes and their labels; the size depends on bits and classes alone.

    Attributes
    ----------
    BB : (r, r), sum of B'B
    B1 : (r,), sum of B
    LB : (c, r), sum of L'B
    counts : (c,), samples of each class
    n : samples
    """

    BB: Array
    B1: Array
    LB: Array
    counts: Array
    n: int

    @classmethod
    def zero(cls, n_bits: int) -> Codebook:
        """Return the codebook of no samples and no classes."""
        empty = np.zeros((0, n_bits))
        return cls(np.zeros((n_bits, n_bits)), np.zeros(n_bits), empty, np.zeros(0), 0)

    def plus(self, B: Array, L: sp.csr_array) -> Codebook:
        """Return the codebook with a chunk added: codes B (n, r), labels L (n, c) as 0 and 1."""
        counts = np.asarray(L.sum(axis=0), dtype=np.float64).ravel()
        return self.joined(Codebook(B.T @ B, B.sum(axis=0), L.T @ B, counts, len(B)))

    def joined(self, other: Codebook) -> Codebook:
        """Return the codebook of the samples of both; ``other`` knows all classes of this one."""
        more = len(other.counts) - len(self.counts)
        return Codebook(
            self.BB + other.BB,
            self.B1 + other.B1,
            np.pad(self.LB, ((0, more), (0, 0))) + other.LB,
            np.pad(self.counts, (0, more)) + other.counts,
            self.n + other.n,
        )

    def directions(self) -> Array:
        """Return D', (c, r): the direction in which each class is read from a code."""
        if not len(self.counts):
            return np.zeros_like(self.LB)
        mean = self.B1 / self.n
        covariance = self.BB - self.n * np.outer(mean, mean)
        joint = self.LB - np.outer(self.counts, mean)
        A = covariance + READOUT_RIDGE * self.n * np.eye(len(mean))
        return np.ascontiguousarray(cho_solve(cho_factor(A, lower=True), joint.T).T)
