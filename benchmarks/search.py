"""Search: `HammingIndex` against faiss `IndexBinaryFlat` over all items, in one run.

Codes have the duplicate structure of a stream of label sets: new sets appear at the rate of the 79
most frequent COCO classes (1,972 sets at 5,000 items, 9,547 at 39,798) and beyond that by the power
law through the same points; an item that is not new repeats the set of a random earlier item. Sets
are drawn from 79 classes; a code is the sign of a random projection of its set. Seeds are fixed.

Run it with ``python -m benchmarks.search`` (under three minutes, about 4 GB).
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from oasis.codes import Codes, pack, unpack
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
_ASYMMETRIC = 1.0
_MEMORY = {64: 2.0, 128: 1.7}


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


def best_time(call: Callable[[], object], trials: int) -> float:
    best = np.inf
    for _ in range(trials):
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
    return best


def build(codes: Codes, n_bits: int) -> tuple[HammingIndex, float, float]:
    """Return the index, the seconds per item it took, and that of its last chunk of 10,000."""
    index = HammingIndex(n_bits)
    n = len(codes)
    begin = time.perf_counter()
    for start in range(0, n, CHUNK):
        stop = min(n, start + CHUNK)
        index.add(codes[start:stop], np.arange(start, stop))
    per_item = (time.perf_counter() - begin) / n
    return index, per_item, _chunk_cost(index, codes)


def _chunk_cost(index: HammingIndex, codes: Codes) -> float:
    """Return the median seconds per item of small chunks added to (and removed from) the index."""
    costs = []
    top = len(codes)
    for turn in range(5):
        ids = np.arange(top + turn * 10_000, top + (turn + 1) * 10_000)
        begin = time.perf_counter()
        index.add(codes[turn * 10_000 : (turn + 1) * 10_000], ids)
        costs.append((time.perf_counter() - begin) / 10_000)
    return float(np.median(costs))


def measure(size: int, n_bits: int, kind: str) -> list[dict[str, Any]]:
    """Measure one set of codes; every ratio compares like with like within this call."""
    rng = np.random.default_rng([SEED, size, n_bits])
    if kind == "label sets":
        numbers = label_set_stream(size, rng)
        codes = set_codes(int(numbers.max()) + 1, n_bits, rng)[numbers]
    else:
        codes = rng.integers(0, 256, (size, n_bits // 8), dtype=np.uint8)
    queries = near(codes[rng.integers(0, size, 100)], rng)
    projections = unpack(queries) * np.abs(rng.standard_normal((100, n_bits))).astype(np.float32)

    flat = faiss.IndexBinaryFlat(n_bits)
    flat.add(codes)
    index, per_item, per_item_late = build(codes, n_bits)
    fixed = {"size": size, "bits": n_bits, "codes": kind}
    rows: list[dict[str, Any]] = []
    speed_bar = _SPEEDUP[size] if kind == "label sets" else _RANDOM
    asymmetric_bar = _ASYMMETRIC if kind == "label sets" else None
    big = size > 2_000_000
    for batch, threads in ((1, 1), (100, 1), (100, 2)):
        trials = {1: 15 if big else 40, 100: 1 if big else 4}[batch]
        faiss.omp_set_num_threads(threads)
        q, p = queries[:batch], projections[:batch]
        with threadpool_limits(threads, user_api="blas"):
            theirs = best_time(lambda q=q: flat.search(q, K), trials)  # type: ignore[misc]
            ours = best_time(lambda q=q: index.search(q, K), 2 * trials)  # type: ignore[misc]
            real = best_time(
                lambda p=p: index.search_asymmetric(p, K),  # type: ignore[misc]
                trials if kind == "label sets" or batch == 1 else 1,
            )
        for measure_name, seconds, bar in (
            ("search", ours, speed_bar),
            ("asymmetric", real, asymmetric_bar),
        ):
            rows.append(
                fixed
                | {
                    "measure": f"{measure_name}, batch {batch}, {threads} thread(s)",
                    "value": batch / seconds,
                    "unit": "queries/s",
                    "peer": batch / theirs,
                    "ratio": theirs / seconds,
                    "bar": bar,
                }
            )
    faiss.omp_set_num_threads(1)
    rows += [fixed | row for row in _costs(index, n_bits, kind, per_item, per_item_late)]
    return rows


def _costs(
    index: HammingIndex, n_bits: int, kind: str, per_item: float, per_item_late: float
) -> list[dict[str, Any]]:
    plain = len(index) * (n_bits // 8 + 8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        saving = best_time(lambda: index.save(path), 1)
        opening = best_time(lambda: HammingIndex.open(path), 3)
        opened = HammingIndex.open(path)
        top = 10**9
        first_add = best_time(
            lambda: opened.add(np.zeros((1000, n_bits // 8), np.uint8), np.arange(top, top + 1000)),
            1,
        )
    return [
        {
            "measure": "memory",
            "value": index.nbytes / len(index),
            "unit": "bytes/item",
            "peer": plain / len(index),
            "ratio": index.nbytes / plain,
            "bar": _MEMORY[n_bits],
        },
        {"measure": "distinct codes", "value": index.n_codes, "unit": "codes"},
        {"measure": "add, all", "value": per_item * 1e9, "unit": "ns/item"},
        {"measure": "add, 10,000 more", "value": per_item_late * 1e9, "unit": "ns/item"},
        {"measure": "save", "value": saving * 1e3, "unit": "ms"},
        {"measure": "open", "value": opening * 1e3, "unit": "ms"},
        {"measure": "first add of 1,000 after open", "value": first_add * 1e3, "unit": "ms"},
    ]


def run(sizes: tuple[int, ...] = SIZES, widths: tuple[int, ...] = WIDTHS) -> list[dict[str, Any]]:
    """Return one row per measure: value, unit, and where apt peer, ratio and the bar for it."""
    rows = []
    for size in sizes:
        for n_bits in widths:
            for kind in ("label sets", "random"):
                rows += measure(size, n_bits, kind)
                gc.collect()
    return rows


def main() -> None:
    """Print the table."""
    table = Table(title=f"HammingIndex against faiss IndexBinaryFlat, k = {K}")
    for name in ("items", "bits", "codes", "measure", "value", "unit", "peer", "ratio", "bar"):
        table.add_column(name, justify="left" if name in {"codes", "measure", "unit"} else "right")
    for row in run():
        table.add_row(
            f"{row['size']:,}",
            str(row["bits"]),
            row["codes"],
            row["measure"],
            f"{row['value']:,.1f}",
            row["unit"],
            *(f"{row[key]:,.2f}" if row.get(key) is not None else "" for key in ("peer", "ratio")),
            f"{row['bar']}" if row.get("bar") is not None else "",
        )
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
