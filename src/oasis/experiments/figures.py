"""Figures: panels of lines, drawn once, as SVG for pages and as PNG.

The SVG has no background and uses the page's text colour, for light and dark pages. The same
results give the same bytes. The colours are distinguishable by colour-blind readers.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oasis.errors import MissingExtraError
from oasis.experiments.methods import title_of
from oasis.experiments.tables import Cells, Drawing, Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK = "#010203"  # a colour that no method has, so that it can be replaced in the SVG
_WIDTH, _HEIGHT = 3.6, 3.3  # of a panel, inches
_STEPS = {"first": "all classes known", "second": "new classes join", "third": "all classes new"}

# the palette of Okabe and Ito; controls are less prominent than the methods that learn
_STYLES: dict[str, tuple[str, float, str, str]] = {
    "oasis": ("#0072B2", 2.6, "-", "o"),
    "oasis-search": ("#0072B2", 2.0, ":", "o"),
    "oasis-paper": ("#56B4E9", 2.2, "-", "s"),
    "fomh": ("#009E73", 1.8, "-", "^"),
    "lemon": ("#D55E00", 1.8, "-", "v"),
    "thor": ("#8C564B", 1.8, "-", "<"),
    "iw-omh": ("#882255", 1.8, "-", ">"),
    "hcfw": ("#882255", 1.8, "--", ">"),
    "doch": ("#332288", 1.8, "-", "d"),
    "choice": ("#999933", 1.8, "-", "8"),
    "omh-dq": ("#117733", 1.4, "--", "p"),
    "sapmh": ("#AA4499", 1.4, "--", "h"),
    "random-projection": ("#999999", 1.2, ":", "x"),
    "pca-sign": ("#999999", 1.2, "--", "+"),
    "itq": ("#CC79A7", 1.4, "-", "D"),
    "itq-refit": ("#CC79A7", 1.4, "--", "d"),
    "float-cosine": ("#E69F00", 1.4, "-.", "*"),
    "probe": (_INK, 1.4, "-.", "P"),
    "chance": (_INK, 1.0, ":", ""),
}
_OTHERS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#8C564B")
"""Colours of lines that do not belong to a method of ours."""


@dataclass(frozen=True)
class Curve:
    """One line of a panel: a method with its parameters or any name, x, y, half of an interval."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    half: Sequence[float] = ()
    points: bool = False

    @classmethod
    def of(cls, name: str, x: Sequence[float], estimates: Sequence[Estimate | None]) -> Curve:
        """Return a line of the estimates that are there."""
        known = [(at, each) for at, each in zip(x, estimates, strict=True) if each is not None]
        halves = [each.half or 0.0 for _, each in known]
        return cls(name, [at for at, _ in known], [each.mean for _, each in known], halves)


def draw(
    name: str,
    title: str,
    caption: str,
    panels: Mapping[str, Sequence[Curve]],
    x: str,
    y: str = "MAP",
    *,
    log: bool = False,
    ticks: Sequence[tuple[float, str]] = (),
    marked: float | None = None,
) -> tuple[Drawing, ...]:
    """Draw lines in panels side by side, with one legend; nothing if there is no line.

    Parameters
    ----------
    panels : title -> lines
    log : whether the x axis is logarithmic
    ticks : positions and names on the x axis
    marked : position of a vertical line
    """
    panels = {key: [line for line in lines if line.x] for key, lines in panels.items()}
    panels = {key: lines for key, lines in panels.items() if lines}
    if not panels:
        return ()
    check_available()
    import matplotlib
    from matplotlib.figure import Figure

    look: Any = {
        **dict.fromkeys(
            ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _INK
        ),
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with matplotlib.rc_context(look):
        figure = Figure(figsize=(_WIDTH * len(panels) + 1.7, _HEIGHT), layout="constrained")
        axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        entries: dict[str, Any] = {}
        for panel, (heading, lines) in zip(axes, panels.items(), strict=True):
            _fill(panel, lines, entries)
            panel.set_title(heading, loc="left")
            panel.set_xlabel(x)
            if log:
                panel.set_xscale("log")
            if ticks:
                panel.set_xticks([at for at, _ in ticks], [text for _, text in ticks])
                panel.minorticks_off()
            if marked is not None:
                panel.axvline(marked, color=_INK, lw=0.8, ls=":", alpha=0.7)
        axes[0].set_ylabel(y)
        axes[0].set_ylim(0)
        figure.legend(
            entries.values(), entries.keys(), loc="outside right center", frameon=False, fontsize=8
        )
        files = {}
        for kind in ("svg", "png"):
            stream = io.BytesIO()
            metadata = {"Date": None} if kind == "svg" else {"Software": None}
            transparent = kind == "svg"
            figure.savefig(stream, format=kind, dpi=110, transparent=transparent, metadata=metadata)
            files[kind] = stream.getvalue()
    svg = files["svg"].decode().replace(_INK, "currentColor")
    return (Drawing(name, title, caption, svg[svg.index("<svg") :], files["png"]),)


def check_available() -> None:
    """Raise if figures cannot be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("matplotlib", extra="figures", what="drawing figures") from error


def _fill(panel: Axes, lines: Sequence[Curve], entries: dict[str, Any]) -> None:
    panel.grid(axis="y", color=_INK, alpha=0.12, lw=0.6)
    for line in lines:
        method, plus, _ = line.name.partition("+")
        number = list(entries).index(line.name) if line.name in entries else len(entries)
        other = _OTHERS[number % len(_OTHERS)], 1.8, "-", "o"
        color, width, dashes, marker = _STYLES.get(method, other)
        shown: dict[str, Any] = {"color": color, "marker": marker, "ms": 3.5}
        shown |= {"ls": "none"} if line.points else {"lw": width, "ls": "--" if plus else dashes}
        (drawn,) = panel.plot(line.x, line.y, **shown)
        entries.setdefault(title_of(line.name), drawn)
        if any(line.half):
            low = [y - half for y, half in zip(line.y, line.half, strict=True)]
            high = [y + half for y, half in zip(line.y, line.half, strict=True)]
            panel.fill_between(line.x, low, high, color=color, alpha=0.13, lw=0)


def quality(cells: Cells) -> tuple[Drawing, ...]:
    """Return MAP by round, of each round's own queries, and by code length."""
    n_bits, name, lengths = cells.shown_bits, cells.dataset, cells.bits
    by_round: dict[str, list[Curve]] = {}
    by_bits: dict[str, list[Curve]] = {}
    for setting in cells.settings:
        here, heading = cells.at(setting, n_bits), _heading(setting)
        by_round[heading] = [
            Curve.of(variant, cell.round_numbers, cell.by_round("new", "expected"))
            for variant, cell in here.items()
        ]
        if here:
            most = max(here.values(), key=lambda cell: len(cell.round_numbers))
            chance = Curve.of("chance", most.round_numbers, most.by_round("new", "chance"))
            by_round[heading].append(chance)
        for variant in cells.variants if len(lengths) > 1 else ():
            found = [cells.cell(setting, variant, n) for n in lengths]
            values = [None if cell is None else cell.last("new", "expected") for cell in found]
            by_bits.setdefault(heading, []).append(Curve.of(variant, lengths, values))
    return (
        *draw(
            f"{name}-map-by-round",
            "MAP by round",
            f"Code length: {n_bits}; queries of the current round against everything stored so "
            "far; expected ties. Bands: 95 % interval over seeds. Dashed: tuned, or batch methods, "
            "which may keep all features and encode everything again.",
            by_round,
            "round",
        ),
        *draw(
            f"{name}-map-by-bits",
            "MAP by code length",
            "Last round, queries of that round. Methods without codes are horizontal lines.",
            by_bits,
            "bits",
            log=True,
            ticks=[(n, f"{n}") for n in lengths],
        ),
    )


def sensitivity(cells: Cells) -> tuple[Drawing, ...]:
    """Return MAP by the value of a parameter, one figure for each parameter that was varied."""
    found: list[Drawing] = []
    for method, parameter in dict.fromkeys((key[1], key[2]) for key in cells.sweeps):
        curves = []
        default = None
        for (setting, of, name, n_bits), values in cells.sweeps.items():
            if (of, name) != (method, parameter) or min(values) <= 0:
                continue
            estimates = [cell.last("new", "expected") for cell in values.values()]
            curves.append(Curve.of(f"{setting}, {n_bits} bits", list(values), estimates))
            recorded = next(iter(values.values())).method.get("defaults", {}).get(parameter)
            default = float(recorded) if isinstance(recorded, (int, float)) else default
        found += draw(
            f"{cells.dataset}-sensitivity-{method}-{parameter}",
            f"Sensitivity to {parameter}",
            "MAP at the last round, queries of that round; the dotted line marks the default.",
            {title_of(method): curves},
            parameter,
            log=True,
            marked=default,
        )
    return tuple(found)


def _heading(setting: str) -> str:
    return f"{setting}: {_STEPS[setting]}" if setting in _STEPS else setting
