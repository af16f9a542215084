"""Codes and queries of a real stream, as many as are asked for.

The stream is the first setting of coco79 (39,798 images, 1,000 of them queries), learned by
``OASIS(128, content=56, owned=63)``: 72 bits say labels, 56 content. Beyond its 38,798 items the
stream is repeated, and in every repetition each content bit is flipped with probability 0.15, so
that codes keep differing.
The file is found as by ``oasis.datasets.load``; ``$OASIS_DATA`` may name its folder.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oasis.codes import Codes
from oasis.datasets import load
from oasis.model import OASIS
from oasis.streams import rounds, runbook

N_BITS = 128
WEIGHTS = (None, 0.03, 0.1, 0.2, 1.0)
"""Weights of the content bits in a query; None is the default of `OASIS.project`."""

_FLIPPED = 0.15
_SEED = 20262


class StreamCodes(NamedTuple):
    """Codes of a stream, (n, 16) uint8, and projections of its queries by content weight."""

    codes: Codes
    n_label_bits: int
    queries: dict[float | None, npt.NDArray[np.float32]]


def stream_codes(size: int) -> StreamCodes:
    """Return ``size`` codes of the stream."""
    learned = _learned()
    found = learned.codes[np.arange(size) % len(learned.codes)]
    rng = np.random.default_rng([_SEED, size])
    n_content = N_BITS - learned.n_label_bits
    for start in range(len(learned.codes), size, 1 << 20):
        stop = min(size, start + (1 << 20))
        flips = np.zeros((stop - start, N_BITS), dtype=np.bool_)
        flips[:, learned.n_label_bits :] = rng.random((stop - start, n_content)) < _FLIPPED
        found[start:stop] ^= np.packbits(flips, axis=1, bitorder="little")
    return learned._replace(codes=found)


@functools.cache
def _learned() -> StreamCodes:
    data = load("coco79")
    stream = rounds(data, runbook("coco79-first"), 0)
    model = OASIS(N_BITS, content=56, labels="orthogonal", owned=63, random_state=0)
    codes = []
    for each in stream:
        model.partial_fit(data.take(each.train), data.labels(each.train))
        codes.append(model.codes_)
    X = data.take(stream[-1].queries)
    queries = {weight: model.project(X, content=weight) for weight in WEIGHTS}
    return StreamCodes(np.concatenate(codes), model.n_label_bits, queries)
