"""Methods of other packages: classes by import path, or by entry points.

``package.module:Class`` names a class that can be imported; the current folder is searched too. A
package can register names, ``my-hash = "mypackage.mymodule:MyHasher"``, in its ``pyproject.toml``
under ``[project.entry-points."oasis.methods"]``. A hasher has

- ``partial_fit(X, y)``, with X a mapping of modality name to an (n, d) array or CSR matrix and y
  one tuple of class names per sample;
- ``codes_`` afterwards, the chunk's (n, n_bits / 8) uint8 codes (bit order little); ``all_codes_``
  with those of everything seen, if the class has ``is_batch = True``;
- ``project(X)``, (n, n_bits) real values whose signs are the code, or ``encode(X)``, packed codes;
  X has all modalities, with rows of zeros for those that the queries lack.

A ranker has ``partial_fit(X, y)`` and ``scores(X)``, (queries, everything seen), instead. The task
sets these parameters of the constructor: ``n_bits`` (required for a hasher) and, if they exist,
``random_state``, ``classes`` (all class names, if the class has ``needs_classes = True``) and
``labels`` (vectors of the class names, if it has no default). A class attribute ``tuning_grid =
{"alpha": (1.0, 10.0)}`` has the values that `oasis tune` tries.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np

from oasis.arrays import Matrix, Single, is_sparse
from oasis.codes import Codes, unpack
from oasis.errors import InputError
from oasis.hashers.chunk import check_chunk
from oasis.hashers.protocol import Labels, OnlineHasher

Ranker: TypeAlias = Any
"""A method without codes: ``partial_fit(X, y)`` and ``scores(X)``."""


def traceback_of(error: Exception, name: str) -> str:
    """Return the traceback of an exception from the first frame of a brought method on."""
    package = announced().get(name, name).partition(":")[0].partition(".")[0]
    frames = error.__traceback__
    while frames and frames.tb_frame.f_globals.get("__name__", "").partition(".")[0] != package:
        frames = frames.tb_next
    return "".join(traceback.format_exception(error.with_traceback(frames or error.__traceback__)))


def announced() -> dict[str, str]:
    """Return the methods that installed packages register, by name, as import paths."""
    return {each.name: each.value for each in entry_points(group="oasis.methods")}


def class_at(path: str) -> Any:
    """Import the class at an import path; the current folder is searched last."""
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise InputError(f"{path!r} is not an import path; expected package.module:Class")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise InputError(
            f"{path}: the module cannot be imported ({error}); install its package, or start from "
            "the folder that it lies in"
        ) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise InputError(f"{path}: {module_name} has no {attribute!r}")
        found = getattr(found, part)
    if not callable(found):
        raise InputError(f"{path} is {type(found).__name__}, expected a class")
    makes = any(hasattr(found, each) for each in ("project", "encode", "scores"))
    if inspect.isclass(found) and not (hasattr(found, "partial_fit") and makes):
        raise InputError(
            f"{path} is not a method: expected partial_fit(X, y) and project(X), encode(X) or "
            "scores(X); see oasis.experiments.brought"
        )
    return found


def source_sha256(cls: Any) -> str:
    """Return the SHA-256 of the file in which a class is written; empty if there is none."""
    with suppress(OSError, TypeError):
        if (path := inspect.getsourcefile(cls)) is not None:
            return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return ""


class BroughtHasher(OnlineHasher):
    """A foreign hasher with the interface of `OnlineHasher`; its results are checked.

    Parameters
    ----------
    inner : the hasher
    name : the requested name, for errors
    n_bits : the code length that it was made with

    Attributes
    ----------
    empty : modality name -> zero rows of the last chunk, which keep its width and type
    """

    def __init__(self, inner: Any, name: str, n_bits: int) -> None:
        self.inner = inner
        self.name = name
        self.n_bits = n_bits

    def partial_fit(self, X: Any, y: Labels, classes: Sequence[str] | None = None) -> Self:
        chunk = check_chunk(X, y, None, classes)
        sets = chunk.labels
        self.empty = {name: matrix[:0].copy() for name, matrix in chunk.X.items()}
        self.inner.partial_fit(chunk.X, sets)
        self.codes_ = self._codes("codes_", getattr(self.inner, "codes_", None), len(sets))
        return self

    @property
    def all_codes_(self) -> Codes:
        """The codes of everything seen, of a batch method."""
        return self._codes("all_codes_", getattr(self.inner, "all_codes_", None), None)

    def project(self, X: Any) -> Single:
        n = next(iter(X.values())).shape[0]
        X = {name: X.get(name, _zeros(matrix, n)) for name, matrix in self.empty.items()}
        if not hasattr(self.inner, "project"):
            codes = self._codes("encode(X)", self.inner.encode(X), n)
            return unpack(codes).astype(np.float32)
        values = np.asarray(self.inner.project(X), dtype=np.float32)
        if values.shape != (n, self.n_bits) or not np.isfinite(values).all():
            raise InputError(
                f"{self.name}: project(X) has shape {values.shape} and "
                f"{int((~np.isfinite(values)).sum())} values that are not finite; expected "
                f"({n}, {self.n_bits}) finite numbers"
            )
        return values

    @property
    def project_words(self) -> Callable[[list[str]], Single]:
        """The function from class names to projections; absent if the hasher has none."""
        inner = self.inner.project_words
        return lambda names: np.asarray(inner(names), dtype=np.float32)

    def _codes(self, what: str, codes: Any, n: int | None) -> Codes:
        array = np.asarray(codes)
        width = self.n_bits // 8
        if array.dtype != np.uint8 or array.ndim != 2 or array.shape[1] != width:
            got = "nothing" if codes is None else f"{array.dtype} {array.shape}"
            raise InputError(
                f"{self.name}: {what} is {got}, expected uint8 (n, {width}): {self.n_bits} bits "
                "packed, bit order little, as oasis.codes.pack gives them"
            )
        if n is not None and len(array) != n:
            raise InputError(f"{self.name}: {what} has {len(array)} rows for {n} samples")
        return array


def _zeros(like: Matrix, n: int) -> Matrix:
    """Return n rows of zeros with the format and width of a matrix."""
    shape = n, int(like.shape[1])
    return type(like)(shape, dtype=like.dtype) if is_sparse(like) else np.zeros(shape, like.dtype)
