"""Pictures as the 1,280 pooled activations of EfficientNet-Lite0 (extra ``images``).

A picture is turned upright as its EXIF says, laid on white where it is transparent, made RGB, cut
to the central square of 0.875 of its shorter side, and resized to 224 x 224 (bicubic). Of an
animation the first frame counts. Grey of 16 bits is scaled by its range, wider grey by the lowest
and highest value that occur. Large JPEGs are decoded at half, a quarter or an eighth of their
size where that still leaves twice the pixels needed.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from oasis.errors import DataError, InputError, MissingExtraError
from oasis.features.efficientnet import N_FEATURES, SIDE, VERSION, graph

if TYPE_CHECKING:
    from PIL import Image

MAX_PIXELS = 80_000_000
"""Default limit of width x height; a little below that of Pillow's own warning."""

# Formats that decode in process; others may start programs (EPS) or are no pictures (PDF).
_FORMATS = ("JPEG", "MPO", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM", "AVIF")
_CROP = 0.875
_SPARE = 2.0  # a reduced decoding keeps at least this many times the pixels of a side


class EfficientNetLite0:
    """Embeds pictures, given as paths or as the bytes of a file.

    The net is loaded at the first use: from the cache folder, or assembled there (under a second).

    Parameters
    ----------
    batch_size : int
        Pictures that go through the net at once; features do not depend on it.
    n_threads : int
        Threads that decode, and threads of the net; 0 for as many as the machine has cores.
    max_pixels : int
        A picture with more pixels than this is refused before it is decoded; decoding takes 4 to 12
        bytes a pixel on each thread. Pillow's own limit (179 million) holds beside it.

    Examples
    --------
    >>> embedder = EfficientNetLite0()
    >>> embedder.name, embedder.n_features
    ('efficientnet-lite0@1', 1280)
    >>> X, failures = embedder.embed([b"no picture"])
    >>> X.shape, failures
    ((1, 1280), {0: 'the picture cannot be read: it is of no known format'})
    """

    name = f"efficientnet-lite0@{VERSION}"
    n_features = N_FEATURES

    def __init__(
        self, batch_size: int = 8, n_threads: int = 0, max_pixels: int = MAX_PIXELS
    ) -> None:
        for parameter, value, least in (
            ("batch_size", batch_size, 1),
            ("n_threads", n_threads, 0),
            ("max_pixels", max_pixels, 1),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(f"{parameter} must be an int of at least {least}, got {value!r}")
        self.batch_size = batch_size
        self.n_threads = n_threads
        self.max_pixels = max_pixels
        self._session: Any = None

    def embed(self, raws: Sequence[object]) -> tuple[npt.NDArray[np.float32], dict[int, str]]:
        """Return the (n, 1280) float32 features, and why a row has none (it is zero then).

        None is a missing picture: a row of zeros and no failure. Cost on one core: about 12 ms a
        picture for the net, and 3 to 5 ms to decode and resize a photograph of 500 to 640 pixels.
        Memory: one batch.
        """
        X = np.zeros((len(raws), N_FEATURES), dtype=np.float32)
        failures: dict[int, str] = {}
        n_threads = min(self.n_threads or os.cpu_count() or 1, self.batch_size)
        # decoders let go of the interpreter, so threads do help
        with ThreadPoolExecutor(n_threads) as pool:
            for start in range(0, len(raws), self.batch_size):
                rows, batch = [], []
                results = pool.map(self._read, raws[start : start + self.batch_size])
                for row, result in enumerate(results, start):
                    if isinstance(result, str):
                        failures[row] = result
                    elif result is not None:
                        rows.append(row)
                        batch.append(result)
                if rows:
                    X[rows] = self._run(np.stack(batch))
        return X, failures

    def _read(self, raw: object) -> npt.NDArray[np.uint8] | str | None:
        try:
            return None if raw is None else read_pixels(raw, self.max_pixels)
        except DataError as error:
            return str(error)

    def _run(self, pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        if self._session is None:
            self._session = _session(self.n_threads)
        features: npt.NDArray[np.float32] = self._session.run(None, {"pixels": pixels})[0]
        return features


def read_pixels(source: object, max_pixels: int = MAX_PIXELS) -> npt.NDArray[np.uint8]:
    """Return a picture as the net takes it: (224, 224, 3) uint8, RGB.

    Parameters
    ----------
    source : path, or bytes of a file
    max_pixels : int
        A picture that declares more is refused from its header, before it is decoded.

    Raises
    ------
    DataError
        The file is missing, too large in pixels, or cannot be decoded to its end.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise MissingExtraError("Pillow", extra="images", what="reading images") from error

    Image.init()
    formats = [name for name in _FORMATS if name in Image.OPEN]
    try:
        with Image.open(_file(source), formats=formats) as image:
            width, height = image.size
            if width * height > max_pixels:
                raise DataError(_too_large(f"{width} x {height} pixels", max_pixels))
            return _pixels(image)
    except DataError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(_too_large("too many pixels for Pillow", max_pixels)) from error
    except UnidentifiedImageError as error:
        raise DataError("the picture cannot be read: it is of no known format") from error
    except Exception as error:  # decoders raise anything on a broken file
        raise DataError(f"the picture cannot be read: {_reason(error)}") from error


def _file(source: object) -> Path | io.BytesIO:
    if isinstance(source, bytes):
        return io.BytesIO(source)
    if not isinstance(source, (str, Path)):
        raise DataError(f"the picture is of type {type(source).__name__}, expected a path or bytes")
    path = Path(source)
    if not path.is_file():  # a pipe or a device would never end
        raise DataError(f"the picture {path} is missing, or no regular file")
    return path


def _pixels(image: Image.Image) -> npt.NDArray[np.uint8]:
    from PIL import Image, ImageOps

    # JPEG alone can be decoded at a fraction of its size; elsewhere this does nothing
    ratio = _SPARE * SIDE / (_CROP * min(image.size))
    image.draft(None, (int(image.width * ratio) + 1, int(image.height * ratio) + 1))
    ImageOps.exif_transpose(image, in_place=True)
    levels = (0.0, 65535.0) if image.mode.startswith("I;16") else None
    image = _plain_mode(image)
    side = _CROP * min(image.size)
    left, top = (image.width - side) / 2, (image.height - side) / 2
    small = image.resize(
        (SIDE, SIDE),
        Image.Resampling.BICUBIC,
        box=(left, top, left + side, top + side),
        reducing_gap=_SPARE,
    )
    if small.mode == "F":
        grey = _eight_bits(np.array(small, dtype=np.float64), levels or image.getextrema())
        return np.repeat(grey[:, :, None], 3, axis=2)
    if small.mode == "RGBA":
        page = Image.new("RGBA", small.size, "white")
        small = Image.alpha_composite(page, small).convert("RGB")
    return np.asarray(small, dtype=np.uint8)


def _plain_mode(image: Image.Image) -> Image.Image:
    """Return a picture of any mode as RGB, RGBA (it is transparent) or F (it is wide grey)."""
    if image.mode.startswith(("I", "F")):
        mode = "F"
    else:
        mode = "RGBA" if image.has_transparency_data else "RGB"
    return image if image.mode == mode else image.convert(mode)


def _eight_bits(levels: npt.NDArray[np.float64], ends: Any) -> npt.NDArray[np.uint8]:
    """Return wide grey levels as bytes, from 0 at the lower end of their range to 255."""
    levels[~np.isfinite(levels)] = 0
    if not np.isfinite(ends).all():
        ends = levels.min(), levels.max()
    low, high = float(ends[0]), float(ends[1])
    scaled = (levels - low) * (255 / (high - low) if high > low else 0.0)
    return np.clip(np.rint(scaled), 0, 255).astype(np.uint8)  # bicubic weights overshoot


def _session(n_threads: int) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("onnxruntime", extra="images", what="reading images") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = n_threads
    return onnxruntime.InferenceSession(graph(), options, providers=["CPUExecutionProvider"])


def _too_large(found: str, max_pixels: int) -> str:
    return f"the picture is refused undecoded: {found}, at most {max_pixels} are allowed"


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
