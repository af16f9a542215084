"""Streams: the online settings as data. A runbook and a seed turn a data set into rounds.

A runbook is a TOML file. The package has several in ``oasis/runbooks``, which `runbook` reads by
name. Its keys:

=================  ================================================================================
``name``           what to call it
``about``          one line for people (optional, not part of the digest)
``rule``           how samples are dealt out, see below
``order``          how classes are numbered, from 1 (``growing``, ``groups``), or samples are queued
                   (``chunks``), see below
``classes``        a list of rounds, each a list of class numbers or class names
``per_round``      instead of ``classes``: number of classes (``arrival``: moments) per round, in
                   order; the last round takes the rest
``n_rounds``       instead of either: number of rounds; each has consecutive classes (``arrival``:
                   moments), balanced by samples; with ``chunks``, the number of chunks
``chunk``          ``chunks``: samples per round
``query_count``    ``chunks``: number of random samples that are the queries of every round
``query_share``    share of each round's samples, rounded down, that become its queries
                   (``chunks``: of all samples, the same in every round)
=================  ================================================================================

Rules
    ``chunks``: random chunks of all samples (the first setting of the paper).
    ``growing``: a round admits further classes and takes the labelled samples whose labels have
    all been admitted, except those taken before (the second setting).
    ``groups``: a round takes the labelled samples whose labels all lie in its own group of
    classes (the third setting).
    ``arrival``: a round takes the samples that arrived in its span of moments.
Orders
    ``frequency``: classes by descending frequency over the whole data set, ties by column.
    ``columns``: classes in the order of the data set.
    ``arrival``: classes by their first sample's arrival, then by descending frequency; with
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
from importlib import resources
from pathlib import Path
from typing import Any

from oasis.errors import DataError, InputError

_RULES = {
    "chunks": (("random", "arrival"), ("chunk", "n_rounds"), ("query_count", "query_share")),
    "growing": (("frequency", "columns", "arrival"), ("classes", "per_round", "n_rounds")),
    "groups": (("frequency", "columns", "arrival"), ("classes", "per_round", "n_rounds")),
    "arrival": (("arrival",), ("per_round", "n_rounds")),
}
"""By rule: its orders, the first by default; its sizes, and its numbers of queries, one of each."""

_SHARE = ("query_share",)


@dataclass(frozen=True)
class Runbook:
    """How a data set is divided into a stream; the fields are described in the module docstring.

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
        if self.rule not in _RULES:
            raise self._error(f"unknown rule {self.rule!r}; known are {', '.join(_RULES)}")
        orders, sizes, queries = (*_RULES[self.rule], _SHARE)[:3]
        object.__setattr__(self, "order", self.order or orders[0])
        if self.order not in orders:
            raise self._error(
                f"unknown order {self.order!r} for rule {self.rule!r}; known are "
                f"{', '.join(orders)}"
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
        deciding = ("classes", "per_round", "n_rounds", "chunk", "query_count", "query_share")
        given = [key for key in deciding if getattr(self, key) not in (None, ())]
        for choice in (sizes, queries):
            if len(found := [key for key in given if key in choice]) != 1:
                raise self._error(
                    f"rule {self.rule!r} needs exactly one of {', '.join(choice)}; "
                    f"got {', '.join(found) or 'none'}"
                )
        for key in given:
            if key not in sizes + queries:
                raise self._error(f"{key} has no meaning with rule {self.rule!r}")
        self._check_classes()

    def _check_classes(self) -> None:
        labels = [label for group in self.classes for label in group]
        for number, group in enumerate(self.classes, 1):
            if not group:
                raise self._error(f"round {number} has no class")
            for label in group:
                if type(label) is not str and (type(label) is not int or label < 1):
                    raise self._error(
                        f"round {number} has the class {label!r}; expected a name or a number "
                        "from 1"
                    )
                if labels.count(label) > 1:
                    raise self._error(f"the class {label!r} is given twice")
        if len({type(label) for label in labels}) > 1:
            raise self._error("classes are given by name or by number, not both")

    @classmethod
    def parse(cls, table: Mapping[str, Any], where: str = "runbook") -> Runbook:
        """Return the runbook of a parsed TOML table or of `as_dict`; errors name ``where``."""
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
        """Return the given fields as plain values, from which `parse` makes an equal runbook."""
        values = {key: value for key, value in asdict(self).items() if value not in (None, (), "")}
        if self.classes:
            values["classes"] = [list(group) for group in self.classes]
        return values

    def digest(self) -> str:
        """Return the SHA-256 of everything that determines the rounds (not of name and about)."""
        decisive = {k: v for k, v in self.as_dict().items() if k not in ("name", "about")}
        text = json.dumps(decisive, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def _error(self, what: str) -> InputError:
        return InputError(f"runbook {self.name!r}: {what}")


def runbooks() -> list[str]:
    """Return the names of the runbooks that come with the package, sorted."""
    names = [entry.name for entry in (resources.files("oasis") / "runbooks").iterdir()]
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


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


def numbered_runbook(
    n_rounds: int | None = None, n_classes: int | None = None, *, apart: bool = False
) -> Runbook:
    """Return a runbook for any data from counts; a tenth of the samples become queries.

    Parameters
    ----------
    n_rounds : int or None
        Number of rounds. If given alone: random chunks of all samples.
    n_classes : int or None
        Number of new classes per round, by descending frequency: until none is left, or for
        ``n_rounds`` rounds; later classes never arrive.
    apart : bool
        Whether a round has only its own classes (the third setting) instead of all so far.

    Examples
    --------
    >>> numbered_runbook(10).rule, numbered_runbook(None, 3).per_round
    ('chunks', 3)
    >>> numbered_runbook(2, 3, apart=True).classes
    ((1, 2, 3), (4, 5, 6))
    """
    parts = [] if n_rounds is None else [f"{n_rounds} rounds"]
    parts += [] if n_classes is None else [f"{n_classes} new classes a round"]
    if not parts:
        raise InputError("give a number of rounds, of new classes per round, or both")
    rule = "groups" if apart else "growing" if n_classes is not None else "chunks"
    sizes: dict[str, Any] = {"n_rounds": n_rounds, "per_round": n_classes}
    if n_rounds is not None and n_classes is not None:
        firsts = range(1, n_rounds * n_classes + 1, n_classes)
        sizes = {"classes": tuple(tuple(range(i, i + n_classes)) for i in firsts)}
    about = ", ".join(parts) + (", no others" if apart else "")
    return Runbook(about, rule, query_share=0.1, about=about, **sizes)
