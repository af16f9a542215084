"""What a collection is made with, recorded once: code length, model parameters, words, texts."""

from __future__ import annotations

import copy
import json
import sqlite3
import zlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.numpy

from oasis.codes import check_n_bits
from oasis.collection.catalog.catalog import Catalog
from oasis.errors import CollectionError, FormatError, InputError
from oasis.labels import LabelSpace
from oasis.model import OASIS, AnyModel


@dataclass(frozen=True)
class Setup:
    """The model that a collection starts from, before it has learned anything.

    Attributes
    ----------
    parameters : constructor arguments of the model but ``labels``, as JSON has them
    labels : facts of the label space it starts with
    arrays : arrays of that label space
    keep_text : whether texts of items are kept
    """

    parameters: dict[str, Any]
    labels: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]
    keep_text: bool = True

    @classmethod
    def of(cls, model: AnyModel, keep_text: bool = True) -> Setup:
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
        return cls(parameters, facts, dict(arrays), keep_text)

    @property
    def n_bits(self) -> int:
        return int(self.parameters["n_bits"])

    def model(self, words: Any = None) -> AnyModel:
        """Return the model, which has learned nothing."""
        labels = LabelSpace.from_state(self.labels, self.arrays, words)
        try:
            parameters = dict(self.parameters)
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
        catalog.put_meta("keep_text", json.dumps(self.keep_text))
        contiguous = {name: np.ascontiguousarray(array) for name, array in self.arrays.items()}
        catalog.put_meta("label_arrays", safetensors.numpy.save(contiguous))

    @classmethod
    def read(cls, catalog: Catalog, connection: sqlite3.Connection) -> Setup:
        """Return what is recorded."""
        parameters = catalog.meta(connection, "parameters")
        try:
            arrays = safetensors.numpy.load(catalog.meta(connection, "label_arrays"))
            labels = json.loads(catalog.meta(connection, "labels"))
            keep_text = bool(json.loads(catalog.meta(connection, "keep_text")))
            setup = cls(json.loads(parameters), labels, arrays, keep_text)
            check_n_bits(setup.n_bits)
        except (TypeError, ValueError, KeyError, safetensors.SafetensorError) as error:
            raise FormatError(f"{catalog.path} is damaged: its set-up is unreadable") from error
        return setup

    def check_same(
        self, model: AnyModel | None, n_bits: int | None, keep_text: bool | None = None
    ) -> None:
        """Refuse a model, a code length or a ``keep_text`` other than the recorded one."""
        if keep_text is not None and keep_text != self.keep_text:
            raise InputError(
                f"this collection was begun with keep_text={self.keep_text}, got {keep_text}; "
                "leave it out"
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
        other = Setup.of(model)
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
