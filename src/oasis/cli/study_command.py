"""``oasis reproduce``, ``tune``, ``beyond`` and ``scenarios``: from tasks to tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oasis.cli.console import Column, people, print_json, progress_of, remark
from oasis.cli.console import table as table_of
from oasis.cli.options import AsJson

if TYPE_CHECKING:
    from oasis.experiments.runner import Event, Finished
    from oasis.experiments.task import Task

_QUICK_SAMPLES = 1000

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


def tune(
    dataset: DataSets,
    setting: Annotated[
        str, typer.Option(help="Settings: first, second, third, or a runbook.")
    ] = "first,second,third",
    method: Annotated[
        str, typer.Option(help="Methods.")
    ] = "oasis,oasis-paper,lemon,thor,iw-omh,hcfw,doch,choice,fomh,omh-dq,sapmh",
    bits: Annotated[
        int, typer.Option(help="Code length to tune at; other lengths use the same choice.")
    ] = 64,
    trials: Annotated[int, typer.Option(help="Trials of each method.", min=1)] = 24,
    data: Data = None,
    out: Out = Path("results"),
    jobs: Jobs = 1,
    as_json: AsJson = False,
) -> None:
    """Choose parameters on validation samples, with equal trials per method.

    A fifth of the data, at most 4,000 samples, is taken out for it before any stream is dealt;
    `oasis reproduce --tuned --out OUT` then runs every method as published and tuned on the rest.

    Example: oasis tune --dataset wiki --method thor,lemon --trials 8
    """
    from oasis.experiments.task import Grid

    grid = Grid(
        names(dataset), names(setting), names(method), [bits], 1, "tuning", {"trials": trials}
    )
    finished = run_tasks(grid.tasks(), out, data, jobs)
    if not as_json:
        remark(f"next: oasis reproduce --tuned --out {out}, with the same picks")
    show(finished, out, as_json, "Tuning", "tuning")


def beyond(
    dataset: DataSets,
    method: Annotated[
        str,
        typer.Option(
            help="Methods, with optional parameters: oasis+content=64; your own by import path."
        ),
    ] = "oasis,oasis-search,oasis-paper,lemon,itq,float-cosine",
    bits: Bits = "64,128",
    features: Annotated[
        str,
        typer.Option(
            help="Modalities: own, or names joined by +, such as image+meaning (the meaning of "
            "each item's text) or image+text+meaning."
        ),
    ] = "own",
    seeds: Seeds = "1",
    content: Annotated[
        str | None,
        typer.Option(
            metavar="WEIGHTS",
            help="More weights of content in queries, from 0 to 1, for models with content bits; "
            "the default weight, 0 and 1 are always measured.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Two rounds of 1,000 and 100 queries: a first look.")
    ] = False,
    data: Data = None,
    out: Out = Path("results"),
    jobs: Jobs = 1,
    as_json: AsJson = False,
) -> None:
    """Measure what codes hold beyond the labels: finer classes, classes never labelled, the item
    itself, words, and texts of pictures that have none.

    Several names are separated by commas. What is there is kept; repeat a stopped command to
    continue it. Prints Markdown tables; `oasis report` has them too.

    Example: oasis beyond --dataset icons --method oasis,itq,float-cosine --bits 64 --quick
    """
    from oasis.experiments.episodes import FULL, QUICK, numbered
    from oasis.experiments.task import Grid

    for weight in names(content or ""):
        if not weight.replace(".", "", 1).isdigit() or not 0 <= float(weight) <= 1:
            raise typer.BadParameter(
                f"{content!r} is not a list of numbers from 0 to 1", param_hint="--content"
            )
    options: dict[str, bool | str] = {"quick": True} if quick else {}
    options |= {"content": content} if content else {}
    settings = [
        f"{each}/{name}" for each in names(features) for name in numbered(QUICK if quick else FULL)
    ]
    datasets = names(dataset)
    grid = Grid(datasets, settings, names(method), numbers(bits), seeds, "beyond", options)
    finished = run_tasks(grid.tasks(), out, data, jobs)
    show(finished, out, as_json, "Beyond the labels", "beyond")


def scenarios(
    dataset: DataSets,
    scenario: Annotated[str | None, typer.Option(help="Scenarios by name, all by default.")] = None,
    method: Annotated[
        str, typer.Option(help="Methods, with optional parameters: oasis+owned=16.")
    ] = "oasis-paper,oasis,lemon",
    bits: Bits = "64",
    seeds: Seeds = "1",
    samples: Annotated[
        int, typer.Option(help="Largest number of samples of a data set.", min=1)
    ] = 8000,
    data: Data = None,
    out: Out = Path("results"),
    jobs: Jobs = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="One seed, and at most 1,000 samples of a data set.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate methods on hard streams: single-class rounds, wrong labels and more.

    Several names are separated by commas. Prints Markdown tables, means over seeds.

    Example: oasis scenarios --dataset synthetic@1000 --scenario wrong-labels,tiny-rounds
    """
    from oasis.experiments.scenarios import settings_of
    from oasis.experiments.task import Grid

    settings = settings_of(names(scenario or ""))
    most = min(samples, _QUICK_SAMPLES) if quick else samples
    options = {"samples": most}
    chosen = names(method), numbers(bits), "1" if quick else seeds
    grid = Grid(names(dataset), settings, *chosen, options=options)
    finished = run_tasks(grid.tasks(), out, data, jobs)
    show(finished, out, as_json, "Hard streams")
