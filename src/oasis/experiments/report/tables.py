"""The tables of a report: MAP, forgetting, time, methods."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean, median

from oasis.experiments.measure.cells import Cell, Estimate, Results, title_of
from oasis.experiments.measure.paper import published_seconds
from oasis.experiments.measure.summaries import Summary
from oasis.experiments.report.headline import map_text
from oasis.experiments.report.table import Row, Table, marked_best

_TABLE_2_BITS, _TABLE_2_ROUNDS = 16, 9


def map_tables(results: Results, dataset: str) -> list[Table]:
    """Return MAP at the last round by code length: the paper's Table 1, measured in four ways."""
    return _some(
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
            "The measure of the paper. If the paper has the same cell, its figure is shown beside "
            "ours.",
            lambda cell: cell.last("new", "stable"),
            beside_paper=True,
        ),
    )


def forgetting_tables(results: Results, dataset: str) -> list[Table]:
    """Return MAP of the queries of earlier rounds, then and now."""
    return _some(_forgetting_table(results, dataset))


def time_tables(results: Results, dataset: str) -> list[Table]:
    """Return training times, with the paper's Table 2 beside ours if the shapes are the same."""
    return _some(_table_2(results, dataset), _training_table(results, dataset))


def lookup_tables(results: Results, dataset: str) -> list[Table]:
    """Return measures of searches at depth k and within radius 2, and statistics of the codes."""
    rows: list[Row] = []
    depth = 0
    for (of, setting, variant, n_bits), cell in results.cells.items():
        lookups = [each.lookup for each in cell.summaries if each.lookup is not None]
        if of != dataset or n_bits is None or len(lookups) < len(cell.summaries):
            continue
        depth = max(depth, *(each.k for each in lookups))
        n_base = fmean(each.last.n_base for each in cell.summaries)
        sizes = [each.model_bytes for each in cell.summaries]
        known = [each for each in sizes if each is not None]
        rows.append(
            (
                setting,
                title_of(variant),
                str(n_bits),
                f"{fmean(each.map_at_k for each in lookups):.3f}",
                f"{fmean(each.ndcg_at_k for each in lookups):.3f}",
                f"{fmean(each.precision_at_2 for each in lookups):.3f}",
                f"{fmean(each.n_distinct for each in lookups) / n_base:.1%}",
                str(max(each.n_constant for each in lookups)),
                f"{fmean(each.tied for each in lookups):.0%}",
                f"{fmean(known) / 1e6:.2f}" if known else "",
            )
        )
    table = Table(
        "Search results and codes",
        f"After the last round, queries of all rounds, Hamming distance. MAP@k and nDCG@k with k = "
        f"{depth} (nDCG with the number of shared labels as gain), precision within a Hamming "
        "radius of 2 (a query that finds nothing counts 0), distinct codes as a share of the "
        f"stored items, constant bits, queries whose {depth}th hit is in a tie, and the size of "
        "the model in MB (a batch method keeps all features).",
        (
            *("setting", "method", "bits", "MAP@k", "nDCG@k", "radius 2", "distinct"),
            *("constant", "tied", "model MB"),
        ),
        tuple(rows),
    )
    return _some(table)


def method_tables(results: Results, dataset: str) -> list[Table]:
    """Return the kind of every method, and its inputs and parameters."""
    return _some(_method_table(results, dataset))


def _some(*tables: Table) -> list[Table]:
    return [table for table in tables if table.rows]


_ENGINEERS = (
    *("oasis", "oasis-paper", "itq", "itq-refit", "pca-sign", "random-projection"),
    *("float-cosine", "probe"),
)


def bytes_table(results: Results, dataset: str) -> Table:
    """Return alternatives without labels at the same bytes per item, and the upper bound."""
    n_bits = results.shown_bits(dataset)
    rows: list[Row] = []
    for setting in results.settings(dataset):
        cells = results.at(dataset, setting, n_bits)
        ceiling = _best(cells["probe"]) if "probe" in cells else None
        for name in _ENGINEERS:
            best = _best(cells[name]) if name in cells else None
            if best is None:
                continue
            chance = cells[name].last("new", "chance")
            share = ""
            if ceiling is not None and chance is not None and ceiling.mean > chance.mean:
                share = f"{(best.mean - chance.mean) / (ceiling.mean - chance.mean):.0%}"
            rows.append(
                (
                    setting,
                    title_of(name),
                    _bytes(cells[name]),
                    map_text(cells[name], "new"),
                    str(best),
                    share,
                )
            )
    return Table(
        "",
        "Alternatives without labels: unsupervised codes, or the raw features (float32). MAP at "
        "the last round, queries of that round, by Hamming distance / by projections; the better "
        "of the two; and its position between chance (0 %) and an upper bound (100 %), a float "
        "regression onto labels that ranks by the true label sets of the base.",
        ("setting", "method", "bytes an item", "MAP", "better", "of the way"),
        tuple(rows) if len({row[1] for row in rows}) > 1 else (),
    )


def _best(cell: Cell) -> Estimate | None:
    found = [cell.last("new", each) for each in ("expected", "asymmetric")]
    known = [each for each in found if each is not None]
    return max(known, key=lambda each: each.mean, default=None)


def _bytes(cell: Cell) -> str:
    if cell.n_bits is not None:
        return f"{cell.n_bits // 8:,}"
    if cell.method.name == "probe":
        return "its labels"
    return f"{4 * sum(cell.summaries[0].about['dataset']['n_features'].values()):,}"


def _table_2(results: Results, dataset: str) -> Table:
    """Return training times by round beside the paper's, for MIRFlickr and data of its shape."""
    rows: list[Row] = []
    numbers = range(1, _TABLE_2_ROUNDS + 1)
    cells = results.at(dataset, "first", _TABLE_2_BITS)
    if dataset.removeprefix("synthetic-") == "mirflickr":
        for variant, cell in cells.items():
            if cell.n_bits is None:
                continue
            rounds = enumerate(cell.round_numbers())
            ours = {
                number: cell.estimate(lambda s, t=t: s.rounds[t].train_seconds)  # type: ignore[misc]
                for t, number in rounds
            }
            found = [ours.get(number) for number in numbers]
            texts = ["" if each is None else f"{each.mean:.2f}" for each in found]
            rows.append((title_of(variant), "here", *texts))
            papers = published_seconds(cell.method.name)
            if papers:
                rows.append((title_of(variant), "paper", *(f"{each:.2f}" for each in papers)))
    generated = " Here the features are generated." if dataset.startswith("synthetic-") else ""
    return Table(
        "Training time by round, beside the paper's Table 2",
        f"Seconds, 16 bits, first setting, rounds of 2,000.{generated} The paper's machine is "
        "another one: compare ratios.",
        ("method", "", *(str(number) for number in numbers)),
        tuple(rows),
    )


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
        values: list[list[float | None]] = []
        chance: Estimate | None = None
        for variant in results.variants(dataset, setting):
            texts = [setting, title_of(variant)]
            figures: list[float | None] = []
            for n_bits in [*bits, None]:
                cell = results.cells.get((dataset, setting, variant, n_bits))
                estimate = None if cell is None else value(cell)
                if cell is None or estimate is None:
                    texts.append("")
                    figures.append(None)
                    continue
                chance = cell.last(queries, "chance")
                any_ranker |= n_bits is None
                texts.append(_beside(estimate, cell.published()) if beside_paper else str(estimate))
                figures.append(estimate.mean if cell.method.kind == "online" else None)
            if any(texts[2:]):
                columns.append(texts)
                values.append(figures)
        marked_best(columns, values, 2)
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
            fixed = about.get("fixed", cell.method.fixed)  # older results do not say
            rows[variant] = (
                title_of(variant),
                about["kind"],
                "yes" if about["told_classes"] else "no",
                about["label_vectors"] or "none",
                about.get("rounds", "every"),
                ", ".join(f"{name}={value}" for name, value in fixed.items()) or "none",
                str(max(len(c.summaries) for k, c in results.cells.items() if k[2] == variant)),
            )
    return Table(
        "Methods",
        "Codes of an online method never change; a batch method keeps all features and encodes "
        "everything again in each round; a ranker has no codes. Parameters are the published ones "
        "unless set here: sigma=mean fits kernel widths to the data, because the published ones "
        "are for features of another scale; batch methods keep features as float32 "
        "(dtype=float32), sums as float64.",
        (
            *("method", "kind", "told all classes", "label vectors", "measured at rounds"),
            *("set besides", "seeds"),
        ),
        tuple(rows.values()),
        n_names=6,
    )
