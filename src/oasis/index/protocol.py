"""CodeIndex: what every index of packed codes can do, wherever it keeps them."""

from __future__ import annotations

from typing import Any, Protocol

from oasis.codes import Codes
from oasis.index.engine.arguments import Ids
from oasis.index.hamming import Matches, RangeMatches, ScoredMatches


class CodeIndex(Protocol):
    """Packed codes by id; arguments and answers as `HammingIndex` has them.

    Distances and scores are exact in every index. `HammingIndex` answers by (distance, insertion);
    another one may choose among the items tied at the k-th distance, and may answer an asymmetric
    search from candidates, if it says so.

    >>> from oasis.index import HammingIndex
    >>> index: CodeIndex = HammingIndex(n_bits=16)
    >>> index.n_bits, len(index)
    (16, 0)
    """

    @property
    def n_bits(self) -> int:
        """Length of a code."""

    def __len__(self) -> int: ...

    def add(self, codes: Codes, ids: Any) -> None:
        """Add items: (n, n_bits / 8) codes and n ids."""

    def remove(self, ids: Any) -> None:
        """Remove items by id; every id must be there."""

    def search(self, codes: Codes, k: int, allow: Any = None) -> Matches:
        """Return the k nearest items of each query by Hamming distance."""

    def search_asymmetric(self, projections: Any, k: int, allow: Any = None) -> ScoredMatches:
        """Return the k items whose signs have the largest inner product with each query."""

    def range_search(self, codes: Codes, radius: int) -> RangeMatches:
        """Return every item at distance <= radius of each query."""

    def codes_of(self, ids: Any) -> Codes:
        """Return the codes of items by id; every id must be there."""

    def items(self) -> tuple[Codes, Ids]:
        """Return the codes and ids of all items."""
