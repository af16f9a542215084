"""The report as one self-contained page: no network, no script, light and dark."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

from oasis.experiments.report.canvas import Drawing
from oasis.experiments.report.table import Table

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #5b646e; --line: #d9dee3;
  --page: #ffffff; --mark: #e8f1f8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e7ea; --soft: #9aa5b0; --line: #343b42;
  --page: #15181b; --mark: #1d2f3d; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 76rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; margin: 0 0 .25rem; }
h2 { font-size: 1.35rem; margin: 3rem 0 .5rem; border-top: 1px solid var(--line);
  padding-top: 1.5rem; }
h3 { font-size: 1.15rem; margin: 2.5rem 0 .25rem; }
h4 { font-size: 1rem; margin: 1.5rem 0 .25rem; }
p, figcaption { color: var(--soft); max-width: 48rem; margin: .25rem 0 .75rem; }
nav div { margin: .25rem 0; }
nav a { color: var(--soft); margin-right: .9rem; }
nav .data { color: var(--ink); font-weight: 600; }
summary { cursor: pointer; color: var(--soft); margin: .75rem 0; }
details h4 { display: none; }
tbody tr:hover { background: var(--mark); }
tr.rule td { border-top: 2px solid var(--line); }
figure { margin: 1rem 0 2rem; overflow-x: auto; }
figure svg { max-width: 100%; height: auto; color: var(--ink); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .75rem; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { color: var(--soft); font-weight: 600; }
.name { text-align: left; }
.best { font-weight: 700; background: var(--mark); }
.second { text-decoration: underline; }
"""


@dataclass(frozen=True)
class ReportPart:
    """One part of a section: a heading, some lines, figures and tables.

    Tables after the first ``n_open`` are collapsed on the page.
    """

    name: str
    lines: tuple[str, ...] = ()
    drawings: tuple[Drawing, ...] = ()
    tables: tuple[Table, ...] = ()
    n_open: int = 1


@dataclass(frozen=True)
class ReportSection:
    """One data set, or another section of a report: a heading, some lines, and parts."""

    name: str
    lines: tuple[str, ...]
    parts: tuple[ReportPart, ...]


def page(title: str, lines: Sequence[str], sections: Sequence[ReportSection]) -> str:
    """Return the whole page with embedded figures."""
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        '<head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(title)}</title>",
        f"<style>{_STYLE}</style></head>",
        f"<body><h1>{html.escape(title)}</h1>",
        *_paragraphs(lines),
        f"<nav>{_links(sections)}</nav>",
    ]
    for number, section in enumerate(sections):
        parts.append(f'<section id="s{number}"><h2>{html.escape(section.name)}</h2>')
        parts += _paragraphs(section.lines)
        for at, part in enumerate(section.parts):
            parts.append(f'<section id="s{number}-{at}"><h3>{html.escape(part.name)}</h3>')
            parts += _paragraphs(part.lines)
            parts += [_figure(drawing, number) for drawing in part.drawings]
            parts += [table.html() for table in part.tables[: part.n_open]]
            parts += [_folded(table) for table in part.tables[part.n_open :]]
            parts.append("</section>")
        parts.append("</section>")
    return "\n".join([*parts, "</body></html>", ""])


def _links(sections: Sequence[ReportSection]) -> str:
    rows = []
    for number, section in enumerate(sections):
        inner = " ".join(
            f'<a href="#s{number}-{at}">{html.escape(part.name)}</a>'
            for at, part in enumerate(section.parts)
        )
        name = f'<a class="data" href="#s{number}">{html.escape(section.name)}</a>'
        rows.append(f"<div>{name} {inner}</div>")
    return "\n".join(rows)


def _folded(table: Table) -> str:
    return f"<details><summary>{html.escape(table.title)}</summary>\n{table.html()}</details>"


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
