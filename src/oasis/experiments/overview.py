"""The part of a report on streams: every method at a glance, then one aspect after the other.

The paper's protocol comes first: the queries of each round, asked right after it against everything
stored; at the last round, and the mean over rounds. Beside it the queries of all rounds together,
asked after the last one ("all queries").
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import resources
from statistics import fmean, median
from typing import Any, TypeAlias

from oasis.experiments import figures
from oasis.experiments.measure import BY_SCORES, FIRST_HITS
from oasis.experiments.methods import METHODS, TOLD_MARK, title_of
from oasis.experiments.results import Results
from oasis.experiments.tables import (
    Cell,
    Cells,
    Difference,
    Estimate,
    Line,
    Part,
    Table,
    mean_over_rounds,
    paired_difference,
)
from oasis.experiments.task import SETTINGS, Row, runbook_for

QUERIES_NOTE = (
    "Last: queries of the last round against everything stored, as the paper reports; mean: each "
    "round's own queries right after it, the mean over rounds; all: the queries of all rounds "
    "together after the last one. In the first setting rounds share their queries, so that last "
    "and all are the same."
)
_QUERIES = {"new": "last", "all": "all"}
_TABLE_2 = (16, range(1, 10))  # bits and rounds of the paper's Table 2
# distinguishes the paper's data from a part of them, or from other data of the same name
_PAPERS_DATA: dict[str, tuple[int, dict[str, int]]] = {
    "mirflickr": (20_015, {"image": 4096, "text": 1386}),
    "nuswide": (195_834, {"image": 4096, "text": 5018}),
}
_ENGINEERS = (
    *("oasis", "oasis-search", "oasis-paper", "pq", "opq", "rabitq", "pq-refit", "opq-refit"),
    *("rabitq-refit", "itq", "itq-refit", "pca-sign", "random-projection", "float-cosine", "probe"),
)
_Value: TypeAlias = Callable[[Cell], Any]


def parts(results: Results, dataset: str, rows: Sequence[Row]) -> list[Part]:
    """Return the parts of one data set; empty ones are left out."""
    cells = Cells.of(results, dataset, rows)
    n_bits = cells.shown_bits
    compared = differences(cells, n_bits)
    said = (*mark_lines(cells, n_bits), *told_lines(cells), *verdict_lines(compared))
    first = headline_table(cells, n_bits), _difference_table(compared)
    times = _table_2(cells), _time_table(cells)
    return [
        Part("At a glance", said, (), first),
        Part("Quality", (), figures.quality(cells), tuple(map_tables(cells)), 2),
        Part("Search results", (), (), tuple(_hit_tables(cells)), 0),
        Part("One modality", (), (), (_modality_table(cells),)),
        Part("At the same bytes", (), (), (_bytes_table(cells, n_bits),)),
        Part("New and old", (), (), (_forgetting_table(cells),)),
        Part("Parameters", (), figures.sensitivity(cells)),
        Part("Time and memory", (), (), times),
        Part("Methods", (), (), (method_table(cells),)),
    ]


def headline_table(cells: Cells, n_bits: int | None = None) -> Table:
    """Return MAP of all methods after the last round, by Hamming distance / by projections."""
    length = cells.shown_bits if n_bits is None else n_bits
    columns: list[tuple[str, str, _Value]] = []
    for setting in cells.settings:
        here = cells.at(setting, length)
        if not here:
            continue
        columns.append((setting, f"{setting}, last", _both("new")))
        columns.append((setting, "mean", lambda cell: cell.estimate(mean_over_rounds)))
        if not next(iter(here.values())).shares_queries():
            columns.append((setting, "all", _both("all")))
    lines = []
    for variant in cells.variants:
        found = [cells.cell(setting, variant, length) for setting, *_ in columns]
        some = [cell for cell in found if cell is not None]
        if some:
            mark = " †" if any(cell.marks() for cell in some) else ""
            values = [
                None if cell is None else value(cell)
                for cell, (*_, value) in zip(found, columns, strict=True)
            ]
            group = "" if some[0].kind == "online" else None
            lines.append(Line((title_of(variant) + mark, some[0].kind), values, group))
    chance = [
        None
        if name == "mean"
        else _chance(cells, setting, length, "all" if name == "all" else "new")
        for setting, name, _ in columns
    ]
    shown = f" at {length} bits" if length else ""
    return Table.of(
        "",
        f"MAP after the last round{shown}, by Hamming distance / by projections. {QUERIES_NOTE} "
        "Published and tuned parameters are two rows. Bold: the best online method by Hamming "
        "distance.",
        ("method", "kind"),
        [title for _, title, _ in columns],
        [*lines, Line(("chance", ""), chance)],
    )


def _both(queries: str) -> _Value:
    return lambda cell: (cell.last(queries, "expected"), cell.last(queries, "asymmetric"))


def _chance(cells: Cells, setting: str, n_bits: int | None, queries: str) -> Estimate | None:
    found = (cell.last(queries, "chance") for cell in cells.at(setting, n_bits).values())
    return next((each for each in found if each is not None), None)


def mark_lines(cells: Cells, n_bits: int | None) -> list[str]:
    """Return one line for each method whose codes are marked, with the reason."""
    found: dict[str, dict[str, list[str]]] = {}
    for setting in cells.settings:
        for variant, cell in cells.at(setting, n_bits).items():
            for reason in cell.marks():
                found.setdefault(variant, {}).setdefault(reason, []).append(setting)
    return [
        f"† {title_of(variant)}: "
        + "; ".join(f"{reason} ({', '.join(where)})" for reason, where in reasons.items())
        + "."
        for variant, reasons in found.items()
    ]


def told_lines(cells: Cells) -> list[str]:
    """Return a line that explains the mark of methods that are told all classes, if there are."""
    told = any(TOLD_MARK in title_of(variant) for variant in cells.variants)
    return [f"{TOLD_MARK.strip()} told all classes of the stream in advance."] if told else []


_Compared: TypeAlias = dict[tuple[str, str], tuple[str, dict[str, Difference]]]


def differences(cells: Cells, n_bits: int | None) -> _Compared:
    """Compare the best online method with every other, query by query.

    Returns
    -------
    (setting, queries) -> the best method, and each other method's name with the difference to it;
    queries are "last" or "all"
    """
    found: _Compared = {}
    for setting in cells.settings:
        here = cells.at(setting, n_bits)
        for queries, name in _QUERIES.items():
            means = {v: c.last(queries, "expected") for v, c in here.items() if c.kind == "online"}
            known = {variant: each.mean for variant, each in means.items() if each is not None}
            if not known or (name == "all" and here[next(iter(known))].shares_queries()):
                continue
            best = max(known, key=lambda variant: known[variant])
            pairs = {
                variant: paired_difference(here[best], cell, last=name == "last")
                for variant, cell in here.items()
                if variant != best
            }
            compared = {variant: each for variant, each in pairs.items() if each is not None}
            if compared:
                found[setting, name] = best, compared
    return found


def verdict_lines(found: _Compared) -> list[str]:
    """Return where the intervals show the best online method ahead of all others, rankers too."""
    lines = []
    for (setting, queries), (best, compared) in found.items():
        unsure = [title_of(v) for v, each in compared.items() if each.verdict != "better"]
        said = (
            f"not better than {', '.join(unsure)}" if unsure else "better than every other method"
        )
        lines.append(f"{setting}, {queries} queries: {title_of(best)} is {said}.")
    return lines


def _difference_table(found: _Compared) -> Table:
    return Table.of(
        "Paired differences",
        "MAP of the best online method minus that of each other method, Hamming distance, paired "
        "by query over common seeds; 95 % bootstrap interval over seeds and queries. If the "
        "interval contains 0, neither method is better.",
        ("setting", "queries", "best", "other"),
        ("difference", "95 % interval", "verdict", "pairs"),
        [
            Line(
                (setting, queries, title_of(best), title_of(variant)),
                (
                    *(f"{each.mean:+.3f}", f"{each.low:+.3f} to {each.high:+.3f}"),
                    *(each.verdict, each.n_queries),
                ),
            )
            for (setting, queries), (best, compared) in found.items()
            for variant, each in compared.items()
        ],
    )


def map_tables(cells: Cells) -> Iterator[Table]:
    """Yield MAP by code length: the paper's Table 1, measured in five ways."""
    interval = "± is half of the 95 % interval over seeds."
    yield _map_table(
        cells,
        "MAP at the last round",
        "Queries of the last round against everything stored, Hamming distance; the mean over "
        f"all orders of tied items. Bold: the best online method. {interval}",
        lambda cell: cell.last("new", "expected"),
    )
    yield _map_table(
        cells,
        "MAP, mean over rounds",
        "Each round's own queries right after it, Hamming distance. A batch method that is "
        "measured three times: the mean over those.",
        lambda cell: cell.estimate(mean_over_rounds),
    )
    yield _map_table(
        cells,
        "MAP at the last round by projections",
        "The queries of the last round, ranked by the inner product of their real-valued "
        "projection with the stored bits.",
        lambda cell: cell.last("new", "asymmetric"),
    )
    yield _map_table(
        cells,
        "MAP, queries of all rounds together",
        "All queries so far, asked after the last round, Hamming distance (not the paper's "
        "protocol). Rounds of the first setting share their queries.",
        lambda cell: cell.last("all", "expected"),
        queries="all",
    )
    yield _map_table(
        cells,
        "MAP at the last round, the older item first among ties",
        "The measure of the paper. If the paper has the same cell, its figure is beside ours.",
        _beside_the_papers,
    )


def _map_table(cells: Cells, title: str, note: str, value: _Value, queries: str = "new") -> Table:
    lengths = [*cells.bits, None]
    lines = []
    for setting in cells.settings:
        for variant in cells.variants:
            found = [cells.cells.get((setting, variant, n)) for n in lengths]
            online = any(cell is not None and cell.kind == "online" for cell in found)
            values = [None if cell is None else value(cell) for cell in found]
            group = setting if online else None
            lines.append(Line((setting, title_of(variant)), values, group))
        chance = [*(None for _ in cells.bits), _chance(cells, setting, cells.shown_bits, queries)]
        lines.append(Line((setting, "chance"), chance))
    figures_ = [*(f"{n} bits" for n in cells.bits), "no codes"]
    return Table.of(title, note, ("setting", "method"), figures_, lines, intervals=True)


def _beside_the_papers(cell: Cell) -> Any:
    found, paper = cell.last("new", "stable"), published_map(cell)
    if found is None or paper is None:
        return found
    return found, f"paper {paper:.4f}, {found.mean - paper:+.4f}"


def _all_lines(cells: Cells, *values: _Value) -> list[Line]:
    """Return a line for every cell, with some figures of it."""
    return [
        Line((setting, title_of(variant), str(n_bits or "")), [value(cell) for value in values])
        for (setting, variant, n_bits), cell in cells.cells.items()
    ]


def _hit_tables(cells: Cells) -> Iterator[Table]:
    """Yield the measures of first hits, of the last round's queries and of all."""
    for group, measures, title, note in (
        (
            "lookup",
            FIRST_HITS,
            "By Hamming distance",
            "After the last round, the mean over all orders of tied items: MAP@k (denominator "
            "min(R, k)), nDCG@k (gain: shared labels), precision at k, success at 10 (something "
            "similar among the first ten), MAP@5000 where as many are stored, precision within a "
            "Hamming radius of 2 (a query that finds nothing counts 0), queries whose 100th hit is "
            "in a tie. k is at most the size of the base.",
        ),
        (
            "by_scores",
            BY_SCORES,
            "By projections, and rankers",
            "After the last round; the older of two tied items first.",
        ),
    ):
        lines = [
            Line(
                (setting, title_of(variant), str(n_bits or ""), name),
                [cell.figure(group, queries, measure.key) for measure in measures],
            )
            for (setting, variant, n_bits), cell in cells.cells.items()
            for queries, name in _QUERIES.items()
        ]
        names = ("setting", "method", "bits", "queries")
        titles = [measure.title for measure in measures]
        yield Table.of(title, note, names, titles, lines, intervals=True)


def _modality_table(cells: Cells) -> Table:
    """Return MAP of queries with one modality against items with all of them."""
    rows = [row for cell in cells.cells.values() for row in cell.rows]
    names = list(dict.fromkeys(name for row in rows for name in row.get("one_modality", ())))

    def value(name: str) -> _Value:
        ways = ("hamming", "projections")
        return lambda cell: tuple(cell.figure("one_modality", name, way) for way in ways)

    return Table.of(
        "Queries with one modality",
        "MAP of the last round's queries that have this modality alone, of items that have all "
        "(picture to text, text to picture), by Hamming distance / by projections.",
        ("setting", "method", "bits"),
        [f"by {name}" for name in names],
        _all_lines(cells, *map(value, names)),
    )


def _bytes_table(cells: Cells, n_bits: int | None) -> Table:
    """Return what engineers use instead at the same bytes an item, and the upper bound."""
    lines = []
    for setting in cells.settings:
        here = cells.at(setting, n_bits)
        ceiling = _best(here["probe"]) if "probe" in here else None
        for name in (each for each in _ENGINEERS if each in here):
            cell, best, chance = here[name], _best(here[name]), here[name].last("new", "chance")
            share = ""
            if best and ceiling and chance and ceiling.mean > chance.mean:
                share = f"{(best.mean - chance.mean) / (ceiling.mean - chance.mean):.0%}"
            size = f"{cell.n_bits // 8:,}" if cell.n_bits else "its labels"
            if cell.n_bits is None and name != "probe":
                size = f"{4 * sum(cell.facts['data']['n_features'].values()):,}"
            lines.append(
                Line(
                    (setting, title_of(name), size),
                    (
                        *(_both("new")(cell), share),
                        cell.figure("by_scores", "new", "precision_at_10"),
                        cell.figure("by_scores", "new", "success_at_10"),
                        cell.figure("neighbours", "projections"),
                    ),
                )
            )
    return Table.of(
        "",
        "Codes without labels, and raw features (float32). MAP at the last round, queries of that "
        "round, by Hamming distance / by projections or scores; the better one's position between "
        "chance (0 %) and an upper bound (100 %), a float regression onto labels that ranks by "
        "the true label sets of the base; precision and success at 10, and the share of the ten "
        "nearest items by float cosine among the first ten, by projections or scores.",
        ("setting", "method", "bytes"),
        ("MAP", "of the way", "P@10", "success@10", "neighbours"),
        lines if len({line.names[1] for line in lines}) > 1 else (),
    )


def _best(cell: Cell) -> Estimate | None:
    known = [each for each in _both("new")(cell) if each is not None]
    return max(known, key=lambda each: each.mean, default=None)


def _forgetting_table(cells: Cells) -> Table:
    def lost(row: Row) -> float | None:
        after, now = right_after(row), asked_now(row)
        return None if after is None or now is None else after - now

    return Table.of(
        "Forgetting",
        "MAP of each earlier round's queries right after their round, and after the last one; the "
        "mean over rounds. The base has grown in between, so that the task is harder now. The last "
        "column is the mean over queries instead.",
        ("setting", "method", "bits"),
        ("right after", "now", "lost", "old queries now"),
        _all_lines(
            cells,
            lambda cell: cell.estimate(right_after),
            lambda cell: cell.estimate(asked_now),
            lambda cell: cell.estimate(lost),
            lambda cell: cell.last("old", "expected"),
        ),
        intervals=True,
    )


def right_after(row: Row) -> float | None:
    """Return MAP of earlier rounds' queries right after their round, the mean over rounds."""
    values = [each[-1] for each in row.get("history", [])[:-1]]
    return fmean(values) if values else None


def asked_now(row: Row) -> float | None:
    """Return MAP of earlier rounds' queries after the last round, the mean over rounds."""
    values = (row.get("history") or [[]])[-1][:-1]
    return fmean(values) if values else None


def _time_table(cells: Cells) -> Table:
    def query(cell: Cell) -> str | None:
        rounds = [each for row in cell.rows for each in row["rounds"]]
        encoded = sum(each["n_encoded"] for each in rounds)
        seconds = sum(each["encode_seconds"] for each in rounds)
        return f"{seconds / encoded * 1e6:.0f}" if seconds and encoded else None

    def size(cell: Cell) -> str | None:
        found = cell.figure("model_bytes")
        return None if found is None else f"{found.mean / 1e6:.2f}"

    def taken(kind: Callable[[list[float]], float]) -> _Value:
        def value(cell: Cell) -> float | None:
            times = [[each["train_seconds"] for each in row["rounds"]] for row in cell.rows]
            # codes that were made elsewhere took no time here
            return fmean(map(kind, times)) if any(map(any, times)) else None

        return value

    kinds = (lambda t: t[0], median, lambda t: t[-1], sum)
    return Table.of(
        "Training time",
        "Seconds to learn a round, and the whole stream; the mean over seeds. Microseconds to "
        "project one query. Size of the model in MB (a batch method keeps all features).",
        ("setting", "method", "bits"),
        ("first", "median", "last", "total", "query", "model"),
        _all_lines(cells, *map(taken, kinds), query, size),
    )


def _table_2(cells: Cells) -> Table:
    """Return training times by round beside the paper's, for MIRFlickr and data of its shape."""
    n_bits, numbers = _TABLE_2
    lines = []
    same = cells.dataset.removeprefix("synthetic-") == "mirflickr"
    for variant, cell in (cells.at("first", n_bits) if same else {}).items():
        if cell.n_bits is None:
            continue
        places = {number: t for t, number in enumerate(cell.round_numbers)}
        ours = [
            cell.figure("rounds", places[n], "train_seconds") if n in places else None
            for n in numbers
        ]
        papers = published_seconds(cell.rows[0]["method"]) or [None] * len(ours)
        for who, values in (("here", [each and each.mean for each in ours]), ("paper", papers)):
            texts = ["" if each is None else f"{each:.2f}" for each in values]
            lines.append(Line((title_of(variant), who), texts))
    return Table.of(
        "Training time by round, beside the paper's Table 2",
        "Seconds, 16 bits, first setting, rounds of 2,000. The paper's machine is another one, and "
        "features of synthetic data are generated: compare ratios.",
        ("method", ""),
        [str(number) for number in numbers],
        lines,
    )


def method_table(cells: Cells) -> Table:
    """Return what each method is and gets: kind, supervision, announced classes, settings."""
    rows: dict[str, tuple[str, ...]] = {}
    for (_, variant, _), cell in cells.cells.items():
        about, known = cell.method, METHODS.get(variant.split("+")[0])
        fixed = ", ".join(f"{name}={value}" for name, value in about.get("fixed", {}).items())
        seeds = max(len(c.rows) for k, c in cells.cells.items() if k[1] == variant)
        rows[variant] = (
            *(title_of(variant), cell.kind, "" if known is None else known.supervision),
            *("yes" if about.get("told_classes") else "no",),
            *(about.get("label_vectors") or "none", about.get("rounds", "every"), fixed or "none"),
            str(seeds),
        )
    return Table(
        "Methods",
        "Codes of an online method never change; a batch method keeps all features and encodes "
        "everything again in each round; a ranker has no codes. Parameters are the published ones "
        "unless set here: sigma=mean fits kernel widths to the data, because the published ones "
        "are for features of another scale; batch methods keep features as float32.",
        (
            *("method", "kind", "supervision", "told all classes", "label vectors"),
            *("measured at rounds", "set besides", "seeds"),
        ),
        tuple(rows.values()),
        n_names=7,
    )


def published_map(cell: Cell) -> float | None:
    """Return the paper's MAP for the same cell, or None.

    The same cell means: the paper's complete data set and its rounds; a method of the paper with
    its published parameters (the rounds at which a batch method is measured do not matter); a code
    length of the paper.
    """
    row = cell.rows[0]
    method, facts = METHODS.get(row["method"]), cell.facts
    if method is None or not method.paper or row["setting"] not in SETTINGS:
        return None
    name, table = row["dataset"], _paper()
    n_samples, n_features = _PAPERS_DATA.get(name, (0, {}))
    data = facts.get("data", {})
    same = data.get("n_samples") == n_samples and data.get("n_features") == n_features
    if not same or set(row["parameters"]) - {"rounds"} or data["recipe"].get("dropped_classes"):
        return None
    if facts["runbook"] != runbook_for(name, row["setting"]).digest():
        return None
    if row["n_bits"] not in table["bits"]:
        return None
    found: float = table[name][row["setting"]][method.paper][table["bits"].index(row["n_bits"])]
    return found


def published_seconds(method: str) -> tuple[float, ...]:
    """Return the paper's training times of rounds 1 to 9 (Table 2); empty if it has none.

    >>> published_seconds("fomh")[:2], published_seconds("lemon")
    ((0.3495, 0.31), ())
    """
    entry = METHODS.get(method)
    return () if entry is None else tuple(_paper()["seconds"].get(entry.paper, ()))


@cache
def _paper() -> dict[str, Any]:
    text = (resources.files("oasis") / "experiments" / "paper.toml").read_text("utf-8")
    return tomllib.loads(text)
