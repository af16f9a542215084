"""The journal: small chunks that were learned after the model file was written.

A row of ``journal`` has, for the chunk of one commit, the features and class names of the labelled
samples, as they were learned, and the vectors of the new classes; nothing of unlabelled samples.
It is part of the commit. The next model file makes it needless, and with it the features go.

A row is named by its commit, whose number is never used again, and the head counts the rows; so an
entry that is changed, missing, repeated, or in the place of another one is found.

An entry is a safetensors file: per modality one dense array, or the three arrays of a CSR matrix,
or of a dense array with many zeros a bit for each value and the values that are not 0; and the rest
as JSON in its metadata.

Replaying an entry is the same call of ``partial_fit`` on the same state, so the model comes out as
it was, bit for bit, as long as the linear algebra works in the same way (same machine, same number
of threads); elsewhere it agrees to rounding. Stored codes do not depend on it.
"""

from __future__ import annotations

import json
import math
import sqlite3
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.numpy

from oasis.arrays import Matrix, is_sparse
from oasis.codes import Codes
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
        """Return the entry as it stands in the catalog."""
        arrays: dict[str, npt.NDArray[Any]] = {"new_rows": np.ascontiguousarray(self.new_rows)}
        modalities: list[dict[str, Any]] = []
        for number, (name, matrix) in enumerate(self.X.items()):
            if is_sparse(matrix):
                modalities.append({"name": name, "shape": list(matrix.shape)})
                for part in ("data", "indices", "indptr"):
                    arrays[f"{number}/{part}"] = np.ascontiguousarray(getattr(matrix, part))
            else:
                dense = np.ascontiguousarray(matrix)
                there = dense.view(f"u{dense.itemsize}") != 0  # -0.0 has a bit that is not 0
                values, bits = dense[there], np.packbits(there)
                if values.nbytes + bits.nbytes < dense.nbytes:
                    modalities.append({"name": name, "dense shape": list(dense.shape)})
                    arrays |= {f"{number}/values": values, f"{number}/there": bits}
                else:
                    modalities.append({"name": name})
                    arrays[f"{number}/dense"] = dense
        facts = {"modalities": modalities, "labels": self.labels, "classes": self.new_classes}
        if self.codes is not None:
            facts["old labels"] = self.old_labels
            arrays["codes"] = np.ascontiguousarray(self.codes)
        made: bytes = safetensors.numpy.save(arrays, {"entry": json.dumps(facts)})
        return made

    @classmethod
    def from_bytes(cls, body: bytes) -> Entry:
        """Return the entry that `to_bytes` made."""
        length = int.from_bytes(body[:8], "little")
        facts = json.loads(json.loads(body[8 : 8 + length])["__metadata__"]["entry"])
        arrays = safetensors.numpy.load(body)
        X: dict[str, Matrix] = {}
        for number, modality in enumerate(facts["modalities"]):
            if "shape" in modality:
                # a reader with an empty journal needs no SciPy
                import scipy.sparse as sp

                parts = (
                    arrays[f"{number}/{part}"].copy() for part in ("data", "indices", "indptr")
                )
                X[modality["name"]] = sp.csr_array(tuple(parts), shape=tuple(modality["shape"]))
            elif "dense shape" in modality:
                shape, values = modality["dense shape"], arrays[f"{number}/values"]
                bits = np.unpackbits(arrays[f"{number}/there"], count=math.prod(shape))
                X[modality["name"]] = np.zeros(shape, values.dtype)
                X[modality["name"]][bits.astype(np.bool_).reshape(shape)] = values
            else:
                # copied, as arrays inside the bytes may lie at odd addresses
                X[modality["name"]] = arrays[f"{number}/dense"].copy()
        labels = [tuple(names) for names in facts["labels"]]
        old = facts.get("old labels")
        return cls(
            X,
            labels,
            tuple(facts["classes"]),
            arrays["new_rows"],
            None if old is None else [tuple(names) for names in old],
            arrays.get("codes"),
        )


def append_entry(connection: sqlite3.Connection, head: Head, entry: bytes) -> Head:
    """Add a small chunk to the journal, in the transaction of its commit ``head``."""
    insert_rows(connection, "journal", [(head.commits, entry)])
    return replace(
        head,
        journal_bytes=head.journal_bytes + len(entry),
        journal_entries=head.journal_entries + 1,
    )


def read_entries(connection: sqlite3.Connection, head: Head, after: int = 0) -> list[Entry]:
    """Return the entries of commits beyond ``after``, oldest first.

    Raises
    ------
    FormatError
        An entry is damaged, or they are not as many as the head says.
    """
    (n,) = connection.execute("SELECT count(*) FROM journal").fetchone()
    if n != head.journal_entries:
        raise FormatError(f"the journal has {n} entries, its head says {head.journal_entries}")
    entries: list[Entry] = []
    rows = connection.execute(
        "SELECT commits, entry, crc FROM journal WHERE commits > ? ORDER BY commits", (after,)
    )
    for commits, body, crc in rows:
        if row_crc(commits, body) != crc:
            raise FormatError(f"the journal's entry of commit {commits} is damaged")
        try:
            entries.append(Entry.from_bytes(body))
        except (ValueError, KeyError, TypeError) as error:
            raise FormatError(
                f"the journal's entry of commit {commits} is damaged: {error}"
            ) from error
    return entries


def replayed(
    model: AnyModel, connection: sqlite3.Connection, head: Head, after: int = 0
) -> AnyModel:
    """Return the model after the entries of commits beyond ``after``."""
    for entry in read_entries(connection, head, after):
        try:
            model = entry.replay(model)
        except OasisError as error:
            raise FormatError(f"the journal does not fit the model beside it: {error}") from error
    return model
