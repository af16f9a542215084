"""Definition of runs: a run is data, and its key is its path.

A data set is named as in `oasis.datasets`, with ``synthetic`` for ``synthetic-coco79`` and
``name@n`` for a synthetic set of n samples. A setting is ``first``, ``second`` or ``third`` (the
data set's own runbook, or the rule for any data), the name of a runbook, or the path of one. A
method may have parameters: ``oasis-paper+alpha=1+n_iter=5``. A method of another package is named
by its import path, ``mypackage.mymodule:MyHasher+alpha=1``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Self

from oasis.codes import check_n_bits
from oasis.datasets import load, names
from oasis.datasets.dataset import (
    Dataset,
)
from oasis.datasets.own import is_own, split_name
from oasis.errors import InputError
from oasis.experiments.run.methods import Method, Value, method_named
from oasis.streams import Runbook, numbered_runbook, runbook, runbooks

SETTINGS = ("first", "second", "third")
"""The paper's three online settings."""

# the icons' own stream corresponds to the paper's second setting: new classes join old ones
_ICONS_SECOND = "icons"
_NO_CODES = "float"
_NUMBERED = re.compile(r"(apart-)?(?:rounds-([1-9]\d*))?(?:(?:(?<=\d)-)?classes-([1-9]\d*))?")


@dataclass(frozen=True)
class Run:
    """One method on one stream at one code length with one seed.

    Attributes
    ----------
    dataset, setting, method : str
        As above; ``method`` without parameters.
    n_bits : int or None
        Code length; None for a ranker, which has no codes.
    seed : int
        Seed of the split into rounds and of the method.
    parameters : tuple of (name, value)
        Parameters of the method, sorted by name.

    Examples
    --------
    >>> Run("coco79", "first", "oasis-paper", 64, 0, (("alpha", 1.0),)).key
    PurePosixPath('coco79/first/oasis-paper+alpha=1.0/64/0')
    """

    dataset: str
    setting: str
    method: str
    n_bits: int | None
    seed: int
    parameters: tuple[tuple[str, Value], ...] = ()

    @property
    def key(self) -> PurePosixPath:
        """The path of all files of the run, without a suffix."""
        return PurePosixPath(
            _dataset_segment(self.dataset),
            _setting_segment(self.setting),
            self.variant.replace(":", "~"),  # file names on Windows cannot have a colon
            _NO_CODES if self.n_bits is None else str(self.n_bits),
            str(self.seed),
        )

    @property
    def variant(self) -> str:
        """The method with its parameters."""
        return "+".join([self.method, *(f"{name}={value}" for name, value in self.parameters)])

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, from which `parse` makes an equal run."""
        return {
            "dataset": self.dataset,
            "setting": self.setting,
            "method": self.method,
            "n_bits": self.n_bits,
            "seed": self.seed,
            "parameters": dict(self.parameters),
        }

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Return the run that `as_dict` described."""
        try:
            parameters = tuple(sorted(values["parameters"].items()))
            return cls(
                str(values["dataset"]),
                str(values["setting"]),
                str(values["method"]),
                None if values["n_bits"] is None else int(values["n_bits"]),
                int(values["seed"]),
                parameters,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"not a run: {values!r} ({error!r})") from error


def set_picks(plan: Any, **picks: Sequence[Any]) -> None:
    """Set fields of a frozen plan without duplicates; raise for an empty field or seeds below 1."""
    for name, values in picks.items():
        if not values:
            raise InputError(f"no {name} picked; expected one at least")
        object.__setattr__(plan, name, tuple(dict.fromkeys(values)))
    if plan.seeds < 1:
        raise InputError(f"seeds must be a positive integer, got {plan.seeds}")


@dataclass(frozen=True)
class Grid:
    """All combinations of some choices.

    A ranker has no code length and is run once. Names are checked by the constructor, before
    anything runs.

    Examples
    --------
    >>> grid = Grid(["synthetic@500"], ["first"], ["oasis", "probe"], [16, 32], seeds=1)
    >>> [str(run.key) for run in grid.runs()]
    ['synthetic-coco79@500/first/oasis/16/0', 'synthetic-coco79@500/first/oasis/32/0',
     'synthetic-coco79@500/first/probe/float/0']
    """

    datasets: Sequence[str]
    settings: Sequence[str]
    methods: Sequence[str]
    bits: Sequence[int]
    seeds: int

    def __post_init__(self) -> None:
        set_picks(
            self,
            datasets=[check_dataset(name) for name in self.datasets],
            settings=self.settings,
            methods=self.methods,
            bits=[check_n_bits(n) for n in self.bits],
        )
        for dataset in self.datasets:
            for setting in self.settings:
                runbook_for(dataset, setting)
        for variant in self.methods:
            parse_variant(variant)

    def runs(self) -> list[Run]:
        """Return the runs by data set, setting, seed, method and code length (the fastest).

        So in a setting the first seed of all methods is finished before the second.
        """
        methods = [parse_variant(variant) for variant in self.methods]
        return [
            Run(dataset, setting, method.name, n_bits, seed, parameters)
            for dataset in self.datasets
            for setting in self.settings
            for seed in range(self.seeds)
            for method, parameters in methods
            for n_bits in (self.bits if method.has_codes else (None,))
        ]


def check_dataset(name: str) -> str:
    """Return the full name of a data set; an error lists the known ones.

    >>> check_dataset("synthetic@2000")
    'synthetic-coco79@2000'
    """
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


def load_dataset(name: str, folder: Path | None = None) -> Dataset:
    """Load the data set of a run."""
    if is_own(name):
        return load(name)
    base, _, size = check_dataset(name).partition("@")
    return load(base, folder, **({"n_samples": int(size)} if size else {}))


def runbook_for(dataset: str, setting: str) -> Runbook:
    """Return the runbook of a setting on a data set.

    >>> runbook_for("coco79", "second").name, runbook_for("mine.npz", "second").name
    ('coco79-second', 'any-second')
    """
    if setting in SETTINGS:
        if dataset == "icons" and setting == "second":
            return runbook(_ICONS_SECOND)
        # a synthetic set of full size has the shape of the original, so its runbook fits
        own = f"{dataset.removeprefix('synthetic-')}-{setting}"
        return runbook(own if own in runbooks() else f"any-{setting}")
    if setting.endswith(".toml") or setting in runbooks():
        return runbook(setting)
    numbers = _NUMBERED.fullmatch(setting)
    if numbers is not None and setting:
        n_rounds, n_classes = (None if each is None else int(each) for each in numbers.groups()[1:])
        return numbered_runbook(n_rounds, n_classes, apart=numbers[1] is not None)
    raise InputError(
        f"unknown setting {setting!r}; known are {', '.join(SETTINGS)}, the runbooks "
        f"{', '.join(runbooks())}, a path that ends in .toml, or numbers such as rounds-10, "
        "classes-3 and rounds-10-classes-3"
    )


def numbered_setting(n_rounds: int | None, n_classes: int | None, apart: bool = False) -> str:
    """Return the setting that is given by numbers; see `oasis.streams.numbered_runbook`.

    >>> numbered_setting(10, 3), numbered_setting(None, 3, apart=True)
    ('rounds-10-classes-3', 'apart-classes-3')
    """
    parts = ["apart"] * apart
    parts += [] if n_rounds is None else [f"rounds-{n_rounds}"]
    parts += [] if n_classes is None else [f"classes-{n_classes}"]
    return "-".join(parts)


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


def _dataset_segment(name: str) -> str:
    return split_name(name)[0].stem if is_own(name) else name


def _setting_segment(setting: str) -> str:
    return Path(setting).stem if setting.endswith(".toml") else setting
