"""The demo in a terminal: a line per round, then searches side by side, drawn in dots."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from rich.box import ROUNDED
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from oasis.collection import Hit
from oasis.demo.glyphs import coverage
from oasis.demo.story import Answer, Asked, Titles, Told, Unlabelled

_WIDE = 100
_DOTS = 16
_BAR = 12
_N_HITS = 3
_SHADES = " ▏▎▍▌▋▊▉█"

# the bit of a braille character for each of its dots: 4 rows, 2 columns
_BRAILLE = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])


def show_start(console: Console, n_icons: int, n_classes: int, n_bits: int) -> None:
    """Print an introduction, and the head of the table of rounds."""
    console.print()
    console.print(Text("oasis", style="bold cyan"), Text("an icon stream, told as it happens"))
    console.print(
        Text(
            f"{n_icons:,} icons of {n_classes} categories arrive in 12 rounds. Nobody announces a "
            f"category. Each icon becomes a code of {n_bits} bits that never changes again, and no "
            "old icon is ever looked at again.",
            style="dim",
        )
    )
    console.print()
    bar = " " * (_BAR + 1) if console.width >= _WIDE else ""
    console.print(Text(f"{'----- MAP -----':>30}", style="dim"))
    console.print(
        Text(
            f"round stored   new   old   all {bar}chance  sec  new categories",
            style="dim",
        ),
        no_wrap=True,
        overflow="crop",
    )


def show_round(console: Console, told: Told) -> None:
    """Print one round in one line: MAP of new, old and all queries beside chance."""
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{told.number:>5} {told.n_stored:>6,} ")
    line.append(f"{told.new:>5.2f} ", "cyan")
    line.append(f"{'-' if told.old is None else f'{told.old:.2f}':>5} ", "magenta")
    line.append(f"{told.all:>5.2f} ", "bold")
    if console.width >= _WIDE:
        line.append_text(_bar(told.all, told.chance))
        line.append(" ")
    line.append(f"{told.chance:>6.2f} {told.seconds:>4.1f}  ", "dim")
    line.append(f"+{len(told.new_classes)} ", "green")
    line.append(", ".join(told.new_classes))
    console.print(line, no_wrap=True, overflow="ellipsis")


def show_verdict(console: Console, rounds: Sequence[Told], titles: Titles, n_bytes: int) -> None:
    """Print a summary of the rounds."""
    last = rounds[-1]
    seconds = sum(each.seconds for each in rounds)
    console.print()
    console.print(
        Text.assemble(
            "Held-out icons are found with MAP ",
            (f"{last.all:.2f}", "bold"),
            f" among {last.n_stored:,} icons; a random order has {last.chance:.2f}. ",
            ("new", "cyan"),
            ": icons of this round's categories; ",
            ("old", "magenta"),
            ": of all rounds before. By plain Hamming distance, in which content bits weigh as "
            f"much as the others, MAP is {last.hamming:.2f}.",
        )
    )
    console.print(
        Text.assemble(
            "An icon's own title finds it first in ",
            (f"{100 * titles.first:.0f} %", "bold"),
            " and among ten in ",
            (f"{100 * titles.ten:.0f} %", "bold"),
            f" of {titles.n:,} cases, by codes alone in {100 * titles.code_first:.0f} % and "
            f"{100 * titles.code_ten:.0f} %; by chance it would be {100 / titles.n:.1f} % and "
            f"{1000 / titles.n:.1f} %. Its own picture finds it first in ",
            (f"{100 * titles.picture:.0f} %", "bold"),
            f", by codes alone in {100 * titles.code_picture:.0f} %. {last.n_stored:,} codes are "
            f"{n_bytes:,} bytes, made in {seconds:.1f} s.",
        )
    )
    console.print()


def show_searches(
    console: Console, asked: Sequence[Asked], picture: Callable[[Hit], bytes]
) -> None:
    """Print the searches; several ways of one query are shown side by side."""
    width = min(console.width, 120)
    quoted = [each for each in asked if each.kind == "title"]
    columns = [
        (Text(f"“{each.title}”", style="bold cyan"), _hits(console, each.answers[0], picture))
        for each in quoted
    ]
    head = Text("Icons by their own titles, at the quarters of the stream", style="bold")
    console.print(_side_by_side(head, columns, width))
    for each in asked:
        if each.kind == "content":
            head = Text(f"“{each.title}”: the same words by kind and by content", style="bold")
            columns = [
                (Text(answer.way, style="bold cyan"), _hits(console, answer, picture))
                for answer in each.answers
            ]
            console.print(_side_by_side(head, columns, width))
            break  # the page shows all of them
    for each in asked:
        if each.kind == "held out" and each.icon is not None:
            beside = _beside(
                _drawing(console, _bytes(each.icon.image)),
                Text(f"\n{each.title}", style="bold"),
                Text(", ".join(each.icon.labels), style="dim"),
                Text(f"a held-out icon: {each.note}", style="dim italic"),
            )
            columns = [
                (
                    Text(answer.way, style="bold cyan"),
                    _hits(console, answer, picture, each.icon.labels),
                )
                for answer in each.answers
            ]
            console.print(_side_by_side(beside, columns, width))
    columns = [
        (Text(f"“{each.title}”", style="bold cyan"), _hits(console, each.answers[0], picture))
        for each in asked
        if each.kind == "strange"
    ]
    head = Text("Words that were never a category, chosen by hand", style="bold")
    console.print(_side_by_side(head, columns, width))


def show_unlabelled(console: Console, found: Sequence[Unlabelled]) -> None:
    """Print the results for the icons that came without labels."""
    lines = [Text("The held-out icons then arrived without labels", style="bold"), Text()]
    for each in found:
        predicted = ", ".join(each.predicted) or "nothing is likely enough"
        place = "not among ten" if each.place is None else f"at place {each.place}"
        lines.append(
            Text.assemble(
                (f"{each.icon.payload['title']}", "bold cyan"),
                ("  predicted ", "dim"),
                predicted,
                ("; in truth ", "dim"),
                ", ".join(each.icon.labels),
                ("; by its title ", "dim"),
                place,
            )
        )
    console.print(
        Panel(Group(*lines), box=ROUNDED, border_style="dim", width=min(console.width, 120))
    )


def commands(collection: str) -> tuple[str, ...]:
    """Return what to try next, to be run where the demo was."""
    command = _command()
    return (
        f'{command} search {collection} --text "rain cloud" --content 0.8',
        f"{command} search {collection} --text winter --save hits.png",
        f"{command} serve {collection}",
    )


def show_end(console: Console, collection: str, page: str) -> None:
    """Print where everything is, and what to try next."""
    first, *others = commands(collection)
    console.print()
    for name, value in (
        ("page", page),
        ("collection", collection),
        ("try", first),
        *(("", other) for other in others),
    ):
        console.print(
            Text.assemble((f"{name:>10}  ", "dim"), (value, "bold" if name == "page" else "")),
            soft_wrap=True,
        )
    console.print()


def _side_by_side(
    head: RenderableType, columns: Sequence[tuple[Text, RenderableType]], width: int
) -> Panel:
    grid = Table(box=None, expand=True, pad_edge=False, padding=(0, 1, 0, 0), show_header=False)
    for _ in columns:
        grid.add_column(ratio=1, overflow="ellipsis", no_wrap=True)
    grid.add_row(*(title for title, _ in columns))
    grid.add_row(*(hits for _, hits in columns))
    return Panel(Group(head, Text(), grid), box=ROUNDED, border_style="dim", width=width)


def _hits(
    console: Console,
    answer: Answer,
    picture: Callable[[Hit], bytes],
    wanted: Sequence[str] = (),
) -> RenderableType:
    """Return the first hits below each other; the score of one without a wanted label is dim."""
    return Group(
        *(
            _beside(
                _drawing(console, picture(hit)),
                Text(f"\n{hit.payload['title']}"),
                Text(", ".join(hit.labels), style="dim"),
                Text(
                    f"{hit.score:+.2f}",
                    style="green" if not wanted or set(wanted) & set(hit.labels) else "dim",
                ),
            )
            for hit in answer.hits[:_N_HITS]
        )
    )


def _beside(drawing: Text | None, *lines: Text) -> RenderableType:
    grid = Table.grid(padding=(0, 1, 0, 0), expand=True)
    if drawing is not None:
        grid.add_column(width=_DOTS // 2)
    grid.add_column(overflow="ellipsis", no_wrap=True, ratio=1)
    text = Group(*(_cut(line) for line in lines))
    grid.add_row(*([text] if drawing is None else [drawing, text]))
    return grid


def _cut(line: Text) -> Text:
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def _bytes(image: object) -> bytes:
    return image if isinstance(image, bytes) else b""


def _drawing(console: Console, png: bytes) -> Text | None:
    """Return an icon in 8 x 4 braille characters, or None if the terminal cannot show them."""
    if "utf" not in console.encoding.lower():
        return None
    ink = np.pad(coverage(png, _DOTS - 2) > 110, 1)  # a rim keeps drawings apart
    cells = ink.reshape(_DOTS // 4, 4, _DOTS // 2, 2)
    numbers = 0x2800 + np.einsum("aibj,ij->ab", cells.astype(np.int64), _BRAILLE)
    return Text("\n".join("".join(map(chr, row)) for row in numbers.tolist()))


def _bar(value: float, chance: float) -> Text:
    """Return a bar for a share from 0 to 1, the part up to chance in grey."""
    eighths = round(value * _BAR * 8)
    whole, rest = divmod(eighths, 8)
    drawn = "█" * whole + (_SHADES[rest] if rest else "")
    cut = min(len(drawn), round(chance * _BAR))
    return Text.assemble(
        (drawn[:cut], "bright_black"), (drawn[cut:], "cyan"), (" " * (_BAR - len(drawn)))
    )


def _command() -> str:
    """Return the command for ``oasis``: its path if the virtual environment is not activated."""
    if shutil.which("oasis"):
        return "oasis"
    script = Path(sys.executable).with_name("oasis")
    return str(script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script)
