"""Base of batch methods, which keep everything seen and retrain on all of it at each chunk."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.linalg import blas

from oasis.arrays import Array, GeneratorState, Matrix, generator_at
from oasis.baselines.shared.classes import grown, indicator_of
from oasis.baselines.shared.kernel import (
    AnchorKernel,
    Width,
    blocks,
    check_widths,
    chosen_width,
    mean_squared_distance,
)
from oasis.baselines.shared.parameters import (
    check_choice,
    check_count,
    check_unchanged,
    first_state,
)
from oasis.codes import Codes, check_n_bits, pack
from oasis.hashers.chunk import (
    Chunk,
    check_features,
    check_finite,
)
from oasis.hashers.learner import (
    Learner,
)

Precision: TypeAlias = Literal["float32", "float64"]


def as_kept(matrix: Matrix, dtype: Precision) -> Matrix:
    """Return the features in the precision in which they are stored; float32 stays float32."""
    if dtype == "float64" or matrix.dtype == np.float32:
        return matrix
    with np.errstate(over="ignore"):  # infinity is refused later, when distances are computed
        if isinstance(matrix, sp.csr_array):
            return sp.csr_array(matrix.astype(np.float32))
        return matrix.astype(np.float32)


@dataclass(frozen=True)
class Seen:
    """The features and label sets of everything seen, as one matrix per chunk to avoid copies.

    Attributes
    ----------
    X : modality name -> one matrix per chunk, dense or CSR like the first of them
    labels : one list of label sets per chunk
    """

    X: dict[str, tuple[Matrix, ...]]
    labels: tuple[list[tuple[str, ...]], ...]

    @classmethod
    def nothing(cls, names: Mapping[str, Any]) -> Seen:
        return cls(dict.fromkeys(names, ()), ())

    def plus(self, chunk: Chunk, dtype: Precision) -> Seen:
        """Return what has been seen after a chunk; the chunk's features are copied."""
        X = {
            name: (*self.X[name], _like(self.X[name], as_kept(matrix, dtype).copy()))
            for name, matrix in chunk.X.items()
        }
        return Seen(X, (*self.labels, chunk.labels))

    @property
    def n_samples(self) -> int:
        return sum(len(each) for each in self.labels)

    @property
    def widths(self) -> dict[str, int]:
        return {name: int(chunks[0].shape[1]) for name, chunks in self.X.items()}

    @property
    def label_sets(self) -> list[tuple[str, ...]]:
        return [names for each in self.labels for names in each]

    def kernel(
        self, name: str, rows: npt.NDArray[np.intp], sigma: Width, *, bias: bool
    ) -> AnchorKernel:
        """Return the kernel whose anchors are these rows of one modality.

        With ``sigma="mean"``, sigma^2 is the mean squared distance between all nonzero rows and the
        anchors; 1 if all of them coincide.
        """
        parts: list[Any] = []
        start = 0
        for matrix in self.X[name]:
            inside = rows[(rows >= start) & (rows < start + matrix.shape[0])]
            parts.append(matrix[np.sort(inside) - start])
            start += matrix.shape[0]
        anchors: Matrix = (
            sp.csr_array(sp.vstack(parts)) if sp.issparse(parts[0]) else np.concatenate(parts)
        )
        mean = mean_squared_distance(self.X[name], anchors)
        return AnchorKernel(anchors, chosen_width(sigma, mean, name), bias)


@dataclass(frozen=True)
class KernelRows:
    """The kernel features of everything seen, in one modality.

    Attributes
    ----------
    kernel : maps features to phi
    phi : (n, p), float32 or float64; products with it are float64, computed in blocks of rows
    """

    kernel: AnchorKernel
    phi: npt.NDArray[Any]

    @classmethod
    def of(cls, kernel: AnchorKernel, chunks: tuple[Matrix, ...], dtype: Precision) -> KernelRows:
        """Return the features of all chunks. Cost: n p d."""
        n_samples = sum(int(matrix.shape[0]) for matrix in chunks)
        phi = np.empty((n_samples, kernel.n_features), dtype=dtype)
        start = 0
        for matrix in chunks:
            for block in blocks(matrix.shape[0]):
                part = kernel.features(matrix[block])
                phi[start : start + len(part)] = part
                start += len(part)
        return cls(kernel, phi)

    def gram(self) -> Array:
        """Return ``phi'phi`` (p, p), Fortran order, lower triangle only. Cost: n p^2."""
        p = self.phi.shape[1]
        total = np.zeros((p, p), order="F")
        for rows in blocks(len(self.phi)):
            block = self.phi[rows].astype(np.float64, copy=False)
            total = blas.dsyrk(1.0, block.T, beta=1.0, c=total, lower=1, overwrite_c=1)
        return total

    def squares(self) -> float:
        """Return ``|phi|^2``."""
        return sum(
            float(np.square(self.phi[rows], dtype=np.float64).sum())
            for rows in blocks(len(self.phi))
        )

    def times(self, right: Array) -> Array:
        """Return ``phi right`` (n, m) for right (p, m). Cost: n p m."""
        product = np.zeros((len(self.phi), right.shape[1]))
        self.add_times(right, product)
        return product

    def add_times(self, right: Array, total: Array) -> None:
        """Add ``phi right`` to ``total`` (n, m), in place."""
        for rows in blocks(len(total)):
            total[rows] += self.phi[rows].astype(np.float64, copy=False) @ right

    def transposed_times(self, right: Array) -> Array:
        """Return ``phi' right`` (p, m) for right (n, m). Cost: n p m."""
        product = np.zeros((self.phi.shape[1], right.shape[1]))
        for rows in blocks(len(right)):
            product += self.phi[rows].astype(np.float64, copy=False).T @ right[rows]
        return product


class Encoder(Protocol):
    """The hash function that a training returns."""

    def project(self, X: Mapping[str, Matrix]) -> npt.NDArray[np.float32]:
        """Return the (n, r) projections of a non-empty subset of the modalities."""


@dataclass(frozen=True)
class BatchState:
    """Everything seen, and the result of the last training.

    ``seed`` is the generator's state at the start of every training, so that the model does not
    depend on how the samples are divided into chunks.
    """

    seen: Seen
    seed: GeneratorState
    encoder: Encoder
    all_codes: Codes
    classes: tuple[str, ...]
    dtype: Precision

    @property
    def n_bits(self) -> int:
        return int(self.all_codes.shape[1]) * 8

    @property
    def n_seen(self) -> int:
        return len(self.all_codes)

    @property
    def widths(self) -> dict[str, int]:
        return self.seen.widths


class BatchHasher(Learner[BatchState]):
    """A kernel method that is retrained on everything seen at each chunk.

    Attributes
    ----------
    codes_ : (n, n_bits / 8) uint8
        The last chunk's codes.
    all_codes_ : (n_seen_, n_bits / 8) uint8
        The codes of everything seen, in order of arrival, which replace the stored ones.
    """

    is_batch: ClassVar[bool] = True
    _bias: ClassVar[bool]
    _published_widths: ClassVar[Mapping[str, float]] = {}

    n_anchors: int
    sigma: Width | Mapping[str, Width] | None
    dtype: Precision
    random_state: int | np.random.Generator | None

    @property
    def all_codes_(self) -> Codes:
        return self.learned.all_codes

    def project(self, X: Mapping[str, Any]) -> npt.NDArray[np.float32]:
        """Return the (n, n_bits) float32 projections, whose signs are the codes.

        They depend on the other rows of X; see the class. X may have any subset of the modalities.
        """
        state = self.learned
        features = check_features(X, state.widths)
        for name, matrix in features.items():
            check_finite(matrix, name)
        return state.encoder.project(
            {name: as_kept(matrix, state.dtype) for name, matrix in features.items()}
        )

    @abstractmethod
    def _train(
        self, X: dict[str, KernelRows], L: sp.csr_array, rng: np.random.Generator
    ) -> tuple[Encoder, npt.NDArray[np.float32]]:
        """Return the hash function, and its projections (n, r) of everything seen."""

    def _check_parameters(self, state: BatchState | None) -> None:
        n_bits = check_n_bits(self.n_bits)
        check_count("n_anchors", self.n_anchors)
        check_choice("dtype", self.dtype, ("float32", "float64"))
        if state is not None:
            check_unchanged("n_bits", n_bits, state.n_bits)

    def _learn(self, old: BatchState | None, chunk: Chunk) -> tuple[BatchState, Codes]:
        """Train on everything seen; see `Learner`."""
        widths = check_widths(self.sigma, chunk.X, self._published_widths)
        seed = old.seed if old else first_state(self.random_state)
        seen = (old.seen if old else Seen.nothing(chunk.X)).plus(chunk, self.dtype)
        classes = grown(old.classes if old else (), chunk.labels)
        rng = generator_at(seed)
        n = seen.n_samples
        anchors = rng.choice(n, size=min(self.n_anchors, n), replace=False)
        X = {
            name: KernelRows.of(
                seen.kernel(name, anchors, widths[name], bias=self._bias), chunks, self.dtype
            )
            for name, chunks in seen.X.items()
        }
        encoder, projections = self._train(X, indicator_of(seen.label_sets, classes), rng)
        state = BatchState(seen, seed, encoder, pack(projections), classes, self.dtype)
        return state, state.all_codes[-chunk.n_samples :].copy()


def _like(others: tuple[Matrix, ...], matrix: Matrix) -> Matrix:
    """Return the matrix in the format of the others, dense or CSR; unchanged if there are none."""
    if not others or isinstance(others[0], sp.csr_array) == isinstance(matrix, sp.csr_array):
        return matrix
    return matrix.toarray() if isinstance(matrix, sp.csr_array) else sp.csr_array(matrix)
