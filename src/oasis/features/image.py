"""Pictures as the 1,280 pooled activations of EfficientNet-Lite0 (extra ``images``).

A picture is turned upright as its EXIF says, laid on white where it is transparent, made RGB, cut
to the central square of 0.875 of its shorter side, and resized to 224 x 224 (bicubic). Of an
animation the first frame counts. Large JPEGs are decoded at half, a quarter or an eighth of their
size where that still leaves twice the pixels needed.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from oasis.errors import DataError, InputError, MissingExtraError
from oasis.features.efficientnet import N_FEATURES, SIDE, VERSION, graph

if TYPE_CHECKING:
    from PIL import Image

MAX_PIXELS = 80_000_000
"""Default limit of width x height: 320 MB at four bytes a pixel, and below Pillow's own warning."""

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
        Threads of one run of the net; 0 for as many as the machine has cores.
    max_pixels : int
        A picture with more pixels than this is refused before it is decoded. Pillow's own limit
        (179 million) holds beside it.

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

        None is a missing picture: a row of zeros and no failure. Cost: about 12 ms a picture on one
        core, decoding aside; memory for one batch.
        """
        X = np.zeros((len(raws), N_FEATURES), dtype=np.float32)
        failures: dict[int, str] = {}
        for start in range(0, len(raws), self.batch_size):
            rows, batch = [], []
            for row in range(start, min(start + self.batch_size, len(raws))):
                raw = raws[row]
                if raw is None:
                    continue
                try:
                    batch.append(read_pixels(raw, self.max_pixels))
                    rows.append(row)
                except DataError as error:
                    failures[row] = str(error)
            if rows:
                X[rows] = self._run(np.stack(batch))
        return X, failures

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
    image = _rgb(ImageOps.exif_transpose(image))
    side = _CROP * min(image.size)
    left, top = (image.width - side) / 2, (image.height - side) / 2
    small = image.resize(
        (SIDE, SIDE),
        Image.Resampling.BICUBIC,
        box=(left, top, left + side, top + side),
        reducing_gap=_SPARE,
    )
    return np.asarray(small, dtype=np.uint8)


def _rgb(image: Image.Image) -> Image.Image:
    from PIL import Image

    if image.mode.startswith(("I", "F")):
        return Image.fromarray(_eight_bits(image)).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        page = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(page, image).convert("RGB")
    return image.convert("RGB")


def _eight_bits(image: Image.Image) -> npt.NDArray[np.uint8]:
    """Return wide grey levels as bytes: 16 bits by their range, others by the values that occur."""
    levels = np.nan_to_num(np.asarray(image, dtype=np.float64))
    low, high = (0.0, 65535.0) if image.mode.startswith("I;16") else (levels.min(), levels.max())
    scale = 255 / (high - low) if high > low else 0.0
    return np.rint((levels - low) * scale).astype(np.uint8)


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
