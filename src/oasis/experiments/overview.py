"""The part of a report on streams: every method at a glance, then one aspect after the other.

The paper's protocol comes first: the queries of each round, asked right after it against everything
stored; at the last round, and the mean over rounds. Beside it the queries of all rounds together,
asked after the last one ("all queries").
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from oasis.experiments import figures
from oasis.experiments.measure import BY_SCORES, FIRST_HITS
from oasis.experiments.methods import METHODS, TOLD_MARK, title_of
from oasis.experiments.results import Results
from oasis.experiments.tables import (
    Cell,
    Cells,
    Difference,
    Estimate,
    Part,
    Table,
    marked_best,
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
_MARK = " †"
_QUARTERS = 4
_TABLE_2 = (16, range(1, 10))  # bits and rounds of the paper's Table 2
# distinguishes the paper's data from a part of them, or from other data of the same name
_PAPERS_DATA: dict[str, tuple[int, dict[str, int]]] = {
    "mirflickr": (20_015, {"image": 4096, "text": 1386}),
    "nuswide": (195_834, {"image": 4096, "text": 5018}),
}
_Value = Callable[[Cell], Estimate | None]


def parts(results: Results, dataset: str, rows: Sequence[Row]) -> list[Part]:
    """Return the parts of one data set; empty ones are left out."""
    cells = Cells.of(results, dataset, rows)
    n_bits = cells.shown_bits
    compared = differences(cells, n_bits)
    return [
        Part(
            "At a glance",
            (*mark_lines(cells, n_bits), *told_lines(cells), *verdict_lines(compared)),
            (),
            (headline_table(cells, n_bits), _difference_table(compared)),
        ),
        Part("Quality", (), figures.quality(cells), tuple(_map_tables(cells)), 2),
        Part("Search results", (), (), (_lookup_table(cells), _score_table(cells)), 0),
        Part("One modality", (), (), (_modality_table(cells),)),
        Part("At the same bytes", (), (), (_bytes_table(cells, n_bits),)),
        Part("New and old", (), figures.forgetting(cells), (_forgetting_table(cells),), 0),
        Part("Classes", (), figures.classes(cells), (_class_table(cells, n_bits),)),
        Part("Parameters", (), figures.sensitivity(cells)),
        Part(
            "Time and memory", (), figures.seconds(cells), (_table_2(cells), _time_table(cells)), 0
        ),
        Part("Methods", (), (), (_method_table(cells),)),
    ]


def headline_table(cells: Cells, n_bits: int | None = None) -> Table:
    """Return MAP of all methods after the last round, by Hamming distance / by projections."""
    length = cells.shown_bits if n_bits is None else n_bits
    columns: list[tuple[str, str, _Value, _Value | None]] = []
    for setting in cells.settings:
        here = cells.at(setting, length)
        if not here:
            continue
        shared = next(iter(here.values())).shares_queries()
        columns.append((setting, f"{setting}, last", _figure("new"), _figure("new", "asymmetric")))
        columns.append((setting, "mean", lambda cell: cell.estimate(mean_over_rounds), None))
        if not shared:
            columns.append((setting, "all", _figure("all"), _figure("all", "asymmetric")))
    rows: list[list[str]] = []
    values: list[list[float | None]] = []
    for variant in cells.variants:
        found = [cells.cell(setting, variant, length) for setting, *_ in columns]
        some = [cell for cell in found if cell is not None]
        if not some:
            continue
        mark = _MARK if any(cell.marks() for cell in some) else ""
        pairs = [
            [None if cell is None or value is None else value(cell) for value in both]
            for cell, (_, _, *both) in zip(found, columns, strict=True)
        ]
        texts = [" / ".join(f"{e.mean:.3f}" for e in pair if e is not None) for pair in pairs]
        rows.append([title_of(variant) + mark, some[0].kind, *texts])
        online = some[0].kind == "online"
        values.append([pair[0].mean if pair[0] is not None and online else None for pair in pairs])
    marked_best(rows, values, 2)
    chance = ["chance", ""]
    for setting, name, *_ in columns:
        queries = "all" if name == "all" else "new"
        some = list(cells.at(setting, length).values())
        estimates = [cell.last(queries, "chance") for cell in some if name != "mean"]
        chance.append(next((f"{each.mean:.3f}" for each in estimates if each is not None), ""))
    shown = f" at {length} bits" if length else ""
    return Table(
        "",
        f"MAP after the last round{shown}, by Hamming distance / by projections. {QUERIES_NOTE} "
        "Published and tuned parameters are two rows. Bold: the best online method by Hamming "
        "distance.",
        ("method", "kind", *(title for _, title, *_ in columns)),
        tuple(tuple(row) for row in (*rows, chance)),
    )


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


_Compared = dict[tuple[str, str], tuple[str, dict[str, Difference]]]


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
        for name, queries in (("last", "new"), ("all", "all")):
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
    return Table(
        "Paired differences",
        "MAP of the best online method minus that of each other method, Hamming distance, paired "
        "by query over common seeds; 95 % bootstrap interval over seeds and queries. If the "
        "interval contains 0, neither method is better.",
        ("setting", "queries", "best", "other", "difference", "95 % interval", "verdict", "pairs"),
        tuple(
            (
                *(setting, queries, title_of(best), title_of(variant), f"{each.mean:+.3f}"),
                *(f"{each.low:+.3f} to {each.high:+.3f}", each.verdict, f"{each.n_queries:,}"),
            )
            for (setting, queries), (best, compared) in found.items()
            for variant, each in compared.items()
        ),
        n_names=4,
    )


def _figure(queries: str, figure: str = "expected") -> _Value:
    return lambda cell: cell.last(queries, figure)


def _map_tables(cells: Cells) -> list[Table]:
    """Return MAP by code length: the paper's Table 1, measured in five ways."""
    interval = "± is half of the 95 % interval over seeds."
    return [
        _map_table(
            cells,
            "MAP at the last round",
            "Queries of the last round against everything stored, Hamming distance; the mean over "
            f"all orders of tied items. Bold: the best online method. {interval}",
            _figure("new"),
        ),
        _map_table(
            cells,
            "MAP, mean over rounds",
            "Each round's own queries right after it, Hamming distance. A batch method that is "
            "measured three times: the mean over those.",
            lambda cell: cell.estimate(mean_over_rounds),
        ),
        _map_table(
            cells,
            "MAP at the last round by projections",
            "The queries of the last round, ranked by the inner product of their real-valued "
            "projection with the stored bits.",
            _figure("new", "asymmetric"),
        ),
        _map_table(
            cells,
            "MAP, queries of all rounds together",
            "All queries so far, asked after the last round, Hamming distance (not the paper's "
            "protocol). Rounds of the first setting share their queries.",
            _figure("all"),
            queries="all",
        ),
        _map_table(
            cells,
            "MAP at the last round, the older item first among ties",
            "The measure of the paper. If the paper has the same cell, its figure is beside ours.",
            _figure("new", "stable"),
            beside=published_map,
        ),
    ]


def _map_table(
    cells: Cells,
    title: str,
    note: str,
    value: _Value,
    queries: str = "new",
    beside: Callable[[Cell], float | None] = lambda cell: None,
) -> Table:
    lengths: list[int | None] = [*cells.bits, None]
    rows: list[tuple[str, ...]] = []
    for setting in cells.settings:
        texts: list[list[str]] = []
        values: list[list[float | None]] = []
        chance: Estimate | None = None
        for variant in cells.variants:
            found = [cells.cells.get((setting, variant, n)) for n in lengths]
            estimates = [None if cell is None else value(cell) for cell in found]
            if not any(estimates):
                continue
            texts.append([setting, title_of(variant)])
            values.append([])
            for cell, estimate in zip(found, estimates, strict=True):
                if cell is None or estimate is None:
                    texts[-1].append("")
                    values[-1].append(None)
                    continue
                chance = chance or cell.last(queries, "chance")
                paper = beside(cell)
                more = (
                    "" if paper is None else f" (paper {paper:.4f}, {estimate.mean - paper:+.4f})"
                )
                texts[-1].append(f"{estimate}{more}")
                values[-1].append(estimate.mean if cell.kind == "online" else None)
        marked_best(texts, values, 2)
        rows += [tuple(row) for row in texts]
        if chance is not None:
            rows.append((setting, "chance", *("" for _ in cells.bits), f"{chance.mean:.3f}"))
    header = ("setting", "method", *(f"{n} bits" for n in cells.bits), "no codes")
    return Table(title, note, header, tuple(rows))


def _lookup_table(cells: Cells) -> Table:
    titles = {measure.key: measure.title for measure in FIRST_HITS}
    rows = []
    for (setting, variant, n_bits), cell in cells.cells.items():
        for queries in ("new", "all"):
            found = {
                key: cell.estimate(lambda row, k=key, q=queries: _measure(row, "lookup", q, k))  # type: ignore[misc]
                for key in titles
            }
            if any(found.values()):
                distinct = cell.estimate(
                    lambda row: row["codes"]["n_distinct"] / row["rounds"][-1]["n_base"]
                )
                rows.append(
                    (
                        *(setting, title_of(variant), str(n_bits), _NAMES[queries]),
                        *(str(each or "") for each in found.values()),
                        "" if distinct is None else f"{distinct.mean:.1%}",
                        str(max(row["codes"]["n_constant"] for row in cell.rows)),
                    )
                )
    return Table(
        "By Hamming distance",
        "After the last round, the mean over all orders of tied items: MAP@k (denominator min(R, "
        "k)), nDCG@k (gain: shared labels), precision at k, success at 10 (something similar among "
        "the first ten), MAP@5000 where as many are stored, precision within a Hamming radius of 2 "
        "(a query that finds nothing counts 0), queries whose 100th hit is in a tie, distinct "
        "codes as a share of the items, constant bits. k is at most the size of the base.",
        ("setting", "method", "bits", "queries", *titles.values(), "distinct", "constant"),
        tuple(rows),
        n_names=4,
    )


_NAMES = {"new": "last", "all": "all"}


def _score_table(cells: Cells) -> Table:
    titles = {measure.key: measure.title for measure in BY_SCORES}
    rows = []
    for (setting, variant, n_bits), cell in cells.cells.items():
        for queries in ("new", "all"):
            found = [
                cell.estimate(lambda row, k=key, q=queries: _measure(row, "by_scores", q, k))  # type: ignore[misc]
                for key in titles
            ]
            if any(found):
                names = setting, title_of(variant), str(n_bits or ""), _NAMES[queries]
                rows.append((*names, *(str(each or "") for each in found)))
    return Table(
        "By projections, and rankers",
        "After the last round; the older of two tied items first.",
        ("setting", "method", "bits", "queries", *titles.values()),
        tuple(rows),
        n_names=4,
    )


def _measure(row: Row, group: str, queries: str, key: str) -> float | None:
    found: float | None = row.get(group, {}).get(queries, {}).get(key)
    return found


def _modality_table(cells: Cells) -> Table:
    """Return MAP of queries with one modality against items with all of them."""
    names = list(
        dict.fromkeys(
            name
            for c in cells.cells.values()
            for row in c.rows
            for name in row.get("one_modality", ())
        )
    )
    rows = []
    for (setting, variant, n_bits), cell in cells.cells.items():
        texts = [
            " / ".join(
                f"{each.mean:.3f}"
                for way in ("hamming", "projections")
                if (
                    each := cell.estimate(
                        lambda row, n=name, w=way: row.get("one_modality", {}).get(n, {}).get(w)  # type: ignore[misc]
                    )
                )
            )
            for name in names
        ]
        if any(texts):
            rows.append((setting, title_of(variant), str(n_bits), *texts))
    return Table(
        "Queries with one modality",
        "MAP of the last round's queries that have this modality alone, of items that have all "
        "(picture to text, text to picture), by Hamming distance / by projections.",
        ("setting", "method", "bits", *(f"by {name}" for name in names)),
        tuple(rows),
        n_names=3,
    )


_ENGINEERS = (
    *(
        "oasis",
        "oasis-search",
        "oasis-paper",
        "pq",
        "opq",
        "rabitq",
        "pq-refit",
        "opq-refit",
        "rabitq-refit",
    ),
    *("itq", "itq-refit", "pca-sign", "random-projection", "float-cosine", "probe"),
)


def _bytes_table(cells: Cells, n_bits: int | None) -> Table:
    """Return what engineers use instead at the same bytes an item, and the upper bound."""
    rows: list[tuple[str, ...]] = []
    for setting in cells.settings:
        here = cells.at(setting, n_bits)
        ceiling = _best(here["probe"]) if "probe" in here else None
        for name in (each for each in _ENGINEERS if each in here):
            cell, best, chance = here[name], _best(here[name]), here[name].last("new", "chance")
            if best is None:
                continue
            share = ""
            if ceiling is not None and chance is not None and ceiling.mean > chance.mean:
                share = f"{(best.mean - chance.mean) / (ceiling.mean - chance.mean):.0%}"
            pair = [cell.last("new", figure) for figure in ("expected", "asymmetric")]
            hits = [
                cell.estimate(lambda row, k=key: _measure(row, "by_scores", "new", k))  # type: ignore[misc]
                for key in ("precision_at_10", "success_at_10")
            ]
            near = cell.estimate(lambda row: row.get("neighbours", {}).get("projections"))
            size = f"{cell.n_bits // 8:,}" if cell.n_bits else "its labels"
            if cell.n_bits is None and name != "probe":
                size = f"{4 * sum(cell.facts['data']['n_features'].values()):,}"
            rows.append(
                (
                    *(setting, title_of(name), size),
                    " / ".join(f"{each.mean:.3f}" for each in pair if each is not None),
                    share,
                    *("" if each is None else f"{each.mean:.3f}" for each in (*hits, near)),
                )
            )
    return Table(
        "",
        "Codes without labels, and raw features (float32). MAP at the last round, queries of that "
        "round, by Hamming distance / by projections or scores; the better one's position between "
        "chance (0 %) and an upper bound (100 %), a float regression onto labels that ranks by "
        "the true label sets of the base; precision and success at 10, and the share of the ten "
        "nearest items by float cosine among the first ten, by projections or scores.",
        ("setting", "method", "bytes", "MAP", "of the way", "P@10", "success@10", "neighbours"),
        tuple(rows) if len({row[1] for row in rows}) > 1 else (),
    )


def _best(cell: Cell) -> Estimate | None:
    known = [each for figure in ("expected", "asymmetric") if (each := cell.last("new", figure))]
    return max(known, key=lambda each: each.mean, default=None)


def _forgetting_table(cells: Cells) -> Table:
    rows = []
    for (setting, variant, n_bits), cell in cells.cells.items():
        after, now = cell.estimate(right_after), cell.estimate(asked_now)
        if after is not None and now is not None:
            lost = cell.estimate(lambda row: (right_after(row) or 0.0) - (asked_now(row) or 0.0))
            old = cell.last("old", "expected")
            names = setting, title_of(variant), str(n_bits or "")
            rows.append((*names, str(after), str(now), f"{lost}", str(old or "")))
    return Table(
        "Forgetting",
        "MAP of each earlier round's queries right after their round, and after the last one; the "
        "mean over rounds. The base has grown in between, so that the task is harder now. The last "
        "column is the mean over queries instead.",
        ("setting", "method", "bits", "right after", "now", "lost", "old queries now"),
        tuple(rows),
        n_names=3,
    )


def right_after(row: Row) -> float | None:
    """Return MAP of earlier rounds' queries right after their round, the mean over rounds."""
    values = [each[-1] for each in row.get("history", [])[:-1]]
    return fmean(values) if values else None


def asked_now(row: Row) -> float | None:
    """Return MAP of earlier rounds' queries after the last round, the mean over rounds."""
    values = (row.get("history") or [[]])[-1][:-1]
    return fmean(values) if values else None


def class_averages(cell: Cell) -> dict[str, tuple[float, float]]:
    """Return items and average precision of each class that every seed has, means over seeds."""
    seeds = [{name: (n, ap) for name, n, _, ap in row.get("classes", ())} for row in cell.rows]
    names = [name for name in seeds[0] if all(name in seed for seed in seeds)]
    return {
        name: (fmean(s[name][0] for s in seeds), fmean(s[name][1] for s in seeds)) for name in names
    }


def _class_table(cells: Cells, n_bits: int | None) -> Table:
    rows = []
    for setting in cells.settings:
        for variant, cell in cells.at(setting, n_bits).items():
            points = sorted(class_averages(cell).values())
            if len(points) >= _QUARTERS:
                edges = [round(len(points) * i / _QUARTERS) for i in range(_QUARTERS + 1)]
                groups = [*(points[a:b] for a, b in pairwise(edges)), points]
                means = [f"{fmean(ap for _, ap in group):.3f}" for group in groups]
                rows.append((setting, title_of(variant), *means))
    return Table(
        "Rare and frequent classes",
        f"Average precision class by class at {n_bits} bits after the last round, queries of all "
        "rounds; the mean over a quarter of the classes, by number of items. Only items with this "
        "class count as similar.",
        ("setting", "method", "rarest quarter", "second", "third", "most frequent", "all classes"),
        tuple(rows),
    )


def _time_table(cells: Cells) -> Table:
    rows = []
    for (setting, variant, n_bits), cell in cells.cells.items():
        times = [[each["train_seconds"] for each in row["rounds"]] for row in cell.rows]
        if not any(map(any, times)):
            continue  # codes that were made elsewhere
        rounds = [each for row in cell.rows for each in row["rounds"]]
        encoded = sum(each["n_encoded"] for each in rounds)
        seconds = sum(each["encode_seconds"] for each in rounds)
        sizes = [row["model_bytes"] for row in cell.rows if "model_bytes" in row]
        kinds = (lambda t: t[0], median, lambda t: t[-1], sum)
        rows.append(
            (
                *(setting, title_of(variant), str(n_bits or "")),
                *(f"{fmean(kind(each) for each in times):.3f}" for kind in kinds),
                f"{seconds / encoded * 1e6:.0f}" if seconds and encoded else "",
                f"{fmean(sizes) / 1e6:.2f}" if sizes else "",
            )
        )
    return Table(
        "Training time",
        "Seconds to learn a round, and the whole stream; the mean over seeds. Microseconds to "
        "project one query. Size of the model in MB (a batch method keeps all features).",
        (*("setting", "method", "bits", "first", "median", "last", "total", "query"), "model"),
        tuple(rows),
        n_names=3,
    )


def _table_2(cells: Cells) -> Table:
    """Return training times by round beside the paper's, for MIRFlickr and data of its shape."""
    n_bits, numbers = _TABLE_2
    rows: list[tuple[str, ...]] = []
    if cells.dataset.removeprefix("synthetic-") == "mirflickr":
        for variant, cell in cells.at("first", n_bits).items():
            if cell.n_bits is None:
                continue
            ours = {
                number: cell.estimate(lambda row, t=t: row["rounds"][t]["train_seconds"])  # type: ignore[misc]
                for t, number in enumerate(cell.round_numbers)
            }
            found = [ours.get(number) for number in numbers]
            texts = ("" if each is None else f"{each.mean:.2f}" for each in found)
            rows.append((title_of(variant), "here", *texts))
            papers = published_seconds(cell.rows[0]["method"])
            rows += [(title_of(variant), "paper", *(f"{s:.2f}" for s in papers))] if papers else []
    return Table(
        "Training time by round, beside the paper's Table 2",
        "Seconds, 16 bits, first setting, rounds of 2,000. The paper's machine is another one, and "
        "features of synthetic data are generated: compare ratios.",
        ("method", "", *(str(number) for number in numbers)),
        tuple(rows),
    )


def _method_table(cells: Cells) -> Table:
    rows: dict[str, tuple[str, ...]] = {}
    for (_, variant, _), cell in cells.cells.items():
        about = cell.method
        fixed = ", ".join(f"{name}={value}" for name, value in about.get("fixed", {}).items())
        seeds = max(len(c.rows) for k, c in cells.cells.items() if k[1] == variant)
        rows[variant] = (
            *(title_of(variant), cell.kind, _supervision(variant)),
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


def _supervision(variant: str) -> str:
    """Return what a method learns from; empty for one of another package."""
    method = METHODS.get(variant.split("+")[0])
    return "" if method is None else method.supervision


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
