"""Calibration: how sure predicted labels are, the only source of confidence.

Predictions of a regression, beyond what is usual (`LabelMap.above_usual`), are larger for the
classes of a sample than for others, but how much differs with the data and with how little was
learned. So before a chunk is learned some of its samples are predicted, those of the first chunk
with labels by leave-one-out. Two distributions are kept as sums: of the largest prediction among
the classes that a sample has (hits), and of the largest among those that it lacks (misses). With
their means and a pooled variance v, a prediction s is as sure as

    ``p = r / (1 + exp(-a (s - m)))``  with  ``a = (mean_h - mean_m) / v``,
    ``m = (mean_h + mean_m) / 2``

where r is the share of samples whose largest prediction is a hit, and the rest the posterior of a
hit for two normal distributions of one variance; a is at least 0. With few labels r is small, and a
query is sure of none.

There is one such line for each set of modalities that a query may have: all, and each alone, with
one r. If no class of a query is sure, the query resembles nothing that was learned: noise, an
unknown word, a picture of something else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from oasis.arrays import Array, Rows, Single
from oasis.model.hash_functions import Mask

if TYPE_CHECKING:
    import scipy.sparse as sp

SAMPLES = 256
"""Samples of a chunk, at most, that are predicted before they are learned."""

ENOUGH = 100.0
"""Samples predicted before they were learned by which evidence is half trusted."""

MEMORY = 4096.0
"""Samples that the sums are worth at most; older ones fade."""

PRIOR_SAMPLES = 20.0
PRIOR_HIT = (0.8, 0.3)
PRIOR_MISS = (0.2, 0.15)
"""Samples that the prior is worth, mean and standard deviation of its hits and misses."""


PRIOR_RIGHT = np.array([2.0, 2.0])
"""Samples, and of them right ones, that the prior of r is worth."""


@dataclass(frozen=True)
class Calibration:
    """Sums over samples that were predicted before they were learned.

    Attributes
    ----------
    hits : (3,), number, sum and sum of squares of the largest prediction of a class that is there
    misses : (3,), the same of a class that is not
    right : (2,), number of samples, and of those whose largest prediction is a hit
    """

    hits: Array
    misses: Array
    right: Array

    @classmethod
    def none(cls) -> Calibration:
        """Return the sums over no samples."""
        return cls(np.zeros(3), np.zeros(3), np.zeros(2))

    @property
    def sums(self) -> Array:
        """All sums, (8,)."""
        return np.concatenate([self.hits, self.misses, self.right])

    @classmethod
    def from_sums(cls, sums: Array) -> Calibration:
        """Return the calibration with these `sums`."""
        return cls(sums[:3], sums[3:6], sums[6:])

    def plus(self, predictions: Single, L: sp.csr_array) -> Calibration:
        """Return the sums with samples added: predictions (n, c), labels L (n, c) as 0 and 1.

        Samples of which no class was known are left out.
        """
        has = L.toarray() > 0
        rows = has.any(axis=1)
        there = np.where(has, predictions, -np.inf)[rows].max(axis=1, initial=-np.inf)
        absent = np.where(has, -np.inf, predictions)[rows].max(axis=1, initial=-np.inf)
        right = np.array([len(there), np.count_nonzero(there > absent)])
        return Calibration(
            _faded(self.hits + _moments(there)),
            _faded(self.misses + _moments(absent)),
            _faded(self.right + right),
        )

    def faded(self, share: float) -> Calibration:
        """Return the sums with a share of their weight."""
        return Calibration(share * self.hits, share * self.misses, share * self.right)

    def sure(self, predictions: Single, most: float = 1.0) -> Single:
        """Return how sure predictions are, from 0 to ``most``, of the same shape.

        >>> Calibration.none().sure(np.array([0.0, 0.5, 1.0], dtype=np.float32)).round(3)
        array([0.005, 0.5  , 0.995], dtype=float32)
        """
        slope, middle = self.line
        z = np.clip(slope * (predictions.astype(np.float64) - middle), -50, 50)
        sure: Single = (most / (1 + np.exp(-z))).astype(np.float32)
        return sure

    @cached_property
    def line(self) -> tuple[float, float]:
        """a and m of the formula."""
        moments = []
        for sums, prior in ((self.hits, PRIOR_HIT), (self.misses, PRIOR_MISS)):
            n, total, squares = (sums + _prior(*prior)).tolist()
            mean = total / n
            moments.append((mean, max(squares / n - mean * mean, 1e-6)))
        (hit, v_hit), (miss, v_miss) = moments
        variance = (v_hit + v_miss) / 2
        return max(hit - miss, 0.0) / variance, (hit + miss) / 2

    @property
    def told(self) -> float:
        """How much the evidence is to be trusted, from 0 to 1: ``n / (n + ENOUGH)``, n samples."""
        n = float(self.right[0])
        return n / (n + ENOUGH)

    @property
    def share_right(self) -> float:
        """r of the formula."""
        n, right = (self.right + PRIOR_RIGHT).tolist()
        return float(right / n)


@dataclass(frozen=True)
class Sureness:
    """How sure predicted labels are, of rows that have all modalities or a single one.

    Attributes
    ----------
    together : calibration of predictions by all modalities
    alone : modality name -> the same by that modality alone
    """

    together: Calibration
    alone: Mapping[str, Calibration]

    def of(self, predictions: Single, has: Mapping[str, Mask]) -> Single:
        """Return how sure each of predictions (n, ...), beyond what is usual, is.

        ``has`` says which rows have a modality, (n,), of those that are there.
        """
        most = self.together.share_right
        sure = self.together.sure(predictions, most)
        for name, rows in self._single(has):
            sure[rows] = self.alone[name].sure(predictions[rows], most)
        return sure

    def _single(self, has: Mapping[str, Mask]) -> Iterator[tuple[str, Rows]]:
        """Yield each modality with the rows that have no other; nothing if there is only one."""
        if len(self.alone) == 1:
            return
        single = np.sum(list(has.values()), axis=0) == 1
        for name, mask in has.items():
            rows = np.flatnonzero(mask & single)
            if len(rows):
                yield name, rows


def _prior(mean: float, deviation: float) -> Array:
    return PRIOR_SAMPLES * np.array([1.0, mean, mean * mean + deviation * deviation])


def _moments(values: Single) -> Array:
    """Return number, sum and sum of squares (3,) of finite values."""
    values = values[np.isfinite(values)].astype(np.float64)
    return np.array([len(values), values.sum(), np.square(values).sum()])


def _faded(sums: Array) -> Array:
    """Return sums, the first of which is a number of samples, that are worth at most `MEMORY`."""
    faded: Array = sums * min(1.0, MEMORY / max(sums[0], 1.0))
    return faded
