"""HammingIndex: exact search over packed codes, most of which occur many times.

How it is built, and why:

- **Slots.** Distinct codes are kept once, one after the other in order of first insertion, in one
  array that faiss scans (two after a file was opened and added to). With slots in this order the k
  nearest slots, ties by slot, are always enough for the k nearest items, ties by insertion: an item
  of any other slot has at least one item of each of these before it. See
  `oasis.index.engine.expand`.
- **Rows.** Items are numbered by insertion. ``ids`` by row, the row's slot, and the lists of rows
  per slot (`oasis.index.engine.postings`: a frozen CSR base, then lists that double in place). A
  code with one item has no list; as long as all codes differ, row and slot numbers are equal and
  none are stored.
- **Maps** from ids to rows and from codes to slots are sorted runs (`oasis.index.engine.keys`),
  merged as they grow: four bytes an entry, nothing for ids that ascend. A hash table of the same
  speed takes up to twice as much, and the whole index must stay within twice the codes and ids.
- **Snapshots.** Everything is append-only up to a published length. A search works on the snapshot
  that was current when it began (`oasis.index.engine.snapshot`) and takes no lock. Removed rows are
  marked in a bitmap, which is copied on removal; when a third of the rows is removed, the index is
  rebuilt.
- **Filters.** A search tests the rows that it finds against removed rows and the allow-list. If the
  answer is not proven complete, the permitted rows are searched alone. With a short allow-list this
  is done at once.
- **Scores.** An asymmetric search looks up scores four bits at a time with faiss's
  `IndexPQFastScan`, which needs a second copy of the codes in another order. It is packed in
  segments when searches need it (`oasis.index.engine.packed_codes`). Look-ups are rounded to 8
  bits: candidates are scored again in float64, and the answer is proven by the bound on the
  rounding or searched again (`oasis.index.engine.best_codes`).
- **Label bits.** If ``label_bits`` is given, large segments are packed by label half
  (`oasis.index.engine.label_groups`): large groups are lists of content bits in faiss's
  `IndexIVFPQFastScan`. A search scans the groups with the best label scores until no other
  group can matter (`oasis.index.engine.group_search`, of a batch `oasis.index.engine.group_batch`).
- **Files** are the same arrays, mapped (`oasis.index.file`).
"""

from __future__ import annotations

from oasis.index.hamming import HammingIndex, Matches, RangeMatches, ScoredMatches

__all__ = ["HammingIndex", "Matches", "RangeMatches", "ScoredMatches"]
