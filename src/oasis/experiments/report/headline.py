"""The first table of a report: every method, setting by setting; and its short form, the README's.

The short form has one row per method and only the queries of all rounds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from statistics import fmean

from oasis.experiments.measure.cells import Cell, Results, title_of
from oasis.experiments.measure.queries import Difference, QueryScores, paired_difference
from oasis.experiments.report.table import Row, Table, marked_best

QUERIES_NOTE = (
    "All queries: the held-out samples of every round, asked after the last round against "
    "everything stored. Last round's: those held out from the last round alone, as the paper "
    "reports. In the first setting all rounds share one set of queries, so that both are the same."
)
_MARK = " †"
_SHORT_KINDS = {"online": "", "batch": ", batch", "ranker": ", no codes"}


def headline_table(results: Results, dataset: str, n_bits: int | None = None) -> Table:
    """Return MAP after the last round of all methods, by Hamming distance / by projections.

    Parameters
    ----------
    n_bits : code length; by default 64, or the longest available
    """
    length = results.shown_bits(dataset) if n_bits is None else n_bits
    columns = _columns(results, dataset, length)
    variants = _variants(results, dataset, length)
    rows: list[list[str]] = []
    values: list[list[float | None]] = []
    for variant in variants:
        cells = [results.cell(dataset, setting, variant, length) for setting, _, _ in columns]
        some = next(cell for cell in cells if cell is not None)
        name = title_of(variant) + (_MARK if any(cell and cell.marks() for cell in cells) else "")
        rows.append(
            [
                name,
                some.method.kind,
                *(
                    map_text(cell, queries)
                    for cell, (_, queries, _) in zip(cells, columns, strict=True)
                ),
            ]
        )
        values.append(
            [
                _hamming(cell, queries) if some.method.kind == "online" else None
                for cell, (_, queries, _) in zip(cells, columns, strict=True)
            ]
        )
    marked_best(rows, values, 2)
    rows.append(["chance", "", *(_chance(results, dataset, length, each) for each in columns)])
    shown = f" at {length} bits" if length else ""
    return Table(
        "",
        f"MAP after the last round{shown}, by Hamming distance / by projections. {QUERIES_NOTE} "
        "Bold: the best online method by Hamming distance.",
        ("method", "kind", *(title for _, _, title in columns)),
        tuple(tuple(row) for row in rows),
    )


def compact_table(results: Results, dataset: str, n_bits: int | None = None) -> Table:
    """Return the short form of `headline_table`: one row per method, all queries only.

    A row is the better variant of a method, as published or tuned (`better_variants`).

    Parameters
    ----------
    n_bits : code length; by default 64, or the longest available
    """
    length = results.shown_bits(dataset) if n_bits is None else n_bits
    settings = [each for each in results.settings(dataset) if results.at(dataset, each, length)]
    rows: list[list[str]] = []
    values: list[list[float | None]] = []
    for variant in better_variants(results, dataset, length):
        cells = [results.cell(dataset, setting, variant, length) for setting in settings]
        kind = next(cell.method.kind for cell in cells if cell is not None)
        mark = _MARK if any(cell and cell.marks() for cell in cells) else ""
        rows.append(
            [title_of(variant) + _SHORT_KINDS[kind] + mark, *(map_text(c, "all") for c in cells)]
        )
        values.append([_hamming(cell, "all") if kind == "online" else None for cell in cells])
    marked_best(rows, values, 1)
    chances = [_chance(results, dataset, length, (each, "all", "")) for each in settings]
    rows.append(["chance", *chances])
    shown = f" at {length} bits" if length else ""
    return Table(
        "",
        f"MAP after the last round{shown}, by Hamming distance / by projections; queries of all "
        "rounds against everything stored. Of each method the better variant, as published or "
        "tuned, by mean MAP over the settings. Bold: the best online method by Hamming distance.",
        ("method", *settings),
        tuple(tuple(row) for row in rows),
        n_names=1,
    )


def better_variants(results: Results, dataset: str, n_bits: int | None) -> list[str]:
    """Return one variant of each method: as published or tuned, whichever has more MAP.

    MAP is of all queries by Hamming distance, the mean over the settings of the data set. A
    variant that lacks a setting loses to one that has it; if both are equal, the published one
    is returned. A method with other parameters, such as ``fomh+sigma=2``, stands for itself.
    """
    groups: dict[str, list[str]] = {}
    for variant in _variants(results, dataset, n_bits):
        name, _, tuned = variant.partition("+tuned=")
        groups.setdefault(name if tuned else variant, []).append(variant)

    def quality(variant: str) -> tuple[int, float]:
        cells = (results.cell(dataset, s, variant, n_bits) for s in results.settings(dataset))
        found = [value for cell in cells if (value := _hamming(cell, "all")) is not None]
        return len(found), fmean(found) if found else 0.0

    return [max(sorted(group), key=quality) for group in groups.values()]


def mark_lines(
    results: Results,
    dataset: str,
    n_bits: int | None = None,
    only: Collection[str] | None = None,
) -> list[str]:
    """Return one line for each method whose codes are marked, with the reason.

    Parameters
    ----------
    only : variants to report; by default all
    """
    length = results.shown_bits(dataset) if n_bits is None else n_bits
    found: dict[str, dict[str, list[str]]] = {}
    for setting in results.settings(dataset):
        for variant, cell in results.at(dataset, setting, length).items():
            for reason in cell.marks() if only is None or variant in only else ():
                found.setdefault(variant, {}).setdefault(reason, []).append(setting)
    return [
        f"† {title_of(variant)}: "
        + "; ".join(f"{reason} ({', '.join(where)})" for reason, where in reasons.items())
        + "."
        for variant, reasons in found.items()
    ]


def differences(
    results: Results,
    scores: Mapping[tuple[str, str, str, int | None], Mapping[int, QueryScores]],
    dataset: str,
    n_bits: int | None,
) -> dict[str, tuple[str, dict[str, Difference]]]:
    """Compare the best online method of each setting with every other, query by query.

    Parameters
    ----------
    scores : key of a cell -> seed -> average precisions

    Returns
    -------
    setting -> the best method, and each other method's name with the difference to it
    """
    found: dict[str, tuple[str, dict[str, Difference]]] = {}
    for setting in results.settings(dataset):
        cells = results.at(dataset, setting, n_bits)
        online = {v: _hamming(c, "all") for v, c in cells.items() if c.method.kind == "online"}
        known = {variant: value for variant, value in online.items() if value is not None}
        if not known:
            continue
        best = max(known, key=lambda variant: known[variant])
        ours = scores.get((dataset, setting, best, n_bits), {})
        compared: dict[str, Difference] = {}
        for variant, cell in cells.items():
            theirs = scores.get((dataset, setting, variant, cell.n_bits), {})
            difference = None if variant == best else paired_difference(ours, theirs)
            if difference is not None:
                compared[variant] = difference
        if compared:
            found[setting] = best, compared
    return found


def difference_table(found: Mapping[str, tuple[str, Mapping[str, Difference]]]) -> Table:
    """Return the differences as a table; empty if there are none."""
    rows: list[Row] = []
    for setting, (best, compared) in found.items():
        for variant, each in compared.items():
            rows.append(
                (
                    setting,
                    title_of(best),
                    title_of(variant),
                    f"{each.mean:+.3f}",
                    f"{each.low:+.3f} to {each.high:+.3f}",
                    each.verdict,
                    f"{each.n_queries:,}",
                )
            )
    return Table(
        "Paired differences",
        "MAP of the best online method minus that of each other method, all queries, Hamming "
        "distance, paired by query over common seeds; 95 % bootstrap interval over seeds and "
        "queries. If the interval contains 0, neither method is better.",
        ("setting", "best", "other", "difference", "95 % interval", "verdict", "pairs"),
        tuple(rows),
        n_names=3,
    )


def verdict_lines(found: Mapping[str, tuple[str, Mapping[str, Difference]]]) -> list[str]:
    """Return for each setting whether the intervals show the best method better than all others.

    The others include rankers and refitted methods.
    """
    lines = []
    for setting, (best, compared) in found.items():
        open_ = [title_of(v) for v, each in compared.items() if each.verdict != "better"]
        if open_:
            lines.append(f"{setting}: {title_of(best)} is not better than {', '.join(open_)}.")
        else:
            lines.append(f"{setting}: {title_of(best)} is better than every other method.")
    return lines


def map_text(cell: Cell | None, queries: str) -> str:
    """Return MAP of some queries after the last round: by Hamming distance / by projections."""
    found = [] if cell is None else [cell.last(queries, each) for each in _FIGURES]
    return " / ".join(f"{each.mean:.3f}" for each in found if each is not None)


_FIGURES = ("expected", "asymmetric")


def _variants(results: Results, dataset: str, n_bits: int | None) -> list[str]:
    """Return the variants that some setting has at a code length, in the order of reports."""
    settings = results.settings(dataset)
    return list(dict.fromkeys(v for each in settings for v in results.at(dataset, each, n_bits)))


def _columns(results: Results, dataset: str, n_bits: int | None) -> list[tuple[str, str, str]]:
    """Return setting, queries and heading of each column."""
    columns: list[tuple[str, str, str]] = []
    for setting in results.settings(dataset):
        cells = results.at(dataset, setting, n_bits)
        if not cells:
            continue
        if next(iter(cells.values())).shares_queries():
            columns.append((setting, "all", setting))
        else:
            columns.append((setting, "all", f"{setting}, all queries"))
            columns.append((setting, "new", f"{setting}, last round's"))
    return columns


def _hamming(cell: Cell | None, queries: str) -> float | None:
    estimate = None if cell is None else cell.last(queries, "expected")
    return None if estimate is None else estimate.mean


def _chance(
    results: Results, dataset: str, n_bits: int | None, column: tuple[str, str, str]
) -> str:
    setting, queries, _ = column
    for cell in results.at(dataset, setting, n_bits).values():
        estimate = cell.last(queries, "chance")
        if estimate is not None:
            return f"{estimate.mean:.3f}"
    return ""
