"""How the two parts of a projection are weighed: constants, confidence, scale.

`oasis.model.coding` has the formulas.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array, Single
from oasis.model.hash_functions import Mask

BIT_WEIGHT = 0.009
"""Weight of content, over the root of the number of content bits, unless asked otherwise: label MAP
at 128 bits loses less than a point."""

CAUTION = 2.0
"""Power of the largest predicted label, over a low hit, in the confidence."""

DOUBT_WEIGHT = 0.1
"""Least that the doubt bit weighs, over the largest of the owned bits, where a query is sure of its
labels or has none."""

STRANGE = 1.0
"""Standard deviations from what is usual at which the confidence is halved."""

NOVEL = 1.5
"""The same of the distance from every known class (`oasis.model.novelty`)."""

PRIOR_SHARE = 0.5
"""Part of the share of a class in all samples that is subtracted from its prediction, because a
query without information is predicted to have every class by its share."""

LIKE_WEIGHT = 0.5
"""Weight of content where the query is a stored code: that of labels is the same."""

_LEAST_SPREAD = 1e-6
"""Standard deviation of scores, over the largest value of a query, that is more than rounding."""

CLASS_CONTENT = 0.3
"""Standard deviation of the usual content of predicted classes that is added to a query's content
where only signs count: Hamming distance cannot weigh label bits more than content bits."""


def confidence(labels: Single, low_hit: Single | np.float32) -> Single:
    """Return how sure labels (n, c) are, 0 to 1: the largest over a low hit, to a power.

    >>> labels = np.array([[0.8, 0.0], [-0.1, 0.0]], dtype=np.float32)
    >>> confidence(labels, np.float32(0.8)).tolist()
    [1.0, 0.0]
    """
    strongest = labels.max(axis=1, initial=0.0) / low_hit
    sure: Single = np.clip(strongest, 0.0, 1.0) ** np.float32(CAUTION)
    return sure


def least(strange: Mapping[str, Single], has: Mapping[str, Mask]) -> Single:
    """Return the least of values (n,) over the modalities that a row has, from 0 on."""
    infinite = np.float32(np.inf)
    least = reduce(
        np.minimum,
        [x if has[k].all() else np.where(has[k], x, infinite) for k, x in strange.items()],
    )
    positive: Single = np.maximum(least, np.float32(0))
    positive[np.isinf(positive)] = 0
    return positive


def deviations(values: Single, covariance: Array) -> npt.NDArray[Any]:
    """Return the standard deviation, per row (n,), of inner products with bits of stored codes."""
    spread: npt.NDArray[Any] = np.sqrt(np.maximum(np.vecdot(values @ covariance, values), 0))
    return spread


def scaled(values: Single, sizes: npt.NDArray[Any], target: npt.NDArray[Any]) -> Single:
    """Return rows times ``target / sizes``, with the largest value of a row for a size of 0.

    So the label bits of a query keep their signs where all stored items have the same labels.
    """
    largest = np.abs(values).max(axis=1, initial=0.0)
    sizes = np.where(sizes > _LEAST_SPREAD * largest, sizes, largest)
    factors = np.divide(target, sizes, out=np.zeros(len(sizes)), where=sizes > 0)
    scaled: Single = values * factors.astype(np.float32)[:, None]
    return scaled
