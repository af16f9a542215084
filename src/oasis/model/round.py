"""One round over the rows of a chunk, in memory or on a cluster.

A round is written once, in `OASIS.run_round` and `PublishedOASIS.run_round`. It asks its rows for
sums and products, through the protocol `ChunkRows`: rows in memory (`RowsInMemory`), or rows on a
cluster (`oasis.scale.dask`). The results have the size of the state, or are one code per row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from oasis.arrays import Array, Matrix, Rows, Single, random_signs, unit_rows
from oasis.codes import Codes, pack
from oasis.model.hash_functions import Mask
from oasis.model.ridge import Ridge, start_round, with_constant
from oasis.model.threads import one_thread
from oasis.model.updates import (
    SemanticSums,
    Weights,
    b_step,
    feasible_rank,
    u_step,
    v_step,
    z_target,
)

if TYPE_CHECKING:
    import scipy.sparse as sp

    from oasis.labels import LabelSpace


class Projector(Protocol):
    """A map from features, scaled to unit length or not, to real values."""

    def project(self, X: Mapping[str, Matrix]) -> Single:
        """Return (n, m) float32."""


class Targets(Projector, Protocol):
    """A map from the features of a row to the targets of a regression."""

    @property
    def n_values(self) -> int:
        """Number of targets."""


class ChunkRows(Protocol):
    """The rows of one chunk."""

    def sample(self, n: int, chosen: Mask) -> dict[str, Matrix]:
        """Return the features of at most n of the chosen rows, evenly spaced, in memory."""

    def regress(
        self,
        ridges: Mapping[str, Ridge],
        chosen: Mask,
        L: sp.csr_array,
        others: Mapping[str, Targets],
    ) -> dict[str, Ridge]:
        """Return the regressions with intercepts whose sums include the chosen rows.

        The last feature of a ridge is a constant, see `with_constant`.

        Parameters
        ----------
        L : (n_chosen, c), labels of the chosen rows as 0 and 1: the last c targets of every ridge
        others : modality -> map from all features of a row to the first targets of its ridge
        """

    def codes(self, function: Projector, n_bits: int, chosen: Mask) -> Codes:
        """Return the packed signs of a function of the chosen rows, (n_chosen, n_bits / 8)."""

    def sample_rows(self, problem: Published, rng: np.random.Generator) -> SampleRows:
        """Return the rows in the form that the published round uses, with a random start."""


@dataclass(frozen=True)
class Published:
    """What the published round over a chunk starts from.

    Attributes
    ----------
    labels : the label space, which knows all classes of the chunk
    L : (n, c), labels of the rows as 0 and 1
    ridges : per modality, the regression on codes before the chunk
    weights : of the loss
    n_bits : r
    """

    labels: LabelSpace
    L: sp.csr_array
    ridges: Mapping[str, Ridge]
    weights: Weights
    n_bits: int


class SampleRows(Protocol):
    """Rows whose codes are found one by one, by the steps of `oasis.model.updates`.

    B starts as random signs, U as random normal, and ``X W'`` as zero; the draws are those of the
    generator in this order: B, U, and the completion of V.
    """

    U: Array

    def coded(self) -> Array:
        """Return ``B'G`` (r, f) of the rows with their present codes."""

    def predict(self) -> None:
        """Set ``sum_m X_m W_m'``, with W solved from the sums with the present B."""

    def relax(self, BG: Array, U: Array) -> tuple[Array, Array]:
        """Do the V step, given ``sum B'G`` (r, f); return the chunk's ``G'V`` and ``V'V``."""

    def code(self, GV: Array) -> None:
        """Do the B step, given ``sum G'V`` (f, r)."""

    def sums(self) -> SemanticSums:
        """Return the sums of these rows alone."""

    def regressions(self) -> dict[str, Ridge]:
        """Return the regressions whose sums include the rows with their present codes."""

    def codes(self) -> Codes:
        """Return the packed codes, (n, r / 8)."""


def iterations(
    rows: SampleRows, sums: SemanticSums, weights: Weights, n_iter: int
) -> Iterator[Array]:
    """Run the iterations of one published round and yield the U (f, r) of each.

    ``sums`` are those of all earlier chunks, as wide as the label space of the rows.
    """
    U = rows.U
    for step in range(n_iter):
        if step:  # W starts at zero, so the first B step has no W term
            rows.predict()
        chunk_GV, chunk_VV = rows.relax(sums.BG + rows.coded(), U)
        GV = sums.GV + chunk_GV  # (f, r)
        U = u_step(GV, sums.VV + chunk_VV, weights)
        rows.code(GV)
        yield U


class RowsInMemory:
    """The rows of a chunk in memory.

    Parameters
    ----------
    X : checked features by modality
    unit_length : whether each row is scaled to unit length, modality by modality
    """

    def __init__(self, X: Mapping[str, Matrix], unit_length: bool) -> None:
        self._X = {name: unit_rows(x) for name, x in X.items()} if unit_length else dict(X)

    def sample(self, n: int, chosen: Mask) -> dict[str, Matrix]:
        rows = evenly_spaced(np.flatnonzero(chosen), n)
        return {name: matrix[rows] for name, matrix in self._X.items()}

    def regress(
        self,
        ridges: Mapping[str, Ridge],
        chosen: Mask,
        L: sp.csr_array,
        others: Mapping[str, Targets],
    ) -> dict[str, Ridge]:
        X = self._chosen(chosen)
        regressed = {}
        for name, matrix in X.items():
            values = [others[name].project(X).astype(np.float64)] if name in others else []
            regressed[name] = start_round(ridges[name], with_constant(matrix)).finish(*values, L)
        return regressed

    def codes(self, function: Projector, n_bits: int, chosen: Mask) -> Codes:
        return pack(function.project(self._chosen(chosen)))

    def sample_rows(self, problem: Published, rng: np.random.Generator) -> SampleRowsInMemory:
        return SampleRowsInMemory(self._X, problem, rng)

    def _chosen(self, chosen: Mask) -> dict[str, Matrix]:
        if chosen.all():
            return self._X
        rows = np.flatnonzero(chosen)
        return {name: matrix[rows] for name, matrix in self._X.items()}


class SampleRowsInMemory:
    """All rows of a published round, in memory.

    Attributes
    ----------
    G : (n, f) semantic representation
    B : (n, r) present codes, +1 and -1
    V : (n, r) relaxed codes
    U : (f, r) random start
    """

    def __init__(
        self, X: Mapping[str, Matrix], problem: Published, rng: np.random.Generator
    ) -> None:
        n_bits = problem.n_bits
        self.G = problem.labels.represent_rows(problem.L)
        self.B = random_signs(rng, (len(self.G), n_bits))
        self.V = np.zeros_like(self.B)
        self.U = rng.standard_normal((self.G.shape[1], n_bits))
        self._noise = rng.standard_normal((len(self.G), feasible_rank(len(self.G), n_bits)))
        self._XW = np.zeros_like(self.B)
        self._rounds = {
            name: start_round(problem.ridges[name], matrix) for name, matrix in X.items()
        }
        self._weights = problem.weights

    @one_thread()
    def coded(self) -> Array:
        return self.B.T @ self.G

    def predict(self) -> None:
        self._XW = np.asarray(sum(each.predict(self.B) for each in self._rounds.values()))

    @one_thread()
    def relax(self, BG: Array, U: Array) -> tuple[Array, Array]:
        Z = z_target(BG, self.G, self.B, U, self._weights)
        self.V = v_step(Z, self._noise)
        return self.G.T @ self.V, self.V.T @ self.V

    def code(self, GV: Array) -> None:
        self.B = b_step(self.G, GV, self.V, self._XW, self._weights)

    @one_thread()
    def sums(self) -> SemanticSums:
        return SemanticSums(self.B.T @ self.G, self.G.T @ self.V, self.V.T @ self.V, len(self.B))

    def regressions(self) -> dict[str, Ridge]:
        return {name: each.finish(self.B) for name, each in self._rounds.items()}

    def codes(self) -> Codes:
        return pack(self.B)


def evenly_spaced(rows: Rows, most: int) -> Rows:
    """Return at most ``most`` of these rows, evenly spaced and in order.

    >>> evenly_spaced(np.arange(10), 4).tolist(), evenly_spaced(np.arange(3), 4).tolist()
    ([0, 2, 5, 7], [0, 1, 2])
    """
    n = len(rows)
    return rows if n <= most else rows[np.arange(most, dtype=np.int64) * n // most]
