"""``oasis tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oasis.cli.console import remark
from oasis.cli.options import AsJson
from oasis.cli.study_options import (
    Data,
    DataSets,
    Jobs,
    Out,
    names,
    run_tasks,
    show,
)


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
