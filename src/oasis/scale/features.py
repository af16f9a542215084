"""Sums over the features of a chunk, each worker adding up its blocks before anything is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from oasis.gram import GramSum, transposed_product
from oasis.ridge import Ridge, RidgeFit
from oasis.scale.blocks import Place, Rows, groups_of, read_samples, tiles
from oasis.scale.cluster import Cluster
from oasis.scale.rows import Part, Setting
from oasis.updates import Array


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

    One sum of d x d per thread of the cluster is sent, not one per block. A group of blocks is one
    task, which a worker that dies leaves to another.

    Parameters
    ----------
    labels : whether to make X'L
    """
    by_number = {part.block.place.number: part for part in parts}
    groups = [
        [by_number[block.place.number] for block in group]
        for group in groups_of(cluster, [part.block for part in parts])
    ]
    common = cluster.constant(setting)
    sums = [
        cluster.submit(
            _summed,
            [part.block.source for part in group],
            [(part.block.place, part.rows) for part in group],
            [part.L for part in group] if labels else None,
            delta,
            common,
        )
        for group in groups
    ]
    total = cluster.total(sums, fan=2)
    return dict(zip(setting.widths, total, strict=True))


def _summed(
    sources: list[Any],
    places: list[tuple[Place, Rows | None]],
    labels: list[sp.csr_array] | None,
    delta: float,
    setting: Setting,
) -> tuple[FeatureSums, ...]:
    n_targets = labels[0].shape[1] if labels else 0
    sums = {
        name: FeatureSums(GramSum(d, delta), np.zeros((d, n_targets)))
        for name, d in setting.widths.items()
    }
    for number, (source, (place, rows)) in enumerate(zip(sources, places, strict=True)):
        X = read_samples(source, place, setting.widths)
        for where, tile in tiles(X, rows, setting.normalize):
            for name, matrix in tile.items():
                sums[name].gram.add(matrix)
                if labels:
                    L = labels[number][where].toarray()
                    sums[name].targets[...] += transposed_product(matrix, L)
        del X  # before the next one is read
    return tuple(sums.values())
