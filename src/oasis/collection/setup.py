"""What a collection is made with, recorded once: code length, model parameters, words, texts."""

from __future__ import annotations

import copy
import json
import sqlite3
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.numpy

from oasis.codes import check_n_bits
from oasis.collection.catalog import Catalog
from oasis.errors import CollectionError, FormatError, InputError
from oasis.features.extractor import Extractor
from oasis.labels import LabelSpace
from oasis.model import OASIS, AnyModel

CHOICES: dict[str, bool | None] = {
    "keep_text": True,
    "keep_features": None,
    "picture_meaning": True,
}
"""What is chosen when a collection is begun, see `Collection.open`, and what holds if it is not."""


@dataclass(frozen=True)
class Setup:
    """The model that a collection starts from, before it has learned anything.

    Attributes
    ----------
    parameters : constructor arguments of the model but ``labels``, as JSON has them
    labels : facts of the label space it starts with
    arrays : arrays of that label space
    choices : what `CHOICES` names, as it was asked for when the collection was begun
    """

    parameters: dict[str, Any]
    labels: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]
    choices: Mapping[str, bool | None]

    @classmethod
    def of(cls, model: AnyModel, choices: Mapping[str, bool | None]) -> Setup:
        """Return what is recorded of a model; what it may have learned is saved apart."""
        parameters = {"kind": model.kind, **model.get_params(deep=False)}
        given = parameters.pop("labels")
        parameters["n_bits"] = check_n_bits(model.n_bits)
        seed = parameters["random_state"]
        if isinstance(seed, np.random.Generator):
            # the number that the model itself would draw on its first chunk
            parameters["random_state"] = int(seed.integers(2**63))
        elif isinstance(seed, np.integer):
            parameters["random_state"] = int(seed)
        try:
            parameters = json.loads(json.dumps(parameters, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise InputError(f"the model's parameters cannot be recorded: {error}") from error
        facts, arrays = LabelSpace.of(given).state()
        asked = {
            name: default if choices.get(name) is None else choices[name]
            for name, default in CHOICES.items()
        }
        return cls(parameters, facts, dict(arrays), asked)

    @property
    def n_bits(self) -> int:
        return int(self.parameters["n_bits"])

    @property
    def may_add(self) -> bool:
        """Whether the model may take modalities later."""
        return bool(OASIS.kinds[str(self.parameters["kind"])].may_add)

    @property
    def keep_text(self) -> bool:
        """Whether texts of items are kept."""
        return bool(self.choices["keep_text"])

    @property
    def keep_features(self) -> bool | None:
        """Whether features of items are kept; None: those that were made of raw items."""
        return self.choices["keep_features"]

    @property
    def picture_meaning(self) -> bool:
        """Whether pictures have a guessed meaning and the names that they look like."""
        return bool(self.choices["picture_meaning"])

    def model(self, words: Any = None, guess: tuple[str, str] | None = None) -> AnyModel:
        """Return the model, which has learned nothing.

        If it has content bits, it guesses meanings from pictures, see `Extractor.guess`.
        """
        labels = LabelSpace.from_state(self.labels, self.arrays, words)
        try:
            parameters = dict(self.parameters)
            if guess is not None and parameters.get("content"):
                parameters["guess"] = parameters["guess"] or guess
            make: Any = OASIS.kinds[parameters.pop("kind")]
            made: AnyModel = make(labels=labels, **parameters)
            return made
        except TypeError as error:
            raise FormatError(
                f"this collection was made for a model that this oasis does not have: {error}"
            ) from error

    def write(self, catalog: Catalog) -> None:
        """Record it; inside a transaction of the catalog."""
        catalog.put_meta("parameters", json.dumps(self.parameters))
        catalog.put_meta("labels", json.dumps(self.labels))
        catalog.put_meta("choices", json.dumps(self.choices))
        contiguous = {name: np.ascontiguousarray(array) for name, array in self.arrays.items()}
        catalog.put_meta("label_arrays", safetensors.numpy.save(contiguous))

    @classmethod
    def read(cls, catalog: Catalog, connection: sqlite3.Connection) -> Setup:
        """Return what is recorded."""
        parameters = catalog.meta(connection, "parameters")
        try:
            arrays = safetensors.numpy.load(catalog.meta(connection, "label_arrays"))
            labels = json.loads(catalog.meta(connection, "labels"))
            choices = dict(json.loads(catalog.meta(connection, "choices")))
            setup = cls(json.loads(parameters), labels, arrays, choices)
            check_n_bits(setup.n_bits)
        except (TypeError, ValueError, KeyError, safetensors.SafetensorError) as error:
            raise FormatError(f"{catalog.path} is damaged: its set-up is unreadable") from error
        return setup

    def check_same(
        self,
        model: AnyModel | None,
        n_bits: int | None,
        choices: Mapping[str, bool | None],
    ) -> None:
        """Refuse a model, a code length or another choice than the recorded one."""
        for name, given in choices.items():
            if given is not None and given != (recorded := self.choices[name]):
                raise InputError(
                    f"this collection was begun with {name}={recorded}, got {given}; leave it out"
                )
        if n_bits is not None and check_n_bits(n_bits) != self.n_bits:
            raise InputError(
                f"this collection has codes of {self.n_bits} bits, got n_bits={n_bits}; leave it "
                "out"
            )
        if model is None:
            return
        if has_learned(model):
            raise CollectionError(
                "a model that has learned can start a new collection only; leave it out to go on "
                "with the one that is stored"
            )
        other = Setup.of(model, {})
        for name, value in self.parameters.items():
            # the seed has no effect after the first chunk
            if name != "random_state" and other.parameters.get(name) != value:
                raise InputError(
                    f"this collection was made with {name}={value!r}, got "
                    f"{other.parameters.get(name)!r}; leave the model out, or use the same"
                )
        if other.labels_crc() != self.labels_crc():
            raise InputError(
                "this collection was made with another label space; leave the model out, or use "
                "the same"
            )

    def labels_crc(self) -> int:
        """Return a checksum of the label space: equal spaces, equal numbers."""
        # the checksum of a word source is known only once it has been used
        source = {k: v for k, v in (self.labels["source"] or {}).items() if k in ("kind", "names")}
        value = zlib.crc32(json.dumps([self.labels["axes"], source]).encode())
        for name in sorted(self.arrays):
            value = zlib.crc32(np.ascontiguousarray(self.arrays[name]).tobytes(), value)
        return value


class RecordedExtractor:
    """What makes features of raw items: an extractor that is given, or the one recorded.

    Parameters
    ----------
    catalog : Catalog
    given : Extractor or None
        None for the one recorded.
    trusts : bool
        Whether embedders that the record names may be imported.
    """

    def __init__(self, catalog: Catalog, given: Extractor | None, *, trusts: bool) -> None:
        self.given = given
        self._trusts = trusts
        self._catalog = catalog

    def description(self) -> dict[str, Any] | None:
        """Return the record of an extractor; None where there is none."""
        with self._catalog.reading() as connection:
            text = self._catalog.meta(connection, "extractor")
        return None if text is None else dict(json.loads(text))

    def is_of_raw_items(self) -> bool:
        """Return whether there is an extractor, and it makes some features itself."""
        described = self.description() if self.given is None else self.given.describe()
        return any(not each["embedder"].startswith("given-") for each in (described or {}).values())

    def get(self) -> Extractor:
        """Return the extractor, or refuse where none was given or recorded."""
        if self.given is None:
            recorded = self.description()
            if recorded is None:
                raise InputError(
                    "this collection was filled with ready features; to search with raw items, "
                    "open it with extractor=..."
                )
            self.given = Extractor.from_description(recorded, trust_embedders=self._trusts)
        return self.given

    def settle(self, widths: dict[str, int] | None, *, records: bool) -> None:
        """Record the one given, or refuse it where another one is recorded.

        ``widths`` are those of the features that were learned; None while nothing is.
        """
        if self.given is None:
            return
        if (recorded := self.description()) is not None:
            self.given.check_same(recorded)
        elif widths is not None and widths != self.given.n_features:
            raise InputError(
                f"this collection has features {widths}, this extractor makes "
                f"{self.given.n_features}"
            )
        elif records:
            with self._catalog.write():
                self._catalog.put_meta("extractor", json.dumps(self.given.describe()))

    def begin_with(self, extractor: Extractor, widths: dict[str, int] | None) -> None:
        """Record the extractor of the first items; nothing to do where there is one."""
        if self.given is None:
            self.given = extractor
            try:
                self.settle(widths, records=True)
            except BaseException:
                self.given = None
                raise


# -- what is asked of a model that has learned -----------------------------------------------------


def has_learned(model: AnyModel) -> bool:
    return getattr(model, "state_", None) is not None


def feature_widths(model: AnyModel | None) -> dict[str, int] | None:
    """Return modality name -> number of features; None while nothing is learned."""
    return None if model is None else dict(model.state_.widths)


def label_space(model: AnyModel) -> LabelSpace:
    """Return the classes and their vectors."""
    labels: LabelSpace = model.state_.labels
    return labels


def with_labels(model: AnyModel, labels: LabelSpace) -> AnyModel:
    """Return a model that has learned the same, with another label space."""
    made = copy.copy(model)
    made.state_ = replace(model.state_, labels=labels)
    return made


def with_seen(model: AnyModel, n_seen: int) -> AnyModel:
    """Return the model with this count of samples: unlabelled ones are coded but not learned."""
    counted = copy.copy(model)
    counted.state_ = replace(model.state_, n_seen=n_seen)
    return counted


def prepared(model: AnyModel) -> AnyModel:
    """Return the model with its hash function computed, so that the first search is fast."""
    model.hash_function()
    return model
