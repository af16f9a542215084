"""MAP by round as an SVG drawing: new, old and all queries, beside chance."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from oasis.demo.story import Told

_WIDTH, _HEIGHT = 960, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 116, 16, 40
_GAP = 17
"""Minimum distance between two names at the ends of lines, in pixels."""

_SERIES = (("all", "all"), ("old", "old"), ("new", "new"), ("chance", "chance"))


def chart(rounds: Sequence[Told]) -> str:
    """Return the chart as an ``svg`` element; colours come from the classes of its lines."""
    drawn = [
        '<svg class="chart" role="img" aria-label="MAP by round, beside chance" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}">'
    ]
    for tenths in range(0, 11, 2):
        y = _y(tenths / 10)
        drawn.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="tick" x="{_LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">'
            f"{tenths / 10:.1f}</text>"
        )
    for place, told in enumerate(rounds):
        drawn.append(
            f'<text class="tick" x="{_x(place, rounds):.1f}" y="{_HEIGHT - _BOTTOM + 22}" '
            f'text-anchor="middle">{told.number}</text>'
        )
    drawn.append(
        f'<text class="tick" x="{_WIDTH - _RIGHT + 14}" y="{_HEIGHT - _BOTTOM + 22}">round</text>'
    )
    ends: list[tuple[float, str, str]] = []
    for field, name in reversed(_SERIES):
        values = [(place, getattr(told, field)) for place, told in enumerate(rounds)]
        points = [
            (_x(place, rounds), _y(value), value, rounds[place].number)
            for place, value in values
            if value is not None
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in points)
        drawn.append(f'<polyline class="line {field}" points="{path}"/>')
        drawn += [
            f'<circle class="dot {field}" cx="{x:.1f}" cy="{y:.1f}" r="3.5">'
            f"<title>round {number}, {escape(name)}: {value:.3f}</title></circle>"
            for x, y, value, number in points
        ]
        ends.append((points[-1][1], f"{name} {points[-1][2]:.2f}", field))
    lowest = -1e9
    for y, name, field in sorted(ends):
        lowest = max(y, lowest + _GAP)
        drawn.append(
            f'<text class="name {field}" x="{_WIDTH - _RIGHT + 14}" y="{lowest + 5:.1f}">'
            f"{escape(name)}</text>"
        )
    return "".join([*drawn, "</svg>"])


def _x(place: int, rounds: Sequence[Told]) -> float:
    return _LEFT + 12 + place * (_WIDTH - _LEFT - _RIGHT - 24) / max(1, len(rounds) - 1)


def _y(value: float) -> float:
    return _TOP + (1 - value) * (_HEIGHT - _TOP - _BOTTOM)
