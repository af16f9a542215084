"""Data sets: named modalities, label sets and class names.

``load(name)`` knows every data set by name and says what is missing; `oasis.datasets.npz` holds
the layout for anyone's own data.
"""

from oasis.datasets.dataset import (
    Dataset,
    RowSource,
    Source,
)
from oasis.datasets.registry import check, load, names

__all__ = ["Dataset", "RowSource", "Source", "check", "load", "names"]
