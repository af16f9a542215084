"""Every method by name: how it is constructed for a task, which inputs it gets, what is tuned.

Methods of the package have short names, in ``methods.toml``; `brought` says what a class of another
package needs. Both are described by the same rules (`described`). Every hasher takes
``scaling=raw|unit|zscore`` besides its own parameters; see `oasis.baselines.scaled`.
"""

from __future__ import annotations

import importlib
import inspect
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Literal, TypeAlias, cast

from oasis.baselines.scaled import SCALINGS, ScaledHasher, Scaling, check_scaling
from oasis.datasets.dataset import Dataset
from oasis.errors import InputError
from oasis.experiments.brought import BroughtHasher, Ranker, announced, class_at, source_sha256
from oasis.hashers.protocol import OnlineHasher

Value: TypeAlias = bool | int | float | str
Kind: TypeAlias = Literal["online", "batch", "ranker"]
Values: TypeAlias = tuple[Value, ...]

_SPACES: Values = ("default", "orthogonal")
_SET_BY_TASK = ("n_bits", "random_state", "labels", "classes")
_LABEL_SOURCES = ("default", "wordllama", "orthogonal")
_NOT_RECORDED = ("scaling", "tuned", "labels")
_TOLERANCE = 0.0005


@dataclass(frozen=True)
class Method:
    """A way to rank a base, as it takes part in experiments.

    Attributes
    ----------
    name, title : in commands and keys; in tables and figures
    make : called with keywords: what the task sets, extra inputs, and parameters
    parameters : names that a task may set, with their defaults
    kind : codes of an online method never change; a batch method encodes everything again in each
        round; a ranker has no codes
    grid : parameter -> values to tune; ``scaling`` is added for every hasher
    paper : its name in the paper's tables; empty if the paper did not measure it
    supervision : what it learns from: "labels", "labels, words" (of class names) or "none"
    told_classes : whether all classes of the stream are announced to it in advance
    words : whether it takes vectors of class names: the data set's own, or WordLlama's if there are
        none, unless a task sets ``labels=wordllama|orthogonal``
    fixed, fixed_on : parameters that experiments set; only for data sets of this shape
    max_classes : maximum number of classes
    answers_names : whether class names can be queries (``project_words``)
    source_sha256 : of the file of a class of another package; empty for ours
    tolerance : by how much MAP of the same task may differ between machines
    """

    name: str
    title: str
    make: Callable[..., OnlineHasher | Ranker]
    parameters: Mapping[str, Any]
    kind: Kind = "online"
    grid: Mapping[str, Values] = field(default_factory=dict)
    paper: str = ""
    supervision: str = "labels"
    told_classes: bool = False
    words: bool = False
    fixed: Mapping[str, Value] = field(default_factory=dict)
    fixed_on: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    max_classes: int | None = None
    answers_names: bool = False
    source_sha256: str = ""
    tolerance: float = _TOLERANCE

    @property
    def has_codes(self) -> bool:
        """Whether the method makes codes."""
        return self.kind != "ranker"

    @property
    def takes_bits(self) -> bool:
        """Whether it has a code length: every hasher, and rankers of so many bytes."""
        return self.has_codes or "n_bits" in self.parameters

    def model(
        self, n_bits: int | None, seed: int, dataset: Dataset, parameters: Mapping[str, Value]
    ) -> OnlineHasher | Ranker:
        """Return a new model for a task."""
        if self.max_classes is not None and len(dataset.classes) > self.max_classes:
            raise InputError(
                f"{self.title} can tell {self.max_classes} classes apart, {dataset.name} has "
                f"{len(dataset.classes)}; leave {self.name!r} out, or take a part of the classes"
            )
        options: dict[str, Any] = {**self.fixed_for(dataset.name), **parameters}
        for name in ("rounds", "tuned"):
            options.pop(name, None)
        scaling = options.pop("scaling", "raw")
        labels = options.pop("labels", "default")
        if self.takes_bits:
            options |= {"n_bits": n_bits, "random_state": seed}
        if self.words:
            own = "wordllama" if dataset.vectors is None else dataset.vectors
            options["labels"] = own if labels == "default" else labels
        if self.told_classes:
            options["classes"] = dataset.classes
        model = self.make(**options)
        if not isinstance(model, OnlineHasher) or scaling == "raw":
            return model
        return ScaledHasher(model, cast(Scaling, scaling))

    def fixed_for(self, dataset: str) -> dict[str, Value]:
        """Return the parameters that experiments on a data set, by name, set by default.

        >>> METHODS["sapmh"].fixed_for("nuswide")["k"]
        500
        """
        return {**self.fixed_on.get(dataset.removeprefix("synthetic-"), {}), **self.fixed}

    def stops(self, n_rounds: int, parameters: Mapping[str, Value]) -> list[int]:
        """Return the positions of the rounds after which it is measured.

        A batch method is slow: it is trained and measured at the first, middle and last round,
        unless ``rounds=all``.

        >>> METHODS["omh-dq"].stops(10, {}), METHODS["omh-dq"].stops(4, {"rounds": "all"})
        ([0, 4, 9], [0, 1, 2, 3])
        """
        if "rounds" in self.parameters and "rounds" not in parameters:
            return sorted({0, (n_rounds - 1) // 2, n_rounds - 1})
        return list(range(n_rounds))

    def check_parameters(self, parameters: Mapping[str, Value]) -> None:
        """Raise an `InputError` if ``rounds``, ``scaling`` or ``labels`` have unknown values."""
        if parameters.get("rounds", "all") != "all":
            raise InputError(
                f"rounds={parameters['rounds']} of {self.name!r}: expected rounds=all, or nothing "
                "for the first, middle and last round"
            )
        if self.has_codes:
            check_scaling(parameters.get("scaling", "raw"), self.name)
        if parameters.get("labels", "default") not in _LABEL_SOURCES:
            raise InputError(
                f"labels={parameters['labels']} of {self.name!r}: expected one of "
                f"{', '.join(_LABEL_SOURCES)}"
            )

    def facts(self, dataset: Dataset, parameters: Mapping[str, Value]) -> dict[str, Any]:
        """Return what a row records about its method."""
        vectors = "wordllama and axes" if self.name == "oasis" else ""
        if self.words:
            vectors = "wordllama" if dataset.vectors is None else f"those of {dataset.name}"
        defaults = {k: _plain(v) for k, v in self.parameters.items() if k not in _NOT_RECORDED}
        found: dict[str, Any] = {
            "title": self.title,
            "kind": self.kind,
            "told_classes": self.told_classes,
            "label_vectors": vectors,
            "fixed": self.fixed_for(dataset.name),
            "defaults": defaults,
        }
        if self.source_sha256:
            found["source_sha256"] = self.source_sha256
        if "rounds" in self.parameters and "rounds" not in parameters:
            found["rounds"] = "first, middle and last"
        return found


def _plain(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str, type(None))) else repr(value)


def described(name: str, cls: Any, table: Mapping[str, Any], source: str = "") -> Method:
    """Return the entry of a class.

    Parameters
    ----------
    cls : the class, or another callable that makes a model
    table : what the class itself does not say: fields of `Method`, ``tell`` (announce classes that
        it does not need), ``given`` (parameters that the name stands for)
    source : SHA-256 of its file, if it is of another package
    """
    try:
        signature = inspect.signature(cls).parameters.values()
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{name}: the parameters of its constructor cannot be inspected"
        ) from error
    found = {
        p.name: p.default for p in signature if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }
    table, missing = dict(table), inspect.Parameter.empty
    held = table.pop("given", {})
    ranks = hasattr(cls, "scores") and not (hasattr(cls, "project") or hasattr(cls, "encode"))
    refits = held.get("refit") is True
    is_batch = not ranks and (refits or getattr(cls, "is_batch", False) is True)
    told = bool(table.pop("tell", False) or getattr(cls, "needs_classes", False))
    words = bool(table.pop("words", found.get("labels") is missing))
    if not ranks and "n_bits" not in found:
        raise InputError(f"{name}: its constructor has no parameter n_bits, the length of a code")
    if told and "classes" not in found:
        raise InputError(f"{name} needs_classes, but its constructor has no parameter classes")
    parameters = {k: v for k, v in found.items() if k not in (*_SET_BY_TASK, *held)}
    required = [each for each, default in parameters.items() if default is missing]
    parameters |= dict.fromkeys(required)
    parameters |= {"n_bits": None} if ranks and "n_bits" in found else {}
    parameters |= (
        {"rounds": "first, middle and last"} if (ranks or is_batch) and refits == ranks else {}
    )
    parameters |= {} if ranks else {"scaling": "raw", "tuned": 0}
    parameters |= {"labels": "default"} if words else {}

    def make(**options: Any) -> OnlineHasher | Ranker:
        absent = [each for each in required if each not in options]
        if absent:
            raise InputError(f"{name}: give {absent[0]} a value, as in {name}+{absent[0]}=1")
        model = cls(**held, **{key: value for key, value in options.items() if key in found})
        if ranks or isinstance(model, OnlineHasher):
            return model
        return BroughtHasher(model, name, options["n_bits"])

    nuswide = getattr(importlib.import_module(cls.__module__), "NUSWIDE", None)
    described_here: dict[str, Any] = {
        "title": name.rpartition(":")[2],
        "kind": "ranker" if ranks else "batch" if is_batch else "online",
        "grid": getattr(cls, "tuning_grid", {}),
        "told_classes": told,
        "words": words,
        "fixed_on": {} if nuswide is None else {"nuswide": nuswide},
        "max_classes": getattr(cls, "max_classes", None),
        "answers_names": hasattr(cls, "project_words"),
        "source_sha256": source,
    }
    return Method(name=name, make=make, parameters=parameters, **{**described_here, **table})


def _read() -> dict[str, Method]:
    text = (resources.files("oasis") / "experiments" / "methods.toml").read_text("utf-8")
    found = tomllib.loads(text)
    return {
        name: described(name, class_at(table.pop("class")), table) for name, table in found.items()
    }


METHODS = _read()
"""The methods, in the order in which reports list them."""

TOLD_MARK = " ‡"
"""Follows the title of a method that is told all classes of the stream in advance."""


def grid_of(name: str) -> dict[str, Values]:
    """Return the values that are tuned: the method's grid, the scaling, and the label space."""
    method = method_named(name)
    if not method.has_codes:
        raise InputError(f"{name!r} has no codes and is not tuned")
    if not isinstance(method.grid, Mapping):
        raise InputError(f"{name}: tuning_grid is {method.grid!r}, expected a dict")
    for key, values in method.grid.items():
        if key not in method.parameters:
            raise InputError(
                f"{name}: tuning_grid has {key!r}, which is no parameter; known are "
                f"{', '.join(sorted(method.parameters))}"
            )
        listed = isinstance(values, (list, tuple)) and len(values) > 0
        if not listed or not all(isinstance(value, (bool, int, float, str)) for value in values):
            raise InputError(
                f"{name}: tuning_grid has {key}={values!r}, expected a list of numbers, texts, "
                "True and False"
            )
    grid = {key: tuple(values) for key, values in method.grid.items()}
    return {**grid, **({"labels": _SPACES} if method.words else {}), "scaling": SCALINGS}


def method_named(name: str) -> Method:
    """Return a method by name, import path or entry point.

    >>> method_named("fomh").told_classes
    True
    >>> method_named("oasis.baselines:LEMON").title
    'LEMON'
    """
    if name in METHODS:
        return METHODS[name]
    if ":" in name or name in announced():
        return _brought(name)
    raise InputError(
        f"unknown method {name!r}; known are {', '.join([*METHODS, *announced()])}, or an import "
        "path such as mypackage.mymodule:MyHasher"
    )


@cache
def _brought(name: str) -> Method:
    cls = class_at(announced().get(name, name))
    return described(name, cls, {}, source_sha256(cls))


def title_of(variant: str) -> str:
    """Return the title of a method with its parameters; nothing is imported.

    A method that is told all classes in advance has a mark.

    >>> title_of("oasis-paper+alpha=1"), title_of("mypackage.hashing:MyHasher+tuned=24")
    ('OASIS (paper), alpha=1', 'MyHasher, tuned')
    >>> title_of("fomh")
    'FOMH ‡'
    """
    name, *parameters = variant.split("+")
    title = METHODS[name].title if name in METHODS else name.rpartition(":")[2]
    title += TOLD_MARK if name in METHODS and METHODS[name].told_classes else ""
    shown = ["tuned" if each.startswith("tuned=") else each for each in parameters]
    return ", ".join([title, *shown])


def place_of(variant: str) -> int:
    """Return the position of a method in tables: in the order of `METHODS`, others after them.

    >>> place_of("oasis-paper+alpha=1"), place_of("mine:MyHasher") == len(METHODS)
    (0, True)
    """
    known, name = list(METHODS), variant.split("+")[0]
    return known.index(name) if name in known else len(known)
