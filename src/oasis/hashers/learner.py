"""`Learner`, the base class of every hasher here: everything learned is one state.

OASIS, its rivals and the controls are each a `Learner`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from oasis.arrays import indicator
from oasis.codes import Codes
from oasis.errors import NotFittedError
from oasis.hashers.chunk import (
    Chunk,
    check_chunk,
    check_labels,
    is_unnamed_matrix,
    warn_of_similar_names,
)
from oasis.hashers.protocol import Labels, OnlineHasher


class Learned(Protocol):
    """What every state has. A state is never changed, only replaced."""

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
    """A hasher that keeps everything it has learned in one state of type S.

    A subclass defines ``_check_parameters``, ``_learn`` (a state and a chunk give the next state)
    and `project`. None of these writes to the model: only `fit` and `partial_fit` do, as their last
    step, so that a refused chunk leaves the model unchanged.

    Attributes
    ----------
    state_ : S
        What has been learned; absent before the first chunk.
    label_sets_ : list of tuples of str
        The class names of each sample of the last chunk, whose codes are ``codes_``.
    classes_ : tuple of str
        Class names in order of arrival, or as they were announced.
    n_seen_ : int
        Samples seen.
    """

    may_add: ClassVar[bool] = False
    """Whether later chunks may bring modalities that the first one had not."""

    state_: S

    @property
    def learned(self) -> S:
        """What has been learned, or a `NotFittedError`."""
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

    def fit(self, X: Any, y: Labels, classes: Sequence[str] | None = None) -> Self:
        """Forget what was learned, then learn from one chunk; see `partial_fit`."""
        return self._start_or_go_on(None, X, y, classes)

    def partial_fit(self, X: Any, y: Labels, classes: Sequence[str] | None = None) -> Self:
        """Learn from one chunk; afterwards ``codes_`` holds its codes.

        Parameters
        ----------
        X : mapping of modality name to an (n, d) array or CSR matrix, or `Modalities`
            One array, sparse matrix or DataFrame alone is the modality "features".
        y : one iterable of class names per sample
            Or one label per sample, or a 0/1 matrix; see `oasis.hashers.chunk.check_labels`.
        classes : names of the columns of y, where y is a 0/1 matrix
            Later chunks, and `score`, may leave them out.

        Everything is checked before anything is changed.
        """
        return self._start_or_go_on(getattr(self, "state_", None), X, y, classes)

    def learn(self, chunk: Chunk) -> Self:
        """Learn from a chunk that `oasis.hashers.chunk.check_chunk` returned; it is not read again.

        For callers that have to check a chunk before they learn from it.
        """
        old: S | None = getattr(self, "state_", None)
        self._check_parameters(old)
        return self._learn_checked(old, chunk)

    def _start_or_go_on(
        self, old: S | None, X: Any, y: Labels, classes: Sequence[str] | None
    ) -> Self:
        self._check_parameters(old)
        columns = classes
        if columns is None and old is not None:
            columns = self._columns_of(y)
        chunk = check_chunk(X, y, old.widths if old else None, columns, self.may_add)
        self._learn_checked(old, chunk)
        if columns is not None:
            self.columns_ = tuple(columns)
        return self

    def _learn_checked(self, old: S | None, chunk: Chunk) -> Self:
        self._check_chunk(chunk, old)
        warn_of_similar_names(chunk.labels, old.classes if old else ())
        self.state_, self.codes_ = self._learn(old, chunk)
        self.label_sets_ = chunk.labels
        return self

    def _columns_of(self, y: Labels) -> tuple[str, ...] | None:
        """Return the class names that an earlier call gave for the columns of a 0/1 matrix."""
        columns: tuple[str, ...] | None = getattr(self, "columns_", None)
        return columns if is_unnamed_matrix(y) else None

    def score(self, X: Any, y: Labels) -> float:
        """Return the mean average precision of X as queries, with the last chunk as the base.

        After `fit` the base is everything that was learned. Queries have the codes of `encode`,
        base items their stored codes ``codes_``. The ranking is by Hamming distance; items at equal
        distance count with the mean over all their orders. Two samples are similar if they share a
        class.

        Parameters
        ----------
        X, y : as in `partial_fit`; a query without a similar item counts 0
        """
        # imported here: a search does not load the measures
        from oasis.metrics import mean_average_precision

        queries = self.encode(X)
        base = getattr(self, "label_sets_", None)
        if base is None:
            raise NotFittedError(
                "score needs the labels of the last chunk, which are not saved with a model; call "
                "fit or partial_fit first, or use oasis.metrics.mean_average_precision"
            )
        labels = check_labels(y, len(queries), self._columns_of(y))
        names = dict.fromkeys(name for names in [*base, *labels] for name in names)
        numbers = {name: number for number, name in enumerate(names)}
        L, base_L = (
            indicator([[numbers[name] for name in names] for names in sets], len(numbers))
            for sets in (labels, base)
        )
        return mean_average_precision(queries, self.codes_, L, base_L)

    def check(self) -> None:
        """Raise an `InputError` unless these parameters can learn; nothing is changed."""
        self._check_parameters(getattr(self, "state_", None))

    @abstractmethod
    def _check_parameters(self, state: S | None) -> None:
        """Check all arguments of the constructor, also against what has been learned."""

    def _check_chunk(self, chunk: Chunk, state: S | None) -> None:
        """Refuse a well-formed chunk that this hasher cannot learn from; by default none is."""

    @abstractmethod
    def _learn(self, old: S | None, chunk: Chunk) -> tuple[S, Codes]:
        """Return the state after the chunk, and the chunk's codes; nothing is changed."""
