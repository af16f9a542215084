"""The rows of a chunk on the workers: codes, relaxed codes and all that is as long as the chunk.

Beside the block that it reads, a worker keeps for each row of its blocks the packed code and, from
one reduction to the next, at most three float64 rows as long as a code (Z or V, the basis of the
V step, the predictions). The semantic representation G is made from the labels where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from oasis.arrays import Array, Matrix, Rows
from oasis.codes import Codes, pack, unpack
from oasis.labels import LabelSpace
from oasis.model.codewords import (
    sample_codes,
)
from oasis.model.gram import (
    product,
    transposed_product,
)
from oasis.model.readout import Codebook
from oasis.model.ridge import RidgeFit
from oasis.model.updates import (
    Sums,
    Weights,
    after_ones,
    b_step,
    feasible_rank,
    random_signs,
    turns,
    z_target,
)
from oasis.scale.dask.blocks import (
    Block,
    Place,
    places,
    read_samples,
    tiles,
)
from oasis.scale.dask.cluster import Cluster

if TYPE_CHECKING:
    from distributed import Future

Draws: TypeAlias = Mapping[str, Any]
"""State of the generator from which a block's random numbers are drawn."""


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
    normalize: bool
    widths: Mapping[str, int]


@dataclass(frozen=True)
class Part:
    """The blocks that one thread of the cluster works on, one after the other.

    Attributes
    ----------
    blocks : where their features are
    chosen : which rows of each block are learned; None for all
    sizes : how many rows of each block are learned
    L : future of the labels (n, c), as 0 and 1, of all learned rows
    """

    blocks: list[Block]
    chosen: list[Rows | None]
    sizes: list[int]
    L: Future

    @property
    def sources(self) -> list[Any]:
        """What tasks are to read; an argument of its own, see `Block`."""
        return [block.source for block in self.blocks]

    @property
    def rows(self) -> list[tuple[Place, Rows | None, slice]]:
        """Of each block its place, the rows to learn, and where they stand in the part."""
        ends = np.cumsum([0, *self.sizes])
        where = [slice(int(a), int(b)) for a, b in pairwise(ends)]
        return [
            (block.place, rows, here)
            for block, rows, here in zip(self.blocks, self.chosen, where, strict=True)
        ]


class CodedRows:
    """The rows of a chunk on the workers, with their codes.

    Parameters
    ----------
    codes : per part, the future of its packed codes
    """

    def __init__(
        self, cluster: Cluster, parts: Sequence[Part], setting: Setting, codes: list[Future]
    ) -> None:
        self._cluster, self._parts, self._setting, self._codes = cluster, parts, setting, codes
        self._common = [cluster.constant(setting)]
        self._L = [part.L for part in parts]

    @classmethod
    def of_classes(
        cls, cluster: Cluster, parts: Sequence[Part], setting: Setting, codewords: Array
    ) -> CodedRows:
        """Return the rows with the codes that the codewords (c, r) of their classes make."""
        labels, common = [part.L for part in parts], [cluster.constant(codewords)]
        return cls(cluster, parts, setting, cluster.map(_class_codes, labels, common=common))

    def targets(self) -> dict[str, Array]:
        """Return ``X'B`` (d, r) of the chunk as it stands, by modality."""
        names = tuple(self._setting.widths)
        parts = self._over_features(_targets, self._codes)
        return dict(zip(names, self._cluster.total(parts), strict=True))

    def book(self) -> Codebook:
        """Return the codebook of the chunk's rows alone."""
        parts = self._cluster.map(_book, self._codes, self._L, common=self._common)
        book: Codebook = self._cluster.total(parts)
        return book

    def codes(self) -> Iterator[tuple[Place, Codes]]:
        """Yield the packed codes of the learned rows of each block."""
        for part, codes in zip(self._parts, self._cluster.gather(self._codes), strict=True):
            for place, _, where in part.rows:
                yield place, codes[where]

    def _over_features(self, function: Any, *columns: Any, common: Any = ()) -> list[Future]:
        return self._cluster.map(
            function,
            [part.sources for part in self._parts],
            [part.rows for part in self._parts],
            *columns,
            common=[*common, *self._common],
        )


class RelaxedRows(CodedRows):
    """The rows of a chunk on the workers, as `oasis.model.updates.alternate` wants them.

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
        super().__init__(cluster, parts, setting, [])
        n_bits = setting.n_bits
        self._fits, self._sizes = fits, [part.sizes for part in parts]
        starts = self._in_order(lambda n: _signs_drawn(rng, n * n_bits))
        self._codes = cluster.map(_random_codes, starts, self._sizes, common=[n_bits])
        self.U: Array = rng.standard_normal((setting.labels.n_features, n_bits))
        self._rank = feasible_rank(setting.n, n_bits)
        # the number of draws that a normal takes varies: they are made here once, to know where
        # each block's begin, and made again by the workers if they are needed
        self._noise_starts = self._in_order(lambda n: _normals_drawn(rng, n * self._rank))
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
        sums = self._cluster.constant(GV)
        self._codes = self._cluster.map(
            _code, self._V, self._L, self._XW, common=[sums, *self._common]
        )

    def sums(self) -> Sums:
        """Return the sums of the chunk's rows alone."""
        parts = self._cluster.map(_sums, self._codes, self._V, self._L, common=self._common)
        sums: Sums = self._cluster.total(parts)
        return sums

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
        tops, R = self._cluster.qr(self._cluster.map(_triangle, pairs))
        return pairs, tops, R

    def _completed(self, P: list[Future], missing: int) -> list[Future]:
        """Return P with columns from noise, orthogonal to it and to ones, as in `v_step`."""
        cluster = self._cluster
        basis = cluster.map(after_ones, P, common=[self._setting.n])
        noise = cluster.map(_noise, self._noise_starts, self._sizes, common=[self._rank, missing])
        for _ in range(2):  # once more, for what the first pass left by rounding
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


def _generator(state: Draws) -> np.random.Generator:
    bits = np.random.PCG64()
    bits.state = state  # type: ignore[assignment]
    return np.random.Generator(bits)


def _random_codes(starts: list[Draws], sizes: list[int], n_bits: int) -> Codes:
    return np.vstack(
        [
            pack(random_signs(_generator(state), n, n_bits))
            for state, n in zip(starts, sizes, strict=True)
        ]
    )


def _noise(starts: list[Draws], sizes: list[int], rank: int, missing: int) -> Array:
    return np.vstack(
        [
            _generator(state).standard_normal((n, rank))[:, :missing]
            for state, n in zip(starts, sizes, strict=True)
        ]
    )


def _signs(codes: Codes) -> Array:
    return unpack(codes).astype(np.float64)


def _class_codes(L: sp.csr_array, codewords: Array) -> Codes:
    codes = np.empty((L.shape[0], codewords.shape[1] // 8), dtype=np.uint8)
    for where in places(L.shape[0]):
        codes[where] = pack(sample_codes(L[where], codewords))
    return codes


def _semantics(L: sp.csr_array, setting: Setting) -> Iterator[tuple[slice, Array]]:
    """Yield a few rows at a time: where they stand, and their G."""
    for where in places(L.shape[0]):
        yield where, setting.labels.represent_rows(L[where])


def _coded(codes: Codes, L: sp.csr_array, setting: Setting) -> Array:
    BG = np.zeros((setting.n_bits, setting.labels.n_features))
    for where, G in _semantics(L, setting):
        BG += _signs(codes[where]).T @ G
    return BG


def _target(codes: Codes, L: sp.csr_array, sums: tuple[Array, Array], setting: Setting) -> Array:
    BG, U = sums
    Z = np.empty((len(codes), setting.n_bits))
    for where, G in _semantics(L, setting):
        Z[where] = z_target(BG, G, _signs(codes[where]), U, setting.weights)
    return Z


def _relaxed(V: Array, L: sp.csr_array, setting: Setting) -> tuple[Array, Array]:
    GV = np.zeros((setting.labels.n_features, setting.n_bits))
    for where, G in _semantics(L, setting):
        GV += G.T @ V[where]
    return GV, V.T @ V


def _code(V: Array, L: sp.csr_array, XW: Array | None, GV: Array, setting: Setting) -> Codes:
    codes = np.empty((len(V), setting.n_bits // 8), dtype=np.uint8)
    for where, G in _semantics(L, setting):
        predicted = np.zeros_like(V[where]) if XW is None else XW[where]
        codes[where] = pack(b_step(G, GV, V[where], predicted, setting.weights))
    return codes


def _sums(codes: Codes, V: Array, L: sp.csr_array, setting: Setting) -> Sums:
    sums = Sums.zero(setting.n_bits).widened(setting.labels.n_features)
    for where, G in _semantics(L, setting):
        sums = sums.plus(_signs(codes[where]), G, V[where])
    return sums


def _book(codes: Codes, L: sp.csr_array, setting: Setting) -> Codebook:
    book = Codebook.zero(setting.n_bits)
    for where in places(L.shape[0]):
        book = book.plus(_signs(codes[where]), L[where])
    return book


def _targets(
    sources: list[Any],
    rows: list[tuple[Place, Rows | None, slice]],
    codes: Codes,
    setting: Setting,
) -> tuple[Array, ...]:
    totals = {name: np.zeros((d, setting.n_bits)) for name, d in setting.widths.items()}
    for where, tile in feature_tiles(sources, rows, setting):
        B = _signs(codes[where])
        for name in list(tile):
            totals[name] += transposed_product(tile.pop(name), B)
    return tuple(totals.values())


def _predicted(
    sources: list[Any],
    rows: list[tuple[Place, Rows | None, slice]],
    solutions: Mapping[str, Array],
    setting: Setting,
) -> Array:
    XW = np.zeros((rows[-1][2].stop, setting.n_bits))
    for where, tile in feature_tiles(sources, rows, setting):
        for name in list(tile):
            XW[where] += product(tile.pop(name), solutions[name])
    return XW


def feature_tiles(
    sources: list[Any], rows: list[tuple[Place, Rows | None, slice]], setting: Setting
) -> Iterator[tuple[slice, dict[str, Matrix]]]:
    """Read a part's blocks, one after the other, and yield the learned rows a few at a time.

    Every row of every block is checked. What is yielded may be a view of the block: take it out of
    the mapping, and let go of it before asking for more, or two blocks are held.
    """
    for source, (place, chosen, here) in zip(sources, rows, strict=True):
        X = read_samples(source, place, setting.widths)
        for where, tile in tiles(X, chosen, setting.normalize):
            yield slice(here.start + where.start, here.start + where.stop), tile
            del tile
        del X


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
