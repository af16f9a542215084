"""Feeding a data file to a collection: batches, resuming, rejects, progress.

`ingest_all` does all of it for a directory, `ingest_into` for a collection that is open, here or in
a service; `feed` and `check_all` are their two passes.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from oasis.collection.catalog import NAME
from oasis.collection.collection import Collection
from oasis.collection.intake import check_intake, extract_items
from oasis.collection.records import Id, Rejected
from oasis.errors import DataError, InputError
from oasis.features.extractor import Extractor
from oasis.items import Item, Reject, RejectsFile
from oasis.items.folder import IMAGE_SUFFIXES
from oasis.model import AnyModel

_BLOCK = 1 << 20
_AT_ONCE = 256
"""Items that are looked up, or checked, together."""


class Fed(Protocol):
    """What can be fed: a collection, or a client of a service that has one open."""

    def __len__(self) -> int: ...

    def known(self, ids: Iterable[Id]) -> set[Id]: ...

    def ingest_items(
        self,
        items: Sequence[Any],
        *,
        thumbnails: bool,
        progress: Callable[[int], object] | None,
    ) -> list[Rejected]: ...

    def replace_items(
        self,
        items: Sequence[Any],
        *,
        thumbnails: bool,
        progress: Callable[[int], object] | None,
    ) -> list[Rejected]: ...


Progress: TypeAlias = Callable[[str], AbstractContextManager[Callable[[int], object]]]
"""Given the name of a pass, a context that gives what to call with each number of items done."""


def no_progress(_: str) -> AbstractContextManager[Callable[[int], object]]:
    """Show nothing."""
    return nullcontext(lambda _: None)


@dataclass
class FeedSummary:
    """What became of the items of a file.

    ``skipped`` are those whose id was in the collection already, as after an interruption, and
    ``replaced`` where they are replaced; ``items`` is how many the collection has afterwards.
    """

    read: int = 0
    ingested: int = 0
    replaced: int = 0
    skipped: int = 0
    rejected: int = 0
    rounds: int = 0
    seconds: float = 0.0
    items: int = 0

    @property
    def stored(self) -> int:
        """Items that were ingested or replaced."""
        return self.ingested + self.replaced

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "seconds": round(self.seconds, 3)}


def collection_exists(path: Path) -> bool:
    """Return whether a collection, sound or damaged, is at the path."""
    return (path / NAME).is_file()


def ingest_all(
    path: Path,
    read: Callable[[], Iterable[Item | Reject]],
    extractor: Extractor,
    rejects: RejectsFile,
    *,
    n_bits: int | None = None,
    model: AnyModel | None = None,
    index: str | None = None,
    keep_text: bool | None = None,
    keep_features: bool | None = None,
    picture_meaning: bool | None = None,
    strict: bool = False,
    replaces: bool = False,
    progress: Progress = no_progress,
    summary: FeedSummary | None = None,
    **how: Any,
) -> FeedSummary:
    """Ingest all items of a source into a directory, as `ingest_into` does.

    When nothing could be stored because of an error, a collection that was made for it is removed.

    Parameters
    ----------
    path : Path
        The directory of the collection; made where there is none.
    extractor : Extractor
        Makes features of the items.
    n_bits, model, index, keep_text, keep_features, picture_meaning : as in `Collection.open`
    strict : bool
        Check all items first, and raise `InputError` at the first that is refused, before anything
        is written. Features are made twice.
    read, rejects, replaces, progress, summary, how : as in `ingest_into`
    """
    summary = FeedSummary() if summary is None else summary
    results = read()  # a source that is missing is refused here
    if strict:
        with ExitStack() as stack:
            known: Callable[[Iterable[Id]], set[Id]] = _nothing_known
            if not replaces and collection_exists(path):
                known = stack.enter_context(Collection.open(path, readonly=True)).known
            check_all(results, extractor, known, stack.enter_context(progress("checking")))
        results = read()
    is_new = not path.exists()
    how |= {"replaces": replaces, "progress": progress, "summary": summary}
    try:
        with Collection.open(
            path,
            n_bits,
            model=model,
            extractor=extractor,
            index=index,
            keep_text=keep_text,
            keep_features=keep_features,
            picture_meaning=picture_meaning,
        ) as opened:
            return ingest_into(opened, lambda: results, rejects, **how)
    except BaseException:
        # after an interrupt too: without a stored chunk there is nothing to resume
        if is_new and not summary.ingested:
            shutil.rmtree(path, ignore_errors=True)
        raise


def _nothing_known(_: Iterable[Id]) -> set[Id]:
    return set()


def ingest_into(
    opened: Fed,
    read: Callable[[], Iterable[Item | Reject]],
    rejects: RejectsFile,
    *,
    checker: Extractor | None = None,
    replaces: bool = False,
    progress: Progress = no_progress,
    summary: FeedSummary | None = None,
    **how: Any,
) -> FeedSummary:
    """Ingest all items of a source into what is open; each chunk is durable before the next.

    Items that cannot be used are left out and listed; that all are is an error. Items whose id is
    there are skipped, so an ingest that was interrupted is resumed by the same call.

    Parameters
    ----------
    opened : Collection or Client
    read : callable
        Returns the items and rejects of the source from its beginning; called twice with a checker.
    rejects : RejectsFile
        Lists what is left out; the file is removed when nothing was.
    checker : Extractor, optional
        If given, all items are checked with it first; see ``strict`` of `ingest_all`.
    replaces : bool
        Replace the items whose ids are there, instead of skipping them.
    progress : callable, see `Progress`
    summary : FeedSummary, optional
        Brought up to date after every chunk, and returned; after an interruption it says what was
        done until then.
    how : batch, with_thumbnails, fitting, as in `feed`
    """
    summary = FeedSummary() if summary is None else summary
    results = read()
    if checker is not None:
        with progress("checking") as advance:
            known = _nothing_known if replaces else opened.known
            check_all(results, checker, known, advance)
        results = read()
    try:
        with rejects, progress("ingest") as advance:
            feed(
                opened,
                results,
                rejects,
                replaces=replaces,
                progress=advance,
                summary=summary,
                **how,
            )
        summary.items = len(opened)
        if summary.rejected and not summary.stored and not summary.skipped:
            raise DataError(f"none of {summary.read:,} items could be ingested; {rejects.told()}")
    finally:
        if not rejects.count:
            rejects.path.unlink(missing_ok=True)
    return summary


def expected_items(path: Path) -> int | None:
    """Return about how many items a file or folder has, for a progress bar; None if unknown.

    Lines of a text file, rows of a Parquet file, pictures of a folder by their suffix.
    """
    if path.is_dir():
        return sum(
            Path(name).suffix.lower() in IMAGE_SUFFIXES
            for _, _, names in os.walk(path)
            for name in names
        )
    if path.suffix.lower() in (".parquet", ".npz", ".npy"):
        return None  # errors are left to the reader, so it is not opened here
    with path.open("rb") as file:
        n = sum(block.count(b"\n") for block in iter(lambda: file.read(_BLOCK), b""))
    return n - (path.suffix.lower() in (".csv", ".tsv"))


def feed(
    opened: Fed,
    results: Iterable[Item | Reject],
    rejects: RejectsFile,
    *,
    batch: int = 256,
    with_thumbnails: bool = True,
    replaces: bool = False,
    fitting: Callable[[list[Item]], int] = len,
    progress: Callable[[int], object],
    summary: FeedSummary,
) -> None:
    """Ingest what a reader gives, a chunk at a time; each is durable before the next is begun.

    Items whose id is there already are skipped before anything is made of them, or replaced in
    chunks of their own.

    Parameters
    ----------
    batch : int
        Items learned at a time.
    with_thumbnails : bool
        Keep a small picture of each item.
    fitting : callable
        Returns how many of the first of some items can be ingested at once; an item that cannot
        even alone is left out and listed.
    """
    start = time.perf_counter()
    waiting: dict[bool, list[Item]] = {False: [], True: []}  # new ones, those that replace others

    def reject(found: Reject) -> None:
        rejects.write(found)
        summary.rejected += 1

    def send(there: bool, n_left: int) -> None:
        """Give away what waits until so many are left, each time as many as go at once."""
        while len(waiting[there]) > n_left:
            n = fitting(waiting[there][:batch])
            chunk = waiting[there][: n or 1]
            del waiting[there][: n or 1]
            if not n:
                reject(Reject(chunk[0].where, chunk[0].id, "it is too large to be sent"))
                progress(1)
                continue
            take = opened.replace_items if there else opened.ingest_items
            refused = take(chunk, thumbnails=with_thumbnails, progress=progress)
            for each in refused:
                reject(Reject(chunk[each.row].where, each.id, each.reason))
            n_stored = len(chunk) - len(refused)
            summary.replaced += n_stored * there
            summary.ingested += n_stored * (not there)
            summary.rounds += n_stored > 0
            summary.seconds = time.perf_counter() - start

    for block in _blocks(results):
        summary.read += len(block)
        items, refused_items = _divided(block)
        for found in refused_items:
            reject(found)
        known = opened.known([item.id for item in items])
        waiting[False] += [item for item in items if item.id not in known]
        if replaces:
            waiting[True] += [item for item in items if item.id in known]
        summary.skipped += len(known) * (not replaces)
        progress(len(refused_items) + len(known) * (not replaces))
        send(False, batch - 1)
        send(True, batch - 1)
    send(False, 0)
    send(True, 0)
    summary.seconds = time.perf_counter() - start


def check_all(
    results: Iterable[Item | Reject],
    extractor: Extractor,
    known: Callable[[Iterable[Id]], set[Id]],
    progress: Callable[[int], object],
) -> None:
    """Read every item and make its features, and raise `InputError` at the first that is refused.

    Nothing is kept: what is ingested afterwards is made anew.
    """
    for block in _blocks(results):
        items, refused_items = _divided(block)
        for found in refused_items[:1]:
            raise InputError(f"{found.where}: {found.reason}; nothing was written")
        there = known([item.id for item in items])
        new = [item for item in items if item.id not in there]
        progress(len(there))
        _, refused = extract_items(
            extractor, new, lambda ids: set(), progress, with_thumbnails=False
        )
        for first in refused[:1]:
            raise InputError(f"{new[first.row].where}: {first.reason}; nothing was written")


def _blocks(results: Iterable[Item | Reject]) -> Iterator[list[Item | Reject]]:
    running = iter(results)
    while block := list(islice(running, _AT_ONCE)):
        yield block


def _divided(block: list[Item | Reject]) -> tuple[list[Item], list[Reject]]:
    """Return the items whose id and payload a collection would take, and the rejects."""
    items: list[Item] = []
    rejects: list[Reject] = []
    for each in block:
        if isinstance(each, Item):
            try:
                check_intake(1, 0, [each.id], [each.payload], None)
                items.append(each)
            except InputError as error:
                rejects.append(Reject(each.where, each.id, str(error)))
        else:
            rejects.append(each)
    return items, rejects
