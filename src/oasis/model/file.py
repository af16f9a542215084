"""What a model has learned, and the file it is kept in: safetensors with a JSON header."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy
import scipy.sparse as sp

from oasis.codes import Codes, check_codes
from oasis.errors import FormatError, NewerVersionError, OasisError
from oasis.labels import LabelSpace
from oasis.model.codewords import (
    grown_codewords,
)
from oasis.model.hash_functions import (
    MOST_EXPLAINED,
    LabelCoder,
    LabelMap,
    LinearMap,
)
from oasis.model.readout import Codebook, Readout
from oasis.model.ridge import Ridge
from oasis.model.updates import (
    Sums,
)
from oasis.store import replacing

FORMAT = "oasis-model"
FORMAT_VERSION = 4


@dataclass(frozen=True)
class State:
    """All that a model has learned; its size depends on classes and features, not on samples.

    Attributes
    ----------
    labels : the classes seen and their vectors, frozen on arrival
    sums : sums of codes and semantics; empty where classes have codewords
    codebook : sums of codes and labels
    codewords : (c, r), what each class adds to a code; (0, r) where codes are found by sample
    n_owned : the last so many bits of the codewords are owned by classes
    ridges : per modality, the sums of features and the regression on codes, or on labels
    codes : how samples get their codes, by "classes" or "samples"
    queries : what ``ridges`` predict, "codes" or "labels"
    n_seen : samples seen, unlabelled ones included
    generator : state of the random generator for the next round
    """

    labels: LabelSpace
    sums: Sums
    codebook: Codebook
    codewords: npt.NDArray[np.float64]
    n_owned: int
    ridges: dict[str, Ridge]
    codes: str
    queries: str
    n_seen: int
    generator: Mapping[str, Any]

    @property
    def classes(self) -> tuple[str, ...]:
        return self.labels.names

    @property
    def widths(self) -> dict[str, int]:
        return {name: ridge.n_features for name, ridge in self.ridges.items()}

    def grown(self, label_sets: Iterable[Iterable[str]]) -> State:
        """Return the state that also knows the classes of these label sets; sums grow by zeros."""
        labels = self.labels.grown(name for names in label_sets for name in names)
        ridges = self.ridges
        if self.queries == "labels":
            n_classes = len(labels.names)
            ridges = {name: ridge.widened(n_classes) for name, ridge in ridges.items()}
        sums = self.sums
        if self.codes == "samples":
            sums = sums.widened(labels.n_features)
        return replace(self, labels=labels, sums=sums, ridges=ridges)

    def with_codewords(self, L: sp.csr_array, rng: np.random.Generator) -> State:
        """Return the state in which all classes of a chunk's labels L (n, c) have codewords."""
        book = self.codebook
        grown = grown_codewords(self.codewords, book.counts, book.pairs, L, self.n_owned, rng)
        return replace(self, codewords=grown)

    @cached_property
    def readout(self) -> Readout:
        """Where stored codes with given labels are."""
        if self.codes == "samples":
            return self.codebook.readout()
        n_learned = self.codewords.shape[1] - self.n_owned
        learned = np.pad(self.codewords[:, :n_learned], ((0, 0), (0, self.n_owned)))
        return self.codebook.readout(learned)

    def hash_function(self, normalize: bool) -> LinearMap | LabelMap:
        """Return what maps features, their rows at unit length if ``normalize``, to projections."""
        return self._hash_functions[normalize]

    def coder(self, normalize: bool) -> LinearMap | LabelMap | LabelCoder:
        """Return what codes unlabelled samples that are to be stored."""
        hash_function = self.hash_function(normalize)
        if self.codes == "classes" and isinstance(hash_function, LabelMap):
            return LabelCoder(hash_function, self.codewords, self.n_owned)
        return hash_function

    @cached_property
    def _hash_functions(self) -> dict[bool, LinearMap | LabelMap]:
        make = self._linear_map if self.queries == "codes" else self._label_map
        return {normalize: make(normalize) for normalize in (False, True)}

    def _linear_map(self, normalize: bool) -> LinearMap:
        """Return ``x -> sum_m x_m W_m'``."""
        weights = {name: ridge.W for name, ridge in self.ridges.items()}
        return LinearMap(weights, normalize=normalize)

    def _label_map(self, normalize: bool) -> LabelMap:
        """Return the hash function that goes through predicted labels.

        How much of a class a modality explains is how far its mean prediction over the samples of
        that class, which the sums tell, lies between that over all samples and 1.
        """
        counts = np.maximum(self.codebook.counts, 1.0)
        shares = self.codebook.counts / max(self.codebook.n, 1)
        explained, predictors = {}, {}
        for name, ridge in self.ridges.items():
            means = np.vecdot(ridge.W, ridge.BX) / counts
            R = (means - shares) / np.maximum(1 - shares, 1e-9)
            explained[name] = np.clip(R, 0.0, MOST_EXPLAINED)
            predictors[name] = LinearMap({name: ridge.W}, normalize=normalize)
        return LabelMap(predictors, explained, shares, self.readout)

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
        "BB": state.codebook.BB,
        "B1": state.codebook.B1,
        "LB": state.codebook.LB,
        "counts": state.codebook.counts,
        "pairs": state.codebook.pairs.data,
        "pairs/columns": state.codebook.pairs.indices.astype(np.int64),
        "pairs/ends": state.codebook.pairs.indptr.astype(np.int64),
        "codewords": state.codewords,
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
        "n_coded": state.codebook.n,
        "codes": state.codes,
        "n_owned": state.n_owned,
        "queries": state.queries,
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
        counts = arrays["counts"]
        pairs = sp.csr_array(
            (arrays["pairs"], arrays["pairs/columns"], arrays["pairs/ends"]),
            shape=(len(counts), len(counts)),
        )
        pairs.check_format()
        n_coded = int(header["n_coded"])
        book = Codebook(arrays["BB"], arrays["B1"], arrays["LB"], counts, pairs, n_coded)
        state = State(
            labels,
            sums,
            book,
            arrays["codewords"],
            int(header["n_owned"]),
            ridges,
            str(header["codes"]),
            str(header["queries"]),
            int(header["n_seen"]),
            header["generator"],
        )
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
    if int(version) < FORMAT_VERSION:
        raise FormatError(
            f"{path} has format version {version}, from before the first release; this oasis "
            f"reads version {FORMAT_VERSION} alone: learn the model anew"
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
    n_classes = len(state.codebook.counts)
    expected: list[tuple[str, npt.NDArray[Any] | sp.csr_array, tuple[int, ...]]] = [
        ("BB", state.codebook.BB, (n_bits, n_bits)),
        ("B1", state.codebook.B1, (n_bits,)),
        ("LB", state.codebook.LB, (n_classes, n_bits)),
        ("counts", state.codebook.counts, (n_classes,)),
        ("pairs", state.codebook.pairs, (n_classes, n_classes)),
        ("codewords", state.codewords, (n_classes * (state.codes == "classes"), n_bits)),
        ("BG", state.sums.BG, (n_bits, f)),
        ("GV", state.sums.GV, (f, n_bits)),
        ("VV", state.sums.VV, (n_bits, n_bits)),
    ]
    for name, ridge in state.ridges.items():
        d, k = ridge.n_features, len(ridge.tail)
        n_targets = n_bits if state.queries == "codes" else n_classes
        expected += [
            (f"{name}/BX", ridge.BX, (n_targets, d)),
            (f"{name}/W", ridge.W, (n_targets, d)),
            (f"{name}/tail", ridge.tail, (k, d)),
            (f"{name}/half", ridge.half, (d, k)),
        ]
    if not 0 <= state.n_owned <= n_bits:
        raise ValueError(f"{state.n_owned} owned bits of {n_bits}")
    for name, array, shape in expected:
        if array.shape != shape or array.dtype != np.float64:
            raise ValueError(f"{name} is {array.dtype} {array.shape}, expected float64 {shape}")
    if state.sums.n and f != state.labels.n_features:
        raise ValueError(f"sums of {f} semantic dimensions, labels of {state.labels.n_features}")
