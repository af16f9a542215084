"""The protocol of every hasher: what its users rely on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self, TypeAlias

from sklearn.base import BaseEstimator

from oasis.arrays import Single
from oasis.codes import Codes, pack

Labels: TypeAlias = Iterable[Iterable[str] | None]
"""One iterable of class names per sample; empty or None for an unlabelled sample."""


class OnlineHasher(BaseEstimator, ABC):  # type: ignore[misc]
    """The protocol of every hasher.

    Attributes
    ----------
    n_bits : int
        Length of a code.
    codes_ : (n, n_bits / 8) uint8
        The codes of the last chunk, to be stored as they are.
    """

    is_batch: ClassVar[bool] = False
    """Whether it keeps old features, retrains on everything and replaces stored codes."""
    needs_classes: ClassVar[bool] = False
    """Whether it must be told all classes beforehand."""

    n_bits: int
    codes_: Codes

    @abstractmethod
    def partial_fit(self, X: Mapping[str, Any], y: Labels) -> Self:
        """Learn from one chunk. Everything is checked before anything is changed."""

    @abstractmethod
    def project(self, X: Mapping[str, Any]) -> Single:
        """Return the (n, n_bits) real-valued projections whose signs are the codes."""

    def encode(self, X: Mapping[str, Any]) -> Codes:
        """Return the (n, n_bits / 8) packed codes of samples that are not learned from."""
        return pack(self.project(X))
