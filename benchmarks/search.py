"""Search: `HammingIndex` against faiss over all items, in one run.

Hamming search is compared with `IndexBinaryFlat`. Asymmetric search is compared with the same where
codes repeat, and with `IndexPQFastScan` over the same codes, which is not exact, where all codes
differ. Four kinds of codes:

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

Seeds are fixed. Run it with ``python -m benchmarks search`` (some five minutes on two idle cores,
about 5 GB).
"""

from __future__ import annotations

import functools
import gc
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from benchmarks.stream_codes import stream_codes
from benchmarks.timing import Row, row_of
from oasis.codes import Codes, pack, unpack
from oasis.errors import DataError
from oasis.index import HammingIndex

SIZES = (1_000_000, 10_000_000)
WIDTHS = (64, 128)
K = 100
CHUNK = 500_000
SEED = 20260

_ITEMS = np.array([1.0, 5_000, 10_000, 20_000, 39_798])
_SETS = np.array([1.0, 1_972, 3_352, 5_744, 9_547])

# what the numbers must reach
_SPEEDUP = {1_000_000: 5.0, 10_000_000: 10.0}
_RANDOM = 0.9
_ASYMMETRIC = {64: 1.0, 128: 1.5}
_FAST_SCAN = 0.8
_CONTENT = 2.0
_THREADS = 1.8
_MEMORY = {64: 2.0, 128: 2.0}

LABEL_BITS = 64
WEIGHTS = (0.03, 0.1, 0.3, 1.0)
_DEFAULT_WEIGHT = 0.1
_SINGLES = 20
"""Queries that are asked one by one: with groups their cost differs."""


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


def best_times(
    calls: list[Callable[[], object]],
    trials: int,
    in_a_row: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Return the least seconds of each call.

    They take turns, so that they share what else goes on in the machine, and each runs
    ``in_a_row`` times a turn, so that short ones do not start from the other's cache. Searches on
    one thread are timed by `time.thread_time`: on a busy machine long calls are interrupted more
    often than short ones.
    """
    best = [np.inf] * len(calls)
    for _ in range(trials):
        for i, call in enumerate(calls):
            for _ in range(in_a_row):
                begin = clock()
                call()
                best[i] = min(best[i], clock() - begin)
    return best


def build(codes: Codes, n_bits: int) -> tuple[HammingIndex, float]:
    """Return the index and the seconds per item that it took."""
    index = HammingIndex(n_bits)
    n = len(codes)
    begin = time.perf_counter()
    for start in range(0, n, CHUNK):
        stop = min(n, start + CHUNK)
        index.add(codes[start:stop], np.arange(start, stop))
    return index, (time.perf_counter() - begin) / n


def chunk_cost(index: HammingIndex, codes: Codes) -> float:
    """Return the median seconds per item of five chunks added to an index."""
    costs = []
    for part in np.split(np.arange(len(codes)), 5):
        begin = time.perf_counter()
        index.add(codes[part], 10**10 + part)
        costs.append((time.perf_counter() - begin) / len(part))
    return float(np.median(costs))


def fast_scan(codes: Codes) -> Any:
    """Return faiss's `IndexPQFastScan` over codes: 16 sign patterns for every four bits."""
    n_bits = 8 * codes.shape[1]
    plain: Any = faiss.IndexPQ(n_bits, n_bits // 4, 4, faiss.METRIC_INNER_PRODUCT)
    signs = unpack(np.arange(16, dtype=np.uint8)[:, None])[:, :4].astype(np.float32)
    faiss.copy_array_to_vector(np.tile(signs, (n_bits // 4, 1)).ravel(), plain.pq.centroids)
    plain.is_trained = True
    plain.add_sa_codes(codes)
    return faiss.IndexPQFastScan(plain)


def measure(size: int, n_bits: int, kind: str) -> list[dict[str, Any]]:
    """Measure one set of codes; every ratio compares like with like within this call."""
    rng = np.random.default_rng([SEED, size, n_bits])
    if kind == "label sets":
        numbers = label_set_stream(size, rng)
        codes = set_codes(int(numbers.max()) + 1, n_bits, rng)[numbers]
    else:
        codes = rng.integers(0, 256, (size, n_bits // 8), dtype=np.uint8)
    queries = near(codes[rng.integers(0, size, 100)], rng)
    sizes = np.abs(rng.standard_normal((100, n_bits)))
    projections = (unpack(queries) * sizes).astype(np.float32)

    flat = faiss.IndexBinaryFlat(n_bits)
    flat.add(codes)
    scan = fast_scan(codes) if kind == "random" else None
    index, per_item = build(codes, n_bits)
    fixed = {"size": size, "bits": n_bits, "codes": kind}
    rows: list[dict[str, Any]] = []
    speed_bar = _SPEEDUP[size] if kind == "label sets" else _RANDOM
    score_bar = _ASYMMETRIC[n_bits] if kind == "label sets" else _FAST_SCAN
    big = size > 2_000_000
    # the packed copy of the codes is made by the first searches
    index.search_asymmetric(projections, K)
    alone: dict[str, float] = {}
    for batch, threads in ((1, 1), (100, 1), (100, 2)):
        faiss.omp_set_num_threads(threads)
        calls = _calls(flat, scan, index, queries[:batch], projections[:batch])
        trials = {1: (4, 5) if big else (20, 10), 100: (2, 1) if big else (5, 1)}[batch]
        with threadpool_limits(threads, user_api="blas"):
            clock = time.thread_time if threads == 1 else time.perf_counter
            taken = best_times(list(calls.values()), *trials, clock=clock)
            seconds = dict(zip(calls, taken, strict=True))
        for name, peer, bar in (
            ("search", "faiss", speed_bar),
            ("asymmetric", "faiss" if scan is None else "fast scan", score_bar),
        ):
            measured = f"{name}, batch {batch}, {threads} thread(s)"
            rows.append(fixed | _speed(measured, batch, seconds[name], seconds[peer], bar))
            if threads == 1:
                alone[name] = seconds[name]
            else:
                gain = f"{name}, batch {batch}, two threads against one"
                rows.append(fixed | _speed(gain, batch, seconds[name], alone[name], _THREADS))
    faiss.omp_set_num_threads(1)
    more = codes[rng.integers(0, size, 50_000)]
    if kind == "random":
        more = rng.integers(0, 256, more.shape, dtype=np.uint8)
    rows += [fixed | row for row in _costs(index, n_bits, per_item, more)]
    return rows


def measure_content(size: int) -> list[dict[str, Any]]:
    """Measure codes of label bits and content bits at several content weights."""
    n_bits = 2 * LABEL_BITS
    rng = np.random.default_rng([SEED, size, 1])
    numbers = label_set_stream(size, rng)
    labels = set_codes(int(numbers.max()) + 1, LABEL_BITS, rng)
    content = rng.integers(0, 256, (size, LABEL_BITS // 8), dtype=np.uint8)
    codes = np.concatenate([labels[numbers], content], axis=1)
    near_labels = near(labels[numbers[rng.integers(0, size, 100)]], rng)
    wanted = unpack(near_labels) * np.abs(rng.standard_normal((100, LABEL_BITS)))
    sample = unpack(labels[numbers[rng.integers(0, size, 10_000)]]).astype(np.float64)
    spread = (wanted @ sample.T).std(axis=1, keepdims=True) / LABEL_BITS**0.5

    scan = fast_scan(codes)
    index = HammingIndex(n_bits, LABEL_BITS)
    begin = time.perf_counter()
    for start in range(0, size, CHUNK):
        index.add(codes[start : start + CHUNK], np.arange(start, min(size, start + CHUNK)))
    per_item = (time.perf_counter() - begin) / size
    fixed = {"size": size, "bits": n_bits, "codes": "labels and content"}
    rows: list[dict[str, Any]] = []
    big = size > 2_000_000
    faiss.omp_set_num_threads(1)
    for weight in WEIGHTS:
        tail = weight * spread * rng.standard_normal((100, LABEL_BITS))
        queries = np.concatenate([wanted, tail], axis=1).astype(np.float32)
        bar = _CONTENT if weight == _DEFAULT_WEIGHT else None
        index.search_asymmetric(queries, K)
        singles = np.split(queries[:_SINGLES], _SINGLES)
        with threadpool_limits(1, user_api="blas"):
            pairs = [
                best_times(
                    [
                        functools.partial(scan.search, one, K),
                        functools.partial(index.search_asymmetric, one, K),
                    ],
                    *((2, 2) if big else (5, 4)),
                    clock=time.thread_time,
                )
                for one in singles
            ]
            theirs, ours = np.sum(pairs, axis=0)
            name = f"asymmetric, content weight {weight:g}, batch 1, 1 thread(s)"
            rows.append(fixed | _speed(name, _SINGLES, ours, theirs, bar))
            theirs, ours = best_times(
                [
                    functools.partial(scan.search, queries, K),
                    functools.partial(index.search_asymmetric, queries, K),
                ],
                2 if big else 5,
                clock=time.thread_time,
            )
            name = f"asymmetric, content weight {weight:g}, batch 100, 1 thread(s)"
            rows.append(fixed | _speed(name, 100, ours, theirs, bar))
    more = np.concatenate(
        [
            labels[numbers[rng.integers(0, size, 50_000)]],
            rng.integers(0, 256, (50_000, LABEL_BITS // 8), dtype=np.uint8),
        ],
        axis=1,
    )
    return rows + [fixed | row for row in _costs(index, n_bits, per_item, more)]


def measure_stream(size: int) -> list[dict[str, Any]]:
    """Measure codes of a real stream by groups and by tables alone, at several content weights."""
    try:
        codes, n_label_bits, queries = stream_codes(size)
    except DataError as error:
        print(f"codes of a real stream are not measured: {error}")
        return []
    scan = fast_scan(codes)
    n_bits = 8 * codes.shape[1]
    grouped, plain = HammingIndex(n_bits, n_label_bits), HammingIndex(n_bits)
    for start in range(0, size, CHUNK):
        for index in (grouped, plain):
            index.add(codes[start : start + CHUNK], np.arange(start, min(size, start + CHUNK)))
    fixed = {"size": size, "bits": n_bits, "codes": "stream"}
    rows: list[dict[str, Any]] = []
    faiss.omp_set_num_threads(1)
    for weight, projections in queries.items():
        told = "default content weight" if weight is None else f"content weight {weight:g}"
        asked = np.split(projections[:_SINGLES], _SINGLES)
        exact = grouped.search_asymmetric(projections[:_SINGLES], K)
        if (plain.search_asymmetric(projections[:_SINGLES], K).ids != exact.ids).any():
            raise RuntimeError("two exact indexes differ")
        taken = {batch: np.zeros(3) for batch in (1, 100)}
        with threadpool_limits(1, user_api="blas"):
            for one in [*asked, projections[:100]]:
                ways: list[Callable[[], object]] = [
                    functools.partial(scan.search, one, K),
                    functools.partial(grouped.search_asymmetric, one, K),
                    functools.partial(plain.search_asymmetric, one, K),
                ]
                trials = (5, 4) if len(one) == 1 and size <= 2_000_000 else (2, 2)
                taken[len(one)] += best_times(ways, *trials, clock=time.thread_time)
        found = scan.search(projections[:_SINGLES], K)[1]
        share = np.mean([np.isin(a, b).mean() for a, b in zip(exact.ids, found, strict=True)])
        bar = _CONTENT if weight is None else None
        for batch, (theirs, *both) in taken.items():
            n = _SINGLES if batch == 1 else batch
            for name, ours in zip(("groups", "tables alone"), both, strict=True):
                measured = f"asymmetric, {told}, {name}, batch {batch}, 1 thread(s)"
                wanted = bar if name == "groups" else None
                rows.append(fixed | _speed(measured, n, ours, theirs, wanted))
        recall = f"share of the answer that the peer finds, {told}"
        rows.append(fixed | {"measure": recall, "value": float(share), "unit": "of the answer"})
    return rows


def _speed(name: str, batch: int, ours: float, theirs: float, bar: float | None) -> dict[str, Any]:
    return {
        "measure": name,
        "value": batch / ours,
        "unit": "queries/s",
        "peer": batch / theirs,
        "ratio": theirs / ours,
        "goal": "" if bar is None else f">= {bar:g}",
    }


def _calls(
    flat: Any,
    scan: Any,
    index: HammingIndex,
    queries: Codes,
    projections: npt.NDArray[np.float32],
) -> dict[str, Callable[[], object]]:
    calls: dict[str, Callable[[], object]] = {
        "faiss": lambda: flat.search(queries, K),
        "search": lambda: index.search(queries, K),
        "asymmetric": lambda: index.search_asymmetric(projections, K),
    }
    if scan is not None:
        calls["fast scan"] = lambda: scan.search(projections, K)
    return calls


def _costs(index: HammingIndex, n_bits: int, per_item: float, more: Codes) -> list[dict[str, Any]]:
    n_items, n_codes, n_bytes = len(index), index.n_codes, index.nbytes
    plain = n_items * (n_bits // 8 + 8)  # codes and ids, once
    per_item_late = chunk_cost(index, more)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        (saving,) = best_times([lambda: index.save(path)], 1)
        (opening,) = best_times([lambda: HammingIndex.open(path)], 3)
        opened = HammingIndex.open(path)
        codes, ids = np.zeros((1000, n_bits // 8), np.uint8), 10**9 + np.arange(1000)
        (first_add,) = best_times([lambda: opened.add(codes, ids)], 1)
    return [
        {
            "measure": "memory",
            "value": n_bytes / n_items,
            "unit": "bytes/item",
            "peer": plain / n_items,
            "ratio": n_bytes / plain,
            "goal": f"<= {_MEMORY[n_bits]:g}",
        },
        {"measure": "distinct codes", "value": n_codes, "unit": "codes"},
        {"measure": "add, all", "value": per_item * 1e9, "unit": "ns/item"},
        {"measure": "add, 10,000 more", "value": per_item_late * 1e9, "unit": "ns/item"},
        {"measure": "save", "value": saving * 1e3, "unit": "ms"},
        {"measure": "open", "value": opening * 1e3, "unit": "ms"},
        {"measure": "first add of 1,000 after open", "value": first_add * 1e3, "unit": "ms"},
    ]


def run(sizes: tuple[int, ...] = SIZES, widths: tuple[int, ...] = WIDTHS) -> list[Row]:
    """Return one row for each measurement; ratios are to faiss."""
    rows: list[Row] = []
    for size in sizes:
        tasks = [
            (f"{size:,} {kind}, {n_bits} bits", functools.partial(measure, size, n_bits, kind))
            for n_bits in widths
            for kind in ("label sets", "random")
        ]
        content = f"{size:,} labels and content, {2 * LABEL_BITS} bits"
        tasks.append((content, functools.partial(measure_content, size)))
        tasks.append((f"{size:,} of a stream", functools.partial(measure_stream, size)))
        for what, task in tasks:
            rows += [row_of(each, f"{each['measure']}, {what}") for each in task()]
            gc.collect()
    return rows
