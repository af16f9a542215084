"""Codes that were made elsewhere (PyTorch, MATLAB, ...), measured as a stream of one round.

A file (``.npz``, ``.mat``, Parquet) holds, under these names or those of a mapping:

=====================  ============================================================================
array                  what it is
=====================  ============================================================================
``base_codes``         (n, n_bits / 8) uint8, packed with bit order little; or (n, n_bits)
                       numbers, of which positive ones are bit 1: 0 and 1, -1 and 1, real values
``query_codes``        the same of the queries; real values also rank by projections
``scores``             (q, n) real values, higher is nearer, instead of both
``base_labels``        (n, c) 0/1 indicator, or (n,) one class a sample
``query_labels``       the same of the queries
=====================  ============================================================================
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from oasis.arrays import Indicator, Single
from oasis.codes import Codes, pack
from oasis.datasets.matfile import dense
from oasis.datasets.own import read_arrays, variables
from oasis.errors import DataError, InputError
from oasis.experiments.measure import (
    FIRST_HITS,
    Outcome,
    QuerySet,
    Round,
    measures,
    score_measures,
)
from oasis.experiments.results import Results, environment
from oasis.experiments.tables import Line, Table
from oasis.experiments.task import Row, Task

NAMES = ("base_codes", "query_codes", "scores", "base_labels", "query_labels")
"""Names of the arrays of a file."""

SETTING = "given"
"""The setting of codes that were made elsewhere, whose rounds are not known."""


def evaluate(
    path: Path,
    mapping: Mapping[str, tuple[str, ...]] | None = None,
    *,
    method: str | None = None,
    dataset: str | None = None,
    seed: int = 0,
    out: Path | None = None,
) -> Row:
    """Measure the codes or scores of a file.

    Parameters
    ----------
    path : the file
    mapping : name of the table above -> variables of the file, whose rows are stacked
    method, dataset : names; by default the file's stem, and "given"
    seed : of the row, if several files are seeds of one method
    out : a results folder, in which the row is stored

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = np.eye(3, dtype=np.uint8)[rng.integers(3, size=60)]
    >>> codes = labels @ rng.standard_normal((3, 16)) + 0.1 * rng.standard_normal((60, 16))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/mine.npz", base_codes=codes[10:], query_codes=codes[:10],
    ...              base_labels=labels[10:], query_labels=labels[:10])
    ...     row = evaluate(Path(folder) / "mine.npz")
    >>> row["method"], row["rounds"][-1]["all"]["expected"] > 0.9
    ('mine', True)
    """
    arrays = _read(path, mapping or {})
    base_labels, query_labels = _labels(path, arrays)
    n, present = len(base_labels), base_labels.any(axis=0)
    if not n or not len(query_labels):
        raise InputError(
            f"{n} items and {len(query_labels)} queries; expected one of each at least"
        )
    projections: tuple[Any, ...] = ()
    n_bits = None
    common = 1, n, int(present.sum()), [0], 0.0, 0.0
    if "scores" in arrays:
        scores = _scores(path, arrays["scores"], base_labels, query_labels)
        ranked = score_measures([(slice(None), scores)], query_labels, base_labels)
        round_ = Round(*common, ranked=(ranked,))
    else:
        base, _ = _codes(path, "base_codes", arrays, n)
        queries, values = _codes(path, "query_codes", arrays, len(query_labels))
        if base.shape[1] != queries.shape[1]:
            bits = base.shape[1] * 8, queries.shape[1] * 8
            raise DataError(f"{path}: base_codes have {bits[0]} bits, query_codes {bits[1]}")
        projections = () if values is None else (values,)
        n_bits = base.shape[1] * 8
        round_ = Round(*common, codes=base, query_codes=(queries,))
    sets = (QuerySet(np.arange(n, n + len(query_labels)), query_labels),)
    outcome = Outcome(base_labels, sets, (round_,), projections)
    place, name = _plain_name(dataset or "given"), _plain_name(method or path.stem)
    task = Task("stream", place, SETTING, name, n_bits, seed)
    row = {**task.names(), **measures(outcome)}
    if out is not None:
        file = out / f"{place}.jsonl"
        stored = Results.read(file) if file.exists() else Results()
        kind = "ranker" if n_bits is None else "online"
        facts = {
            "data": _described(place, base_labels, query_labels),
            "method": {"title": name, "kind": kind},
            "environment": environment(),
            "runbook": SETTING,
        }
        stored.put(row, facts)
        stored.write(file)
    return row


def evaluation_table(row: Row) -> Table:
    """Return the measures of one file as a table of two columns."""
    last = row["rounds"][-1]
    measured = last["all"]
    titles = {"expected": "MAP, expected ties", "stable": "MAP, older first"}
    titles |= {"asymmetric": "MAP by projections", "chance": "chance"}
    found = row.get("lookup", {}).get("all", {})
    figures = {"queries": measured["n"], "items": last["n_base"]}
    figures |= {title: measured.get(key) for key, title in titles.items()}
    figures |= {each.title: found.get(each.key) for each in FIRST_HITS}
    if "codes" in row:
        figures["distinct codes"] = row["codes"]["n_distinct"]
        figures["constant bits"] = row["codes"]["n_constant"]
    length = f", {row['n_bits']} bits" if row["n_bits"] else ""
    lines = [Line((name,), (value,)) for name, value in figures.items()]
    return Table.of(f"{row['method']}{length}", "", ("measure",), ("value",), lines)


def _read(path: Path, mapping: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return the arrays of a file under the names of the table above."""
    unknown = [name for name in mapping if name not in NAMES]
    if unknown:
        raise InputError(f"unknown name {unknown[0]!r} in a mapping; known are {', '.join(NAMES)}")
    held = variables(path)
    named = {name: (name,) for name in NAMES if name in held} | dict(mapping)
    codes = () if "scores" in named else ("base_codes", "query_codes")
    for name in (*codes, "base_labels", "query_labels"):
        if name not in named:
            other = " (and no scores)" if name in codes else ""
            raise DataError(
                f"{path}: no {name}{other}; it holds {', '.join(sorted(held)) or 'nothing'}. Give "
                f"its variable by --map {name}=VARIABLE"
            )
    return {name: read_arrays(path, found) for name, found in named.items()}


def _scores(path: Path, scores: Any, base_labels: Indicator, query_labels: Indicator) -> Any:
    values = dense(scores).astype(np.float64)
    if values.shape != (len(query_labels), len(base_labels)) or not np.isfinite(values).all():
        raise DataError(
            f"{path}: scores are {values.shape}, expected ({len(query_labels)}, "
            f"{len(base_labels)}) finite numbers: queries times base"
        )
    return values


def _labels(path: Path, arrays: Mapping[str, Any]) -> tuple[Indicator, Indicator]:
    base, queries = (dense(arrays[name]) for name in ("base_labels", "query_labels"))
    if all(each.ndim == 1 or 1 in each.shape for each in (base, queries)):
        numbers = np.unique(np.concatenate([base.ravel(), queries.ravel()]))
        base, queries = ((each.ravel()[:, None] == numbers) for each in (base, queries))
    if base.ndim != 2 or base.shape[1:] != queries.shape[1:]:
        raise DataError(f"{path}: base_labels are {base.shape}, query_labels {queries.shape}")
    if not all(np.isin(each, (0, 1)).all() for each in (base, queries)):
        raise DataError(f"{path}: labels hold values other than 0 and 1")
    return base.astype(np.uint8), queries.astype(np.uint8)


def _codes(path: Path, name: str, arrays: Mapping[str, Any], n: int) -> tuple[Codes, Single | None]:
    """Return packed codes, and the real values whose signs they are, if the file has these."""
    array = dense(arrays[name])
    if array.ndim != 2 or len(array) != n or array.dtype.kind not in "fiub":
        raise DataError(f"{path}: {name} are {array.dtype} {array.shape}, expected {n} rows")
    if array.dtype == np.uint8 and array.size and array.max() > 1:
        return np.ascontiguousarray(array), None
    if array.shape[1] % 8:
        raise DataError(
            f"{path}: {name} have {array.shape[1]} columns; expected a multiple of 8 bits, one a "
            "column, or packed bytes (uint8)"
        )
    if not np.isfinite(array).all():
        raise DataError(f"{path}: {name} hold values that are not finite")
    real = array.astype(np.float32)
    if np.isin(array, (0, 1)).all():
        real = 2 * real - 1
    is_real = not np.isin(real, (-1, 1)).all()
    return pack(real), real if is_real else None


def _described(name: str, base_labels: Indicator, query_labels: Indicator) -> dict[str, Any]:
    labels = np.concatenate([base_labels, query_labels])
    # results are comparable if their labels are equal
    digest = hashlib.sha256(np.packbits(labels).tobytes() + str(base_labels.shape).encode())
    return {
        "name": name,
        "n_samples": len(labels),
        "n_features": {},
        "n_classes": int(labels.shape[1]),
        "labels_per_sample": round(int(labels.sum()) / len(labels), 4),
        "recipe": {"labels": digest.hexdigest()},
        "sources": [],
    }


def _plain_name(name: str) -> str:
    kept = "".join(char if char.isalnum() or char in "._-" else "-" for char in name)
    if not kept.strip(".-"):
        raise InputError(f"{name!r} cannot name a result")
    return kept
