"""Search beyond one machine: the methods of `HammingIndex` over a Milvus collection.

Design:

- **Schema.** A primary key ``id``, a binary vector ``code``, and the code again as integers of 64
  bits: pymilvus takes 50 microseconds to read a vector, and milvus-lite returns none in a search.
- **Bits are stored several times**, four by default, so that the Hamming distance of Milvus can
  weigh the bits of a query (`oasis.scale.milvus.copies`).
- **Secrets** are not part of an address, which names the variable or file that holds them
  (`oasis.scale.milvus.address`).
- **Writes are upserts by id.** Milvus silently accepts a second row with the same key, so this
  package ensures uniqueness. It is safe to send a chunk again, completely or in part.
- **Faults.** Every request has a deadline and is retried with increasing delays while the fault may
  be temporary. If it still fails, one `EngineError` names the server
  (`oasis.scale.milvus.connection`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oasis.scale.milvus.index import MilvusIndex as MilvusIndex

__all__ = ["MilvusIndex"]


def __getattr__(name: str) -> Any:
    # imported lazily: a collection whose codes are in memory only parses addresses
    if name == "MilvusIndex":
        from oasis.scale.milvus.index import MilvusIndex

        return MilvusIndex
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
