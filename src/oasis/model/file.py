"""The file of a model: safetensors with a JSON header. Knows no model.

The metadata has ``format`` "oasis-model", ``version``, and ``model``, a JSON object with all that
is no array; and a checksum of all of it (`oasis.store.write_arrays`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy.typing as npt

from oasis.arrays import LowerTriangle
from oasis.codes import Codes, check_codes
from oasis.errors import FormatError, NewerVersionError, OasisError
from oasis.store import read_arrays, write_arrays

FORMAT = "oasis-model"
FORMAT_VERSION = 15

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
"""Arrays by name, as they are read."""

Stored: TypeAlias = dict[str, npt.NDArray[Any] | LowerTriangle]
"""Arrays by name, as they are written."""


@dataclass(frozen=True)
class ModelFile:
    """The content of a model file.

    Attributes
    ----------
    path : where it was
    header : all that is no array
    arrays : arrays by name
    """

    path: Path
    header: Mapping[str, Any]
    arrays: Arrays

    def under(self, prefix: str) -> Arrays:
        """Return the arrays whose names begin with a prefix, which is cut off."""
        return {
            key.removeprefix(prefix): array
            for key, array in self.arrays.items()
            if key.startswith(prefix)
        }

    def codes(self, n_bits: int) -> Codes:
        """Return the codes of the last chunk."""
        return check_codes(self.arrays["codes"], n_bits)

    @contextmanager
    def refusing_damage(self) -> Iterator[None]:
        """Turn whatever goes wrong while the content is read into a `FormatError`."""
        try:
            yield
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            OasisError,
            TypeError,
            ValueError,
        ) as error:
            raise FormatError(f"{self.path} is damaged: {error}") from error


def write_model(path: Path, header: Mapping[str, Any], arrays: Stored) -> None:
    """Write a model to one file, atomically."""
    metadata = {"format": FORMAT, "version": str(FORMAT_VERSION), "model": json.dumps(dict(header))}
    write_arrays(path, arrays, metadata)


def read_model(path: Path) -> ModelFile:
    """Return the content of a file that `write_model` wrote."""
    metadata, arrays = read_arrays(path, lambda found: _check_format(path, found))
    try:
        header = json.loads(metadata["model"])
    except (KeyError, ValueError) as error:
        raise FormatError(f"{path} is damaged: its header cannot be read") from error
    if not isinstance(header, dict):
        raise FormatError(f"{path} is damaged: its header is a {type(header).__name__}")
    return ModelFile(path, header, arrays)


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
