"""Pictures as histograms of oriented gradients (HOG), without a neural network.

They distinguish drawings by their outlines. On held-out icons at 64 bits, MAP from the picture
alone is 0.38; EfficientNet-Lite0 gives 0.44 and takes much longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.arrays import Single
from oasis.features.pictures import Picture, PictureEmbedder

CELL = 8
"""Side of a cell in pixels."""

_N_ORIENTATIONS = 9
_SIDE = 48
_SQUARE = 224  # side of the square that is averaged down to 48 x 48 grey values


class Gradients(PictureEmbedder):
    """Embeds pictures (paths, bytes, PIL images, arrays) by gradients of 48 x 48 grey values.

    Cost on one core: about 0.4 ms per picture, without decoding.

    Examples
    --------
    >>> embedder = Gradients()
    >>> embedder.name, embedder.n_features
    ('glyph-gradients-48@1', 900)
    >>> X, failures = embedder.embed([b"no picture"])
    >>> X.shape, failures
    ((1, 900), {0: 'the picture cannot be read: it is of no known format'})
    """

    name = "glyph-gradients-48@1"
    n_features = 36 * (_SIDE // CELL - 1) ** 2
    takes = "picture"

    def prepare(self, picture: Picture) -> npt.NDArray[np.uint8]:
        """Return the grey values of a decoded picture: (48, 48) uint8."""
        from PIL import Image

        grey = Image.fromarray(picture.square(_SQUARE)).convert("L")
        return np.asarray(grey.resize((_SIDE, _SIDE), Image.Resampling.BOX))

    def embed_prepared(self, prepared: Sequence[Any]) -> tuple[Single, dict[int, str]]:
        """Return the features of prepared pictures."""
        greys = np.array(prepared, dtype=np.uint8).reshape(-1, _SIDE, _SIDE)
        return gradients(greys), {}


def gradients(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Return a histogram of oriented gradients per (size, size) image, unit length.

    Each cell of 8 x 8 pixels has a histogram of 9 unsigned orientations. A pixel adds the magnitude
    of its gradient, interpolated between the two nearest orientations. Every 2 x 2 cells form a
    block that is scaled to unit length. Shape (n, 36 (size/8 - 1)^2) float32. An empty image gives
    zeros.

    >>> import numpy as np
    >>> gradients(np.zeros((1, 48, 48), dtype=np.uint8)).shape
    (1, 900)
    """
    n, height, width = images.shape
    pixels = images.astype(np.float32) / 255.0
    dy, dx = np.zeros_like(pixels), np.zeros_like(pixels)
    dy[:, 1:-1] = pixels[:, 2:] - pixels[:, :-2]
    dx[:, :, 1:-1] = pixels[:, :, 2:] - pixels[:, :, :-2]
    magnitude = np.hypot(dx, dy)
    angle = np.mod(np.arctan2(dy, dx), np.pi) * (_N_ORIENTATIONS / np.pi)  # in bins
    low = np.floor(angle)
    upper_share = angle - low
    low_bin = low.astype(np.int64) % _N_ORIENTATIONS
    rows, columns = height // CELL, width // CELL
    cells = np.zeros((n, rows, columns, _N_ORIENTATIONS), dtype=np.float32)
    for orientation in range(_N_ORIENTATIONS):
        vote = np.where(low_bin == orientation, magnitude * (1 - upper_share), 0)
        previous = (orientation - 1) % _N_ORIENTATIONS
        vote += np.where(low_bin == previous, magnitude * upper_share, 0)
        grid = vote.reshape(n, rows, CELL, columns, CELL)
        cells[..., orientation] = grid.sum(axis=(2, 4))
    corners = [cells[:, a : rows - 1 + a, b : columns - 1 + b] for a in (0, 1) for b in (0, 1)]
    blocks = np.concatenate(corners, axis=3)
    blocks /= np.linalg.norm(blocks, axis=3, keepdims=True) + 1e-3  # faint blocks stay faint
    flat: npt.NDArray[np.float32] = blocks.reshape(n, np.prod(blocks.shape[1:]))
    norms = np.linalg.norm(flat, axis=1, keepdims=True)
    flat /= np.where(norms > 0, norms, 1)
    return flat
