"""A data set: named modalities, one label set per sample, class names, and where it came from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from oasis.arrays import Matrix, Rows
from oasis.errors import InputError


@runtime_checkable
class RowSource(Protocol):
    """A modality whose rows are computed on demand, such as generated ones."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of samples and number of features."""

    def __getitem__(self, rows: Rows) -> Matrix:
        """Return the given rows as a (len(rows), d) array or CSR matrix."""


@dataclass(frozen=True)
class Source:
    """A file that a data set was read from: its name, its size in bytes and its SHA-256."""

    file: str
    n_bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> Self:
        """Read the whole file once and record its checksum."""
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return cls(path.name, path.stat().st_size, digest)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples of several modalities with their label sets.

    Attributes
    ----------
    name : str
    X : mapping of modality name to an (n, d) array, CSR matrix or `RowSource`
    L : (n, c) uint8
        Indicator of the labels, 0 or 1. A row of zeros is an unlabelled sample.
    classes : tuple of str
        The class names, one per column of ``L``.
    arrival : (n,) int64 or None
        Time of arrival of each sample, as increasing numbers; equal numbers arrived together.
    payload : mapping of column name to an (n,) array
        Other facts about a sample (its id, its file), for display.
    vectors : mapping of class name to float32 vector, or None
        Vectors of the label names, if they come with the data.
    sources : tuple of Source
        The files it was read from.
    recipe : mapping
        How it was made, as far as the files do not determine it: a seed, a size, dropped classes.

    Examples
    --------
    >>> import numpy as np
    >>> toy = Dataset(
    ...     "toy",
    ...     {"image": np.eye(3, dtype=np.float32)},
    ...     np.array([[1, 0], [1, 1], [0, 0]], dtype=np.uint8),
    ...     ("sky", "sea"),
    ... )
    >>> toy.labels()
    [('sky',), ('sky', 'sea'), ()]
    >>> toy.take([2])["image"]
    array([[0., 0., 1.]], dtype=float32)
    """

    name: str
    X: Mapping[str, Matrix | RowSource]
    L: npt.NDArray[np.uint8]
    classes: tuple[str, ...]
    arrival: Rows | None = None
    payload: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    vectors: Mapping[str, npt.NDArray[np.float32]] | None = None
    sources: tuple[Source, ...] = ()
    recipe: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n, c = _check_indicator(self.name, self.L)
        if len(self.classes) != c:
            raise InputError(f"{self.name}: {len(self.classes)} class names for {c} label columns")
        if len(set(self.classes)) != c:
            twice = next(name for name in self.classes if self.classes.count(name) > 1)
            raise InputError(f"{self.name}: the class name {twice!r} occurs more than once")
        if not self.X:
            raise InputError(f"{self.name}: no modality; expected at least one")
        for name, matrix in self.X.items():
            if len(matrix.shape) != 2 or matrix.shape[0] != n:
                raise InputError(
                    f"{self.name}: modality {name!r} has shape {matrix.shape}, expected ({n}, d): "
                    f"one row per row of the labels"
                )
        columns = dict(self.payload)
        if self.arrival is not None:
            columns["arrival"] = self.arrival
        for name, column in columns.items():
            if column.shape != (n,):
                raise InputError(
                    f"{self.name}: column {name!r} has shape {column.shape}, expected ({n},)"
                )

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return int(self.L.shape[0])

    @property
    def widths(self) -> dict[str, int]:
        """Number of features per modality."""
        return {name: int(matrix.shape[1]) for name, matrix in self.X.items()}

    def take(self, rows: npt.ArrayLike) -> dict[str, Matrix]:
        """Return the features of the given rows, in their order: the X of a chunk."""
        at = self._rows(rows)
        return {name: matrix[at] for name, matrix in self.X.items()}

    def labels(self, rows: npt.ArrayLike | None = None) -> list[tuple[str, ...]]:
        """Return one tuple of class names per row (all rows by default): the y of a chunk."""
        indicator = self.L if rows is None else self.L[self._rows(rows)]
        samples, columns = np.nonzero(indicator)
        cuts = np.searchsorted(samples, np.arange(len(indicator) + 1))
        names = [self.classes[column] for column in columns]
        return [tuple(names[a:b]) for a, b in pairwise(cuts.tolist())]

    def select(self, rows: npt.ArrayLike) -> Dataset:
        """Return a data set of only the given rows, in their order."""
        at = self._rows(rows)
        return replace(
            self,
            X=self.take(at),
            L=self.L[at],
            arrival=None if self.arrival is None else self.arrival[at],
            payload={name: column[at] for name, column in self.payload.items()},
        )

    def without(self, dropped: Iterable[str], name: str | None = None) -> Dataset:
        """Return the data set without some classes, and without samples that then have no label.

        Samples that had no label before are dropped too.
        """
        gone = list(dropped)
        unknown = [label for label in gone if label not in self.classes]
        if unknown:
            raise InputError(f"{self.name} has no class {unknown[0]!r}; it has {self.classes}")
        columns = [i for i, label in enumerate(self.classes) if label not in gone]
        rows = np.flatnonzero(self.L[:, columns].any(axis=1))
        kept = self.select(rows)
        classes = tuple(self.classes[i] for i in columns)
        vectors = self.vectors
        return replace(
            kept,
            name=self.name if name is None else name,
            L=np.ascontiguousarray(kept.L[:, columns]),
            classes=classes,
            vectors=None if vectors is None else {label: vectors[label] for label in classes},
            recipe={**self.recipe, "dropped_classes": gone},
        )

    def describe(self) -> dict[str, Any]:
        """Return what identifies the data, as plain values to record beside a result."""
        return {
            "name": self.name,
            "n_samples": self.n_samples,
            "n_features": self.widths,
            "n_classes": len(self.classes),
            "labels_per_sample": round(float(self.L.sum()) / max(1, self.n_samples), 4),
            "recipe": dict(self.recipe),
            "sources": [vars(source).copy() for source in self.sources],
        }

    def _rows(self, rows: npt.ArrayLike) -> Rows:
        at = np.asarray(rows)
        if at.size == 0:
            at = at.astype(np.int64)
        if at.ndim != 1 or at.dtype.kind not in "iu":
            raise InputError(f"rows must be a list of integers, got {at.dtype} {at.shape}")
        if at.size and (at.min() < 0 or at.max() >= self.n_samples):
            raise InputError(
                f"row {int(at.min() if at.min() < 0 else at.max())} is outside {self.name}, "
                f"which has {self.n_samples} samples"
            )
        return at.astype(np.int64, copy=False)


def label_indicator(
    labels: Sequence[Iterable[str]], classes: Sequence[str]
) -> npt.NDArray[np.uint8]:
    """Return the (n, c) uint8 indicator of label sets given as names.

    >>> label_indicator([["sea"], [], ["sky", "sea"]], ["sky", "sea"])
    array([[0, 1],
           [0, 0],
           [1, 1]], dtype=uint8)
    """
    column = {name: i for i, name in enumerate(classes)}
    L = np.zeros((len(labels), len(column)), dtype=np.uint8)
    for row, names in enumerate(labels):
        for name in names:
            if name not in column:
                raise InputError(f"sample {row} has the label {name!r}, which is not a class")
            L[row, column[name]] = 1
    return L


def _check_indicator(name: str, L: npt.NDArray[np.uint8]) -> tuple[int, int]:
    if L.ndim != 2 or L.dtype != np.uint8:
        raise InputError(
            f"{name}: labels must be an (n, c) uint8 indicator, got {L.dtype} {L.shape}"
        )
    if L.size and L.max() > 1:
        raise InputError(f"{name}: labels must be 0 or 1, found {L.max()}")
    return int(L.shape[0]), int(L.shape[1])
