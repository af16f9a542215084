"""Collections whose codes are in Milvus, beside the truth."""

import itertools
import os

import pytest
from collection_truth import (
    Truth,
    assert_hits,
    assert_same_model,
    assert_scores,
    contents,
    toy_model,
)
from collection_writer import apply
from toy import chunk

from oasis.collection import Collection
from oasis.collection import writing as writer
from oasis.errors import EngineError

NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def small_limits(monkeypatch):
    """Checkpoints and whole models come often."""
    monkeypatch.setattr(writer, "INDEX_ROWS", 20)
    monkeypatch.setattr(writer, "JOURNAL_ENTRIES", 4)


@pytest.fixture
def lite(folder):
    """A function that returns paths of milvus-lite files that are not there yet."""
    pytest.importorskip("pymilvus", reason="pymilvus is not installed")
    pytest.importorskip("milvus_lite", reason="milvus-lite is not installed")
    return lambda: str(folder / f"codes{next(NUMBERS)}.db")


@pytest.fixture
def remote(milvus_server):
    """A function that returns addresses of Milvus collections that are not there yet."""
    return lambda: f"{milvus_server.uri}/collection_{os.getpid()}_{next(NUMBERS)}"


@pytest.fixture(params=["lite", "remote"])
def address(request):
    """A function that returns unused addresses, of each engine."""
    return request.getfixturevalue(request.param)


def make(folder, address, steps=10):
    """Return a collection in Milvus beside the truth, after some steps."""
    truth = Truth()
    c = Collection.open(folder / f"c{next(NUMBERS)}", model=toy_model(), index=address)
    for number in range(steps):
        apply(c, number)
        apply(truth, number)
    return c, truth


def held(c):
    """Return what Milvus has: code by key."""
    codes, keys = c.index.items()
    found = dict(zip(keys.tolist(), (code.tobytes() for code in codes), strict=True))
    assert len(found) == len(keys) == len(c.index)
    return found


def stored(c):
    with c._catalog.reading() as connection:
        return dict(connection.execute("SELECT key, code FROM items"))


def assert_is(c, truth):
    """Both sides hold exactly what the truth does, and a search finds it."""
    assert contents(c) == truth.items
    assert held(c) == stored(c)
    assert c.check() == []
    assert_same_model(c.model, truth.model)
    assert_found(c, truth)


def assert_found(c, truth):
    """Every item is found, once, where it belongs."""
    X, _ = chunk(2, seed=1234)
    projections = truth.model.project(X)
    for mode in ("hamming", "asymmetric"):
        everything = truth.search(projections, len(truth.items) + 5, mode)
        assert_hits(c.search(X, len(truth.items) + 5, mode, fuse=False), everything)
    for hits, expected in zip(c.search(X, 7, mode, fuse=False), everything, strict=True):
        assert_best(hits, expected, 7)


def assert_best(hits, expected, k):
    """The k best of (id, score, distance); any of those that are tied at the end."""
    scores = {each[0]: each[1] for each in expected}
    assert len({hit.id for hit in hits}) == len(hits) == min(k, len(expected))
    assert_scores([hit.score for hit in hits], [each[1] for each in expected[:k]])
    assert_scores([hit.score for hit in hits], [scores[hit.id] for hit in hits])


def abandon(c):
    """Let go of a collection as the death of its process would."""
    c._snapshot.replica.close()
    c._catalog.close()
    c._lock.release()


def failing(method, *, after=0, sends=0.0):
    """Return a method that raises after so many calls, when it has sent a part of its items."""
    calls = itertools.count()

    def fails(index, first, *arguments):
        if next(calls) < after:
            return method(index, first, *arguments)
        if sends:
            n = max(1, int(sends * len(first)))
            method(index, first[:n], *(each[:n] for each in arguments))
        raise EngineError("Milvus is away")

    return fails
