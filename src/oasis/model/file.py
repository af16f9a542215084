"""The file of a model: a tree of dataclasses, as safetensors with a JSON header.

The types of its fields say what is kept of a state, and how: numbers and names in the header, an
array under the path to it, such as ``ridges/image/BX``. Fields whose names begin with an underscore
are left out. The metadata has ``format`` "oasis-model", ``version``, and ``model``, the header; and
a checksum of all of it (`oasis.store.write_arrays`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import UnionType
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from oasis.errors import FormatError, NewerVersionError, OasisError
from oasis.model.gram import LowerTriangle
from oasis.store import read_arrays, write_arrays

FORMAT = "oasis-model"
FORMAT_VERSION = 17

Arrays: TypeAlias = Mapping[str, npt.NDArray[Any]]
"""Arrays by name, as they are read."""

Stored: TypeAlias = dict[str, npt.NDArray[Any] | LowerTriangle]
"""Arrays by name, as they are written."""


def taken_apart(thing: Any, arrays: Stored, path: str = "", leave_out: tuple[str, ...] = ()) -> Any:
    """Return what JSON can hold of a value, and add the arrays in it to ``arrays``.

    >>> arrays = {}
    >>> taken_apart({"n": 3, "sums": {"image": np.zeros(2)}}, arrays), list(arrays)
    ({'n': 3, 'sums': {'image': None}}, ['sums/image'])
    """
    if isinstance(thing, (np.ndarray, LowerTriangle)):
        arrays[path] = thing
        return None
    if dataclasses.is_dataclass(thing):
        names = [each.name for each in dataclasses.fields(thing)]
        thing = {name: getattr(thing, name) for name in names if not name.startswith("_")}
    if isinstance(thing, Mapping):
        return {
            name: taken_apart(value, arrays, f"{path}/{name}".removeprefix("/"))
            for name, value in thing.items()
            if name not in leave_out
        }
    return thing.item() if isinstance(thing, np.generic) else thing


def put_together(
    kind: Any, facts: Any, arrays: Arrays, path: str = "", known: Mapping[str, Any] | None = None
) -> Any:
    """Return the value of a type that `taken_apart` took apart; bit for bit the same.

    Parameters
    ----------
    known : fields that were left out

    Raises
    ------
    TypeError, ValueError, LookupError
        The parts are not those of this type.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if (
        alias := getattr(origin, "__value__", None)
    ) is not None:  # `type X[T] = ...` of Python 3.12
        return put_together(alias[inner], facts, arrays, path, known)
    if origin in (Union, UnionType):  # X | None
        if facts is None and path not in arrays:
            return None
        return put_together(inner[0], facts, arrays, path)
    if kind is LowerTriangle:
        return LowerTriangle.unpacked(arrays[path])
    if origin is np.ndarray:
        expected = np.dtype(get_args(inner[1])[0])
        if arrays[path].dtype != expected:
            raise TypeError(f"{path} is {arrays[path].dtype}, expected {expected}")
        return arrays[path]
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints, made = get_type_hints(kind), dict(known or {})
        for each in dataclasses.fields(kind):
            name = each.name
            if name not in made and not name.startswith("_"):
                inside = f"{path}/{name}".removeprefix("/")
                made[name] = put_together(hints[name], facts[name], arrays, inside)
        return kind(**made)
    if origin is tuple:
        return tuple(put_together(*each, arrays, path) for each in zip(inner, facts, strict=True))
    if origin is not None and issubclass(origin, Mapping):
        return {
            str(name): put_together(inner[1], value, arrays, f"{path}/{name}")
            for name, value in facts.items()
        }
    if kind is not Any and not isinstance(facts, kind):
        raise TypeError(f"{path} is {facts!r}, expected {kind.__name__}")
    return facts


def under(arrays: Arrays, prefix: str) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays whose names begin with a prefix, which is cut off."""
    found = {name: array for name, array in arrays.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): array for name, array in found.items()}


def write_model(path: Path, header: Mapping[str, Any], arrays: Stored) -> None:
    """Write a model to one file, atomically."""
    metadata = {"format": FORMAT, "version": str(FORMAT_VERSION), "model": json.dumps(dict(header))}
    write_arrays(path, arrays, metadata)


@contextmanager
def reading_model(path: Path) -> Iterator[tuple[Mapping[str, Any], Arrays]]:
    """Yield header and arrays of a file of `write_model`; what goes wrong with them is damage."""
    metadata, arrays = read_arrays(path, lambda found: _check_format(path, found))
    wrong = (ArithmeticError, AttributeError, LookupError, OasisError, TypeError, ValueError)
    try:
        yield json.loads(metadata["model"]), arrays
    except wrong as error:
        raise FormatError(f"{path} is damaged: {error}") from error


def check_shapes(arrays: Mapping[str, tuple[npt.NDArray[Any], tuple[int, ...]]]) -> None:
    """Raise ValueError unless each array, by name, has the shape beside it."""
    for name, (array, shape) in arrays.items():
        if array.shape != shape:
            raise ValueError(f"{name} has shape {array.shape}, expected {shape}")


def _check_format(path: Path, metadata: Mapping[str, str]) -> None:
    """Refuse a file of another kind or version; before its arrays are read."""
    if metadata.get("format") != FORMAT:
        raise FormatError(f"{path} is a safetensors file, but not one that OASIS.save wrote")
    version = metadata.get("version", "")
    if not version.isdecimal():
        raise FormatError(f"{path} is damaged: its format version is {version!r}")
    if int(version) > FORMAT_VERSION:
        raise NewerVersionError(
            f"{path} has format version {version}, this oasis reads up to {FORMAT_VERSION}; "
            "upgrade oasis-hash"
        )
    if int(version) < FORMAT_VERSION:
        raise FormatError(
            f"{path} has format version {version}, from before the first release; this oasis "
            f"reads version {FORMAT_VERSION} alone: learn the model anew"
        )
