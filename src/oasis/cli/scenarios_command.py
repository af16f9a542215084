"""``oasis scenarios``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from oasis.cli.console import print_json

_STEPS = 100
_QUICK_SAMPLES = 1000


def scenarios(
    dataset: Annotated[
        str, typer.Option(help="Data sets: coco79, wiki, icons, synthetic@3000, an .npz path ...")
    ],
    scenario: Annotated[str | None, typer.Option(help="Scenarios by name, all by default.")] = None,
    method: Annotated[
        str, typer.Option(help="Online methods, with optional parameters: oasis+owned=16.")
    ] = "oasis-paper,oasis,lemon",
    bits: Annotated[int, typer.Option(help="Code length.")] = 64,
    seeds: Annotated[int, typer.Option(help="Number of seeds, from 0.", min=1)] = 1,
    samples: Annotated[
        int, typer.Option(help="Largest number of samples of a data set.", min=1)
    ] = 8000,
    data: Annotated[
        Path | None, typer.Option(help="Folder of data files; $OASIS_DATA or ./data by default.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="One seed, and at most 1,000 samples of a data set.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Evaluate methods on hard streams: single-class rounds, wrong labels, unseen words and more.

    Several names are separated by commas. Prints Markdown tables, means over seeds.

    Example: oasis scenarios --dataset synthetic@1000 --scenario wrong-labels,tiny-rounds
    """
    from oasis.cli.progress import progress_of
    from oasis.experiments.run.definition import check_dataset, load_dataset
    from oasis.experiments.scenarios.scoreboard import scoreboard
    from oasis.experiments.scenarios.transformations import SCENARIOS, scenario_named
    from oasis.experiments.scenarios.trials import applies, carry_out

    names = [check_dataset(name) for name in _names(dataset)]
    wanted = [scenario_named(name) for name in _names(scenario or ",".join(SCENARIOS))]
    plan = [
        (each, variant, seed)
        for each in wanted
        for variant in _names(method)
        if applies(each, variant)
        for seed in range(1 if quick else seeds)
    ]
    samples = min(samples, _QUICK_SAMPLES) if quick else samples
    trials = []
    with progress_of("scenarios", _STEPS * len(names) * len(plan)) as advance:
        for name in names:
            loaded = load_dataset(name, data)
            for each, variant, seed in plan:
                steps = _Steps(advance)
                trials.append(carry_out(loaded, each, variant, bits, seed, samples, steps))
                steps(1, 1)
    if as_json:
        print_json([trial.as_dict() for trial in trials])
    else:
        typer.echo("\n".join(table.markdown() for table in scoreboard(trials)))


class _Steps:
    """Moves a bar by a trial's share: what `carry_out` calls within a trial."""

    def __init__(self, advance: Callable[[int], None]) -> None:
        self._advance, self._done = advance, 0

    def __call__(self, done: int, of: int) -> None:
        now = _STEPS * done // of
        self._advance(now - self._done)
        self._done = now


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
