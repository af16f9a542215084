"""A report: Markdown, CSV and LaTeX tables, figures, and one page that holds it all."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

from oasis.errors import InputError
from oasis.experiments.figures import check_available
from oasis.experiments.methods import title_of
from oasis.experiments.overview import headline_table
from oasis.experiments.results import Results
from oasis.experiments.scenarios import is_scenario
from oasis.experiments.tables import Cells, Drawing, Part, Table, variant_of
from oasis.experiments.task import module_of
from oasis.store import replacing

_TITLE = "Online multi-modal hashing: results"
_KINDS = ("stream", "convergence", "tuning", "beyond")
"""Kinds of rows first in a report; others follow."""
_ABOUT = (
    "MAP over the whole base; two samples are similar when they share a label, and a query with no "
    "similar item counts 0. Chance is the MAP of a random order. Mean over seeds, ± half of the "
    "95 % interval."
)


@dataclass(frozen=True)
class Section:
    """One data set."""

    name: str
    lines: tuple[str, ...]
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class WrittenReport:
    """Paths of a written report."""

    page: Path
    markdown: Path
    tables: tuple[Path, ...]
    figures: tuple[Path, ...]


def write_report(path: Path, out: Path) -> WrittenReport:
    """Turn results into a report.

    Parameters
    ----------
    path : a results file, or a folder of them; it is only read
    out : folder for ``report.html``, ``report.md``, ``tables/*.csv``, ``tables/*.tex`` and
        ``figures/*.png``; files of the same names are replaced

    Raises
    ------
    MissingExtraError
        Without matplotlib, before anything is written.
    """
    check_available()
    sections = sections_of(Results.read(path))
    files = {
        out / "report.html": page(_TITLE, (_ABOUT,), sections).encode(),
        out / "report.md": markdown(_TITLE, (_ABOUT,), sections).encode(),
    }
    for section in sections:
        for part in section.parts:
            for table in part.tables:
                words = re.findall(
                    r"[a-z0-9]+", f"{section.name} {part.name} {table.title}".lower()
                )
                stem = out / "tables" / "-".join(words)
                files[stem.with_suffix(".csv")] = as_csv(table).encode()
                files[stem.with_suffix(".tex")] = as_latex(table).encode()
            for each in part.drawings:
                files[out / "figures" / f"{each.name}.png"] = each.png
    for place, content in files.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place) as temporary:
            temporary.write_bytes(content)
    tables = tuple(each for each in files if each.parent.name == "tables")
    pictures = tuple(each for each in files if each.suffix == ".png")
    return WrittenReport(out / "report.html", out / "report.md", tables, pictures)


def sections_of(results: Results, kinds: Iterable[str] | None = None) -> list[Section]:
    """Return one section for each data set, with the parts of every kind of study."""
    if not results.rows:
        raise InputError("no results: the file has no rows")
    sections = []
    for dataset in dict.fromkeys(row["dataset"] for row in results.rows.values()):
        own = [row for row in results.rows.values() if row["dataset"] == dataset]
        found = dict.fromkeys((*_KINDS, *(row["kind"] for row in own)))
        parts: list[Part] = []
        for kind in kinds or found:
            rows = [row for row in own if row["kind"] == kind and "error" not in row]
            parts += module_of(kind).parts(results, dataset, rows) if rows else []
        parts.append(Part("Failed", (), (), (_failed_table(results, dataset),)))
        kept = [replace(p, tables=tuple(t for t in p.tables if t.rows)) for p in parts]
        filled = tuple(part for part in kept if part.drawings or part.tables)
        sections.append(Section(dataset, _about(results, dataset), filled))
    return sections


def headline(path: Path, n_bits: int | None = None) -> str:
    """Return the first table of a report as Markdown, for each data set.

    Parameters
    ----------
    n_bits : code length; by default 64, or the longest available
    """
    results = Results.read(path)
    texts = []
    for dataset in dict.fromkeys(row["dataset"] for row in results.of_kind("stream")):
        rows = [r for r in results.of_kind("stream") if r["dataset"] == dataset]
        rows = [row for row in rows if not is_scenario(row["setting"])]
        table = replace(headline_table(Cells.of(results, dataset, rows), n_bits), title=dataset)
        texts.append(as_markdown(table))
    return "\n".join(texts)


def _failed_table(results: Results, dataset: str) -> Table:
    rows = [r for r in results.rows.values() if "error" in r and r["dataset"] == dataset]
    return Table(
        "Failed tasks",
        "A method that raised. Repeating the command tries it again.",
        ("kind", "setting", "method", "bits", "seed", "error"),
        tuple(
            (
                *(row["kind"], row["setting"], title_of(variant_of(row)), str(row["n_bits"] or "")),
                *(str(row["seed"]), row["error"]),
            )
            for row in rows
        ),
        n_names=6,
    )


def _about(results: Results, dataset: str) -> tuple[str, ...]:
    facts = [results.facts_of(r) for r in results.rows.values() if r["dataset"] == dataset]
    data = next((each["data"] for each in facts if "data" in each), None)
    lines = []
    if data is not None:
        widths = ", ".join(f"{name} {width:,}" for name, width in data["n_features"].items())
        made = "Generated data. " if data["name"].startswith("synthetic-") else ""
        lines.append(
            f"{made}{data['n_samples']:,} samples, {data['n_classes']} classes, "
            f"{data['labels_per_sample']:.2f} labels a sample; features: {widths}."
        )
    kinds = set()
    for each in facts:
        machine, versions = (each.get("environment", {}).get(k) for k in ("machine", "versions"))
        if machine and versions:
            kinds.add(
                f"{machine['processor']}, cores: {machine['cores']}, threads of a task: "
                f"{machine['threads']}; Python {versions['python']}, oasis {versions['oasis']}, "
                f"NumPy {versions['numpy']}, SciPy {versions['scipy']}"
            )
    lines.append(f"{len(facts)} tasks. Computed with {'; or '.join(sorted(kinds)) or 'unknown'}.")
    return tuple(lines)


def markdown(title: str, lines: Sequence[str], sections: Sequence[Section]) -> str:
    """Return a report in Markdown."""
    texts = [f"# {title}\n", *(f"{line}\n" for line in lines)]
    for section in sections:
        texts += [f"## {section.name}\n", *(f"{line}\n" for line in section.lines)]
        for part in section.parts:
            texts += [f"### {part.name}\n", *(f"{line}\n" for line in part.lines if line)]
            texts += [
                f"![{drawing.title}](figures/{drawing.name}.png)\n\n{drawing.caption}\n"
                for drawing in part.drawings
            ]
            texts += [as_markdown(table) for table in part.tables]
    return "\n".join(texts)


def page(title: str, lines: Sequence[str], sections: Sequence[Section]) -> str:
    """Return a self-contained page with embedded figures: no network, no script, light and dark."""
    style = (resources.files("oasis") / "experiments" / "report.css").read_text("utf-8")
    texts = [
        f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{style}</style></head>\n"
        f"<body><h1>{html.escape(title)}</h1>",
        *_paragraphs(lines),
        "<nav>",
    ]
    for number, section in enumerate(sections):
        links = "".join(
            f'<a href="#s{number}-{at}">{html.escape(part.name)}</a>'
            for at, part in enumerate(section.parts)
        )
        name = html.escape(section.name)
        texts.append(f'<div><a href="#s{number}"><b>{name}</b></a>{links}</div>')
    texts.append("</nav>")
    for number, section in enumerate(sections):
        texts.append(f'<section id="s{number}"><h2>{html.escape(section.name)}</h2>')
        texts += _paragraphs(section.lines)
        for at, part in enumerate(section.parts):
            texts.append(f'<section id="s{number}-{at}"><h3>{html.escape(part.name)}</h3>')
            texts += _paragraphs(part.lines)
            texts += [_figure(drawing, number) for drawing in part.drawings]
            texts += [as_html(table) for table in part.tables[: part.n_open]]
            texts += [
                f"<details><summary>{html.escape(table.title)}</summary>\n{as_html(table)}</details>"
                for table in part.tables[part.n_open :]
            ]
            texts.append("</section>")
        texts.append("</section>")
    return "\n".join([*texts, "</body></html>", ""])


def _paragraphs(lines: Sequence[str]) -> list[str]:
    return [f"<p>{html.escape(line)}</p>" for line in lines if line]


def _figure(drawing: Drawing, number: int) -> str:
    # ids inside an SVG are global to the page, so each figure gets a prefix
    prefix = f"f{number}-{drawing.name}-"
    svg = drawing.svg.replace(' id="', f' id="{prefix}').replace('href="#', f'href="#{prefix}')
    svg = svg.replace("url(#", f"url(#{prefix}")
    return (
        f"<figure><h4>{html.escape(drawing.title)}</h4>\n{svg}\n"
        f"<figcaption>{html.escape(drawing.caption)}</figcaption></figure>"
    )


_CLASSES = {"*": "best", "~": "second"}
_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {char: f"\\{char}" for char in "&%$#_{}"}
_LATEX |= {"±": r"$\pm$", "†": r"\textsuperscript{\textdagger}", "µ": r"$\mu$"}


def _bare(text: str) -> str:
    return text[1:] if text[:1] in _CLASSES else text


def as_markdown(table: Table) -> str:
    """Return a table as Markdown, columns aligned."""
    rows = [[f"**{_bare(c)}**" if c[:1] == "*" else _bare(c) for c in row] for row in table.rows]
    widths = [max(map(len, column)) for column in zip(table.header, *rows, strict=True)]
    names = [number < table.n_names for number in range(len(widths))]

    def line(cells: Iterable[str]) -> str:
        padded = (
            cell.ljust(width) if name else cell.rjust(width)
            for name, cell, width in zip(names, cells, widths, strict=True)
        )
        return f"| {' | '.join(padded)} |"

    pairs = zip(names, widths, strict=True)
    rule = ["-" * width if name else "-" * (width - 1) + ":" for name, width in pairs]
    title = f"#### {table.title}\n\n" if table.title else ""
    note = f"{table.note}\n\n" if table.note else ""
    return f"{title}{note}" + "\n".join(map(line, (table.header, rule, *rows))) + "\n"


def as_html(table: Table) -> str:
    """Return a table as HTML; a rule stands where the first name changes, such as the setting."""

    def cell(tag: str, number: int, text: str) -> str:
        kind = "name" if number < table.n_names else _CLASSES.get(text[:1], "")
        return f'<{tag} class="{kind}">{html.escape(_bare(text))}</{tag}>'

    def line(tag: str, cells: Sequence[str], rule: bool = False) -> str:
        start = '<tr class="rule">' if rule else "<tr>"
        return start + "".join(cell(tag, i, text) for i, text in enumerate(cells)) + "</tr>"

    body = "\n".join(line("td", row, rule) for row, rule in _ruled(table))
    title = f"<h4>{html.escape(table.title)}</h4>\n" if table.title else ""
    note = f"<p>{html.escape(table.note)}</p>\n" if table.note else ""
    head = line("th", table.header)
    return (
        f'{title}{note}<div class="scroll"><table>\n<thead>{head}</thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>\n"
    )


def as_latex(table: Table) -> str:
    r"""Return a table for ``\usepackage{booktabs}``: best in bold, second underlined.

    >>> print(as_latex(Table("MAP", "", ("method", "16 bits"), (("a_b", "*0.9"),), 1)))
    % MAP
    \begin{tabular}{lr}
    \toprule
    method & 16 bits \\
    \midrule
    a\_b & \textbf{0.9} \\
    \bottomrule
    \end{tabular}
    <BLANKLINE>
    """

    def line(cells: Iterable[str]) -> str:
        return " & ".join(_latex_cell(cell) for cell in cells) + r" \\"

    columns = "l" * table.n_names + "r" * (len(table.header) - table.n_names)
    lines = [f"% {text}" for text in (table.title, table.note) if text]
    lines += [f"\\begin{{tabular}}{{{columns}}}", "\\toprule", line(table.header), "\\midrule"]
    for row, rule in _ruled(table):
        lines += ["\\midrule"] * rule + [line(row)]
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


def as_csv(table: Table) -> str:
    """Return a table as CSV, without marks."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerows([table.header, *(map(_bare, row) for row in table.rows)])
    return stream.getvalue()


def _ruled(table: Table) -> list[tuple[tuple[str, ...], bool]]:
    """Return each row, and whether a group begins there: where its first name differs."""
    grouped = len({row[0] for row in table.rows}) < len(table.rows)
    before = [row[0] for row in (*table.rows[:1], *table.rows[:-1])]
    return [(row, grouped and row[0] != last) for row, last in zip(table.rows, before, strict=True)]


def _latex_cell(text: str) -> str:
    escaped = "".join(_LATEX.get(char, char) for char in _bare(text))
    if text.startswith("*"):
        return rf"\textbf{{{escaped}}}"
    return rf"\underline{{{escaped}}}" if text.startswith("~") else escaped
