"""The model: `OASIS`, the published method, and what both are made of."""

from oasis.model.oasis import OASIS
from oasis.model.paper import PublishedOASIS

__all__ = ["OASIS", "PublishedOASIS"]
