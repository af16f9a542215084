"""Figures of a report: lines labelled at their ends, colours that the colour-blind can tell apart.

Each is drawn twice, as PNG on white and as SVG without a background whose ink is the page's text
colour, so that it suits light and dark pages alike. The same results give the same bytes.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oasis.errors import MissingExtraError
from oasis.experiments.cells import Cell, Estimate, Results, title_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# a colour that no method has, to be found again in the SVG
_INK = "#010203"
_PRINT_INK = "#222222"
_PREFERRED_BITS = 64
_PANEL_WIDTH, _PANEL_HEIGHT = 2.9, 3.1  # inches
_CHANCE = ""
_STEPS = {"first": "all classes known", "second": "new classes join", "third": "all classes new"}

# the palette of Okabe and Ito; controls step back behind the methods that learn
_STYLES: dict[str, dict[str, Any]] = {
    "oasis": {"color": "#0072B2", "lw": 2.6, "marker": "o"},
    "oasis-paper": {"color": "#56B4E9", "lw": 2.2, "marker": "s"},
    "fomh": {"color": "#009E73", "lw": 1.8, "marker": "^"},
    "lemon": {"color": "#D55E00", "lw": 1.8, "marker": "v"},
    "thor": {"color": "#F0B400", "lw": 1.8, "marker": "<"},
    "iw-omh": {"color": "#882255", "lw": 1.8, "marker": ">"},
    "omh-dq": {"color": "#117733", "lw": 1.4, "ls": "--", "marker": "p"},
    "sapmh": {"color": "#AA4499", "lw": 1.4, "ls": "--", "marker": "h"},
    "random-projection": {"color": "#999999", "lw": 1.2, "ls": ":", "marker": "x"},
    "pca-sign": {"color": "#999999", "lw": 1.2, "ls": "--", "marker": "+"},
    "itq": {"color": "#CC79A7", "lw": 1.4, "marker": "D"},
    "itq-refit": {"color": "#CC79A7", "lw": 1.4, "ls": "--", "marker": "d"},
    "float-cosine": {"color": "#E69F00", "lw": 1.4, "ls": "-.", "marker": "*"},
    "probe": {"color": _INK, "lw": 1.4, "ls": "-.", "marker": "P"},
    _CHANCE: {"color": _INK, "lw": 1.0, "ls": (0, (2, 2)), "alpha": 0.7},
}
_FALLBACK: dict[str, Any] = {"color": "#F0E442", "lw": 1.6, "marker": "h"}
_VARIANT_DASHES = ("-", (0, (4, 1)), (0, (1, 1)), (0, (6, 2, 1, 2)))


@dataclass(frozen=True)
class Drawing:
    """A finished figure."""

    name: str
    title: str
    caption: str
    svg: str
    png: bytes


@dataclass(frozen=True)
class _Line:
    """One line of a panel: whose (a method's or chance), where, how high, how sure."""

    variant: str
    x: list[float]
    y: list[float]
    spread: list[float]

    @classmethod
    def of(cls, variant: str, x: Sequence[float], estimates: Sequence[Estimate | None]) -> _Line:
        known = [(at, each) for at, each in zip(x, estimates, strict=True) if each is not None]
        return cls(
            variant,
            [at for at, _ in known],
            [each.mean for _, each in known],
            [each.spread or 0.0 for _, each in known],
        )


def check_available() -> None:
    """Raise when figures cannot be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("matplotlib", extra="figures", what="drawing figures") from error


def draw(results: Results, dataset: str) -> list[Drawing]:
    """Draw the figures of one data set, those that its results have something for."""
    check_available()
    n_bits = _shown_bits(results, dataset)
    at_bits = f"{n_bits} bits, " if n_bits else ""
    made = [
        _finish(
            f"{dataset}-map-by-round",
            "MAP by round",
            f"{at_bits}queries of the current round against everything stored so far; ties left "
            "open. Bands: one standard deviation over seeds.",
            lambda ink: _by_round(results, dataset, n_bits, "new", ink),
        ),
        _finish(
            f"{dataset}-map-by-round-all",
            "MAP by round, queries of all rounds so far",
            f"{at_bits}what was learned before counts as much as what is new.",
            lambda ink: _by_round(results, dataset, n_bits, "all", ink, with_old_only=True),
        ),
        _finish(
            f"{dataset}-map-by-bits",
            "MAP by code length",
            "Last round, queries of that round. Rankers have no codes and are drawn across.",
            lambda ink: _by_bits(results, dataset, ink),
        ),
        _finish(
            f"{dataset}-forgetting",
            "Forgetting",
            f"{at_bits}MAP of the queries of earlier rounds, the mean over rounds: hollow right "
            "after their round, filled after the last one.",
            lambda ink: _forgetting(results, dataset, n_bits, ink),
        ),
        _finish(
            f"{dataset}-training-time",
            "Training time by round",
            f"{at_bits}seconds to learn a round, logarithmic.",
            lambda ink: _training_time(results, dataset, n_bits, ink),
        ),
    ]
    return [drawing for drawing in made if drawing is not None]


def _shown_bits(results: Results, dataset: str) -> int | None:
    bits = results.bits(dataset)
    return _PREFERRED_BITS if _PREFERRED_BITS in bits else max(bits, default=None)


def _finish(
    name: str, title: str, caption: str, make: Callable[[str], Figure | None]
) -> Drawing | None:
    import matplotlib

    files: dict[str, bytes] = {}
    for kind, ink in (("svg", _INK), ("png", _PRINT_INK)):
        look: Any = {
            "svg.fonttype": "none",
            "svg.hashsalt": name,
            "font.family": "sans-serif",
            "font.size": 9,
            "text.color": ink,
            "axes.edgecolor": ink,
            "axes.labelcolor": ink,
            "xtick.color": ink,
            "ytick.color": ink,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
        with matplotlib.rc_context(look):
            figure = make(ink)
            if figure is None:
                return None
            stream = io.BytesIO()
            figure.savefig(
                stream,
                format=kind,
                dpi=150,
                transparent=kind == "svg",
                metadata={"Date": None} if kind == "svg" else {"Software": None},
            )
            files[kind] = stream.getvalue()
    svg = files["svg"].decode().replace(_INK, "currentColor")
    return Drawing(name, title, caption, svg[svg.index("<svg") :], files["png"])


def _panels(n: int, left: float = 0.5, right: float = 1.35) -> tuple[Figure, list[Axes]]:
    """Return panels side by side, with room in inches to the left and right of each."""
    from matplotlib.figure import Figure

    width = left + _PANEL_WIDTH + right
    total, bottom, top = 0.2 + width * n, 0.5, 0.35
    height = bottom + _PANEL_HEIGHT + top
    figure = Figure(figsize=(total, height))
    panels = [
        figure.add_axes(
            (
                (0.2 + width * number + left) / total,
                bottom / height,
                _PANEL_WIDTH / total,
                _PANEL_HEIGHT / height,
            )
        )
        for number in range(n)
    ]
    return figure, panels


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
    figure, panels = _panels(len(settings))
    drawn: list[list[_Line]] = []
    for panel, setting in zip(panels, settings, strict=True):
        cells = _cells(results, dataset, setting, n_bits)
        lines = [
            _Line.of(variant, _floats(cell.round_numbers()), cell.by_round(queries, "expected"))
            for variant, cell in cells.items()
        ]
        some = next(iter(cells.values()))
        chance = some.by_round(queries, "chance")
        drawn.append([*lines, _Line.of(_CHANCE, _floats(some.round_numbers()), chance)])
        _round_axis(panel, some)
        panel.set_title(_setting_title(setting), loc="left")
    _plot(panels, drawn, ink)
    panels[0].set_ylabel("MAP")
    return figure


def _training_time(results: Results, dataset: str, n_bits: int | None, ink: str) -> Figure | None:
    settings = results.settings(dataset)
    figure, panels = _panels(len(settings))
    drawn: list[list[_Line]] = []
    for panel, setting in zip(panels, settings, strict=True):
        cells = _cells(results, dataset, setting, n_bits)
        lines = []
        for variant, cell in cells.items():
            seconds = [
                cell.estimate(lambda summary, t=t: summary.rounds[t].train_seconds)  # type: ignore[misc]
                for t in range(cell.n_rounds)
            ]
            lines.append(_Line.of(variant, _floats(cell.round_numbers()), seconds))
        drawn.append(lines)
        _round_axis(panel, next(iter(cells.values())))
        panel.set_title(_setting_title(setting), loc="left")
    _plot(panels, drawn, ink, log=True)
    panels[0].set_ylabel("seconds")
    return figure


def _by_bits(results: Results, dataset: str, ink: str) -> Figure | None:
    bits, settings = results.bits(dataset), results.settings(dataset)
    if len(bits) < 2:
        return None
    figure, panels = _panels(len(settings))
    drawn: list[list[_Line]] = []
    for panel, setting in zip(panels, settings, strict=True):
        lines = []
        chance: Estimate | None = None
        for variant in results.variants(dataset, setting):
            cells = [results.cell(dataset, setting, variant, n) for n in bits]
            estimates = [None if cell is None else cell.last("new", "expected") for cell in cells]
            lines.append(_Line.of(variant, _floats(bits), estimates))
            chance = next((c.last("new", "chance") for c in cells if c is not None), chance)
        drawn.append([*lines, _Line.of(_CHANCE, _floats(bits), [chance] * len(bits))])
        panel.set_xscale("log", base=2)
        panel.set_xticks(bits, [str(n) for n in bits])
        panel.minorticks_off()
        panel.set_xlim(bits[0], bits[-1])
        panel.set_xlabel("bits")
        panel.set_title(_setting_title(setting), loc="left")
    _plot(panels, drawn, ink)
    panels[0].set_ylabel("MAP")
    return figure


def _forgetting(results: Results, dataset: str, n_bits: int | None, ink: str) -> Figure | None:
    settings = [s for s in results.settings(dataset) if _any_history(results, dataset, s)]
    if not settings:
        return None
    figure, panels = _panels(len(settings), left=1.4, right=0.4)
    for panel, setting in zip(panels, settings, strict=True):
        cells = _cells(results, dataset, setting, n_bits)
        for height, (variant, cell) in enumerate(reversed(cells.items())):
            color = _style(variant, ink)["color"]
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
        panel.set_title(_setting_title(setting), loc="left")
    return figure


def _plot(panels: list[Axes], drawn: list[list[_Line]], ink: str, log: bool = False) -> None:
    """Draw lines on one common height, with bands, and name each of them at its right end."""
    drawn = [[line for line in lines if line.x] for lines in drawn]
    heights = [y for lines in drawn for line in lines for y in line.y]
    low, high = (0.7 * min(heights), 1.4 * max(heights)) if log else (0.0, 1.06 * max(heights))
    for panel, lines in zip(panels, drawn, strict=True):
        if log:
            panel.set_yscale("log")
        panel.set_ylim(low, high)
        panel.grid(axis="y", color=ink, alpha=0.12, lw=0.6)
        for line in lines:
            style = _style(line.variant, ink)
            panel.plot(line.x, line.y, ms=3.5, clip_on=False, **style)
            # a band would reach below zero seconds
            if any(line.spread) and not log and line.variant != _CHANCE:
                low_edge = [y - s for y, s in zip(line.y, line.spread, strict=True)]
                high_edge = [y + s for y, s in zip(line.y, line.spread, strict=True)]
                panel.fill_between(
                    line.x, low_edge, high_edge, color=style["color"], alpha=0.13, lw=0
                )
        _label_ends(panel, lines, ink, log)


def _label_ends(panel: Axes, lines: list[_Line], ink: str, log: bool) -> None:
    """Write names to the right of the panel, apart from each other, tied to their lines."""
    low, high = panel.get_ylim()

    def share(y: float) -> float:
        return math.log(y / low) / math.log(high / low) if log else (y - low) / (high - low)

    wanted = sorted(lines, key=lambda line: line.y[-1])
    places = spread_out([share(line.y[-1]) for line in wanted], gap=0.055)
    for place, line in zip(places, wanted, strict=True):
        color = _style(line.variant, ink)["color"]
        panel.annotate(
            "chance" if line.variant == _CHANCE else title_of(line.variant),
            xy=(line.x[-1], line.y[-1]),
            xytext=(1.05, place),
            textcoords="axes fraction",
            va="center",
            fontsize=8,
            color=color,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": color,
                "lw": 0.6,
                "alpha": 0.6,
                "shrinkA": 1,
                "shrinkB": 3,
                "relpos": (0, 0.5),
            },
        )


def spread_out(wanted: Sequence[float], gap: float) -> list[float]:
    """Move sorted places within 0 to 1 apart to at least ``gap``, as little as possible.

    >>> [round(place, 3) for place in spread_out([0.0, 0.5, 0.5, 0.9], 0.1)]
    [0.0, 0.45, 0.55, 0.9]
    >>> [round(place, 3) for place in spread_out([0.98, 0.99], 0.1)]
    [0.9, 1.0]
    """
    # least squares under order and bounds: with the gaps taken out, isotonic regression, clipped
    blocks: list[list[float]] = []
    for number, place in enumerate(wanted):
        blocks.append([place - number * gap, 1.0])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            value, weight = blocks.pop()
            below = blocks[-1]
            below[0] = (below[0] * below[1] + value * weight) / (below[1] + weight)
            below[1] += weight
    top = max(0.0, 1.0 - (len(wanted) - 1) * gap)
    flat = [min(max(value, 0.0), top) for value, weight in blocks for _ in range(int(weight))]
    return [value + number * gap for number, value in enumerate(flat)]


def _style(variant: str, ink: str) -> dict[str, Any]:
    name, *parameters = variant.split("+")
    style = dict(_STYLES.get(name, _FALLBACK))
    if style["color"] == _INK:
        style["color"] = ink
    if parameters:
        style["ls"] = _VARIANT_DASHES[sum(map(ord, variant)) % len(_VARIANT_DASHES)]
    return style


def _round_axis(panel: Axes, cell: Cell) -> None:
    numbers = cell.round_numbers()
    panel.set_xticks(numbers if len(numbers) <= 12 else numbers[:: len(numbers) // 8])
    panel.set_xlim(numbers[0], max(numbers[-1], numbers[0] + 1))
    panel.set_xlabel("round")


def _cells(results: Results, dataset: str, setting: str, n_bits: int | None) -> dict[str, Cell]:
    found = {
        variant: results.cell(dataset, setting, variant, n_bits)
        for variant in results.variants(dataset, setting)
    }
    return {variant: cell for variant, cell in found.items() if cell is not None}


def _any_history(results: Results, dataset: str, setting: str) -> bool:
    return any(
        len(summary.history) > 1
        for (of, at, *_), cell in results.cells.items()
        if (of, at) == (dataset, setting)
        for summary in cell.summaries
    )


def _setting_title(setting: str) -> str:
    return f"{setting}: {_STEPS[setting]}" if setting in _STEPS else setting


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _floats(values: Sequence[int]) -> list[float]:
    return [float(value) for value in values]
