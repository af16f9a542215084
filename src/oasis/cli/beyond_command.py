"""``oasis beyond``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oasis.cli.options import AsJson
from oasis.cli.study_options import (
    Bits,
    Data,
    DataSets,
    Jobs,
    Out,
    Seeds,
    names,
    numbers,
    run_tasks,
    show,
)


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
