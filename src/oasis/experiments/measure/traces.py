"""Traces: the loss and MAP of a run's rounds, iteration by iteration, as small JSON files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from oasis.errors import FormatError, InputError, NewerVersionError
from oasis.experiments.run.definition import Run
from oasis.store import replacing

FOLDER = "convergence"
"""Subfolder of traces in a results folder."""

_FORMAT = "oasis-trace"
_VERSION = 1


@dataclass(frozen=True)
class RoundTrace:
    """One round: loss and MAP after each iteration; no MAP if the round has no queries."""

    number: int
    loss: tuple[float, ...]
    map: tuple[float, ...]


@dataclass(frozen=True)
class Trace:
    """All rounds of a run.

    Attributes
    ----------
    run : its definition
    about : data set, runbook, method, machine and versions
    n_iter : iterations of the method itself
    rounds : in order
    """

    run: Run
    about: Mapping[str, Any]
    n_iter: int
    rounds: tuple[RoundTrace, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, from which `parse` makes an equal trace."""
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "run": self.run.as_dict(),
            "about": dict(self.about),
            "n_iter": self.n_iter,
            "rounds": [
                {"number": each.number, "loss": list(each.loss), "map": list(each.map)}
                for each in self.rounds
            ],
        }

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Return the trace that `as_dict` described."""
        if values.get("format") != _FORMAT:
            raise FormatError("it is not a trace of an experiment")
        try:
            if values["version"] > _VERSION:
                raise NewerVersionError("it was written by a newer oasis; update to read it")
            rounds = tuple(
                RoundTrace(each["number"], tuple(each["loss"]), tuple(each["map"]))
                for each in values["rounds"]
            )
            return cls(Run.parse(values["run"]), values["about"], values["n_iter"], rounds)
        except (InputError, LookupError, TypeError) as error:
            raise FormatError(f"it is damaged: {error!r}") from error


def write_trace(path: Path, trace: Trace) -> None:
    """Write a trace, atomically; folders are created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(trace.as_dict()) + "\n", "utf-8")


def read_trace(path: Path) -> Trace:
    """Read one trace."""
    try:
        values = json.loads(path.read_text("utf-8"))
        if not isinstance(values, dict):
            raise FormatError("it is not a trace of an experiment")
        return Trace.parse(values)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"{path} is damaged: {error}") from error
    except FormatError as error:
        raise type(error)(f"{path}: {error}") from error


def read_traces(folder: Path) -> list[Trace]:
    """Read every trace of a results folder, sorted by key; there may be none."""
    paths = sorted((folder / FOLDER).rglob("*.json"))
    return [read_trace(path) for path in paths if not path.name.startswith(".")]
