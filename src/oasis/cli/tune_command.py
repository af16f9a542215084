"""``oasis tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oasis.cli.console import people, print_json
from oasis.cli.console import table as table_of


def tune(
    dataset: Annotated[str, typer.Option(help="Data sets, as for `oasis reproduce`.")],
    setting: Annotated[
        str, typer.Option(help="Settings: first, second, third, or a runbook.")
    ] = "first,second,third",
    method: Annotated[
        str, typer.Option(help="Methods.")
    ] = "oasis,oasis-paper,lemon,thor,iw-omh,fomh,omh-dq,sapmh",
    bits: Annotated[
        int, typer.Option(help="Code length to tune at; other lengths use the same choice.")
    ] = 64,
    trials: Annotated[int, typer.Option(help="Trials of each method.", min=1)] = 24,
    rounds: Annotated[int, typer.Option(help="Rounds of the stream to tune on.", min=1)] = 2,
    samples: Annotated[
        int, typer.Option(help="Largest number of samples to tune on.", min=10)
    ] = 4000,
    seeds: Annotated[
        int,
        typer.Option(
            help="Number of seeds of the table; queries of all of them are left out.", min=1
        ),
    ] = 3,
    data: Annotated[
        Path | None, typer.Option(help="Folder of data files; $OASIS_DATA or ./data by default.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Results folder.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Choose parameters on a part of the stream without queries, with equal trials per method.

    The grids are declared in oasis.experiments.tuning. Trials are stored in OUT/tuning and not
    repeated; `oasis reproduce --tuned --out OUT` then runs every method as published and tuned.

    Example: oasis tune --dataset wiki --method thor,lemon --trials 8
    """
    from oasis.cli.progress import progress_of
    from oasis.experiments.run.definition import Grid, load_dataset
    from oasis.experiments.tuning import (
        read_record,
        record_path,
        trial_parameters,
        tune,
        validation_part,
        write_record,
    )

    grid = Grid(_names(dataset), _names(setting), _names(method), [bits], 1)
    runs = grid.runs()
    records = []
    points = {run.method: trial_parameters(run.method, trials) for run in runs}
    total = sum(len(points[run.method]) for run in runs)
    with progress_of("tuning", total) as advance:
        loaded, part, before = None, None, ("", "")
        for run in runs:
            path = record_path(out, run)
            asked = points[run.method]
            if path.is_file() and [t.parameters for t in read_record(path).trials] == asked:
                advance(len(asked))
            else:
                if loaded is None or before[0] != run.dataset:
                    loaded = load_dataset(run.dataset, data)
                if part is None or before != (run.dataset, run.setting):
                    part = validation_part(
                        loaded,
                        run.dataset,
                        run.setting,
                        n_seeds=seeds,
                        n_rounds=rounds,
                        n_samples=samples,
                    )
                before = run.dataset, run.setting
                record = tune(run, loaded, part, trials, lambda done, of: advance(1))
                write_record(path, record)
            records.append(read_record(path))
    if as_json:
        print_json([record.as_dict() for record in records])
        return
    rows = [
        [
            *(each.dataset, each.setting, each.method, str(len(each.trials))),
            *("" if t.map is None else f"{t.map:.3f}" for t in (each.published, each.chosen)),
            ", ".join(f"{name}={value}" for name, value in each.chosen.parameters)
            or "as published",
        ]
        for each in records
    ]
    columns = ("data", "setting", "method", "trials", "published", "chosen", "parameters")
    people().print(table_of([(name, "left") for name in columns], rows))
    typer.echo(f"next: oasis reproduce --tuned --out {out}, with the same picks")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
