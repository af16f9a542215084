"""Hashers without labels: random projections, principal components, and ITQ.

All of them scale the features of each modality to unit length, row by row, and concatenate the
modalities. A row of zeros is a sample that lacks the modality; it is not centred.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array, Matrix, generator_at, unit_rows
from oasis.baselines.shared.classes import grown
from oasis.baselines.shared.components import Centred, principal_axes
from oasis.baselines.shared.kernel import stacked
from oasis.baselines.shared.parameters import check_count, check_unchanged, first_state
from oasis.baselines.shared.signs import random_rotation
from oasis.codes import Codes, check_n_bits, pack
from oasis.errors import InputError
from oasis.hashers.chunk import (
    Chunk,
    check_features,
)
from oasis.hashers.learner import (
    Learner,
)
from oasis.model.hash_functions import (
    LinearMap,
)

Features: TypeAlias = dict[str, Matrix]


@dataclass(frozen=True)
class ControlState:
    """The hash function and, for a batch method only, everything seen: features and codes."""

    hash_function: LinearMap
    n_bits: int
    classes: tuple[str, ...]
    n_seen: int
    seen: Features | None = None
    all_codes: Codes | None = None

    @property
    def widths(self) -> dict[str, int]:
        return self.hash_function.widths


class Control(Learner[ControlState]):
    """A hasher that is fitted once, on the first chunk, and then frozen.

    Labels are checked and their names recorded, as in every hasher; codes do not depend on them.
    """

    random_state: int | np.random.Generator | None

    def project(self, X: Mapping[str, Any]) -> npt.NDArray[np.float32]:
        """Return the (n, n_bits) float32 projections of a non-empty subset of the modalities."""
        state = self.learned
        return state.hash_function.project(check_features(X, state.widths))

    @abstractmethod
    def _fit(self, X: Features, rng: np.random.Generator) -> LinearMap:
        """Return the hash function for features whose rows have unit length."""

    def _learn(self, old: ControlState | None, chunk: Chunk) -> tuple[ControlState, Codes]:
        state = old or ControlState(self._fitted(chunk.X), self.n_bits, (), 0)
        classes, n_seen = grown(state.classes, chunk.labels), state.n_seen + chunk.n_samples
        codes = pack(state.hash_function.project(chunk.X))
        return replace(state, classes=classes, n_seen=n_seen), codes

    def _fitted(self, X: Features) -> LinearMap:
        units = {name: unit_rows(matrix) for name, matrix in X.items()}
        return self._fit(units, generator_at(first_state(self.random_state)))

    def _check_parameters(self, state: ControlState | None) -> None:
        n_bits = check_n_bits(self.n_bits)
        if state is not None:
            check_unchanged("n_bits", n_bits, state.n_bits)


class RandomProjection(Control):
    """Signs of random projections, which depend only on the seed.

    Parameters
    ----------
    n_bits : int
        Length of a code, a positive multiple of 8, for any number of features.
    random_state : int, numpy Generator or None
        Seed of the directions.

    Notes
    -----
    Features are not centred. Two samples differ in a bit with probability angle / pi.
    Memory: n_bits x d float64.

    Examples
    --------
    >>> import numpy as np
    >>> X = {"image": np.array([[1.0, 2.0], [2.0, 4.0]])}
    >>> codes = RandomProjection(8, random_state=0).partial_fit(X, [[], []]).codes_
    >>> bool((codes[0] == codes[1]).all())
    True
    """

    def __init__(
        self, n_bits: int = 64, random_state: int | np.random.Generator | None = None
    ) -> None:
        self.n_bits = n_bits
        self.random_state = random_state

    def _fit(self, X: Features, rng: np.random.Generator) -> LinearMap:
        return LinearMap(
            {
                name: rng.standard_normal((self.n_bits, matrix.shape[1]))
                for name, matrix in X.items()
            },
            normalize=True,
        )


class PCASign(Control):
    """Signs of the principal components of the first chunk.

    Parameters
    ----------
    n_bits : int
        Length of a code, a positive multiple of 8. Bits beyond the rank of the first chunk are
        signs of seeded random projections of the centred features.
    random_state : int, numpy Generator or None
        Seed of the subspace iteration and of the random directions.

    Examples
    --------
    >>> import numpy as np
    >>> X = {"image": np.random.default_rng(0).random((50, 12))}
    >>> PCASign(8, random_state=0).partial_fit(X, [[]] * 50).project(X).shape
    (50, 8)
    """

    def __init__(
        self, n_bits: int = 64, random_state: int | np.random.Generator | None = None
    ) -> None:
        self.n_bits = n_bits
        self.random_state = random_state

    def _fit(self, X: Features, rng: np.random.Generator) -> LinearMap:
        data = Centred(X)
        return _centred_map(data, _directions(data, self.n_bits, rng))


class ITQ(Control):
    """Iterative quantisation: principal components, rotated to lie close to their signs.

    Parameters
    ----------
    n_bits : int
        Length of a code, a positive multiple of 8. If it exceeds the rank of the data, random
        directions are added to the principal components before the rotation is fitted.
    refit : bool
        False: fitted on the first chunk and frozen. True: a batch method, which at each chunk is
        fitted again on everything seen and encodes everything again; it keeps all features. It is
        an upper bound for the frozen one.
    n_iter : int
        Iterations of the rotation.
    random_state : int, numpy Generator or None
        Seed of the directions and of the first rotation.

    Attributes
    ----------
    codes_ : (n, n_bits / 8) uint8
        The last chunk's codes.
    all_codes_ : (n_seen_, n_bits / 8) uint8
        The codes of everything seen, in order of arrival, which replace the stored ones; only
        with ``refit``.

    Examples
    --------
    >>> import numpy as np
    >>> X = {"image": np.random.default_rng(0).random((50, 12))}
    >>> model = ITQ(8, refit=True, random_state=0)
    >>> model.partial_fit(X, [[]] * 50).partial_fit(X, [[]] * 50).all_codes_.shape
    (100, 1)
    """

    def __init__(
        self,
        n_bits: int = 64,
        refit: bool = False,
        n_iter: int = 50,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.refit = refit
        self.n_iter = n_iter
        self.random_state = random_state

    @property
    def is_batch(self) -> bool:  # type: ignore[override]
        return self.refit

    @property
    def all_codes_(self) -> Codes:
        codes = self.learned.all_codes
        if codes is None:
            raise AttributeError(
                "all_codes_ exists only with refit=True; frozen codes never change"
            )
        return codes

    def _learn(self, old: ControlState | None, chunk: Chunk) -> tuple[ControlState, Codes]:
        if not self.refit:
            return super()._learn(old, chunk)
        X = chunk.X
        if old is None or old.seen is None:
            seen = {name: matrix.copy() for name, matrix in X.items()}  # the caller keeps its own
        else:
            seen = {name: stacked([old.seen[name], matrix]) for name, matrix in X.items()}
        hash_function = self._fitted(seen)
        codes = pack(hash_function.project(seen))
        classes = grown(old.classes if old else (), chunk.labels)
        state = ControlState(hash_function, self.n_bits, classes, len(codes), seen, codes)
        return state, codes[-chunk.n_samples :].copy()

    def _fit(self, X: Features, rng: np.random.Generator) -> LinearMap:
        data = Centred(X)
        directions = _directions(data, self.n_bits, rng)  # (d, r)
        V = data.times(directions)  # (n, r)
        R = random_rotation(rng, self.n_bits)
        for _ in range(self.n_iter):
            B = np.where(V @ R > 0, 1.0, -1.0)
            left, _, right = np.linalg.svd(B.T @ V)
            R = right.T @ left.T
        return _centred_map(data, directions @ R)

    def _check_parameters(self, state: ControlState | None) -> None:
        super()._check_parameters(state)
        check_count("n_iter", self.n_iter)
        if not isinstance(self.refit, (bool, np.bool_)):
            raise InputError(f"refit must be True or False, got {self.refit!r}")
        if state is not None:
            check_unchanged("refit", bool(self.refit), state.seen is not None)


def _directions(data: Centred, n_bits: int, rng: np.random.Generator) -> Array:
    """Return (d, n_bits): principal axes, and random unit vectors if there are too few axes."""
    axes = principal_axes(data, n_bits, rng)
    random = rng.standard_normal((data.n_features, n_bits - axes.shape[1]))
    return np.hstack([axes, random / np.linalg.norm(random, axis=0)])


def _centred_map(data: Centred, directions: Array) -> LinearMap:
    """Return the map of centred unit-length features onto directions (d, r)."""
    parts = data.split(directions)
    return LinearMap(
        {name: np.ascontiguousarray(part.T) for name, part in parts.items()},
        {name: data.means[name] @ part for name, part in parts.items()},
        normalize=True,
    )
