"""Ten shards of ten million codes that all differ, searched one by one and merged exactly.

Each shard is a process of its own, and they run one after another, so that one shard's memory is
enough. Item ``i`` lives in shard ``i % n_shards``. Every shard answers the same queries, by Hamming
distance and by asymmetric score; the answers are merged by (distance or score, id). The truth is a
plain comparison of some of the queries with all codes, without the index.

Run it with ``python -m benchmarks shards`` (some ten minutes on two idle cores, about 3 GB).
"""

from __future__ import annotations

import multiprocessing
import time
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from benchmarks.timing import Row, row
from oasis.codes import Codes, pack, unpack
from oasis.index import HammingIndex

N_SHARDS = 10
SIZE = 10_000_000
N_BITS = 64
K = 100
QUERIES = 20
CHECKED = 2
SEED = 20261

Answer = tuple[npt.NDArray[Any], npt.NDArray[Any]]
"""Keys (lower is better) and ids, both (q, k)."""


def queries() -> npt.NDArray[np.float32]:
    return np.random.default_rng(SEED).standard_normal((QUERIES, N_BITS)).astype(np.float32)


def shard_codes(shard: int, size: int) -> Codes:
    rng = np.random.default_rng([SEED, shard])
    return rng.integers(0, 256, (size, N_BITS // 8), dtype=np.uint8)


def search_shard(shard: int, n_shards: int, size: int) -> dict[str, Any]:
    """Build one shard, answer the queries one by one, and compare some with all of its codes."""
    faiss.omp_set_num_threads(1)
    codes, wanted = shard_codes(shard, size), queries()
    ids = np.arange(size) * n_shards + shard
    index = HammingIndex(N_BITS)
    begin = time.perf_counter()
    index.add(codes, ids)
    built = time.perf_counter() - begin
    index.search_asymmetric(wanted, K)
    packed = pack(wanted)
    timed: dict[str, list[float]] = {"hamming": [], "asymmetric": []}
    distances, scores = [], []
    for i in range(QUERIES):
        begin = time.perf_counter()
        distances.append(index.search(packed[i : i + 1], K))
        timed["hamming"].append(time.perf_counter() - begin)
        begin = time.perf_counter()
        scores.append(index.search_asymmetric(wanted[i : i + 1], K))
        timed["asymmetric"].append(time.perf_counter() - begin)
    return {
        "built": built,
        "bytes": index.nbytes / size,
        "seconds": {name: float(np.median(each)) for name, each in timed.items()},
        "hamming": (
            np.concatenate([found.distances for found in distances]),
            np.concatenate([found.ids for found in distances]),
        ),
        "asymmetric": (
            -np.concatenate([found.scores for found in scores]),
            np.concatenate([found.ids for found in scores]),
        ),
        "truth": plain_truth(codes, ids, wanted[:CHECKED]),
    }


def plain_truth(
    codes: Codes, ids: npt.NDArray[np.int64], wanted: npt.NDArray[np.float32]
) -> dict[str, Answer]:
    """Return the first K of all codes for each query, by plain comparison in blocks."""
    best: dict[str, Answer] = {}
    for name, values in (("hamming", np.where(wanted > 0, 1.0, -1.0)), ("asymmetric", wanted)):
        keys, found = np.empty((len(wanted), 0)), np.empty((len(wanted), 0), dtype=np.int64)
        for start in range(0, len(codes), 250_000):
            signs = unpack(codes[start : start + 250_000]).astype(np.float64)
            scores = values.astype(np.float64) @ signs.T
            if name == "hamming":
                scores = (N_BITS - scores) / 2
            else:
                scores = -scores.astype(np.float32).astype(np.float64)
            some = np.broadcast_to(ids[start : start + 250_000], scores.shape)
            keys, found = merge([(keys, found), (scores, some)])
        best[name] = keys, found
    return best


def merge(answers: list[Answer]) -> Answer:
    """Return the first K of several answers, by key, then by id."""
    keys = np.concatenate([each[0] for each in answers], axis=1)
    ids = np.concatenate([each[1] for each in answers], axis=1)
    order = np.stack([np.lexsort(pair)[:K] for pair in zip(ids, keys, strict=True)])
    return np.take_along_axis(keys, order, axis=1), np.take_along_axis(ids, order, axis=1)


def run(n_shards: int = N_SHARDS, size: int = SIZE) -> list[Row]:
    """Search all shards, merge, compare; return the figures."""
    context = multiprocessing.get_context("spawn")
    found = []
    for shard in range(n_shards):
        with context.Pool(1) as pool:
            found.append(pool.apply(search_shard, (shard, n_shards, size)))
    what = f"{n_shards} shards of {size:,} codes that all differ, {N_BITS} bits"
    rows = [
        row(f"adding, a shard, {what}", float(np.median([each["built"] for each in found]))),
        row(
            f"memory, {what}",
            float(np.mean([each["bytes"] for each in found])),
            unit="bytes/item",
        ),
    ]
    for name in ("hamming", "asymmetric"):
        seconds = [each["seconds"][name] for each in found]
        begin = time.perf_counter()
        keys, ids = merge([each[name] for each in found])
        merging = (time.perf_counter() - begin) / QUERIES
        expected = merge([each["truth"][name] for each in found])
        wrong = int((ids[:CHECKED] != expected[1]).sum() + (keys[:CHECKED] != expected[0]).sum())
        rows += [
            row(f"{name}, a query on a shard, {what}", 1e3 * float(np.median(seconds)), unit="ms"),
            row(f"{name}, slowest shard, {what}", 1e3 * max(seconds), unit="ms"),
            row(f"{name}, merging a query, {what}", 1e3 * merging, unit="ms"),
            row(
                f"{name}, unlike a plain comparison, {what}",
                wrong,
                note=f"of {2 * CHECKED * K} ids and keys",
                unit="entries",
            ),
        ]
    return rows
