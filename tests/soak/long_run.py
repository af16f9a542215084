"""A day of ingest and search in less time: memory, files and file descriptors stay flat."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from collection_truth import assert_nothing_lost
from service_data import fill, vectors
from serving import serving

from oasis.client import Client

KEPT = 60
"""Chunks that are kept; older ones are deleted."""
CHUNK = 20
SAMPLES = 40
GROWTH = 1.1
SLACK = 16 << 20


def levels(server):
    """Return resident bytes, open file descriptors and files of the collection."""
    descriptors = len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))
    return server.resident(), descriptors, len(list(server.path.iterdir()))


def day(trials):
    """Ingest, delete and search through the service; compare the last quarter with the second."""
    samples, kept, number = [], [], 0
    with serving(fill(trials.place())) as server, Client(server.url, timeout=120) as client:
        while trials.go_on() or number < 2 * KEPT:
            with trials.judged():
                trials.number()
                ids = [f"{number}/{row}" for row in range(CHUNK)]
                X, y = vectors(CHUNK, seed=number)
                client.ingest(X, y, ids)
                kept.append(ids)
                number += 1
                trials.count(acknowledged=1)
                assert client.more_like(ids[0], 3)
                assert len(client.search({name: x[:2] for name, x in X.items()}, 5)[0]) == 5
                if len(kept) > KEPT:
                    client.delete(kept.pop(0))
                if number % 50 == 0:
                    everything = [each for ids in kept for each in ids]
                    assert_nothing_lost(everything, client.known(everything))
                full = len(kept) == KEPT
                if full and trials.passed() > len(samples) * trials.seconds / SAMPLES:
                    samples.append(levels(server))
        with trials.judged():
            assert client.check() == []
            assert_flat(samples)


def assert_flat(samples):
    quarter = max(1, len(samples) // 4)
    early, late = samples[quarter : 2 * quarter] or samples, samples[-quarter:]
    for what, column, slack in (("bytes", 0, SLACK), ("descriptors", 1, 4), ("files", 2, 4)):
        before, after = (median(each[column] for each in part) for part in (early, late))
        assert after <= GROWTH * before + slack, f"{what} grew from {before} to {after}"
