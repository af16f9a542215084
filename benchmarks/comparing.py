"""A run beside the committed results: which ratios have reached their goal, which got worse."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.timing import Row

WORSE = 1.3
"""Factor, of the committed ratio, from which on a ratio counts as worse."""


class Compared(NamedTuple):
    """A ratio that has a goal, in this run and in the committed results."""

    suite: str
    name: str
    now: float
    committed: float | None
    goal: str

    @property
    def reached(self) -> bool:
        """Whether the goal is reached now.

        >>> Compared("learning", "a round", 1.1, None, "<= 1.2").reached
        True
        """
        bound = float(self.goal[2:])
        return self.now <= bound if self._small_is_good else self.now >= bound

    @property
    def worse(self) -> bool:
        """Whether the ratio is worse than the committed one by more than `WORSE`.

        >>> Compared("learning", "a round", 1.4, 1.0, "<= 1.2").worse
        True
        >>> Compared("learning", "encoding", 1.4, 1.0, ">= 0.85").worse
        False
        """
        if self.committed is None:
            return False
        better, other = self.committed, self.now
        if not self._small_is_good:
            better, other = other, better
        return other > WORSE * better

    @property
    def _small_is_good(self) -> bool:
        return self.goal.startswith("<=")


def compared(now: Mapping[str, Sequence[Row]], committed: Mapping[str, Any]) -> list[Compared]:
    """Return the ratios with a goal, by suite and name.

    >>> rows = [Row(name="a round", value=2.0, unit="s", ratio=1.1, note="", goal="<= 1.2")]
    >>> before = {"learning": {"rows": [{"name": "a round", "ratio": 1.0}]}}
    >>> compared({"learning": rows}, before)[0].committed
    1.0
    """
    found = []
    for suite, rows in now.items():
        before = {each["name"]: each["ratio"] for each in committed.get(suite, {}).get("rows", [])}
        found += [
            Compared(suite, each["name"], each["ratio"], before.get(each["name"]), each["goal"])
            for each in rows
            if each["goal"] and each["ratio"] is not None
        ]
    return found


def committed_results(path: Path) -> dict[str, Any]:
    """Return the results of the last commit; without git, those of the file."""
    shown = _git(path.parent, "show", f"HEAD:./{path.name}")
    text = shown if shown is not None else path.read_text() if path.exists() else "{}"
    results: dict[str, Any] = json.loads(text)
    return results


def commit(folder: Path) -> str:
    """Return the commit that is measured, with a ``+`` where files differ from it."""
    number, changed = (
        _git(folder, *words)
        for words in (
            ("rev-parse", "--short", "HEAD"),
            ("status", "--porcelain", "--untracked-files=no"),
        )
    )
    return "unknown" if number is None else number.strip() + ("+" if changed else "")


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None
