"""The protocol of every hasher: what its users rely on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from oasis.arrays import Single
from oasis.codes import Codes, pack
from oasis.hashers.estimator import Estimator

if TYPE_CHECKING:
    import scipy.sparse as sp

Labels: TypeAlias = "Iterable[Iterable[str] | int | None] | sp.sparray"
"""Labels of a chunk: see `oasis.hashers.chunk.check_labels` for all forms.

The usual form is one iterable of class names per sample, empty or None for an unlabelled sample.
"""


class OnlineHasher(Estimator, ABC):
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
    """Whether all classes must be announced before the first chunk."""

    n_bits: int
    codes_: Codes

    @abstractmethod
    def partial_fit(self, X: Any, y: Labels, classes: Sequence[str] | None = None) -> Self:
        """Learn from one chunk. Everything is checked before anything is changed."""

    @abstractmethod
    def project(self, X: Any) -> Single:
        """Return the (n, n_bits) real-valued projections whose signs are the codes."""

    def encode(self, X: Any) -> Codes:
        """Return the (n, n_bits / 8) packed codes of samples that are not learned from."""
        return pack(self.project(X))

    def transform(self, X: Any) -> npt.NDArray[np.uint8]:
        """Return the bits of `encode`, one per column: (n, n_bits) uint8, 0 or 1."""
        return np.unpackbits(self.encode(X), axis=1, bitorder="little")
