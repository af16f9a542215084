"""The service over a collection whose codes are in Milvus: answers as ever, and failures told."""

import asyncio
import contextlib
import json
import socket
import threading

import pytest
from service_data import extractor, fill, item, vectors
from serving import asgi, asgi_async

from oasis.collection import Collection, milvus, replica
from oasis.collection.milvus import MilvusReplica
from oasis.errors import EngineError
from oasis.scale.milvus import MilvusIndex
from oasis.service import create_app, work

pytestmark = pytest.mark.scale

N = 12
SEARCHES = [
    {"like": "item/1"},
    {"words": ["cat"]},
    {"vectors": {"image": [[0.5] * 900]}, "k": 3},
    {"items": [{"text": "anchor"}]},
    {"like": "item/1", "where": {"year": {"gte": 2003}}},
]
PROBLEM = {"type": "urn:oasis:problem:engine", "status": 503}


@pytest.fixture(autouse=True)
def engines():
    """What both engines need."""
    pytest.importorskip("pymilvus", reason="pymilvus is not installed")
    pytest.importorskip("milvus_lite", reason="milvus-lite is not installed")


@pytest.fixture(params=["closed", "silent"])
def nowhere(request):
    """The address of a server that is not there, or takes connections and says nothing."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        if request.param == "silent":
            probe.listen()
        yield f"milvus://127.0.0.1:{probe.getsockname()[1]}/photos"


@contextlib.contextmanager
def served(path, **options):
    """An open collection with the application that serves it."""
    with Collection.open(path, extractor=extractor(), **options) as c:
        app = create_app(c)
        try:
            yield c, app
        finally:
            app.state.service.close()


def found(app, asked):
    status, _, answer = asgi(app, "POST", "/v1/search", asked)
    assert status == 200, answer
    return [
        sorted((-hit["score"], str(hit["id"]), hit["distance"]) for hit in hits)
        for hits in answer["results"]
    ]


def test_a_collection_in_milvus_is_served_as_any(folder, monkeypatch):
    path, where = fill(folder / "c", N), str(folder / "codes.db")
    everything = [{**asked, "k": N} for asked in SEARCHES]
    with served(path) as (_, app):
        expected = [found(app, asked) for asked in everything]
    asked_in, index = [], MilvusReplica.index.fget

    def noted(home):
        asked_in.append(threading.current_thread())
        return index(home)

    with served(path, index=where) as (c, app):
        monkeypatch.setattr(MilvusReplica, "index", property(noted))
        for asked, hits in zip(everything, expected, strict=True):
            for ours, theirs in zip(found(app, asked), hits, strict=True):
                assert [each[1:] for each in ours] == [each[1:] for each in theirs]
                assert [each[0] for each in ours] == pytest.approx([each[0] for each in theirs])
        assert asgi(app, "GET", "/health/ready")[::2] == (200, {"status": "ready"})
        _, _, stats = asgi(app, "GET", "/v1/stats")
        assert stats["index"] == "milvus" and where not in json.dumps(stats)
        assert asked_in and threading.current_thread() not in asked_in
        X, y = vectors(2)
        body = {
            "vectors": {name: matrix.tolist() for name, matrix in X.items()},
            "labels": y,
            "ids": ["new 0", "new 1"],
        }
        assert asgi(app, "POST", "/v1/ingest", body)[2]["n_items"] == N + 2
        asked = {"vectors": {name: rows[:1] for name, rows in body["vectors"].items()}, "k": N + 2}
        assert {"new 0", "new 1"} < {each[1] for each in found(app, asked)[0]}
        assert asgi(app, "POST", "/v1/delete", {"ids": ["new 0"]})[2] == {"n": 1}
        assert "new 0" not in {each[1] for each in found(app, asked)[0]}
        assert threading.current_thread() not in asked_in
        assert asgi(app, "POST", "/v1/check")[2] == {"findings": []}
        assert len(c) == N + 1


def test_a_failure_of_milvus_is_told_without_its_address(folder, monkeypatch, caplog):
    path, where = fill(folder / "c", N), str(folder / "codes.db")

    def fails(*_):
        raise EngineError(f"Milvus at {where} failed: ABORTED, ipv4:10.0.0.7")

    with served(path, index=where) as (c, app):
        for name in ("search", "search_asymmetric", "add", "__len__"):
            monkeypatch.setattr(MilvusIndex, name, fails)
        new = {key: value for key, value in item(N).items() if key != "image"}
        for method, url, body in (
            ("POST", "/v1/search", {"like": "item/1"}),
            ("POST", "/v1/search", {"words": ["cat"], "mode": "hamming"}),
            ("POST", "/v1/ingest", {"items": [new]}),
            ("GET", "/health/ready", None),
        ):
            caplog.clear()
            _, _, told = asgi(app, method, url, body)
            assert PROBLEM.items() <= told.items()
            assert not any(each in json.dumps(told) for each in (where, "10.0.0.7", "ABORTED"))
            assert where in caplog.text and "10.0.0.7" in caplog.text
        assert asgi(app, "GET", "/v1/stats")[2]["n_items"] == N
        monkeypatch.undo()
        assert asgi(app, "GET", "/health/ready")[0] == 200
        c.index.remove([1])
        caplog.clear()
        status, _, told = asgi(app, "POST", "/v1/search", {"words": ["cat"], "k": N})
        assert status == 503 and "log of the service" in told["detail"]
        assert "lacks 1 items" in caplog.text and where not in told["detail"]


def absent(folder, monkeypatch, nowhere):
    """Return the path of a collection whose codes were at an address where nobody is any more."""
    path = fill(folder / "c", N)
    with monkeypatch.context() as patch:
        patch.setattr(replica, "_fill", lambda *_: None)
        patch.setattr(milvus, "MilvusIndex", impatient)
        with pytest.raises(EngineError):
            Collection.open(path, index=nowhere)
    return path


def impatient(*given, **options):
    return MilvusIndex(*given, **{**options, "timeout": 0.3})


def test_while_milvus_is_away_all_else_is_answered(folder, monkeypatch, nowhere, caplog):
    path = absent(folder, monkeypatch, nowhere)
    entered, answered, threads = threading.Event(), threading.Event(), []

    def held(*given, **options):
        """Connect when all else was answered; a loop that waits for it would never get there."""
        threads.append(threading.current_thread())
        entered.set()
        answered.wait(20)
        return impatient(*given, **options)

    monkeypatch.setattr(milvus, "MilvusIndex", held)
    port = nowhere.split(":")[-1].split("/")[0]

    async def ask(app, method, url, body=None):
        """Ask one thing, and others while it waits for Milvus."""
        entered.clear()
        answered.clear()
        waiting = asyncio.create_task(asgi_async(app, method, url, body))
        while not entered.is_set() and not waiting.done():
            await asyncio.sleep(0.001)
        beside = [
            (await asgi_async(app, "GET", each))[0]
            for each in ("/health/live", "/v1/stats", "/v1/item?id=item/1")
        ]
        on_time = not waiting.done()
        answered.set()
        return await waiting, beside, on_time

    questions = [("POST", "/v1/search", asked) for asked in SEARCHES]
    for question in [*questions, ("GET", "/health/ready")]:
        caplog.clear()
        with served(path, readonly=True) as (_, app):
            (status, _, told), beside, on_time = asyncio.run(ask(app, *question))
            assert status == 503 and PROBLEM.items() <= told.items()
            assert port not in told["detail"] and port in caplog.text
            assert on_time and beside == [200, 200, 200]
            assert asgi(app, "GET", "/v1/stats")[2]["index"] == "milvus"
    assert len(threads) > len(SEARCHES) and threading.current_thread() not in threads


def test_readiness_does_not_wait_for_milvus(folder, monkeypatch):
    path = fill(folder / "c", N)
    release, asked = threading.Event(), []

    def slow(index):
        asked.append(index)
        release.wait(20)
        return N

    with served(path, index=str(folder / "codes.db")) as (_, app), monkeypatch.context() as patch:
        patch.setattr(MilvusIndex, "__len__", slow)
        patch.setattr(work, "PROBE_SECONDS", 0.05)
        for _ in range(3):
            status, heads, told = asgi(app, "GET", "/health/ready")
            assert status == 503 and heads["retry-after"] and "in time" in told["detail"]
        # one at a time, and searches do not wait for it
        assert len(asked) == 1
        assert len(found(app, {"like": "item/1", "k": 3})[0]) == 3
        release.set()
        patch.setattr(work, "PROBE_SECONDS", 20)
        assert asgi(app, "GET", "/health/ready")[0] == 200
