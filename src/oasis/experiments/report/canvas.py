"""The canvas of figures: panels side by side, lines labelled at their ends, one ink colour.

Each figure is drawn twice: as PNG on white, and as SVG without a background in the page's text
colour, for light and dark pages. The same results give the same bytes. The colours are
distinguishable by colour-blind readers.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from oasis.errors import MissingExtraError
from oasis.experiments.measure.cells import Estimate, title_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# a colour that no method has, so that it can be replaced in the SVG
_INK = "#010203"
_PRINT_INK = "#222222"
_PANEL_WIDTH, _PANEL_HEIGHT = 2.9, 3.1  # inches
_LABEL_HEIGHT = 0.17  # inches from one label to the next
CHANCE = ""
"""The variant of a line that shows chance."""

# the palette of Okabe and Ito; controls are less prominent than the methods that learn
_STYLES: dict[str, dict[str, Any]] = {
    "oasis": {"color": "#0072B2", "lw": 2.6, "marker": "o"},
    "oasis-paper": {"color": "#56B4E9", "lw": 2.2, "marker": "s"},
    "fomh": {"color": "#009E73", "lw": 1.8, "marker": "^"},
    "lemon": {"color": "#D55E00", "lw": 1.8, "marker": "v"},
    "thor": {"color": "#8C564B", "lw": 1.8, "marker": "<"},
    "iw-omh": {"color": "#882255", "lw": 1.8, "marker": ">"},
    "omh-dq": {"color": "#117733", "lw": 1.4, "ls": "--", "marker": "p"},
    "sapmh": {"color": "#AA4499", "lw": 1.4, "ls": "--", "marker": "h"},
    "random-projection": {"color": "#999999", "lw": 1.2, "ls": ":", "marker": "x"},
    "pca-sign": {"color": "#999999", "lw": 1.2, "ls": "--", "marker": "+"},
    "itq": {"color": "#CC79A7", "lw": 1.4, "marker": "D"},
    "itq-refit": {"color": "#CC79A7", "lw": 1.4, "ls": "--", "marker": "d"},
    "float-cosine": {"color": "#E69F00", "lw": 1.4, "ls": "-.", "marker": "*"},
    "completed-cosine": {"color": "#E69F00", "lw": 1.4, "ls": ":", "marker": "X"},
    "probe": {"color": _INK, "lw": 1.4, "ls": "-.", "marker": "P"},
    CHANCE: {"color": _INK, "lw": 1.0, "ls": (0, (2, 2)), "alpha": 0.7},
}
_FALLBACK: dict[str, Any] = {"color": "#F0E442", "lw": 1.6, "marker": "h"}
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
"""Colours of lines that do not belong to a method."""
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
class Line:
    """One line of a panel: variant, x, y and spread.

    ``variant`` is a method with its parameters, or `CHANCE`. Any other line has its own ``color``,
    and ``variant`` is its name.
    """

    variant: str
    x: list[float]
    y: list[float]
    spread: list[float]
    color: str = ""

    @property
    def title(self) -> str:
        """Name of the line."""
        if self.color:
            return self.variant
        return "chance" if self.variant == CHANCE else title_of(self.variant)

    def style(self, ink: str) -> dict[str, Any]:
        """Return the drawing style of the line."""
        if self.color:
            return {"color": self.color, "lw": 1.8, "marker": "o"}
        return style_of(self.variant, ink)

    @classmethod
    def of(cls, variant: str, x: Sequence[float], estimates: Sequence[Estimate | None]) -> Line:
        known = [(at, each) for at, each in zip(x, estimates, strict=True) if each is not None]
        return cls(
            variant,
            [at for at, _ in known],
            [each.mean for _, each in known],
            [each.spread or 0.0 for _, each in known],
        )


def check_available() -> None:
    """Raise if figures cannot be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("matplotlib", extra="figures", what="drawing figures") from error


def finish(
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


def side_by_side(
    n: int, left: float = 0.5, right: float = 1.35, end: float = 0.0
) -> tuple[Figure, list[Axes]]:
    """Return panels side by side, with space (in inches) right of each, and more after the last."""
    from matplotlib.figure import Figure

    width = left + _PANEL_WIDTH + right
    total, bottom, top = 0.2 + width * n + end, 0.5, 0.35
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


def plot(
    panels: Sequence[Axes],
    drawn: Sequence[list[Line]],
    ink: str,
    *,
    log: bool = False,
) -> None:
    """Draw lines on a common y axis, with bands, and label each at its right end."""
    drawn = [[line for line in lines if line.x] for lines in drawn]
    _make_room(panels, max((len(lines) for lines in drawn), default=0))
    heights = [y for lines in drawn for line in lines for y in line.y]
    low, high = (0.7 * min(heights), 1.4 * max(heights)) if log else (0.0, 1.06 * max(heights))
    for panel, lines in zip(panels, drawn, strict=True):
        if log:
            panel.set_yscale("log")
        panel.set_ylim(low, high)
        panel.grid(axis="y", color=ink, alpha=0.12, lw=0.6)
        for line in lines:
            style = line.style(ink)
            panel.plot(line.x, line.y, ms=3.5, clip_on=False, **style)
            # a band could extend below zero seconds
            if any(line.spread) and not log and line.variant != CHANCE:
                low_edge = [y - s for y, s in zip(line.y, line.spread, strict=True)]
                high_edge = [y + s for y, s in zip(line.y, line.spread, strict=True)]
                panel.fill_between(
                    line.x, low_edge, high_edge, color=style["color"], alpha=0.13, lw=0
                )
        _label_ends(panel, lines, ink, log)


def _figure(panel: Axes) -> Figure:
    return cast("Figure", panel.figure)  # panels are never in a part of a figure


def _make_room(panels: Sequence[Axes], n_labels: int) -> None:
    """Make panels higher where so many labels would not fit beside them."""
    more = (n_labels - 1) * _LABEL_HEIGHT - _PANEL_HEIGHT
    if not panels or more <= 0:
        return
    figure = _figure(panels[0])
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + more)
    for panel in panels:
        left, bottom, share, _ = panel.get_position().bounds
        tall = (_PANEL_HEIGHT + more) / (height + more)
        panel.set_position((left, bottom * height / (height + more), share, tall))


def _label_ends(panel: Axes, lines: list[Line], ink: str, log: bool) -> None:
    """Write names right of the panel, without overlap, connected to their lines."""
    low, high = panel.get_ylim()

    def share(y: float) -> float:
        return math.log(y / low) / math.log(high / low) if log else (y - low) / (high - low)

    wanted = sorted(lines, key=lambda line: line.y[-1])
    inches = panel.get_position().height * _figure(panel).get_size_inches()[1]
    places = spread_out([share(line.y[-1]) for line in wanted], gap=_LABEL_HEIGHT / inches)
    for place, line in zip(places, wanted, strict=True):
        color = line.style(ink)["color"]
        panel.annotate(
            line.title,
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
    """Move sorted positions in [0, 1] as little as possible, to distances of at least ``gap``.

    >>> [round(place, 3) for place in spread_out([0.0, 0.5, 0.5, 0.9], 0.1)]
    [0.0, 0.45, 0.55, 0.9]
    >>> [round(place, 3) for place in spread_out([0.98, 0.99], 0.1)]
    [0.9, 1.0]
    """
    # least squares with order and bounds: isotonic regression after subtracting the gaps, clipped
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


def style_of(variant: str, ink: str) -> dict[str, Any]:
    name, *parameters = variant.split("+")
    style = dict(_STYLES.get(name, _FALLBACK))
    if style["color"] == _INK:
        style["color"] = ink
    if parameters:
        style["ls"] = _VARIANT_DASHES[sum(map(ord, variant)) % len(_VARIANT_DASHES)]
    return style
