"""Inquiries: an inquiry is data, and its key is its path.

An inquiry is one method on one episode: a data set with some modalities, a code length, a seed,
and a kind of episode with its number. Its result is one JSON file under ``beyond/<key>.json``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Self

from oasis.codes import check_n_bits
from oasis.errors import FormatError, InputError, NewerVersionError
from oasis.experiments.beyond.answers import Answer, ask, diagnose, learn, takes_content
from oasis.experiments.beyond.material import OWN, Material
from oasis.experiments.beyond.protocols import FULL, Sizes, episode, numbered, why_not
from oasis.experiments.run.definition import check_dataset, parse_variant, set_picks
from oasis.experiments.run.machine import machine, versions
from oasis.experiments.run.methods import Value, method_named
from oasis.store import replacing

FOLDER = "beyond"
"""Subfolder of a results folder."""

DEFAULT = "default"
"""The model's default weight of content; the only weight of a model without content."""

WEIGHTS = (0.0, 1.0)
"""Weights that are always evaluated too: labels only, content only."""

_FORMAT, _VERSION = "oasis-beyond", 1
_NO_CODES = "float"


@dataclass(frozen=True)
class Inquiry:
    """One method on one episode.

    Attributes
    ----------
    dataset, features : str
        As in `oasis.experiments.beyond.material.load_material`.
    method : str
        Without parameters.
    n_bits : int or None
        None for a ranker.
    seed : int
    kind, number : str, int
        The episode.
    parameters : tuple of (name, value)

    Examples
    --------
    >>> Inquiry("coco79", "own", "oasis", 128, 0, "never-labelled", 2).key
    PurePosixPath('coco79/own/oasis/128/0/never-labelled-2')
    """

    dataset: str
    features: str
    method: str
    n_bits: int | None
    seed: int
    kind: str
    number: int
    parameters: tuple[tuple[str, Value], ...] = ()

    @property
    def variant(self) -> str:
        """The method with its parameters."""
        return "+".join([self.method, *(f"{name}={value}" for name, value in self.parameters)])

    @property
    def key(self) -> PurePosixPath:
        """The path of the result, without a suffix."""
        dataset = Path(self.dataset).stem if self.dataset.endswith(".npz") else self.dataset
        bits = _NO_CODES if self.n_bits is None else str(self.n_bits)
        return PurePosixPath(
            *(dataset, self.features, self.variant, bits, str(self.seed)),
            f"{self.kind}-{self.number}",
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, from which `parse` makes an equal inquiry."""
        return {**asdict(self), "parameters": dict(self.parameters)}

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Return the inquiry that `as_dict` described."""
        return cls(**{**values, "parameters": tuple(sorted(values["parameters"].items()))})


@dataclass(frozen=True)
class Plan:
    """All combinations of some choices; names are checked by the constructor.

    Examples
    --------
    >>> plan = Plan(["synthetic@500"], ["own"], ["oasis", "float-cosine"], [16], 1)
    >>> len(plan.inquiries()), str(plan.inquiries()[0].key)
    (24, 'synthetic-coco79@500/own/oasis/16/0/labels-0')
    """

    datasets: Sequence[str]
    features: Sequence[str]
    methods: Sequence[str]
    bits: Sequence[int]
    seeds: int
    sizes: Sizes = FULL
    content: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        set_picks(
            self,
            datasets=[check_dataset(name) for name in self.datasets],
            features=[_check_features(text) for text in self.features],
            methods=self.methods,
            bits=[check_n_bits(n) for n in self.bits],
        )
        for variant in self.methods:
            parse_variant(variant)
        for weight in self.content:
            if not 0 <= weight <= 1:
                raise InputError(f"content must be a weight from 0 to 1, got {weight}")

    def inquiries(self) -> list[Inquiry]:
        """Return the inquiries by data set, features, seed, method, bits, episode (the fastest)."""
        methods = [parse_variant(variant) for variant in self.methods]
        return [
            Inquiry(dataset, features, method.name, n_bits, seed, kind, number, parameters)
            for dataset in self.datasets
            for features in self.features
            for seed in range(self.seeds)
            for method, parameters in methods
            for n_bits in (self.bits if method.has_codes else (None,))
            for kind, number in numbered(self.sizes)
        ]


@dataclass(frozen=True)
class Outcome:
    """The result of an inquiry.

    Attributes
    ----------
    inquiry : Inquiry
    about : mapping
        Data set, sizes, method, machine and versions.
    answers : weight of content -> question -> answer
        The weight is ``default``, or a number as text.
    codes : mapping
        Statistics of the stored codes; empty for a ranker.
    seconds : float
        Time to learn and store.
    empty : str
        Why the data set does not have this episode, or the method does not support it.
    """

    inquiry: Inquiry
    about: Mapping[str, Any]
    answers: Mapping[str, Mapping[str, Answer]] = field(default_factory=dict)
    codes: Mapping[str, float | int] = field(default_factory=dict)
    seconds: float = 0.0
    empty: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "inquiry": self.inquiry.as_dict(),
            "about": dict(self.about),
            "answers": {
                weight: {name: answer.as_dict() for name, answer in asked.items()}
                for weight, asked in self.answers.items()
            },
            "codes": dict(self.codes),
            "seconds": self.seconds,
            "empty": self.empty,
        }

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Return the outcome that `as_dict` described."""
        if values.get("format") != _FORMAT:
            raise FormatError("it is not a result of oasis beyond")
        if values["version"] != _VERSION:
            newer = NewerVersionError if values["version"] > _VERSION else FormatError
            raise newer(f"it has version {values['version']}, this oasis reads {_VERSION}")
        return cls(
            Inquiry.parse(values["inquiry"]),
            values["about"],
            {
                weight: {name: Answer(**answer) for name, answer in asked.items()}
                for weight, asked in values["answers"].items()
            },
            values["codes"],
            values["seconds"],
            values["empty"],
        )


def describe(inquiry: Inquiry, material: Material, sizes: Sizes) -> dict[str, Any]:
    """Return what an outcome depends on besides the inquiry, as plain values."""
    method = method_named(inquiry.method)
    return {
        "dataset": material.dataset.describe(),
        "sizes": sizes.as_dict(),
        "method": {
            "title": method.title,
            "kind": method.kind,
            "fixed": method.fixed_for(material.dataset.name),
            "defaults": {name: _plain(value) for name, value in method.parameters.items()},
        },
    }


def carry_out(
    inquiry: Inquiry,
    material: Material,
    sizes: Sizes = FULL,
    content: Sequence[float] = (),
) -> Outcome:
    """Stream the episode through the method and evaluate all questions, at each content weight.

    Examples
    --------
    >>> from oasis.experiments.beyond.material import load_material
    >>> from oasis.experiments.beyond.protocols import QUICK
    >>> inquiry = Inquiry("synthetic@300", "own", "float-cosine", None, 0, "finer", 0)
    >>> outcome = carry_out(inquiry, load_material("synthetic@300"), QUICK)
    >>> list(outcome.answers["default"])
    ['coarse', 'fine']
    """
    about = {
        **describe(inquiry, material, sizes),
        "machine": machine(),
        "versions": versions(),
    }
    found = episode(material, inquiry.kind, inquiry.number, inquiry.seed, sizes)
    if found is None:
        return Outcome(inquiry, about, empty=why_not(material, inquiry.kind))
    method = method_named(inquiry.method)
    start = time.perf_counter()
    try:
        model = method.model(inquiry.n_bits, inquiry.seed, found.seen, dict(inquiry.parameters))
        stored = learn(model, found)
    except InputError as error:
        return Outcome(inquiry, about, empty=str(error))
    seconds = time.perf_counter() - start
    weights: dict[str, float | None] = {DEFAULT: None}
    if takes_content(model):
        weights |= {weight_name(weight): weight for weight in (*WEIGHTS, *content)}
    answers = {
        name: {question.name: ask(model, stored, question, weight) for question in found.questions}
        for name, weight in weights.items()
    }
    codes = {} if stored is None else diagnose(model, stored, found.questions[0])
    return Outcome(inquiry, about, answers, codes, seconds)


def weight_name(weight: float) -> str:
    """Return the name of a weight of content.

    >>> weight_name(1.0), weight_name(0.25)
    ('1', '0.25')
    """
    return f"{weight:g}"


def write_outcome(path: Path, outcome: Outcome) -> None:
    """Write an outcome, atomically; folders are created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(outcome.as_dict(), indent=1, allow_nan=False)
    with replacing(path) as temporary:
        temporary.write_text(text + "\n", "utf-8")


def read_outcome(path: Path) -> Outcome:
    """Read one outcome.

    Raises
    ------
    FormatError
        When the file is foreign, damaged or of another version.
    """
    try:
        return Outcome.parse(json.loads(path.read_text("utf-8")))
    except FormatError as error:
        raise type(error)(f"{path}: {error}") from error
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise FormatError(f"{path} is damaged: {error!r}") from error


def read_outcomes(folder: Path) -> list[Outcome]:
    """Read every outcome of a results folder, in the order of methods; there may be none."""
    return [read_outcome(path) for path in sorted((folder / FOLDER).rglob("*.json"))]


def _check_features(text: str) -> str:
    names = text.split("+")
    if text != OWN and (not all(names) or len(set(names)) < len(names)):
        raise InputError(f"{text!r} is not a list of modalities, such as own or image+meaning")
    return text


def _plain(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str, type(None))) else repr(value)
