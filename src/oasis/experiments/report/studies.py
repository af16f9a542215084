"""Studies besides the main results: classes, precision and recall, parameters, convergence."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import TYPE_CHECKING, Literal

from oasis.experiments.measure.cells import Cell, Results, title_of
from oasis.experiments.measure.traces import Trace
from oasis.experiments.report.canvas import (
    COLORS,
    Drawing,
    Line,
    finish,
    plot,
    side_by_side,
    style_of,
)
from oasis.experiments.report.csvfiles import to_csv
from oasis.experiments.report.figures import setting_title
from oasis.experiments.report.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN_BY_CLASS = ("oasis", "oasis-paper", "fomh", "lemon", "thor")
_QUARTERS = 4
_MOST_BINS = 7


def class_averages(cell: Cell) -> dict[str, tuple[float, float]]:
    """Return the number of items and average precision of each class, as means over seeds.

    A class for which some seed has no queries is omitted.
    """
    seeds = [{each.name: each for each in summary.classes} for summary in cell.summaries]
    names = [name for name in seeds[0] if all(name in seed for seed in seeds)]
    return {
        name: (fmean(seed[name].n_base for seed in seeds), fmean(seed[name].ap for seed in seeds))
        for name in names
    }


def draw_studies(
    results: Results, dataset: str, traces: Sequence[Trace] = ()
) -> dict[str, Drawing]:
    """Draw the studies of one data set for which there are results.

    The keys are ``classes``, ``curves``, ``sensitivity``, ``loss`` and ``loss-map``.
    """
    n_bits = results.shown_bits(dataset)
    made = {
        "curves": finish(
            f"{dataset}-precision-recall",
            "Look-ups within a radius",
            f"{n_bits} bits, after the last round, queries of all rounds: precision and recall of "
            "look-ups within each Hamming radius, pooled over all pairs of queries and items; "
            "first seed. A line starts at the smallest radius with any hit.",
            lambda ink: _curves(results, dataset, n_bits, ink),
        ),
        "classes": finish(
            f"{dataset}-classes",
            "Average precision class by class",
            f"{n_bits} bits, after the last round, queries of all rounds. A dot is a class: "
            "average precision by number of items; only items with this class count as similar. "
            "Lines: medians of neighbouring classes.",
            lambda ink: _classes(results, dataset, n_bits, ink),
        ),
        "sensitivity": finish(
            f"{dataset}-sensitivity",
            "Sensitivity to the weights of the loss",
            f"MAP at the last round, queries of that round; {_swept_bits(results, dataset)}. Each "
            "weight is varied on its own; the dashed line marks the default.",
            lambda ink: _sensitivity(results, dataset, ink),
        ),
        "loss": finish(
            f"{dataset}-loss",
            "Convergence: loss by iteration",
            "OASIS (paper): the loss of the first, middle and last round after each iteration, as "
            "(loss - last) / (first - last). Dotted: where the method stops.",
            lambda ink: _convergence(traces, dataset, "loss", ink),
        ),
        "loss-map": finish(
            f"{dataset}-map-by-iteration",
            "Convergence: MAP by iteration",
            "OASIS (paper): MAP of the round's own queries, coded by the hash function of the "
            "iteration, against everything stored.",
            lambda ink: _convergence(traces, dataset, "map", ink),
        ),
    }
    return {key: drawing for key, drawing in made.items() if drawing is not None}


def _curves(results: Results, dataset: str, n_bits: int | None, ink: str) -> Figure | None:
    drawn: dict[str, list[Line]] = {}
    for setting in results.settings(dataset):
        lines = []
        for variant, cell in results.at(dataset, setting, n_bits).items():
            curve = cell.summaries[0].curve
            if curve is not None:
                lines.append(
                    Line(
                        variant,
                        list(curve.recall),
                        list(curve.precision),
                        [0.0] * len(curve.recall),
                    )
                )
        if lines:
            drawn[setting] = lines
    if not drawn:
        return None
    figure, panels = side_by_side(len(drawn), right=0.3, end=1.3)
    for panel, (setting, lines) in zip(panels, drawn.items(), strict=True):
        for line in lines:
            panel.plot(line.x, line.y, ms=2.5, label=line.title, **line.style(ink))
        panel.set_xlim(0, 1)
        panel.set_ylim(0, 1)
        panel.grid(color=ink, alpha=0.12, lw=0.6)
        panel.set_xlabel("recall")
        panel.set_title(setting_title(setting), loc="left")
    panels[0].set_ylabel("precision")
    panels[-1].legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.02, 1.02))
    return figure


def _classes(results: Results, dataset: str, n_bits: int | None, ink: str) -> Figure | None:
    drawn: dict[str, dict[str, dict[str, tuple[float, float]]]] = {}
    for setting in results.settings(dataset):
        cells = results.at(dataset, setting, n_bits)
        found = {name: class_averages(cells[name]) for name in _SHOWN_BY_CLASS if name in cells}
        found = {name: values for name, values in found.items() if values}
        if found:
            drawn[setting] = found
    if not drawn:
        return None
    figure, panels = side_by_side(len(drawn))
    for panel, (setting, found) in zip(panels, drawn.items(), strict=True):
        lines = []
        for variant, values in found.items():
            style = style_of(variant, ink)
            points = sorted(values.values())
            panel.plot(
                [n for n, _ in points],
                [ap for _, ap in points],
                style["marker"],
                color=style["color"],
                ms=3,
                alpha=0.35,
                mew=0,
            )
            lines.append(_medians(variant, points))
        panel.set_xscale("log")
        plot([panel], [lines], ink)
        panel.set_ylim(0, 1)
        panel.set_xlabel("items of the class")
        panel.set_title(setting_title(setting), loc="left")
    panels[0].set_ylabel("average precision")
    return figure


def _medians(variant: str, points: Sequence[tuple[float, float]]) -> Line:
    """Return the medians of groups of neighbouring classes of about equal size."""
    n_bins = max(1, min(_MOST_BINS, len(points) // 3))
    edges = [round(len(points) * i / n_bins) for i in range(n_bins + 1)]
    groups = [points[a:b] for a, b in pairwise(edges)]
    x = [median(n for n, _ in group) for group in groups]
    return Line(variant, x, [median(ap for _, ap in group) for group in groups], [0.0] * n_bins)


def _sensitivity(results: Results, dataset: str, ink: str) -> Figure | None:
    sweeps = [each for each in results.sweeps if each.dataset == dataset]
    sweeps = [each for each in sweeps if all(value > 0 for value in each.cells)]
    places = list(dict.fromkeys((each.method, each.parameter) for each in sweeps))
    if not places:
        return None
    figure, panels = side_by_side(len(places), right=0.75)
    drawn: list[list[Line]] = []
    for panel, (method, parameter) in zip(panels, places, strict=True):
        own = [each for each in sweeps if (each.method, each.parameter) == (method, parameter)]
        lines = []
        for number, sweep in enumerate(own):
            estimates = [cell.last("new", "expected") for cell in sweep.cells.values()]
            several = len({each.n_bits for each in own}) > 1
            name = f"{sweep.setting}, {sweep.n_bits}" if several else sweep.setting
            known = Line.of(name, list(sweep.cells), estimates)
            color = COLORS[number % len(COLORS)]
            lines.append(Line(name, known.x, known.y, known.spread, color))
        drawn.append(lines)
        panel.set_xscale("log")
        panel.set_xlabel(parameter)
        panel.set_title(title_of(method), loc="left")
        panel.axvline(float(own[0].default), color=ink, lw=0.8, ls=(0, (2, 2)), alpha=0.7)
    plot(panels, drawn, ink)
    panels[0].set_ylabel("MAP")
    return figure


def _swept_bits(results: Results, dataset: str) -> str:
    lengths = sorted({each.n_bits or 0 for each in results.sweeps if each.dataset == dataset})
    return ", ".join(f"{n} bits" for n in lengths)


def _convergence(
    traces: Sequence[Trace], dataset: str, what: Literal["loss", "map"], ink: str
) -> Figure | None:
    own = _shown_traces(traces, dataset)
    if not own:
        return None
    figure, panels = side_by_side(len(own), right=0.95)
    drawn: list[list[Line]] = []
    for panel, trace in zip(panels, own, strict=True):
        n_rounds = len(trace.rounds)
        lines = []
        for number, at in enumerate(sorted({0, (n_rounds - 1) // 2, n_rounds - 1})):
            each = trace.rounds[at]
            values = _left_to_fall(each.loss) if what == "loss" else list(each.map)
            steps = [float(i) for i in range(1, len(values) + 1)]
            name = f"round {each.number}"
            lines.append(Line(name, steps, values, [0.0] * len(values), COLORS[number]))
        drawn.append(lines)
        panel.axvline(trace.n_iter, color=ink, lw=0.8, ls=":", alpha=0.8)
        panel.set_xlabel("iteration")
        panel.set_xlim(1, max(len(each.loss) for each in trace.rounds))
        panel.set_title(f"{trace.run.setting}, {trace.run.n_bits} bits", loc="left")
    plot(panels, drawn, ink)
    panels[0].set_ylabel("loss left to fall" if what == "loss" else "MAP")
    return figure


def _left_to_fall(loss: Sequence[float]) -> list[float]:
    fallen = loss[0] - loss[-1]
    return [(each - loss[-1]) / fallen if fallen > 0 else 0.0 for each in loss]


def _shown_traces(traces: Sequence[Trace], dataset: str) -> list[Trace]:
    """Return one trace per setting: of 64 bits, else of the longest codes."""
    shown: dict[str, Trace] = {}
    for trace in traces:
        of, setting, *_ = trace.run.key.parts
        if of != dataset or not trace.rounds:
            continue
        known = shown.get(setting)
        if known is None or _preference(trace) > _preference(known):
            shown[setting] = trace
    return list(shown.values())


def _preference(trace: Trace) -> tuple[bool, int]:
    return trace.run.n_bits == 64, trace.run.n_bits or 0


def class_table(results: Results, dataset: str) -> Table:
    """Return the mean average precision of rare and of frequent classes."""
    n_bits = results.shown_bits(dataset)
    rows = []
    for setting in results.settings(dataset):
        for variant, cell in results.at(dataset, setting, n_bits).items():
            points = sorted(class_averages(cell).values())
            if len(points) < _QUARTERS:
                continue
            edges = [round(len(points) * i / _QUARTERS) for i in range(_QUARTERS + 1)]
            groups = [points[a:b] for a, b in pairwise(edges)]
            means = [fmean(ap for _, ap in group) for group in (*groups, points)]
            rows.append((setting, title_of(variant), *(f"{value:.3f}" for value in means)))
    return Table(
        "Rare and frequent classes",
        f"Average precision class by class at {n_bits} bits after the last round, queries of all "
        "rounds; the mean over a quarter of the classes, by number of items. Only items with this "
        "class count as similar.",
        ("setting", "method", "rarest quarter", "second", "third", "most frequent", "all classes"),
        tuple(rows),
    )


def classes_csv(results: Results) -> str:
    """Return the number of items and average precision of every class, as means over seeds."""
    rows = []
    for (dataset, setting, variant, n_bits), cell in results.cells.items():
        for name, (n_base, ap) in class_averages(cell).items():
            rows.append([dataset, setting, variant, n_bits, name, f"{n_base:.6g}", f"{ap:.4g}"])
    return to_csv(["dataset", "setting", "method", "bits", "class", "items", "ap"], rows)


def curves_csv(results: Results) -> str:
    """Return precision and recall by radius, first seed."""
    rows = []
    for (dataset, setting, variant, n_bits), cell in results.cells.items():
        curve = cell.summaries[0].curve
        if curve is not None:
            for pair in zip(curve.recall, curve.precision, strict=True):
                rows.append([dataset, setting, variant, n_bits, *pair])
    return to_csv(["dataset", "setting", "method", "bits", "recall", "precision"], rows)


def sensitivity_csv(results: Results) -> str:
    """Return MAP at the last round by value of a parameter, queries of that round."""
    rows = []
    for each in results.sweeps:
        for value, cell in each.cells.items():
            estimate = cell.last("new", "expected")
            if estimate is not None:
                place = (each.dataset, each.setting, each.method, each.n_bits, each.parameter)
                rows.append([*place, f"{value:.6g}", f"{estimate.mean:.6g}", estimate.n_seeds])
    header = "dataset setting method bits parameter value map seeds"
    return to_csv(header.split(), rows)


def convergence_csv(traces: Sequence[Trace]) -> str:
    """Return loss and MAP by round and iteration."""
    rows = []
    for trace in traces:
        dataset, setting, *_ = trace.run.key.parts
        for each in trace.rounds:
            maps = each.map or [""] * len(each.loss)
            for step, (loss, value) in enumerate(zip(each.loss, maps, strict=True), 1):
                place = (dataset, setting, trace.run.n_bits, each.number, step)
                rows.append([*place, f"{loss:.12g}", value and f"{value:.6g}"])
    return to_csv(["dataset", "setting", "bits", "round", "iteration", "loss", "map"], rows)
