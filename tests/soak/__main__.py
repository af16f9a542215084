"""Faults and load until the time is over, and one table of what came of it.

Run from the root of the repository: ``python -m tests.soak --minutes 60``. Every row runs in a
process of its own, two at a time; its share of the minutes is its weight. An interrupt ends it with
the table of what was done so far. The exit code is 1 if anything was lost, crashed, wrong or
answered with a status of 500 or more.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from attackers import NAMES  # noqa: E402

from tests.soak.trials import Skipped, Tally, Trials  # noqa: E402

ROWS = {
    "day": ("tests.soak.long_run", "day", 20, "ingest and search without pause"),
    "milvus": ("tests.soak.kills", "milvus", 12, "kills of the Milvus server"),
    "service": ("tests.soak.kills", "service", 10, "kills of the service under load"),
    "command": ("tests.soak.kills", "command_line", 8, "kills of oasis ingest"),
    "collection": ("tests.soak.kills", "collection", 8, "kills of a writer"),
    "creation": ("tests.soak.kills", "creation", 4, "kills while a collection is made"),
    "save": ("tests.soak.kills", "saving", 4, "kills while a model is saved"),
    "backup": ("tests.soak.kills", "backups", 4, "kills while a copy is made"),
    "disk": ("tests.soak.disks", "full", 6, "full disks"),
    "snapshot": ("tests.soak.kills", "snapshots", 6, "copies of a stopped writer's files"),
    "interrupt": ("tests.soak.disks", "interrupts", 5, "interrupts"),
    "fork": ("tests.soak.disks", "forks", 4, "forked children"),
    "model": ("tests.soak.damage", "model", 3, "damaged model files"),
    "index": ("tests.soak.damage", "index", 3, "damaged index files"),
    "mat": ("tests.soak.damage", "mat", 2, "damaged MAT files"),
    "npz": ("tests.soak.damage", "npz_file", 2, "damaged npz files"),
    "collection-model": (
        "tests.soak.damage",
        "collection_model",
        3,
        "a collection's model damaged",
    ),
    "collection-index": (
        "tests.soak.damage",
        "collection_index",
        3,
        "a collection's index damaged",
    ),
    "catalog": ("tests.soak.damage", "catalog", 4, "a collection's catalog damaged"),
    "requests": ("tests.soak.attacks", "requests", 5, "hostile requests"),
    "pictures": ("tests.soak.attacks", "pictures", 5, "hostile pictures"),
    **{
        f"pressure-{name.replace(' ', '-')}": (
            "tests.soak.attacks",
            f"pressure:{name}",
            3,
            f"users beside lawful pressure: {name}",
        )
        for name in NAMES
    },
}
"""Name -> module, function, weight, and what the table calls it."""

COLUMNS = ("tried", "acknowledged", "lost", "crashed", "wrong", "5xx")


@dataclass
class Row:
    """One row of the table, while it runs and afterwards."""

    name: str
    seconds: float
    seed: int
    tally: Tally = field(default_factory=Tally)
    said: list[str] = field(default_factory=list)
    state: str = "waiting"
    reason: str = ""
    process: subprocess.Popen[str] | None = None

    def run(self):
        """Run the row in a process of its own, and read what it says."""
        if self.state != "waiting":
            return
        self.state = "running"
        self.process = process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak", "--row", self.name, "--seed", str(self.seed),
             "--seconds", f"{self.seconds:g}"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip
        reader = threading.Thread(target=lambda: self.said.extend(process.stderr))
        reader.start()
        for line in process.stdout:
            if line.startswith("{"):
                self.tally = Tally(**json.loads(line))
            elif line.startswith("skipped: "):
                self.reason = f"not run: {line.removeprefix('skipped: ').strip()}"
            else:
                self.said.append(line)
        code = process.wait()
        reader.join()
        process.stdout.close()
        process.stderr.close()
        if self.state == "stopped":
            self.reason = "cut short"
            return
        if code:  # it could not even count
            self.tally.crashed += 1
            self.said.append(f"-- the row ended with {code}\n")
        self.state = "skipped" if self.reason else "done"

    def stop(self):
        """End the row early; what it has counted stays."""
        if self.state == "running" and self.process is not None:
            self.process.terminate()
        if self.state in ("running", "waiting"):
            self.reason = "not run" if self.state == "waiting" else ""
            self.state = "stopped"


def run_row(name, seed, seconds):
    """Run one row in this process; the last line it prints is its tally."""
    from importlib import import_module

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what it has started ends with it
    module, function, *_ = ROWS[name]
    function, _, detail = function.partition(":")
    run = getattr(import_module(module), function)
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place, prefix="oasis-soak-") as folder:
        trials = Trials(Path(folder), seed, seconds)
        try:
            run(trials, *filter(None, [detail]))
        except Skipped as reason:
            print(f"skipped: {reason}", flush=True)
        trials.say(always=True)


def table(rows, minutes, seed):
    """Return the table in Markdown."""
    lines = [
        f"| fault ({minutes:g} minutes on two cores, seed {seed}) | {' | '.join(COLUMNS)} |",
        "|---|" + "---:|" * len(COLUMNS),
    ]
    total = Tally()
    for row in rows:
        values = [getattr(row.tally, each.name) for each in fields(Tally)]
        for each in fields(Tally):
            setattr(total, each.name, getattr(total, each.name) + getattr(row.tally, each.name))
        shown = [f"{value:,}" if row.tally.tried else "-" for value in values]
        what = ROWS[row.name][3] + (f" ({row.reason})" if row.reason else "")
        lines.append(f"| {what} | {' | '.join(shown)} |")
    values = [f"{getattr(total, each.name):,}" for each in fields(Tally)]
    lines.append(f"| **all** | {' | '.join(values)} |")
    return "\n".join(lines), total


def show_progress(rows, ended, every=15.0):
    began = time.monotonic()
    while not ended.wait(every):
        running = ", ".join(f"{r.name} {r.tally.tried}" for r in rows if r.state == "running")
        done = sum(row.state in ("done", "skipped") for row in rows)
        bad = sum(not row.tally.is_clean for row in rows)
        print(
            f"{time.monotonic() - began:6.0f} s  {done} of {len(rows)} rows done, {bad} with "
            f"faults; running: {running}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="for all rows together")
    parser.add_argument("--only", default="", help=f"rows, separated by commas: {', '.join(ROWS)}")
    parser.add_argument("--seed", type=int, help="of all draws; another one every time")
    parser.add_argument("--row", choices=ROWS, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else secrets.randbelow(1_000_000)
    if options.row:
        run_row(options.row, seed, options.seconds)
        return 0
    names = options.only.split(",") if options.only else list(ROWS)
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        parser.error(f"there is no row {unknown[0]!r}; rows: {', '.join(ROWS)}")
    weight = sum(ROWS[name][2] for name in names)
    share = options.minutes * 60 * min(2, len(names)) / weight
    rows = [Row(name, ROWS[name][2] * share, seed + at) for at, name in enumerate(names)]
    print(f"seed {seed}, {options.minutes:g} minutes, {len(rows)} rows", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: [row.stop() for row in rows])
    signal.signal(signal.SIGINT, lambda *_: [row.stop() for row in rows])
    ended = threading.Event()
    progress = threading.Thread(target=show_progress, args=(rows, ended))
    progress.start()
    try:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(Row.run, rows))
    finally:
        ended.set()
        progress.join()
    for row in rows:
        if row.said:
            print(f"\n== {row.name}, seed {row.seed}\n{''.join(row.said)[-6000:]}")
    text, total = table(rows, options.minutes, seed)
    print(f"\n{text}")
    return 0 if total.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
