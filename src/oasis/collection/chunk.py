"""A chunk that is learned, on its way into the catalog and to where its codes are searched."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oasis.codes import Codes
from oasis.collection.catalog import Keys
from oasis.collection.intake import Intake


@dataclass(frozen=True)
class NewChunk:
    """A learned chunk, ready to be committed.

    Attributes
    ----------
    number : of the round
    first_key : key of its first item; the others follow
    intake : ids, payloads, thumbnails
    labels : class names of each item
    codes : (n, n_bits / 8)
    """

    number: int
    first_key: int
    intake: Intake
    labels: list[tuple[str, ...]]
    codes: Codes

    @property
    def keys(self) -> Keys:
        return np.arange(self.first_key, self.first_key + len(self.labels))
