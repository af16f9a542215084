"""The rivals that OASIS is measured against, and the controls a practitioner would ask for.

Hashers: `FOMH` and `LEMON` as published, `RandomProjection`, `PCASign` and `ITQ`, which use no
labels. Rankers, which keep no codes: `FloatCosine` and `Probe`, the ceiling.
"""

from __future__ import annotations

from oasis.baselines.controls import ITQ, PCASign, RandomProjection
from oasis.baselines.fomh import FOMH
from oasis.baselines.lemon import LEMON
from oasis.baselines.rankers import FloatCosine, Probe

__all__ = ["FOMH", "ITQ", "LEMON", "FloatCosine", "PCASign", "Probe", "RandomProjection"]
