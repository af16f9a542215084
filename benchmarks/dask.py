"""A round on a Dask cluster against the same round in one process.

50,000 samples of 4096 dense float32 features on two workers of one thread each, in blocks that
the workers read from files; in one process the same features are in memory and two threads work
on them. ``OASIS_DASK_BENCH=10000x2048`` measures another size.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import Row, row, seconds
from oasis.model import OASIS
from oasis.model.base import Model
from oasis.scale.dask import encode, partial_fit

N_CLASSES, N_BITS, N_BLOCKS, N_WORKERS = 24, 64, 8, 2


def run() -> list[Row]:
    """Return one row for each measurement."""
    import dask
    import distributed

    n, d = (int(part) for part in os.environ.get("OASIS_DASK_BENCH", "50000x4096").split("x"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sizes, labels = _write(folder, n, d)
        blocks = [dask.delayed(_read)(folder / f"{number}.npy") for number in range(N_BLOCKS)]
        rows: list[Row] = []
        with (
            distributed.LocalCluster(
                n_workers=N_WORKERS,
                threads_per_worker=1,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                memory_limit=0,
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            idle = max(client.run(_peak_bytes).values())
            for kind in ("OASIS()", "OASIS.paper()"):
                rows += _rounds(kind, blocks, sizes, labels, folder, f"{n:,} x {d:,}")
            peak = max(client.run(_peak_bytes).values()) - idle
            first = _read(folder / "0.npy")
            model = _model("OASIS()").partial_fit(first, labels[: sizes[0]])
            here = seconds(
                lambda: [model.encode(_read(folder / f"{i}.npy")) for i in range(N_BLOCKS)]
            )
            there = seconds(lambda: encode(model, blocks, folder / "codes"))
        block = max(sizes) * d * 4
        note = f"of a block of {block / 1e6:.0f} MB; a d x d sum has {d * d * 8 / 1e6:.0f} MB"
        rows.append(
            row("peak memory of a worker beyond its start", peak / 1e6, peak / block, note, "MB")
        )
        rows.append(row(f"encode {n:,} x {d:,} to Parquet", there, there / here, "of one process"))
    return rows


def _rounds(
    kind: str, blocks: list[Any], sizes: list[int], labels: list[list[str]], folder: Path, size: str
) -> list[Row]:
    X = {"image": np.concatenate([_read(folder / f"{i}.npy")["image"] for i in range(N_BLOCKS)])}
    here, there = _model(kind), _model(kind)
    alone, spread = [], []
    for _ in range(2):  # the second round adds to sums, the first does not
        alone.append(seconds(lambda: here.partial_fit(X, labels)))
        spread.append(seconds(lambda: partial_fit(there, blocks, labels, sizes=sizes)))
    different = int(np.bitwise_count(here.codes_ ^ there.codes_).sum())
    return [
        row(f"round of {size} in one process, {kind}", min(alone), 1.0, "two threads"),
        row(
            f"round of {size} on {N_WORKERS} workers, {kind}",
            min(spread),
            min(spread) / min(alone),
            f"{different} of {here.codes_.size * 8:,} bits differ",
            goal="<= 1.2",
        ),
    ]


def _model(kind: str) -> Model[Any]:
    make = OASIS if kind == "OASIS()" else OASIS.paper
    return make(N_BITS, labels="orthogonal", random_state=0)


def _write(folder: Path, n: int, d: int) -> tuple[list[int], list[list[str]]]:
    """Write blocks of features that depend on the labels, rows about 1 long."""
    rng = np.random.default_rng(0)
    frequencies = np.geomspace(0.4, 0.03, N_CLASSES)
    means = rng.standard_normal((N_CLASSES, d), dtype=np.float32)
    sizes, labels = [], []
    for number, rows in enumerate(np.array_split(np.arange(n), N_BLOCKS)):
        has = rng.random((len(rows), N_CLASSES)) < frequencies
        has[np.arange(len(rows)), rng.integers(0, N_CLASSES, len(rows))] = True
        image = has.astype(np.float32) @ means
        image += rng.standard_normal((len(rows), d), dtype=np.float32)
        np.maximum(image, 0, out=image)
        image /= np.linalg.norm(image, axis=1).mean()
        np.save(folder / f"{number}.npy", image)
        sizes.append(len(rows))
        labels += [[f"class {j}" for j in np.flatnonzero(flags)] for flags in has]
    return sizes, labels


def _read(path: Path) -> dict[str, Any]:
    return {"image": np.load(path)}


def _peak_bytes() -> int:
    """Return the largest memory that this process ever held, the package itself included."""
    import oasis.scale.dask  # noqa: F401

    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
