"""Collection: a crash-safe directory for a stream, in one directory.

::

    photos.oasis/
      catalog.sqlite           SQLite, WAL: items, texts, classes, rounds, thumbnails, a journal of
                               small chunks learned since the last checkpoint, and the head, one row
                               that names the files below. Its commit is that of the collection.
      model-<n>.safetensors    all that was learned up to the last checkpoint
      index-<n>.hamming        the codes, ready to be mapped; a copy, rebuilt if lost
      writer.lock              held by the one writer; released when its process ends

Why so:

- **One commit point.** A file is written under a number never used before, flushed to the medium
  with its directory, and only then named by a commit in SQLite (``synchronous=FULL``). So a crash
  at any moment leaves the old commit with its files, or the new commit with its files; other files
  are removed on the next open.
- **Codes lie in the items' rows.** They are part of the same transaction and are deleted with their
  item. Opening reads them from the index file, and only those of items added since it was written,
  at most an eighth, from their rows.
- **The model is a file**, written as a whole, because all of its d x d sums change with a chunk. A
  chunk with fewer than 32 labelled samples goes to the journal instead and is learned again on the
  next open, by the same calls, with a bitwise equal result.
- **Readers** work on a `Committed`: a model that never changes, an index that is only appended to
  up to a published length, rows by key from SQLite. Keys are never reused, so a key always means
  the same item.

=============  ===================================================================================
collection     `Collection`: open, close, check and repair
opening        what `open` checks and makes
records        what is answered: `Hit`, `Stored`, `Stats` ...
committed      `Follower`: one committed state in memory, loaded or followed
query          the searches; lookups: without a query; class_names: classes named in a text
ranking        hits by codes, words, meaning and fingerprints, by one formula
writing        every change, and the order of one: checked, learned, written, committed, published
intake         what comes with a chunk, checked; relabelling: labels given later
quality        what a model says of a chunk: predicted labels, precision before it is learned
filters        a filter as SQL, allow-lists, indexes; fields: which payloads have
words          texts word for word, which items have a word (FTS5), spelling
catalog        SQLite: connections, transactions, reads; rows: tables and checksums
item_rows      items inserted, changed, deleted; class_members: which items have a class
journal        small chunks learned since the model file; kept_features: what items taught
setup          what a collection was made with
files          generations beside the catalog; lock: the writer's
replica        where the codes are searched: in memory; milvus: or in Milvus
checks         damage and repair; backup: a copy beside a writer, and back
feeding        data files in; exporting (data out), contact_sheet (hits as a picture)
explain        why a score; labelling: what to label next; plane: a map; notebook: as HTML
=============  ===================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oasis.collection.records import ClassInfo, FieldInfo, Hit, Rejected, Round, Stats, Stored

if TYPE_CHECKING:
    from oasis.collection.collection import Collection as Collection

__all__ = ["ClassInfo", "Collection", "FieldInfo", "Hit", "Rejected", "Round", "Stats", "Stored"]


def __getattr__(name: str) -> Any:
    # loaded on first use: a client needs only the records, and only the standard library
    if name == "Collection":
        from oasis.collection.collection import Collection

        return Collection
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
