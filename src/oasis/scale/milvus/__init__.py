"""Search past one machine: the methods of `HammingIndex` over a Milvus collection.

How it is built, and why:

- **Schema.** A primary key ``id``, a binary vector ``code`` and Milvus's dynamic field, which holds
  ``labels`` and ``payload`` where they are given. Declared columns for the two would halve the
  rate of insertion even where they stay empty.
- **Bits are stored several times**, four by default, so that the Hamming distance of Milvus can
  weigh the bits of a query (`oasis.scale.milvus.copies`).
- **Secrets** are named by an address, never part of it (`oasis.scale.milvus.access`).
- **Writes are upserts by id.** Milvus accepts a second row of the same key without a word, so
  uniqueness is ours; and a chunk may be sent again, whole or in part, without harm.
- **Wire.** Requests are protocol messages of whole columns, written and read as arrays
  (`oasis.scale.milvus.messages`): the client of pymilvus turns every row into a dict and back.
- **Faults.** Every request has a deadline, is repeated with growing pauses while the fault may
  pass, and ends in one `EngineError` that names the server (`oasis.scale.milvus.connection`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oasis.scale.milvus.index import MilvusIndex as MilvusIndex

__all__ = ["MilvusIndex"]


def __getattr__(name: str) -> Any:
    # loaded when first used: a collection whose codes are in memory reads addresses alone
    if name == "MilvusIndex":
        from oasis.scale.milvus.index import MilvusIndex

        return MilvusIndex
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
