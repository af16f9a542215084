"""Learning from, and encoding, what does not fit one machine, on a Dask cluster."""

from oasis.scale.dask.learning import encode, partial_fit

__all__ = ["encode", "partial_fit"]
