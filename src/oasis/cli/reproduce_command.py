"""``oasis reproduce`` and ``oasis report``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oasis.cli.console import Column, people, print_json, remark
from oasis.cli.console import table as table_of
from oasis.cli.options import AsJson
from oasis.cli.study_options import (
    Bits,
    Data,
    Jobs,
    Out,
    Seeds,
    as_document,
    counts,
    names,
    numbers,
    run_tasks,
    stop_if_failed,
)

if TYPE_CHECKING:
    from oasis.experiments.runner import Finished
    from oasis.experiments.task import Task


def reproduce(
    study: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[STUDY...]", help="Studies, such as studies/coco79.toml; or use --dataset."
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="Data sets: coco79, wiki, mirflickr, icons, synthetic@3000, the path of an .npz, "
            ".mat or .parquet file, or of a folder of pictures that ends in / ..."
        ),
    ] = None,
    setting: Annotated[
        str | None,
        typer.Option(
            help="Settings: first, second, third (the default is all three), a runbook, a "
            "scenario, or numbers: rounds-10, classes-3 (new in each round), apart-classes-3."
        ),
    ] = None,
    mapping: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            help="Variables of a file to read: image=I_tr,I_te or labels=L; may be repeated.",
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help="Methods, with optional parameters: oasis-paper+alpha=1; your own by import "
            "path: mypackage.mymodule:MyHasher."
        ),
    ] = "oasis-paper,oasis",
    bits: Bits = "16,32,64,128",
    seeds: Seeds = "1",
    data: Data = None,
    out: Out = Path("results"),
    jobs: Jobs = 1,
    tuned: Annotated[
        bool,
        typer.Option(
            "--tuned",
            help="Run each method as published and with what `oasis tune` has chosen in this "
            "folder, on the samples that were not used for tuning.",
        ),
    ] = False,
    neighbours: Annotated[
        bool, typer.Option("--neighbours", help="Also measure recall of float neighbours.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run methods over streams, or a study, and store the rows; what is there is kept.

    Several names are separated by commas. Repeat a stopped command to continue it.

    Example: oasis reproduce --dataset synthetic@2000 --setting first --method oasis,probe --bits 64
    """
    from oasis.datasets.own import with_mapping
    from oasis.experiments.task import SETTINGS, Grid, read_study

    if bool(study) == bool(dataset):
        raise typer.BadParameter("give a study or --dataset, one of them")
    grids: list[Grid] = []
    for path in study or ():
        plan = read_study(path)
        remark(f"{path}: {plan.about} Estimated: {plan.hours:g} processor hours.")
        grids += plan.grids
    if dataset:
        datasets = [with_mapping(name, mapping or []) for name in names(dataset)]
        settings = names(setting or "") or list(SETTINGS)
        options = {"neighbours": True} if neighbours else {}
        chosen = datasets, settings, names(method), numbers(bits), seeds
        grids = [Grid(*chosen, options=options, tuned=tuned)]
    finished = _run_in_order([(grid.tasks(), grid.tuned) for grid in grids], out, data, jobs)
    if as_json:
        print_json(as_document(finished, out))
    else:
        _print_table(finished)
        is_any = any(each.status != "failed" for each in finished)
        following = f"; next: oasis report {out} --out {out / 'report'}" if is_any else ""
        typer.echo(f"{counts(finished)}{following}")
    stop_if_failed(finished)


def _run_in_order(
    grids: list[tuple[list[Task], bool]], out: Path, data: Path | None, jobs: int
) -> list[Finished]:
    """Run tasks; tuned ones are known only when those before them are finished."""
    from oasis.experiments.tuning import tuned_tasks

    finished: list[Finished] = []
    waiting: list[Task] = []
    for tasks, with_tuned in grids:
        if with_tuned and waiting:
            finished += run_tasks(waiting, out, data, jobs)
            waiting = []
        waiting += tasks
        waiting += tuned_tasks(tasks, out) if with_tuned else []
    return finished + run_tasks(waiting, out, data, jobs)


def report(
    results: Annotated[
        Path,
        typer.Argument(metavar="RESULTS", help="A file or folder of `oasis reproduce`."),
    ],
    other: Annotated[
        Path | None, typer.Argument(metavar="[NEW]", help="With --compare: the newer results.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the report goes.")] = Path("report"),
    headline: Annotated[
        bool,
        typer.Option("--headline", help="Print the first table as Markdown; write nothing."),
    ] = False,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="List the cells of RESULTS that NEW has not, or that differ by more than the "
            "tolerance of their method; write nothing.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Turn results into tables (Markdown, CSV, LaTeX), figures, and one self-contained page.

    Example: oasis report reports/coco79.jsonl --out report
    """
    from oasis.experiments import report as page

    if compare != (other is not None):
        raise typer.BadParameter("--compare takes two results, everything else one")
    if compare and other is not None:
        _compare(results, other, as_json)
        return
    if headline:
        typer.echo(page.headline(results))
        return
    written = page.write_report(results, out)
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


def _compare(old: Path, new: Path, as_json: bool) -> None:
    from oasis.experiments.results import Results
    from oasis.experiments.results import compare as differing

    read = Results.read(old)
    found = differing(read, Results.read(new))
    if as_json:
        print_json([vars(each) for each in found])
    else:
        for each in found:
            typer.echo(str(each))
        same = f"the same: {len(read.rows)} rows, within the tolerance of each method"
        typer.echo(f"{len(found)} cells differ" if found else same)
    if found:
        raise typer.Exit(1)


def _print_table(finished: list[Finished]) -> None:
    """Print MAP at the last round, queries of that round, mean over seeds."""
    from oasis.experiments.methods import title_of
    from oasis.experiments.overview import mark_lines
    from oasis.experiments.results import Results
    from oasis.experiments.tables import Cells

    rows = [e.row for e in finished if e.task.kind == "stream" and e.status != "failed"]
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        own = [{"of": {}, **row} for row in rows if row["dataset"] == dataset]
        cells = Cells.of(Results(), dataset, own)
        lengths: list[int | None] = [*cells.bits]
        lengths += [None] if any(key[2] is None for key in cells.cells) else []
        titles = [f"{n_bits} bits" if n_bits else "no codes" for n_bits in lengths]
        columns: list[Column] = [("setting", "left"), ("method", "left")]
        columns += [(name, "right") for name in (*titles, "chance")]
        lines = []
        for setting in cells.settings:
            for variant in cells.variants:
                here = [cells.cells.get((setting, variant, n)) for n in lengths]
                found = [None if cell is None else cell.last("new", "expected") for cell in here]
                chance = next((c.last("new", "chance") for c in here if c is not None), None)
                # means alone: with intervals, which the report has, a line would pass 80 columns
                texts = ["" if e is None else f"{e.mean:.3f}" for e in (*found, chance)]
                if any(texts):
                    lines.append([setting, title_of(variant), *texts])
        title = f"{dataset}: MAP at the last round, queries of that round"
        people().print(table_of(columns, lines, title))
        for n_bits in cells.bits:
            for line in mark_lines(cells, n_bits):
                people().print(f"{n_bits} bits, {line.removeprefix('† ')}", markup=False)
