"""``oasis tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oasis.cli.console import people, print_json
from oasis.cli.console import table as table_of
from oasis.cli.options import AsJson
from oasis.cli.study_options import (
    Data,
    DataSets,
    Jobs,
    Out,
    as_document,
    names,
    run_tasks,
    stop_if_failed,
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
    from oasis.experiments.tuning import chosen

    grid = Grid(
        names(dataset), names(setting), names(method), [bits], 1, "tuning", {"trials": trials}
    )
    finished = run_tasks(grid.tasks(), out, data, jobs)
    if as_json:
        print_json(as_document(finished, out))
    else:
        rows = []
        for each in (one.row for one in finished if one.status != "failed"):
            best, published = chosen(each), each["trials"][0].get("map")
            given = ", ".join(f"{name}={value}" for name, value in best["parameters"].items())
            rows.append(
                [
                    *(each["dataset"], each["setting"], each["method"], str(len(each["trials"]))),
                    *(
                        "" if value is None else f"{value:.3f}"
                        for value in (published, best["map"])
                    ),
                    given or "as published",
                ]
            )
        columns = ("data", "setting", "method", "trials", "published", "chosen", "parameters")
        people().print(table_of([(name, "left") for name in columns], rows))
        typer.echo(f"next: oasis reproduce --tuned --out {out}, with the same picks")
    stop_if_failed(finished)
