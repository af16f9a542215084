"""The demo from start to end, into a directory."""

from __future__ import annotations

import re
from pathlib import Path

from rich.console import Console
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from oasis import store
from oasis.collection import Collection, Hit
from oasis.collection.catalog.catalog import NAME
from oasis.datasets.icons import icons
from oasis.datasets.registry import load
from oasis.demo import glyphs, terminal
from oasis.demo.page import GENERATOR, page
from oasis.demo.story import N_BITS, Stream, searches
from oasis.errors import CollectionError, OasisError
from oasis.model import OASIS

COLLECTION = "icons.oasis"
PAGE = "index.html"

_OURS = re.compile(r"catalog\.sqlite(-wal|-shm)?|(model|journal|index)-\d+\.\w+|writer\.lock")


def run(out: Path, seed: int = 0, console: Console | None = None) -> None:
    """Stream the icons into ``out/icons.oasis``, search, and write ``out/index.html``.

    The results of an earlier run are replaced. A file or directory of these names that the demo did
    not write is refused, and nothing else in the directory is touched. BLAS uses one thread: the
    matrices are small, and on a busy machine more threads would be slower.
    """
    console = console or Console(highlight=False)
    clear(out, console)
    with threadpool_limits(1):
        with console.status("drawing the icons"):
            dataset, drawn = load("icons"), icons()
            items = glyphs.items(drawn)
        terminal.show_start(console, dataset.n_samples, len(dataset.classes), N_BITS)
        out.mkdir(parents=True, exist_ok=True)
        model = OASIS(N_BITS, random_state=seed)
        with Collection.open(
            out / COLLECTION, model=model, extractor=glyphs.extractor()
        ) as collection:
            stream = Stream(collection, dataset, drawn, items, seed)
            rounds = []
            for told in stream:
                terminal.show_round(console, told)
                rounds.append(told)
            with console.status("searching with every title"):
                titles = stream.titles()
            terminal.show_verdict(console, rounds, titles, rounds[-1].n_stored * N_BITS // 8)
            held_out = stream.held_out()
            asked = searches(stream, held_out)
            unlabelled = stream.add_unlabelled(list(held_out.values()))

            def picture(hit: Hit) -> bytes:
                return collection.thumbnail(hit.id) or b""

            terminal.show_searches(console, asked, picture)
            terminal.show_unlabelled(console, unlabelled)
            text = page(
                rounds,
                titles,
                asked,
                unlabelled,
                lambda name: collection.thumbnail(name) or b"",
                N_BITS,
                terminal.commands(str(out / COLLECTION)),
            )
    with store.replacing(out / PAGE) as temporary:
        temporary.write_text(text, encoding="utf-8")
    terminal.show_end(console, str(out / COLLECTION), str((out / PAGE).absolute()))


def clear(out: Path, console: Console) -> None:
    """Remove what an earlier run of the demo left in a directory; refuse what it did not make."""
    made, written = out / COLLECTION, out / PAGE
    if out.exists() and not out.is_dir():
        raise CollectionError(f"{out} is a file; choose a directory with --out")
    if written.exists() and GENERATOR not in written.read_text("utf-8", errors="replace"):
        raise CollectionError(
            f"{written} was not written by the demo; choose another directory with --out"
        )
    if made.exists():
        _remove_collection(made)
        console.print(f"replacing the earlier demo in {out}", style="dim", soft_wrap=True)


def _remove_collection(made: Path) -> None:
    foreign = f"{made} was not made by the demo; choose another directory with --out"
    if not made.is_dir() or not (made / NAME).is_file():
        raise CollectionError(foreign)
    try:
        with Collection.open(made, readonly=True) as opened:
            recorded = opened.stats().extractor
    except OasisError as error:
        raise CollectionError(f"{foreign} ({error})") from error
    if recorded != glyphs.extractor().describe():
        raise CollectionError(foreign)
    Collection.open(made).close()  # raises if another writer has it open
    names = [path.name for path in made.iterdir()]
    if not all(map(_OURS.fullmatch, names)):
        raise CollectionError(foreign)
    # the catalog last: a directory without it is not recognised as a collection of the demo
    for name in sorted(names, key=lambda name: name == NAME):
        (made / name).unlink()
    made.rmdir()
