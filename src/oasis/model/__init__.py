"""The model: `OASIS`, the published method, and what both are made of."""

from oasis.model.oasis import OASIS

__all__ = ["OASIS"]
