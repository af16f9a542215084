"""The main figures of a report: MAP by round and by code length, forgetting, training time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from oasis.experiments.measure.cells import Cell, Estimate, Results, title_of
from oasis.experiments.report.canvas import (
    CHANCE,
    Drawing,
    Line,
    check_available,
    finish,
    plot,
    side_by_side,
    style_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STEPS = {"first": "all classes known", "second": "new classes join", "third": "all classes new"}


def draw(results: Results, dataset: str) -> dict[str, Drawing]:
    """Draw the main figures of one data set for which there are results.

    The keys are ``by-round``, ``by-round-all``, ``by-bits``, ``forgetting`` and ``time``.
    """
    check_available()
    n_bits = results.shown_bits(dataset)
    at_bits = f"{n_bits} bits, " if n_bits else ""
    made = {
        "by-round": finish(
            f"{dataset}-map-by-round",
            "MAP by round",
            f"{at_bits}queries of the current round against everything stored so far; expected "
            "ties. Bands: one standard deviation over seeds. Dashed: batch methods, which may keep "
            "all features and encode everything again; OMH-DQ and SAPMH are measured three times.",
            lambda ink: _by_round(results, dataset, n_bits, "new", ink),
        ),
        "by-round-all": finish(
            f"{dataset}-map-by-round-all",
            "MAP by round, queries of all rounds so far",
            f"{at_bits}queries of earlier rounds count as much as new ones.",
            lambda ink: _by_round(results, dataset, n_bits, "all", ink, with_old_only=True),
        ),
        "by-bits": finish(
            f"{dataset}-map-by-bits",
            "MAP by code length",
            "Last round, queries of that round. Rankers have no codes; they are horizontal lines.",
            lambda ink: _by_bits(results, dataset, ink),
        ),
        "forgetting": finish(
            f"{dataset}-forgetting",
            "Forgetting",
            f"{at_bits}MAP of the queries of earlier rounds, the mean over rounds: hollow right "
            "after their round, filled after the last one. For methods that are measured three "
            "times it is the mean over those rounds.",
            lambda ink: _forgetting(results, dataset, n_bits, ink),
        ),
        "time": finish(
            f"{dataset}-training-time",
            "Training time by round",
            f"{at_bits}seconds to learn a round, logarithmic.",
            lambda ink: _training_time(results, dataset, n_bits, ink),
        ),
    }
    return {key: drawing for key, drawing in made.items() if drawing is not None}


def _by_round(
    results: Results,
    dataset: str,
    n_bits: int | None,
    queries: str,
    ink: str,
    with_old_only: bool = False,
) -> Figure | None:
    settings = [
        setting
        for setting in results.settings(dataset)
        if not with_old_only or _any_history(results, dataset, setting)
    ]
    if not settings:
        return None
    figure, panels = side_by_side(len(settings))
    drawn: list[list[Line]] = []
    for panel, setting in zip(panels, settings, strict=True):
        cells = results.at(dataset, setting, n_bits)
        lines = [
            Line.of(variant, _floats(cell.round_numbers()), cell.by_round(queries, "expected"))
            for variant, cell in cells.items()
        ]
        some = max(cells.values(), key=lambda cell: cell.n_rounds)
        chance = some.by_round(queries, "chance")
        drawn.append([*lines, Line.of(CHANCE, _floats(some.round_numbers()), chance)])
        _round_axis(panel, some)
        panel.set_title(setting_title(setting), loc="left")
    plot(panels, drawn, ink)
    panels[0].set_ylabel("MAP")
    return figure


def _is_timed(cell: Cell) -> bool:
    return any(summary.train_seconds for summary in cell.summaries)


def _training_time(results: Results, dataset: str, n_bits: int | None, ink: str) -> Figure | None:
    settings = [
        setting
        for setting in results.settings(dataset)
        if any(_is_timed(cell) for cell in results.at(dataset, setting, n_bits).values())
    ]
    if not settings:
        return None  # codes that were made elsewhere
    figure, panels = side_by_side(len(settings))
    drawn: list[list[Line]] = []
    for panel, setting in zip(panels, settings, strict=True):
        cells = results.at(dataset, setting, n_bits)
        lines = []
        for variant, cell in cells.items():
            seconds = [
                cell.estimate(lambda summary, t=t: summary.rounds[t].train_seconds)  # type: ignore[misc]
                for t in range(cell.n_rounds)
            ]
            lines.append(Line.of(variant, _floats(cell.round_numbers()), seconds))
        drawn.append(lines)
        _round_axis(panel, max(cells.values(), key=lambda cell: cell.n_rounds))
        panel.set_title(setting_title(setting), loc="left")
    plot(panels, drawn, ink, log=True)
    panels[0].set_ylabel("seconds")
    return figure


def _by_bits(results: Results, dataset: str, ink: str) -> Figure | None:
    bits, settings = results.bits(dataset), results.settings(dataset)
    if len(bits) < 2:
        return None
    figure, panels = side_by_side(len(settings))
    drawn: list[list[Line]] = []
    for panel, setting in zip(panels, settings, strict=True):
        lines = []
        chance: Estimate | None = None
        for variant in results.variants(dataset, setting):
            cells = [results.cell(dataset, setting, variant, n) for n in bits]
            estimates = [None if cell is None else cell.last("new", "expected") for cell in cells]
            lines.append(Line.of(variant, _floats(bits), estimates))
            chance = next((c.last("new", "chance") for c in cells if c is not None), chance)
        drawn.append([*lines, Line.of(CHANCE, _floats(bits), [chance] * len(bits))])
        panel.set_xscale("log", base=2)
        panel.set_xticks(bits, [str(n) for n in bits])
        panel.minorticks_off()
        panel.set_xlim(bits[0], bits[-1])
        panel.set_xlabel("bits")
        panel.set_title(setting_title(setting), loc="left")
    plot(panels, drawn, ink)
    panels[0].set_ylabel("MAP")
    return figure


def _forgetting(results: Results, dataset: str, n_bits: int | None, ink: str) -> Figure | None:
    settings = [s for s in results.settings(dataset) if _any_history(results, dataset, s)]
    if not settings:
        return None
    figure, panels = side_by_side(len(settings), left=1.4, right=0.4)
    for panel, setting in zip(panels, settings, strict=True):
        cells = results.at(dataset, setting, n_bits)
        for height, (variant, cell) in enumerate(reversed(cells.items())):
            color = style_of(variant, ink)["color"]
            after = cell.estimate(lambda s: _mean([row[-1] for row in s.history[:-1]]))
            now = cell.estimate(lambda s: _mean(s.history[-1][:-1] if s.history else ()))
            if after is None or now is None:
                continue
            panel.plot(after.mean, height, "o", mec=color, mfc="none", ms=7, mew=1.6)
            panel.plot(now.mean, height, "o", color=color, ms=7)
            panel.annotate(
                "",
                (now.mean, height),
                xytext=(after.mean, height),
                arrowprops={"arrowstyle": "-", "color": color, "lw": 2, "shrinkA": 4, "shrinkB": 0},
            )
            panel.annotate(
                f"{now.mean - after.mean:+.2f}",
                (max(after.mean, now.mean), height),
                xytext=(9, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                color=ink,
            )
        panel.set_yticks(range(len(cells)), [title_of(v) for v in reversed(cells)])
        panel.tick_params(axis="y", length=0)
        panel.grid(axis="y", color=ink, alpha=0.12, lw=0.6)
        panel.set_xlim(0, 1)
        panel.margins(y=0.08)
        panel.set_xlabel("MAP of the queries of earlier rounds")
        panel.set_title(setting_title(setting), loc="left")
    return figure


def _round_axis(panel: Axes, cell: Cell) -> None:
    numbers = cell.round_numbers()
    panel.set_xticks(numbers if len(numbers) <= 12 else numbers[:: len(numbers) // 8])
    panel.set_xlim(numbers[0], max(numbers[-1], numbers[0] + 1))
    panel.set_xlabel("round")


def _any_history(results: Results, dataset: str, setting: str) -> bool:
    return any(
        len(summary.history) > 1
        for (of, at, *_), cell in results.cells.items()
        if (of, at) == (dataset, setting)
        for summary in cell.summaries
    )


def setting_title(setting: str) -> str:
    """Return a setting with its meaning."""
    return f"{setting}: {_STEPS[setting]}" if setting in _STEPS else setting


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _floats(values: Sequence[int]) -> list[float]:
    return [float(value) for value in values]
