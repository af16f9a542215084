"""Example chunks for the conformance checks: seeded ones, and those that every hasher refuses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

CLASS_NAMES = ("sky", "sea", "cat", "dog", "tree", "car", "bread", "lamp", "river", "horse")
"""Classes of the example chunks; the first six are used by default."""

WIDTHS = {"image": 20, "text": 14}
"""Modalities of the example chunks, with their numbers of features."""

ChunkOf: TypeAlias = tuple[dict[str, Any], list[list[str]]]
Spoil: TypeAlias = Callable[[dict[str, Any], list[list[str]]], tuple[Any, Any]]


def example_chunk(
    n: int,
    seed: int | Sequence[int] = 0,
    *,
    classes: tuple[str, ...] = CLASS_NAMES[:6],
    widths: Mapping[str, int] = WIDTHS,
    dtype: npt.DTypeLike = np.float64,
    sparse: Collection[str] = (),
    bare: float = 0.0,
) -> ChunkOf:
    """Return a seeded chunk whose features depend on its labels: X, y.

    Parameters
    ----------
    seed : one number or several
    classes : some of `CLASS_NAMES`; a sample has one to three of them
    sparse : modalities that come as CSR
    bare : share of samples without labels

    >>> X, y = example_chunk(3)
    >>> {name: values.shape for name, values in X.items()}, len(y)
    ({'image': (3, 20), 'text': (3, 14)}, 3)
    """
    rng = np.random.default_rng([3, *np.atleast_1d(seed).tolist()])
    label_sets: list[list[str]] = []
    for _ in range(n):
        if rng.random() < bare:
            label_sets.append([])
        else:
            size = min(len(classes), int(rng.integers(1, 4)))
            label_sets.append([str(name) for name in rng.choice(classes, size, replace=False)])
    X: dict[str, Any] = {}
    for number, (name, width) in enumerate(widths.items()):
        means = np.random.default_rng([5, number]).standard_normal((len(CLASS_NAMES), width))
        values = 0.5 * rng.standard_normal((n, width))
        for row, names in enumerate(label_sets):
            for label in names:
                values[row] += means[CLASS_NAMES.index(label)]
        values = np.maximum(values, 0).astype(dtype)
        X[name] = sp.csr_array(values) if name in sparse else values
    return X, label_sets


def shuffled_csr(matrix: npt.NDArray[Any]) -> sp.csr_array:
    """Return a matrix as CSR with every entry split into two halves, columns in descending order.

    >>> shuffled_csr(np.array([[1.0, 2.0]])).indices
    array([1, 0, 1, 0])
    """
    n, d = matrix.shape
    half = np.concatenate([matrix[:, ::-1], matrix[:, ::-1]], axis=1) / 2
    columns = np.tile(np.arange(d)[::-1], 2 * n)
    return sp.csr_array((half.ravel(), columns, np.arange(n + 1) * 2 * d), shape=(n, d))


def with_parts(matrix: Any, **parts: Callable[[Any], Any]) -> sp.csr_array:
    """Return a dense matrix as CSR, with some of its three arrays changed without SciPy's checks.

    >>> with_parts(np.eye(2), indices=lambda indices: indices + 7).indices
    array([7, 8], dtype=int32)
    """
    sparse = sp.csr_array(matrix)
    for name, change in parts.items():
        setattr(sparse, name, change(getattr(sparse, name).copy()))
    return sparse


MALFORMED: dict[str, Callable[[Any], sp.csr_array]] = {
    "a negative column": lambda X: with_parts(X, indices=lambda at: at - 1),
    "a column out of range": lambda X: with_parts(X, indices=lambda at: at + X.shape[1]),
    "a column far out of range": lambda X: with_parts(X, indices=lambda at: at + (1 << 30)),
    "rows past the end": lambda X: with_parts(X, indptr=lambda ends: ends * (1 << 20)),
    "negative rows": lambda X: with_parts(X, indptr=lambda ends: ends - (1 << 20)),
    "decreasing rows": lambda X: with_parts(X, indptr=lambda ends: np.sort(ends)[::-1]),
    "too few rows": lambda X: with_parts(X, indptr=lambda ends: ends[:-2]),
    "too few values": lambda X: with_parts(X, data=lambda values: values[:-3]),
}
"""By name, functions that return a matrix as CSR beyond whose end SciPy would read."""


def _spoiled_text(spoil: Callable[[Any], sp.csr_array]) -> Spoil:
    return lambda X, y: ({**X, "text": spoil(X["text"])}, y)


NEW_MODALITY = "a modality that is new"

BAD_CHUNKS: dict[str, Spoil] = {
    "another width": lambda X, y: ({**X, "image": X["image"][:, :-1]}, y),
    NEW_MODALITY: lambda X, y: ({**X, "sound": X["image"]}, y),
    "a modality that is renamed": lambda X, y: ({"picture": X["image"], "text": X["text"]}, y),
    "a modality that is missing": lambda X, y: ({"image": X["image"]}, y),
    "no modality": lambda X, y: ({}, y),
    "an array for two modalities": lambda X, y: (X["image"], y),
    "NaN": lambda X, y: ({**X, "image": np.where(np.eye(*X["image"].shape) > 0, np.nan, 1.0)}, y),
    "infinity": lambda X, y: ({**X, "text": sp.csr_array(X["text"] + np.inf)}, y),
    "one dimension": lambda X, y: ({**X, "image": X["image"][:, 0]}, y),
    "text in place of numbers": lambda X, y: ({**X, "image": X["image"].astype(str)}, y),
    "rows that differ": lambda X, y: ({**X, "image": X["image"][1:]}, y),
    "an empty chunk": lambda X, y: ({name: values[:0] for name, values in X.items()}, []),
    "too few labels": lambda X, y: (X, y[:-1]),
    "one string for all labels": lambda X, y: (X, "sky"),
    "a string beside lists of names": lambda X, y: (X, [*y[:-1], "sky"]),
    "a list beside single labels": lambda X, y: (X, ["sky"] * (len(y) - 1) + [["sky"]]),
    "a matrix without names": lambda X, y: (X, np.ones((len(y), 2))),
    "labels that are numbers": lambda X, y: (X, [[1]] * len(y)),
    "an empty class name": lambda X, y: (X, [[" "]] * len(y)),
    "no labels at all": lambda X, y: (X, None),
    **{f"CSR with {name}": _spoiled_text(spoil) for name, spoil in MALFORMED.items()},
}
"""By name, functions that turn an example chunk into one that every fitted hasher refuses."""
