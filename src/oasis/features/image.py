"""Pictures as the 1,280 pooled activations of EfficientNet-Lite0 (extra ``images``).

The input of the net is the central square of 0.875 of the shorter side, resized to 224 x 224
(bicubic). `oasis.features.pictures` describes how pictures are decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.arrays import Single
from oasis.errors import DataError, InputError, MissingExtraError
from oasis.features.efficientnet import N_FEATURES, SIDE, VERSION, graph
from oasis.features.pictures import MAX_PIXELS, Picture, ahead, n_workers, open_picture


class EfficientNetLite0:
    """Embeds pictures, given as paths, bytes of a file, PIL images or arrays.

    The net is loaded lazily: from the cache folder, or assembled there (under a second).

    Parameters
    ----------
    batch_size : int
        Pictures per run of the net; features do not depend on it.
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

    def __init__(
        self, batch_size: int = 32, n_threads: int = 0, max_pixels: int = MAX_PIXELS
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

    def embed(self, raws: Sequence[object]) -> tuple[Single, dict[int, str]]:
        """Return the (n, 1280) float32 features, and by row why it has none (then it is zero).

        None is a missing picture: a row of zeros and no failure. Threads decode the next batch
        while the net works on this one. Cost on one core: about 12 ms per picture for the net, and
        3 to 5 ms to decode and resize a photograph of 500 to 640 pixels. Memory: two batches.
        """
        X = np.zeros((len(raws), N_FEATURES), dtype=np.float32)
        failures: dict[int, str] = {}
        starts = range(0, len(raws), self.batch_size)
        with ThreadPoolExecutor(n_workers(self.n_threads, self.batch_size)) as pool:
            batches = (raws[start : start + self.batch_size] for start in starts)
            for start, results in zip(starts, ahead(pool, self._read, batches), strict=True):
                rows = []
                for row, result in enumerate(results, start):
                    if isinstance(result, str):
                        failures[row] = result
                    elif result is not None:
                        rows.append(row)
                if rows:
                    X[rows], _ = self.embed_prepared([results[row - start] for row in rows])
        return X, failures

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

    def _read(self, raw: object) -> npt.NDArray[np.uint8] | str | None:
        try:
            return None if raw is None else read_pixels(raw, self.max_pixels)
        except DataError as error:
            return str(error)


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
    return onnxruntime.InferenceSession(graph(), options, providers=["CPUExecutionProvider"])
