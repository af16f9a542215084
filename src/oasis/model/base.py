"""What `OASIS` and the published method have in common: parameters, a state, files."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array, GeneratorState, Single, generator_at
from oasis.codes import Codes, check_codes, check_n_bits
from oasis.errors import InputError
from oasis.hashers.chunk import Chunk
from oasis.hashers.learner import Learner
from oasis.labels import LabelSpace
from oasis.model.file import Stored, put_together, reading_model, taken_apart, under, write_model
from oasis.model.hash_functions import Mask
from oasis.model.ridge import Ridge
from oasis.model.round import ChunkRows, RowsInMemory


@dataclass(frozen=True)
class ModelState:
    """The state of both kinds of model; its size depends on classes and features, not on samples.

    Attributes
    ----------
    parameters : constructor arguments with which it was learned, ``random_state`` left out
    labels : the classes seen and their vectors, frozen on arrival
    ridges : per modality, the sums of features and the regression on them
    n_seen : samples seen, unlabelled ones included
    generator : state of the random generator for the next round
    """

    parameters: Mapping[str, Any]
    labels: LabelSpace
    ridges: dict[str, Ridge]
    n_seen: int
    generator: GeneratorState

    @property
    def classes(self) -> tuple[str, ...]:
        return self.labels.names

    @property
    def widths(self) -> dict[str, int]:
        return {name: ridge.n_features for name, ridge in self.ridges.items()}

    @property
    def code_matrices(self) -> dict[str, Array]:
        """The matrices that codes are computed with, by name; they depend on the kind of model."""
        return {}

    def norms(self) -> dict[str, float]:
        """Return the Frobenius norms of what was learned, by name: regressions, code matrices."""
        matrices = {f"W {name}": ridge.W for name, ridge in self.ridges.items()}
        matrices |= self.code_matrices
        return {name: float(np.linalg.norm(matrix)) for name, matrix in matrices.items()}

    def rng(self) -> np.random.Generator:
        """Return a generator that continues from the end of the last round."""
        return generator_at(self.generator)

    def check(self) -> None:
        """Raise ValueError unless the parts fit each other, as those of a damaged file do not."""
        self.rng()
        for name, ridge in self.ridges.items():
            ridge.check(name)


class HashFunction(Protocol):
    """A map from features to the values whose signs are codes."""

    @property
    def widths(self) -> Mapping[str, int]: ...

    def project(self, X: Mapping[str, Any]) -> Single:
        """Return (n, n_bits) float32 for a non-empty subset of the modalities."""

    def arrays(self) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        """Yield everything that the projections depend on, by name."""


S = TypeVar("S", bound=ModelState)


class Model(Learner[S]):
    """A model that learns from rows anywhere and can be saved: `OASIS`, or the published method."""

    kind: ClassVar[str]
    """Name of the class in files."""
    kinds: ClassVar[dict[str, type[Model[Any]]]] = {}
    """Every class of models, by its name in files."""
    state_type: ClassVar[type[ModelState]]
    """What it remembers."""
    unit_length: ClassVar[bool]
    """Whether each row of features is scaled to unit length, modality by modality."""

    labels: Any
    delta: float
    random_state: int | np.random.Generator | None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "kind" in vars(cls):  # a subclass without a name of its own does not replace its base
            Model.kinds[cls.kind] = cls

    @abstractmethod
    def start(self, widths: Mapping[str, int]) -> S:
        """Return the state that has seen nothing, for modalities of these widths."""

    @abstractmethod
    def run_round(
        self, state: S, label_sets: list[tuple[str, ...]], rows: ChunkRows
    ) -> tuple[S, Codes]:
        """Return the state after one round, and the codes of its rows; nothing is changed."""

    def rows_used(self, label_sets: Sequence[tuple[str, ...]]) -> Mask:
        """Return which rows of the next chunk change the state; the others only get codes."""
        return np.ones(len(label_sets), dtype=np.bool_)

    @abstractmethod
    def hash_function(self) -> HashFunction:
        """Return the current map from features to projections."""

    @abstractmethod
    def project_words(self, names: Iterable[str]) -> Single:
        """Return the projections of class names, seen or never seen, (n, n_bits) float32."""

    def opened(self, state: S, widths: Mapping[str, int]) -> S:
        """Return the state that also knows these modalities; by default it knows them all."""
        return state

    def begin(self, widths: Mapping[str, int]) -> S:
        """Return what the next round starts from: the state, or a new one for these widths.

        For code that holds the rows of a chunk elsewhere, such as `oasis.scale.dask`. Parameters
        are checked and nothing is changed.
        """
        old: S | None = getattr(self, "state_", None)
        self._check_parameters(old)
        return self.start(widths) if old is None else self.opened(old, widths)

    def _learn(self, old: S | None, chunk: Chunk) -> tuple[S, Codes]:
        widths = {name: int(x.shape[1]) for name, x in chunk.X.items()}
        state = self.start(widths) if old is None else self.opened(old, widths)
        return self.run_round(state, chunk.labels, RowsInMemory(chunk.X, self.unit_length))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to one safetensors file, atomically.

        The file holds everything that the next round uses, so a loaded model continues exactly as
        this one would. No pickle is involved.
        """
        header, arrays = self.described()
        write_model(Path(path), header, arrays)

    def described(self) -> tuple[dict[str, Any], Stored]:
        """Return all that is saved: JSON-able facts, and arrays by name.

        Two models with the same description give the same results from then on, bit for bit.
        """
        state, seed, arrays = self.learned, self.random_state, Stored()
        labels, label_arrays = state.labels.state()
        parameters = {k: v for k, v in state.parameters.items() if k != "labels"}
        header = {
            "kind": self.kind,
            "parameters": taken_apart(parameters, arrays),
            "random_state": int(seed) if isinstance(seed, (int, np.integer)) else None,
            "labels": labels,
            "state": taken_apart(state, arrays, leave_out=("parameters", "labels")),
        }
        arrays |= {f"labels/{key}": array for key, array in label_arrays.items()}
        return header, arrays | {"codes": self.codes_}

    @classmethod
    def load(cls, path: str | PathLike[str], words: Any = None) -> Self:
        """Read a model that `save` wrote, either `OASIS` or the published method.

        Parameters
        ----------
        words : optional
            Path of the word source, if it is a file that has moved. It is needed only when new
            classes arrive, and must have the same checksum.
        """
        with reading_model(Path(path)) as (header, arrays):
            labels = LabelSpace.from_state(header["labels"], under(arrays, "labels/"), words)
            parameters = {**header["parameters"], "labels": labels.without_classes()}
            make: Any = cls.kinds[header["kind"]]
            model = make(**parameters, random_state=header["random_state"])
            model._check_parameters(None)
            known = {"parameters": parameters, "labels": labels}
            state = put_together(model.state_type, header["state"], arrays, known=known)
            state.check()
            model.state_, model.codes_ = state, check_codes(arrays["codes"], model.n_bits)
        loaded: Self = model  # of the kind that was saved
        return loaded

    def _learned_with(self) -> dict[str, Any]:
        """Return the parameters that are fixed once a model has learned."""
        given: dict[str, Any] = self.get_params(deep=False)
        return {name: value for name, value in given.items() if name != "random_state"}

    def _check_parameters(self, state: S | None) -> None:
        check_n_bits(self.n_bits)
        check_number("delta", self.delta, positive=True)
        seed = self.random_state
        is_seed = isinstance(seed, (int, np.integer)) and seed >= 0
        if not (seed is None or is_seed or isinstance(seed, np.random.Generator)):
            raise InputError(
                f"random_state must be None, an integer >= 0 or a Generator, got {seed!r}"
            )
        if state is None:
            return
        for name, learned in state.parameters.items():
            if not _same(getattr(self, name), learned):
                raise InputError(
                    f"{name} is fixed once a model has learned: it is {learned!r}, got "
                    f"{getattr(self, name)!r}; start a new model with sklearn.base.clone(model)"
                )

    def _first_generator(self) -> GeneratorState:
        seed = self.random_state
        if isinstance(seed, np.random.Generator):
            seed = int(seed.integers(2**63))  # a PCG64 of our own, the only kind that is saved
        return dict(np.random.PCG64(seed).state)


AnyModel: TypeAlias = Model[Any]
"""A model of either kind: `OASIS` or the published method."""


def check_number(name: str, value: Any, positive: bool = False) -> None:
    """Raise an `InputError` unless ``value`` is a finite number, at least 0 or positive."""
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0 or (positive and value == 0):
        bound = "positive" if positive else "at least 0"
        raise InputError(f"{name} must be a finite number, {bound}, got {value!r}")


def check_count(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Raise an `InputError` unless ``value`` is an integer from ``least`` to ``most``."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):
        expected = f"from {least} to {most}" if most is not None else f"of at least {least}"
        raise InputError(f"{name} must be an integer {expected}, got {value!r}")


def _same(value: Any, learned: Any) -> bool:
    if value is learned:
        return True
    simple = (str, PathLike, int, float, np.number)
    return isinstance(value, simple) and isinstance(learned, simple) and value == learned
