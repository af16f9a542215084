"""HammingIndex against a bit-by-bit brute force."""

from __future__ import annotations

import index_checks
import pytest

from oasis.index import HammingIndex


@pytest.mark.parametrize("ties", ["insertion"])
@pytest.mark.parametrize(
    "check", index_checks.CHECKS + index_checks.ASYMMETRIC_CHECKS, ids=lambda f: f.__name__
)
def test_index_passes(check, ties):
    check(HammingIndex, ties)
