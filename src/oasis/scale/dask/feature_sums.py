"""Sums over the features of a chunk, each worker adding up its blocks before anything is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from oasis.arrays import Array, Rows
from oasis.model.gram import (
    GramSum,
    transposed_product,
)
from oasis.model.ridge import Ridge, RidgeFit
from oasis.scale.dask.blocks import (
    Place,
)
from oasis.scale.dask.cluster import Cluster
from oasis.scale.dask.cluster_rows import Part, Setting, feature_tiles


@dataclass(frozen=True)
class FeatureSums:
    """Sums of one modality over some rows.

    Attributes
    ----------
    gram : X'X
    targets : (d, c), X'L; c is 0 where labels are not predicted
    """

    gram: GramSum
    targets: Array

    def joined(self, other: FeatureSums) -> FeatureSums:
        """Return the sums over the rows of both, in new memory."""
        return FeatureSums(self.gram.joined(other.gram), self.targets + other.targets)

    def fit(self, ridge: Ridge) -> RidgeFit:
        """Return the regression of a round on these rows."""
        gram = GramSum(ridge.n_features, ridge.delta, start=ridge.base)
        gram.merge(self.gram)
        return RidgeFit(ridge, gram.lower, gram.single)


def feature_sums(
    cluster: Cluster, parts: Sequence[Part], setting: Setting, delta: float, labels: bool
) -> dict[str, FeatureSums]:
    """Return the sums of each modality; every row of every block is checked on the way.

    One sum of d x d per part is sent, not one per block, and one arrives here. A part that a
    worker leaves behind when it dies is done anew by another.

    Parameters
    ----------
    labels : whether to make X'L
    """
    common = cluster.constant(setting)
    sums = [
        cluster.submit(_summed, part.sources, part.rows, part.L if labels else None, delta, common)
        for part in parts
    ]
    total = cluster.large_total(sums)
    return dict(zip(setting.widths, total, strict=True))


def _summed(
    sources: list[Any],
    rows: list[tuple[Place, Rows | None, slice]],
    L: sp.csr_array | None,
    delta: float,
    setting: Setting,
) -> tuple[FeatureSums, ...]:
    n_targets = 0 if L is None else L.shape[1]
    sums = {
        name: FeatureSums(GramSum(d, delta), np.zeros((d, n_targets)))
        for name, d in setting.widths.items()
    }
    for where, tile in feature_tiles(sources, rows, setting):
        for name in list(tile):
            matrix = tile.pop(name)
            sums[name].gram.add(matrix)
            if L is not None:
                sums[name].targets[...] += transposed_product(matrix, L[where].toarray())
            del matrix
    return tuple(sums.values())
