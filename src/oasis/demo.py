"""The icon stream, told as a story: categories arrive unannounced, and search keeps up."""

from __future__ import annotations

import time

import numpy as np
from rich.console import Console

from oasis.codes import Codes
from oasis.datasets.dataset import Rows
from oasis.datasets.registry import load
from oasis.metrics import chance_map, mean_average_precision
from oasis.model import OASIS
from oasis.streams import rounds, runbook

N_BITS = 64


def run() -> None:
    """Stream 1,446 icons through the model in 12 rounds; print a line for each."""
    console = Console(highlight=False)
    icons = load("icons")
    console.print(
        f"\n[bold]{icons.n_samples:,} icons, {len(icons.classes)} categories, {N_BITS} bits each."
        "[/bold]\nEach round brings categories that nobody announced; stored codes never change,\n"
        "and old pictures are never looked at again.\n"
    )
    console.print(
        f"[dim]{'round':>5} {'icons':>6} {'MAP new':>8} {'old':>6} {'all':>6} {'chance':>7} "
        f"{'seconds':>8}  new categories[/dim]"
    )
    model = OASIS(N_BITS, random_state=0)
    codes: list[Codes] = []
    base: list[Rows] = []
    queries: list[Rows] = []
    asked_before = 0
    for each in rounds(icons, runbook("icons"), seed=0):
        start = time.perf_counter()
        model.partial_fit(icons.take(each.train), icons.labels(each.train))
        seconds = time.perf_counter() - start
        codes.append(model.codes_)
        base.append(each.train)
        queries.append(each.queries)
        stored, rows = np.vstack(codes), np.concatenate(base)
        asked = np.concatenate(queries)

        def quality(part: Rows, stored: Codes = stored, rows: Rows = rows) -> str:
            if not len(part):
                return "-"
            found = model.encode(icons.take(part))
            return f"{mean_average_precision(found, stored, icons.L[part], icons.L[rows]):.3f}"

        new, old = each.queries, asked[:asked_before]
        chance = chance_map(icons.L[asked], icons.L[rows])
        console.print(
            f"{each.number:>5} {len(rows):>6} [bold]{quality(new):>8}[/bold] {quality(old):>6} "
            f"[bold]{quality(asked):>6}[/bold] {chance:>7.3f} {seconds:>8.2f}  "
            f"{', '.join(each.new_classes)}",
            no_wrap=True,
            overflow="ellipsis",
        )
        asked_before = len(asked)
    console.print(
        f"\n{len(np.vstack(codes)):,} codes of {N_BITS // 8} bytes; MAP of held-out icons, picture "
        "and words together, beside what a random order would give.\n"
    )
