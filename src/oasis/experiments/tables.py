"""Tables of a report: for people as Markdown and HTML, for programs as CSV."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from oasis.experiments.cells import Cell, Estimate, Results, title_of
from oasis.experiments.summaries import Summary

QUERIES = {
    "new": "queries of the last round",
    "old": "queries of earlier rounds",
    "all": "queries of all rounds",
}
"""What the groups of queries are called."""

Row = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """Cells of text under a heading; ``n_names`` first columns are names, the rest are figures.

    In a cell, ``*`` at the start marks the best of its column.
    """

    title: str
    note: str
    header: Row
    rows: tuple[Row, ...]
    n_names: int = 2

    def markdown(self) -> str:
        """Return the table as Markdown, columns aligned."""
        rows = [[_bold(cell) for cell in row] for row in self.rows]
        widths = [max(map(len, column)) for column in zip(self.header, *rows, strict=True)]

        def line(cells: Iterable[str]) -> str:
            padded = [
                cell.ljust(width) if number < self.n_names else cell.rjust(width)
                for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
            ]
            return f"| {' | '.join(padded)} |"

        rule = [
            "-" * width if number < self.n_names else "-" * (width - 1) + ":"
            for number, width in enumerate(widths)
        ]
        body = "\n".join([line(self.header), line(rule), *(line(row) for row in rows)])
        note = f"{self.note}\n\n" if self.note else ""
        return f"### {self.title}\n\n{note}{body}\n"

    def html(self) -> str:
        """Return the table as HTML."""

        def cell(tag: str, number: int, text: str) -> str:
            best = text.startswith("*")
            kind = ' class="name"' if number < self.n_names else ' class="best"' if best else ""
            return f"<{tag}{kind}>{html.escape(text.removeprefix('*'))}</{tag}>"

        def line(tag: str, cells: Row) -> str:
            return "<tr>" + "".join(cell(tag, i, text) for i, text in enumerate(cells)) + "</tr>"

        body = "\n".join(line("td", row) for row in self.rows)
        note = f"<p>{html.escape(self.note)}</p>\n" if self.note else ""
        return (
            f"<h3>{html.escape(self.title)}</h3>\n{note}"
            f'<div class="scroll"><table>\n<thead>{line("th", self.header)}</thead>\n'
            f"<tbody>\n{body}\n</tbody></table></div>\n"
        )


def dataset_tables(results: Results, dataset: str) -> list[Table]:
    """Return the tables of one data set."""
    tables = [
        _map_table(
            results,
            dataset,
            "MAP at the last round",
            "Queries of the last round against everything stored, Hamming distance; the mean over "
            "all orders of tied items. Bold: the best online method.",
            lambda cell: cell.last("new", "expected"),
        ),
        _map_table(
            results,
            dataset,
            "MAP at the last round by projections",
            "The same queries, ranked by the inner product of their real-valued projection with "
            "the stored bits.",
            lambda cell: cell.last("new", "asymmetric"),
        ),
        _map_table(
            results,
            dataset,
            "MAP at the last round, queries of all rounds",
            "As the first table, for the queries of all rounds so far. Rounds of the first setting "
            "share their queries.",
            lambda cell: cell.last("all", "expected"),
            queries="all",
        ),
        _map_table(
            results,
            dataset,
            "MAP at the last round, the older item first among ties",
            "As the paper measures. Where the paper has the same cell, its figure stands beside "
            "ours.",
            lambda cell: cell.last("new", "stable"),
            beside_paper=True,
        ),
        _forgetting_table(results, dataset),
        _training_table(results, dataset),
        _method_table(results, dataset),
    ]
    return [table for table in tables if table.rows]


def _map_table(
    results: Results,
    dataset: str,
    title: str,
    note: str,
    value: Callable[[Cell], Estimate | None],
    queries: str = "new",
    beside_paper: bool = False,
) -> Table:
    bits = results.bits(dataset)
    rows: list[Row] = []
    any_ranker = False
    for setting in results.settings(dataset):
        columns: list[list[str]] = []
        best: dict[int, tuple[float, int]] = {}
        chance: Estimate | None = None
        for variant in results.variants(dataset, setting):
            texts = [setting, title_of(variant)]
            for column, n_bits in enumerate([*bits, None], 2):
                cell = results.cells.get((dataset, setting, variant, n_bits))
                estimate = None if cell is None else value(cell)
                if cell is None or estimate is None:
                    texts.append("")
                    continue
                chance = cell.last(queries, "chance")
                any_ranker |= n_bits is None
                texts.append(_beside(estimate, cell.published()) if beside_paper else str(estimate))
                if cell.method.kind == "online" and estimate.mean > best.get(column, (-1.0, 0))[0]:
                    best[column] = estimate.mean, len(columns)
            if any(texts[2:]):
                columns.append(texts)
        for column, (_, row) in best.items():
            columns[row][column] = f"*{columns[row][column]}"
        if chance is not None:
            columns.append([setting, "chance", *("" for _ in bits), str(chance)])
            any_ranker = True
        rows += [tuple(texts) for texts in columns]
    header: Row = ("setting", "method", *(f"{n} bits" for n in bits), "no codes")
    if not any_ranker:
        header, rows = header[:-1], [row[:-1] for row in rows]
    return Table(title, note, header, tuple(rows))


def _beside(estimate: Estimate, published: float | None) -> str:
    if published is None:
        return str(estimate)
    return f"{estimate} (paper {published:.4f}, {estimate.mean - published:+.4f})"


def _forgetting_table(results: Results, dataset: str) -> Table:
    rows: list[Row] = []
    for (of, setting, variant, n_bits), cell in results.cells.items():
        lost = cell.estimate(lambda summary: summary.mean_forgetting)
        if of != dataset or lost is None:
            continue
        after = cell.estimate(_mean_right_after)
        now = cell.estimate(_mean_now)
        rows.append(
            (
                setting,
                title_of(variant),
                "" if n_bits is None else str(n_bits),
                *(str(each) for each in (after, now)),
                _signed(lost),
                str(cell.last("old", "expected")),
            )
        )
    return Table(
        "Forgetting",
        "MAP of each earlier round's queries right after their round, and after the last one; the "
        "mean over rounds. The base has grown in between, so that the task is harder now. The "
        "last column is the mean over queries instead.",
        ("setting", "method", "bits", "right after", "now", "lost", "old queries now"),
        tuple(rows),
    )


def _mean_right_after(summary: Summary) -> float | None:
    values = [row[-1] for row in summary.history[:-1]]
    return sum(values) / len(values) if values else None


def _mean_now(summary: Summary) -> float | None:
    values = summary.history[-1][:-1] if summary.history else ()
    return sum(values) / len(values) if values else None


def _signed(estimate: Estimate) -> str:
    text = str(estimate)
    return text if text.startswith("-") else f"+{text}"


def _training_table(results: Results, dataset: str) -> Table:
    rows: list[Row] = []
    for (of, setting, variant, n_bits), cell in results.cells.items():
        if of != dataset:
            continue
        times = [[each.train_seconds for each in s.rounds] for s in cell.summaries]
        encoded = sum(each.n_encoded for s in cell.summaries for each in s.rounds)
        seconds = sum(each.encode_seconds for s in cell.summaries for each in s.rounds)
        rows.append(
            (
                setting,
                title_of(variant),
                "" if n_bits is None else str(n_bits),
                *(
                    f"{sum(values) / len(values):.3f}"
                    for values in (
                        [each[0] for each in times],
                        [median(each) for each in times],
                        [each[-1] for each in times],
                        [sum(each) for each in times],
                    )
                ),
                f"{seconds / encoded * 1e6:.0f}" if seconds and encoded else "",
            )
        )
    return Table(
        "Training time",
        "Seconds to learn a round, and the whole stream; the mean over seeds. Last column: "
        "microseconds to project one query.",
        ("setting", "method", "bits", "first", "median", "last", "total", "query"),
        tuple(rows),
    )


def _method_table(results: Results, dataset: str) -> Table:
    rows: dict[str, Row] = {}
    for (of, _, variant, _), cell in results.cells.items():
        about = cell.summaries[0].about["method"]
        if of == dataset:
            rows[variant] = (
                title_of(variant),
                about["kind"],
                "yes" if about["told_classes"] else "no",
                about["label_vectors"] or "none",
                str(max(len(c.summaries) for k, c in results.cells.items() if k[2] == variant)),
            )
    return Table(
        "Methods",
        "Online codes stand for ever; a batch method keeps all features and codes everything anew "
        "each round; a ranker has no codes.",
        ("method", "kind", "told all classes", "label vectors", "seeds"),
        tuple(rows.values()),
        n_names=4,
    )


def last_round_csv(results: Results) -> str:
    """Return every figure of the last round in long form, the paper's beside it."""
    rows = []
    for (dataset, setting, variant, n_bits), cell in results.cells.items():
        for queries in QUERIES:
            chance = cell.last(queries, "chance")
            for figure in ("expected", "stable", "asymmetric"):
                estimate = cell.last(queries, figure)
                if estimate is None or chance is None:
                    continue
                is_papers = queries == "new" and figure == "stable"
                published = cell.published() if is_papers else None
                rows.append(
                    [
                        *(dataset, setting, variant, _number(n_bits), queries, figure),
                        *(_number(estimate.mean), _number(estimate.spread), estimate.n_seeds),
                        *(_number(chance.mean), _number(published)),
                        "" if published is None else _number(estimate.mean - published),
                    ]
                )
    header = "dataset setting method bits queries measure map spread seeds chance paper difference"
    return _csv(header.split(), rows)


def by_round_csv(results: Results) -> str:
    """Return MAP and training time round by round, in long form."""
    rows = []
    for (dataset, setting, variant, n_bits), cell in results.cells.items():
        columns = [
            cell.by_round(queries, figure)
            for queries in QUERIES
            for figure in ("expected", "chance")
        ]
        for t, number in enumerate(cell.round_numbers()):
            seconds = cell.estimate(lambda s, t=t: s.rounds[t].train_seconds)  # type: ignore[misc]
            figures = [
                _number(None if each is None else each.mean)
                for each in (column[t] for column in columns)
            ]
            rows.append(
                [
                    *(dataset, setting, variant, _number(n_bits), number),
                    *(cell.summaries[0].rounds[t].n_train, cell.summaries[0].rounds[t].n_base),
                    *figures,
                    _number(None if seconds is None else seconds.mean),
                ]
            )
    header = (
        "dataset setting method bits round n_train n_base new new_chance old old_chance all "
        "all_chance train_seconds"
    )
    return _csv(header.split(), rows)


def forgetting_csv(results: Results) -> str:
    """Return, for each round with queries of its own, their MAP right after it and now."""
    rows = []
    for (dataset, setting, variant, n_bits), cell in results.cells.items():
        for i in range(len(cell.summaries[0].history)):
            after = cell.estimate(lambda s, i=i: s.history[i][i])  # type: ignore[misc]
            now = cell.estimate(lambda s, i=i: s.history[-1][i])  # type: ignore[misc]
            if after is not None and now is not None:
                values = after.mean, now.mean, after.mean - now.mean
                rows.append(
                    [dataset, setting, variant, _number(n_bits), i + 1, *map(_number, values)]
                )
    header = "dataset setting method bits queries_of right_after now lost"
    return _csv(header.split(), rows)


def _csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return stream.getvalue()


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _bold(text: str) -> str:
    return f"**{text.removeprefix('*')}**" if text.startswith("*") else text
