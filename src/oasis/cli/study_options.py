"""What the commands of experiments share: options, lists in texts, and running tasks with a bar."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oasis.cli.console import print_json, progress_of, remark

if TYPE_CHECKING:
    from oasis.experiments.runner import Event, Finished
    from oasis.experiments.task import Task

DataSets = Annotated[
    str,
    typer.Option(
        help="Data sets: coco79, wiki, mirflickr, icons, synthetic@3000, the path of an .npz, "
        ".mat or .parquet file, or of a folder of pictures that ends in / ..."
    ),
]
Bits = Annotated[str, typer.Option(help="Code lengths.")]
Seeds = Annotated[
    str, typer.Option(help="Seeds: a number of them from 0, or a list such as 20-24 or 0,7.")
]
Data = Annotated[
    Path | None, typer.Option(help="Folder of data files; $OASIS_DATA or ./data by default.")
]
Out = Annotated[Path, typer.Option(help="Results folder.")]
Jobs = Annotated[int, typer.Option(help="Processes.", min=1)]


def names(text: str) -> list[str]:
    """Return the names in a list with commas.

    >>> names("oasis, lemon,")
    ['oasis', 'lemon']
    """
    return [name.strip() for name in text.split(",") if name.strip()]


def numbers(text: str, option: str = "--bits") -> list[int]:
    """Return the whole numbers in a list with commas."""
    try:
        return [int(name) for name in names(text)]
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is not a list of whole numbers, such as 16,64", param_hint=option
        ) from error


def run_tasks(tasks: Sequence[Task], out: Path, data: Path | None, jobs: int) -> list[Finished]:
    """Run tasks with a bar on standard error; each failed one is a line there."""
    from oasis.experiments.runner import Finished, RoundDone, run

    share = 0.0  # of the running task; with several jobs, of the one that told last

    def told(event: Event) -> None:
        nonlocal share
        if isinstance(event, RoundDone):  # measuring comes after the last one
            now = max(share, event.n_done / (event.n_steps + 1))
            advance(now - share, f"{event.task.key}  {event.n_done} of {event.n_steps}")
            share = now
        elif isinstance(event, Finished):
            advance(1.0 - share, event.task.key)
            share = 0.0
            if not sys.stderr.isatty():
                remark(f"{event.task.key} {event.status}")
        else:
            remark(f"note: {event.text}")

    with progress_of("starting", len(tasks)) as advance:
        finished = run(tasks, out, data=data, jobs=jobs, listener=told)
    for each in finished:
        if each.status == "failed":
            remark(f"error: {each.task.key}: {each.row['error']}")
    return finished


def counts(finished: Sequence[Finished]) -> str:
    """Return how many tasks were computed, kept and failed."""
    found = {"computed": 0, "kept": 0, "failed": 0}
    for each in finished:
        found[each.status] += 1
    tasks = "1 task: " if len(finished) == 1 else f"{len(finished)} tasks: "
    return tasks + ", ".join(f"{n} {name}" for name, n in found.items() if n)


def show(
    finished: Sequence[Finished], out: Path, as_json: bool, title: str, kind: str = "stream"
) -> None:
    """Print the tables of a kind of study, or the rows as JSON; exit code 1 if a task failed."""
    from oasis.experiments.report import markdown, sections_of
    from oasis.experiments.results import Results

    if as_json:
        print_json(as_document(finished, out))
    else:
        keys = {each.task.key for each in finished}
        for name in dict.fromkeys(each.row["dataset"] for each in finished):
            found = Results.read(out / f"{name}.jsonl")
            rows = {key: row for key, row in found.rows.items() if key in keys}
            sections = sections_of(Results(rows, found.facts), [kind])
            typer.echo(markdown(title, (), sections))
    stop_if_failed(finished)


def stop_if_failed(finished: Sequence[Finished]) -> None:
    """End the command with exit code 1 if a task failed."""
    if any(each.status == "failed" for each in finished):
        raise typer.Exit(1)


def as_document(finished: Sequence[Finished], out: Path) -> dict[str, Any]:
    """Return what ``--json`` prints: the rows, with their status."""
    return {"out": str(out), "rows": [{"status": each.status, **each.row} for each in finished]}
