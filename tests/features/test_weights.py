"""Weights of the image net: the file of tensors, read without torch, and the cache of its graph."""

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

from oasis.errors import CacheWarning, DataError, FormatError
from oasis.features import efficientnet
from oasis.features.cache import cache_folder, read_cached, write_cached
from oasis.features.weights import parse_tensors, read_weights

# ---------------------------------------------------------------- the file of tensors


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
    tail: bytes = b"",
) -> bytes:
    machine = {"little_endian": True} if machine is None else machine
    keys = [storage.key for storage in storages] if keys is None else keys
    parts = [dumps(part) for part in (magic, protocol, machine, tensors, keys)]
    for storage in storages:
        parts += [struct.pack("<q", len(storage.values)), storage.values.tobytes()]
    return b"".join(parts) + tail


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
def test_tensors_are_read_with_their_strides() -> None:
    grid = np.arange(12, dtype=np.float32).reshape(3, 4)
    tensors = parse_tensors(small_file())
    assert list(tensors) == ["plain", "turned", "part", "scalar", "nothing"]
    assert np.array_equal(tensors["plain"], grid)
    assert np.array_equal(tensors["turned"], grid.T)
    assert np.array_equal(tensors["part"], grid[1:, 1::2])
    assert tensors["scalar"].shape == ()
    assert (tensors["scalar"].dtype, int(tensors["scalar"])) == (np.int64, 7)
    assert tensors["nothing"].shape == (0, 9)
    assert all(tensor.flags.c_contiguous for tensor in tensors.values())


@pytest.mark.usefixtures("torch")
def test_tensors_cut_anywhere_are_refused() -> None:
    data = small_file()
    for end in range(len(data)):
        with pytest.raises(FormatError):
            parse_tensors(data[:end])


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
        parse_tensors(data)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "name",
    [
        b"ctorch\nHalfStorage\n",
        b"ctorch._utils\n_rebuild_parameter\n",
        b"ccollections\nCounter\n",
        b"cbuiltins\neval\n",
        b"\x80\x04\x8c\x0bcollections\x8c\x14OrderedDict.__init__\x93",
        b"\x82\x01",
    ],
)
def test_near_misses_of_the_four_names_are_refused(name: bytes) -> None:
    with pytest.raises(FormatError):
        parse_tensors(b"\x80\x02" + name + b".")


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"magic": 1}, "magic"),
        ({"protocol": 1000}, "protocol 1000"),
        ({"machine": {"little_endian": False}}, "little-endian"),
        ({"machine": []}, "little-endian"),
        ({"keys": ["a"]}, "not those"),
        ({"keys": ["b", "a", "a"]}, "not those"),
        ({"keys": 5}, "no list"),
        ({"keys": ["a", "b"]}, "storage a has 1 numbers"),
        ({"tail": b"x"}, "data after its last storage"),
    ],
)
def test_a_file_of_another_build_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse_tensors(small_file(**changes))


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize(
    "arguments",
    [
        (0, (13,), (1,)),
        (1, (12,), (1,)),
        (0, (3, 4), (5, 1)),
        (0, (1000, 1000), (0, 0)),
        (-1, (2,), (1,)),
        (0, (-2,), (1,)),
        (0, (2,), (-1,)),
        (0, (2,), (1, 1)),
        (0, [2], [1]),
        (0.0, (2,), (1,)),
        ("0", (2,), (1,)),
    ],
)
def test_a_tensor_outside_its_storage_is_refused(arguments: tuple[Any, ...]) -> None:
    storage = FloatStorage("a", np.arange(12))
    with pytest.raises(FormatError):
        parse_tensors(legacy_file({"x": FakeTensor(storage, *arguments)}, [storage]))


@pytest.mark.usefixtures("torch")
def test_tensors_that_disagree_about_a_storage_are_refused() -> None:
    large, small = FloatStorage("a", np.arange(12)), FloatStorage("a", np.arange(2))
    tensors = {"x": FakeTensor(large, 0, (12,), (1,)), "y": FakeTensor(small, 0, (2,), (1,))}
    with pytest.raises(FormatError, match="not those"):
        parse_tensors(legacy_file(tensors, [small]))


@pytest.mark.usefixtures("torch")
def test_what_is_no_mapping_of_tensors_is_refused() -> None:
    for content in ([1], {"x": 1}, {1: FakeTensor(FloatStorage("a", [1]), 0, (1,), (1,))}):
        with pytest.raises(FormatError, match="mapping"):
            parse_tensors(legacy_file(content, []))


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


# ---------------------------------------------------------------- the cache folder


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OASIS_CACHE", "/somewhere")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_folder() == Path("/somewhere")
    monkeypatch.delenv("OASIS_CACHE")
    assert cache_folder() == Path("/xdg/oasis")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == Path("/home/me/.cache/oasis")


def test_cached_files_are_used_only_when_they_match_their_name(cache: Path) -> None:
    assert read_cached("model", ".bin") is None
    path = write_cached("model", ".bin", b"content")
    assert path.name == f"model-{hashlib.sha256(b'content').hexdigest()}.bin"
    assert read_cached("model", ".bin") == b"content"
    path.write_bytes(b"damaged")
    assert read_cached("model", ".bin") is None
    (cache / "model-0.bin").mkdir()  # cannot be read as a file
    write_cached("model", ".bin", b"content")
    assert read_cached("model", ".bin") == b"content"
    (cache / "model-0.bin").rmdir()
    assert [file.name for file in cache.iterdir()] == [path.name]


def test_a_failed_write_leaves_nothing_in_the_cache(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_cached("model", ".bin", b"content")
    assert list(cache.iterdir()) == []


def test_the_graph_is_assembled_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    monkeypatch.setattr(efficientnet, "efficientnet_weights_path", Path)
    monkeypatch.setattr(efficientnet, "read_weights", lambda path, sha256: {})
    monkeypatch.setattr(efficientnet, "build_graph", lambda w: built.append(w) or b"graph")
    assert [efficientnet.graph() for _ in range(3)] == [b"graph"] * 3
    assert len(built) == 1
    (file,) = cache.iterdir()
    file.write_bytes(b"gra")
    assert efficientnet.graph() == b"graph"
    assert len(built) == 2
    assert file.read_bytes() == b"graph"


def test_the_graph_works_without_a_cache_but_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("OASIS_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(efficientnet, "efficientnet_weights_path", Path)
    monkeypatch.setattr(efficientnet, "read_weights", lambda path, sha256: {})
    monkeypatch.setattr(efficientnet, "build_graph", lambda w: b"graph")
    with pytest.warns(CacheWarning, match="OASIS_CACHE"):
        assert efficientnet.graph() == b"graph"
