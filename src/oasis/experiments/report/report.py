"""From summaries to a report: Markdown, CSV tables, figures, and one page that holds it all."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from oasis.errors import FormatError, InputError
from oasis.experiments.measure.cells import Key, Results, shown_variant
from oasis.experiments.measure.queries import QUERIES, Difference, QueryScores, read_queries
from oasis.experiments.measure.summaries import FOLDER, Summary, read_summaries
from oasis.experiments.measure.traces import Trace, read_traces
from oasis.experiments.report import csvfiles, studies, tables
from oasis.experiments.report.beyond import beyond_sections
from oasis.experiments.report.canvas import Drawing, check_available
from oasis.experiments.report.figures import draw
from oasis.experiments.report.headline import (
    better_variants,
    compact_table,
    difference_table,
    differences,
    headline_table,
    mark_lines,
    verdict_lines,
)
from oasis.experiments.report.html_page import ReportPart, ReportSection, page
from oasis.experiments.report.table import Table
from oasis.experiments.report.tuned import tuning_table
from oasis.experiments.tuning import TuningRecord, read_records
from oasis.store import replacing

_TITLE = "Online multi-modal hashing: results"
_SUITES = {
    "methods": "Training time of a round of 2,000 samples at MIRFlickr's shapes, 16 bits, all "
    "methods side by side in one run; the features are generated. Ratios are to FOMH; the paper's "
    "Table 2 beside them.",
}
_LINES = (
    "MAP over the whole base; two samples are similar when they share a label, and a query with no "
    "similar item counts 0. Chance is the MAP of a random order. Mean over seeds, ± one "
    "standard deviation.",
)


Scores: TypeAlias = Mapping[Key, Mapping[int, QueryScores]]
"""Average precision per query, by cell and seed."""


@dataclass(frozen=True)
class WrittenReport:
    """Paths of a written report."""

    page: Path
    markdown: Path
    tables: tuple[Path, ...]
    figures: tuple[Path, ...]


def write_report(folder: Path, out: Path, benchmarks: Path | None = None) -> WrittenReport:
    """Turn the summaries of a results folder into a report.

    Parameters
    ----------
    folder : results folder of `oasis.experiments.grid.reproduce` or
        `oasis.experiments.beyond.grid.inquire`, or a folder of summaries; it is only read
    out : folder for ``report.html``, ``report.md``, ``tables/*.csv``, ``tables/*.tex`` and
        ``figures/*.png``; files of the same names are replaced
    benchmarks : results file of ``python -m benchmarks``, to be included in the report

    Raises
    ------
    MissingExtraError
        Without matplotlib, before anything is written.
    """
    check_available()
    asked = beyond_sections(folder)
    summaries = [] if asked and not (folder / FOLDER).is_dir() else read_summaries(folder)
    results = Results.of(summaries)
    traces = read_traces(folder)
    more = [] if benchmarks is None else [_benchmark_section(benchmarks)]
    scores = _query_scores(folder, summaries)
    records = read_records(folder)
    compared = {
        each: differences(results, scores, each, results.shown_bits(each))
        for each in results.datasets
    }
    sections = [
        _section(results, summaries, traces, compared[each], records, each)
        for each in results.datasets
    ]
    sections += [*asked, *more]
    texts = {
        out / "report.html": page(_TITLE, _LINES, sections),
        out / "report.md": _markdown(sections),
        out / "tables" / "last-round.csv": csvfiles.last_round_csv(results),
        out / "tables" / "by-round.csv": csvfiles.by_round_csv(results),
        out / "tables" / "forgetting.csv": csvfiles.forgetting_csv(results),
        out / "tables" / "classes.csv": studies.classes_csv(results),
        out / "tables" / "precision-recall.csv": studies.curves_csv(results),
        out / "tables" / "sensitivity.csv": studies.sensitivity_csv(results),
        out / "tables" / "convergence.csv": studies.convergence_csv(traces),
        out / "tables" / "differences.csv": csvfiles.differences_csv(compared),
        out / "tables" / "search.csv": csvfiles.search_csv(results),
        **_latex_files(sections, out / "tables"),
    }
    pictures = {
        out / "figures" / f"{drawing.name}.png": drawing.png
        for section in sections
        for part in section.parts
        for drawing in part.drawings
    }
    files = {**pictures, **{path: text.encode() for path, text in texts.items()}}
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_bytes(content)
    html, markdown, *csvs = texts
    return WrittenReport(html, markdown, tuple(csvs), tuple(pictures))


def _section(
    results: Results,
    summaries: Sequence[Summary],
    traces: Sequence[Trace],
    compared: Mapping[str, tuple[str, Mapping[str, Difference]]],
    records: Sequence[TuningRecord],
    dataset: str,
) -> ReportSection:
    own = [summary for summary in summaries if summary.run.key.parts[0] == dataset]
    drawn = draw(results, dataset) | studies.draw_studies(results, dataset, traces)

    def pick(*keys: str) -> tuple[Drawing, ...]:
        return tuple(drawn[key] for key in keys if key in drawn)

    bytes_table, class_table = (
        tables.bytes_table(results, dataset),
        studies.class_table(results, dataset),
    )
    parts = (
        ReportPart(
            "At a glance",
            (*mark_lines(results, dataset), *verdict_lines(compared)),
            (),
            (headline_table(results, dataset), difference_table(compared)),
        ),
        ReportPart(
            "Quality",
            (),
            pick("by-round", "by-bits"),
            tuple(tables.map_tables(results, dataset)),
        ),
        ReportPart("At the same bytes", (), (), (bytes_table,) if bytes_table.rows else ()),
        ReportPart(
            "New and old",
            (),
            pick("by-round-all", "forgetting"),
            tuple(tables.forgetting_tables(results, dataset)),
            n_open=0,
        ),
        ReportPart(
            "Search results", (), (), tuple(tables.lookup_tables(results, dataset)), n_open=0
        ),
        ReportPart("Classes", (), pick("classes"), (class_table,) if class_table.rows else ()),
        ReportPart("Precision and recall", (), pick("curves")),
        ReportPart("Parameters and convergence", (), pick("sensitivity", "loss", "loss-map")),
        ReportPart("Time", (), pick("time"), tuple(tables.time_tables(results, dataset)), n_open=0),
        ReportPart("Tuning", (), (), (tuning_table(records, dataset),)),
        ReportPart("Methods", (), (), tuple(tables.method_tables(results, dataset))),
    )
    some = [replace(part, tables=tuple(t for t in part.tables if t.rows)) for part in parts]
    filled = tuple(part for part in some if part.drawings or part.tables)
    return ReportSection(
        dataset, (_about_data(own[0].about["dataset"]), _about_machine(own)), filled
    )


def headline(folder: Path, n_bits: int | None = None) -> str:
    """Return the short form of a report's first table as Markdown, for each data set of a folder.

    Parameters
    ----------
    n_bits : code length; by default 64, or the longest available
    """
    results = Results.of(read_summaries(folder))
    parts = []
    for dataset in results.datasets:
        length = results.shown_bits(dataset) if n_bits is None else n_bits
        lines = mark_lines(results, dataset, length, better_variants(results, dataset, length))
        table = compact_table(results, dataset, length).markdown()
        parts.append("\n".join([f"#### {dataset}\n", table, *(f"{line}\n" for line in lines)]))
    return "\n".join(parts)


def _query_scores(folder: Path, summaries: Sequence[Summary]) -> Scores:
    """Read the average precisions that are stored beside the summaries, as far as they exist."""
    found: dict[Key, dict[int, QueryScores]] = {}
    for summary in summaries:
        run = summary.run
        path = folder / QUERIES / f"{run.key}.npz"
        if not path.is_file():
            path = folder.parent / QUERIES / f"{run.key}.npz"
        if path.is_file():
            dataset, setting, *_ = run.key.parts
            key = dataset, setting, shown_variant(run), run.n_bits
            found.setdefault(key, {})[run.seed] = read_queries(path)
    return found


def _latex_files(sections: Sequence[ReportSection], folder: Path) -> dict[Path, str]:
    """Return one LaTeX file for every table of a data set, named after its title or part."""
    files: dict[Path, str] = {}
    for section in sections:
        for part in section.parts:
            for table in part.tables:
                words = re.findall(
                    r"[a-z0-9]+", f"{section.name} {table.title or part.name}".lower()
                )
                files[folder / f"{'-'.join(words)}.tex"] = table.latex()
    return files


def _about_data(described: dict[str, Any]) -> str:
    widths = ", ".join(f"{name} {width:,}" for name, width in described["n_features"].items())
    made = "Generated data. " if described["name"].startswith("synthetic-") else ""
    return (
        f"{made}{described['n_samples']:,} samples, {described['n_classes']} classes, "
        f"{described['labels_per_sample']:.2f} labels a sample; features: {widths}."
    )


def _about_machine(summaries: Sequence[Summary]) -> str:
    kinds = {
        (
            f"{machine['processor']}, cores: {machine['cores']}, threads of a run: "
            f"{machine['threads']}; Python {versions['python']}, oasis {versions['oasis']}, "
            f"NumPy {versions['numpy']}, SciPy {versions['scipy']}"
        )
        for machine, versions in ((s.about["machine"], s.about["versions"]) for s in summaries)
    }
    return f"{len(summaries)} runs. Computed with {'; or '.join(sorted(kinds))}."


def _benchmark_section(path: Path) -> ReportSection:
    try:
        suites = json.loads(path.read_text("utf-8"))
        made = {
            name: Table(
                "",
                "",
                ("measurement", "value", "ratio", "note"),
                tuple(
                    (
                        row["name"],
                        f"{row['value']:.4g} {row['unit']}",
                        "" if row["ratio"] is None else f"{row['ratio']:.3g}",
                        row["note"],
                    )
                    for row in suite["rows"]
                ),
                n_names=1,
            )
            for name, suite in suites.items()
        }
    except FileNotFoundError as error:
        raise InputError(f"no benchmarks at {path}; run `python -m benchmarks` first") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise FormatError(f"{path} does not hold benchmarks: {error!r}") from error
    parts = tuple(
        ReportPart(name, (_SUITES.get(name, ""),), (), (each,)) for name, each in made.items()
    )
    return ReportSection("Benchmarks", ("Speed and memory, measured apart from the runs.",), parts)


def _markdown(sections: Sequence[ReportSection]) -> str:
    parts = [f"# {_TITLE}\n", *(f"{line}\n" for line in _LINES)]
    for section in sections:
        parts.append(f"## {section.name}\n")
        parts += [f"{line}\n" for line in section.lines]
        for part in section.parts:
            parts.append(f"### {part.name}\n")
            parts += [f"{line}\n" for line in part.lines if line]
            parts += [
                f"![{drawing.title}](figures/{drawing.name}.png)\n\n{drawing.caption}\n"
                for drawing in part.drawings
            ]
            parts += [table.markdown() for table in part.tables]
    return "\n".join(parts)
