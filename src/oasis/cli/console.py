"""What commands print: results on standard output, remarks and progress on standard error.

A result is one JSON document with ``--json``, and a table for people without. rich is imported
where something is printed with it: importing it takes a third of ``oasis --help``.
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, Protocol, TextIO, TypeAlias

import typer

from oasis.errors import OasisWarning

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def print_json(value: Any) -> None:
    """Print one JSON document to standard output; values that JSON lacks raise."""
    plain = "utf" not in (sys.stdout.encoding or "").lower()
    typer.echo(json.dumps(value, ensure_ascii=plain, indent=2, allow_nan=False))


def people() -> Console:
    """Return the console that results for people are printed on: standard output.

    A file or a pipe gets lines of any length.
    """
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _UNBOUNDED
    return console


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Print warnings of ours as ``note: ...``, without the source line that Python adds.

    Each text is printed once. With ``python -W`` the filters are those of the user.
    """
    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, OasisWarning):
                remark(f"note: {message}")
            else:
                others(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        if not sys.warnoptions:
            warnings.simplefilter("default", OasisWarning)
        yield


def tell(value: Any, line: str, *, as_json: bool) -> None:
    """Print a result: as JSON, or as a line for people."""
    if as_json:
        print_json(value)
    else:
        people().print(visible(line), markup=False, soft_wrap=True)


def remark(text: str) -> None:
    """Print a line for people to standard error."""
    typer.echo(text, err=True)


Column: TypeAlias = tuple[str, Literal["left", "right", "line"]]
"""Name of a column and its alignment; "line" is left-aligned and cut where it does not fit."""

# characters that move the cursor, or change colours or the direction of writing; or end a row
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_UNBOUNDED = 1 << 24
_GAP = 2
_NARROWEST = 8
"""To so many characters a "line" is cut before other columns are folded."""


def table(
    columns: Iterable[Column],
    rows: Iterable[Iterable[str]],
    title: str | None = None,
    *,
    width: int | None = None,
) -> Table:
    """Return a table; cells are plain text, markup in them is not interpreted.

    Control characters are shown as `visible` shows them: a terminal would obey them.

    Columns are as wide as their cells. Where that is more than ``width`` together (if not given,
    the width of the terminal), the longest of the "line" columns are cut.
    """
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    columns, cells = list(columns), [list(map(visible, row)) for row in rows]
    names = [name for name, _ in columns]
    widths = [max(map(cell_len, column)) for column in zip(names, *cells, strict=True)]
    lines = [each for each, (_, kind) in zip(widths, columns, strict=True) if kind == "line"]
    taken = sum(widths) - sum(lines) + _GAP * (len(columns) - 1)
    longest = _longest(lines, (people().width if width is None else width) - taken)
    made = Table(
        title=None if title is None else Text(title),
        title_justify="left",
        title_style="bold",
        box=None,
        header_style="dim",
        pad_edge=False,
        padding=(0, 0, 0, _GAP),
    )
    for name, kind in columns:
        made.add_column(
            name,
            justify="right" if kind == "right" else "left",
            overflow="ellipsis" if kind == "line" else "fold",
            no_wrap=kind != "left",
            max_width=longest if kind == "line" else None,
        )
    for row in cells:
        made.add_row(*(Text(cell) for cell in row))
    return made


def visible(text: str) -> str:
    """Return a text with its control characters written as in Python.

    >>> print(visible("a\\x1b[2Jb\\n"))
    a\\x1b[2Jb\\n
    """
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def _longest(widths: list[int], room: int) -> int:
    """Return the length to which columns of such widths are cut, so that they fit together.

    >>> _longest([4, 60], room=40), _longest([50, 60], room=40), _longest([4, 6], room=40)
    (36, 20, 6)
    """
    for at, each in enumerate(sorted(widths)):
        share = room // (len(widths) - at)
        if each > share:
            return max(share, _NARROWEST)
        room -= each
    return max(widths, default=0)


class _Labelled(Protocol):
    @property
    def labels(self) -> tuple[str, ...]: ...

    @property
    def predicted(self) -> tuple[str, ...]: ...


def labels_line(item: _Labelled) -> str:
    """Return the labels of a hit or an item for people; predicted ones have a question mark.

    >>> from oasis.collection import Hit
    >>> labels_line(Hit("a.jpg", 0.9, 3, {}, (), predicted=("cat", "dog")))
    'cat?, dog?'
    """
    return ", ".join([*item.labels, *(f"{name}?" for name in item.predicted)])


def count(n: int, noun: str) -> str:
    """Return a number of things for people.

    >>> count(1, "item"), count(2000, "round")
    ('1 item', '2,000 rounds')
    """
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def file_size(n_bytes: int) -> str:
    """Return a number of bytes for people.

    >>> file_size(0), file_size(999), file_size(23555594)
    ('0 B', '999 B', '23.6 MB')
    """
    size = float(n_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


# -- progress ----------------------------------------------------------------------------------


@contextmanager
def progress_of(what: str, total: int | None) -> Iterator[Callable[..., None]]:
    """Show a bar with the speed and the time left; yields what to call with each advance.

    A second argument of the call changes what the bar says. Only a terminal gets it, so that
    nothing of it ends up in a file.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:,.{0 if speed > 2 else 2}f}/s", "dim")

    console = Console(stderr=True)
    if not console.is_terminal:  # some versions of rich end even a disabled bar with an empty line
        yield lambda n, said=what: None
        return
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(compact=True),
        console=console,
    ) as bar:
        task = bar.add_task(what, total=total)
        yield lambda n, said=what: bar.update(task, advance=n, description=said)
