"""Counters and histograms in the text format of Prometheus (version 0.0.4)."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import TypeAlias

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper ends of the classes of durations, in seconds."""

_Labels: TypeAlias = tuple[tuple[str, str], ...]


class Counters:
    """What has happened so far, by name and labels; any thread may count.

    >>> counters = Counters()
    >>> counters.count("oasis_requests_total", "Requests answered.", {"status": "200"})
    >>> print(counters.text(), end="")
    # HELP oasis_requests_total Requests answered.
    # TYPE oasis_requests_total counter
    oasis_requests_total{status="200"} 1
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._help: dict[str, tuple[str, str]] = {}
        self._counts: dict[str, dict[_Labels, float]] = {}
        self._histograms: dict[str, dict[_Labels, list[float]]] = {}

    def count(
        self, name: str, what: str, labels: Mapping[str, str] | None = None, n: float = 1
    ) -> None:
        """Add to a counter."""
        key = tuple(sorted((labels or {}).items()))
        with self._guard:
            self._help.setdefault(name, ("counter", what))
            counts = self._counts.setdefault(name, {})
            counts[key] = counts.get(key, 0) + n

    def observe(
        self, name: str, what: str, seconds: float, labels: Mapping[str, str] | None = None
    ) -> None:
        """Add a duration to a histogram."""
        key = tuple(sorted((labels or {}).items()))
        with self._guard:
            self._help.setdefault(name, ("histogram", what))
            cells = self._histograms.setdefault(name, {}).setdefault(
                key, [0.0] * (len(BUCKETS) + 2)
            )
            cells[bisect_left(BUCKETS, seconds)] += 1
            cells[-1] += seconds

    def text(self, gauges: Iterable[tuple[str, str, float]] = ()) -> str:
        """Return everything as text; gauges are (name, what, value now)."""
        lines: list[str] = []
        with self._guard:
            for name, (kind, what) in sorted(self._help.items()):
                lines += [f"# HELP {name} {what}", f"# TYPE {name} {kind}"]
                for key, value in sorted(self._counts.get(name, {}).items()):
                    lines.append(f"{name}{_braces(key)} {value:.12g}")
                for key, cells in sorted(self._histograms.get(name, {}).items()):
                    lines += _histogram(name, key, cells)
        for name, what, value in gauges:
            lines += [f"# HELP {name} {what}", f"# TYPE {name} gauge", f"{name} {value:.12g}"]
        return "\n".join(lines) + "\n"


def _histogram(name: str, key: _Labels, cells: list[float]) -> list[str]:
    lines, below = [], 0.0
    for bound, n in zip((*BUCKETS, "+Inf"), cells[:-1], strict=True):
        below += n
        lines.append(f"{name}_bucket{_braces((*key, ('le', str(bound))))} {below:.12g}")
    return [
        *lines,
        f"{name}_sum{_braces(key)} {cells[-1]:.12g}",
        f"{name}_count{_braces(key)} {below:.12g}",
    ]


def _braces(key: _Labels) -> str:
    if not key:
        return ""
    inside = ",".join(f'{name}="{_escape(value)}"' for name, value in key)
    return f"{{{inside}}}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
