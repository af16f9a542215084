"""Pictures as the 1,280 pooled activations of EfficientNet-Lite0 (extra ``images``).

The input of the net is the central square of 0.875 of the shorter side, resized to 224 x 224
(bicubic). `oasis.features.pictures` describes how pictures are decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.arrays import Single
from oasis.errors import InputError, MissingExtraError
from oasis.features.efficientnet import N_FEATURES, SIDE, VERSION, build_graph
from oasis.features.pictures import MAX_PIXELS, Picture, PictureEmbedder, open_picture
from oasis.features.weights import efficientnet_weights


class EfficientNetLite0(PictureEmbedder):
    """Embeds pictures, given as paths, bytes of a file, PIL images or arrays.

    The net is assembled when it is first needed, in half a second. Cost on one core: about 12 ms
    per picture, and 3 to 5 ms to decode and resize a photograph of 500 to 640 pixels.

    Parameters
    ----------
    n_threads : int
        Threads for decoding, and threads of the net; 0 for one per core.
    max_pixels : int
        A picture with more pixels than this is refused before it is decoded; decoding takes 4 to 12
        bytes per pixel on each thread. Pillow's own limit (179 million) applies too.

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
    takes = "picture"

    def __init__(self, n_threads: int = 0, max_pixels: int = MAX_PIXELS) -> None:
        for parameter, value, least in (("n_threads", n_threads, 0), ("max_pixels", max_pixels, 1)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(f"{parameter} must be an int of at least {least}, got {value!r}")
        self.n_threads = n_threads
        self.max_pixels = max_pixels
        self._session: Any = None

    def prepare(self, picture: Picture) -> npt.NDArray[np.uint8]:
        """Return the net's input for a decoded picture: (224, 224, 3) uint8."""
        return picture.square(SIDE)

    def embed_prepared(self, prepared: Sequence[Any]) -> tuple[Single, dict[int, str]]:
        """Return the features of prepared pictures, in one run of the net."""
        if not len(prepared):
            return np.zeros((0, N_FEATURES), dtype=np.float32), {}
        if self._session is None:
            self._session = _session(self.n_threads)
        features: Single = self._session.run(None, {"pixels": np.stack(prepared)})[0]
        return features, {}


def read_pixels(source: object, max_pixels: int = MAX_PIXELS) -> npt.NDArray[np.uint8]:
    """Return a picture as input of the net: (224, 224, 3) uint8, RGB. See `open_picture`."""
    return open_picture(source, max_pixels).square(SIDE)


def _session(n_threads: int) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("onnxruntime", extra="images", what="reading images") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = n_threads
    # the net's threads wait for each other at every layer; spinning would take the core from the
    # threads that decode the next batch
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    graph = build_graph(efficientnet_weights())
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
