"""Every method by name: how it is made for a run, and what it is told that others are not."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from oasis.baselines import FOMH, ITQ, LEMON, FloatCosine, PCASign, Probe, RandomProjection
from oasis.datasets.dataset import Dataset
from oasis.errors import InputError
from oasis.hasher import OnlineHasher
from oasis.model import OASIS

Ranker: TypeAlias = FloatCosine | Probe
Value: TypeAlias = bool | int | float | str

_SET_BY_RUN = ("n_bits", "random_state", "labels", "classes")


@dataclass(frozen=True)
class Method:
    """A way to rank a base, as it takes part in experiments.

    Attributes
    ----------
    name : str
        How it is asked for; part of a run's key.
    title : str
        How tables and figures call it.
    kind : {"online", "batch", "ranker"}
        Online codes stand for ever; a batch method codes everything anew each round; a ranker
        has no codes at all.
    paper : str
        Its name in the paper's tables; empty where the paper has not measured it.
    told_classes : bool
        Whether all classes of the stream are announced to it beforehand.
    make : called with the code length (None for rankers), seed, data set and parameters
    parameters : names that a run may set
    """

    name: str
    title: str
    kind: Literal["online", "batch", "ranker"]
    make: Callable[[int | None, int, Dataset, Mapping[str, Value]], OnlineHasher | Ranker]
    parameters: tuple[str, ...]
    paper: str = ""
    told_classes: bool = False

    @property
    def has_codes(self) -> bool:
        """Whether the method makes codes, and so needs a code length."""
        return self.kind != "ranker"

    def label_vectors(self, dataset: Dataset) -> str:
        """Return where the vectors of class names come from; empty where none are used.

        The method as published takes the data set's own where there are some.
        """
        if self.name == "oasis-paper":
            return "wordllama" if dataset.vectors is None else f"those of {dataset.name}"
        return "wordllama and axes" if self.name == "oasis" else ""


def _oasis_paper(
    n_bits: int | None, seed: int, dataset: Dataset, parameters: Mapping[str, Value]
) -> OASIS:
    labels: Any = "wordllama" if dataset.vectors is None else dataset.vectors
    options: dict[str, Any] = dict(parameters)
    return OASIS.paper(n_bits or 0, labels, random_state=seed, **options)


def _hasher(cls: Callable[..., OnlineHasher], **fixed: Any) -> Callable[..., OnlineHasher]:
    def make(
        n_bits: int | None, seed: int, dataset: Dataset, parameters: Mapping[str, Value]
    ) -> OnlineHasher:
        return cls(n_bits, random_state=seed, **{**fixed, **parameters})

    return make


def _fomh(n_bits: int | None, seed: int, dataset: Dataset, parameters: Mapping[str, Value]) -> FOMH:
    # the published widths fit standardised features; those of our data sets are raw
    options: dict[str, Any] = {"sigma": "mean", **parameters}
    return FOMH(n_bits or 0, classes=dataset.classes, random_state=seed, **options)


def _ranker(cls: Callable[..., Ranker]) -> Callable[..., Ranker]:
    def make(
        n_bits: int | None, seed: int, dataset: Dataset, parameters: Mapping[str, Value]
    ) -> Ranker:
        return cls(**parameters)

    return make


def _settable(cls: Callable[..., Any], *fixed: str) -> tuple[str, ...]:
    names = inspect.signature(cls).parameters
    return tuple(name for name in names if name not in _SET_BY_RUN + fixed)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "oasis-paper",
            "OASIS (paper)",
            "online",
            _oasis_paper,
            _settable(OASIS, "balanced", "queries", "normalize", "unlabelled"),
            paper="OASIS",
        ),
        Method("oasis", "OASIS", "online", _hasher(OASIS), _settable(OASIS)),
        Method("fomh", "FOMH", "online", _fomh, _settable(FOMH), paper="FOMH", told_classes=True),
        Method("lemon", "LEMON", "online", _hasher(LEMON), _settable(LEMON)),
        Method(
            "random-projection",
            "random projection",
            "online",
            _hasher(RandomProjection),
            _settable(RandomProjection),
        ),
        Method("pca-sign", "PCA-sign", "online", _hasher(PCASign), _settable(PCASign)),
        Method("itq", "ITQ", "online", _hasher(ITQ), _settable(ITQ, "refit")),
        Method(
            "itq-refit", "ITQ refitted", "batch", _hasher(ITQ, refit=True), _settable(ITQ, "refit")
        ),
        Method(
            "float-cosine", "float cosine", "ranker", _ranker(FloatCosine), _settable(FloatCosine)
        ),
        Method("probe", "probe (ceiling)", "ranker", _ranker(Probe), _settable(Probe)),
    )
}
"""The methods, in the order in which reports list them."""


def method_named(name: str) -> Method:
    """Return a method by name.

    >>> method_named("fomh").told_classes
    True
    """
    if name not in METHODS:
        raise InputError(f"unknown method {name!r}; known are {', '.join(METHODS)}")
    return METHODS[name]
