"""The files beside the catalog: model, journal and index.

Every file is written under a number never used before and made durable before a commit names it.

The journal holds small chunks that were learned after the model file was written. For each chunk
it has the features and class names of the labelled samples, as they were learned, and the vectors
of the new classes; nothing of unlabelled samples. The next checkpoint removes the file, and with it
the features. It is a sequence of entries, each ::

    8s magic "OASISJNL", Q length of the body, I crc32 of the body, then the body

and the body is a safetensors file: per modality one dense array, or the three arrays of a CSR
matrix, or of a dense array with many zeros a bit for each value and the values that are not 0; and
the rest as JSON in its metadata. An entry fills whole pages of 4,096 bytes, by spaces after the
header of its safetensors file: so the next one writes no page again that holds a committed one.
The committed length of the file stands in the catalog; what lies beyond it is left from a crash and
is overwritten by the next entry.

Replaying an entry is the same call of ``partial_fit`` on the same state, so the model comes out as
it was, bit for bit, as long as the linear algebra works in the same way (same machine, same number
of threads); elsewhere it agrees to rounding. Stored codes do not depend on it.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import struct
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.numpy

from oasis import store
from oasis.arrays import Matrix, is_sparse
from oasis.collection.catalog.commits import Head
from oasis.collection.catalog.setup import label_space, with_labels
from oasis.collection.files.lock import WriterLock, check_progress
from oasis.errors import CollectionError, FormatError, OasisError
from oasis.index import HammingIndex
from oasis.model import AnyModel

_HEADER = struct.Struct("<8sQI")
_MAGIC = b"OASISJNL"
_PAGE = 4096


@dataclass(frozen=True)
class Entry:
    """A small chunk: features, class names, and the classes new with it beside their vectors."""

    X: dict[str, Matrix]
    labels: list[tuple[str, ...]]
    new_classes: tuple[str, ...]
    new_rows: npt.NDArray[np.float64]

    @classmethod
    def of(
        cls, X: dict[str, Matrix], labels: list[tuple[str, ...]], before: AnyModel, after: AnyModel
    ) -> Entry:
        """Return the entry of a chunk that led from one model to another."""
        known = len(before.classes_)
        rows = label_space(after).word_vectors[known:]
        return cls(X, labels, after.classes_[known:], rows)

    def replay(self, model: AnyModel) -> AnyModel:
        """Return the model after this chunk; the one given is not changed.

        New classes get the vectors that they had on arrival; no word source is used.
        """
        labels = label_space(model)
        if self.new_classes:
            labels = labels.with_classes(self.new_classes, self.new_rows)
        return with_labels(model, labels).partial_fit(self.X, self.labels)

    def to_bytes(self) -> bytes:
        """Return the entry as it stands in the file."""
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
        body = _filling_pages(safetensors.numpy.save(arrays, {"entry": json.dumps(facts)}))
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
                # copied, as arrays inside the file's bytes may lie at odd addresses
                X[modality["name"]] = arrays[f"{number}/dense"].copy()
        labels = [tuple(names) for names in facts["labels"]]
        return cls(X, labels, tuple(facts["classes"]), arrays["new_rows"])


def _filling_pages(body: bytes) -> bytes:
    """Return a safetensors file with spaces after its header, so that its entry fills pages."""
    end = 8 + int.from_bytes(body[:8], "little")
    spaces = b" " * (-(_HEADER.size + len(body)) % _PAGE)
    return (end - 8 + len(spaces)).to_bytes(8, "little") + body[8:end] + spaces + body[end:]


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


def replay(model: AnyModel, path: Path, start: int, stop: int) -> AnyModel:
    """Return the model after the entries between two committed lengths of a journal file."""
    for entry in read_entries(path, start, stop):
        try:
            model = entry.replay(model)
        except OasisError as error:
            raise FormatError(f"{path} does not fit the model beside it: {error}") from error
    return model


_GENERATION = re.compile(r"(?:model|journal|index)-(\d+)\.\w+")
_LEFT_OVER = re.compile(r"(?:model|journal|index)-\d+\.\w+|\..*\.tmp")


class Files:
    """Writes generations of files in one directory; numbers are never used twice.

    A new file never replaces one that a commit refers to, so the files of a commit exist even if it
    is unknown whether it was made.
    """

    def __init__(self, directory: Path, lock: WriterLock | None = None) -> None:
        self.directory = directory
        self._lock = lock
        self._last = 0

    def write_model(self, head: Head, model: AnyModel) -> Head:
        """Write the whole model; the head that names it needs no journal."""
        new = replace(head, model=self._next(), journal=0, journal_bytes=0, journal_entries=0)
        path = self.directory / new.model_name
        model.save(path)
        n_bytes, crc = store.recorded_checksum(path)
        return replace(new, model_bytes=n_bytes, model_crc=crc)

    def append_entry(self, head: Head, entry: Entry) -> Head:
        """Append a small chunk to the journal."""
        new = head if head.journal else replace(head, journal=self._next())
        data = entry.to_bytes()
        store.append(self.directory / new.journal_name, head.journal_bytes, data)
        return replace(
            new,
            journal_bytes=head.journal_bytes + len(data),
            journal_entries=head.journal_entries + 1,
        )

    def write_index(self, head: Head, shown: Head, index: HammingIndex) -> Head:
        """Write the index, which shows the commit of ``shown``."""
        new = replace(
            head,
            index=self._next(),
            index_commits=shown.commits,
            index_key=shown.next_key - 1,
        )
        index.save(self.directory / new.index_name)
        return new

    def begin(self, head: Head) -> None:
        """Record that the commit after ``head`` has begun; raise if this process may not write.

        The record is flushed before the commit writes a new file. An entry of the journal needs no
        flush: a crash leaves at most one, see `recover`.
        """
        if self._lock is not None:
            self._lock.begin(head.commits + 1)

    def finish(self, head: Head) -> None:
        """Record that the commit of ``head`` is finished."""
        if self._lock is not None:
            self._lock.finish(head.commits)

    def recover(self, head: Head) -> None:
        """Remove what a crash has left, if it was a crash and not an outdated catalog.

        Raises
        ------
        FormatError
            The catalog is older than the files beside it; nothing is removed.
        """
        progress = None if self._lock is None else self._lock.progress
        check_progress(self.directory, head.commits, progress)
        newer = []
        if progress is None or progress.begun != head.commits + 1:
            # an index is derived from the catalog, so it can be removed
            newer = [
                name
                for name in self.left_over(head)
                if _number(name) > head.generation and not name.startswith("index")
            ]
        # a crash leaves at most one entry, complete or not
        if self._uncommitted_entries(head) > (progress is not None):
            newer.append(head.journal_name)
        if newer:
            raise FormatError(
                f"{self.directory} holds {newer[0]}, which is newer than commit {head.commits} "
                "of its catalog: the catalog is an older copy, or was copied without its -wal "
                "file. Nothing was removed. Put the right catalog back, or restore a backup; "
                f"only if there is none, move {newer[0]} away"
            )
        self.sweep(head)

    def tidy(self, head: Head) -> None:
        """Sweep; if that fails, the next commit or opening tries again."""
        with contextlib.suppress(OSError, CollectionError):
            if self._lock is not None:
                self._lock.check()
            self.sweep(head)

    def sweep(self, head: Head) -> None:
        """Remove all files of a collection that the head does not refer to.

        The journal is cut at its committed length: no features of a refused chunk stay behind.
        """
        for name in self.left_over(head):
            store.disk.remove(self.directory / name)
        if self._uncommitted_entries(head):
            store.disk.write(self.directory / head.journal_name, head.journal_bytes, b"")

    def _uncommitted_entries(self, head: Head) -> int:
        """Return how many entries the journal has beyond its committed part: 0, 1, or 2 for more.

        A part of an entry counts as one.
        """
        journal = self.directory / head.journal_name
        if not head.journal or not journal.is_file():
            return 0
        size = journal.stat().st_size
        if size <= head.journal_bytes:
            return 0
        with journal.open("rb") as file:
            file.seek(head.journal_bytes)
            header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return 1
        magic, length, _ = _HEADER.unpack(header)
        end = head.journal_bytes + _HEADER.size + length
        return 2 if magic == _MAGIC and size > end else 1

    def left_over(self, head: Head) -> list[str]:
        """Return the names of generations and temporary files that the head does not name."""
        return sorted(
            path.name
            for path in self.directory.iterdir()
            if _LEFT_OVER.fullmatch(path.name) and path.name not in head.file_names
        )

    def sizes(self) -> dict[str, int]:
        """Return bytes on disk by kind of file: catalog (with its WAL), model, journal, index."""
        kinds = dict.fromkeys(("catalog", "model", "journal", "index"), 0)
        for path in self.directory.iterdir():
            kind = re.split(r"[.-]", path.name)[0]
            if kind in kinds:
                with contextlib.suppress(FileNotFoundError):  # another process may be writing
                    kinds[kind] += path.stat().st_size
        return kinds

    def _next(self) -> int:
        """Return a number for a new file, after the begun commit is recorded durably."""
        if self._lock is not None:
            self._lock.keep()
        taken = (_number(path.name) for path in self.directory.iterdir())
        self._last = max(self._last, *taken, 0) + 1
        return self._last


def _number(name: str) -> int:
    """Return the generation of a file; 0 for one that is no generation."""
    match = _GENERATION.fullmatch(name)
    return int(match[1]) if match else 0
