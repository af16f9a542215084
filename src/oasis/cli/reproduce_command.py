"""``oasis reproduce`` and ``oasis report``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oasis.cli.console import Column, people, print_json, remark
from oasis.cli.console import table as table_of

if TYPE_CHECKING:
    from rich.progress import Progress

    from oasis.experiments.grid import Event, Finished
    from oasis.experiments.measure.cells import Results


def reproduce(
    dataset: Annotated[
        str,
        typer.Option(
            help="Data sets: coco79, wiki, mirflickr, icons, synthetic@3000, the path of an .npz, "
            ".mat or .parquet file, or of a folder of pictures that ends in / ..."
        ),
    ],
    setting: Annotated[
        str | None,
        typer.Option(
            help="Settings: first, second, third (the default is all three), or a runbook."
        ),
    ] = None,
    mapping: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            help="Variables of a file to read: image=I_tr,I_te or labels=L; may be repeated.",
        ),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="A setting of your own: number of rounds.", min=1)
    ] = None,
    new_classes_a_round: Annotated[
        int | None,
        typer.Option(help="A setting of your own: number of new classes in each round.", min=1),
    ] = None,
    apart: Annotated[
        bool,
        typer.Option(
            "--apart",
            help="With one of the last two: samples of a round have its new classes only.",
        ),
    ] = False,
    method: Annotated[
        str,
        typer.Option(
            help="Methods, with optional parameters: oasis-paper+alpha=1; your own by import "
            "path: mypackage.mymodule:MyHasher."
        ),
    ] = "oasis-paper,oasis",
    bits: Annotated[str, typer.Option(help="Code lengths.")] = "16,32,64,128",
    seeds: Annotated[int, typer.Option(help="Number of seeds, from 0.", min=1)] = 1,
    data: Annotated[
        Path | None, typer.Option(help="Folder of data files; $OASIS_DATA or ./data by default.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Results folder.")] = Path("results"),
    jobs: Annotated[int, typer.Option(help="Processes.", min=1)] = 1,
    tuned: Annotated[
        bool,
        typer.Option(
            "--tuned", help="Also run each method with what `oasis tune` has chosen in this folder."
        ),
    ] = False,
    iterations: Annotated[
        int | None,
        typer.Option(
            help="Also trace loss and MAP over this many iterations (oasis-paper, seed 0).", min=1
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Run methods over streams and store the results; existing results are kept.

    Several names are separated by commas. Repeat a stopped command to continue it.

    Example: oasis reproduce --dataset synthetic@2000 --setting first --method oasis,probe --bits 64
    """
    from oasis.datasets.own import with_mapping
    from oasis.experiments.grid import reproduce as carry_out
    from oasis.experiments.grid import trace_runs
    from oasis.experiments.run.definition import SETTINGS, Grid, numbered_setting

    datasets = [with_mapping(name, mapping or []) for name in _names(dataset)]
    settings = _names(setting or "")
    if rounds is not None or new_classes_a_round is not None:
        settings.append(numbered_setting(rounds, new_classes_a_round, apart))
    settings = settings or list(SETTINGS)
    grid = Grid(datasets, settings, _names(method), _numbers(bits), seeds)
    runs = grid.runs()
    if tuned:
        from oasis.experiments.tuning import tuned_runs

        runs += list(tuned_runs(runs, out))
    with _progress() as progress:
        bar = _Bar(progress, len(runs))
        finished = carry_out(runs, out, data=data, jobs=jobs, listener=bar)
        if iterations is not None:
            tracing = _Bar(progress, len(runs), note=" traced")
            trace_runs(runs, out, iterations, data=data, listener=tracing)
    if as_json:
        print_json({"out": str(out), "runs": [_row(each) for each in finished]})
    else:
        _print_table(finished)
        is_any = any(each.status != "failed" for each in finished)
        following = f"; next: oasis report {out} --out {out / 'report'}" if is_any else ""
        typer.echo(f"{_counts(finished)}{following}")
    failed = [each for each in finished if each.status == "failed"]
    for each in failed:
        remark(f"error: {each.run.key}: {each.error}")
    if failed:
        raise typer.Exit(1)


def report(
    results: Annotated[
        Path,
        typer.Argument(
            metavar="RESULTS", help="What `oasis reproduce` has written, or its summaries."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Where the report goes.")] = Path("report"),
    benchmarks: Annotated[
        Path | None, typer.Option(help="benchmarks/results.json, to be added to the report.")
    ] = None,
    headline: Annotated[
        bool,
        typer.Option(
            "--headline",
            help="Print the first table, one row per method, as Markdown; write nothing.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Turn results into tables (Markdown, CSV, LaTeX), figures, and one self-contained page.

    Example: oasis report results --out report
    """
    from oasis.experiments.report.report import headline as first_table
    from oasis.experiments.report.report import write_report

    if headline:
        typer.echo(first_table(results))
        return
    with _progress() as progress:
        progress.add_task("drawing", total=None)
        written = write_report(results, out, benchmarks)
    if as_json:
        paths = {
            "page": str(written.page),
            "markdown": str(written.markdown),
            "tables": [str(path) for path in written.tables],
            "figures": [str(path) for path in written.figures],
        }
        print_json(paths)
    else:
        typer.echo(str(written.page))


class _Bar:
    """A bar that counts runs, moves with every round, and says what happens."""

    def __init__(self, progress: Progress, n_runs: int, note: str = "") -> None:
        self._progress, self._note = progress, note
        self._task = progress.add_task("starting", total=n_runs)
        self._shares: dict[str, float] = {}

    def __call__(self, event: Event) -> None:
        from oasis.experiments.grid import Finished, RoundDone

        key = str(event.run.key)
        console = self._progress.console
        if isinstance(event, RoundDone):
            # measuring comes after the last round
            self._advance(key, event.n_done / (event.n_rounds + 1))
            text = f"{key}  round {event.n_done} of {event.n_rounds}"
            self._progress.update(self._task, description=text)
        elif isinstance(event, Finished):
            self._advance(key, 1.0)
            if not console.is_terminal:
                console.print(f"{key}{self._note} {event.status}", highlight=False, soft_wrap=True)
        else:
            console.print(f"note: {event.text}", highlight=False, soft_wrap=True, markup=False)

    def _advance(self, key: str, share: float) -> None:
        before = self._shares.get(key, 0.0)
        self._shares[key] = max(share, before)  # another process's rounds may be told late
        self._progress.advance(self._task, self._shares[key] - before)


def _progress() -> Progress:
    """Return a bar on standard error, so that standard output is the answer alone."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from oasis.cli.progress import TerminalProgress

    return TerminalProgress(
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
        console=Console(file=sys.stderr),
        transient=True,
        # the speed of the whole grid: single runs differ a hundredfold
        speed_estimate_period=1e9,
    )


def _print_table(finished: list[Finished]) -> None:
    """Print MAP at the last round, queries of that round, mean over seeds."""
    from oasis.experiments.measure.cells import Results, title_of
    from oasis.experiments.report.headline import mark_lines

    summaries = [each.summary for each in finished if each.summary is not None]
    if not summaries:
        return
    results = Results.of(summaries)
    for dataset in results.datasets:
        lengths: list[int | None] = list(results.bits(dataset))
        lengths += [None] if results.has_rankers(dataset) else []
        names = [f"{n_bits} bits" if n_bits else "no codes" for n_bits in lengths]
        columns: list[Column] = [("setting", "left"), ("method", "left")]
        columns += [(name, "right") for name in (*names, "chance")]
        rows = [
            [setting, title_of(variant), *_figures(results, dataset, setting, variant, lengths)]
            for setting in results.settings(dataset)
            for variant in results.variants(dataset, setting)
        ]
        title = f"{dataset}: MAP at the last round, queries of that round"
        people().print(table_of(columns, rows, title))
        for n_bits in results.bits(dataset):
            for line in mark_lines(results, dataset, n_bits):
                people().print(f"{n_bits} bits, {line.removeprefix('† ')}", markup=False)


def _figures(
    results: Results, dataset: str, setting: str, variant: str, bits: list[int | None]
) -> list[str]:
    """Return means alone: with deviations, which the report has, a line would pass 80 columns."""
    cells = [results.cells.get((dataset, setting, variant, n)) for n in bits]
    found = [None if cell is None else cell.last("new", "expected") for cell in cells]
    found.append(next((cell.last("new", "chance") for cell in cells if cell is not None), None))
    return ["" if each is None else f"{each.mean:.3f}" for each in found]


def _counts(finished: list[Finished]) -> str:
    counts = {"computed": 0, "measured": 0, "kept": 0, "failed": 0}
    for each in finished:
        counts[each.status] += 1
    runs = "1 run: " if len(finished) == 1 else f"{len(finished)} runs: "
    return runs + ", ".join(f"{n} {name}" for name, n in counts.items() if n)


def _row(each: Finished) -> dict[str, object]:
    row: dict[str, object] = {"key": str(each.run.key), "status": each.status}
    if each.summary is None:
        return {**row, "error": each.error}
    new = each.summary.last.new
    return {
        **row,
        "map": None if new is None else new.expected,
        "chance": None if new is None else new.chance,
        "train_seconds": each.summary.train_seconds,
        "measure_seconds": each.summary.measure_seconds,
    }


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _numbers(text: str) -> list[int]:
    try:
        return [int(name) for name in _names(text)]
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is not a list of whole numbers, such as 16,64", param_hint="--bits"
        ) from error
