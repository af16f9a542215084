"""Run the benchmarks, print their ratios as tables, keep them as JSON.

``python -m benchmarks [--check] [suite ...]``; without a name the quick suites run, with ``all``
every one. Results go to ``benchmarks/results.json``, where suites that were not run keep their last
figures. The last table has every ratio with a goal, beside the committed one. With ``--check``
nothing is written, and the exit code is 1 where a ratio is more than 1.3 of the committed one.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

from benchmarks.comparing import Compared, commit, committed_results, compared

QUICK = ("learning", "evaluation")
SUITES = (
    *QUICK,
    "startup",
    "features",
    "methods",
    "search",
    "shards",
    "collection",
    "memory",
    "load",
    "milvus",
    "dask",
    "peers",
)
QUALITY = ("streams", "lengths", "ablation", "next", "bare_pictures")
"""Suites with options of their own, which measure quality and print one table."""

RESULTS = Path(__file__).with_name("results.json")


def main(names: list[str]) -> int:
    if names and names[0] in QUALITY:
        quality: int = import_module(f"benchmarks.{names[0]}").main(names[1:])
        return quality
    if {"-h", "--help"} & set(names):
        print(f"{__doc__}\nSuites: {', '.join(SUITES)}; without a name {' and '.join(QUICK)}.")
        print(f"Quality, each with --help of its own: {', '.join(QUALITY)}.")
        return 0
    check = "--check" in names
    names = [name for name in names if name != "--check"]
    if names == ["all"]:
        names = list(SUITES)
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        print(f"unknown suite {unknown[0]!r}; known: {', '.join(SUITES)}, all", file=sys.stderr)
        return 2
    console = Console()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    committed, measured = committed_results(RESULTS), {}
    for name in names or QUICK:
        start = time.perf_counter()
        rows = measured[name] = import_module(f"benchmarks.{name}").run()
        table = Table("measurement", "value", "ratio", "note", title=name, title_justify="left")
        for each in rows:
            ratio = "" if each["ratio"] is None else f"{each['ratio']:.3g}"
            table.add_row(each["name"], f"{each['value']:.4g} {each['unit']}", ratio, each["note"])
        console.print(table)
        console.print(f"{name} took {time.perf_counter() - start:.0f} s\n")
        results[name] = {"machine": _machine(), "rows": rows}
        if not check:
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    if not check:
        console.print(f"written to {RESULTS}")
    ratios = compared(measured, committed)
    console.print(_summary(ratios))
    return int(check and any(each.worse for each in ratios))


def _summary(ratios: list[Compared]) -> Table:
    table = Table(
        "suite", "ratio of", "now", "committed", "goal", "", title="all", title_justify="left"
    )
    for each in ratios:
        before = "" if each.committed is None else f"{each.committed:.3g}"
        told = [word for word, holds in (("reached", each.reached), ("worse", each.worse)) if holds]
        table.add_row(each.suite, each.name, f"{each.now:.3g}", before, each.goal, ", ".join(told))
    return table


def _machine() -> dict[str, str]:
    return {
        "cores": str(os.cpu_count()),
        "processor": _processor(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "blas": " ".join(sorted({_blas(each) for each in threadpool_info()})),
        "oasis": version("oasis-hash"),
        "commit": commit(RESULTS.parent),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def _blas(library: dict[str, Any]) -> str:
    return f"{library['internal_api']}-{library['version']}x{library['num_threads']}"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
