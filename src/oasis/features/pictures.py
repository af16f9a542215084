"""Decoding of pictures from a file, bytes, a PIL image or an array, once for all uses.

A picture is rotated upright by its EXIF orientation, and transparent pixels become white. Of an
animation the first frame is used. 16-bit grey is scaled by its range, wider grey by the lowest and
highest value that occur. Large JPEGs are decoded at 1/2, 1/4 or 1/8 of their size if the shorter
side keeps at least 512 pixels. Needs Pillow (extra ``images``).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from oasis.errors import DataError, MissingExtraError

if TYPE_CHECKING:
    from PIL import Image

MAX_PIXELS = 80_000_000
"""Default limit of width x height; a little below that of Pillow's own warning."""

BATCH = 32
"""Pictures that are embedded at once."""

# Formats that decode in process; others may start programs (EPS) or are not pictures (PDF).
_FORMATS = ("JPEG", "MPO", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM", "AVIF")
_CROP = 0.875  # share of the shorter side in the central square
_SHORTER = 512  # minimum shorter side of a JPEG that is decoded at a fraction of its size
_GAP = 2.0  # see reducing_gap of PIL.Image.Image.resize


class Picture:
    """A decoded picture; made by `open_picture`."""

    def __init__(self, image: Image.Image, levels: tuple[float, float] | None) -> None:
        self._image = image  # RGB, RGBA (it is transparent) or F (it is wide grey)
        self._levels = levels  # of wide grey: the levels of black and white; None: lowest, highest

    @property
    def parts(self) -> tuple[Image.Image, tuple[float, float] | None]:
        """An RGB, RGBA or F image, and the levels of wide grey."""
        return self._image, self._levels

    def square(self, side: int) -> npt.NDArray[np.uint8]:
        """Return the central square of 0.875 of the shorter side: (side, side, 3) uint8, RGB."""
        from PIL import Image

        image = self._image
        part = _CROP * min(image.size)
        left, top = (image.width - part) / 2, (image.height - part) / 2
        box = (left, top, left + part, top + part)
        small = image.resize((side, side), Image.Resampling.BICUBIC, box=box, reducing_gap=_GAP)
        return self._pixels(small)

    def fitted(self, side: int) -> Image.Image:
        """Return the whole picture, its longer side at most ``side`` pixels.

        As RGBA if some of its pixels are transparent, else as RGB.
        """
        image = self._resized(min(1.0, side / max(self._image.size)))
        if image.mode == "RGBA" and image.getchannel("A").getextrema() != (255, 255):
            return image.copy()
        return self._as_rgb(image)

    def rgb(self, shorter: int = 1024) -> Image.Image:
        """Return the whole picture as RGB, its shorter side at most ``shorter`` pixels."""
        return self._as_rgb(self._resized(min(1.0, shorter / min(self._image.size))))

    def _resized(self, share: float) -> Image.Image:
        from PIL import Image

        image = self._image
        size = max(1, round(image.width * share)), max(1, round(image.height * share))
        if size != image.size:
            # about as sharp as bicubic, in a third of the time of Lanczos
            image = image.resize(size, Image.Resampling.HAMMING, reducing_gap=1.5)
        return image

    def _as_rgb(self, image: Image.Image) -> Image.Image:
        from PIL import Image

        return image.copy() if image.mode == "RGB" else Image.fromarray(self._pixels(image))

    def _pixels(self, image: Image.Image) -> npt.NDArray[np.uint8]:
        """Return this picture, resized, as (height, width, 3) bytes."""
        if image.mode == "F":
            ends = self._levels or self._image.getextrema()
            grey = _eight_bits(np.array(image, dtype=np.float64), ends)
            return np.repeat(grey[:, :, None], 3, axis=2)
        return np.asarray(on_white(image) if image.mode == "RGBA" else image, dtype=np.uint8)


def on_white(image: Image.Image) -> Image.Image:
    """Return an RGBA image as RGB, with white behind it."""
    from PIL import Image

    page = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(page, image).convert("RGB")


class DeferredPicture(bytes):
    """The bytes of a picture file with a decoder of its own, such as another process.

    ``decoder`` is called with the bytes and the maximum number of pixels. It returns the picture,
    or raises `DataError`.
    """

    decoder: Callable[[bytes, int], Picture]

    @classmethod
    def of(cls, content: bytes, decoder: Callable[[bytes, int], Picture]) -> DeferredPicture:
        """Return the bytes with their decoder."""
        made = cls(content)
        made.decoder = decoder
        return made


def open_picture(source: object, max_pixels: int = MAX_PIXELS) -> Picture:
    """Decode a picture.

    Parameters
    ----------
    source : path, bytes of a file, `DeferredPicture`, PIL image, or array
        An array is (height, width), (height, width, 3) or (height, width, 4) uint8.
    max_pixels : int
        A picture that declares more is refused from its header, before it is decoded.

    Raises
    ------
    DataError
        The file is missing, too large in pixels, or cannot be decoded to its end.
    """
    if isinstance(source, DeferredPicture):
        return source.decoder(source, max_pixels)
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise MissingExtraError("Pillow", extra="images", what="reading images") from error

    try:
        if isinstance(source, np.ndarray):
            source = Image.fromarray(_checked(source))
        if isinstance(source, Image.Image):
            _check_size(source, max_pixels)
            return _decoded(source.copy())
        Image.init()
        formats = [name for name in _FORMATS if name in Image.OPEN]
        with Image.open(_file(source), formats=formats) as image:
            _check_size(image, max_pixels)
            return _decoded(image)
    except DataError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(_too_large("too many pixels for Pillow", max_pixels)) from error
    except UnidentifiedImageError as error:
        raise DataError("the picture cannot be read: it is of no known format") from error
    except Exception as error:  # decoders may raise anything on a broken file
        raise DataError(f"the picture cannot be read: {_reason(error)}") from error


class PictureEmbedder:
    """An embedder of pictures in two steps, so that a picture is decoded once for several uses.

    Subclasses have ``name``, ``n_features`` and ``takes`` (see `oasis.features.embedders`), and
    the two steps.
    """

    name: str
    takes: str
    n_threads = 0

    @property
    def n_features(self) -> int:
        raise NotImplementedError

    def prepare(self, picture: Picture) -> Any:
        """Return a decoded picture as input of the second step; may run in any thread."""
        raise NotImplementedError

    def embed_prepared(self, prepared: Sequence[Any]) -> tuple[Any, dict[int, str]]:
        """Return the features of several inputs, and by row the reason why one has none."""
        raise NotImplementedError

    def embed(self, raws: Sequence[Any]) -> tuple[Any, dict[int, str]]:
        """Return the (n, n_features) float32 features, and by row why it has none (it is zero).

        None is a missing picture: a row of zeros and no failure. Memory: a batch of 32.
        """
        X = np.zeros((len(raws), self.n_features), dtype=np.float32)
        failures: dict[int, str] = {}
        for start in range(0, len(raws), BATCH):
            prepared: dict[int, Any] = {}
            for row, raw in enumerate(raws[start : start + BATCH], start):
                try:
                    if raw is not None:
                        prepared[row] = self.prepare(open_picture(raw))
                except DataError as error:
                    failures[row] = str(error)
            rows = list(prepared)
            X[rows], reasons = self.embed_prepared(list(prepared.values()))
            failures |= {rows[place]: why for place, why in reasons.items()}
        return X, failures


def _file(source: object) -> Path | io.BytesIO:
    if isinstance(source, bytes):
        if not source:
            raise DataError("the picture is empty: it has 0 bytes")
        return io.BytesIO(source)
    if not isinstance(source, (str, Path)):
        raise DataError(
            f"the picture is of type {type(source).__name__}, expected a path, bytes, a PIL image "
            "or an array"
        )
    path = Path(source)
    if not path.is_file():  # a pipe or a device would never end
        raise DataError(f"the picture {path} is missing, or no regular file")
    if not path.stat().st_size:
        raise DataError("the picture is empty: its file has 0 bytes")
    return path


def _checked(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    if array.dtype != np.uint8 or not (
        array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))
    ):
        raise DataError(
            f"the picture is an array of shape {array.shape} and type {array.dtype}, expected "
            "(height, width), (height, width, 3) or (height, width, 4) uint8"
        )
    if not array.size:
        raise DataError(f"the picture is an array of shape {array.shape}, which has no pixels")
    return array


def _check_size(image: Image.Image, max_pixels: int) -> None:
    width, height = image.size
    if width * height > max_pixels:
        raise DataError(_too_large(f"{width} x {height} pixels", max_pixels))


def _decoded(image: Image.Image) -> Picture:
    from PIL import ImageOps

    # only JPEG can be decoded at a fraction of its size; for other formats this does nothing
    ratio = _SHORTER / min(image.size)
    image.draft(None, (int(image.width * ratio) + 1, int(image.height * ratio) + 1))
    ImageOps.exif_transpose(image, in_place=True)
    levels = (0.0, 65535.0) if image.mode.startswith("I;16") else None
    plain = _plain_mode(image)
    plain.load()  # a file is closed after this
    return Picture(plain, levels)


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
    return np.clip(np.rint(scaled), 0, 255).astype(np.uint8)  # resizing overshoots


def _too_large(found: str, max_pixels: int) -> str:
    return f"the picture is refused undecoded: {found}, at most {max_pixels} are allowed"


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
