"""From summaries to a report: Markdown, CSV tables, figures, and one page that holds it all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oasis.errors import FormatError, InputError
from oasis.experiments import tables
from oasis.experiments.cells import Results
from oasis.experiments.figures import check_available, draw
from oasis.experiments.page import Section, page
from oasis.experiments.summaries import Summary, read_summaries
from oasis.experiments.tables import Table
from oasis.store import replacing

_TITLE = "Online multi-modal hashing: results"
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
    folder : what `oasis.experiments.grid.reproduce` has written, or a folder of summaries; it is
        only read
    out : where ``report.html``, ``report.md``, ``tables/*.csv`` and ``figures/*.png`` go; files
        of the same names are replaced
    benchmarks : figures of ``python -m benchmarks``, to be told beside the results

    Raises
    ------
    MissingExtraError
        Without matplotlib, before anything is written.
    """
    check_available()
    summaries = read_summaries(folder)
    results = Results.of(summaries)
    more = [] if benchmarks is None else [_benchmark_section(benchmarks)]
    sections = [_section(results, summaries, dataset) for dataset in results.datasets] + more
    texts = {
        out / "report.html": page(_TITLE, _LINES, sections),
        out / "report.md": _markdown(sections),
        out / "tables" / "last-round.csv": tables.last_round_csv(results),
        out / "tables" / "by-round.csv": tables.by_round_csv(results),
        out / "tables" / "forgetting.csv": tables.forgetting_csv(results),
    }
    pictures = {
        out / "figures" / f"{drawing.name}.png": drawing.png
        for section in sections
        for drawing in section.drawings
    }
    files = {**pictures, **{path: text.encode() for path, text in texts.items()}}
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_bytes(content)
    html, markdown, *csvs = texts
    return Report(html, markdown, tuple(csvs), tuple(pictures))


def _section(results: Results, summaries: Sequence[Summary], dataset: str) -> Section:
    own = [summary for summary in summaries if summary.run.key.parts[0] == dataset]
    return Section(
        dataset,
        (_about_data(own[0].about["dataset"]), _about_machine(own)),
        tuple(draw(results, dataset)),
        tuple(tables.dataset_tables(results, dataset)),
    )


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
        made = tuple(
            Table(
                name,
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
        )
    except FileNotFoundError as error:
        raise InputError(f"no benchmarks at {path}; run `python -m benchmarks` first") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise FormatError(f"{path} does not hold benchmarks: {error!r}") from error
    return Section("Benchmarks", ("Speed and memory, measured apart from the runs.",), (), made)


def _markdown(sections: Sequence[Section]) -> str:
    parts = [f"# {_TITLE}\n", *(f"{line}\n" for line in _LINES)]
    for section in sections:
        parts.append(f"## {section.name}\n")
        parts += [f"{line}\n" for line in section.lines]
        parts += [
            f"![{drawing.title}](figures/{drawing.name}.png)\n\n{drawing.caption}\n"
            for drawing in section.drawings
        ]
        parts += [table.markdown() for table in section.tables]
    return "\n".join(parts)
