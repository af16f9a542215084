"""Base of batch methods, which keep everything seen and retrain on all of it at each chunk."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.linalg import blas

from oasis.arrays import Array, GeneratorState, Matrix, generator_at
from oasis.baselines.shared.classes import grown, indicator_of
from oasis.baselines.shared.kernel import AnchorKernel, Width, blocks, check_widths
from oasis.baselines.shared.parameters import check_count, check_unchanged, first_state
from oasis.codes import Codes, check_n_bits, pack
from oasis.hashers.chunk import (
    Chunk,
    check_features,
    check_finite,
)
from oasis.hashers.learner import (
    Learner,
)


@dataclass(frozen=True)
class Seen:
    """The features and label sets of everything seen, as one matrix per chunk to avoid copies.

    Attributes
    ----------
    X : modality name -> one matrix per chunk
    labels : one list of label sets per chunk
    """

    X: dict[str, tuple[Matrix, ...]]
    labels: tuple[list[tuple[str, ...]], ...]

    @classmethod
    def nothing(cls, names: Mapping[str, Any]) -> Seen:
        return cls(dict.fromkeys(names, ()), ())

    def plus(self, chunk: Chunk) -> Seen:
        """Return what has been seen after a chunk; the chunk's features are copied."""
        X = {name: (*self.X[name], matrix.copy()) for name, matrix in chunk.X.items()}
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


@dataclass(frozen=True)
class KernelRows:
    """The kernel features of everything seen, in one modality.

    Attributes
    ----------
    kernel : maps features to phi
    phi : (n, p), in the precision of the features; products with it are float64, in blocks of rows
    """

    kernel: AnchorKernel
    phi: npt.NDArray[Any]

    @classmethod
    def of(cls, kernel: AnchorKernel, chunks: tuple[Matrix, ...]) -> KernelRows:
        """Return the features of all chunks. Cost: n p d."""
        n_samples = sum(int(matrix.shape[0]) for matrix in chunks)
        phi = np.empty((n_samples, kernel.n_features), np.result_type(*(m.dtype for m in chunks)))
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
        return state.encoder.project(features)

    @abstractmethod
    def _train(
        self, X: dict[str, KernelRows], L: sp.csr_array, rng: np.random.Generator
    ) -> tuple[Encoder, npt.NDArray[np.float32]]:
        """Return the hash function, and its projections (n, r) of everything seen."""

    def _check_parameters(self, state: BatchState | None) -> None:
        n_bits = check_n_bits(self.n_bits)
        check_count("n_anchors", self.n_anchors)
        if state is not None:
            check_unchanged("n_bits", n_bits, state.n_bits)

    def _learn(self, old: BatchState | None, chunk: Chunk) -> tuple[BatchState, Codes]:
        """Train on everything seen; see `Learner`."""
        widths = check_widths(self.sigma, chunk.X, self._published_widths)
        seed = old.seed if old else first_state(self.random_state)
        seen = (old.seen if old else Seen.nothing(chunk.X)).plus(chunk)
        classes = grown(old.classes if old else (), chunk.labels)
        rng = generator_at(seed)
        n = seen.n_samples
        anchors = np.sort(rng.choice(n, size=min(self.n_anchors, n), replace=False))
        X = {
            name: KernelRows.of(
                AnchorKernel.at(chunks, anchors, widths[name], bias=self._bias, name=name), chunks
            )
            for name, chunks in seen.X.items()
        }
        encoder, projections = self._train(X, indicator_of(seen.label_sets, classes), rng)
        state = BatchState(seen, seed, encoder, pack(projections), classes)
        return state, state.all_codes[-chunk.n_samples :].copy()
