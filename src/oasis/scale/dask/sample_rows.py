"""The published round on the workers: codes, relaxed codes, and all arrays with a row per sample.

Beside the block that it reads, a worker keeps for each row of its blocks the packed code and, from
one reduction to the next, at most two float64 rows as long as a code (Z or V, the basis of the V
step). The semantic representation G is made from the labels where it is used.

Features are read once an iteration. The first one needs none, so its codes are there when the sums
of features are made: X'X and X'B come from one pass. From then on W is known when V is, and one
pass makes ``X W'``, the new codes and their X'B, from which the next W is solved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from oasis.arrays import Array, Rows, generator_at, random_signs
from oasis.codes import Codes, pack
from oasis.labels import LabelSpace
from oasis.model.gram import product, transposed_product
from oasis.model.ridge import Ridge, RidgeFit
from oasis.model.round import Published
from oasis.model.updates import (
    SemanticSums,
    Weights,
    after_ones,
    b_step,
    feasible_rank,
    turns,
    z_target,
)
from oasis.scale.dask.blocks import Place, places
from oasis.scale.dask.cluster import Cluster
from oasis.scale.dask.cluster_rows import Part, Reading, feature_sums, feature_tiles, signs

if TYPE_CHECKING:
    from distributed import Future

Draws: TypeAlias = Mapping[str, Any]
"""State of the generator from which a block's random numbers are drawn."""


@dataclass(frozen=True)
class Setting:
    """Arguments of every task of a round; small, and sent once.

    Attributes
    ----------
    labels : the classes, without their source of words
    n : rows of the chunk
    reading : how features are read
    """

    labels: LabelSpace
    weights: Weights
    n_bits: int
    n: int
    reading: Reading


class ClusterSampleRows:
    """The rows of a chunk on the workers, for `oasis.model.round.iterations`.

    Draws are those of a chunk in one piece: the same generator, rows in order. Afterwards the
    generator has the state that a round in one piece would leave.
    """

    def __init__(
        self,
        cluster: Cluster,
        parts: Sequence[Part],
        reading: Reading,
        problem: Published,
        rng: np.random.Generator,
    ) -> None:
        n_bits, n = problem.n_bits, problem.L.shape[0]
        setting = Setting(problem.labels.closed(), problem.weights, n_bits, n, reading)
        self._cluster, self._parts, self._setting = cluster, parts, setting
        self._common = [cluster.constant(setting)]
        self._L = [part.L for part in parts]
        self._sizes = [part.sizes for part in parts]
        self._ridges, self._fits = problem.ridges, dict[str, RidgeFit]()
        self._XB: tuple[Array, ...] = ()
        self._solutions: Future | None = None
        starts = self._in_order(lambda n: _signs_drawn(rng, n * n_bits))
        self._codes = cluster.map(_random_codes, starts, self._sizes, common=[n_bits])
        self.U: Array = rng.standard_normal((setting.labels.n_features, n_bits))
        self._rank = feasible_rank(n, n_bits)
        # the number of draws that a normal takes varies: they are made here once, to know where
        # each block's begin, and made again by the workers if they are needed
        self._noise_starts = self._in_order(lambda n: _normals_drawn(rng, n * self._rank))
        self._V: list[Future] = []

    def coded(self) -> Array:
        parts = self._cluster.map(_coded, self._codes, self._L, common=self._common)
        BG: Array = self._cluster.total(parts)
        return BG

    def predict(self) -> None:
        # the features are multiplied by W where they are read next, in `code`
        self._solutions = self._cluster.constant(self._solved())

    def relax(self, BG: Array, U: Array) -> tuple[Array, Array]:
        cluster, n = self._cluster, self._setting.n
        sums = cluster.constant((BG, U))
        Z = cluster.map(_target, self._codes, self._L, common=[sums, *self._common])
        self._V = self._v_step(Z, n) if self._rank else cluster.map(np.zeros_like, Z)
        parts = cluster.map(_relaxed, self._V, self._L, common=self._common)
        GV, VV = cluster.total(parts)
        return GV, VV

    def _v_step(self, Z: list[Future], n: int) -> list[Future]:
        """Return V in blocks: `oasis.model.updates.v_step` with a tree in place of one QR."""
        cluster = self._cluster
        mean = cluster.total(cluster.map(_column_sums, Z)) / n
        Z = cluster.map(_minus, Z, common=[mean])
        mean = cluster.total(cluster.map(_column_sums, Z)) / n
        pairs, tops, R = self._qr(_centred_factor, Z, common=[mean, n])
        left, right = turns(R, n)
        missing = len(right) - left.shape[1]
        # the first column of the basis is the vector of ones, which P does not have
        left = np.vstack([np.zeros(left.shape[1]), left])
        if not missing:
            return cluster.map(
                _v_rows, pairs, tops, common=[cluster.constant((left, np.sqrt(n) * right))]
            )
        P = cluster.map(_basis_rows, pairs, tops, common=[cluster.constant(left)])
        P = self._completed(P, missing)
        return cluster.map(_turned, P, common=[cluster.constant(np.sqrt(n) * right)])

    def code(self, GV: Array) -> None:
        cluster, sums = self._cluster, self._cluster.constant(GV)
        if self._solutions is None:
            self._codes = cluster.map(_code, self._V, self._L, common=[sums, *self._common])
            return
        both = cluster.map(
            _code_by_features,
            [part.sources for part in self._parts],
            [part.rows for part in self._parts],
            self._V,
            self._L,
            common=[self._solutions, sums, *self._common],
        )
        self._codes = cluster.map(itemgetter(0), both)
        self._XB = cluster.total(cluster.map(itemgetter(1), both))

    def sums(self) -> SemanticSums:
        parts = self._cluster.map(_sums, self._codes, self._V, self._L, common=self._common)
        sums: SemanticSums = self._cluster.total(parts)
        return sums

    def regressions(self) -> dict[str, Ridge]:
        self._solved()
        return {name: fit.finish() for name, fit in self._fits.items()}

    def codes(self) -> Codes:
        codes = np.empty((self._setting.n, self._setting.n_bits // 8), dtype=np.uint8)
        for part, each in zip(self._parts, self._cluster.gather(self._codes), strict=True):
            for place, _, where in part.rows:
                codes[place.rows] = each[where]
        return codes

    def _solved(self) -> dict[str, Array]:
        """Return W' (d, r) of each modality for the codes as they stand."""
        if not self._fits:
            reading, ridges = self._setting.reading, self._ridges
            sums = feature_sums(self._cluster, self._parts, ridges, reading, self._codes)
            self._fits = {name: each.fit(ridges[name]) for name, each in sums.items()}
            self._XB = tuple(each.targets for each in sums.values())
        fits = zip(self._fits.items(), self._XB, strict=True)
        return {name: fit.solve(XB) for (name, fit), XB in fits}

    def _in_order(self, draw: Callable[[int], Draws]) -> list[list[Draws]]:
        """Return what ``draw`` says of the rows of each block, asked in the order of the chunk."""
        blocks = [
            (block.place.first_row, size)
            for part in self._parts
            for block, size in zip(part.blocks, part.sizes, strict=True)
        ]
        drawn = {first_row: draw(size) for first_row, size in sorted(blocks)}
        return [[drawn[block.place.first_row] for block in part.blocks] for part in self._parts]

    def _qr(
        self, factor: Any, *columns: Sequence[Future], common: Sequence[Any] = ()
    ) -> tuple[list[Future], list[Any], Array]:
        """Return (Q, R) of each block, what turns each Q into rows of the whole Q, the whole R."""
        pairs = self._cluster.map(factor, *columns, common=common)
        tops, R = self._cluster.qr(self._cluster.map(itemgetter(1), pairs))
        return pairs, tops, R

    def _completed(self, P: list[Future], missing: int) -> list[Future]:
        """Return P with columns from noise, orthogonal to it and to ones, as in `v_step`."""
        cluster = self._cluster
        basis = cluster.map(after_ones, P, common=[self._setting.n])
        noise = cluster.map(_noise, self._noise_starts, self._sizes, common=[self._rank, missing])
        for _ in range(2):  # a second pass removes the rounding error of the first
            inner = cluster.constant(cluster.total(cluster.map(_inner, basis, noise)))
            noise = cluster.map(_off, noise, basis, common=[inner])
        pairs, tops, _ = self._qr(_joint_factor, basis, noise)
        return cluster.map(_ending, P, pairs, tops, common=[missing])


def _signs_drawn(rng: np.random.Generator, n_draws: int) -> Draws:
    """Return the generator's state, and move it on by as many uniform draws."""
    state = dict(rng.bit_generator.state)
    rng.bit_generator.advance(n_draws)  # type: ignore[attr-defined]
    return state


def _normals_drawn(rng: np.random.Generator, n_draws: int) -> Draws:
    """Return the generator's state, and move it on by as many normal draws."""
    state = dict(rng.bit_generator.state)
    rng.standard_normal(n_draws)
    return state


def _random_codes(starts: list[Draws], sizes: list[int], n_bits: int) -> Codes:
    return np.vstack(
        [
            pack(random_signs(generator_at(state), (n, n_bits)))
            for state, n in zip(starts, sizes, strict=True)
        ]
    )


def _noise(starts: list[Draws], sizes: list[int], rank: int, missing: int) -> Array:
    return np.vstack(
        [
            generator_at(state).standard_normal((n, rank))[:, :missing]
            for state, n in zip(starts, sizes, strict=True)
        ]
    )


def _semantics(L: sp.csr_array, setting: Setting) -> Iterator[tuple[slice, Array]]:
    """Yield a few rows at a time: where they stand, and their G."""
    for where in places(L.shape[0]):
        yield where, setting.labels.represent_rows(L[where])


def _coded(codes: Codes, L: sp.csr_array, setting: Setting) -> Array:
    BG = np.zeros((setting.n_bits, setting.labels.n_features))
    for where, G in _semantics(L, setting):
        BG += signs(codes[where]).T @ G
    return BG


def _target(codes: Codes, L: sp.csr_array, sums: tuple[Array, Array], setting: Setting) -> Array:
    BG, U = sums
    Z = np.empty((len(codes), setting.n_bits))
    for where, G in _semantics(L, setting):
        Z[where] = z_target(BG, G, signs(codes[where]), U, setting.weights)
    return Z


def _relaxed(V: Array, L: sp.csr_array, setting: Setting) -> tuple[Array, Array]:
    GV = np.zeros((setting.labels.n_features, setting.n_bits))
    for where, G in _semantics(L, setting):
        GV += G.T @ V[where]
    return GV, V.T @ V


def _code(V: Array, L: sp.csr_array, GV: Array, setting: Setting) -> Codes:
    codes = np.empty((len(V), setting.n_bits // 8), dtype=np.uint8)
    for where, G in _semantics(L, setting):
        nothing = np.zeros_like(V[where])
        codes[where] = pack(b_step(G, GV, V[where], nothing, setting.weights))
    return codes


def _code_by_features(
    sources: list[Any],
    rows: list[tuple[Place, Rows | None, slice]],
    V: Array,
    L: sp.csr_array,
    solutions: Mapping[str, Array],
    GV: Array,
    setting: Setting,
) -> tuple[Codes, tuple[Array, ...]]:
    """Return the codes of the rows, and X'B of each modality for them."""
    codes = np.empty((len(V), setting.n_bits // 8), dtype=np.uint8)
    XB = {name: np.zeros((d, setting.n_bits)) for name, d in setting.reading.widths.items()}
    for where, tile in feature_tiles(sources, rows, setting.reading):
        XW = np.zeros_like(V[where])
        for name, matrix in tile.items():
            XW += product(matrix, solutions[name])
        G = setting.labels.represent_rows(L[where])
        B = b_step(G, GV, V[where], XW, setting.weights)
        codes[where] = pack(B)
        del matrix
        for name in list(tile):
            XB[name] += transposed_product(tile.pop(name), B)
    return codes, tuple(XB.values())


def _sums(codes: Codes, V: Array, L: sp.csr_array, setting: Setting) -> SemanticSums:
    sums = SemanticSums.zero(setting.n_bits).widened(setting.labels.n_features)
    for where, G in _semantics(L, setting):
        B, rows = signs(codes[where]), V[where]
        sums = sums.joined(SemanticSums(B.T @ G, G.T @ rows, rows.T @ rows, len(B)))
    return sums


def _column_sums(Z: Array) -> Array:
    return np.asarray(Z.sum(axis=0))


def _minus(Z: Array, row: Array) -> Array:
    return Z - row


def _centred_factor(Z: Array, mean: Array, n: int) -> tuple[Array, Array]:
    Q, R = np.linalg.qr(after_ones(Z - mean, n))
    return Q, R


def _joint_factor(basis: Array, noise: Array) -> tuple[Array, Array]:
    Q, R = np.linalg.qr(np.hstack([basis, noise]))
    return Q, R


def _basis_rows(pair: tuple[Array, Array], top: Array, left: Array) -> Array:
    return pair[0] @ (top @ left)


def _turned(P: Array, right: Array) -> Array:
    return P @ right


def _v_rows(pair: tuple[Array, Array], top: Array, both: tuple[Array, Array]) -> Array:
    left, right = both
    return _turned(_basis_rows(pair, top, left), right)


def _inner(basis: Array, noise: Array) -> Array:
    return basis.T @ noise


def _off(noise: Array, basis: Array, inner: Array) -> Array:
    return noise - basis @ inner


def _ending(P: Array, pair: tuple[Array, Array], top: Array, missing: int) -> Array:
    return np.hstack([P, pair[0] @ top[:, -missing:]])
