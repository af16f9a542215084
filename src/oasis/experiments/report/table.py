"""A table of a report: text in cells, as Markdown, HTML and LaTeX (booktabs)."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass

Row = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """Cells of text under a heading; ``n_names`` first columns are names, the rest are figures.

    In a cell, ``*`` at the start marks the best of its column, ``~`` the second best.
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
        title = f"#### {self.title}\n\n" if self.title else ""
        return f"{title}{note}{body}\n"

    def html(self) -> str:
        """Return the table as HTML."""

        def cell(tag: str, number: int, text: str) -> str:
            kind = "name" if number < self.n_names else _CLASSES.get(text[:1], "")
            attribute = f' class="{kind}"' if kind else ""
            return f"<{tag}{attribute}>{html.escape(_bare(text))}</{tag}>"

        def line(tag: str, cells: Row, rule: bool = False) -> str:
            start = '<tr class="rule">' if rule else "<tr>"
            return start + "".join(cell(tag, i, text) for i, text in enumerate(cells)) + "</tr>"

        # a rule between rows whose first name differs, such as between settings
        before = [None, *(row[0] for row in self.rows)]
        grouped = len({row[0] for row in self.rows}) < len(self.rows)
        body = "\n".join(
            line("td", row, grouped and last is not None and row[0] != last)
            for last, row in zip(before, self.rows, strict=False)
        )
        title = f"<h4>{html.escape(self.title)}</h4>\n" if self.title else ""
        note = f"<p>{html.escape(self.note)}</p>\n" if self.note else ""
        return (
            f"{title}{note}"
            f'<div class="scroll"><table>\n<thead>{line("th", self.header)}</thead>\n'
            f"<tbody>\n{body}\n</tbody></table></div>\n"
        )

    def latex(self) -> str:
        r"""Return the table for ``\usepackage{booktabs}``: best in bold, second underlined.

        >>> print(Table("MAP", "", ("method", "16 bits"), (("a_b", "*0.9"),), 1).latex())
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
        columns = "l" * self.n_names + "r" * (len(self.header) - self.n_names)
        lines = [f"% {line}" for line in (self.title, self.note) if line]
        lines += [f"\\begin{{tabular}}{{{columns}}}", "\\toprule", _latex_row(self.header)]
        lines.append("\\midrule")
        grouped = len({row[0] for row in self.rows}) < len(self.rows)
        for last, row in zip([None, *(row[0] for row in self.rows)], self.rows, strict=False):
            if grouped and last is not None and row[0] != last:
                lines.append("\\midrule")
            lines.append(_latex_row(row))
        return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


def marked_best(rows: list[list[str]], values: list[list[float | None]], first: int) -> None:
    """Mark the best and the second best of each column in place.

    Parameters
    ----------
    rows : cells of text, one list per row
    values : the number of each figure, or None for one that is not compared; one list per row
    first : the column of the first value

    >>> rows = [["a", "0.1"], ["b", "0.3"], ["c", "0.2"]]
    >>> marked_best(rows, [[0.1], [0.3], [0.2]], 1)
    >>> rows
    [['a', '0.1'], ['b', '*0.3'], ['c', '~0.2']]
    """
    for column in range(len(values[0]) if values else 0):
        found = sorted(
            ((row[column], number) for number, row in enumerate(values) if row[column] is not None),
            reverse=True,
        )
        for mark, (_, number) in zip("*~", found, strict=False):
            rows[number][first + column] = mark + rows[number][first + column]


_CLASSES = {"*": "best", "~": "second"}
_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {char: f"\\{char}" for char in "&%$#_{}"}
_LATEX |= {"±": r"$\pm$", "†": r"\textsuperscript{\textdagger}", "µ": r"$\mu$"}


def _bare(text: str) -> str:
    return text[1:] if text[:1] in _CLASSES else text


def _bold(text: str) -> str:
    return f"**{_bare(text)}**" if text.startswith("*") else _bare(text)


def _latex_row(cells: Iterable[str]) -> str:
    return " & ".join(_latex_cell(cell) for cell in cells) + r" \\"


def _latex_cell(text: str) -> str:
    escaped = "".join(_LATEX.get(char, char) for char in _bare(text))
    if text.startswith("*"):
        return rf"\textbf{{{escaped}}}"
    return rf"\underline{{{escaped}}}" if text.startswith("~") else escaped
