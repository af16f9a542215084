"""Every method by name: how it is constructed for a run, and which extra inputs it gets.

Methods of the package have short names; others are given by import path or entry point, see
`oasis.experiments.run.brought`. Every hasher takes ``scaling=raw|unit|zscore`` besides its own
parameters; see `oasis.experiments.run.scaling`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, TypeAlias, cast

from oasis.baselines import (
    FOMH,
    ITQ,
    IWOMH,
    LEMON,
    OMHDQ,
    SAPMH,
    THOR,
    CompletedCosine,
    FloatCosine,
    PCASign,
    Probe,
    RandomProjection,
)
from oasis.baselines import sapmh as sapmh_module
from oasis.baselines import thor as thor_module
from oasis.datasets.dataset import (
    Dataset,
)
from oasis.errors import InputError
from oasis.experiments.run import brought
from oasis.experiments.run.scaling import ScaledHasher, Scaling, check_scaling
from oasis.hashers.protocol import (
    OnlineHasher,
)
from oasis.model import OASIS, PublishedOASIS

Ranker: TypeAlias = FloatCosine | CompletedCosine | Probe
Value: TypeAlias = bool | int | float | str
Kind: TypeAlias = Literal["online", "batch", "ranker"]

_LABEL_SOURCES = ("default", "wordllama", "orthogonal")
_SET_BY_RUN = ("n_bits", "random_state", "labels", "classes")
_ROUNDS = "rounds"
_SCALING = "scaling"
_TUNED = "tuned"
_LABELS = "labels"
NOT_RECORDED = (_SCALING, _TUNED, _LABELS)
"""Parameters that every hasher has; their defaults are not part of what a result records."""


@dataclass(frozen=True)
class Method:
    """A way to rank a base, as it takes part in experiments.

    Attributes
    ----------
    name : str
        Name in commands; part of a run's key.
    title : str
        Name in tables and figures.
    make : called with keywords
        Those set by the run (``n_bits`` and ``random_state`` of a hasher), extra inputs
        (``labels``, ``classes``), and parameters.
    parameters : names that a run may set, with their defaults
    kind : {"online", "batch", "ranker"}
        Codes of an online method never change; a batch method encodes everything again in each
        round; a ranker has no codes.
    paper : str
        Its name in the paper's tables; empty if the paper did not measure it.
    told_classes : bool
        Whether all classes of the stream are announced to it in advance.
    words : bool
        Whether it takes vectors of class names: the data set's own, or WordLlama's if there are
        none, unless a run sets ``labels=wordllama|orthogonal``.
    thrice : bool
        Whether it is trained and measured only at the first, middle and last round, because
        training on everything seen is slow; ``rounds=all`` overrides this.
    fixed : parameters that experiments set by default
    fixed_on : the same, only for data sets of this shape
    max_classes : int or None
        Maximum number of classes.
    answers_names : bool
        Whether class names can be queries (``project_words``).
    tuning_grid : parameter -> values to tune, as a class of another package declares them
    source_sha256 : of the file of a class of another package; empty for ours
    """

    name: str
    title: str
    make: Callable[..., OnlineHasher | Ranker]
    parameters: Mapping[str, Any]
    kind: Kind = "online"
    paper: str = ""
    told_classes: bool = False
    words: bool = False
    thrice: bool = False
    fixed: Mapping[str, Value] = field(default_factory=dict)
    fixed_on: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    max_classes: int | None = None
    answers_names: bool = False
    tuning_grid: Any = field(default_factory=dict)
    source_sha256: str = ""

    @property
    def has_codes(self) -> bool:
        """Whether the method makes codes, and so needs a code length."""
        return self.kind != "ranker"

    def model(
        self, n_bits: int | None, seed: int, dataset: Dataset, parameters: Mapping[str, Value]
    ) -> OnlineHasher | Ranker:
        """Return a new model for a run."""
        self.check_classes(dataset)
        options: dict[str, Any] = {**self.fixed_for(dataset.name), **parameters}
        options.pop(_ROUNDS, None)
        options.pop(_TUNED, None)
        scaling = options.pop(_SCALING, "raw")
        labels = options.pop(_LABELS, "default")
        if self.has_codes:
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

        >>> METHODS["omh-dq"].stops(10, {}), METHODS["omh-dq"].stops(4, {"rounds": "all"})
        ([0, 4, 9], [0, 1, 2, 3])
        """
        if self.thrice and _ROUNDS not in parameters:
            return sorted({0, (n_rounds - 1) // 2, n_rounds - 1})
        return list(range(n_rounds))

    def check_parameters(self, parameters: Mapping[str, Value]) -> None:
        """Raise an `InputError` if the parameters ``rounds`` or ``scaling`` have unknown values."""
        if parameters.get(_ROUNDS, "all") != "all":
            raise InputError(
                f"rounds={parameters[_ROUNDS]} of {self.name!r}: expected rounds=all, or nothing "
                "for the first, middle and last round"
            )
        if self.has_codes:
            check_scaling(parameters.get(_SCALING, "raw"), self.name)
        if parameters.get(_LABELS, "default") not in _LABEL_SOURCES:
            raise InputError(
                f"labels={parameters[_LABELS]} of {self.name!r}: expected one of "
                f"{', '.join(_LABEL_SOURCES)}"
            )

    def check_classes(self, dataset: Dataset) -> None:
        """Raise if a data set has more classes than the method supports."""
        if self.max_classes is not None and len(dataset.classes) > self.max_classes:
            raise InputError(
                f"{self.title} can tell {self.max_classes} classes apart, {dataset.name} has "
                f"{len(dataset.classes)}; leave {self.name!r} out, or take a part of the classes"
            )

    def label_vectors(self, dataset: Dataset) -> str:
        """Return the source of the vectors of class names; empty if none are used."""
        if self.words:
            return "wordllama" if dataset.vectors is None else f"those of {dataset.name}"
        return "wordllama and axes" if self.name == "oasis" else ""


def _settable(cls: Callable[..., Any], *fixed: str) -> dict[str, Any]:
    found = brought.parameters_of(cls, getattr(cls, "__name__", "the method"))
    own = {name: default for name, default in found.items() if name not in _SET_BY_RUN + fixed}
    return own | ({_SCALING: "raw", _TUNED: 0} if "n_bits" in found else {})


def _hasher(
    name: str, title: str, cls: type[OnlineHasher], *, tell: bool = False, **options: Any
) -> Method:
    """Return an entry; its kind and whether classes are announced are taken from the class.

    ``tell`` announces the classes to a method that does not need them, as the paper does.
    """
    is_batch = cls.is_batch is True  # for ITQ it depends on a parameter
    return Method(
        name,
        title,
        cls,
        _settable(cls)
        | ({_ROUNDS: "first, middle and last"} if is_batch else {})
        | (_WORDS if options.get("words") else {}),
        kind="batch" if is_batch else "online",
        told_classes=tell or cls.needs_classes,
        thrice=is_batch,
        **options,
    )


# The published widths are for features of another scale.
_RAW: dict[str, Value] = {"sigma": "mean"}
_BATCH: dict[str, Value] = {**_RAW, "dtype": "float32"}

_WORDS = {_LABELS: "default"}

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "oasis-paper",
            "OASIS (paper)",
            PublishedOASIS,
            _settable(PublishedOASIS) | _WORDS,
            paper="OASIS",
            words=True,
            answers_names=True,
        ),
        _hasher("oasis", "OASIS", OASIS, answers_names=True),
        _hasher("fomh", "FOMH", FOMH, paper="FOMH", tell=True, fixed=_RAW),
        _hasher("lemon", "LEMON", LEMON),
        _hasher(
            "thor",
            "THOR",
            THOR,
            words=True,
            fixed_on={"nuswide": thor_module.NUSWIDE},
            max_classes=thor_module.MAX_CLASSES,
        ),
        _hasher("iw-omh", "IW-OMH", IWOMH, words=True),
        _hasher("omh-dq", "OMH-DQ", OMHDQ, paper="OMH-DQ", fixed=_BATCH),
        _hasher(
            "sapmh",
            "SAPMH",
            SAPMH,
            paper="SAPMH",
            fixed={**_BATCH, "max_iter": 20},
            fixed_on={"nuswide": sapmh_module.NUSWIDE},
        ),
        _hasher("random-projection", "random projection", RandomProjection),
        _hasher("pca-sign", "PCA-sign", PCASign),
        Method("itq", "ITQ", ITQ, _settable(ITQ, "refit")),
        Method(
            "itq-refit",
            "ITQ refitted",
            lambda **options: ITQ(refit=True, **options),
            _settable(ITQ, "refit"),
            kind="batch",
        ),
        Method("float-cosine", "float cosine", FloatCosine, _settable(FloatCosine), kind="ranker"),
        Method(
            "completed-cosine",
            "float cosine, completed",
            CompletedCosine,
            _settable(CompletedCosine),
            kind="ranker",
        ),
        Method("probe", "probe (ceiling)", Probe, _settable(Probe), kind="ranker"),
    )
}
"""The methods, in the order in which reports list them."""


def method_named(name: str) -> Method:
    """Return a method by name, import path or entry point.

    >>> method_named("fomh").told_classes
    True
    >>> method_named("oasis.baselines:LEMON").title
    'LEMON'
    """
    if name in METHODS:
        return METHODS[name]
    if brought.is_path(name):
        return _brought(name, name)
    found = brought.announced()
    if name in found:
        return _brought(name, found[name])
    raise InputError(
        f"unknown method {name!r}; known are {', '.join([*METHODS, *found])}, or an import path "
        "such as mypackage.mymodule:MyHasher"
    )


def title_of_method(name: str) -> str:
    """Return the name of a method in tables; nothing is imported.

    >>> title_of_method("oasis-paper"), title_of_method("mypackage.hashing:MyHasher")
    ('OASIS (paper)', 'MyHasher')
    """
    return METHODS[name].title if name in METHODS else name.rpartition(":")[2]


def place_of(variant: str) -> int:
    """Return the position of a method in tables: in the order of `METHODS`, others after them.

    >>> place_of("oasis-paper+alpha=1"), place_of("mine:MyHasher") == len(METHODS)
    (0, True)
    """
    known, name = list(METHODS), variant.split("+")[0]
    return known.index(name) if name in known else len(known)


def recorded_method(name: str, about: Mapping[str, Any]) -> Method:
    """Return a method as recorded in a result; it need not be installed, and cannot be run."""
    if name in METHODS:
        return METHODS[name]

    def refuse(**_: Any) -> OnlineHasher:
        raise InputError(f"{name} is known from a result only")

    return Method(
        name,
        about.get("title", title_of_method(name)),
        refuse,
        about.get("defaults", {}),
        kind=about["kind"],
        told_classes=about["told_classes"],
        fixed=about.get("fixed", {}),
    )


@lru_cache(maxsize=64)
def _brought(name: str, path: str) -> Method:
    """Return the entry of a class of another package; `brought` describes its interface."""
    cls: Any = brought.class_at(path)
    found = brought.parameters_of(cls, name)
    is_ranker = not (hasattr(cls, "project") or hasattr(cls, "encode")) and hasattr(cls, "scores")
    if not is_ranker and "n_bits" not in found:
        raise InputError(f"{name}: its constructor has no parameter n_bits, the length of a code")
    is_batch = getattr(cls, "is_batch", False) is True
    told = bool(getattr(cls, "needs_classes", False))
    if told and "classes" not in found:
        raise InputError(f"{name} needs_classes, but its constructor has no parameter classes")
    missing = inspect.Parameter.empty
    parameters = _settable(cls) | ({_ROUNDS: "first, middle and last"} if is_batch else {})
    required = [each for each, default in parameters.items() if default is missing]

    def make(**options: Any) -> OnlineHasher | Ranker:
        absent = [each for each in required if each not in options]
        if absent:
            raise InputError(f"{name}: give {absent[0]} a value, as in {name}+{absent[0]}=1")
        given = {key: value for key, value in options.items() if key in found}
        model = cls(**given)
        return cast(Ranker, model) if is_ranker else brought.adapted(model, name, given["n_bits"])

    return Method(
        name,
        title_of_method(name),
        make,
        {each: None if default is missing else default for each, default in parameters.items()},
        kind="ranker" if is_ranker else "batch" if is_batch else "online",
        told_classes=told,
        words=found.get("labels") is missing,
        thrice=is_batch,
        max_classes=getattr(cls, "max_classes", None),
        answers_names=hasattr(cls, "project_words"),
        tuning_grid=getattr(cls, "tuning_grid", {}),
        source_sha256=brought.source_sha256(cls),
    )
