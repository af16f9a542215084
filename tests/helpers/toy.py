"""Small seeded streams for the tests."""

from __future__ import annotations

import numpy as np

from oasis.hashers.checks import CLASS_NAMES as NAMES
from oasis.hashers.checks import example_chunk as chunk

__all__ = ["NAMES", "chunk", "class_vectors"]


def class_vectors(n_classes=6, width=12, seed=0):
    rng = np.random.default_rng([7, seed])
    return {name: rng.standard_normal(width) for name in NAMES[:n_classes]}
