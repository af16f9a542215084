"""The journal: small chunks that the model file does not know yet.

What it holds, per chunk: the features and class names of its labelled samples, as they were
learned, and the vectors of the classes that came with it. Nothing of unlabelled samples. The file
goes with the next checkpoint, so features do not outlive it.

File: entries one after the other, each ::

    8s magic "OASISJNL", Q length of the body, I crc32 of the body, then the body

and the body is a safetensors file: per modality one dense array or the three arrays of a CSR
matrix, and the rest as JSON in its metadata. The committed length of the file stands in the
catalog; what lies beyond it is left from a crash and is overwritten by the next entry.

Replaying an entry is the same call of ``partial_fit`` on the same state, so the model comes out as
it was, bit for bit, as long as the linear algebra works in the same way (same machine, same number
of threads); elsewhere it agrees to rounding. Stored codes do not depend on it.
"""

from __future__ import annotations

import copy
import json
import struct
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.numpy
import scipy.sparse as sp

from oasis.arrays import Matrix
from oasis.errors import FormatError, OasisError
from oasis.labels import LabelSpace
from oasis.model import OASIS

_HEADER = struct.Struct("<8sQI")
_MAGIC = b"OASISJNL"


@dataclass(frozen=True)
class Entry:
    """A small chunk: features, class names, and the classes new with it beside their vectors."""

    X: dict[str, Matrix]
    labels: list[tuple[str, ...]]
    new_classes: tuple[str, ...]
    new_rows: npt.NDArray[np.float64]

    @classmethod
    def of(
        cls, X: dict[str, Matrix], labels: list[tuple[str, ...]], before: OASIS, after: OASIS
    ) -> Entry:
        """Return the entry of a chunk that led from one model to another."""
        known = len(before.classes_)
        rows = after.state_.labels.state()[1]["rows"][known:]
        return cls(X, labels, after.classes_[known:], rows)

    def replay(self, model: OASIS) -> OASIS:
        """Return the model after this chunk; the one given is not changed.

        New classes get the vectors they had on arrival: no source of words is asked.
        """
        learned = copy.copy(model)
        if self.new_classes:
            labels = _with_classes(model.state_.labels, self.new_classes, self.new_rows)
            learned.state_ = replace(model.state_, labels=labels)
        return learned.partial_fit(self.X, self.labels)

    def to_bytes(self) -> bytes:
        """Return the entry as it stands in the file."""
        arrays: dict[str, npt.NDArray[Any]] = {"new_rows": np.ascontiguousarray(self.new_rows)}
        modalities: list[dict[str, Any]] = []
        for number, (name, matrix) in enumerate(self.X.items()):
            if isinstance(matrix, sp.csr_array):
                modalities.append({"name": name, "shape": list(matrix.shape)})
                for part in ("data", "indices", "indptr"):
                    arrays[f"{number}/{part}"] = np.ascontiguousarray(getattr(matrix, part))
            else:
                modalities.append({"name": name})
                arrays[f"{number}/dense"] = np.ascontiguousarray(matrix)
        facts = {"modalities": modalities, "labels": self.labels, "classes": self.new_classes}
        body = safetensors.numpy.save(arrays, {"entry": json.dumps(facts)})
        return _HEADER.pack(_MAGIC, len(body), zlib.crc32(body)) + body

    @classmethod
    def from_bytes(cls, body: bytes) -> Entry:
        """Return the entry that `to_bytes` wrote, from its body."""
        length = int.from_bytes(body[:8], "little")
        facts = json.loads(json.loads(body[8 : 8 + length])["__metadata__"]["entry"])
        arrays = safetensors.numpy.load(body)
        X: dict[str, Matrix] = {}
        for number, modality in enumerate(facts["modalities"]):
            if "shape" in modality:
                parts = (
                    arrays[f"{number}/{part}"].copy() for part in ("data", "indices", "indptr")
                )
                X[modality["name"]] = sp.csr_array(tuple(parts), shape=tuple(modality["shape"]))
            else:
                # copied, as arrays inside the file's bytes may lie at odd addresses
                X[modality["name"]] = arrays[f"{number}/dense"].copy()
        labels = [tuple(names) for names in facts["labels"]]
        return cls(X, labels, tuple(facts["classes"]), arrays["new_rows"])


def read_entries(path: Path, start: int, stop: int) -> list[Entry]:
    """Return the entries between two committed lengths of a journal file.

    Raises
    ------
    FileNotFoundError
        The file is gone: for a reader, a checkpoint has been made meanwhile.
    FormatError
        The file is damaged or too short.
    """
    with path.open("rb") as file:
        file.seek(start)
        content = file.read(stop - start)
    entries: list[Entry] = []
    at = 0
    while at < stop - start:
        try:
            magic, length, crc = _HEADER.unpack_from(content, at)
            body = content[at + _HEADER.size : at + _HEADER.size + length]
            if magic != _MAGIC or len(body) != length or zlib.crc32(body) != crc:
                raise ValueError("its checksum or length does not match")
            entries.append(Entry.from_bytes(body))
        except (struct.error, ValueError, KeyError, TypeError) as error:
            raise FormatError(
                f"{path} is damaged in the entry at byte {start + at}: {error}"
            ) from error
        at += _HEADER.size + length
    return entries


def replay(model: OASIS, path: Path, start: int, stop: int) -> OASIS:
    """Return the model after the entries between two committed lengths of a journal file."""
    for entry in read_entries(path, start, stop):
        try:
            model = entry.replay(model)
        except OasisError as error:
            raise FormatError(f"{path} does not fit the model beside it: {error}") from error
    return model


def _with_classes(
    space: LabelSpace, names: tuple[str, ...], rows: npt.NDArray[np.float64]
) -> LabelSpace:
    facts, arrays = space.state()
    facts = facts | {"names": [*facts["names"], *names]}
    return LabelSpace.from_state(facts, arrays | {"rows": np.vstack([arrays["rows"], rows])})
