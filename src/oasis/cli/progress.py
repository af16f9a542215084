"""A progress bar on standard error, on a terminal only, so that nothing of it ends up in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text


@contextmanager
def progress_of(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar with items per second and time left; yields what to call with each advance."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        _Rate(),
        TimeRemainingColumn(compact=True),
    )
    with TerminalProgress(*columns, console=console) as bar:
        task = bar.add_task(what, total=total)

        def advance(n: int) -> None:
            bar.update(task, advance=n)

        yield advance


class TerminalProgress(Progress):
    """Bars that write nothing at all where there is no terminal.

    Some versions of rich end even a disabled bar with an empty line.
    """

    def start(self) -> None:
        if self.console.is_terminal:
            super().start()

    def stop(self) -> None:
        if self.console.is_terminal:
            super().stop()


class _Rate(TextColumn):
    """Items per second."""

    def __init__(self) -> None:
        super().__init__("")

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s", style="dim")
