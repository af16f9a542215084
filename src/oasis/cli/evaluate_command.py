"""``oasis evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oasis.cli.console import people, print_json, remark
from oasis.cli.console import table as table_of
from oasis.cli.options import AsJson


def evaluate(
    codes: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="Codes or scores, and labels: .npz, .mat, .parquet."
        ),
    ],
    mapping: Annotated[
        list[str] | None,
        typer.Option(
            "--map", help="NAME=VARIABLE, or several variables with commas; may be repeated."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the method in tables; the file's stem by default.")
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="Name of the data set; files with the same name are compared."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Results folder; the report goes into its folder report.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure codes that were computed elsewhere; with --out, write a report with figures.

    A file holds base_codes and query_codes (packed bytes, bits, signs or real values) or scores,
    base_labels and query_labels; --map says which variables they are if they have other names.
    Several files with one --name are the seeds of one method.

    Example: oasis evaluate codes.mat --map query_codes=Bq --map base_codes=Bb --out results
    """
    from oasis.datasets.own import parse_mapping
    from oasis.experiments.given import evaluate as judge
    from oasis.experiments.given import evaluation_table

    pairs = parse_mapping(mapping or [])
    rows = [
        judge(path, pairs, method=name, dataset=dataset, seed=seed if name else 0, out=out)
        for seed, path in enumerate(codes)
    ]
    if as_json:
        print_json(rows)
    else:
        for row in rows:
            made = evaluation_table(row)
            people().print(
                table_of([("measure", "left"), ("value", "right")], made.rows, made.title)
            )
    if out is not None:
        from oasis.experiments.report import write_report

        remark(str(write_report(out, out / "report").page))
