"""Online multi-modal hashing: short binary codes learned from a stream.

``OASIS`` learns, ``HammingIndex`` searches, ``Collection`` does both durably, and ``LabelSpace``
says what class names mean. Names are loaded when first used, so that ``import oasis`` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from oasis.client import Client as Client
    from oasis.collection import Collection as Collection
    from oasis.index import HammingIndex as HammingIndex
    from oasis.labels import LabelSpace as LabelSpace
    from oasis.model import OASIS as OASIS

_OWNERS = {
    "Client": "oasis.client",
    "Collection": "oasis.collection",
    "HammingIndex": "oasis.index",
    "LabelSpace": "oasis.labels",
    "OASIS": "oasis.model",
}

__all__ = ["OASIS", "Client", "Collection", "HammingIndex", "LabelSpace", "__version__"]


def __getattr__(name: str) -> Any:
    if name in _OWNERS:
        return getattr(import_module(_OWNERS[name]), name)
    raise AttributeError(f"module 'oasis' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
