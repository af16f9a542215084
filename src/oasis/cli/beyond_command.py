"""``oasis beyond``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oasis.cli.console import print_json, remark
from oasis.cli.options import AsJson

if TYPE_CHECKING:
    from oasis.experiments.beyond.grid import Done


def beyond(
    dataset: Annotated[
        str, typer.Option(help="Data sets: coco79, icons, wiki, synthetic@3000, an .npz path ...")
    ],
    method: Annotated[
        str,
        typer.Option(
            help="Methods, with optional parameters: oasis+owned=16; your own by import path."
        ),
    ] = "oasis,oasis-paper,lemon,itq,float-cosine",
    bits: Annotated[str, typer.Option(help="Code lengths.")] = "64,128",
    features: Annotated[
        str,
        typer.Option(
            help="Modalities: own, or names joined by +, such as image+meaning (the meaning of "
            "each item's text) or image+text+meaning."
        ),
    ] = "own",
    seeds: Annotated[int, typer.Option(help="Number of seeds, from 0.", min=1)] = 1,
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
    data: Annotated[
        Path | None, typer.Option(help="Folder of data files; $OASIS_DATA or ./data by default.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Results folder.")] = Path("results"),
    jobs: Annotated[int, typer.Option(help="Processes.", min=1)] = 1,
    as_json: AsJson = False,
) -> None:
    """Measure what codes hold beyond the labels: finer classes, classes never labelled, the item
    itself, words, and texts of pictures that have none.

    Several names are separated by commas. Existing results are kept; repeat a stopped command to
    continue it. Prints Markdown tables, and writes them to beyond.md and beyond.html in the results
    folder; `oasis report` has them too.

    Example: oasis beyond --dataset icons --method oasis,itq,float-cosine --bits 64 --quick
    """
    from oasis.cli.progress import progress_of
    from oasis.experiments.beyond.grid import inquire
    from oasis.experiments.beyond.inquiries import Plan
    from oasis.experiments.beyond.protocols import FULL, QUICK
    from oasis.experiments.report.beyond import write_beyond

    plan = Plan(
        _names(dataset),
        _names(features),
        _names(method),
        [int(n) for n in _numbers(bits, "--bits")],
        seeds,
        QUICK if quick else FULL,
        tuple(_numbers(content or "", "--content")),
    )
    with progress_of("beyond the labels", len(plan.inquiries())) as advance:
        told: set[str] = set()

        def note(done: Done) -> None:
            if done.notice and done.notice not in told:
                remark(f"note: {done.notice}")
                told.add(done.notice)
            advance(1)

        found = inquire(plan, out, data=data, jobs=jobs, listener=note)
    written = write_beyond(out)
    if as_json:
        outcomes = [{"status": each.status, **each.outcome.as_dict()} for each in found]
        print_json({"out": str(out), "outcomes": outcomes})
    else:
        typer.echo(written[0].read_text("utf-8"))


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _numbers(text: str, option: str) -> list[float]:
    try:
        return [float(name) for name in _names(text)]
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a list of numbers", param_hint=option) from error
