"""Raw results: the output of a run, before anything is measured.

One ``.npz`` file per run, without pickles. It holds enough to compute every measure without the
data set: the codes and labels of the base by round, the codes of every query after each round, and
the queries' projections after the last one. Member ``header`` is JSON.

=====================================  ============================================================
members                                meaning
=====================================  ============================================================
``header``                             definition, data set, runbook, method, machine, times
``train/rows``, ``train/labels``       rows of the data set in order of arrival; labels, packed
``queries/i/rows``, ``.../labels``     the same of query set i; sets that rounds share come once
``rounds/t/codes``                     codes of the round's chunk (batch methods: of everything)
``rounds/t/queries/i``                 codes of query set i after round t
``last/projections/i``                 projections of query set i after the last round, float32
``rounds/t/expected/i``, ``stable/i``  rankers, in place of codes: average precision of each query
=====================================  ============================================================
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.arrays import Indicator, Rows
from oasis.codes import Codes
from oasis.errors import FormatError, InputError, NewerVersionError
from oasis.experiments.run.definition import Run
from oasis.store import replacing

_FORMAT = "oasis-result"
_VERSION = 1
# what zipfile, json and NumPy raise on damaged files
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True, eq=False)
class QuerySet:
    """Queries that belong to one round, or to all of them: rows (q,) and labels (q, c)."""

    rows: Rows
    labels: Indicator

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, eq=False)
class RankedQueries:
    """Average precision of each query of a set, with expected and stable ties, (q,) float64."""

    expected: npt.NDArray[np.float64]
    stable: npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RoundResult:
    """The raw result of one round.

    Attributes
    ----------
    number : its number in the runbook
    n_train : samples learned from since the previous recorded round
    new_classes : classes that no earlier round had, in the order of the label columns
    query_set : number of the set that holds the round's queries
    train_seconds, encode_seconds : time to learn the chunk, and to project all queries so far
    codes : the chunk's codes; a batch method's codes of everything; None for a ranker
    query_codes : codes of query sets 0, 1, ... so far; empty for a ranker
    ranked : average precisions of a ranker, instead of codes
    """

    number: int
    n_train: int
    new_classes: tuple[str, ...]
    query_set: int
    train_seconds: float
    encode_seconds: float
    codes: Codes | None = None
    query_codes: tuple[Codes, ...] = ()
    ranked: tuple[RankedQueries, ...] = ()


@dataclass(frozen=True, eq=False)
class RawResult:
    """The raw result of a run; ``about`` is what was recorded besides the arrays."""

    run: Run
    about: Mapping[str, Any]
    train_rows: Rows
    train_labels: Indicator
    query_sets: tuple[QuerySet, ...]
    rounds: tuple[RoundResult, ...]
    last_projections: tuple[npt.NDArray[np.float32], ...] = ()

    @property
    def is_batch(self) -> bool:
        """Whether each round's codes are those of everything seen."""
        return bool(self.about["method"]["kind"] == "batch")

    def class_names(self) -> tuple[str, ...]:
        """Return the name of every label column; empty for a class that no round had.

        The new classes of a round are recorded in column order, which identifies their columns.
        """
        names = [""] * self.train_labels.shape[1]
        begin = 0
        for each in self.rounds:
            chunk = self.train_labels[begin : begin + each.n_train]
            columns = [j for j in np.flatnonzero(chunk.any(axis=0)) if not names[j]]
            if len(columns) != len(each.new_classes):
                raise InputError(
                    f"round {each.number} brings {len(each.new_classes)} new classes, its labels "
                    f"have {len(columns)}"
                )
            for column, name in zip(columns, each.new_classes, strict=True):
                names[column] = name
            begin += each.n_train
        return tuple(names)

    def base_codes(self, t: int) -> Codes:
        """Return the codes that are stored after the round at position t."""
        if self.is_batch:
            return _codes_of(self.rounds[t])
        return np.concatenate([_codes_of(each) for each in self.rounds[: t + 1]])

    def n_base(self, t: int) -> int:
        """Return the number of items stored after the round at position t."""
        return sum(each.n_train for each in self.rounds[: t + 1])


def write_result(path: Path, result: RawResult) -> None:
    """Write a raw result, atomically; folders are created."""
    arrays: dict[str, npt.NDArray[Any]] = {
        "train/rows": result.train_rows.astype(np.int64),
        "train/labels": np.packbits(result.train_labels, axis=1),
    }
    for i, queries in enumerate(result.query_sets):
        arrays[f"queries/{i}/rows"] = queries.rows.astype(np.int64)
        arrays[f"queries/{i}/labels"] = np.packbits(queries.labels, axis=1)
    for t, each in enumerate(result.rounds):
        if each.codes is not None:
            arrays[f"rounds/{t}/codes"] = each.codes
        for i, codes in enumerate(each.query_codes):
            arrays[f"rounds/{t}/queries/{i}"] = codes
        for i, ranked in enumerate(each.ranked):
            arrays[f"rounds/{t}/expected/{i}"] = ranked.expected
            arrays[f"rounds/{t}/stable/{i}"] = ranked.stable
    for i, projections in enumerate(result.last_projections):
        arrays[f"last/projections/{i}"] = projections
    header = {
        "format": _FORMAT,
        "version": _VERSION,
        "run": result.run.as_dict(),
        "about": dict(result.about),
        "n_classes": int(result.train_labels.shape[1]),
        "n_query_sets": len(result.query_sets),
        "n_last_projections": len(result.last_projections),
        "rounds": [
            {
                "number": each.number,
                "n_train": each.n_train,
                "new_classes": list(each.new_classes),
                "query_set": each.query_set,
                "train_seconds": each.train_seconds,
                "encode_seconds": each.encode_seconds,
                "n_query_codes": len(each.query_codes),
                "n_ranked": len(each.ranked),
            }
            for each in result.rounds
        ],
    }
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]


def read_result(path: Path) -> RawResult:
    """Read a raw result and verify its checksums.

    Raises
    ------
    FormatError
        If the file is foreign, damaged or truncated.
    """
    content = path.read_bytes()
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            header = json.loads(bytes(archive["header"]).decode())
            if header.get("format") != _FORMAT:
                raise FormatError(f"{path} is not a result of an experiment")
            if header["version"] > _VERSION:
                raise NewerVersionError(f"{path} was written by a newer oasis; update to read it")
            return _assemble(header, archive)
    except FormatError:
        raise
    except InputError as error:
        raise FormatError(f"{path} is damaged: {error}") from error
    except _DAMAGE as error:
        raise FormatError(f"{path} is damaged: {error!r}") from error


def _assemble(header: dict[str, Any], archive: Mapping[str, npt.NDArray[Any]]) -> RawResult:
    n_classes = header["n_classes"]

    def labels(key: str) -> Indicator:
        return np.unpackbits(archive[key], axis=1, count=n_classes)

    rounds = tuple(
        RoundResult(
            each["number"],
            each["n_train"],
            tuple(each["new_classes"]),
            each["query_set"],
            each["train_seconds"],
            each["encode_seconds"],
            archive[f"rounds/{t}/codes"] if each["n_query_codes"] else None,
            tuple(archive[f"rounds/{t}/queries/{i}"] for i in range(each["n_query_codes"])),
            tuple(
                RankedQueries(
                    archive[f"rounds/{t}/expected/{i}"], archive[f"rounds/{t}/stable/{i}"]
                )
                for i in range(each["n_ranked"])
            ),
        )
        for t, each in enumerate(header["rounds"])
    )
    query_sets = tuple(
        QuerySet(archive[f"queries/{i}/rows"], labels(f"queries/{i}/labels"))
        for i in range(header["n_query_sets"])
    )
    projections = tuple(
        archive[f"last/projections/{i}"] for i in range(header["n_last_projections"])
    )
    return RawResult(
        Run.parse(header["run"]),
        header["about"],
        archive["train/rows"],
        labels("train/labels"),
        query_sets,
        rounds,
        projections,
    )


def _codes_of(each: RoundResult) -> Codes:
    if each.codes is None:
        raise InputError("a ranker's result has no codes; its average precisions are in 'ranked'")
    return each.codes
