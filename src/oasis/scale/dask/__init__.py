"""Learning from and encoding data that do not fit one machine, on a Dask cluster."""

from oasis.scale.dask.learning import encode, partial_fit

__all__ = ["encode", "partial_fit"]
