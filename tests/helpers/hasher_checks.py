"""The conformance checks of hashers as pytest parameters."""

from __future__ import annotations

import pytest

from oasis.hashers.checks import BAD_CHUNKS, CHECKS, N_BITS, fingerprint, held_bytes

__all__ = ["BAD_CHUNKS", "CHECKS", "N_BITS", "cases", "fingerprint", "held_bytes"]


def cases(**makers):
    """Return pytest parameters: every check of every hasher, ``name=(make, {left out})``."""
    return [
        pytest.param(check, make, id=f"{hasher}-{name.removeprefix('check_')}")
        for hasher, (make, left_out) in makers.items()
        for name, check in CHECKS.items()
        if name not in left_out
    ]
