"""`Learner`, the base of every hasher here: all that it has learned is one state.

OASIS, its rivals and the controls are each a `Learner`; write another one on it, and run
``tests/helpers/hasher_checks.py`` on it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, Protocol, Self, TypeVar

from oasis.codes import Codes
from oasis.errors import NotFittedError
from oasis.hashers.chunk import Chunk, check_chunk
from oasis.hashers.protocol import Labels, OnlineHasher


class Learned(Protocol):
    """What the state of every learner tells. A state is never changed, only replaced."""

    @property
    def widths(self) -> Mapping[str, int]:
        """Modality name -> number of features, in the order of the first chunk."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names in order of arrival, or as they were announced."""

    @property
    def n_seen(self) -> int:
        """Samples seen, unlabelled ones included."""


S = TypeVar("S", bound=Learned)


class Learner(OnlineHasher, Generic[S]):
    """A hasher that keeps all it has learned in one state of type S.

    A subclass says what its parameters must be, how a state and a chunk give the next state, and
    how features are projected. None of these writes to the model: `partial_fit` alone does, at its
    end, so that a refused chunk leaves the model as it was.

    Attributes
    ----------
    state_ : S
        What has been learned; absent before the first chunk.
    classes_ : tuple of str
        Class names in order of arrival, or as they were announced.
    n_seen_ : int
        Samples seen.
    """

    state_: S

    @property
    def learned(self) -> S:
        """What has been learned; an error while that is nothing."""
        state: S | None = getattr(self, "state_", None)
        if state is None:
            raise NotFittedError("this model has learned nothing yet; call partial_fit first")
        return state

    @property
    def classes_(self) -> tuple[str, ...]:
        return self.learned.classes

    @property
    def n_seen_(self) -> int:
        return self.learned.n_seen

    def partial_fit(self, X: Mapping[str, Any], y: Labels) -> Self:
        """Learn from one chunk; afterwards ``codes_`` holds its codes.

        Parameters
        ----------
        X : mapping of modality name to an (n, d) array or CSR matrix
        y : one iterable of class names per sample

        Everything is checked before anything is changed.
        """
        old: S | None = getattr(self, "state_", None)
        self._check_parameters(old)
        chunk = self._check_chunk(X, y, old)
        self.state_, self.codes_ = self._learn(old, chunk)
        return self

    def check(self) -> None:
        """Raise an `InputError` unless these parameters can learn; nothing is changed."""
        self._check_parameters(getattr(self, "state_", None))

    @abstractmethod
    def _check_parameters(self, state: S | None) -> None:
        """Check all arguments of the constructor, also against what has been learned."""

    def _check_chunk(self, X: Mapping[str, Any], y: Labels, state: S | None) -> Chunk:
        """Return the chunk, or refuse it; by default whatever is well-formed is accepted."""
        return check_chunk(X, y, state.widths if state else None)

    @abstractmethod
    def _learn(self, old: S | None, chunk: Chunk) -> tuple[S, Codes]:
        """Return the state after the chunk, and the chunk's codes; nothing is changed."""
