"""Collection: a crash-safe directory for a stream, in one directory.

::

    photos.oasis/
      catalog.sqlite           SQLite, WAL: items, texts, classes, rounds, thumbnails, and the head,
                               one row that names the files below. Its commit is THE commit.
      model-<n>.safetensors    all that was learned up to the last checkpoint
      journal-<n>.bin          small chunks learned since, erased by the next checkpoint
      index-<n>.hamming        the codes, ready to be mapped; a copy, made anew when lost
      writer.lock              held by the one writer, let go by the kernel when it dies

Why so:

- **One commit point.** A file is written under a number never used before, flushed to the medium
  with its directory, and only then named by a commit in SQLite (``synchronous=FULL``). So a crash
  at any moment leaves the old commit with its files, or the new one with its own; what nobody
  names is swept on the next open.
- **Codes lie in the items' rows.** They are part of the same transaction, need no second length to
  agree on, and vanish with their item. Opening does not read them: the index file has them, but for
  the items of the last tenth or so, which are read from their rows.
- **The model is a file**, written whole, as its sums are d x d and all of them change with a chunk.
  A chunk with fewer than 32 labelled samples goes to the journal instead and is learned again on
  the next open, by the same calls, to the same bits.
- **Readers** work on a `Committed`: a model that never changes, an index that is only appended to
  up to a published length, rows by key from SQLite. Keys only grow, so a key means one item for
  ever.

==========  ======================================================================================
collection  `Collection`: open, close, check and repair
opening     what `open` checks and makes
records     what is answered: `Hit`, `Stored`, `Stats` ...
committed   one committed state in memory, loaded or followed
search/     queries (the searches), lookups, following (the state), by_codes, fused (with words)
writing/    changes and raw (what a user calls), writer (the order of a change), intake, quality
filters/    where (which items pass a filter), conditions (filters as people type them), fields
texts/      phrases (the words of kept texts), postings (which items have one), shares, fusion
catalog/    catalog (SQLite: connections, transactions), reads, commits (tables, rows), item_rows,
            class_postings (which items have a class), setup
files/      files (generations beside the catalog, the journal), lock (the writer's)
replica/    replica (where the codes are searched: in memory), milvus (or in Milvus)
upkeep/     checks (damage and repair), backup (a copy beside a writer, and back)
transfer/   feeding (data files in), exporting (data out), contact_sheet (hits as a picture)
==========  ======================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oasis.collection.records import ClassInfo, FieldInfo, Hit, Rejected, Round, Stats, Stored

if TYPE_CHECKING:
    from oasis.collection.collection import Collection as Collection

__all__ = ["ClassInfo", "Collection", "FieldInfo", "Hit", "Rejected", "Round", "Stats", "Stored"]


def __getattr__(name: str) -> Any:
    # loaded when first used: a client needs the records alone, and no more than Python's library
    if name == "Collection":
        from oasis.collection.collection import Collection

        return Collection
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
