"""How fast OASIS learns and encodes at MIRFlickr's shapes, against what the machine can do.

Image 4096 dense float32, text 1386 CSR with about 16 non-zeros a row, 24 classes with vectors of
300 numbers, 2,000 samples a round. The floor of a round is one ``syrk`` of the chunk plus one
Cholesky factorisation of the image modality, measured in the same run.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.linalg import blas, lapack
from sklearn.base import clone

from benchmarks.timing import (
    Row,
    best_of,
    peak_bytes,
    peak_resident_bytes,
    resident_bytes,
    row,
    seconds,
)
from oasis.codes import unpack
from oasis.model import OASIS

N_SAMPLES, N_IMAGE, N_TEXT, N_WORDS, N_CLASSES, N_SEMANTIC = 2_000, 4_096, 1_386, 16, 24, 300
N_ROUNDS = 100
_REPEATS = 8

Chunk = tuple[dict[str, Any], list[list[str]]]


def run() -> list[Row]:
    """Return one row for each measurement."""
    rows = _floors()
    for n_bits in (16, 128):
        rows += _rounds(n_bits)
    return rows + _memory() + _many_classes() + _long_stream() + _encoding()


def _chunk(seed: int, scale: float = 1.0, n: int = N_SAMPLES) -> Chunk:
    """Draw features that depend on the labels, image rows about ``scale`` long."""
    rng = np.random.default_rng([seed, n])
    shared = np.random.default_rng(0)
    frequencies = np.geomspace(0.4, 0.03, N_CLASSES)
    has = rng.random((n, N_CLASSES)) < frequencies
    has[np.arange(n), rng.choice(N_CLASSES, n, p=frequencies / frequencies.sum())] = True
    image = has.astype(np.float32) @ shared.standard_normal((N_CLASSES, N_IMAGE), dtype=np.float32)
    image += rng.standard_normal((n, N_IMAGE), dtype=np.float32)
    np.maximum(image, 0, out=image)
    image *= scale / np.linalg.norm(image, axis=1).mean()
    columns = np.sort(rng.integers(0, N_TEXT, (n, N_WORDS)), axis=1)
    text = sp.csr_array(
        (np.ones(columns.size, np.float32), (np.repeat(np.arange(n), N_WORDS), columns.ravel())),
        shape=(n, N_TEXT),
    )
    labels = [[f"class {j}" for j in np.flatnonzero(flags)] for flags in has]
    return {"image": image, "text": text}, labels


def _model(n_bits: int, kind: str) -> Any:
    rng = np.random.default_rng(1)
    vectors = {f"class {j}": rng.standard_normal(N_SEMANTIC) for j in range(N_CLASSES)}
    make: Callable[..., Any] = OASIS if kind == "OASIS()" else OASIS.paper
    return make(n_bits, labels=vectors, random_state=0)


def _floor(A: npt.NDArray[Any], syrk: Any, potrf: Any) -> None:
    gram = syrk(1.0, A.T, lower=1)
    gram[np.diag_indices(N_IMAGE)] += 1
    potrf(gram, lower=1, overwrite_a=1, clean=0)


def _floors() -> list[Row]:
    single = partial(_floor, _chunk(0)[0]["image"], blas.ssyrk, lapack.spotrf)
    best = best_of(_REPEATS, {"float64": _float64_floor(), "float32": single})
    return [
        row("floor of a round, float64", best["float64"], 1.0, "syrk + Cholesky of 4096"),
        row("floor of a round, float32", best["float32"], best["float32"] / best["float64"]),
    ]


def _float64_floor() -> Callable[[], None]:
    """The floor of a round, to take turns with what is compared to it."""
    X = _chunk(0)[0]["image"].astype(np.float64)
    return partial(_floor, X, blas.dsyrk, lapack.dpotrf)


def _rounds(n_bits: int) -> list[Row]:
    """A full round and small ones, for float32 data that are kind to float32 and for raw ones."""
    rows: list[Row] = []
    for label, kind, scale, goal in (
        ("paper, unit features", "paper", 1.0, "<= 1.1"),
        ("paper, raw features (length 150)", "paper", 150.0, "<= 1.2"),
        ("OASIS(), raw features", "OASIS()", 150.0, "<= 0.8"),
    ):
        model = _model(n_bits, kind)
        for seed in range(2):
            model.partial_fit(*_chunk(seed, scale))
        X, y = _chunk(2, scale)

        def learn(n: int, model: Any = model, X: Any = X, y: Any = y) -> Callable[[], Any]:
            part = {name: values[:n] for name, values in X.items()}, y[:n]
            return lambda: copy.copy(model).partial_fit(*part)

        best = best_of(_REPEATS, {"floor": _float64_floor(), "full": learn(N_SAMPLES)})
        best |= best_of(_REPEATS, {"15": learn(15), "1": learn(1)})
        precision = (
            "float32 work" if learn(N_SAMPLES)().state_.ridges["image"].single else "float64"
        )
        rows += [
            row(
                f"round, {n_bits} bits, {label}",
                best["full"],
                best["full"] / best["floor"],
                f"of the float64 floor; {precision}",
                goal=goal if n_bits == 16 else "",
            ),
            row(
                f"  15 samples, {n_bits} bits, {label}",
                best["15"],
                best["15"] / best["full"],
                "of the round",
            ),
            row(
                f"  1 sample, {n_bits} bits, {label}",
                best["1"],
                best["1"] / best["full"],
                "of the round",
            ),
        ]
    return [*rows, _arrival(n_bits), _agreement(n_bits)]


def _arrival(n_bits: int) -> Row:
    """A round of OASIS() in which half of the classes arrive, and have to get codewords."""
    model = _model(n_bits, "OASIS()")
    early = {f"class {j}" for j in range(0, N_CLASSES, 2)}
    for seed in range(2):
        X, y = _chunk(seed, 150.0)
        model.partial_fit(X, [[name for name in names if name in early] for names in y])
    X, y = _chunk(2, 150.0)
    best = best_of(
        _REPEATS,
        {"floor": _float64_floor(), "full": lambda: copy.copy(model).partial_fit(X, y)},
    )
    return row(
        f"round, {n_bits} bits, OASIS(), half of the classes are new",
        best["full"],
        best["full"] / best["floor"],
        "of the float64 floor",
        goal="<= 1.2" if n_bits == 16 else "",
    )


def _agreement(n_bits: int) -> Row:
    """Bits in which float32 work differs from float64 work on the same float32 numbers."""
    single, double = _model(n_bits, "paper"), _model(n_bits, "paper")
    stored = queries = 0
    for seed in range(3):
        X, y = _chunk(seed)
        single.partial_fit(X, y)
        double.partial_fit({name: values.astype(np.float64) for name, values in X.items()}, y)
        stored += int((unpack(single.codes_) != unpack(double.codes_)).sum())
    X, _ = _chunk(9)
    queries = int((unpack(single.encode(X)) != unpack(double.encode(X))).sum())
    total = N_SAMPLES * n_bits
    note = f"stored bits that differ, of {3 * total:,}; of query bits {queries} of {total:,}"
    return row(f"  float32 against float64, {n_bits} bits", stored, None, note, "bits")


def first_round(n_classes: int) -> dict[str, float]:
    """Learn two samples a class, 1,280 features, two classes a sample; return seconds and MB."""
    rng = np.random.default_rng(n_classes)
    numbers = rng.permutation(np.tile(np.arange(n_classes), 4)).reshape(-1, 2)
    centres = rng.standard_normal((n_classes, 1_280), dtype=np.float32)
    image = centres[numbers].sum(axis=1)
    image += rng.standard_normal(image.shape, dtype=np.float32)
    y = [{f"class {j}" for j in row} for row in numbers]
    model = OASIS(64, labels="orthogonal", random_state=0)
    model.partial_fit({"image": image[:8]}, y[:8])  # what is loaded once
    model, before = clone(model), peak_bytes()
    elapsed = seconds(lambda: model.partial_fit({"image": image}, y))
    return {"seconds": elapsed, "megabytes": (peak_bytes() - before) / 1e6}


def peak_of_a_round(kind: str, scale: float) -> dict[str, float]:
    """Return how far a round goes beyond the state and the chunk, in sums of 4,096 x 4,096."""
    model = _model(16, kind)
    for seed in range(2):
        model.partial_fit(*_chunk(seed, scale))
    X, y = _chunk(2, scale)
    model.partial_fit({name: values[:1] for name, values in X.items()}, y[:1])
    before = resident_bytes()
    Path("/proc/self/clear_refs").write_text("5")  # the peak is the present size
    model.partial_fit(X, y)
    return {"sums": (peak_resident_bytes() - before) / (N_IMAGE**2 * 8)}


def _memory() -> list[Row]:
    """Memory of a round over the state before it, in sums of the image's d x d."""
    code = "import json; from benchmarks.learning import *; print(json.dumps(peak_of_a_round({})))"
    rows = []
    for label, kind, scale in (
        ("paper, raw features", "paper", 150.0),
        ("OASIS(), raw features", "OASIS()", 150.0),
    ):
        call = code.format(f"{kind!r}, {scale}")
        sums = json.loads(subprocess.check_output([sys.executable, "-c", call]))["sums"]
        name = f"memory of a round, {label}"
        rows.append(row(name, sums, sums, "over the state, in d x d sums", "sums", "<= 2"))
    return rows


def _many_classes() -> list[Row]:
    """A first round that brings 1,000 and 10,000 classes, each in a process of its own."""
    code = "import json; from benchmarks.learning import first_round; print(json.dumps({}))"
    told = {}
    for n_classes in (1_000, 10_000):
        call = code.format(f"first_round({n_classes})")
        runs = [json.loads(subprocess.check_output([sys.executable, "-c", call])) for _ in range(2)]
        told[n_classes] = min(runs, key=lambda run: run["seconds"])
    few, many = told.values()
    memory = "{:.0f} MB over the inputs"
    return [
        row(
            "first round, 1,000 classes, 2,000 samples",
            few["seconds"],
            None,
            memory.format(few["megabytes"]),
        ),
        row(
            "first round, 10,000 classes, 20,000 samples",
            many["seconds"],
            many["seconds"] / few["seconds"] / 10,
            f"per class, of the round with 1,000; {memory.format(many['megabytes'])}, bar 2 GB",
            goal="<= 1",
        ),
    ]


def _long_stream() -> list[Row]:
    """Time and memory of rounds 1 to 5 beside rounds 96 to 100."""
    chunks = [_chunk(seed) for seed in range(4)]
    model = _model(16, "paper").partial_fit(*chunks[0])
    times, memory = [], []
    for number in range(N_ROUNDS):
        times.append(seconds(lambda number=number: model.partial_fit(*chunks[number % 4])))  # type: ignore[misc]
        memory.append(resident_bytes())
    early, late = min(times[:5]), min(times[-5:])
    grown = (max(memory[-5:]) - max(memory[:5])) / 1e6
    return [
        row("rounds 1 to 5, 16 bits", early, 1.0, f"resident {max(memory[:5]) / 1e6:.0f} MB"),
        row("rounds 96 to 100, 16 bits", late, late / early, f"resident {grown:+.0f} MB"),
    ]


def _encoding() -> list[Row]:
    """Encoding dense images at 64 bits against a plain matrix product of the same shape."""
    rows: list[Row] = []
    X = {"image": np.vstack([_chunk(seed)[0]["image"] for seed in range(4)])}
    for kind in ("paper", "OASIS()"):
        model = _model(64, kind).partial_fit(*_chunk(0))
        # the last feature of OASIS() is a constant
        W = model.state_.ridges["image"].W[:, :N_IMAGE]
        Wt = np.ascontiguousarray(W.T, dtype=np.float32)
        best = best_of(
            4 * _REPEATS,
            {
                "product": lambda Wt=Wt: X["image"] @ Wt,  # type: ignore[misc]
                "encode": lambda model=model: model.encode(X),  # type: ignore[misc]
            },
        )
        rows.append(
            row(
                f"encode {len(X['image']):,} images, 64 bits, {kind}",
                best["encode"],
                best["product"] / best["encode"],
                "of a plain product's speed",
                goal=">= 0.85",
            )
        )
    return rows
