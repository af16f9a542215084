"""Taking times on a noisy machine: several ways in turns, the best of each."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypedDict

_PAUSE = 0.1


class Row(TypedDict):
    """One measurement: what, how much, how that compares, and which ratio is wanted.

    ``goal`` is such as ``<= 1.2`` or ``>= 0.85``, or empty.
    """

    name: str
    value: float
    unit: str
    ratio: float | None
    note: str
    goal: str


def row(
    name: str,
    value: float,
    ratio: float | None = None,
    note: str = "",
    unit: str = "s",
    goal: str = "",
) -> Row:
    return {"name": name, "value": value, "unit": unit, "ratio": ratio, "note": note, "goal": goal}


def row_of(measured: Mapping[str, Any], name: str) -> Row:
    """Return a row from a value with its unit and, where there is one, peer, ratio, bar and goal.

    A bar is for the value, a goal for the ratio.
    """
    told = {"peer": "{:.4g} " + measured["unit"] + " by the peer", "bar": "bar {:g}"}
    given = {key: measured[key] for key in told if measured.get(key) is not None}
    note = ", ".join(told[key].format(value) for key, value in given.items())
    goal = measured.get("goal", "")
    return row(name, measured["value"], measured.get("ratio"), note, measured["unit"], goal)


def best_of(repeats: int, ways: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    """Run all ways in turns, ``repeats`` times; return the shortest time of each, in seconds.

    Before each there is a pause: the threads of BLAS go on spinning after a product, and would take
    a core from the next way.
    """
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(repeats):
        for name, way in ways.items():
            time.sleep(_PAUSE)
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


def peak_bytes() -> int:
    """Return the most memory that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def peak_resident_bytes() -> int:
    """Return the most memory held since ``/proc/self/clear_refs`` was last told 5."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
