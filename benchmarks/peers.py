"""What engineers pick instead, at the same work: codes of equal size, and other local engines.

*Codes*: the same rows and queries for all. OASIS learns from features and labels; the others get
both modalities, unit length each, as one vector (SVD to 512 values), and no labels, which they
cannot use. A hit is right if it shares a label with the query; for three words of a text it is
right if it is the item with that text. 32 bytes an item, but for the vectors themselves.

*Engines*: Chroma, LanceDB, Qdrant (local mode) and a `Collection`, each in a process of its own,
store such vectors of 20,000 items and answer 200 queries one by one. They are asked for the nearest
vectors; the collection, which is given the labels too, for what shares a label. They are no
dependency: make an environment for them and name its Python; one that is missing is a line that
says so.

    python -m venv /tmp/peers && /tmp/peers/bin/pip install '.[peers]'
    OASIS_PEERS=/tmp/peers/bin/python python -m benchmarks peers

The data is coco79 where ``$OASIS_DATA`` has it (or ../shared/data), else the icons.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.decomposition import TruncatedSVD
from sklearn.preprocessing import normalize

from benchmarks.timing import Row, row
from oasis.codes import unpack
from oasis.datasets import load
from oasis.datasets.texts import Texts, texts_of
from oasis.errors import OasisError
from oasis.metrics import (
    average_precision_from_scores,
    found_at_k,
    item_ranks_from_scores,
)
from oasis.model import OASIS

BASE = 6_000
QUERIES = 500
CHUNK = 2_000
ENGINE_ROWS = 20_000
ASKED = 200
K = 10
WIDTH = 512
BYTES = 32
SEED = 20261
ENGINES = ("oasis", "chroma", "lancedb", "qdrant")

Floats = npt.NDArray[np.float32]
Features = Mapping[str, Any]


@dataclass(frozen=True)
class Work:
    """The rows that are stored and asked for, and the words of some of them."""

    name: str
    stored: Features
    asked: Features
    labels: Sequence[Sequence[str]]
    stored_L: npt.NDArray[np.uint8]
    asked_L: npt.NDArray[np.uint8]
    words: Any
    """Features of three words of the text of each of the first items, as modality ``text``."""


@dataclass(frozen=True)
class Engine:
    """What a method answers: scores of all stored items, (q, n), for features of queries."""

    name: str
    scores: Callable[[Features], Floats]


def run() -> list[Row]:
    """Return the rows of all methods and engines."""
    work = _work(BASE)
    rows = _codes(work, _vectorizer(work.stored))
    work = _work(ENGINE_ROWS)
    return rows + _engines(work, _vectorizer(work.stored))


# -- the data ---------------------------------------------------------------------------------


def _work(n: int) -> Work:
    beside = Path(__file__).parents[2] / "shared" / "data" / "coco40k"
    folder = os.environ.get("OASIS_DATA") or (beside if beside.is_dir() else None)
    try:
        dataset = load("coco79", folder)
    except OasisError:
        dataset, folder = load("icons"), None
    texts = texts_of(dataset, folder)
    assert texts is not None
    order = np.random.default_rng(SEED).permutation(dataset.n_samples)
    asked = order[: min(QUERIES, dataset.n_samples // 5)]
    stored = order[len(asked) : len(asked) + n]
    return Work(
        dataset.name,
        dataset.take(stored),
        dataset.take(asked),
        dataset.labels(stored),
        dataset.L[stored],
        dataset.L[asked],
        _three_words(texts, stored[: len(asked)]),
    )


def _three_words(texts: Texts, items: npt.NDArray[np.int64]) -> Any:
    rng = np.random.default_rng(SEED)
    known = set(texts.vocabulary)
    drawn = []
    for item in items:
        found = re.findall(r"[a-z][a-z]+", texts.described[item].lower())
        words = sorted({word for word in found if not known or word in known})
        drawn.append(" ".join(rng.choice(words, min(3, len(words)), replace=False)))
    return texts.words(drawn)


def _vectorizer(stored: Features) -> Callable[[Features], Floats]:
    """Return what makes one vector of both modalities, unit length; one may be missing."""
    widths = {name: values.shape[1] for name, values in stored.items()}

    def joined(X: Features) -> sp.csr_array:
        n = next(iter(X.values())).shape[0]
        blocks = [
            sp.csr_array(normalize(X[name])) if name in X else sp.csr_array((n, width))
            for name, width in widths.items()
        ]
        return sp.csr_array(sp.hstack(blocks))

    width = min(WIDTH, sum(widths.values()) - 1)
    svd = TruncatedSVD(width, random_state=SEED).fit(joined(stored))
    return lambda X: np.ascontiguousarray(normalize(svd.transform(joined(X))), np.float32)


# -- codes of equal size ----------------------------------------------------------------------


def _codes(work: Work, vectors: Callable[[Features], Floats]) -> list[Row]:
    base = vectors(work.stored)
    both = [
        Engine(f"float cosine, {4 * base.shape[1]:,} bytes", lambda X: vectors(X) @ base.T),
        _faiss("PQ", _pq(base.shape[1]), base, vectors),
        _faiss("OPQ and PQ", _opq(base.shape[1]), base, vectors),
        _rabitq(base, vectors),
        *_oasis(work),
    ]
    rows = []
    for each in both:
        for name, value in _measures(work, each.scores).items():
            rows.append(row(f"{each.name}: {name}", value, note=work.name, unit=""))
    return rows


def _measures(work: Work, scores: Callable[[Features], Floats]) -> dict[str, float]:
    found: dict[str, float] = {}
    asked = {"both": work.asked, "picture": {"image": work.asked["image"]}}
    for name, X in asked.items():
        scored = scores(X)
        truth = float(average_precision_from_scores(scored, work.asked_L, work.stored_L).mean())
        first = np.argsort(-scored, axis=1, kind="stable")[:, :K]
        right = np.stack(
            [work.stored_L[rows] @ of > 0 for rows, of in zip(first, work.asked_L, strict=True)]
        )
        found[f"label MAP, by {name}"] = truth
        found[f"precision of the first ten, by {name}"] = float(right.mean())
        found[f"any right among ten, by {name}"] = float(right.any(axis=1).mean())
    ranks = item_ranks_from_scores(scores({"text": work.words}), np.arange(work.words.shape[0]))
    found["the item by three words, among ten"] = found_at_k(ranks, K)
    return found


def _pq(width: int) -> Any:
    return faiss.IndexPQ(width, BYTES, 8, faiss.METRIC_INNER_PRODUCT)


def _opq(width: int) -> Any:
    rotation = faiss.OPQMatrix(width, BYTES)
    return faiss.IndexPreTransform(rotation, _pq(width))


def _faiss(name: str, index: Any, base: Floats, vectors: Callable[[Features], Floats]) -> Engine:
    index.train(base)
    index.add(base)
    decoded = index.reconstruct_n(0, len(base))
    return Engine(f"{name}, {BYTES} bytes", lambda X: vectors(X) @ decoded.T)


def _rabitq(base: Floats, vectors: Callable[[Features], Floats]) -> Engine:
    """RaBitQ of the first 192 principal components: 24 bytes of signs and 8 of factors."""
    width = min(8 * (BYTES - 8), base.shape[1])
    index = faiss.IndexPreTransform(
        faiss.PCAMatrix(base.shape[1], width, 0, True), faiss.IndexRaBitQ(width, faiss.METRIC_L2)
    )
    index.train(base)
    index.add(base)

    def scores(X: Features) -> Floats:
        distances, order = index.search(vectors(X), len(base))
        result: Floats = np.empty_like(distances)
        np.put_along_axis(result, order, -distances, axis=1)
        return result

    return Engine(f"RaBitQ, {BYTES} bytes", scores)


def _oasis(work: Work) -> list[Engine]:
    model = OASIS.for_search(8 * BYTES, random_state=SEED)
    codes = []
    for start in range(0, len(work.labels), CHUNK):
        rows = slice(start, start + CHUNK)
        chunk = {name: values[rows] for name, values in work.stored.items()}
        codes.append(model.partial_fit(chunk, work.labels[rows]).codes_)
    signs = unpack(np.concatenate(codes)).astype(np.float32)
    signs = 2 * signs - 1 if signs.min() == 0 else signs

    def asking(content: float | None) -> Callable[[Features], Floats]:
        return lambda X: model.project(X, content) @ signs.T

    return [
        Engine(f"OASIS, {BYTES} bytes", asking(None)),
        Engine(f"OASIS, content alone, {BYTES} bytes", asking(1.0)),
    ]


# -- engines ----------------------------------------------------------------------------------


def _engines(work: Work, vectors: Callable[[Features], Floats]) -> list[Row]:
    stored, asked = vectors(work.stored), vectors(work.asked)[:ASKED]
    truth = np.argsort(-(asked @ stored.T), axis=1)[:, :K]
    shares = work.asked_L[: len(asked)].astype(int) @ work.stored_L.T > 0
    rows: list[Row] = []
    ours: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "vectors.npz")
        np.savez(data, stored=stored, asked=asked, labels=work.stored_L)
        for name in ENGINES:
            python = sys.executable if name == "oasis" else os.environ.get("OASIS_PEERS")
            script = Path(__file__).with_name("peer_engines.py")
            command = [python or sys.executable, str(script), name, str(data)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                why = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
                rows.append(row(f"{name}: not measured", 0.0, note=why, unit=""))
                continue
            told = json.loads(done.stdout.splitlines()[-1])
            hits = np.array(told.pop("hits"))
            told["exact neighbours among ten"] = float(
                np.mean([np.isin(a, b).mean() for a, b in zip(hits, truth, strict=True)])
            )
            told["precision of the first ten"] = float(
                np.take_along_axis(shares, hits, axis=1).mean()
            )
            note = f"{work.name}, {len(stored):,} x {stored.shape[1]}"
            for what, value in told.items():
                first = ours.setdefault(what, value)
                rows.append(row(f"{name}: {what}", value, value / first, note, unit=""))
    return rows
