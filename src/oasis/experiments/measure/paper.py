"""The paper's own figures, shown beside ours if the data are the same."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from oasis.experiments.measure.summaries import Summary
from oasis.experiments.run.definition import SETTINGS
from oasis.experiments.run.methods import METHODS
from oasis.streams import runbook

# distinguishes the paper's data from a part of them, or from other data of the same name
_DATA: dict[str, tuple[int, dict[str, int]]] = {
    "mirflickr": (20_015, {"image": 4096, "text": 1386}),
    "nuswide": (195_834, {"image": 4096, "text": 5018}),
}


def published_map(summary: Summary) -> float | None:
    """Return the paper's MAP for the same cell, or None.

    The same cell means: the paper's complete data set; the paper's rounds; a method of the paper
    with its published parameters (the rounds at which a batch method is measured do not matter); a
    code length of the paper.
    """
    run = summary.run
    method = METHODS.get(run.method)
    if method is None or not method.paper or run.setting not in SETTINGS:
        return None
    if set(dict(run.parameters)) - {"rounds"}:
        return None
    if not _is_papers_data(run.dataset, summary.about["dataset"]):
        return None
    if summary.about["runbook"]["digest"] != runbook(f"{run.dataset}-{run.setting}").digest():
        return None
    table = _table()
    if run.n_bits not in table["bits"]:
        return None
    value: float = table[run.dataset][run.setting][method.paper][table["bits"].index(run.n_bits)]
    return value


def published_seconds(method: str) -> tuple[float, ...]:
    """Return the paper's training times of rounds 1 to 9 (Table 2); empty if it has none.

    MIRFlickr, first setting, 16 bits, on the authors' machine: ratios of methods are comparable
    with ours, times are not.

    >>> published_seconds("fomh")[:2], published_seconds("lemon")
    ((0.3495, 0.31), ())
    """
    entry = METHODS.get(method)
    return () if entry is None else tuple(_table()["seconds"].get(entry.paper, ()))


def _is_papers_data(name: str, described: Mapping[str, Any]) -> bool:
    if name not in _DATA or described["name"] != name:
        return False
    n_samples, n_features = _DATA[name]
    return (
        described["n_samples"] == n_samples
        and dict(described["n_features"]) == n_features
        and not described["recipe"].get("dropped_classes")
    )


@cache
def _table() -> dict[str, Any]:
    text = (resources.files("oasis") / "experiments" / "paper.toml").read_text("utf-8")
    return tomllib.loads(text)
