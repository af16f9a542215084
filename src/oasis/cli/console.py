"""What commands print: results on standard output, remarks on standard error.

A result is one JSON document with ``--json``, and a table for people without. rich is imported
where something is printed with it: importing it takes a third of ``oasis --help``.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterable, Iterator
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
    """Return the console that results for people are printed on: standard output."""
    from rich.console import Console

    return Console(highlight=False)


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


def remark(text: str) -> None:
    """Print a line for people to standard error."""
    typer.echo(text, err=True)


Column: TypeAlias = tuple[str, Literal["left", "right", "line"]]
"""Name of a column and its alignment; "line" is left-aligned and cut to one line."""


def table(
    columns: Iterable[Column],
    rows: Iterable[Iterable[str]],
    title: str | None = None,
) -> Table:
    """Return a table; cells are plain text, markup in them is not interpreted."""
    from rich.table import Table
    from rich.text import Text

    made = Table(
        title=None if title is None else Text(title),
        title_justify="left",
        title_style="bold",
        box=None,
        header_style="dim",
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    for name, kind in columns:
        made.add_column(
            name,
            justify="right" if kind == "right" else "left",
            overflow="ellipsis" if kind == "line" else "fold",
            no_wrap=kind != "left",
            ratio=1 if kind == "line" else None,
        )
        made.expand = made.expand or kind == "line"  # a ratio needs a width to share
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made


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
