"""One engine with one set of vectors, in a process of its own; prints what was measured as JSON.

``python peer_engines.py ENGINE vectors.npz``, run by `benchmarks.peers` with the Python of the
environment that has the engine. So it imports nothing but NumPy and the engine.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

K = 10
CHUNK = 2_000

Store = tuple[Callable[[int, Any], None], Callable[[Any], list[int]]]
"""What adds a chunk of vectors from some id on, and what answers one query."""


def oasis(folder: Path, width: int, labels: Any) -> Store:
    from oasis import Collection

    c = Collection.open(folder / "c.oasis")

    def add(first: int, chunk: Any) -> None:
        ids = list(range(first, first + len(chunk)))
        names = [[str(each) for each in np.flatnonzero(labels[row])] for row in ids]
        c.ingest({"vector": chunk}, names, ids=ids)

    return add, lambda query: [int(hit.id) for hit in c.search({"vector": query[None]}, k=K)[0]]


def chroma(folder: Path, width: int, labels: Any) -> Store:
    import chromadb

    client = chromadb.PersistentClient(str(folder))
    store = client.create_collection("vectors", metadata={"hnsw:space": "cosine"})

    def add(first: int, chunk: Any) -> None:
        store.add(ids=[str(first + i) for i in range(len(chunk))], embeddings=chunk)

    return add, lambda query: [
        int(each) for each in store.query(query_embeddings=query[None], n_results=K)["ids"][0]
    ]


def lancedb(folder: Path, width: int, labels: Any) -> Store:
    import lancedb as engine

    db = engine.connect(folder)
    tables: list[Any] = []

    def add(first: int, chunk: Any) -> None:
        rows = [{"id": first + i, "vector": row} for i, row in enumerate(chunk)]
        if tables:
            tables[0].add(rows)
        else:
            tables.append(db.create_table("vectors", rows))

    def ask(query: Any) -> list[int]:
        found = tables[0].search(query).distance_type("cosine").limit(K).select(["id"])
        return [int(each["id"]) for each in found.to_list()]

    return add, ask


def qdrant(folder: Path, width: int, labels: Any) -> Store:
    from qdrant_client import QdrantClient, models

    client = QdrantClient(path=str(folder))
    client.create_collection(
        "vectors", vectors_config=models.VectorParams(size=width, distance=models.Distance.COSINE)
    )

    def add(first: int, chunk: Any) -> None:
        ids = list(range(first, first + len(chunk)))
        client.upload_collection("vectors", vectors=chunk, ids=ids)

    return add, lambda query: [
        int(each.id) for each in client.query_points("vectors", query.tolist(), limit=K).points
    ]


ENGINES = {"oasis": oasis, "chroma": chroma, "lancedb": lancedb, "qdrant": qdrant}


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def main(name: str, path: str) -> None:
    with np.load(path) as data:
        stored, asked, labels = data["stored"], data["asked"], data["labels"]
    with tempfile.TemporaryDirectory() as folder:
        before = resident_mb()
        add, ask = ENGINES[name](Path(folder), stored.shape[1], labels)
        start = time.perf_counter()
        for first in range(0, len(stored), CHUNK):
            add(first, stored[first : first + CHUNK])
        seconds = time.perf_counter() - start
        ask(asked[0])
        best = np.full(len(asked), np.inf)
        hits: list[list[int]] = []
        for _ in range(3):
            hits = []
            for i, query in enumerate(asked):
                begin = time.perf_counter()
                hits.append(ask(query))
                best[i] = min(best[i], time.perf_counter() - begin)
        files = [each for each in Path(folder).rglob("*") if each.is_file()]
        told = {
            "ingest, s": seconds,
            "query p50, ms": 1e3 * float(np.median(best)),
            "disk, MB": sum(each.stat().st_size for each in files) / 1e6,
            "memory, MB": resident_mb() - before,
            "hits": hits,
        }
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
