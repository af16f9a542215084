"""The journal: small chunks that were learned after the model file was written.

A row of ``journal`` has, for the chunk of one commit, the features (as `kept_features` packs them)
and class names of the labelled samples, as they were learned, and the vectors of the new classes;
nothing of unlabelled samples. It is part of the commit. The next model file makes it needless, and
with it the features go.

A row is named by its commit, whose number is never used again, and the head counts the rows; so an
entry that is changed, missing, repeated, or in the place of another one is found.

Replaying an entry is the same call of ``partial_fit`` on the same state, so the model comes out as
it was, bit for bit, as long as the linear algebra works in the same way (same machine, same number
of threads); elsewhere it agrees to rounding. Stored codes do not depend on it.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.arrays import Matrix, is_sparse
from oasis.codes import Codes
from oasis.collection.kept_features import packed_features, unpacked_features
from oasis.collection.rows import Head, insert_rows, row_crc
from oasis.collection.setup import label_space, with_labels
from oasis.errors import FormatError, OasisError
from oasis.model import OASIS, AnyModel


@dataclass(frozen=True)
class Entry:
    """A small chunk: features, class names, and the classes new with it beside their vectors.

    Where items got other labels, ``old_labels`` are those that they taught before, and ``codes``
    (n, n_bits / 8) the codes that they had: this is forgotten first.
    """

    X: dict[str, Matrix]
    labels: list[tuple[str, ...]]
    new_classes: tuple[str, ...]
    new_rows: npt.NDArray[np.float64]
    old_labels: list[tuple[str, ...]] | None = None
    codes: Codes | None = None

    @classmethod
    def of(
        cls,
        X: dict[str, Matrix],
        labels: list[tuple[str, ...]],
        before: AnyModel,
        after: AnyModel,
        old_labels: list[tuple[str, ...]] | None = None,
        codes: Codes | None = None,
    ) -> Entry:
        """Return the entry of a chunk that led from one model to another."""
        known = len(before.classes_)
        rows = label_space(after).word_vectors[known:]
        return cls(X, labels, after.classes_[known:], rows, old_labels, codes)

    def replay(self, model: AnyModel) -> AnyModel:
        """Return the model after this chunk; the one given is not changed.

        New classes get the vectors that they had on arrival; no word source is used.
        """
        labels = label_space(model)
        if self.new_classes:
            labels = labels.with_classes(self.new_classes, self.new_rows)
        model = with_labels(model, labels)
        if self.old_labels is not None and isinstance(model, OASIS):
            model.forget(self.X, self.old_labels, self.codes)
        return model.partial_fit(self.X, self.labels)

    def to_bytes(self) -> bytes:
        """Return the entry as it stands in the catalog: a line of JSON, then its arrays."""
        features = packed_features(self.X)
        vectors = np.ascontiguousarray(self.new_rows, dtype="<f8").tobytes()
        codes = b"" if self.codes is None else np.ascontiguousarray(self.codes).tobytes()
        facts = {
            "X": [(k, m.shape[1], m.dtype.itemsize, is_sparse(m)) for k, m in self.X.items()],
            "labels": self.labels,
            "old labels": self.old_labels,
            "classes": self.new_classes,
            "bytes": [len(vectors), len(codes), *map(len, features)],
        }
        return b"\n".join((json.dumps(facts).encode(), b"".join((vectors, codes, *features))))

    @classmethod
    def from_bytes(cls, body: bytes) -> Entry:
        """Return the entry that `to_bytes` made."""
        head, _, rest = body.partition(b"\n")
        facts = json.loads(head)
        parts, at = [], 0
        for size in facts["bytes"]:
            parts.append(rest[at : at + size])
            at += size
        vectors, codes, *features = parts
        labels, old = facts["labels"], facts["old labels"]
        X = unpacked_features(
            features,
            {name: width for name, width, *_ in facts["X"]},
            [name for name, *_, sparse in facts["X"] if sparse],
        )
        for name, _, itemsize, _ in facts["X"]:
            matrix: Any = X[name]
            X[name] = matrix.astype(np.float64 if itemsize == 8 else np.float32)
        n_classes = len(facts["classes"])
        return cls(
            X,
            [tuple(names) for names in labels],
            tuple(facts["classes"]),
            np.frombuffer(vectors, "<f8").reshape(n_classes, -1 if n_classes else 0),
            None if old is None else [tuple(names) for names in old],
            np.frombuffer(codes, np.uint8).reshape(len(labels), -1) if codes else None,
        )


def append_entry(connection: sqlite3.Connection, head: Head, entry: bytes) -> Head:
    """Add a small chunk to the journal, in the transaction of its commit ``head``."""
    insert_rows(connection, "journal", [(head.commits, entry)])
    return replace(
        head,
        journal_bytes=head.journal_bytes + len(entry),
        journal_entries=head.journal_entries + 1,
    )


def replayed(
    model: AnyModel, connection: sqlite3.Connection, head: Head, after: int = 0
) -> AnyModel:
    """Return the model after the entries of commits beyond ``after``, oldest first.

    Raises `FormatError` where an entry is damaged, or they are not as many as the head says.
    """
    (n,) = connection.execute("SELECT count(*) FROM journal").fetchone()
    if n != head.journal_entries:
        raise FormatError(f"the journal has {n} entries, its head says {head.journal_entries}")
    rows: Any = connection.execute(
        "SELECT commits, entry, crc FROM journal WHERE commits > ? ORDER BY commits", (after,)
    )
    for commits, body, crc in rows:
        if row_crc(commits, body) != crc:
            raise FormatError(f"the journal's entry of commit {commits} is damaged")
        try:
            model = Entry.from_bytes(body).replay(model)
        except (OasisError, ValueError, KeyError, TypeError) as error:
            raise FormatError(
                f"the journal's entry of commit {commits} does not fit the model: {error}"
            ) from error
    return model
