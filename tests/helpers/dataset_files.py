"""Data sets that were downloaded, and damaged files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

SHARED = Path(os.environ.get("OASIS_SHARED", Path(__file__).parents[2] / ".." / "shared")) / "data"


def damaged(raw: bytes, rng: np.random.Generator, flip: bool) -> bytes:
    """A file that was cut off, or in which a few bits are wrong."""
    if not flip:
        return raw[: rng.integers(len(raw))]
    content = bytearray(raw)
    for at in rng.integers(len(raw), size=3):
        content[at] ^= 1 << rng.integers(8)
    return bytes(content)
