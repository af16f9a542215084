"""How novel a query is: how far its content is from that of every known class.

Labels are predicted by regressions, which predict some known class of a sample of an unknown one
too. Its content tells more: in the space of the content bits, samples of an unknown class lie far
from the mean of each known one. With B the content bits of labelled samples, as +1 and -1, m their
mean and S their covariance, the mean of a class c with n_c samples is shrunk to

    ``m_c = (sum of B over the class + k m) / (n_c + k)``  with k = `PRIOR_SAMPLES`

and a query with content values v, cut to [-1, 1], has the distance

    ``d = min_c (v - m_c)' S^-1 (v - m_c)``

Samples of known classes are measured too, each as if it were not in the means of its own classes:
where v are bits this multiplies their distances by ``((n_c + k) / (n_c + k - 1))²``. The novelty of
a query is

    ``u = (ln d - mean(ln d)) / sd(ln d)``

in standard deviations from what is usual for them. Content values of a modality that a query lacks
are predicted, which mostly makes it less novel: predictions are small.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from oasis.arrays import Array, Single
from oasis.model.calibration import added
from oasis.model.content import PRIOR_ROWS
from oasis.model.readout import SIGN_RIDGE, BitSums, unit_directions

if TYPE_CHECKING:
    import scipy.sparse as sp

PRIOR_SAMPLES = 5.0
"""Samples at the mean of all classes that are added to each class."""

LEAST_VARIANCE = 0.02
"""Smallest variance along a direction, as a share of the largest."""

PRIOR_DISTANCES = 20.0
PRIOR_DEVIATION = 0.3
"""Distances that the prior is worth, and their standard deviation; their mean is ln r_c."""


@dataclass(frozen=True)
class ContentSums:
    """Sums over the content bits of learned samples.

    Attributes
    ----------
    bits : of all samples
    LB : (c, r_c), sum of L'B
    distances : (3,), number of samples that were measured, sum of their ``ln d`` and of its squares
    """

    bits: BitSums
    LB: Array
    distances: Array

    @classmethod
    def zero(cls, n_bits: int) -> ContentSums:
        """Return the sums over no samples and no classes."""
        return cls(BitSums.zero(n_bits), np.zeros((0, n_bits)), np.zeros(3))

    def plus(self, B: Array, L: sp.csr_array) -> ContentSums:
        """Return the sums with samples added: bits B (n, r_c), labels L (n, c) as 0 and 1.

        With more classes the nearest one is nearer, so earlier distances fade.
        """
        c = L.shape[1]
        known = np.pad(self.LB, ((0, c - len(self.LB)), (0, 0)))
        faded = self.distances * (len(self.LB) / max(c, 1))
        return ContentSums(self.bits.joined(BitSums.of(B)), known + L.T @ B, faded)

    def measured(self, counts: Array, content: Single, has: Array) -> ContentSums:
        """Return the sums that know the distances of some of the samples in them.

        Parameters
        ----------
        counts : (c,), samples of each class
        content : (n, r_c), content values of the samples
        has : (n, c), their labels as 0 and 1
        """
        distances = self.class_content(counts).nearest_of_known(content, has)
        return replace(self, distances=added(self.distances, distances))

    def class_content(self, counts: Array) -> ClassContent:
        """Return where the content of each class lies, ``counts`` (c,) being their samples."""
        return ClassContent.of(self.bits, self.LB, counts)

    def directions(self, counts: Array) -> Array:
        """Return the unit direction (c, r_c) in which each class is read from content bits."""
        return unit_directions(self.bits.directions(self.LB, counts, SIGN_RIDGE))

    def novelty(self, counts: Array) -> Novelty:
        """Return the novelty of queries, ``counts`` (c,) being the samples of each class."""
        usual = usual_distance(self.distances, len(self.bits.B1))
        return Novelty(self.class_content(counts), usual)


@dataclass(frozen=True)
class ClassContent:
    """Where the content of each class lies.

    Attributes
    ----------
    whitening : T (r_c, r_c), ``T T' = S^-1``
    centres : (c, r_c), ``m_c T``
    leave_out : (c,), what multiplies the distance of a sample from its own class
    """

    whitening: Single
    centres: Single
    leave_out: Single

    @classmethod
    def of(cls, bits: BitSums, LB: Array, counts: Array) -> ClassContent:
        """Return it from sums over learned samples.

        Parameters
        ----------
        bits : of all content bits
        LB : (c, r_c), sum of L'B
        counts : (c,), samples of each class
        """
        mean = bits.B1 / max(bits.n, 1)
        variances, U = np.linalg.eigh(bits.shrunk_covariance(PRIOR_ROWS))
        least = LEAST_VARIANCE * variances.max(initial=0.0)
        T = U / np.sqrt(np.maximum(variances, least))
        n = counts[:, None] + PRIOR_SAMPLES
        centres = (LB + PRIOR_SAMPLES * mean) / n
        leave_out = np.square(n / (n - 1))[:, 0]
        return cls(*(each.astype(np.float32) for each in (T, centres @ T, leave_out)))

    def distances(self, content: Single) -> Single:
        """Return the squared distances (n, c) of content values (n, r_c) from each class."""
        z = np.clip(content, -1, 1) @ self.whitening  # (n, r_c)
        squares = np.vecdot(z, z)[:, None] + np.vecdot(self.centres, self.centres)
        d: Single = squares - 2 * (z @ self.centres.T)
        return d

    def nearest(self, content: Single) -> Single:
        """Return ``ln d`` (n,) of queries; there must be a class."""
        return _logarithm(self.distances(content))

    def nearest_of_known(self, content: Single, has: Array) -> Single:
        """Return ``ln d`` (n,) of samples with labels (n, c) that are in the sums."""
        d = self.distances(content)
        return _logarithm(np.where(has > 0, d * self.leave_out, d))


@dataclass(frozen=True)
class Novelty:
    """The novelty of queries.

    Attributes
    ----------
    classes : where the content of each class lies
    usual : (2,), mean and standard deviation of ``ln d`` of samples of known classes
    """

    classes: ClassContent
    usual: tuple[float, float]

    def of(self, content: Single) -> Single:
        """Return how novel content values (n, r_c) are, (n,); 0 if there is no class."""
        if not len(self.classes.centres):
            return np.zeros(len(content), dtype=np.float32)
        mean, deviation = self.usual
        novelty: Single = (self.classes.nearest(content) - np.float32(mean)) / np.float32(deviation)
        return novelty


def usual_distance(sums: Array, n_bits: int) -> tuple[float, float]:
    """Return mean and standard deviation of ``ln d``.

    Parameters
    ----------
    sums : (3,), number of samples, sum of ``ln d`` and of its squares
    n_bits : content bits

    >>> usual_distance(np.zeros(3), 1)
    (0.0, 0.3)
    """
    prior = np.log(max(n_bits, 1))
    n, total, squares = sums + PRIOR_DISTANCES * np.array(
        [1.0, prior, prior * prior + PRIOR_DEVIATION**2]
    )
    mean = total / n
    return float(mean), float(np.sqrt(max(squares / n - mean * mean, 1e-4)))


def _logarithm(distances: Single) -> Single:
    nearest: Single = np.log(np.maximum(distances.min(axis=1), np.float32(1e-6)))
    return nearest
