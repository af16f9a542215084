"""HammingIndex: exact search over packed codes, most of which may be equal.

How it is built, and why:

- **Segments.** Items are numbered by insertion and kept in immutable blocks
  (`oasis.index.segment`), sorted once: distinct codes in order of first insertion, the items of
  each, and ids. faiss's copy of the codes is made in a segment when a search first needs it. A file
  is one segment, mapped (`oasis.index.file`).
- **Tail.** New items go into a short tail that is scanned as it is. A tail that is full becomes a
  segment, and small segments are merged.
- **Snapshots.** A snapshot is the segments, the tail and a bitmap of removed rows for each. A
  search works on the snapshot that was current when it began and takes no lock.
- **Codes, then items.** The best codes are found and proven (`oasis.index.search`) from candidates
  by table look-up (`oasis.index.projections`) and, if ``label_bits`` is given, by label halves
  (`oasis.index.label_groups`). Then they are expanded to items, and rows that are removed or not
  allowed are left out.

For other indexes: the protocol `CodeIndex`, checks of arguments (`oasis.index.protocol`),
`AllowList` and `Projections`, and conformance checks (`oasis.index.checks`).
"""

from __future__ import annotations

from oasis.index.hamming import HammingIndex
from oasis.index.projections import Projections
from oasis.index.protocol import AllowList, CodeIndex, Ids, Matches, RangeMatches, ScoredMatches

__all__ = [
    "AllowList",
    "CodeIndex",
    "HammingIndex",
    "Ids",
    "Matches",
    "Projections",
    "RangeMatches",
    "ScoredMatches",
]
