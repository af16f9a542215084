"""Weights of the image net: the file of tensors, read without torch."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import struct
import sys
import types
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oasis.errors import DataError, FormatError
from oasis.features.weights import read_weights


class FloatStorage:
    def __init__(self, key: str, values: Any) -> None:
        self.key, self.values = key, np.asarray(values, dtype="<f4")


class LongStorage:
    def __init__(self, key: str, values: Any) -> None:
        self.key, self.values = key, np.asarray(values, dtype="<i8")


class FakeTensor:
    def __init__(self, storage: Any, offset: Any, shape: Any, strides: Any) -> None:
        self.arguments = (storage, offset, shape, strides, False, OrderedDict())

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_tensor_v2, self.arguments


def _rebuild_tensor_v2(*arguments: Any) -> None:
    raise AssertionError("only its name is ever written")


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules by which the pickler finds the names that torch would write."""
    module, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for owner, thing in (
        (module, FloatStorage),
        (module, LongStorage),
        (utils, _rebuild_tensor_v2),
    ):
        setattr(owner, thing.__name__, thing)
        monkeypatch.setattr(thing, "__module__", owner.__name__)
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)


class LegacyPickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, (FloatStorage, LongStorage)):
            return ("storage", type(obj), obj.key, "cpu", len(obj.values), None)
        return None


def dumps(thing: Any) -> bytes:
    file = io.BytesIO()
    LegacyPickler(file, protocol=2).dump(thing)
    return file.getvalue()


def legacy_file(
    tensors: Any,
    storages: list[Any],
    *,
    magic: Any = 0x1950A86A20F9469CFC6C,
    protocol: Any = 1001,
    machine: Any = None,
    keys: Any = None,
) -> bytes:
    machine = {"little_endian": True} if machine is None else machine
    keys = [storage.key for storage in storages] if keys is None else keys
    parts = [dumps(part) for part in (magic, protocol, machine, tensors, keys)]
    for storage in storages:
        parts += [struct.pack("<q", len(storage.values)), storage.values.tobytes()]
    return b"".join(parts)


def small_file(**changes: Any) -> bytes:
    floats, counts = FloatStorage("a", np.arange(12)), LongStorage("b", [7])
    tensors = OrderedDict(
        plain=FakeTensor(floats, 0, (3, 4), (4, 1)),
        turned=FakeTensor(floats, 0, (4, 3), (1, 4)),
        part=FakeTensor(floats, 5, (2, 2), (4, 2)),
        scalar=FakeTensor(counts, 0, (), ()),
        nothing=FakeTensor(floats, 0, (0, 9), (9, 1)),
    )
    tensors._metadata = OrderedDict(version=1)  # type: ignore[attr-defined]
    return legacy_file(tensors, [counts, floats], **changes)


@pytest.mark.usefixtures("torch")
def test_tensors_are_read_with_their_strides(tmp_path: Path) -> None:
    grid = np.arange(12, dtype=np.float32).reshape(3, 4)
    tensors = parsed(tmp_path, small_file())
    assert list(tensors) == ["plain", "turned", "part", "scalar", "nothing"]
    assert np.array_equal(tensors["plain"], grid)
    assert np.array_equal(tensors["turned"], grid.T)
    assert np.array_equal(tensors["part"], grid[1:, 1::2])
    assert tensors["scalar"].shape == ()
    assert (tensors["scalar"].dtype, int(tensors["scalar"])) == (np.int64, 7)
    assert tensors["nothing"].shape == (0, 9)
    assert all(tensor.flags.c_contiguous for tensor in tensors.values())


def parsed(folder: Path, data: bytes) -> dict[str, Any]:
    """Read a file whose checksum is known."""
    path = folder / "weights.pth"
    path.write_bytes(data)
    return read_weights(path, hashlib.sha256(data).hexdigest())


class Evil:
    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("place", ["magic", "protocol", "machine", "keys", "tensors"])
def test_a_pickle_with_any_other_name_is_refused_and_runs_nothing(
    tmp_path: Path, place: str
) -> None:
    evil = Evil(os.mkdir, str(tmp_path / "made"))
    data = legacy_file({"x": evil}, []) if place == "tensors" else small_file(**{place: evil})
    with pytest.raises(FormatError, match=r"names posix\.mkdir, which is not admitted"):
        parsed(tmp_path, data)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "name",
    [
        b"ctorch\nHalfStorage\n",
        b"ctorch._utils\n_rebuild_parameter\n",
        b"ccollections\nCounter\n",
        b"cbuiltins\neval\n",
        b"\x80\x04\x8c\x0bcollections\x8c\x14OrderedDict.__init__\x93",
    ],
)
def test_near_misses_of_the_four_names_are_refused(name: bytes, tmp_path: Path) -> None:
    with pytest.raises(FormatError):
        parsed(tmp_path, b"\x80\x02" + name + b".")


@pytest.mark.usefixtures("torch")
def test_the_checksum_comes_before_everything(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    path.write_bytes(small_file())
    right = hashlib.sha256(path.read_bytes()).hexdigest()
    assert "plain" in read_weights(path, right)
    path.write_bytes(dumps(Evil(os.mkdir, str(tmp_path / "made"))))
    with pytest.raises(FormatError, match=f"expected {right}"):
        read_weights(path, right)
    assert not (tmp_path / "made").exists()
    with pytest.raises(DataError, match="No such file"):
        read_weights(tmp_path / "missing.pth", right)
