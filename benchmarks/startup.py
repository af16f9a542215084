"""Start-up: CPU seconds of short commands, as ratios to ``import numpy, faiss`` in one run.

A search of a small collection in a fresh process is nearly all start-up. Commands run in turns, in
child processes, and the best of several runs counts; CPU time of the child, system time included.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.timing import Row, row
from oasis.collection import Collection
from oasis.features.extractor import Extractor
from oasis.features.text import HashedText

REPEATS = 5
BARS = {"oasis --help": 0.25, "oasis info": 0.8, "oasis search --text": 0.8}
"""CPU seconds, on a machine whose ``import numpy, faiss`` takes about 0.25."""


def run() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.oasis"
        _fill(path)
        oasis = (sys.executable, "-m", "oasis")
        commands: dict[str, Sequence[str]] = {
            "import numpy, faiss": (sys.executable, "-c", "import numpy, faiss"),
            "from oasis import Client": (sys.executable, "-c", "from oasis import Client"),
            "from oasis import OASIS": (sys.executable, "-c", "from oasis import OASIS"),
            "oasis --help": (*oasis, "--help"),
            "oasis info": (*oasis, "info", str(path)),
            "oasis search --text": (*oasis, "search", str(path), "--text", "red boat"),
            "oasis search --like": (*oasis, "search", str(path), "--like", "7"),
            "oasis search --word": (*oasis, "search", str(path), "--word", "red"),
        }
        # compiled modules are kept, as after an installation, and the first run writes them
        environment = os.environ | {"PYTHONPYCACHEPREFIX": str(Path(folder) / "compiled")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        best = dict.fromkeys(commands, float("inf"))
        for _ in range(1 + REPEATS):
            for name, command in commands.items():
                best[name] = min(best[name], cpu_seconds(command, environment))
    unit = best["import numpy, faiss"]
    return [
        row(name, seconds, seconds / unit, f"bar {BARS[name]:g} s" if name in BARS else "")
        for name, seconds in best.items()
    ]


def cpu_seconds(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Return the CPU time of a command that must succeed, user and system."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {child.returncode}")
    return usage.ru_utime + usage.ru_stime


def _fill(path: Path) -> None:
    """Make a collection of 2,000 captions, with the model and the index written to files."""
    rng = np.random.default_rng(0)
    colours, things = ("red", "green", "blue"), ("boat", "car", "house", "tree")
    extractor = Extractor({"text": ("text", HashedText())})
    with Collection.open(path, 64, extractor=extractor) as collection:
        for start in range(0, 2_000, 500):
            labels = [
                [str(rng.choice(colours)), str(rng.choice(things))]
                for _ in range(start, start + 500)
            ]
            collection.ingest_items(
                [
                    {"id": start + row, "text": f"a {' '.join(names)}", "labels": names}
                    for row, names in enumerate(labels)
                ]
            )
        collection.checkpoint()
