"""The rows of a chunk on a Dask cluster: implements `oasis.model.round.ChunkRows`.

The features of a block stay on the workers; sums and codes are sent back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from oasis.arrays import Array, Matrix, Rows, is_sparse, unit_rows
from oasis.codes import Codes, pack, unpack
from oasis.model.gram import GramSum, product, transposed_product
from oasis.model.hash_functions import Mask
from oasis.model.ridge import Ridge, RidgeFit, with_constant
from oasis.model.round import (
    Projector,
    Published,
    SampleRowsInMemory,
    Targets,
    evenly_spaced,
)
from oasis.model.updates import Weights, b_step
from oasis.scale.dask_blocks import (
    Block,
    Cluster,
    Place,
    groups_of,
    read_queries,
    read_samples,
    tiles,
)

if TYPE_CHECKING:
    from distributed import Future


@dataclass(frozen=True)
class Reading:
    """How every task of a round reads features; small, and sent once.

    Attributes
    ----------
    widths : modality -> number of features
    unit_length : whether each row is scaled to unit length, modality by modality
    """

    widths: Mapping[str, int]
    unit_length: bool


@dataclass(frozen=True)
class Part:
    """The blocks that one thread of the cluster works on, one after the other.

    Attributes
    ----------
    blocks : where their features are
    chosen : which rows of each block are learned
    """

    blocks: list[Block]
    chosen: list[Rows]

    @property
    def sources(self) -> list[Any]:
        """What tasks are to read; an argument of its own, see `Block`."""
        return [block.source for block in self.blocks]

    @property
    def in_chunk(self) -> Rows:
        """The positions of the learned rows in the chunk."""
        pairs = zip(self.blocks, self.chosen, strict=True)
        return np.concatenate([block.place.first_row + rows for block, rows in pairs])

    @property
    def rows(self) -> list[tuple[Place, Rows | None, slice]]:
        """Of each block its place, the rows to learn, and where they stand in the part.

        None stands for all rows of a block.
        """
        ends = np.cumsum([0, *map(len, self.chosen)])
        return [
            (block.place, None if len(rows) == block.place.n_rows else rows, slice(a, b))
            for block, rows, (a, b) in zip(
                self.blocks, self.chosen, pairwise(ends.tolist()), strict=True
            )
        ]


class ClusterRows:
    """The rows of one chunk in blocks on the workers.

    Parameters
    ----------
    blocks : in order, with their rows counted
    """

    def __init__(self, cluster: Cluster, blocks: Sequence[Block], reading: Reading) -> None:
        self._cluster, self._blocks, self._reading = cluster, blocks, reading
        self._n = sum(block.place.n_rows for block in blocks)

    def sample(self, n: int, chosen: Mask) -> dict[str, Matrix]:
        rows = evenly_spaced(np.flatnonzero(chosen), n)
        places = [_within(rows, block.place) for block in self._blocks]
        pieces = [
            self._cluster.submit(_sampled, block.source, block.place, local, self._reading)
            for block, local in zip(self._blocks, places, strict=True)
            if len(local)
        ]
        return _stacked(self._cluster.gather(pieces))

    def regress(
        self,
        ridges: Mapping[str, Ridge],
        chosen: Mask,
        L: sp.csr_array,
        others: Mapping[str, Targets],
    ) -> dict[str, Ridge]:
        parts = self._parts(chosen)
        position = np.cumsum(chosen) - 1  # of a chosen row among the rows of L
        labels = [L[position[part.in_chunk]] for part in parts]
        sums = feature_sums(
            self._cluster, parts, ridges, self._reading, labels, others, intercept=True
        )
        regressed = {}
        for name, each in sums.items():
            fit = each.fit(ridges[name])
            fit.solve(each.targets)
            regressed[name] = fit.finish()
        return regressed

    def codes(self, function: Projector, n_bits: int, chosen: Mask) -> Codes:
        blocks = [block for block in self._blocks if chosen[block.place.rows].any()]
        rows = [np.flatnonzero(chosen[block.place.rows]) for block in blocks]
        found = list(encoded(self._cluster, blocks, function, self._reading.widths, n_bits, rows))
        return np.concatenate(found)

    def sample_rows(self, problem: Published, rng: np.random.Generator) -> ClusterSampleRows:
        parts = self._parts(np.ones(self._n, dtype=np.bool_))
        return ClusterSampleRows(self._cluster, parts, self._reading, problem, rng)

    def _parts(self, chosen: Mask) -> list[Part]:
        """Return the blocks by the threads that work on them."""
        parts = []
        for blocks in groups_of(self._cluster, self._blocks):
            rows = [np.flatnonzero(chosen[block.place.rows]) for block in blocks]
            parts.append(Part(blocks, rows))
        return parts


@dataclass(frozen=True)
class FeatureSums:
    """Sums of one modality over some rows.

    Attributes
    ----------
    gram : X'X
    targets : (d, k), X'T of the targets T
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
    cluster: Cluster,
    parts: Sequence[Part],
    ridges: Mapping[str, Ridge],
    reading: Reading,
    targets: Sequence[sp.csr_array | Codes],
    others: Mapping[str, Targets] | None = None,
    *,
    intercept: bool = False,
) -> dict[str, FeatureSums]:
    """Return the sums of each modality over the learned rows.

    Parameters
    ----------
    targets : of each part, what its rows are regressed on: labels (n, c) as 0 and 1, or packed
        codes (n, r / 8), which count as +1 and -1
    others : modality -> targets that come before these, from all features of a row
    intercept : whether rows end with a constant, see `with_constant`
    """
    common = cluster.constant((reading, others or {}, intercept))
    deltas = {name: ridge.delta for name, ridge in ridges.items()}
    sums = [
        cluster.submit(_summed, part.sources, part.rows, cluster.constant(each), deltas, common)
        for part, each in zip(parts, targets, strict=True)
    ]
    return dict(zip(reading.widths, cluster.total(sums), strict=True))


class ClusterSampleRows(SampleRowsInMemory):
    """The rows of a chunk whose features are on the workers, for `oasis.model.round.iterations`.

    Arrays with a row per sample, which are as long as a code or a class vector, are here; draws and
    steps are those of `SampleRowsInMemory`. Features are read once an iteration: the first one
    needs none, so its codes are there when the sums of features are made. From then on W is known
    when V is, and one pass makes ``X W'``, the new codes and their X'B, from which the next W is
    solved.
    """

    def __init__(
        self,
        cluster: Cluster,
        parts: Sequence[Part],
        reading: Reading,
        problem: Published,
        rng: np.random.Generator,
    ) -> None:
        super().__init__({}, problem, rng)
        self._cluster, self._parts, self._reading = cluster, parts, reading
        self._ridges, self._fits = problem.ridges, dict[str, RidgeFit]()
        self._XB: tuple[Array, ...] = ()
        self._solutions: dict[str, Array] = {}

    def predict(self) -> None:
        # the features are multiplied by W where they are read next, in `code`
        self._solutions = self._solved()

    def code(self, GV: Array) -> None:
        if not self._solutions:
            super().code(GV)
            return
        common = self._cluster.constant((self._solutions, GV, self._weights, self._reading))
        both = []
        for part in self._parts:
            rows = self._cluster.constant((self.G[part.in_chunk], self.V[part.in_chunk]))
            both.append(self._cluster.submit(_coded, part.sources, part.rows, rows, common))
        codes = [self._cluster.submit(itemgetter(0), each) for each in both]
        self._XB = self._cluster.total([self._cluster.submit(itemgetter(1), e) for e in both])
        for part, each in zip(self._parts, self._cluster.gather(codes), strict=True):
            self.B[part.in_chunk] = signs(each)

    def regressions(self) -> dict[str, Ridge]:
        self._solved()
        return {name: fit.finish() for name, fit in self._fits.items()}

    def _solved(self) -> dict[str, Array]:
        """Return W' (d, r) of each modality for the codes as they stand."""
        if not self._fits:
            codes = [pack(self.B[part.in_chunk]) for part in self._parts]
            sums = feature_sums(self._cluster, self._parts, self._ridges, self._reading, codes)
            self._fits = {name: each.fit(self._ridges[name]) for name, each in sums.items()}
            self._XB = tuple(each.targets for each in sums.values())
        fits = zip(self._fits.items(), self._XB, strict=True)
        return {name: fit.solve(XB) for (name, fit), XB in fits}


def _coded(
    sources: list[Any],
    rows: list[tuple[Place, Rows | None, slice]],
    given: tuple[Array, Array],
    common: tuple[Mapping[str, Array], Array, Weights, Reading],
) -> tuple[Codes, tuple[Array, ...]]:
    """Return the codes of the rows after a B step, and X'B of each modality for them."""
    G, V = given
    solutions, GV, weights, reading = common
    codes = np.empty((len(V), V.shape[1] // 8), dtype=np.uint8)
    XB = {name: np.zeros((d, V.shape[1])) for name, d in reading.widths.items()}
    for where, tile in feature_tiles(sources, rows, reading):
        XW = np.zeros_like(V[where])
        for name, matrix in tile.items():
            XW += product(matrix, solutions[name])
        B = b_step(G[where], GV, V[where], XW, weights)
        codes[where] = pack(B)
        del matrix
        for name in list(tile):
            XB[name] += transposed_product(tile.pop(name), B)
    return codes, tuple(XB.values())


def _summed(
    sources: list[Any],
    rows: list[tuple[Place, Rows | None, slice]],
    given: sp.csr_array | Codes,
    deltas: Mapping[str, float],
    common: tuple[Reading, Mapping[str, Targets], bool],
) -> tuple[FeatureSums, ...]:
    """Return the sums of each modality; every row of every block is checked on the way.

    One sum of d x d per part is sent, not one per block, and one arrives. If a worker dies, another
    one computes its part again.
    """
    reading, others, intercept = common
    n_given = given.shape[1] * (8 if isinstance(given, np.ndarray) else 1)
    sums: dict[str, FeatureSums] = {}
    for name, width in reading.widths.items():
        d = width + intercept
        n_targets = n_given + (others[name].n_values if name in others else 0)
        sums[name] = FeatureSums(GramSum(d, deltas[name]), np.zeros((d, n_targets)))
    for where, tile in feature_tiles(sources, rows, reading):
        values = {name: others[name].project(tile) for name in tile if name in others}
        last = signs(given[where]) if isinstance(given, np.ndarray) else given[where]
        for name in list(tile):
            matrix = tile.pop(name)
            if intercept:
                matrix = with_constant(matrix)
            sums[name].gram.add(matrix)
            targets = sums[name].targets
            n_values = targets.shape[1] - n_given
            if n_values:
                targets[:, :n_values] += transposed_product(matrix, values[name])
            if n_given:
                targets[:, n_values:] += transposed_product(matrix, last)
            del matrix
    return tuple(sums.values())


def signs(codes: Codes) -> Array:
    """Return packed codes as +1 and -1."""
    return unpack(codes).astype(np.float64)


def feature_tiles(
    sources: list[Any], rows: list[tuple[Place, Rows | None, slice]], reading: Reading
) -> Iterator[tuple[slice, dict[str, Matrix]]]:
    """Read a part's blocks, one after the other, and yield the learned rows a few at a time.

    Every row of every block is checked. The result may be a view of the block: remove it from the
    mapping and drop it before the next step, or two blocks stay in memory.
    """
    for source, (place, chosen, here) in zip(sources, rows, strict=True):
        X = read_samples(source, place, reading.widths)
        for where, tile in tiles(X, chosen, reading.unit_length):
            yield slice(here.start + where.start, here.start + where.stop), tile
            del tile
        del X


def encoded(
    cluster: Cluster,
    blocks: Sequence[Block],
    function: Projector,
    widths: Mapping[str, int],
    n_bits: int,
    chosen: Sequence[Rows | None] | None = None,
) -> Iterator[Codes]:
    """Yield the codes of the blocks, or of chosen rows of each, in order; few are under way."""
    common = cluster.constant((function, dict(widths)))
    under_way: deque[Future] = deque()
    n_ahead = 2 * cluster.n_threads
    for block, rows in zip(blocks, chosen or [None] * len(blocks), strict=True):
        under_way.append(cluster.submit(_codes, block.source, block.place, rows, common, n_bits))
        if len(under_way) >= n_ahead:
            yield under_way.popleft().result()
    while under_way:
        yield under_way.popleft().result()


def _codes(
    source: Any,
    place: Place,
    rows: Rows | None,
    common: tuple[Projector, Mapping[str, int]],
    n_bits: int,
) -> Codes:
    function, widths = common
    X = read_queries(source, place, widths)
    n = next(iter(X.values())).shape[0] if rows is None else len(rows)
    codes = np.empty((n, n_bits // 8), dtype=np.uint8)
    for where, tile in tiles(X, rows, normalize=False):  # the hash function does that itself
        codes[where] = pack(function.project(tile))
    return codes


def _within(rows: Rows, place: Place) -> Rows:
    """Return which rows of a block are among the rows of the chunk, counted from its first."""
    inside: Rows = rows[(rows >= place.first_row) & (rows < place.rows.stop)] - place.first_row
    return inside


def _sampled(source: Any, place: Place, rows: Rows, reading: Reading) -> dict[str, Matrix]:
    X = read_samples(source, place, reading.widths)
    chosen = {name: matrix[rows] for name, matrix in X.items()}
    return {name: unit_rows(x) for name, x in chosen.items()} if reading.unit_length else chosen


def _stacked(pieces: Sequence[Mapping[str, Matrix]]) -> dict[str, Matrix]:
    stacked: dict[str, Matrix] = {}
    for name in pieces[0]:
        parts: list[Any] = [piece[name] for piece in pieces]
        stack = sp.vstack if is_sparse(parts[0]) else np.concatenate
        stacked[name] = stack(parts)
    return stacked
