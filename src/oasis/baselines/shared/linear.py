"""Online methods with linear hash functions, regressed on sums over the stream."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.linalg import blas, cho_solve

from oasis.arrays import Array, GeneratorState, Matrix, generator_at, state_of
from oasis.baselines.shared.classes import grown, indicator_of
from oasis.baselines.shared.parameters import (
    check_count,
    check_unchanged,
    check_weight,
    first_state,
)
from oasis.baselines.shared.solvers import ridge_factor
from oasis.codes import Codes, check_n_bits, pack
from oasis.errors import InputError
from oasis.hashers.chunk import Chunk, check_features
from oasis.hashers.learner import Learner
from oasis.model.ridge import MAX_FEATURES

_ROWS = 4096

T = TypeVar("T")


@dataclass(frozen=True)
class GramSums:
    """The sums of one modality: ``sum X'X`` and ``sum B'X``.

    Attributes
    ----------
    XX : (d, d), sum of X'X, Fortran order, lower triangle only
    BX : (r, d), sum of B'X

    >>> import numpy as np
    >>> sums = GramSums.zero(1, 2).plus(np.array([[1.0, 2.0]]), np.array([[-1.0]]))
    >>> sums.XX, sums.BX
    (array([[1., 0.], [2., 4.]]), array([[-1., -2.]]))
    """

    XX: Array
    BX: Array

    @classmethod
    def zero(cls, n_targets: int, n_features: int) -> GramSums:
        """Return the sums over no samples."""
        if n_features > MAX_FEATURES:
            raise InputError(
                f"{n_features} features need a dense {n_features} x {n_features} sum "
                f"({n_features**2 * 8 / 1e9:.1f} GB); at most {MAX_FEATURES} are accepted. "
                "Hash or project them into fewer dimensions first (text: 2048 is plenty)"
            )
        return cls(np.zeros((n_features, n_features), order="F"), np.zeros((n_targets, n_features)))

    @property
    def n_features(self) -> int:
        return len(self.XX)

    def plus(self, X: Matrix, B: Array) -> GramSums:
        """Return the sums with the chunk X (n, d) and its targets B (n, r) added. Cost: n d^2."""
        XX, BX = self.XX.copy(order="F"), self.BX.copy()
        with np.errstate(over="ignore", invalid="ignore"):
            if isinstance(X, sp.csr_array):
                wide = X.astype(np.float64)
                products = sp.tril(wide.T @ wide).tocoo()
                XX[products.row, products.col] += products.data
                BX += (wide.T @ B).T
            else:
                for start in range(0, len(X), _ROWS):
                    rows = slice(start, start + _ROWS)
                    block = X[rows].astype(np.float64, copy=False)
                    XX = blas.dsyrk(1.0, block.T, beta=1.0, c=XX, lower=1, overwrite_c=1)
                    BX += B[rows].T @ block
        if not np.isfinite(np.trace(XX)):
            raise InputError(
                "the sums X'X overflow: features this large cannot be used as they are; scale "
                "them first"
            )
        return GramSums(XX, BX)

    def weights(self, ridge: float, name: str) -> Array:
        """Return ``W = BX (XX + ridge I)^-1``, (r, d)."""
        W: Array = cho_solve(ridge_factor(self.XX, ridge, name), self.BX.T).T
        return np.ascontiguousarray(W)


@dataclass(frozen=True)
class ClassSums:
    """Sums over all samples by name: (r, r), such as V'V, or one row per class, such as L'V (c, r).

    >>> import numpy as np
    >>> sums = ClassSums.zero(2, ["VV"], ["LV"]).widened(1).plus(LV=np.ones((1, 2)))
    >>> sums.widened(2)["LV"]
    array([[1., 1.],
           [0., 0.]])
    """

    square: dict[str, Array]
    by_class: dict[str, Array]

    @classmethod
    def zero(cls, n_bits: int, square: Iterable[str], by_class: Iterable[str]) -> ClassSums:
        """Return the sums over no samples and no classes."""
        return cls(
            dict.fromkeys(square, np.zeros((n_bits, n_bits))),
            dict.fromkeys(by_class, np.zeros((0, n_bits))),
        )

    def __getitem__(self, name: str) -> Array:
        return self.square[name] if name in self.square else self.by_class[name]

    def widened(self, n_classes: int) -> ClassSums:
        """Return the sums with c grown to ``n_classes``: old samples have zeros there."""
        grown = {
            name: np.pad(each, ((0, n_classes - len(each)), (0, 0)))
            for name, each in self.by_class.items()
        }
        return ClassSums(self.square, grown)

    def plus(self, **chunk: Array) -> ClassSums:
        """Return the sums with those of one chunk added."""
        square, by_class = (
            {name: each + chunk[name] if name in chunk else each for name, each in sums.items()}
            for sums in (self.square, self.by_class)
        )
        return ClassSums(square, by_class)


class HashFunction(Protocol):
    """What a round ends with: projections of any subset of the modalities."""

    def project(self, X: Mapping[str, Matrix]) -> npt.NDArray[np.float32]:
        """Return the (n, r) projections of a non-empty subset of the modalities."""


@dataclass(frozen=True)
class LinearState(Generic[T]):
    """The state of a method; ``own`` is what it keeps besides the sums of the features."""

    own: T
    features: dict[str, GramSums]
    hash_function: HashFunction
    classes: tuple[str, ...]
    n_seen: int
    generator: GeneratorState

    @property
    def widths(self) -> dict[str, int]:
        return {name: sums.n_features for name, sums in self.features.items()}

    @property
    def n_bits(self) -> int:
        return len(next(iter(self.features.values())).BX)


class LinearHasher(Learner[LinearState[T]], Generic[T]):
    """A method that finds the codes of a chunk from its labels, then regresses them on features.

    A subclass defines how the codes are found (`_codes`) and how the hash functions are solved
    from the sums (`_solved`). New classes may come in any chunk.
    """

    _weights: ClassVar[tuple[str, ...]] = ()
    """Names of parameters that are at least 0."""
    _ridges: ClassVar[tuple[str, ...]] = ()
    """Names of parameters that are positive."""

    n_iter: int
    random_state: int | np.random.Generator | None

    def project(self, X: Mapping[str, Any]) -> npt.NDArray[np.float32]:
        """Return the sum of the projections of the modalities that X has, (n, n_bits) float32."""
        state = self.learned
        return state.hash_function.project(check_features(X, state.widths))

    @abstractmethod
    def _first(self, rng: np.random.Generator) -> T:
        """Return what the method keeps before the first chunk."""

    @abstractmethod
    def _codes(
        self, own: T, L: sp.csr_array, classes: tuple[str, ...], rng: np.random.Generator
    ) -> tuple[Array, T]:
        """Return the codes B (n, r) of samples with labels L (n, c), and what is kept of them."""

    @abstractmethod
    def _solved(self, own: T, features: Mapping[str, GramSums]) -> HashFunction:
        """Return the hash functions, from sums that include the chunk."""

    def _announced_classes(self) -> tuple[str, ...]:
        """Return the classes that are known before the first chunk."""
        return ()

    def _check_parameters(self, state: LinearState[T] | None) -> None:
        n_bits = check_n_bits(self.n_bits)
        check_count("n_iter", self.n_iter)
        for name in self._weights:
            check_weight(name, getattr(self, name))
        for name in self._ridges:
            check_weight(name, getattr(self, name), positive=True)
        if state is not None:
            check_unchanged("n_bits", n_bits, state.n_bits)

    def _learn(self, old: LinearState[T] | None, chunk: Chunk) -> tuple[LinearState[T], Codes]:
        if old is None:
            sums = {
                name: GramSums.zero(self.n_bits, int(matrix.shape[1]))
                for name, matrix in chunk.X.items()
            }
            rng = generator_at(first_state(self.random_state))
            own, known, n_seen = self._first(rng), self._announced_classes(), 0
        else:
            rng = generator_at(old.generator)
            own, sums, known, n_seen = old.own, old.features, old.classes, old.n_seen
        classes = grown(known, chunk.labels)
        B, own = self._codes(own, indicator_of(chunk.labels, classes), classes, rng)
        features = {name: sums[name].plus(matrix, B) for name, matrix in chunk.X.items()}
        state = LinearState(
            own,
            features,
            self._solved(own, features),
            classes,
            n_seen + chunk.n_samples,
            state_of(rng),
        )
        return state, pack(B)
