"""Codes that were made elsewhere (PyTorch, MATLAB, ...), as a raw result of one round.

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
from oasis.experiments.run.definition import Run
from oasis.experiments.run.machine import machine, versions
from oasis.experiments.run.results import QuerySet, RankedQueries, RawResult, RoundResult
from oasis.metrics import average_precision_from_scores

NAMES = ("base_codes", "query_codes", "scores", "base_labels", "query_labels", "label_names")
"""Names of the arrays of a file."""

SETTING = "given"
"""The setting of codes that were made elsewhere, whose rounds are not known."""


def read_given(
    path: Path,
    mapping: Mapping[str, tuple[str, ...]] | None = None,
    *,
    method: str | None = None,
    dataset: str | None = None,
    seed: int = 0,
) -> RawResult:
    """Read codes or scores with their labels.

    Parameters
    ----------
    path : the file
    mapping : name of the table above -> variables of the file, whose rows are stacked
    method, dataset : names; by default the file's stem, and "given"
    seed : seed of the run, if several files are seeds of one method
    """
    named = _named(path, mapping or {})
    arrays = {
        name: read_texts(path, found) if name == "label_names" else read_arrays(path, found)
        for name, found in named.items()
    }
    base_labels, query_labels, classes = _labels(path, arrays)
    described = _described(dataset or "given", base_labels, query_labels)
    name = _plain_name(method or path.stem)
    if "scores" in arrays:
        return _ranked(path, name, described, arrays["scores"], base_labels, query_labels, seed)
    for wanted in ("base_codes", "query_codes"):
        if wanted not in arrays:
            held = ", ".join(sorted(variables(path))) or "nothing"
            raise DataError(
                f"{path}: no {wanted} (and no scores); it holds {held}. Give its "
                f"variable by --map {wanted}=VARIABLE"
            )
    base, _ = _codes(path, "base_codes", arrays["base_codes"], len(base_labels))
    queries, projections = _codes(path, "query_codes", arrays["query_codes"], len(query_labels))
    if base.shape[1] != queries.shape[1]:
        raise DataError(
            f"{path}: base_codes have {base.shape[1] * 8} bits, query_codes {queries.shape[1] * 8}"
        )
    run = Run(described["name"], SETTING, name, base.shape[1] * 8, seed)
    round_ = RoundResult(
        1, len(base), _present(base_labels, classes), 0, 0.0, 0.0, base, (queries,)
    )
    about = _about(described, name, "online")
    return _result(run, about, base_labels, query_labels, round_, projections)


def _ranked(
    path: Path,
    name: str,
    described: dict[str, Any],
    scores: Any,
    base_labels: Indicator,
    query_labels: Indicator,
    seed: int,
) -> RawResult:
    values = dense(scores).astype(np.float64)
    if values.shape != (len(query_labels), len(base_labels)) or not np.isfinite(values).all():
        raise DataError(
            f"{path}: scores are {values.shape}, expected ({len(query_labels)}, "
            f"{len(base_labels)}) finite numbers: queries times base"
        )
    given = values, query_labels, base_labels
    ranked = RankedQueries(
        average_precision_from_scores(*given, ties="expected"),
        average_precision_from_scores(*given, ties="stable"),
    )
    classes = tuple(f"class {j + 1}" for j in range(base_labels.shape[1]))
    run = Run(described["name"], SETTING, name, None, seed)
    new = _present(base_labels, classes)
    round_ = RoundResult(1, len(base_labels), new, 0, 0.0, 0.0, ranked=(ranked,))
    return _result(run, _about(described, name, "ranker"), base_labels, query_labels, round_, None)


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


def _present(labels: Indicator, classes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(classes[j] for j in np.flatnonzero(labels.any(axis=0)))


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


def _about(described: dict[str, Any], name: str, kind: str) -> dict[str, Any]:
    return {
        "dataset": described,
        "runbook": {"name": SETTING, "digest": described["recipe"]["labels"]},
        "method": {
            "title": name,
            "kind": kind,
            "told_classes": False,
            "label_vectors": "",
            "parameters": {},
            "fixed": {},
            "defaults": {},
        },
        "machine": machine(),
        "versions": versions(),
    }


def _digest(*labels: Indicator) -> str:
    digest = hashlib.sha256()
    for each in labels:
        digest.update(np.packbits(each).tobytes() + str(each.shape).encode())
    return digest.hexdigest()


def _result(
    run: Run,
    about: dict[str, Any],
    base_labels: Indicator,
    query_labels: Indicator,
    round_: RoundResult,
    projections: npt.NDArray[np.float32] | None,
) -> RawResult:
    n = len(base_labels)
    queries = QuerySet(np.arange(n, n + len(query_labels)), query_labels)
    if not n or not len(queries):
        raise InputError(f"{n} items and {len(queries)} queries; expected one of each at least")
    return RawResult(
        run,
        about,
        np.arange(n),
        base_labels,
        (queries,),
        (round_,),
        () if projections is None else (projections,),
    )


def _plain_name(name: str) -> str:
    kept = "".join(char if char.isalnum() or char in "._-" else "-" for char in name)
    if not kept.strip(".-"):
        raise InputError(f"{name!r} cannot name a result")
    return kept
