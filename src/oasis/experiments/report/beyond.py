"""The part of a report on measures beyond the labels: tables and one figure.

The figure and the first table compare the label measure with the others: a method that encodes only
labels is good at the first and bad at the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from oasis.experiments.beyond.answers import TIE_PLACE
from oasis.experiments.beyond.inquiries import DEFAULT, read_outcomes
from oasis.experiments.beyond.lines import BEYOND, MEASURES, Group, Line, groups_of
from oasis.experiments.measure.cells import title_of
from oasis.experiments.report.canvas import Drawing, finish, side_by_side, style_of
from oasis.experiments.report.html_page import ReportPart, ReportSection, page
from oasis.experiments.report.table import Row, Table
from oasis.store import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Beyond the labels"

_ABOUT = (
    "In the label measure, items that share a label are relevant; a code that contains only the "
    "label set is optimal for it. The other measures need information that such a code does not "
    "have. Finer than the labels: coarse labels are given, and items that share a finer label are "
    "relevant. Never labelled: a quarter of the classes is in no label set; items that have them "
    "are stored without labels and searched with further ones. The item itself: by three words of "
    "its text, or its title. A word: the name of a class that was never a label, by the label "
    "space and as a text; in the stream: all items come with the stream, and a quarter of the "
    "classes is never given as a label. Across: items without a text, each searched by its text.",
)


def glance_table(group: Group) -> Table:
    """Return the label measure beside the others, sorted by the label measure."""
    labels = MEASURES[0]
    by_labels = {line: line.mean(labels, "asymmetric") for line in group.lines}
    beyond = {line: group.beyond(line) for line in group.lines}
    places = _places(by_labels), _places(beyond)
    order = sorted(group.lines, key=lambda line: -(by_labels[line] or 0.0))
    rows: list[Row] = []
    for line in order:
        cells: list[str] = []
        for values, place, percent in ((by_labels, places[0], False), (beyond, places[1], True)):
            value = values[line]
            if value is None:
                cells += ["", ""]
                continue
            text = f"{value:.0%}" if percent else f"{value:.3f}"
            cells += [f"*{text}" if place.get(line) == 1 else text, str(place.get(line, ""))]
        rows.append((line.title, *cells))
    return Table(
        f"{group.title}: labels, and beyond",
        "Label MAP by asymmetric scores, and its rank among methods with codes. Beyond: the mean "
        f"of (x - chance) / (cosine - chance) over {', '.join(BEYOND)}; above 100 % a method is "
        "better than cosine of the features. w is the weight of content in the query: 1 content "
        "only, 0 labels only.",
        ("method", "labels", "place", "beyond", "place"),
        tuple(rows),
        n_names=1,
    )


def measure_table(group: Group, kind: str) -> Table:
    """Return every measure of every method, and chance."""
    measures = group.measures()
    with_share = any(each.name == "never labelled" for each in measures) and group.cosine()
    lines = [line for line in group.lines if kind == "asymmetric" or line.has_codes]
    best = {
        measure: max(
            (v for line in lines if line.has_codes and (v := line.mean(measure, kind)) is not None),
            default=None,
        )
        for measure in measures
    }
    rows: list[Row] = []
    for line in lines:
        cells: list[str] = []
        for measure in measures:
            value = line.mean(measure, kind)
            mark = "*" if line.has_codes and value is not None and value == best[measure] else ""
            cells.append("" if value is None else f"{mark}{value:.3f}")
            if measure.name == "never labelled" and with_share:
                share = group.share(line, measure, kind)
                cells.append("" if share is None else f"{share:.2f}")
        rows.append((line.title, *cells))
    chance: list[str] = []
    for measure in measures:
        value = next((v for line in group.lines if (v := line.chance(measure)) is not None), None)
        chance.append("" if value is None else f"{value:.3f}")
        chance += [""] if measure.name == "never labelled" and with_share else []
    header: list[str] = []
    for measure in measures:
        header.append(measure.name)
        header += ["of cosine"] if measure.name == "never labelled" and with_share else []
    how = "the query's projection against codes" if kind == "asymmetric" else "Hamming distance"
    return Table(
        f"{group.title}: by {'asymmetric scores' if kind == 'asymmetric' else 'Hamming distance'}",
        f"MAP by {how} unless stated otherwise, expected ties; mean over seeds and draws. Rankers "
        "have scores of their own. Bold: the best method with codes. Empty cells are explained "
        "below.",
        ("method", *header),
        (*rows, ("chance", *chance)),
        n_names=1,
    )


def code_table(group: Group) -> Table:
    """Return statistics of the stored codes of the stream with all labels."""
    rows: list[Row] = []
    for line in group.lines:
        found = [each.codes for each in line.outcomes if each.inquiry.kind == "labels"]
        codes = [each for each in found if each]
        if not codes or line.weight != DEFAULT:
            continue

        def mean(key: str, form: str, codes: Sequence[Mapping[str, float]] = codes) -> str:
            known = [each[key] for each in codes if key in each]
            return format(fmean(known), form) if known else ""

        rows.append(
            (
                line.title,
                f"{mean('distinct', ',.0f')} of {mean('codes', ',.0f')}",
                mean("largest_group", ",.0f"),
                mean("entropy", ".3f"),
                mean("constant_bits", ".0f"),
                *(mean(key, ".0%") for key in ("tied_hamming", "tied_asymmetric")),
            )
        )
    return Table(
        f"{group.title}: what codes tell apart",
        "After the stream with all labels: distinct codes, items that share the most frequent one, "
        "mean entropy of a bit, bits that are the same in all items, and the share of queries "
        f"whose hit at rank {TIE_PLACE} is in a tie, by Hamming distance and by asymmetric scores.",
        (
            *("method", "distinct", "largest", "entropy", "constant"),
            *("tied, Hamming", "tied, asym."),
        ),
        tuple(rows),
        n_names=1,
    )


def empty_table(groups: Iterable[Group]) -> Table:
    """Return why cells are empty."""
    reasons: dict[Row, None] = {}
    for group in groups:
        name = f"{group.dataset}, {group.features}"
        for line in group.lines:
            for each in line.outcomes:
                if each.empty:
                    reasons[name, title_of(each.inquiry.variant), each.inquiry.kind, each.empty] = (
                        None
                    )
                for question, answer in each.answers.get(line.weight, {}).items():
                    if answer.empty:
                        key = name, title_of(each.inquiry.variant), question, answer.empty
                        reasons[key] = None
    return Table(
        "Why cells are empty",
        "",
        ("data", "method", "question", "reason"),
        tuple(reasons),
        n_names=4,
    )


def draw_glance(group: Group) -> Drawing | None:
    """Draw the score beyond the labels against label MAP, one mark per method."""
    marks = [
        (line, x, y)
        for line in group.lines
        if (x := line.mean(MEASURES[0], "asymmetric")) is not None
        and (y := group.beyond(line)) is not None
    ]
    if len(marks) < 2:
        return None

    def make(ink: str) -> Figure:
        figure, (panel,) = side_by_side(1, left=0.7, right=2.2)
        styles = [style_of(line.variant, ink) for line, _, _ in marks]
        looks = [(style["marker"], style["color"]) for style in styles]
        number = 0
        for (line, x, y), look in zip(marks, looks, strict=True):
            marker, colour = look
            full = line.weight == DEFAULT
            size, label = 7, line.title
            if looks.count(look) > 1:  # marks that look alike are numbered
                number += 1
                size, label = 10, f"{number}  {label}"
                paint = "white" if full else colour
                panel.annotate(
                    str(number), (x, y), ha="center", va="center_baseline", fontsize=6, color=paint
                )
            face = colour if full else "none"
            panel.plot(x, y, marker, color=colour, mfc=face, ms=size, label=label)
        panel.axhline(1.0, color=ink, lw=0.8, ls=":")
        panel.grid(color=ink, alpha=0.12, lw=0.6)
        panel.set_xlabel("label MAP")
        panel.set_ylabel("beyond: share of float cosine")
        panel.legend(loc="center left", bbox_to_anchor=(1.03, 0.5), frameon=False, fontsize=8)
        return figure

    features = "" if group.features == "own" else f"-{group.features}"
    return finish(
        f"{group.dataset}{features}-{group.n_bits or 'float'}-beyond",
        f"{group.title}: labels, and beyond",
        "x: finds items with the same labels. y: finds what labels do not determine. Methods that "
        "encode only labels are at the lower right; the dotted line is cosine of the features.",
        make,
    )


def beyond_sections(folder: Path, *, figures: bool = True) -> list[ReportSection]:
    """Return one section for each data set of a results folder; there may be none."""
    groups = groups_of(read_outcomes(folder))
    sections = []
    for dataset in dict.fromkeys(group.dataset for group in groups):
        own = [group for group in groups if group.dataset == dataset]
        parts = [_part(group, figures) for group in own]
        reasons = empty_table(own)
        if reasons.rows:
            parts.append(ReportPart("Empty cells", (), (), (reasons,)))
        sections.append(ReportSection(f"{dataset}: beyond the labels", _ABOUT, tuple(parts)))
    return sections


def write_beyond(folder: Path) -> tuple[Path, Path]:
    """Write ``beyond.md`` and ``beyond.html`` of a results folder into it; without figures."""
    sections = beyond_sections(folder, figures=False)
    paths = folder / "beyond.md", folder / "beyond.html"
    for path, text in zip(paths, (markdown(sections), page(TITLE, (), sections)), strict=True):
        with replacing(path) as temporary:
            temporary.write_text(text, "utf-8")
    return paths


def markdown(sections: Sequence[ReportSection]) -> str:
    """Return the sections in Markdown."""
    parts = [f"# {TITLE}\n"]
    for section in sections:
        parts.append(f"## {section.name}\n")
        parts += [f"{line}\n" for line in section.lines]
        for part in section.parts:
            parts.append(f"### {part.name}\n")
            parts += [table.markdown() for table in part.tables]
    return "\n".join(parts)


def _part(group: Group, figures: bool) -> ReportPart:
    drawing = draw_glance(group) if figures else None
    tables = [glance_table(group), measure_table(group, "asymmetric")]
    if any(line.has_codes for line in group.lines):
        tables += [measure_table(group, "hamming"), code_table(group)]
    filled = tuple(table for table in tables if table.rows)
    return ReportPart(group.title, (), () if drawing is None else (drawing,), filled, n_open=2)


def _places(values: dict[Line, float | None]) -> dict[Line, int]:
    ranked = sorted(
        ((value, line) for line, value in values.items() if value is not None and line.has_codes),
        key=lambda pair: -pair[0],
    )
    return {line: 1 + sum(v > value for v, _ in ranked) for value, line in ranked}
