"""The demo from start to end, told in a terminal, into a directory."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from oasis import store
from oasis.collection import Collection, Hit
from oasis.datasets.icons import icons
from oasis.datasets.registry import load
from oasis.demo import glyphs
from oasis.demo.page import GENERATOR, recorded_page
from oasis.demo.stream import N_BITS, Found, Stream, Told
from oasis.errors import CollectionError, OasisError
from oasis.model import OASIS

COLLECTION = "icons.oasis"
PAGE = "index.html"

SEARCHES = ("rain cloud", "soccer ball", "guitar music")
STRANGE = ("physician", "cinema", "winter")
"""Words that are not categories: nothing was ever labelled with them. Chosen by hand."""


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
            dataset = load("icons")
            items = glyphs.items(icons())
        _tell(
            console,
            "oasis: an icon stream, told as it happens",
            f"{dataset.n_samples:,} icons of {len(dataset.classes)} categories arrive in 12 "
            "rounds. Nobody announces a category. Each icon becomes a code of "
            f"{N_BITS} bits that never changes again, and no old icon is ever looked at again.",
        )
        out.mkdir(parents=True, exist_ok=True)
        model = OASIS.for_search(N_BITS, random_state=seed)
        with Collection.open(
            out / COLLECTION, model=model, extractor=glyphs.extractor()
        ) as collection:
            stream = Stream(collection, dataset, items, seed)
            told = _rounds(console, stream)
            with console.status("searching with titles and pictures"):
                found = stream.found()
            _verdict(console, told[-1], found, sum(each.seconds for each in told))
            _searches(console, collection)
            _held_out(console, stream)
            with console.status("recording the page"):
                text = recorded_page(collection, [*SEARCHES, *STRANGE])
    with store.replacing(out / PAGE) as temporary:
        temporary.write_text(text, encoding="utf-8")
    _end(console, out)


def clear(out: Path, console: Console) -> None:
    """Remove what an earlier run of the demo left in a directory; refuse what it did not make."""
    made, written = out / COLLECTION, out / PAGE
    if out.exists() and not out.is_dir():
        raise CollectionError(f"{out} is a file; choose a directory with --out")
    if written.exists() and GENERATOR not in written.read_text("utf-8", errors="replace"):
        raise CollectionError(
            f"{written} was not written by the demo; choose another directory with --out"
        )
    if not made.exists():
        return
    foreign = f"{made} was not made by the demo; choose another directory with --out"
    try:
        with Collection.open(made, readonly=True) as opened:
            recorded = opened.stats().extractor
    except OasisError as error:
        raise CollectionError(f"{foreign} ({error})") from error
    if recorded != glyphs.extractor().describe():
        raise CollectionError(foreign)
    Collection.open(made).close()  # raises if another writer has it open
    shutil.rmtree(made)
    console.print(f"replacing the earlier demo in {out}", style="dim", soft_wrap=True)


# -- the story ---------------------------------------------------------------------------------


def _tell(console: Console, head: str, text: str = "") -> None:
    console.print()
    console.print(Text(head, style="bold cyan"))
    if text:
        console.print(text)


def _rounds(console: Console, stream: Stream) -> list[Told]:
    """Print each round in a line when it has been learned."""
    console.print(Text(f"\n{'----- MAP -----':>30}", style="dim"))
    head = "round stored   new   old   all chance  sec  new categories"
    console.print(Text(head, style="dim"), no_wrap=True, overflow="crop")
    told = []
    for each in stream:
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append(f"{each.number:>5} {each.n_stored:>6,} ")
        line.append(f"{each.new:>5.2f} ", "cyan")
        line.append(f"{'-' if each.old is None else f'{each.old:.2f}':>5} ", "magenta")
        line.append(f"{each.all:>5.2f} ", "bold")
        line.append(f"{each.chance:>6.2f} {each.seconds:>4.1f}  ", "dim")
        line.append(f"+{len(each.new_classes)} ", "green")
        line.append(", ".join(each.new_classes))
        console.print(line, no_wrap=True, overflow="ellipsis")
        told.append(each)
    return told


def _verdict(console: Console, last: Told, found: Found, seconds: float) -> None:
    n_bytes = last.n_stored * N_BITS // 8
    _tell(
        console,
        "What it came to",
        f"Held-out icons are found with MAP {last.all:.2f} among {last.n_stored:,} icons; a random "
        f"order has {last.chance:.2f}. An icon's own title finds it first in "
        f"{100 * found.first:.0f} % and among ten in {100 * found.ten:.0f} % of {found.n:,} cases, "
        f"its own picture finds it first in {100 * found.picture:.0f} %. {last.n_stored:,} codes "
        f"are {n_bytes:,} bytes, made in {seconds:.1f} s.",
    )


def _searches(console: Console, collection: Collection) -> None:
    _tell(console, "The same words by kind and by content (chosen by hand)")
    for text in SEARCHES:
        for way, content in (("the kind", 0.0), ("nearly exactly this", 0.8)):
            (hits,) = collection.search_items([{"text": text}], 4, content=content)
            _line(console, f"{text}, {way}", hits)
    _tell(console, "Words that were never a category (chosen by hand)")
    for text in STRANGE:
        _line(console, text, collection.search_items([{"text": text}], 4)[0])


def _held_out(console: Console, stream: Stream) -> None:
    items = stream.held_out()
    _tell(console, "Held-out icons, by their pictures")
    for item in items:
        (hits,) = stream.collection.search_items([{"image": item.image}], 4)
        _line(console, f"{item.payload['title']} ({', '.join(item.labels)})", hits)
    _tell(console, "The held-out icons then arrived without labels")
    for item, predicted in zip(items, stream.add_unlabelled(items), strict=True):
        told = f"predicted {', '.join(predicted) or 'nothing'}; in truth {', '.join(item.labels)}"
        console.print(f"  {item.payload['title']}: {told}")


def _line(console: Console, asked: str, hits: Sequence[Hit]) -> None:
    found = ", ".join(f"{hit.payload['title']} {hit.score:.2f}" for hit in hits)
    console.print(Text.assemble((f"  {asked}: ", "cyan"), found))


def commands(collection: Path) -> tuple[str, ...]:
    """Return what to try next, to be run where the demo was."""
    script = Path(sys.executable).with_name("oasis")
    here = script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script
    command = "oasis" if shutil.which("oasis") else str(here)
    return (
        f'{command} search {collection} --text "rain cloud" --content 0.8',
        f"{command} search {collection} --text winter --save hits.png",
        f"{command} serve {collection}",
    )


def _end(console: Console, out: Path) -> None:
    console.print()
    first, *others = commands(out / COLLECTION)
    lines = [("page", (out / PAGE).absolute()), ("collection", out / COLLECTION), ("try", first)]
    for name, value in [*lines, *(("", each) for each in others)]:
        console.print(Text.assemble((f"{name:>10}  ", "dim"), str(value)), soft_wrap=True)
    console.print()
