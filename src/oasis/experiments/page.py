"""The report as one self-contained page: no network, no script, light and dark."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

from oasis.experiments.figures import Drawing
from oasis.experiments.tables import Table

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
h3 { font-size: 1.05rem; margin: 2rem 0 .25rem; }
p, figcaption { color: var(--soft); max-width: 48rem; margin: .25rem 0 .75rem; }
nav a { color: inherit; margin-right: 1rem; }
figure { margin: 1rem 0 2rem; overflow-x: auto; }
figure svg { width: 100%; height: auto; min-width: 40rem; color: var(--ink); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .75rem; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { color: var(--soft); font-weight: 600; }
.name { text-align: left; }
.best { font-weight: 700; background: var(--mark); }
"""


@dataclass(frozen=True)
class Section:
    """One part of the report: a heading, some lines, figures and tables."""

    name: str
    lines: tuple[str, ...]
    drawings: tuple[Drawing, ...]
    tables: tuple[Table, ...]


def page(title: str, lines: Sequence[str], sections: Sequence[Section]) -> str:
    """Return the whole page; figures are drawn into it."""
    links = " ".join(
        f'<a href="#part-{number}">{html.escape(section.name)}</a>'
        for number, section in enumerate(sections)
    )
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        '<head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(title)}</title>",
        f"<style>{_STYLE}</style></head>",
        f"<body><h1>{html.escape(title)}</h1>",
        *_paragraphs(lines),
        f"<nav>{links}</nav>",
    ]
    for number, section in enumerate(sections):
        parts.append(f'<section id="part-{number}"><h2>{html.escape(section.name)}</h2>')
        parts += _paragraphs(section.lines)
        parts += [_figure(drawing, number) for drawing in section.drawings]
        parts += [table.html() for table in section.tables]
        parts.append("</section>")
    return "\n".join([*parts, "</body></html>", ""])


def _paragraphs(lines: Sequence[str]) -> list[str]:
    return [f"<p>{html.escape(line)}</p>" for line in lines]


def _figure(drawing: Drawing, number: int) -> str:
    # ids inside an SVG are the page's: two figures must not share them
    prefix = f"f{number}-{drawing.name}-"
    svg = drawing.svg.replace(' id="', f' id="{prefix}').replace('href="#', f'href="#{prefix}')
    svg = svg.replace("url(#", f"url(#{prefix}")
    return (
        f"<figure><h3>{html.escape(drawing.title)}</h3>\n{svg}\n"
        f"<figcaption>{html.escape(drawing.caption)}</figcaption></figure>"
    )
