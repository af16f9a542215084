"""Streams: the online settings as data. A runbook and a seed turn a data set into rounds.

A runbook is a TOML file; those of the package lie in ``oasis/runbooks`` and `runbook` reads them
by name. Its keys:

=================  ================================================================================
``name``           what to call it
``about``          one line for people (optional, not part of the digest)
``rule``           how samples are dealt out, see below
``order``          how classes are numbered, from 1 (``growing``, ``groups``), or samples are queued
                   (``chunks``), see below
``classes``        a list of rounds, each a list of class numbers or class names
``per_round``      instead of ``classes``: so many classes (``arrival``: moments) each round, in
                   order; the last round takes what is left
``n_rounds``       instead of either: so many rounds of consecutive classes (``arrival``: moments),
                   as equal in size as can be; with ``chunks``, so many chunks
``chunk``          ``chunks``: samples per round
``query_count``    ``chunks``: so many random samples are the queries of every round
``query_share``    that share of each round's samples, rounded down, becomes its queries
                   (``chunks``: of all samples, the same in every round)
=================  ================================================================================

Rules
    ``chunks``: random chunks of all samples (the first setting of the paper).
    ``growing``: a round admits further classes and takes the labelled samples whose labels have
    all been admitted, less those taken before (the second setting).
    ``groups``: a round takes the labelled samples whose labels all lie in its own group of
    classes (the third setting).
    ``arrival``: a round takes the samples that arrived in its span of moments.
Orders
    ``frequency``: classes by falling frequency over the whole data set, ties by column.
    ``columns``: classes in the order of the data set.
    ``arrival``: classes by their first sample's arrival, then by falling frequency; with
    ``chunks``, samples by arrival (equal moments in random order).
    ``random``: for ``chunks``, the default there.

A sample is in one round at most, either as a query or to be learned from. Samples within a round
come in random order, so that ties broken by position favour no class.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from decimal import Decimal
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.arrays import Rows
from oasis.datasets.dataset import (
    Dataset,
)
from oasis.errors import DataError, InputError

_ORDERS = {
    "chunks": ("random", "arrival"),
    "growing": ("frequency", "columns", "arrival"),
    "groups": ("frequency", "columns", "arrival"),
    "arrival": ("arrival",),
}
_MAX_BALANCED = 2048


@dataclass(frozen=True)
class Runbook:
    """How a data set becomes a stream; see the module for what each field means.

    Examples
    --------
    >>> book = Runbook("mine", rule="growing", order="frequency", per_round=8, query_share=0.1)
    >>> Runbook.parse(book.as_dict()) == book
    True
    """

    name: str
    rule: str
    order: str = ""
    classes: tuple[tuple[int | str, ...], ...] = ()
    per_round: int | None = None
    n_rounds: int | None = None
    chunk: int | None = None
    query_count: int | None = None
    query_share: float | None = None
    about: str = ""

    def __post_init__(self) -> None:
        if self.rule not in _ORDERS:
            raise self._error(f"unknown rule {self.rule!r}; known are {', '.join(_ORDERS)}")
        if not self.order:
            object.__setattr__(self, "order", _ORDERS[self.rule][0])
        if self.order not in _ORDERS[self.rule]:
            raise self._error(
                f"unknown order {self.order!r} for rule {self.rule!r}; known are "
                f"{', '.join(_ORDERS[self.rule])}"
            )
        for key in ("per_round", "n_rounds", "chunk", "query_count"):
            value = getattr(self, key)
            if value is not None and (type(value) is not int or value < 1):
                raise self._error(f"{key} must be a positive integer, got {value!r}")
        share = self.query_share
        if share is not None:
            if type(share) not in (int, float) or not 0 <= share < 1:
                raise self._error(f"query_share must be a number from 0 to below 1, got {share!r}")
            object.__setattr__(self, "query_share", float(share))
        self._check_choice()
        self._check_classes()

    def _check_choice(self) -> None:
        sizes = {
            "chunks": ("chunk", "n_rounds"),
            "growing": ("classes", "per_round", "n_rounds"),
            "groups": ("classes", "per_round", "n_rounds"),
            "arrival": ("per_round", "n_rounds"),
        }[self.rule]
        queries = ("query_count", "query_share") if self.rule == "chunks" else ("query_share",)
        for choice in (sizes, queries):
            given = [key for key in choice if getattr(self, key) not in (None, ())]
            if len(given) != 1:
                raise self._error(
                    f"rule {self.rule!r} needs exactly one of {', '.join(choice)}; "
                    f"got {', '.join(given) or 'none'}"
                )
        for key in ("classes", "per_round", "n_rounds", "chunk", "query_count", "query_share"):
            if key not in sizes + queries and getattr(self, key) not in (None, ()):
                raise self._error(f"{key} has no meaning with rule {self.rule!r}")

    def _check_classes(self) -> None:
        seen: set[int | str] = set()
        for number, group in enumerate(self.classes, 1):
            if not group:
                raise self._error(f"round {number} has no class")
            for label in group:
                if type(label) is not str and (type(label) is not int or label < 1):
                    raise self._error(
                        f"round {number} has the class {label!r}; expected a name or a number "
                        "from 1"
                    )
                if label in seen:
                    raise self._error(f"the class {label!r} is given twice")
                seen.add(label)
        if len({type(label) for label in seen}) > 1:
            raise self._error("classes are given by name or by number, not both")

    @classmethod
    def parse(cls, table: Mapping[str, Any], where: str = "runbook") -> Runbook:
        """Make a runbook of a parsed TOML table or of `as_dict`; ``where`` is named in errors."""
        known = [field.name for field in fields(cls)]
        unknown = [key for key in table if key not in known]
        if unknown:
            raise InputError(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(known)}")
        for key in ("name", "rule"):
            if key not in table:
                raise InputError(f"{where}: the key {key!r} is missing")
        for key in ("name", "rule", "order", "about"):
            if not isinstance(table.get(key, ""), str):
                raise InputError(f"{where}: {key} must be a string, got {table[key]!r}")
        values = dict(table)
        groups = values.get("classes", ())
        if not isinstance(groups, (list, tuple)) or not all(
            isinstance(group, (list, tuple)) for group in groups
        ):
            raise InputError(f"{where}: classes must be a list of lists, got {groups!r}")
        values["classes"] = tuple(tuple(group) for group in groups)
        try:
            return cls(**values)
        except InputError as error:
            raise InputError(f"{where}: {error}") from error

    @classmethod
    def read(cls, path: str | Path) -> Runbook:
        """Read a runbook from a TOML file."""
        path = Path(path)
        try:
            table = tomllib.loads(path.read_text("utf-8"))
        except FileNotFoundError as error:
            raise DataError(f"{path}: no such runbook") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: not a TOML file ({error})") from error
        return cls.parse(table, str(path))

    def as_dict(self) -> dict[str, Any]:
        """Return what was given, as plain values: `parse` makes the same runbook of it."""
        values = {key: value for key, value in asdict(self).items() if value not in (None, (), "")}
        if self.classes:
            values["classes"] = [list(group) for group in self.classes]
        return values

    def digest(self) -> str:
        """Return the SHA-256 of everything that decides the rounds (name and about do not)."""
        decisive = {k: v for k, v in self.as_dict().items() if k not in ("name", "about")}
        text = json.dumps(decisive, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def _error(self, what: str) -> InputError:
        return InputError(f"runbook {self.name!r}: {what}")


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
        Classes among the labels of ``train`` that no earlier round's had, in column order.
    """

    number: int
    train: Rows
    queries: Rows
    new_classes: tuple[str, ...]


def runbooks() -> list[str]:
    """Return the names of the runbooks that come with the package, sorted."""
    folder = resources.files("oasis") / "runbooks"
    return sorted(
        entry.name.removesuffix(".toml")
        for entry in folder.iterdir()
        if entry.name.endswith(".toml")
    )


def runbook(name: str) -> Runbook:
    """Return a runbook of the package by name, or read the TOML file at a path.

    >>> runbook("coco79-second").per_round
    8
    """
    if name.endswith(".toml"):
        return Runbook.read(name)
    if name not in runbooks():
        raise InputError(
            f"unknown runbook {name!r}; known are {', '.join(runbooks())}, or a path that ends "
            "in .toml"
        )
    text = (resources.files("oasis") / "runbooks" / f"{name}.toml").read_text("utf-8")
    return Runbook.parse(tomllib.loads(text), f"{name}.toml")


def rounds(dataset: Dataset, book: Runbook, seed: int) -> list[Round]:
    """Deal a data set out into rounds; the same for the same data, runbook and seed.

    A round that finds no sample is left out; the others keep their numbers.

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
            f"runbook {book.name!r} wants {n_queries:,} queries, but {dataset.name} has "
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
            # a generator per round: what one round holds does not change another's split
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
                f"runbook {book.name!r} has the class {label!r}, which {dataset.name} has not"
            )
        return dataset.classes.index(label)
    if label > len(columns):
        raise InputError(
            f"runbook {book.name!r} has class number {label}, but {dataset.name} has "
            f"{len(columns)} classes"
        )
    return int(columns[label - 1])


def _latest(dataset: Dataset, groups: list[list[int]]) -> Rows:
    """Return the group that admits the last of each sample's labels.

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
    """Cut a sequence into consecutive non-empty spans whose weights are as equal as can be.

    The sum of the squared weights of the spans is the smallest possible. Of equally good cuts
    the result is always the same one. Memory and time grow with the square of the length.

    >>> balanced(np.array([5, 1, 1, 1, 4]), 3)
    [(0, 1), (1, 4), (4, 5)]
    """
    n = len(weight)
    if not n_spans <= n <= _MAX_BALANCED:
        raise InputError(
            f"cannot balance {n} classes or moments into {n_spans} rounds; expected at least as "
            f"many as rounds and at most {_MAX_BALANCED} (beyond that use rule 'chunks' with "
            "order 'arrival', or per_round)"
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
            f"{dataset.name} does not say when its samples arrived; choose an order other than "
            "'arrival'"
        )
    return dataset.arrival


def _share(share: float | None, n: int) -> int:
    # through the decimal that was written: 0.29 * 100 is 28.999999999999996 in binary
    return int(Decimal(str(share or 0.0)) * n)
