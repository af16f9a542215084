"""Milvus: `MilvusIndex` against a plain pymilvus script that does the same, on one server.

Both write the same codes into a collection of their own in the same batches, then search it for the
same queries; they take turns, batch by batch and search by search, so that they share what else
goes on in the machine. The script is the shortest one that its documentation suggests: rows as
dicts, ``insert``, ``search``. Recall of asymmetric search is measured against `HammingIndex`.

Run it with ``python -m benchmarks milvus`` (some minutes, about 4 GB); it starts the server itself.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from pymilvus import DataType, MilvusClient

from benchmarks.search import label_set_stream, near, set_codes
from benchmarks.stream_codes import stream_codes
from benchmarks.timing import Row, best_of, row, seconds
from oasis.codes import Codes, unpack
from oasis.errors import DataError
from oasis.index import HammingIndex
from oasis.scale.milvus import MilvusIndex
from tests.helpers.milvus_server import running

SIZE = 1_000_000
RECALL_SIZE = 200_000
N_BITS = 64
BATCH = 20_000
CHUNK = 100_000
BAR = 0.8
SEED = 20261


def plain_collection(client: MilvusClient, name: str) -> None:
    """Make a collection as the documentation of pymilvus does."""
    schema = client.create_schema(auto_id=False)
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("code", DataType.BINARY_VECTOR, dim=N_BITS)
    params = client.prepare_index_params()
    params.add_index("code", index_type="BIN_FLAT", metric_type="HAMMING")
    client.create_collection(name, schema=schema, index_params=params, consistency_level="Strong")


def plain_write(client: MilvusClient, name: str, codes: Codes, start: int) -> None:
    """Insert codes with successive ids, in batches of rows."""
    for first in range(0, len(codes), BATCH):
        part = codes[first : first + BATCH]
        rows = [{"id": start + first + i, "code": code.tobytes()} for i, code in enumerate(part)]
        client.insert(name, rows)


def settle(client: MilvusClient, names: list[str]) -> None:
    """Have the server write everything to its storage and index it, so that it is at rest."""
    for name in names:
        client.flush(name)
        client.refresh_load(name)
    time.sleep(10)


def written(client: MilvusClient, index: MilvusIndex, name: str, codes: Codes) -> list[Row]:
    """Write all codes through both, in turns."""
    ours = theirs = 0.0
    for start in range(0, len(codes), CHUNK):
        part = codes[start : start + CHUNK]
        ids = np.arange(start, start + len(part))
        theirs += seconds(partial(plain_write, client, name, part, start))
        ours += seconds(partial(index.add, part, ids))
    if len(index) != len(codes):
        raise RuntimeError(f"the index holds {len(index)} of {len(codes)} items")
    what = f"insert {len(codes):,} codes of {N_BITS} bits"
    return [_row(what, len(codes), ours, theirs, "items/s")]


def searched(
    client: MilvusClient, index: MilvusIndex, name: str, queries: Codes, size: int
) -> list[Row]:
    """Search for the same queries through both, in turns."""
    rows = []
    for batch, k, repeats in ((1, 10, 30), (100, 10, 30), (100, 100, 30)):
        part = queries[:batch]
        values = [code.tobytes() for code in part]
        times = best_of(
            repeats,
            {
                "ours": partial(index.search, part, k),
                "theirs": partial(client.search, name, values, limit=k),
            },
        )
        what = f"search, batch {batch}, k {k}, {size:,} codes"
        rows.append(_row(what, batch, times["ours"], times["theirs"], "queries/s"))
    return rows


def recalls(uri: str, size: int) -> list[Row]:
    """Measure which share of the exact asymmetric answer comes back, for three kinds of codes."""
    rows = []
    for kind in ("label sets", "random"):
        rng = np.random.default_rng([SEED, size])
        codes = rng.integers(0, 256, (size, N_BITS // 8), dtype=np.uint8)
        if kind == "label sets":
            numbers = label_set_stream(size, rng)
            codes = set_codes(int(numbers.max()) + 1, N_BITS, rng)[numbers]
        queries = near(codes[rng.integers(0, size, 100)], rng)
        values = unpack(queries) * np.abs(rng.standard_normal((100, N_BITS)))
        exact = HammingIndex(N_BITS)
        exact.add(codes, np.arange(size))
        name = f"recall_{kind.split()[0]}"
        with MilvusIndex(f"{uri}/{name}", N_BITS, timeout=120) as index:
            index.add(codes, np.arange(size))
            for k in (10, 100):
                share = _recall(exact, index, values, k)
                what = f"asymmetric recall at {k}, {size:,} {kind}"
                rows.append(row(what, share, unit="of the exact answer"))
    return rows


def stream_recalls(
    client: MilvusClient, uri: str, size: int, copies: tuple[int, ...] = (1, 2, 4, 8)
) -> list[Row]:
    """Measure recall and speed on codes of a real stream, by copies and candidates."""
    try:
        codes, n_label_bits, queries = stream_codes(size)
    except DataError as error:
        return [row("recall on a real stream, not measured", 0.0, None, str(error), "codes")]
    n_bits = 8 * codes.shape[1]
    exact = HammingIndex(n_bits, n_label_bits)
    exact.add(codes, np.arange(size))
    rows = []
    for number in copies:
        name = f"stream_{size}_{number}"
        with MilvusIndex(f"{uri}/{name}", n_bits, copies=number, timeout=120) as index:
            taken = seconds(partial(index.add, codes, np.arange(size)))
            what = f"{size:,} of a stream, {number} copies"
            rows.append(row(f"insert {what}", size / taken, unit="items/s"))
            settle(client, [name])
        weights = (None, 0.03, 0.2, 1.0) if number in (1, 4) else (None,)
        for weight in weights:
            values = queries[weight][:100]
            told = "default content weight" if weight is None else f"content weight {weight:g}"
            for oversample in (50, 100, 200, 500, 1638) if weight is None else (200,):
                with MilvusIndex(
                    f"{uri}/{name}", n_bits, timeout=120, oversample=oversample
                ) as index:
                    share = _recall(exact, index, values, 10)
                    taken = min(
                        seconds(partial(index.search_asymmetric, values, 10)) for _ in range(3)
                    )
                named = f"recall at 10, {10 * oversample:,} candidates, {told}, {what}"
                note = f"{100 / taken:.3g} queries/s in a batch of 100"
                rows.append(row(named, share, None, note, "of the exact answer"))
        client.drop_collection(name)
    return rows


def _recall(exact: HammingIndex, index: MilvusIndex, values: npt.NDArray[Any], k: int) -> float:
    best = exact.search_asymmetric(values, k).scores
    got = index.search_asymmetric(values, k).scores
    # by score: which of the items of one code come back is nobody's loss
    return float((got >= best[:, -1:]).mean())


def run(size: int = SIZE, recall_size: int = RECALL_SIZE) -> list[Row]:
    """Return one row for each measurement; ratios are to the plain script."""
    rng = np.random.default_rng([SEED, size])
    codes = rng.integers(0, 256, (size, N_BITS // 8), dtype=np.uint8)
    queries = near(codes[rng.integers(0, size, 100)], rng)
    with running() as server:
        client = MilvusClient(uri=f"http://{server.address}")
        plain_collection(client, "plain")
        with MilvusIndex(f"{server.uri}/ours", N_BITS, copies=1, timeout=120) as index:
            rows = written(client, index, "plain", codes)
            settle(client, ["plain", "ours"])
            rows += searched(client, index, "plain", queries, size)
        rows += recalls(server.uri, recall_size)
        rows += stream_recalls(client, server.uri, recall_size)
        client.close()
    return rows


def _row(name: str, n: int, ours: float, theirs: float, unit: str) -> Row:
    note = f"{n / theirs:.4g} {unit} by the plain script, bar {BAR:g}"
    return row(name, n / ours, theirs / ours, note, unit)


def main(argv: list[str]) -> None:
    """Run at another size, for a look: ``python -m benchmarks.milvus 50000``."""
    size = int(argv[0])
    for each in run(size, min(size, RECALL_SIZE)):
        print(each)


if __name__ == "__main__":
    main(sys.argv[1:])
