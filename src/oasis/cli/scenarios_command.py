"""``oasis scenarios``."""

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

_QUICK_SAMPLES = 1000


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
