"""How sure predicted labels are, calibrated on samples predicted before they were learned.

Predictions of a regression, beyond the shares of classes (`LabelMap.above_shares`), are near 1 for
the classes of a sample and near 0 for others, but how near differs with the data. So before a chunk
is learned some of its samples are predicted, those of the first chunk by leave-one-out regressions
(`oasis.model.leave_one_out`), and two distributions are kept as sums: of the largest prediction
among the classes that a sample has (hits), and of the largest among those that it lacks (misses). A
prediction s is then as sure as

    ``p = 1 / (1 + exp(-(z_h + z_m)))``  with  ``z_h = (s - mean_h) / sd_h``, ``z_m`` the same

which is 0.5 where s lies as many standard deviations below the mean hit as above the mean miss.
Queries with a single modality are predicted less well than those with all, so the same sums are
kept for each modality alone. If no class of a query is sure, the query resembles nothing that was
learned: noise, an unknown word, a picture of something else.
"""

from __future__ import annotations

import math
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

MEMORY = 4096.0
"""Samples that the sums are worth at most; older ones fade."""

HELD_WEIGHT = 64.0
"""Samples that leave-one-out predictions of the first chunk are worth at most."""

PRIOR_SAMPLES = 20.0
"""Samples that a prior is worth."""

PRIOR_HIT = (0.8, 0.3)
PRIOR_MISS = (0.2, 0.15)
"""Mean and standard deviation of hits and misses before anything was seen."""

PRIOR_USUAL = 0.5
"""The usual hit before anything was seen: where every chunk brings new classes alone nothing ever
is, and a value that is too large would have content decide where labels are known."""


@dataclass(frozen=True)
class Calibration:
    """Sums over samples that were predicted before they were learned.

    Attributes
    ----------
    hits : (3,), number, sum and sum of squares of the largest prediction of a class that is there
    misses : (3,), the same of a class that is not
    """

    hits: Array
    misses: Array

    @classmethod
    def none(cls) -> Calibration:
        """Return the sums over no samples."""
        return cls(np.zeros(3), np.zeros(3))

    def plus(self, predictions: Single, L: sp.csr_array, most: float = np.inf) -> Calibration:
        """Return the sums with samples added: predictions (n, c), labels L (n, c) as 0 and 1.

        Samples of which no class was known are left out. The others count as ``most`` samples
        together, if they are more.
        """
        has = L.toarray() > 0
        rows = has.any(axis=1)
        there = np.where(has, predictions, -np.inf)[rows].max(axis=1, initial=-np.inf)
        absent = np.where(has, -np.inf, predictions)[rows].max(axis=1, initial=-np.inf)
        return Calibration(added(self.hits, there, most), added(self.misses, absent, most))

    @property
    def usual_hit(self) -> float:
        """Mean of the hits, at least 0.05."""
        n, total, _ = self.hits
        return max(float((total + PRIOR_SAMPLES * PRIOR_USUAL) / (n + PRIOR_SAMPLES)), 0.05)

    @property
    def low_hit(self) -> float:
        """Mean of the hits minus half a standard deviation, at least a quarter of the mean."""
        n, total, squares = (self.hits + _prior(*PRIOR_HIT)).tolist()
        deviation = math.sqrt(max(squares / n - (total / n) ** 2, 0.0))
        return max(self.usual_hit - deviation / 2, self.usual_hit / 4)

    def faded(self, share: float) -> Calibration:
        """Return the sums with a share of their weight."""
        return Calibration(share * self.hits, share * self.misses)

    def sure(self, predictions: Single) -> Single:
        """Return how sure predictions are, from 0 to 1, of the same shape.

        >>> Calibration.none().sure(np.array([0.0, 0.4, 0.8], dtype=np.float32)).round(3)
        array([0.018, 0.5  , 0.982], dtype=float32)
        """
        slope, offset = self._line
        z = np.clip(predictions.astype(np.float64) * slope + offset, -50, 50)
        sure: Single = (1 / (1 + np.exp(-z))).astype(np.float32)
        return sure

    @cached_property
    def _line(self) -> tuple[float, float]:
        """Slope and offset of ``z_h + z_m`` as a function of a prediction."""
        slope = offset = 0.0
        for sums, prior in ((self.hits, PRIOR_HIT), (self.misses, PRIOR_MISS)):
            n, total, squares = (sums + _prior(*prior)).tolist()
            mean = total / n
            deviation = math.sqrt(max(squares / n - mean * mean, 1e-4))
            slope += 1 / deviation
            offset -= mean / deviation
        return slope, offset


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
        """Return how sure each of predictions (n, c), beyond the shares, is.

        ``has`` says which rows have a modality, (n,), of those that are there.
        """
        sure = self.together.sure(predictions)
        for name, rows in self._single(has):
            sure[rows] = self.alone[name].sure(predictions[rows])
        return sure

    def low_hits(self, has: Mapping[str, Mask]) -> Single:
        """Return `Calibration.low_hit` of each row, (n,); ``has`` as above."""
        n = len(next(iter(has.values())))
        low_hits = np.full(n, self.together.low_hit, dtype=np.float32)
        for name, rows in self._single(has):
            low_hits[rows] = self.alone[name].low_hit
        return low_hits

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


def added(sums: Array, values: Single, most: float = np.inf) -> Array:
    """Return number, sum and sum of squares (3,) with values added; old ones fade.

    The values count as ``most`` together, if they are more; those that are not finite are left out.
    """
    values = values[np.isfinite(values)].astype(np.float64)
    new = np.array([len(values), values.sum(), np.square(values).sum()])
    grown = sums + new * min(1.0, most / max(len(values), 1))
    added: Array = grown * min(1.0, MEMORY / max(grown[0], 1.0))
    return added
