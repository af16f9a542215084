"""Rounds: a data set, divided by a runbook and a seed."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from oasis.arrays import Rows
from oasis.datasets.dataset import Dataset
from oasis.errors import InputError
from oasis.streams.runbooks import Runbook

_MAX_BALANCED = 2048


@dataclass(frozen=True, eq=False)
class Round:
    """One round of a stream.

    Attributes
    ----------
    number : int
        Its number in the runbook, from 1.
    train : (n,) int64
        Rows to learn from.
    queries : (q,) int64
        Rows to search with. They are never learned from.
    new_classes : tuple of str
        Classes that occur in ``train`` for the first time, in column order.
    """

    number: int
    train: Rows
    queries: Rows
    new_classes: tuple[str, ...]


def rounds(dataset: Dataset, book: Runbook, seed: int) -> list[Round]:
    """Divide a data set into rounds; deterministic given data, runbook and seed.

    A round without samples is left out; the others keep their numbers.

    Examples
    --------
    >>> from oasis.datasets import load
    >>> data = load("synthetic-coco79", n_samples=500, lazy=True)
    >>> book = Runbook("halves", rule="chunks", chunk=200, query_count=100)
    >>> [(len(r.train), len(r.queries)) for r in rounds(data, book, seed=0)]
    [(200, 100), (200, 100)]
    """
    if seed < 0:
        raise InputError(f"seed must not be negative, got {seed}")
    if book.rule == "chunks":
        parts = _chunks(dataset, book, seed)
    else:
        parts = _split_each(_ROUND_ROWS[book.rule](dataset, book), book, seed)
    if not parts:
        raise InputError(f"runbook {book.name!r} finds no sample in {dataset.name}")
    known = np.zeros(len(dataset.classes), dtype=bool)
    result = []
    for number, train, queries in parts:
        present = dataset.L[train].any(axis=0)
        new = tuple(dataset.classes[i] for i in np.flatnonzero(present & ~known))
        known |= present
        result.append(Round(number, train, queries, new))
    return result


def class_order(dataset: Dataset, order: str) -> npt.NDArray[np.int64]:
    """Return the columns of ``dataset.L`` in the given order: number 1 of a runbook comes first."""
    count = dataset.L.sum(axis=0, dtype=np.int64)
    if order == "columns":
        return np.arange(len(count))
    if order == "frequency":
        return np.argsort(-count, kind="stable")
    never = np.iinfo(np.int64).max
    first = np.where(dataset.L > 0, _moments(dataset)[:, None], never).min(axis=0, initial=never)
    return np.lexsort((-count, first))


def _chunks(dataset: Dataset, book: Runbook, seed: int) -> list[tuple[int, Rows, Rows]]:
    n = dataset.n_samples
    n_queries = _share(book.query_share, n) if book.query_count is None else book.query_count
    if n_queries >= n:
        raise InputError(
            f"runbook {book.name!r} needs {n_queries:,} queries, but {dataset.name} has "
            f"{n:,} samples; use query_share for a set of this size"
        )
    shuffled = np.random.default_rng(seed).permutation(n)
    queries, rest = shuffled[:n_queries], shuffled[n_queries:]
    if book.order == "arrival":
        rest = rest[np.argsort(_moments(dataset)[rest], kind="stable")]
    if book.n_rounds is not None:
        chunks = np.array_split(rest, min(book.n_rounds, len(rest)))
    else:
        chunks = np.split(rest, range(book.chunk or 1, len(rest), book.chunk or 1))
    return [(number, chunk, queries) for number, chunk in enumerate(chunks, 1)]


def _split_each(taken: list[Rows], book: Runbook, seed: int) -> list[tuple[int, Rows, Rows]]:
    parts = []
    for number, rows in enumerate(taken, 1):
        if len(rows):
            # a generator per round: the split of a round does not depend on other rounds
            shuffled = np.random.default_rng([seed, number]).permutation(rows)
            n_queries = _share(book.query_share, len(rows))
            parts.append((number, shuffled[n_queries:], shuffled[:n_queries]))
    return parts


def _growing(dataset: Dataset, book: Runbook) -> list[Rows]:
    groups = _class_groups(dataset, book)
    latest = _latest(dataset, groups)
    return [np.flatnonzero(latest == number) for number in range(len(groups))]


def _groups(dataset: Dataset, book: Runbook) -> list[Rows]:
    n_labels = dataset.L.sum(axis=1, dtype=np.int64)
    inside = [
        dataset.L[:, group].sum(axis=1, dtype=np.int64) for group in _class_groups(dataset, book)
    ]
    return [np.flatnonzero((n > 0) & (n == n_labels)) for n in inside]


def _arrivals(dataset: Dataset, book: Runbook) -> list[Rows]:
    moments, number, count = np.unique(_moments(dataset), return_inverse=True, return_counts=True)
    spans = _spans(count, len(moments), book)
    return [np.flatnonzero((number >= a) & (number < b)) for a, b in spans]


_ROUND_ROWS = {"growing": _growing, "groups": _groups, "arrival": _arrivals}


def _class_groups(dataset: Dataset, book: Runbook) -> list[list[int]]:
    """Return the columns that each round admits."""
    columns = class_order(dataset, book.order)
    if book.classes:
        return [[_column(dataset, book, columns, c) for c in group] for group in book.classes]
    if book.rule == "growing":
        latest = _latest(dataset, [[int(column)] for column in columns])
        weight = np.bincount(latest[latest >= 0], minlength=len(columns))
    else:
        weight = dataset.L.sum(axis=0, dtype=np.int64)[columns]
    return [columns[a:b].tolist() for a, b in _spans(weight, len(columns), book)]


def _column(
    dataset: Dataset, book: Runbook, columns: npt.NDArray[np.int64], label: int | str
) -> int:
    if isinstance(label, str):
        if label not in dataset.classes:
            raise InputError(
                f"runbook {book.name!r} has the class {label!r}, which {dataset.name} does not have"
            )
        return dataset.classes.index(label)
    if label > len(columns):
        raise InputError(
            f"runbook {book.name!r} has class number {label}, but {dataset.name} has "
            f"{len(columns)} classes"
        )
    return int(columns[label - 1])


def _latest(dataset: Dataset, groups: list[list[int]]) -> Rows:
    """Return, for each sample, the group in which the last of its labels is admitted.

    -1 for an unlabelled sample, ``len(groups)`` for one with a class that no group has.
    """
    step = np.full(len(dataset.classes), len(groups), dtype=np.int64)
    for number, group in enumerate(groups):
        step[group] = number
    latest: Rows = np.where(dataset.L > 0, step, -1).max(axis=1, initial=-1)
    return latest


def _spans(weight: npt.NDArray[np.int64], n: int, book: Runbook) -> list[tuple[int, int]]:
    if book.per_round is not None:
        return [(a, min(a + book.per_round, n)) for a in range(0, n, book.per_round)]
    return balanced(weight, book.n_rounds or 1)


def balanced(weight: npt.NDArray[np.int64], n_spans: int) -> list[tuple[int, int]]:
    """Split a sequence into consecutive non-empty spans of nearly equal weight.

    Minimises the sum of the squared weights of the spans; deterministic if several splits are
    optimal. Memory and time grow with the square of the length.

    >>> balanced(np.array([5, 1, 1, 1, 4]), 3)
    [(0, 1), (1, 4), (4, 5)]
    """
    n = len(weight)
    if n < n_spans:
        raise InputError(
            f"{n} classes or moments cannot be divided among {n_spans} rounds, each needs one; use "
            f"fewer rounds (setting rounds-{n}-classes-1)"
        )
    if n > _MAX_BALANCED:
        raise InputError(
            f"cannot balance {n} classes or moments, at most {_MAX_BALANCED}; use rule 'chunks' "
            "with order 'arrival', or per_round (setting classes-N)"
        )
    total = np.concatenate([[0], np.cumsum(weight)]).astype(np.float64)
    cost = np.square(total[None, :] - total[:, None])  # cost[a, b] of the span from a to b
    cost[np.tril_indices(n + 1)] = np.inf
    best = np.full(n + 1, np.inf)
    best[0] = 0.0
    starts = []
    for _ in range(n_spans):
        through = best[:, None] + cost
        starts.append(through.argmin(axis=0))
        best = through.min(axis=0)
    cuts = [n]
    for start in reversed(starts):
        cuts.append(int(start[cuts[-1]]))
    return list(pairwise(reversed(cuts)))


def _moments(dataset: Dataset) -> Rows:
    if dataset.arrival is None:
        raise InputError(
            f"{dataset.name} has no arrival times; choose an order other than 'arrival'"
        )
    return dataset.arrival


def _share(share: float | None, n: int) -> int:
    # in decimal arithmetic: 0.29 * 100 is 28.999999999999996 in binary
    return int(Decimal(str(share or 0.0)) * n)
