"""``oasis report`` and ``oasis evaluate``: results as tables and a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oasis.cli.console import people, print_json, remark
from oasis.cli.console import table as table_of
from oasis.cli.options import AsJson


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
