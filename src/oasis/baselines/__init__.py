"""Baselines: published methods that OASIS is compared with, and simple controls.

Hashers as published: the online `FOMH`, `LEMON`, `THOR`, `IWOMH`, `HCFW`, `DOCH` and `CHOICE`; the
batch methods `OMHDQ` and `SAPMH`, which are retrained on everything seen. Hashers without labels:
`RandomProjection`, `PCASign` and `ITQ`. Rankers, which keep no codes: `FloatCosine` and `Probe`, an
upper bound.
"""

from __future__ import annotations

from oasis.baselines.choice import CHOICE
from oasis.baselines.controls import ITQ, PCASign, RandomProjection
from oasis.baselines.doch import DOCH
from oasis.baselines.fomh import FOMH
from oasis.baselines.hcfw import HCFW
from oasis.baselines.iw_omh import IWOMH
from oasis.baselines.lemon import LEMON
from oasis.baselines.omh_dq import OMHDQ
from oasis.baselines.rankers import FloatCosine, Probe
from oasis.baselines.sapmh import SAPMH
from oasis.baselines.thor import THOR

__all__ = [
    "CHOICE",
    "DOCH",
    "FOMH",
    "HCFW",
    "ITQ",
    "IWOMH",
    "LEMON",
    "OMHDQ",
    "SAPMH",
    "THOR",
    "FloatCosine",
    "PCASign",
    "Probe",
    "RandomProjection",
]
