"""What a model has learned, and the file it is kept in: safetensors with a JSON header."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy

from oasis.codes import Codes, check_codes
from oasis.errors import FormatError, NewerVersionError, OasisError
from oasis.labels import LabelSpace
from oasis.linear import LinearMap
from oasis.ridge import Ridge
from oasis.store import replacing
from oasis.updates import Sums

FORMAT = "oasis-model"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class State:
    """All that a model has learned; its size depends on classes and features, not on samples.

    Attributes
    ----------
    labels : the classes seen and their vectors, frozen on arrival
    sums : sums of codes and semantics
    ridges : per modality, the sums of features and the hash function W
    n_seen : samples seen, unlabelled ones included
    generator : state of the random generator for the next round
    """

    labels: LabelSpace
    sums: Sums
    ridges: dict[str, Ridge]
    n_seen: int
    generator: Mapping[str, Any]

    @property
    def widths(self) -> dict[str, int]:
        return {name: ridge.n_features for name, ridge in self.ridges.items()}

    def hash_function(self, normalize: bool) -> LinearMap:
        """Return ``x -> sum_m x_m W_m'``, of unit-length rows if ``normalize``."""
        return self._hash_functions[normalize]

    @cached_property
    def _hash_functions(self) -> dict[bool, LinearMap]:
        weights = {name: ridge.W for name, ridge in self.ridges.items()}
        return {normalize: LinearMap(weights, normalize=normalize) for normalize in (False, True)}

    def rng(self) -> np.random.Generator:
        """Return a generator that starts where the last round's left off."""
        bits = np.random.PCG64()
        bits.state = self.generator  # type: ignore[assignment]
        return np.random.Generator(bits)


def write_model(path: Path, parameters: Mapping[str, Any], state: State, codes: Codes) -> None:
    """Write a model's parameters, state and last codes to one file, atomically."""
    labels, label_arrays = state.labels.state()
    arrays: dict[str, npt.NDArray[Any]] = {
        "BG": state.sums.BG,
        "GV": state.sums.GV,
        "VV": state.sums.VV,
        "codes": codes,
    }
    arrays |= {f"labels/{key}": array for key, array in label_arrays.items()}
    for name, ridge in state.ridges.items():
        arrays |= {f"modality/{name}/{key}": array for key, array in ridge.state().items()}
    header = {
        "parameters": dict(parameters),
        "labels": labels,
        "delta": {name: ridge.delta for name, ridge in state.ridges.items()},
        "n": state.sums.n,
        "n_seen": state.n_seen,
        "generator": dict(state.generator),
    }
    metadata = {"format": FORMAT, "version": str(FORMAT_VERSION), "model": json.dumps(header)}
    contiguous = {key: np.ascontiguousarray(array) for key, array in arrays.items()}
    with replacing(path) as temporary:
        safetensors.numpy.save_file(contiguous, temporary, metadata)


def read_model(path: Path, words: Any = None) -> tuple[dict[str, Any], State, Codes]:
    """Return the parameters, the state and the last codes from a file that `write_model` wrote."""
    header, arrays = _read(path)
    try:
        labels = LabelSpace.from_state(header["labels"], _under("labels/", arrays), words)
        ridges = {
            name: Ridge.from_state(float(delta), _under(f"modality/{name}/", arrays))
            for name, delta in header["delta"].items()
        }
        sums = Sums(arrays["BG"], arrays["GV"], arrays["VV"], int(header["n"]))
        state = State(labels, sums, ridges, int(header["n_seen"]), header["generator"])
        _check_shapes(state)
        state.rng()
        return dict(header["parameters"]), state, check_codes(arrays["codes"], len(sums.VV))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OasisError) as error:
        raise FormatError(f"{path} is damaged: {error}") from error


def _read(path: Path) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise FormatError(f"there is no model file at {path}") from error
    except (OSError, safetensors.SafetensorError) as error:
        raise FormatError(f"{path} is not a model file, or is truncated: {error}") from error
    if metadata.get("format") != FORMAT:
        raise FormatError(f"{path} is a safetensors file, but not one that OASIS.save wrote")
    version = metadata.get("version", "")
    if not version.isdecimal():
        raise FormatError(f"{path} is damaged: its format version is {version!r}")
    if int(version) > FORMAT_VERSION:
        raise NewerVersionError(
            f"{path} has format version {version}, this oasis reads up to {FORMAT_VERSION}; "
            "upgrade with: pip install --upgrade oasis-hash"
        )
    try:
        header = json.loads(metadata["model"])
    except (KeyError, ValueError) as error:
        raise FormatError(f"{path} is damaged: its header cannot be read") from error
    if not isinstance(header, dict):
        raise FormatError(f"{path} is damaged: its header is a {type(header).__name__}")
    return header, arrays


def _under(prefix: str, arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    return {
        key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)
    }


def _check_shapes(state: State) -> None:
    """Raise ValueError unless every array of a loaded state has the shape it must have."""
    n_bits, f = state.sums.BG.shape
    expected: list[tuple[str, npt.NDArray[Any], tuple[int, ...]]] = [
        ("BG", state.sums.BG, (n_bits, f)),
        ("GV", state.sums.GV, (f, n_bits)),
        ("VV", state.sums.VV, (n_bits, n_bits)),
    ]
    for name, ridge in state.ridges.items():
        d, k = ridge.n_features, len(ridge.tail)
        expected += [
            (f"{name}/BX", ridge.BX, (n_bits, d)),
            (f"{name}/W", ridge.W, (n_bits, d)),
            (f"{name}/tail", ridge.tail, (k, d)),
            (f"{name}/half", ridge.half, (d, k)),
        ]
    for name, array, shape in expected:
        if array.shape != shape or array.dtype != np.float64:
            raise ValueError(f"{name} is {array.dtype} {array.shape}, expected float64 {shape}")
    if state.sums.n and f != state.labels.n_features:
        raise ValueError(f"sums of {f} semantic dimensions, labels of {state.labels.n_features}")
