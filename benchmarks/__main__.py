"""Run the benchmarks, print their ratios as tables, keep them as JSON.

``python -m benchmarks [suite ...]``; without a name the quick suites run, with ``all`` every one.
Results go to ``benchmarks/results.json``, where suites that were not run keep their last figures.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from importlib import import_module
from pathlib import Path

import numpy as np
import scipy
from rich.console import Console
from rich.table import Table

QUICK = ("learning", "evaluation")
SUITES = (
    *QUICK,
    "startup",
    "features",
    "methods",
    "search",
    "shards",
    "collection",
    "streams",
    "load",
    "milvus",
    "dask",
)
RESULTS = Path(__file__).with_name("results.json")


def main(names: list[str]) -> int:
    if names == ["all"]:
        names = list(SUITES)
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        print(f"unknown suite {unknown[0]!r}; known: {', '.join(SUITES)}, all", file=sys.stderr)
        return 2
    console = Console()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in names or QUICK:
        start = time.perf_counter()
        rows = import_module(f"benchmarks.{name}").run()
        table = Table("measurement", "value", "ratio", "note", title=name, title_justify="left")
        for each in rows:
            ratio = "" if each["ratio"] is None else f"{each['ratio']:.3g}"
            table.add_row(each["name"], f"{each['value']:.4g} {each['unit']}", ratio, each["note"])
        console.print(table)
        console.print(f"{name} took {time.perf_counter() - start:.0f} s\n")
        results[name] = {"machine": _machine(), "rows": rows}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    console.print(f"written to {RESULTS}")
    return 0


def _machine() -> dict[str, str]:
    return {
        "cores": str(os.cpu_count()),
        "processor": _processor(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
