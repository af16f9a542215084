"""The rivals that OASIS is measured against, and the controls a practitioner would ask for.

Hashers as published: the online `FOMH`, `LEMON`, `THOR` and `IWOMH`; the batch methods `OMHDQ` and
`SAPMH`, which are trained anew on everything seen. Hashers that use no labels: `RandomProjection`,
`PCASign` and `ITQ`. Rankers, which keep no codes: `FloatCosine`, `CompletedCosine`, which predicts
the modalities that an item lacks, and `Probe`, the ceiling.
"""

from __future__ import annotations

from oasis.baselines.completed import CompletedCosine
from oasis.baselines.controls import ITQ, PCASign, RandomProjection
from oasis.baselines.fomh import FOMH
from oasis.baselines.iw_omh import IWOMH
from oasis.baselines.lemon import LEMON
from oasis.baselines.omh_dq import OMHDQ
from oasis.baselines.rankers import FloatCosine, Probe
from oasis.baselines.sapmh import SAPMH
from oasis.baselines.thor import THOR

__all__ = [
    "FOMH",
    "ITQ",
    "IWOMH",
    "LEMON",
    "OMHDQ",
    "SAPMH",
    "THOR",
    "CompletedCosine",
    "FloatCosine",
    "PCASign",
    "Probe",
    "RandomProjection",
]
