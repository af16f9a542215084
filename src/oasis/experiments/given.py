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
``label_names``        (c,) names of the classes (optional)
=====================  ============================================================================
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.arrays import Indicator
from oasis.codes import Codes, pack
from oasis.datasets.matfile import dense
from oasis.datasets.own import read_arrays, read_texts, variables
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
from oasis.experiments.tables import Table
from oasis.experiments.task import Row, Task

NAMES = ("base_codes", "query_codes", "scores", "base_labels", "query_labels", "label_names")
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
    named = _named(path, mapping or {})
    arrays = {
        name: read_texts(path, found) if name == "label_names" else read_arrays(path, found)
        for name, found in named.items()
    }
    base_labels, query_labels, classes = _labels(path, arrays)
    n, present = len(base_labels), base_labels.any(axis=0)
    if not n or not len(query_labels):
        raise InputError(
            f"{n} items and {len(query_labels)} queries; expected one of each at least"
        )
    common: dict[str, Any] = {
        "number": 1,
        "n_train": n,
        "n_classes": int(present.sum()),
        "own": [0],
        "train_seconds": 0.0,
        "encode_seconds": 0.0,
    }
    projections: tuple[Any, ...] = ()
    n_bits = None
    if "scores" in arrays:
        scores = _scores(path, arrays["scores"], base_labels, query_labels)
        ranked = score_measures([(slice(None), scores)], query_labels, base_labels)
        round_ = Round(**common, ranked=(ranked,))
    else:
        base, queries, values = _code_pair(path, arrays, n, len(query_labels))
        projections = () if values is None else (values,)
        n_bits = base.shape[1] * 8
        round_ = Round(**common, codes=base, query_codes=(queries,))
    sets = (QuerySet(np.arange(n, n + len(query_labels)), query_labels),)
    outcome = Outcome(classes, base_labels, sets, (round_,), projections)
    data = _described(dataset or "given", base_labels, query_labels)
    name = _plain_name(method or path.stem)
    task = Task("stream", data["name"], SETTING, name, n_bits, seed)
    row = {**task.names(), **measures(outcome)}
    if out is not None:
        place = out / f"{data['name']}.jsonl"
        stored = Results.read(place) if place.exists() else Results()
        kind = "ranker" if n_bits is None else "online"
        facts = {"data": data, "method": {"title": name, "kind": kind}}
        stored.put(row, {**facts, "environment": environment(), "runbook": SETTING})
        stored.write(place)
    return row


def evaluation_table(row: Row) -> Table:
    """Return the measures of one file as a table of two columns."""
    last = row["rounds"][-1]
    measured = last["all"]
    rows = [("queries", f"{measured['n']:,}"), ("items", f"{last['n_base']:,}")]
    titles = {"expected": "MAP, expected ties", "stable": "MAP, older first"}
    titles |= {"asymmetric": "MAP by projections", "chance": "chance"}
    rows += [(titles[key], f"{measured[key]:.4f}") for key in titles if key in measured]
    found = row.get("lookup", {}).get("all", {})
    rows += [(each.title, f"{found[each.key]:.4f}") for each in FIRST_HITS if each.key in found]
    if "codes" in row:
        rows.append(("distinct codes", f"{row['codes']['n_distinct']:,}"))
        rows.append(("constant bits", f"{row['codes']['n_constant']} of {row['n_bits']}"))
    length = f", {row['n_bits']} bits" if row["n_bits"] else ""
    return Table(f"{row['method']}{length}", "", ("measure", "value"), tuple(rows), n_names=1)


def _scores(path: Path, scores: Any, base_labels: Indicator, query_labels: Indicator) -> Any:
    values = dense(scores).astype(np.float64)
    if values.shape != (len(query_labels), len(base_labels)) or not np.isfinite(values).all():
        raise DataError(
            f"{path}: scores are {values.shape}, expected ({len(query_labels)}, "
            f"{len(base_labels)}) finite numbers: queries times base"
        )
    return values


def _code_pair(
    path: Path, arrays: Mapping[str, Any], n_base: int, n_queries: int
) -> tuple[Codes, Codes, npt.NDArray[np.float32] | None]:
    for wanted in ("base_codes", "query_codes"):
        if wanted not in arrays:
            held = ", ".join(sorted(variables(path))) or "nothing"
            raise DataError(
                f"{path}: no {wanted} (and no scores); it holds {held}. Give its "
                f"variable by --map {wanted}=VARIABLE"
            )
    base, _ = _codes(path, "base_codes", arrays["base_codes"], n_base)
    queries, projections = _codes(path, "query_codes", arrays["query_codes"], n_queries)
    if base.shape[1] != queries.shape[1]:
        raise DataError(
            f"{path}: base_codes have {base.shape[1] * 8} bits, query_codes {queries.shape[1] * 8}"
        )
    return base, queries, projections


def _named(path: Path, mapping: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    unknown = [name for name in mapping if name not in NAMES]
    if unknown:
        raise InputError(f"unknown name {unknown[0]!r} in a mapping; known are {', '.join(NAMES)}")
    held = variables(path)
    own = {name: (name,) for name in NAMES if name in held}
    return own | dict(mapping)


def _labels(path: Path, arrays: Mapping[str, Any]) -> tuple[Indicator, Indicator, tuple[str, ...]]:
    found = []
    for name in ("base_labels", "query_labels"):
        if name not in arrays:
            raise DataError(f"{path}: no {name}; give its variable by --map {name}=VARIABLE")
        values = dense(arrays[name])
        if values.ndim == 2 and 1 in values.shape and values.size > 1:
            values = values.ravel()
        found.append(values)
    base, queries = found
    if base.ndim != queries.ndim:
        raise DataError(f"{path}: base_labels are {base.shape}, query_labels {queries.shape}")
    if base.ndim == 1:
        numbers = np.unique(np.concatenate([base, queries]))
        base, queries = ((each[:, None] == numbers) for each in (base, queries))
    elif not all(np.isin(each, (0, 1)).all() for each in found):
        raise DataError(f"{path}: labels hold values other than 0 and 1")
    if base.shape[1] != queries.shape[1]:
        raise DataError(f"{path}: base_labels are {base.shape}, query_labels {queries.shape}")
    names = arrays.get("label_names")
    classes = tuple(f"class {j + 1}" for j in range(base.shape[1]))
    if names is not None:
        classes = tuple(str(each).strip() for each in np.ravel(names))
        if len(classes) != base.shape[1]:
            raise DataError(f"{path}: {len(classes)} label_names for {base.shape[1]} classes")
    return base.astype(np.uint8), queries.astype(np.uint8), classes


def _codes(
    path: Path, name: str, values: Any, n: int
) -> tuple[Codes, npt.NDArray[np.float32] | None]:
    """Return packed codes, and the real values whose signs they are, if the file has these."""
    array = dense(values)
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
    n = len(base_labels) + len(query_labels)
    total = int(base_labels.sum()) + int(query_labels.sum())
    return {
        "name": _plain_name(name),
        "n_samples": n,
        "n_features": {},
        "n_classes": int(base_labels.shape[1]),
        "labels_per_sample": round(total / max(1, n), 4),
        # results are comparable if their labels are equal
        "recipe": {"labels": _digest(base_labels, query_labels)},
        "sources": [],
    }


def _digest(*labels: Indicator) -> str:
    digest = hashlib.sha256()
    for each in labels:
        digest.update(np.packbits(each).tobytes() + str(each.shape).encode())
    return digest.hexdigest()


def _plain_name(name: str) -> str:
    kept = "".join(char if char.isalnum() or char in "._-" else "-" for char in name)
    if not kept.strip(".-"):
        raise InputError(f"{name!r} cannot name a result")
    return kept
