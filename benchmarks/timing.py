"""Taking times on a noisy machine: several ways in turns, the best of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypedDict


class Row(TypedDict):
    """One measurement: what, how long, how that compares, and what the bar is."""

    name: str
    seconds: float
    ratio: float | None
    note: str


def row(name: str, seconds: float, ratio: float | None = None, note: str = "") -> Row:
    return {"name": name, "seconds": seconds, "ratio": ratio, "note": note}


def best_of(repeats: int, ways: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    """Run all ways in turns, ``repeats`` times; return the shortest time of each, in seconds."""
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(repeats):
        for name, way in ways.items():
            best[name] = min(best[name], seconds(way))
    return best


def seconds(way: Callable[[], Any]) -> float:
    start = time.perf_counter()
    way()
    return time.perf_counter() - start


def resident_bytes() -> int:
    """Return the memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096
