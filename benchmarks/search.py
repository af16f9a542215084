"""Search: `HammingIndex` against faiss over all items, in one run.

Hamming search is compared with `IndexBinaryFlat`, asymmetric search with `IndexPQFastScan` over the
same codes, which is not exact (with `IndexBinaryFlat` where codes repeat). Four kinds of codes:

- **label sets**: the duplicate structure of a stream of label sets. New sets appear at the rate of
  the 79 most frequent COCO classes (1,972 sets at 5,000 items, 9,547 at 39,798) and beyond that by
  the power law through the same points; an item that is not new repeats the set of a random earlier
  item. Sets are drawn from 79 classes; a code is the sign of a random projection of its set.
- **random**: codes that all differ.
- **labels and content**: 64 bits of label sets, 64 random bits of content. The content half of a
  query is scaled so that content scores have ``weight`` times the standard deviation of label
  scores.
- **stream**: codes and queries of coco79, 72 label and 56 content bits, where its file is there
  (`benchmarks.stream_codes`). A few label values of a query are a hundred times larger than the
  others, which no generated query has.

Codes of 32 bytes are also compared with those of other methods by the share of the true neighbours
of float vectors that they find: image features of coco79, or clusters where its file is missing.

Seeds are fixed. Run it with ``python -m benchmarks search`` (some five minutes on two idle cores,
about 3 GB); ``python -m benchmarks.search`` measures float vectors alone.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import faiss
import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from benchmarks.stream_codes import stream_codes
from benchmarks.timing import Row, row, row_of
from oasis.codes import Codes, pack, unpack
from oasis.datasets import load
from oasis.errors import DataError
from oasis.index import HammingIndex

SIZES = (1_000_000, 300_000)
K = 100
CHUNK = 500_000
SEED = 20260

_ITEMS = np.array([1.0, 5_000, 10_000, 20_000, 39_798])
_SETS = np.array([1.0, 1_972, 3_352, 5_744, 9_547])

LABEL_BITS = 64
WEIGHTS = (0.03, 0.1, 0.3, 1.0)
_DEFAULT_WEIGHT = 0.1
_SINGLES = 10
"""Queries that are asked one by one: with groups their cost differs."""

Projections = npt.NDArray[np.float32]


class Case(NamedTuple):
    """Codes, how many bits are label bits, near codes, and projections by name, with a goal each.

    ``peer`` is what asymmetric search is compared with.
    """

    codes: Codes
    n_label_bits: int
    queries: Codes
    projections: dict[str, tuple[Projections, float | None]]
    goal: float
    peer: Any


def n_sets(n_items: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return how many label sets are distinct among so many items."""
    logs = np.log(n_items)
    inside = np.interp(logs, np.log(_ITEMS), np.log(_SETS))
    slope = np.log(_SETS[-1] / _SETS[1]) / np.log(_ITEMS[-1] / _ITEMS[1])
    beyond = np.log(_SETS[-1]) + slope * (logs - np.log(_ITEMS[-1]))
    sets: npt.NDArray[np.float64] = np.exp(np.where(logs > np.log(_ITEMS[-1]), beyond, inside))
    return sets


def label_set_stream(n: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return the number of the label set of each of n items, numbered by first appearance."""
    total = np.floor(n_sets(np.arange(1, n + 1, dtype=np.float64)))
    new = np.diff(total, prepend=0) > 0
    # an item that is not new points at a random earlier one; follow the pointers to a new one
    source = (rng.random(n) * np.arange(n)).astype(np.int64)
    source[new] = np.flatnonzero(new)
    while True:
        further = source[source]
        if (further == source).all():
            break
        source = further
    return (np.cumsum(new) - 1)[source]


def set_codes(n: int, n_bits: int, rng: np.random.Generator) -> Codes:
    """Return the codes of n label sets: signs of the sum of one random vector per class."""
    classes = rng.standard_normal((79, n_bits)).astype(np.float32)
    popularity = 1 / np.arange(1, 80)
    out = np.empty((n, n_bits // 8), dtype=np.uint8)
    for start in range(0, n, 65_536):
        m = min(65_536, n - start)
        members = rng.random((m, 79)) < np.minimum(0.9, 4 * popularity)
        noise = 0.5 * rng.standard_normal((m, n_bits)).astype(np.float32)
        out[start : start + m] = pack(members.astype(np.float32) @ classes + noise)
    return out


def near(codes: Codes, rng: np.random.Generator) -> Codes:
    """Return codes with one bit in twenty flipped."""
    flips = rng.random((len(codes), 8 * codes.shape[1])) < 0.05
    return codes ^ np.packbits(flips, axis=1, bitorder="little")


def plain_case(size: int, n_bits: int, kind: str) -> Case:
    """Return codes of label sets, or codes that all differ."""
    rng = np.random.default_rng([SEED, size, n_bits])
    if kind == "label sets":
        numbers = label_set_stream(size, rng)
        codes = set_codes(int(numbers.max()) + 1, n_bits, rng)[numbers]
        peer, goal, least = flat_scan(codes), 4.0, 1.0
    else:
        codes = rng.integers(0, 256, (size, n_bits // 8), dtype=np.uint8)
        peer, goal, least = fast_scan(codes), 0.9, 0.88
    queries = near(codes[rng.integers(0, size, 100)], rng)
    values = unpack(queries) * np.abs(rng.standard_normal((100, n_bits)))
    return Case(codes, 0, queries, {"": (values.astype(np.float32), least)}, goal, peer)


def content_case(size: int) -> Case:
    """Return codes of label bits and content bits, with queries at several content weights."""
    rng = np.random.default_rng([SEED, size, 1])
    numbers = label_set_stream(size, rng)
    labels = set_codes(int(numbers.max()) + 1, LABEL_BITS, rng)
    content = rng.integers(0, 256, (size, LABEL_BITS // 8), dtype=np.uint8)
    codes = np.concatenate([labels[numbers], content], axis=1)
    close = near(labels[numbers[rng.integers(0, size, 100)]], rng)
    wanted = unpack(close) * np.abs(rng.standard_normal((100, LABEL_BITS)))
    sample = unpack(labels[numbers[rng.integers(0, size, 10_000)]]).astype(np.float64)
    spread = (wanted @ sample.T).std(axis=1, keepdims=True) / LABEL_BITS**0.5
    projections: dict[str, tuple[Projections, float | None]] = {}
    for weight in WEIGHTS:
        tail = weight * spread * rng.standard_normal((100, LABEL_BITS))
        values = np.concatenate([wanted, tail], axis=1).astype(np.float32)
        projections[f", content weight {weight:g}"] = (values, None)
    return Case(codes, LABEL_BITS, near(codes[:100], rng), projections, 0.9, fast_scan(codes))


def stream_case(size: int) -> Case:
    """Return codes of a real stream, with queries at several content weights."""
    codes, n_label_bits, queries = stream_codes(size)
    projections: dict[str, tuple[Projections, float | None]] = {}
    for weight, values in queries.items():
        told = "default content weight" if weight is None else f"content weight {weight:g}"
        projections[f", {told}"] = (values[:100], 1.3 if weight is None else None)
    return Case(codes, n_label_bits, codes[:100], projections, 0.9, fast_scan(codes))


def flat_scan(codes: Codes) -> Any:
    """Return faiss's Hamming scan over codes."""
    flat = faiss.IndexBinaryFlat(8 * codes.shape[1])
    flat.add(codes)
    return flat


def fast_scan(codes: Codes) -> Any:
    """Return faiss's `IndexPQFastScan` over codes: 16 sign patterns for every four bits."""
    n_bits = 8 * codes.shape[1]
    plain: Any = faiss.IndexPQ(n_bits, n_bits // 4, 4, faiss.METRIC_INNER_PRODUCT)
    signs = unpack(np.arange(16, dtype=np.uint8)[:, None])[:, :4].astype(np.float32)
    faiss.copy_array_to_vector(np.tile(signs, (n_bits // 4, 1)).ravel(), plain.pq.centroids)
    plain.is_trained = True
    plain.add_sa_codes(codes)
    return faiss.IndexPQFastScan(plain)


def best_times(calls: Mapping[str, Callable[[], object]], trials: int) -> dict[str, float]:
    """Return the least seconds of each call.

    They take turns, so that they share what else goes on in the machine, and each runs three times
    a turn, so that short ones do not start from the other's cache. The time is that of the thread:
    on a busy machine long calls are interrupted more often than short ones.
    """
    best = dict.fromkeys(calls, np.inf)
    for _ in range(trials):
        for name, call in calls.items():
            for _ in range(3):
                begin = time.thread_time()
                call()
                best[name] = min(best[name], time.thread_time() - begin)
    return best


def measure(case: Case) -> list[dict[str, Any]]:
    """Measure one set of codes, one thread; ratios compare like with like within this call."""
    codes, n_label_bits, queries, projections, goal, peer = case
    index = HammingIndex(8 * codes.shape[1], n_label_bits)
    begin = time.perf_counter()
    for start in range(0, len(codes), CHUNK):
        index.add(codes[start : start + CHUNK], np.arange(start, min(len(codes), start + CHUNK)))
    taken = time.perf_counter() - begin
    flat = flat_scan(codes)
    faiss.omp_set_num_threads(1)
    rows = _speeds("search", index.search, flat.search, queries, queries, goal)
    for name, (values, least) in projections.items():
        index.search_asymmetric(values, K)  # faiss's copy of the codes is made by the first search
        asked = queries if peer.__class__ is flat.__class__ else values
        ours = index.search_asymmetric
        rows += _speeds(f"asymmetric{name}", ours, peer.search, values, asked, least)
        if asked is values:
            exact, found = ours(values, K).ids, peer.search(values, K)[1]
            share = np.mean([np.isin(a, b).mean() for a, b in zip(exact, found, strict=True)])
            told = f"share of the answer that the peer finds{name}"
            rows.append({"measure": told, "value": float(share), "unit": "of the answer"})
    return rows + _costs(index, codes, taken)


def _speeds(
    name: str,
    ours: Callable[..., object],
    theirs: Callable[..., object],
    queries: npt.NDArray[Any],
    asked: npt.NDArray[Any],
    goal: float | None,
) -> list[dict[str, Any]]:
    """Return the speed of single queries and of a batch, of an index and of a peer."""
    rows = []
    with threadpool_limits(1, user_api="blas"):
        for batch in (1, 100):
            total = {"ours": 0.0, "theirs": 0.0}
            for at in range(_SINGLES if batch == 1 else 1):
                some = slice(at, at + batch)
                calls = {
                    "ours": partial(ours, queries[some], K),
                    "theirs": partial(theirs, asked[some], K),
                }
                for which, seconds in best_times(calls, 5).items():
                    total[which] += seconds
            n = _SINGLES if batch == 1 else batch
            rows.append(
                {
                    "measure": f"{name}, batch {batch}",
                    "value": n / total["ours"],
                    "unit": "queries/s",
                    "peer": n / total["theirs"],
                    "ratio": total["theirs"] / total["ours"],
                    "goal": "" if goal is None else f">= {goal:g}",
                }
            )
    return rows


def _costs(index: HammingIndex, codes: Codes, taken: float) -> list[dict[str, Any]]:
    """Measure memory, saving, opening, and a stream of adds and searches on the opened index."""
    n, n_bytes = codes.shape
    rng = np.random.default_rng(SEED)
    more = codes[rng.integers(0, n, 100_000)]
    more[:, -4:] ^= rng.integers(0, 256, (len(more), 4), dtype=np.uint8)
    query = unpack(codes[:1]) * np.abs(rng.standard_normal((1, 8 * n_bytes)))
    rows: list[dict[str, Any]] = [
        {
            "measure": "memory",
            "value": index.nbytes / n,
            "unit": "bytes/item",
            "peer": n_bytes + 8,
            "ratio": index.nbytes / n / (n_bytes + 8),
            "goal": "<= 2",
        },
        {"measure": "codes scanned", "value": index.n_codes, "unit": "codes"},
        {"measure": "add, all", "value": taken / n * 1e9, "unit": "ns/item"},
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"

        def added() -> None:
            HammingIndex.open(path).add(more, n + np.arange(len(more)))

        def streamed() -> None:
            opened = HammingIndex.open(path)
            for start in range(0, len(more), 500):
                opened.add(more[start : start + 500], n + start + np.arange(500))
                opened.search_asymmetric(query, K)

        calls: dict[str, Callable[[], object]] = {
            "save": partial(index.save, path),
            "open": partial(HammingIndex.open, path),
            "open and add 100,000": added,
            "200 times add 500 and search": streamed,
        }
        for name, call in calls.items():
            best = best_times({name: call}, 1)[name]
            rows.append({"measure": name, "value": best * 1e3, "unit": "ms"})
    return rows


def measure_floats() -> list[Row]:
    """Measure codes of 32 bytes by the share of the 10 nearest float vectors among 10 found."""
    base, queries = float_vectors()
    faiss.omp_set_num_threads(1)
    truth = np.argsort(-(queries @ base.T), axis=1)[:, :10]
    mean = base.mean(axis=0)
    transform = faiss.PCAMatrix(base.shape[1], 256, 0, True)
    transform.train(base)
    rotation = faiss.ITQMatrix(256)
    rotation.train(transform.apply(base[:10_000]))
    index = HammingIndex(256)

    def projected(vectors: Projections) -> Projections:
        found: Projections = rotation.apply(transform.apply(vectors))
        return found

    index.add(pack(projected(base)), np.arange(len(base)))
    searches: dict[str, Callable[[Projections, int], Any]] = {
        "HammingIndex, PCA and ITQ": lambda q, k: index.search_asymmetric(projected(q), k)[0],
    }
    methods = {"RaBitQ fast scan": "PCAR192,RaBitQfs", "RaBitQ": "PCAR192,RaBitQ"}
    methods["OPQ fast scan"] = "PCA256,OPQ64,PQ64x4fs"
    for name, factory in methods.items():
        peer: Any = faiss.index_factory(base.shape[1], factory, faiss.METRIC_INNER_PRODUCT)
        for at in range(peer.chain.size()):
            step = faiss.downcast_VectorTransform(peer.chain.at(at))
            if hasattr(step, "niter"):
                step.niter = 5  # OPQ takes minutes otherwise
        peer.train((base - mean)[:10_000])
        peer.add(base - mean)
        searches[name] = lambda q, k, peer=peer: peer.search(q, k)[1]  # type: ignore[misc]
    rows = []
    for k in (10, 100):
        calls = {name: partial(search, queries, k) for name, search in searches.items()}
        taken = best_times(calls, 5)
        for name, search in searches.items():
            found = search(queries, k)
            pairs = zip(truth, found, strict=True)
            recall = float(np.mean([np.isin(ours, theirs).mean() for ours, theirs in pairs]))
            told = f"{name}: 10 nearest among {k}, {len(base):,} vectors"
            rows.append(row(told, recall, unit="of 10"))
            rows.append(row(f"{told}, speed", len(queries) / taken[name], unit="queries/s"))
    return rows


def float_vectors() -> tuple[Projections, Projections]:
    """Return unit vectors to be stored, and 500 queries."""
    try:
        vectors: Projections = np.asarray(load("coco79").X["image"], dtype=np.float32)
    except DataError as error:
        print(f"clusters in place of image features: {error}")
        rng = np.random.default_rng(SEED)
        centres = rng.standard_normal((300, 512)).astype(np.float32)
        vectors = centres[rng.integers(0, 300, 40_000)]
        vectors += rng.standard_normal(vectors.shape, dtype=np.float32)
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors[:-500], vectors[-500:]


def run(sizes: tuple[int, ...] = SIZES) -> list[Row]:
    """Return one row for each measurement; ratios are to faiss."""
    rows: list[Row] = []
    for size in sizes:
        tasks: dict[str, Callable[[], Case]] = {
            f"{size:,} {kind}, {n_bits} bits": partial(plain_case, size, n_bits, kind)
            for n_bits in (64, 128)
            for kind in ("label sets", "random")
        }
        tasks[f"{size:,} labels and content, {2 * LABEL_BITS} bits"] = partial(content_case, size)
        tasks[f"{size:,} of a stream"] = partial(stream_case, size)
        for what, task in tasks.items():
            try:
                found = measure(task())
            except DataError as error:
                print(f"codes of a real stream are not measured: {error}")
                continue
            rows += [row_of(each, f"{each['measure']}, {what}") for each in found]
            gc.collect()
    return rows + measure_floats()


if __name__ == "__main__":
    for each in measure_floats():
        print(f"{each['name']}: {each['value']:.4g} {each['unit']}")
