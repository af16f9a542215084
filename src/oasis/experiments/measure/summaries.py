"""Summaries: the measures of one run, small enough for version control.

One JSON file per run, at the run's key. Figures are rounded to six significant digits, those of
single classes and radii to four.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from oasis.errors import FormatError, InputError, NewerVersionError
from oasis.experiments.run.definition import Run
from oasis.store import replacing

FOLDER = "summaries"
"""Subfolder of summaries in a results folder."""

_FORMAT = "oasis-summary"
VERSION = 3
"""Version of the summaries that are written; older ones hold fewer measures."""


@dataclass(frozen=True)
class QueryMeasures:
    """How well some queries are answered.

    Attributes
    ----------
    n : number of queries
    expected, stable : MAP with expected ties, or with the older item first; None if not measured
    chance : MAP of a random order
    asymmetric : MAP by the queries' projections; None if there are none
    """

    n: int
    expected: float
    chance: float
    stable: float | None = None
    asymmetric: float | None = None


@dataclass(frozen=True)
class RoundMeasures:
    """The measures after one round: of its own queries, of those of older rounds, and of all.

    None if there are no such queries. Rounds that share their queries have no older ones.
    """

    number: int
    n_train: int
    n_base: int
    n_classes: int
    train_seconds: float
    encode_seconds: float
    n_encoded: int
    new: QueryMeasures | None
    old: QueryMeasures | None
    all: QueryMeasures | None

    def of(self, queries: str) -> QueryMeasures | None:
        """Return the measures of the queries called "new", "old" or "all"."""
        found: QueryMeasures | None = getattr(self, queries)
        return found


@dataclass(frozen=True)
class ClassMeasures:
    """How well one class is found after the last round, by the queries of all rounds that have it.

    Attributes
    ----------
    name : the class
    n_base, n_queries : number of items and queries that have it
    ap : MAP of those queries, where only items with this class count as similar
    """

    name: str
    n_base: int
    n_queries: int
    ap: float


@dataclass(frozen=True)
class Curve:
    """Precision and recall within every Hamming radius from 0 on, after the last round.

    The pairs of all queries and items are pooled; a radius without any hit is omitted.
    """

    precision: tuple[float, ...]
    recall: tuple[float, ...]


@dataclass(frozen=True)
class LookupMeasures:
    """Measures of searches after the last round, by Hamming distance, queries of all rounds.

    Attributes
    ----------
    k : depth of the next two and of ``tied``; the size of the base if that is smaller
    map_at_k : MAP@k, with the denominator min(R, k)
    ndcg_at_k : nDCG of the first k items, with the number of shared labels as gain
    precision_at_2 : precision within a Hamming radius of 2, the mean over queries; a query that
        finds nothing counts 0
    tied : share of queries whose k-th item is in a tie
    n_distinct : distinct codes among the stored ones
    n_constant : bits that are the same in all stored codes
    """

    k: int
    map_at_k: float
    ndcg_at_k: float
    precision_at_2: float
    tied: float
    n_distinct: int
    n_constant: int


@dataclass(frozen=True)
class Summary:
    """All measures of a run.

    Attributes
    ----------
    run : its definition
    about : data set, runbook, method, machine and versions, as recorded with the raw result
    raw_sha256 : checksum of the raw result's file
    measure_seconds : time that measuring took
    rounds : measures round by round
    history : ``history[t][i]``, MAP of the queries of round i after round t (expected ties);
        rounds without queries of their own are omitted
    forgetting : per round of `history`, MAP right after it minus MAP now
    classes : measures per class; empty for rankers, and in summaries of version 1
    curve : precision and recall by radius; None if `classes` is empty
    lookup : measures of searches; None for rankers, and in summaries before version 3
    version : version of the file
    """

    run: Run
    about: Mapping[str, Any]
    raw_sha256: str
    measure_seconds: float
    rounds: tuple[RoundMeasures, ...]
    history: tuple[tuple[float, ...], ...]
    forgetting: tuple[float, ...]
    classes: tuple[ClassMeasures, ...] = ()
    curve: Curve | None = None
    lookup: LookupMeasures | None = None
    version: int = VERSION

    @property
    def last(self) -> RoundMeasures:
        """The last round."""
        return self.rounds[-1]

    @property
    def mean_forgetting(self) -> float | None:
        """The mean over all rounds but the last; None if there is no such round."""
        earlier = self.forgetting[:-1]
        return sum(earlier) / len(earlier) if earlier else None

    @property
    def train_seconds(self) -> float:
        """Time to learn the whole stream."""
        return sum(each.train_seconds for each in self.rounds)

    @property
    def query_seconds(self) -> float | None:
        """Mean time to project one query; None for a ranker."""
        encoded = sum(each.n_encoded for each in self.rounds)
        seconds = sum(each.encode_seconds for each in self.rounds)
        return seconds / encoded if seconds and encoded else None

    @property
    def model_bytes(self) -> int | None:
        """Bytes of the arrays that the model holds at the end; None in older results."""
        found: int | None = self.about.get("model_bytes")
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, from which `parse` makes the same summary up to rounding."""
        return {
            "format": _FORMAT,
            "version": self.version,
            "run": self.run.as_dict(),
            "about": dict(self.about),
            "raw_sha256": self.raw_sha256,
            "measure_seconds": _rounded(self.measure_seconds),
            "rounds": [
                {
                    key: _plain(value) if isinstance(value, QueryMeasures) else _rounded(value)
                    for key, value in vars(each).items()
                }
                for each in self.rounds
            ],
            "history": [[_rounded(value) for value in row] for row in self.history],
            "forgetting": [_rounded(value) for value in self.forgetting],
            "classes": [
                [each.name, each.n_base, each.n_queries, _short(each.ap)] for each in self.classes
            ],
            "curve": self.curve
            and {key: [_short(value) for value in row] for key, row in vars(self.curve).items()},
            "lookup": self.lookup
            and {key: _rounded(value) for key, value in vars(self.lookup).items()},
        }

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Return the summary that `as_dict` described."""
        if values.get("format") != _FORMAT:
            raise FormatError("it is not a summary of an experiment")
        if values["version"] > VERSION:
            raise NewerVersionError("it was written by a newer oasis; update to read it")
        try:
            return cls(
                Run.parse(values["run"]),
                values["about"],
                values["raw_sha256"],
                values["measure_seconds"],
                tuple(_parse_round(each) for each in values["rounds"]),
                tuple(tuple(row) for row in values["history"]),
                tuple(values["forgetting"]),
                tuple(ClassMeasures(*each) for each in values.get("classes", ())),
                _parse_curve(values.get("curve")),
                None if not values.get("lookup") else LookupMeasures(**values["lookup"]),
                values["version"],
            )
        except (InputError, LookupError, TypeError, AttributeError) as error:
            raise FormatError(f"it is damaged: {error!r}") from error


def write_summary(path: Path, summary: Summary) -> None:
    """Write a summary, atomically; folders are created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = summary.as_dict()
    # one line per round: compact, with readable diffs
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in values.items()]
    at = list(values).index("rounds")
    rows = ",\n  ".join(json.dumps(row) for row in values["rounds"])
    lines[at] = f'"rounds": [\n  {rows}\n ]'
    with replacing(path) as temporary:
        temporary.write_text("{\n " + ",\n ".join(lines) + "\n}\n", "utf-8")


def read_summary(path: Path) -> Summary:
    """Read one summary."""
    try:
        values = json.loads(path.read_text("utf-8"))
        if not isinstance(values, dict):
            raise FormatError("it is not a summary of an experiment")
        return Summary.parse(values)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"{path} is damaged: {error}") from error
    except FormatError as error:
        raise type(error)(f"{path}: {error}") from error


def read_summaries(folder: Path) -> list[Summary]:
    """Read every summary of a results folder, or of a folder of summaries, sorted by key.

    Raises
    ------
    InputError
        If there is none.
    FormatError
        If one is damaged; running the same grid again makes a new one.
    """
    inner = folder / FOLDER
    paths = sorted(_json_files(inner if inner.is_dir() else folder))
    if not paths:
        raise InputError(
            f"no summaries in {folder}; expected a folder that `oasis reproduce` has written, or "
            f"its folder {FOLDER!r}"
        )
    return [read_summary(path) for path in paths]


def file_sha256(path: Path) -> str:
    """Return the checksum of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _json_files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*.json") if not path.name.startswith("."))


def _plain(measures: QueryMeasures) -> dict[str, Any]:
    return {key: _rounded(value) for key, value in vars(measures).items() if value is not None}


def _short(value: float) -> float:
    # there are hundreds of these, for figures only
    return float(f"{value:.4g}")


def _parse_curve(values: Mapping[str, Any] | None) -> Curve | None:
    if values is None:
        return None
    return Curve(tuple(values["precision"]), tuple(values["recall"]))


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _parse_round(values: Mapping[str, Any]) -> RoundMeasures:
    measured = {
        name: None if values[name] is None else QueryMeasures(**values[name])
        for name in ("new", "old", "all")
    }
    return RoundMeasures(**{**values, **measured})
