"""Feeding a data file to a collection: batches, resuming, rejects, progress."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from oasis.collection.collection import Collection
from oasis.collection.intake import check_intake
from oasis.errors import InputError
from oasis.features.extractor import Extractor
from oasis.features.thumbnail import thumbnails
from oasis.items import Item, Reject, RejectsFile
from oasis.items.folder import IMAGE_SUFFIXES

_BLOCK = 1 << 20
_AT_ONCE = 256
"""Items that are looked up, or checked, together."""


@dataclass
class Summary:
    """What became of the items of a file.

    ``skipped`` are those whose id was in the collection already, as after an interruption.
    """

    read: int = 0
    ingested: int = 0
    skipped: int = 0
    rejected: int = 0
    rounds: int = 0
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "seconds": round(self.seconds, 3)}


def expected(path: Path) -> int | None:
    """Return about how many items a file or folder has, for a progress bar; None if unknown.

    Lines of a text file, rows of a Parquet file, pictures of a folder by their suffix.
    """
    if path.is_dir():
        return sum(
            Path(name).suffix.lower() in IMAGE_SUFFIXES
            for _, _, names in os.walk(path)
            for name in names
        )
    if path.suffix.lower() == ".parquet":
        return None  # the reader says what is wrong with it, so it is not opened here
    with path.open("rb") as file:
        n = sum(block.count(b"\n") for block in iter(lambda: file.read(_BLOCK), b""))
    return n - (path.suffix.lower() in (".csv", ".tsv"))


def feed(
    collection: Collection,
    results: Iterable[Item | Reject],
    rejects: RejectsFile,
    *,
    batch: int,
    with_thumbnails: bool,
    progress: Callable[[int], object],
    summary: Summary,
) -> None:
    """Ingest what a reader gives, a chunk at a time; each is durable before the next is begun.

    Items whose id is there already are skipped before anything is made of them. ``summary`` is
    brought up to date after every chunk, so that it holds after an interruption too. While the
    collection has learned nothing, a chunk grows until one of its items has a label.
    """
    start = time.perf_counter()

    def reject(found: Reject) -> None:
        rejects.write(found)
        summary.rejected += 1
        progress(1)

    waiting: list[Item] = []
    learned = collection.stats().n_rounds > 0

    def ingest(chunk: list[Item]) -> None:
        pictures = thumbnails([item.image for item in chunk]) if with_thumbnails else None
        refused = collection.ingest_items(chunk, thumbnails=pictures, progress=progress)
        for each in refused:
            rejects.write(Reject(chunk[each.row].where, each.id, each.reason))
        summary.rejected += len(refused)
        summary.ingested += len(chunk) - len(refused)
        summary.rounds += len(refused) < len(chunk)
        summary.seconds = time.perf_counter() - start

    for block in _blocks(results):
        summary.read += len(block)
        items = []
        for each in block:
            found = each if isinstance(each, Reject) else _refusal(each)
            if found is not None:
                reject(found)
            elif isinstance(each, Item):
                items.append(each)
        known = collection.known([item.id for item in items])
        summary.skipped += len(known)
        progress(len(known))
        waiting += [item for item in items if item.id not in known]
        while len(waiting) >= (n := max(batch, 0 if learned else _first_labelled(waiting))):
            ingest(waiting[:n])
            del waiting[:n]
            learned = True
    if waiting:
        ingest(waiting)
    summary.seconds = time.perf_counter() - start


def check_all(
    results: Iterable[Item | Reject],
    extractor: Extractor,
    known: Callable[[list[str | int]], set[str | int]],
    progress: Callable[[int], object],
) -> None:
    """Read every item and make its features, and raise `InputError` at the first that is refused.

    Nothing is kept: what is ingested afterwards is made anew.
    """
    for block in _blocks(results):
        items: list[Item] = []
        for each in block:
            found = each if isinstance(each, Reject) else _refusal(each)
            if found is not None:
                raise InputError(f"{found.where}: {found.reason}; nothing was written")
            if isinstance(each, Item):
                items.append(each)
        there = known([item.id for item in items])
        new = [item for item in items if item.id not in there]
        progress(len(there))
        _, failures = extractor.extract(new, progress)
        if failures:
            first = failures[0]
            raise InputError(
                f"{new[first.row].where}: {first.modality}: {first.reason}; nothing was written"
            )


def _blocks(results: Iterable[Item | Reject]) -> Iterator[list[Item | Reject]]:
    running = iter(results)
    while block := list(islice(running, _AT_ONCE)):
        yield block


def _first_labelled(items: list[Item]) -> int:
    """Return how many items, from the first one, have a label among them."""
    return next((n for n, item in enumerate(items, 1) if item.labels), len(items) + 1)


def _refusal(item: Item) -> Reject | None:
    """Return why a collection would not take an item's id or payload, None if it would."""
    try:
        check_intake(1, 0, [item.id], [item.payload], None)
    except InputError as error:
        return Reject(item.where, item.id, str(error))
    return None
