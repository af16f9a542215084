"""Tasks: what is run is data. A study is a TOML file of tasks.

A data set is named as in `oasis.datasets`, with ``synthetic`` for ``synthetic-coco79`` and
``name@n`` for a synthetic set of n samples; ``rest:name`` and ``validation:name`` are its two parts
for tuning. A setting is ``first``, ``second`` or ``third``, a runbook, a scenario, or numbers. A
method may have parameters: ``oasis-paper+alpha=1+n_iter=5``.
"""

from __future__ import annotations

import importlib
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from oasis.codes import check_n_bits
from oasis.datasets import load, names
from oasis.datasets.dataset import Dataset
from oasis.datasets.own import is_own, split_name
from oasis.errors import DataError, InputError
from oasis.experiments.methods import Method, Value, method_named
from oasis.streams import Runbook, numbered_runbook, runbook, runbooks

Row: TypeAlias = dict[str, Any]
"""The result of one task, as plain values."""

SETTINGS = ("first", "second", "third")
"""The paper's three online settings."""

VALIDATION_SHARE, MOST_VALIDATION = 0.2, 4000
"""Samples that are taken out of a data set for tuning: a fifth, at most so many."""

_PARTS = ("rest", "validation")
_NUMBERED = re.compile(r"(apart-)?(?:rounds-([1-9]\d*))?(?:(?:(?<=\d)-)?classes-([1-9]\d*))?")
_KEYS = {"kind", "datasets", "settings", "methods", "bits", "seeds", "options", "tuned"}


@dataclass(frozen=True)
class Task:
    """One kind of study of one method on one stream at one code length with one seed.

    Attributes
    ----------
    kind : module of `oasis.experiments` that does the work, such as "stream"
    dataset, setting, method : as above; ``method`` without parameters
    n_bits : code length; None for a method that has none
    seed : of the split into rounds, and of the method
    parameters : of the method, sorted by name
    options : what is measured, sorted by name

    Examples
    --------
    >>> Task("stream", "coco79", "first", "oasis-paper", 64, 0, (("alpha", 1.0),)).key
    'stream/coco79/first/oasis-paper+alpha=1.0/64/0'
    """

    kind: str
    dataset: str
    setting: str
    method: str
    n_bits: int | None
    seed: int
    parameters: tuple[tuple[str, Value], ...] = ()
    options: tuple[tuple[str, Value], ...] = ()

    @property
    def key(self) -> str:
        """The key of the task's row."""
        bits = "float" if self.n_bits is None else str(self.n_bits)
        place = (self.kind, segment(self.dataset), _stem(self.setting), self.variant, bits)
        return "/".join([*place, str(self.seed)])

    @property
    def variant(self) -> str:
        """The method with its parameters."""
        return "+".join([self.method, *(f"{name}={value}" for name, value in self.parameters)])

    @property
    def module(self) -> ModuleType:
        """The module of its kind."""
        return module_of(self.kind)

    def option(self, name: str, default: Any) -> Any:
        """Return an option, or the default."""
        return dict(self.options).get(name, default)

    def names(self) -> Row:
        """Return the part of the row that says which task it is of."""
        return {
            "key": self.key,
            "kind": self.kind,
            "dataset": segment(self.dataset),
            "setting": _stem(self.setting),
            "method": self.method,
            "parameters": dict(self.parameters),
            "n_bits": self.n_bits,
            "seed": self.seed,
        }


def module_of(kind: str) -> ModuleType:
    """Return the module of a kind of study: any module of this package with ``work``."""
    if re.fullmatch(r"[a-z]+", kind):
        try:
            found = importlib.import_module(f"oasis.experiments.{kind}")
        except ModuleNotFoundError:
            found = importlib.import_module("oasis.experiments")
        if hasattr(found, "work"):
            return found
    raise InputError(
        f"unknown kind of study {kind!r}; known are stream, convergence, tuning, beyond"
    )


@dataclass(frozen=True)
class Grid:
    """All combinations of some choices; names are checked by the constructor.

    Parameters
    ----------
    seeds : a number (from 0), or a text such as ``20-24`` or ``0,7``, or a list
    tuned : whether to run every method with what was tuned as well, on the part ``rest``

    Examples
    --------
    >>> grid = Grid(["synthetic@500"], ["first"], ["oasis", "probe"], [16, 32], seeds=1)
    >>> [task.key for task in grid.tasks()]
    ['stream/synthetic-coco79@500/first/oasis/16/0', 'stream/synthetic-coco79@500/first/oasis/32/0',
     'stream/synthetic-coco79@500/first/probe/float/0']
    """

    datasets: Sequence[str]
    settings: Sequence[str]
    methods: Sequence[str]
    bits: Sequence[int]
    seeds: int | str | Sequence[int] = 1
    kind: str = "stream"
    options: Mapping[str, Value] | None = None
    tuned: bool = False

    def __post_init__(self) -> None:
        prefix = "rest:" if self.tuned else ""
        picked: dict[str, Sequence[Any]] = {
            "datasets": [prefix + check_dataset(name) for name in self.datasets],
            "settings": list(self.settings),
            "methods": list(self.methods),
            "bits": [check_n_bits(n) for n in self.bits],
            "seeds": seeds_of(self.seeds),
        }
        for name, values in picked.items():
            if not values:
                raise InputError(f"no {name} picked; expected one at least")
            object.__setattr__(self, name, tuple(dict.fromkeys(values)))
        for dataset in self.datasets:
            for setting in self.settings:
                module_of(self.kind).check_setting(dataset, setting)
        for variant in self.methods:
            parse_variant(variant)

    def tasks(self) -> list[Task]:
        """Return the tasks by data set, setting, seed, method and code length (the fastest).

        So in a setting the first seed of all methods is finished before the second.
        """
        methods = [parse_variant(variant) for variant in self.methods]
        options = tuple(sorted((self.options or {}).items()))
        return [
            Task(self.kind, dataset, setting, method.name, n, seed, parameters, options)
            for dataset in self.datasets
            for setting in self.settings
            for seed in seeds_of(self.seeds)
            for method, parameters in methods
            for n in (self.bits if method.takes_bits else (None,))
        ]


@dataclass(frozen=True)
class Study:
    """A file of tasks.

    Attributes
    ----------
    about : one line for people
    hours : estimated processor hours
    grids : what is run, in this order
    """

    about: str
    hours: float
    grids: tuple[Grid, ...]


def read_study(path: Path) -> Study:
    """Read a study: ``about``, ``hours``, and tables ``[[task]]`` with the fields of `Grid`."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such study") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a TOML file ({error})") from error
    tables = content.get("task", [])
    for number, table in enumerate(tables, 1):
        unknown, lacking = set(table) - _KEYS, {"datasets", "methods"} - set(table)
        if unknown or lacking:
            raise InputError(
                f"{path}: task {number} has unknown keys {sorted(unknown)} and lacks "
                f"{sorted(lacking)}; known are {', '.join(sorted(_KEYS))}"
            )
    if not tables or not isinstance(content.get("hours"), (int, float)):
        raise InputError(f"{path}: a study has hours = NUMBER and at least one [[task]]")
    grids = tuple(
        Grid(**{"settings": default_settings(table.get("kind", "stream")), "bits": [64], **table})
        for table in tables
    )
    return Study(str(content.get("about", "")), float(content["hours"]), grids)


def default_settings(kind: str) -> tuple[str, ...]:
    """Return the settings of a kind of study: the paper's three, unless it has its own."""
    found: tuple[str, ...] = getattr(module_of(kind), "DEFAULT_SETTINGS", SETTINGS)
    return found


def seeds_of(given: int | str | Sequence[int]) -> tuple[int, ...]:
    """Return a list of seeds.

    >>> seeds_of(2), seeds_of("2"), seeds_of("20-22"), seeds_of("4,7-8")
    ((0, 1), (0, 1), (20, 21, 22), (4, 7, 8))
    """
    if isinstance(given, int) or (isinstance(given, str) and given.strip().isdigit()):
        if int(given) < 1:
            raise InputError(f"seeds must be a positive integer, got {given}")
        return tuple(range(int(given)))
    if not isinstance(given, str):
        return tuple(given)
    found: list[int] = []
    for part in given.split(","):
        limits = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if limits is None or int(limits[2] or limits[1]) < int(limits[1]):
            raise InputError(f"{given!r} is not a list of seeds, such as 3, 20-24 or 0,7")
        found += range(int(limits[1]), int(limits[2] or limits[1]) + 1)
    return tuple(dict.fromkeys(found))


def check_dataset(name: str) -> str:
    """Return the full name of a data set; an error lists the known ones.

    >>> check_dataset("synthetic@2000")
    'synthetic-coco79@2000'
    """
    part, colon, rest = name.partition(":")
    if colon and part in _PARTS:
        return f"{part}:{check_dataset(rest)}"
    if is_own(name):
        return name
    base, at, size = name.partition("@")
    base = "synthetic-coco79" if base == "synthetic" else base
    if base not in names():
        raise InputError(
            f"unknown data set {name!r}; known are synthetic, {', '.join(names())}, or the path of "
            "an .npz, .mat or .parquet file, or of a folder of pictures that ends in /"
        )
    if at and (not base.startswith("synthetic-") or not re.fullmatch(r"[1-9]\d*", size)):
        raise InputError(
            f"{name!r} is not a data set; '@' and a number of samples may follow the name of a "
            "synthetic set, as in synthetic@3000"
        )
    return base + at + size


@lru_cache(maxsize=1)
def load_dataset(name: str, folder: Path | None = None) -> Dataset:
    """Load the data set of a task; the last one is kept in memory.

    >>> [load_dataset(f"{part}:synthetic@100").n_samples for part in ("rest", "validation")]
    [80, 20]
    """
    part, colon, rest = name.partition(":")
    if colon and part in _PARTS:
        whole = load_dataset.__wrapped__(rest, folder)
        return _part_of(whole, part)
    if is_own(name):
        return load(name)
    base, _, size = check_dataset(name).partition("@")
    return load(base, folder, **({"n_samples": int(size)} if size else {}))


def _part_of(dataset: Dataset, part: str) -> Dataset:
    """Return one of the two parts; which rows are for validation depends on their number alone."""
    order = np.random.default_rng(7).permutation(dataset.n_samples)
    n = min(MOST_VALIDATION, round(VALIDATION_SHARE * dataset.n_samples))
    rows = np.sort(order[:n] if part == "validation" else order[n:])
    chosen = dataset.select(rows)
    return replace(chosen, recipe={**dataset.recipe, "part": part})


def missing_file(name: str) -> Path | None:
    """Return the file of a data set that is given by a path, if it does not exist."""
    name = _without_part(name)
    path = split_name(name)[0] if is_own(name) else None
    return None if path is None or path.exists() else path


def segment(dataset: str) -> str:
    """Return the name of a data set in keys.

    >>> segment("rest:coco79"), segment("data/mine.npz")
    ('coco79-rest', 'mine')
    """
    name = _without_part(dataset)
    plain = split_name(name)[0].stem if is_own(name) else name
    return plain if name == dataset else f"{plain}-{dataset.partition(':')[0]}"


def runbook_for(dataset: str, setting: str) -> Runbook:
    """Return the runbook of a setting on a data set.

    >>> runbook_for("coco79", "second").name, runbook_for("mine.npz", "second").name
    ('coco79-second', 'any-second')
    """
    if setting in SETTINGS:
        base = _without_part(dataset)
        if dataset.startswith("validation:"):
            return runbook(f"any-{setting}")  # too few samples for the data set's own rounds
        # the icons' own stream corresponds to the paper's second setting: new classes join old ones
        if base == "icons" and setting == "second":
            return runbook("icons")
        # a synthetic set of full size has the shape of the original, so its runbook fits
        shape = base.removeprefix("synthetic-").removesuffix("-text")
        own = f"{shape}-{setting}"
        return runbook(own if own in runbooks() else f"any-{setting}")
    if setting.endswith(".toml") or setting in runbooks():
        return runbook(setting)
    found = _NUMBERED.fullmatch(setting)
    if found is not None and setting:
        n_rounds, n_classes = (None if each is None else int(each) for each in found.groups()[1:])
        return numbered_runbook(n_rounds, n_classes, apart=found[1] is not None)
    raise InputError(
        f"unknown setting {setting!r}; known are {', '.join(SETTINGS)}, the runbooks "
        f"{', '.join(runbooks())}, a path that ends in .toml, numbers such as rounds-10, "
        "classes-3 and rounds-10-classes-3, or a scenario"
    )


def parse_variant(text: str) -> tuple[Method, tuple[tuple[str, Value], ...]]:
    """Split a method and its parameters: ``oasis-paper+alpha=1``.

    >>> method, parameters = parse_variant("oasis-paper+n_iter=5+alpha=0.1")
    >>> method.name, parameters
    ('oasis-paper', (('alpha', 0.1), ('n_iter', 5)))
    """
    name, *given = text.split("+")
    method = method_named(name)
    parameters: dict[str, Value] = {}
    for each in given:
        parameter, equals, value = each.partition("=")
        if not equals or parameter not in method.parameters:
            raise InputError(
                f"method {name!r} has no parameter {each!r}; expected NAME=VALUE with one of "
                f"{', '.join(method.parameters) or 'none'}"
            )
        parameters[parameter] = _value(value)
    method.check_parameters(parameters)
    return method, tuple(sorted(parameters.items()))


def _value(text: str) -> Value:
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if math.isfinite(number):
            return number
    if not re.fullmatch(r"[\w.-]+", text):
        raise InputError(f"{text!r} cannot be the value of a parameter")
    return text


def _without_part(dataset: str) -> str:
    part, colon, rest = dataset.partition(":")
    return rest if colon and part in _PARTS else dataset


def _stem(setting: str) -> str:
    return Path(setting).stem if setting.endswith(".toml") else setting
