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
    batch: int = 256,
    with_thumbnails: bool = True,
    strict: bool = False,
    replaces: bool = False,
    progress: Progress = no_progress,
    summary: FeedSummary | None = None,
) -> FeedSummary:
    """Ingest all items of a source; each chunk is durable before the next one is begun.

    Items that cannot be used are left out and listed. Items whose id is in the collection are
    skipped, so an ingest that was interrupted is resumed by the same call. When nothing could be
    stored because of an error, a collection that was made for it is removed again. That all items
    are left out is an error, too.

    Parameters
    ----------
    path : Path
        The directory of the collection; made where there is none.
    read : callable
        Returns the items and rejects of the source from its beginning; called twice if ``strict``.
    extractor : Extractor
        Makes features of the items.
    rejects : RejectsFile
        Lists what is left out; the file is removed when nothing was.
    n_bits, model, index, keep_text, keep_features : as in `Collection.open`
    batch : int
        Items learned at a time.
    with_thumbnails : bool
        Keep a small picture of each item.
    strict : bool
        Check all items first, and raise `InputError` at the first that is refused, before anything
        is written. Features are made twice.
    replaces : bool
        Replace the items whose ids are in the collection, instead of skipping them.
    progress : callable, see `Progress`
    summary : FeedSummary, optional
        Brought up to date after every chunk, and returned; after an interruption it says what was
        done until then.
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
    try:
        with Collection.open(
            path,
            n_bits,
            model=model,
            extractor=extractor,
            index=index,
            keep_text=keep_text,
            keep_features=keep_features,
        ) as opened:
            _feed_all(
                opened, results, rejects, batch, with_thumbnails, replaces, len, progress, summary
            )
    except BaseException:
        # after an interrupt too: without a stored chunk there is nothing to resume
        if is_new and not summary.ingested:
            shutil.rmtree(path, ignore_errors=True)
        raise
    return summary


def _nothing_known(_: Iterable[Id]) -> set[Id]:
    return set()


def ingest_into(
    opened: Fed,
    read: Callable[[], Iterable[Item | Reject]],
    rejects: RejectsFile,
    *,
    batch: int = 256,
    with_thumbnails: bool = True,
    checker: Extractor | None = None,
    replaces: bool = False,
    fitting: Callable[[list[Item]], int] = len,
    progress: Progress = no_progress,
    summary: FeedSummary | None = None,
) -> FeedSummary:
    """Ingest all items of a source into what is open already; otherwise as `ingest_all`.

    Parameters
    ----------
    opened : Collection or Client
    read, rejects, batch, with_thumbnails, replaces, progress, summary : as in `ingest_all`
    checker : Extractor, optional
        If given, all items are checked with it first, as by ``strict`` of `ingest_all`.
    fitting : callable, optional
        Returns how many of the first of some items can be ingested at once; an item that cannot
        even alone is left out and listed.
    """
    summary = FeedSummary() if summary is None else summary
    results = read()
    if checker is not None:
        with progress("checking") as advance:
            known = _nothing_known if replaces else opened.known
            check_all(results, checker, known, advance)
        results = read()
    _feed_all(
        opened, results, rejects, batch, with_thumbnails, replaces, fitting, progress, summary
    )
    return summary


def _feed_all(
    opened: Fed,
    results: Iterable[Item | Reject],
    rejects: RejectsFile,
    batch: int,
    with_thumbnails: bool,
    replaces: bool,
    fitting: Callable[[list[Item]], int],
    progress: Progress,
    summary: FeedSummary,
) -> None:
    try:
        with rejects, progress("ingest") as advance:
            feed(
                opened,
                results,
                rejects,
                batch=batch,
                with_thumbnails=with_thumbnails,
                replaces=replaces,
                fitting=fitting,
                progress=advance,
                summary=summary,
            )
        summary.items = len(opened)
        if summary.rejected and not summary.stored and not summary.skipped:
            raise DataError(f"none of {summary.read:,} items could be ingested; {rejects.told()}")
    finally:
        if not rejects.count:
            rejects.path.unlink(missing_ok=True)


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
    batch: int,
    with_thumbnails: bool,
    replaces: bool = False,
    fitting: Callable[[list[Item]], int] = len,
    progress: Callable[[int], object],
    summary: FeedSummary,
) -> None:
    """Ingest what a reader gives, a chunk at a time; each is durable before the next is begun.

    Items whose id is there already are skipped before anything is made of them, or replaced in
    chunks of their own. ``summary`` is brought up to date after every chunk, so that it holds after
    an interruption too.
    """
    start = time.perf_counter()

    def reject(found: Reject) -> None:
        rejects.write(found)
        summary.rejected += 1
        progress(1)

    new: list[Item] = []
    there: list[Item] = []

    def send(waiting: list[Item], n_left: int) -> None:
        """Give away what waits until so many are left, each time as many as go at once."""
        while len(waiting) > n_left:
            chunk = waiting[:batch]
            n = fitting(chunk)
            del waiting[: n or 1], chunk[n or 1 :]
            if not n:
                reject(Reject(chunk[0].where, chunk[0].id, "it is too large to be sent"))
                continue
            take = opened.replace_items if waiting is there else opened.ingest_items
            refused = take(chunk, thumbnails=with_thumbnails, progress=progress)
            for each in refused:
                rejects.write(Reject(chunk[each.row].where, each.id, each.reason))
            summary.rejected += len(refused)
            if waiting is there:
                summary.replaced += len(chunk) - len(refused)
            else:
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
        known = opened.known([item.id for item in items])
        new += [item for item in items if item.id not in known]
        if replaces:
            there += [item for item in items if item.id in known]
        else:
            summary.skipped += len(known)
            progress(len(known))
        send(new, batch - 1)
        send(there, batch - 1)
    send(new, 0)
    send(there, 0)
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
        _, refused = extract_items(
            extractor, new, lambda ids: set(), progress, with_thumbnails=False
        )
        if refused:
            first = refused[0]
            raise InputError(f"{new[first.row].where}: {first.reason}; nothing was written")


def _blocks(results: Iterable[Item | Reject]) -> Iterator[list[Item | Reject]]:
    running = iter(results)
    while block := list(islice(running, _AT_ONCE)):
        yield block


def _refusal(item: Item) -> Reject | None:
    """Return why a collection would not take an item's id or payload, None if it would."""
    try:
        check_intake(1, 0, [item.id], [item.payload], None)
    except InputError as error:
        return Reject(item.where, item.id, str(error))
    return None
