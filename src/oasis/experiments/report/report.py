"""From summaries to a report: Markdown, CSV tables, figures, and one page that holds it all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oasis.errors import FormatError, InputError
from oasis.experiments.measure.cells import Results
from oasis.experiments.measure.summaries import FOLDER, Summary, read_summaries
from oasis.experiments.measure.traces import Trace, read_traces
from oasis.experiments.report import csvfiles, studies, tables
from oasis.experiments.report.beyond import beyond_sections
from oasis.experiments.report.canvas import Drawing, check_available
from oasis.experiments.report.figures import draw
from oasis.experiments.report.page import Part, Section, page
from oasis.experiments.report.tables import Table
from oasis.store import replacing

_TITLE = "Online multi-modal hashing: results"
_SUITES = {
    "methods": "Training time of a round of 2,000 samples at MIRFlickr's shapes, 16 bits, all "
    "methods side by side in one run; the features are generated. Ratios are to FOMH; the paper's "
    "Table 2 beside them.",
}
_LINES = (
    "MAP over the whole base; two samples are similar when they share a label, and a query with no "
    "similar item counts 0. Chance is what a random order gets. Mean over seeds, ± one standard "
    "deviation.",
)


@dataclass(frozen=True)
class Report:
    """Where a report was written."""

    page: Path
    markdown: Path
    tables: tuple[Path, ...]
    figures: tuple[Path, ...]


def write_report(folder: Path, out: Path, benchmarks: Path | None = None) -> Report:
    """Turn the summaries of a results folder into a report.

    Parameters
    ----------
    folder : what `oasis.experiments.grid.reproduce` or `oasis.experiments.beyond.grid.inquire` has
        written, or a folder of summaries; it is only read
    out : where ``report.html``, ``report.md``, ``tables/*.csv`` and ``figures/*.png`` go; files
        of the same names are replaced
    benchmarks : figures of ``python -m benchmarks``, to be told beside the results

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
    sections = [_section(results, summaries, traces, each) for each in results.datasets]
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
    return Report(html, markdown, tuple(csvs), tuple(pictures))


def _section(
    results: Results, summaries: Sequence[Summary], traces: Sequence[Trace], dataset: str
) -> Section:
    own = [summary for summary in summaries if summary.run.key.parts[0] == dataset]
    drawn = draw(results, dataset) | studies.draw_studies(results, dataset, traces)

    def pick(*keys: str) -> tuple[Drawing, ...]:
        return tuple(drawn[key] for key in keys if key in drawn)

    bytes_table, class_table = (
        tables.bytes_table(results, dataset),
        studies.class_table(results, dataset),
    )
    parts = (
        Part("At a glance", (), (), (tables.glance_table(results, dataset),)),
        Part(
            "Quality",
            (),
            pick("by-round", "by-bits"),
            tuple(tables.map_tables(results, dataset)),
        ),
        Part("At the same bytes", (), (), (bytes_table,) if bytes_table.rows else ()),
        Part(
            "New and old",
            (),
            pick("by-round-all", "forgetting"),
            tuple(tables.forgetting_tables(results, dataset)),
            n_open=0,
        ),
        Part("Classes", (), pick("classes"), (class_table,) if class_table.rows else ()),
        Part("Precision and recall", (), pick("curves")),
        Part("Parameters and convergence", (), pick("sensitivity", "loss", "loss-map")),
        Part("Time", (), pick("time"), tuple(tables.time_tables(results, dataset)), n_open=0),
        Part("Methods", (), (), tuple(tables.method_tables(results, dataset))),
    )
    filled = tuple(part for part in parts if part.drawings or part.tables)
    return Section(dataset, (_about_data(own[0].about["dataset"]), _about_machine(own)), filled)


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


def _benchmark_section(path: Path) -> Section:
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
    parts = tuple(Part(name, (_SUITES.get(name, ""),), (), (each,)) for name, each in made.items())
    return Section("Benchmarks", ("Speed and memory, measured apart from the runs.",), parts)


def _markdown(sections: Sequence[Section]) -> str:
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
