"""The rows of a chunk on the workers: codes, relaxed codes and all that is as long as the chunk.

Beside the block that it reads, a worker keeps for each row of its blocks the packed code and, from
one reduction to the next, at most three float64 rows as long as a code (Z or V, the basis of the
V step, the predictions). The semantic representation G is made from the labels where it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from oasis.codebook import Codebook
from oasis.codes import Codes, pack, unpack
from oasis.gram import product, transposed_product
from oasis.labels import LabelSpace
from oasis.ridge import RidgeFit
from oasis.scale.blocks import Block, Place, Rows, read_samples, tiles
from oasis.scale.cluster import Cluster
from oasis.updates import (
    Array,
    Pull,
    Sums,
    Weights,
    after_ones,
    b_step,
    balanced_pull,
    feasible_rank,
    plain_pull,
    random_signs,
    turns,
    z_target,
)

if TYPE_CHECKING:
    from distributed import Future


@dataclass(frozen=True)
class Setting:
    """What every task of a round knows; small, and sent once.

    Attributes
    ----------
    labels : the classes, without their source of words
    n : rows of the chunk that are learned
    """

    labels: LabelSpace
    weights: Weights
    n_bits: int
    n: int
    balanced: bool
    normalize: bool
    widths: Mapping[str, int]

    def pull(self, L: sp.csr_array, G: Array) -> Pull:
        if self.balanced:
            return balanced_pull(L, self.labels.vectors(), self.n)
        return plain_pull(G)


@dataclass(frozen=True)
class Part:
    """The learned rows of one block.

    Attributes
    ----------
    block : where their features are
    rows : which rows of the block they are; None for all
    L : future of their labels (n, c) as 0 and 1
    n : how many they are
    """

    block: Block
    rows: Rows | None
    L: Future
    n: int


class ClusterRows:
    """The rows of a chunk on the workers, as `oasis.updates.alternate` wants them.

    Draws are those of a chunk in one piece: the same generator, rows in order.

    Parameters
    ----------
    rng : left where a round in one piece leaves it
    fits : modality -> regression on codes; empty where codes are not predicted
    """

    def __init__(
        self,
        cluster: Cluster,
        parts: Sequence[Part],
        setting: Setting,
        fits: Mapping[str, RidgeFit],
        rng: np.random.Generator,
    ) -> None:
        self._cluster, self._parts, self._setting, self._fits = cluster, parts, setting, fits
        self._common = [cluster.constant(setting)]
        self._L = [part.L for part in parts]
        n_bits = setting.n_bits
        sizes = [part.n for part in parts]
        starts = [_signs_drawn(rng, size * n_bits) for size in sizes]
        self._codes = cluster.map(_random_codes, starts, sizes, common=[n_bits])
        self.U: Array = rng.standard_normal((setting.labels.n_features, n_bits))
        self._rank = feasible_rank(setting.n, n_bits)
        # the number of draws that a normal takes varies: they are made here once, to know where
        # each block's begin, and made again by the workers if they are needed
        self._noise_starts = [_normals_drawn(rng, size * self._rank) for size in sizes]
        self._V: list[Future] = []
        self._XW: list[Any] = [None] * len(parts)

    def coded(self) -> Array:
        parts = self._cluster.map(_coded, self._codes, self._L, common=self._common)
        BG: Array = self._cluster.total(parts)
        return BG

    def predict(self) -> None:
        if not self._fits:
            return
        solutions = {name: self._fits[name].solve(XB) for name, XB in self.targets().items()}
        self._XW = self._over_features(_predicted, common=[self._cluster.constant(solutions)])

    def targets(self) -> dict[str, Array]:
        """Return ``X'B`` (d, r) of the chunk as it stands, by modality."""
        names = tuple(self._setting.widths)
        parts = self._over_features(_targets, self._codes)
        return dict(zip(names, self._cluster.total(parts), strict=True))

    def relax(self, BG: Array, U: Array) -> tuple[Array, Array]:
        cluster, n = self._cluster, self._setting.n
        sums = cluster.constant((BG.T, U))
        Z = cluster.map(_target, self._codes, self._L, common=[sums, *self._common])
        self._V = self._v_step(Z, n) if self._rank else cluster.map(np.zeros_like, Z)
        parts = cluster.map(_relaxed, self._V, self._L, common=self._common)
        GV, VV = cluster.total(parts)
        return GV, VV

    def _v_step(self, Z: list[Future], n: int) -> list[Future]:
        """Return V in blocks: `oasis.updates.v_step` with a tree in place of one QR."""
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
        sums = self._cluster.constant(GV)
        self._codes = self._cluster.map(
            _code, self._V, self._L, self._XW, common=[sums, *self._common]
        )

    def sums(self) -> tuple[Sums, Codebook]:
        """Return the sums and the codebook of the chunk's rows alone."""
        parts = self._cluster.map(_sums, self._codes, self._V, self._L, common=self._common)
        sums, book = self._cluster.total(parts)
        return sums, book

    def codes(self) -> list[Codes]:
        """Return the packed codes of each part."""
        return self._cluster.gather(self._codes)

    def _over_features(self, function: Any, *columns: Any, common: Any = ()) -> list[Future]:
        blocks = [part.block for part in self._parts]
        return self._cluster.map(
            function,
            [block.source for block in blocks],
            [block.place for block in blocks],
            [part.rows for part in self._parts],
            *columns,
            common=[*common, *self._common],
        )

    def _qr(
        self, factor: Any, *columns: Sequence[Future], common: Sequence[Any] = ()
    ) -> tuple[list[Future], list[Any], Array]:
        """Return (Q, R) of each block, what turns each Q into rows of the whole Q, the whole R."""
        pairs = self._cluster.map(factor, *columns, common=common)
        tops, R = self._cluster.qr(self._cluster.map(_triangle, pairs))
        return pairs, tops, R

    def _completed(self, P: list[Future], missing: int) -> list[Future]:
        """Return P with columns from noise, orthogonal to it and to ones, as in `v_step`."""
        cluster = self._cluster
        basis = cluster.map(after_ones, P, common=[self._setting.n])
        sizes = [part.n for part in self._parts]
        noise = cluster.map(_noise, self._noise_starts, sizes, common=[self._rank, missing])
        for _ in range(2):  # once more, for what the first pass left by rounding
            inner = cluster.constant(cluster.total(cluster.map(_inner, basis, noise)))
            noise = cluster.map(_off, noise, basis, common=[inner])
        pairs, tops, _ = self._qr(_joint_factor, basis, noise)
        return cluster.map(_ending, P, pairs, tops, common=[missing])


def _signs_drawn(rng: np.random.Generator, n_draws: int) -> Mapping[str, Any]:
    """Return the generator's state, and move it on by as many uniform draws."""
    state = dict(rng.bit_generator.state)
    rng.bit_generator.advance(n_draws)  # type: ignore[attr-defined]
    return state


def _normals_drawn(rng: np.random.Generator, n_draws: int) -> Mapping[str, Any]:
    """Return the generator's state, and move it on by as many normal draws."""
    state = dict(rng.bit_generator.state)
    rng.standard_normal(n_draws)
    return state


def _generator(state: Mapping[str, Any]) -> np.random.Generator:
    bits = np.random.PCG64()
    bits.state = state  # type: ignore[assignment]
    return np.random.Generator(bits)


def _random_codes(state: Mapping[str, Any], n: int, n_bits: int) -> Codes:
    return pack(random_signs(_generator(state), n, n_bits))


def _noise(state: Mapping[str, Any], n: int, rank: int, missing: int) -> Array:
    return _generator(state).standard_normal((n, rank))[:, :missing].copy()


def _signs(codes: Codes) -> Array:
    return unpack(codes).astype(np.float64)


def _coded(codes: Codes, L: sp.csr_array, setting: Setting) -> Array:
    return _signs(codes).T @ setting.labels.represent_rows(L)


def _target(codes: Codes, L: sp.csr_array, sums: tuple[Array, Array], setting: Setting) -> Array:
    T, U = sums
    G = setting.labels.represent_rows(L)
    return z_target(setting.pull(L, G)(T), G, _signs(codes), U, setting.weights)


def _relaxed(V: Array, L: sp.csr_array, setting: Setting) -> tuple[Array, Array]:
    return setting.labels.represent_rows(L).T @ V, V.T @ V


def _code(V: Array, L: sp.csr_array, XW: Array | None, GV: Array, setting: Setting) -> Codes:
    pulled = setting.pull(L, setting.labels.represent_rows(L))(GV)
    return pack(b_step(pulled, V, np.zeros_like(V) if XW is None else XW, setting.weights))


def _sums(codes: Codes, V: Array, L: sp.csr_array, setting: Setting) -> tuple[Sums, Codebook]:
    B, G = _signs(codes), setting.labels.represent_rows(L)
    n_bits = setting.n_bits
    return Sums.zero(n_bits).widened(G.shape[1]).plus(B, G, V), Codebook.zero(n_bits).plus(B, L)


def _targets(
    source: Any, place: Place, rows: Rows | None, codes: Codes, setting: Setting
) -> tuple[Array, ...]:
    X, B = read_samples(source, place, setting.widths), _signs(codes)
    totals = {name: np.zeros((d, setting.n_bits)) for name, d in setting.widths.items()}
    for where, tile in tiles(X, rows, setting.normalize):
        for name, matrix in tile.items():
            totals[name] += transposed_product(matrix, B[where])
    return tuple(totals.values())


def _predicted(
    source: Any,
    place: Place,
    rows: Rows | None,
    solutions: Mapping[str, Array],
    setting: Setting,
) -> Array:
    X = read_samples(source, place, setting.widths)
    pieces = [
        np.asarray(sum(product(matrix, solutions[name]) for name, matrix in tile.items()))
        for _, tile in tiles(X, rows, setting.normalize)
    ]
    return np.vstack(pieces)


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


def _triangle(pair: tuple[Array, Array]) -> Array:
    return pair[1]


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
