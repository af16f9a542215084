"""An episode: a stream, what is stored after it, and questions with their answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from oasis.arrays import Indicator, Matrix, Rows
from oasis.datasets.dataset import Dataset
from oasis.errors import InputError
from oasis.experiments.beyond.material import Material

LabelNames = list[tuple[str, ...]]


@dataclass(frozen=True)
class Sizes:
    """How much of a data set is used; a smaller data set is used completely.

    Attributes
    ----------
    n_rounds, chunk : int
        Rounds of the stream, and samples per round.
    n_queries : int
        Number of queries; at most a tenth of the samples.
    draws : int
        Number of draws of the classes that are never labelled.
    across : tuple of int
        Numbers of items without a text, which are searched by their texts.
    """

    n_rounds: int = 5
    chunk: int = 4000
    n_queries: int = 500
    draws: int = 5
    across: tuple[int, ...] = (1000, 5000)

    def queries_of(self, n_samples: int) -> int:
        """Return the number of queries for a number of samples."""
        return min(self.n_queries, n_samples // 10)

    def rounds_of(self, rows: Rows) -> tuple[Rows, ...]:
        """Divide rows into rounds of equal size."""
        size = min(self.chunk, len(rows) // self.n_rounds)
        if size < 1:
            raise InputError(f"{len(rows)} samples are too few for {self.n_rounds} rounds")
        return tuple(rows[t * size : (t + 1) * size] for t in range(self.n_rounds))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {**vars(self), "across": list(self.across)}


FULL = Sizes()
"""The sizes of the published tables: 5 rounds of 4,000, 500 queries, 5 draws."""

QUICK = Sizes(n_rounds=2, chunk=1000, n_queries=100, draws=2, across=(200, 1000))
"""A look in seconds."""


@dataclass(frozen=True, eq=False)
class Question:
    """A query set over everything stored, with its relevant items.

    Attributes
    ----------
    name : str
    base : (n,) int64
        The stored items that are searched, as positions in order of storing.
    X : mapping or None
        Features of the queries; any of the modalities. None if the queries are class names.
    names : tuple of str
        Class names as queries, for methods that support them.
    query_labels, base_labels : indicators or None
        Relevance by shared labels: labels of queries and base.
    items : (n_queries,) int64 or None
        Relevance of one item per query: its position in ``base``.
    empty : str
        Why this data set does not have the question; then the other fields are empty.
    """

    name: str
    base: Rows
    X: Mapping[str, Matrix] | None = None
    names: tuple[str, ...] = ()
    query_labels: Indicator | None = None
    base_labels: Indicator | None = None
    items: Rows | None = None
    empty: str = ""

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        if self.items is not None:
            return len(self.items)
        return 0 if self.query_labels is None else len(self.query_labels)


@dataclass(frozen=True, eq=False)
class Episode:
    """A stream, what arrives after it without labels, and questions.

    Attributes
    ----------
    kind : str
    number : int
        Which draw of this kind it is.
    material : Material
    rounds : tuple of (n_t,) int64
        Rows of the data set to learn from, round by round.
    L, classes : the labels that the learner is given, of all rows of the data set
    later : tuple of (n_t,) int64
        Rows that arrive afterwards, without labels, and are stored.
    lacking : tuple of str
        Modalities that these rows lack: rows of zeros.
    questions : tuple of Question
    held_out : tuple of str
        Classes that no label set has.
    """

    kind: str
    number: int
    material: Material
    rounds: tuple[Rows, ...]
    L: Indicator
    classes: tuple[str, ...]
    questions: tuple[Question, ...]
    later: tuple[Rows, ...] = ()
    lacking: tuple[str, ...] = ()
    held_out: tuple[str, ...] = ()

    @property
    def n_learned(self) -> int:
        """Number of samples that are learned from; later ones are stored after them."""
        return sum(map(len, self.rounds))

    @property
    def stored(self) -> Rows:
        """Rows of everything stored, in order of storing."""
        return np.concatenate([*self.rounds, *self.later])

    @property
    def seen(self) -> Dataset:
        """The data set with the labels that the learner is given."""
        data, vectors = self.material.dataset, self.material.dataset.vectors
        if vectors is not None:
            known = all(name in vectors for name in self.classes)
            vectors = {name: vectors[name] for name in self.classes} if known else None
        return replace(data, L=self.L, classes=self.classes, vectors=vectors)

    def joined(self) -> Episode:
        """Return the same episode with all learned samples in one round."""
        return replace(self, rounds=(np.concatenate(self.rounds),))

    def learned_chunks(self) -> Iterator[tuple[dict[str, Matrix], LabelNames]]:
        """Yield X and y of each round."""
        seen = self.seen
        for rows in self.rounds:
            yield seen.take(rows), seen.labels(rows)

    def later_chunks(self) -> Iterator[tuple[dict[str, Matrix], LabelNames]]:
        """Yield X and y of the samples that arrive afterwards; no label is given."""
        for rows in self.later:
            X = self.material.dataset.take(rows)
            given = {name: _zeros(x) if name in self.lacking else x for name, x in X.items()}
            yield given, [()] * len(rows)


def _zeros(matrix: Matrix) -> Matrix:
    if isinstance(matrix, sp.csr_array):
        return sp.csr_array(matrix.shape, dtype=matrix.dtype)
    return np.zeros_like(matrix)
