"""MilvusIndex when its server fails: stand-ins that fail on purpose, and the real one, killed."""

from __future__ import annotations

import os
import signal
import threading

import milvus_engines
import numpy as np
import pytest
from collection_truth import assert_nothing_lost
from milvus_engines import N_BITS, stored
from milvus_server import free_ports

from oasis.codes import hamming
from oasis.errors import EngineError
from oasis.index.checks import random_codes
from oasis.scale.milvus import MilvusIndex, connection, engine, schema
from oasis.scale.milvus.address import Address

pytestmark = pytest.mark.scale
server = milvus_engines.server
faulty = milvus_engines.faulty


# -- faults, with a stand-in ---------------------------------------------------------------------


def add_one(ix):
    ix.add(np.zeros((1, 8), np.uint8), [1])


def test_faults_that_pass_are_waited_for(faulty):
    faulty.answers = [(8, "rate limit"), (101, "collection not loaded"), (65535, "node"), (0, "")]
    with MilvusIndex(faulty.uri, timeout=20) as ix:
        add_one(ix)
    assert faulty.asked == 4


def test_a_full_server_is_named_as_such(faulty):
    faulty.answers = [(9, "quota exceeded[reason=disk quota]")]
    message = r"127\.0\.0\.1:\d+ is full: quota exceeded.*disk"
    with (
        MilvusIndex(faulty.uri, timeout=0.5) as ix,
        pytest.raises(EngineError, match=message),
    ):
        add_one(ix)
    assert faulty.asked > 2


def test_what_cannot_pass_is_not_repeated(faulty):
    with MilvusIndex(faulty.uri, timeout=20) as ix:
        for answer, message in (
            ((1100, "bad"), "refused the request: bad"),
            ((100, "gone"), "has no collection 'x' any more"),
        ):
            faulty.answers = [answer]
            with pytest.raises(EngineError, match=message):
                add_one(ix)
    assert faulty.asked == 2


def test_an_absent_server_is_an_error_that_names_it():
    (port,) = free_ports(1)
    with pytest.raises(EngineError, match=rf"no Milvus answered at 127\.0\.0\.1:{port} for 0\.5 s"):
        MilvusIndex(f"milvus://127.0.0.1:{port}/x", timeout=0.5)


class Clock:
    """A clock that stands in for the module ``time``: it goes when somebody sleeps."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        for module in (connection, schema):
            monkeypatch.setattr(module, "time", self)

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Script:
    """Stands in for the stub of a connection: answers by name, each of which takes some seconds.

    An answer is a code of gRPC by name, or what `answers` gives for the message.
    """

    def __init__(self, clock, *, takes=0.0, **answers):
        self.clock, self.takes, self.answers = clock, takes, answers
        self.asked = []

    def __getattr__(self, method):
        def send(request, timeout, metadata):
            assert metadata == ()
            began = self.clock.now
            self.asked.append((method, began, timeout))
            self.clock.now += min(self.takes, timeout)
            answer = self.answers[method]
            answer = answer.pop(0) if isinstance(answer, list) and len(answer) > 1 else answer
            answer = answer[0] if isinstance(answer, list) else answer
            if self.takes > timeout:
                answer = "DEADLINE_EXCEEDED"
            if not isinstance(answer, str):
                return answer() if callable(answer) else answer
            wire = engine.protocol()

            class Failed(wire.grpc.RpcError):
                def code(self):
                    return wire.grpc.StatusCode[answer]

                def details(self):
                    return "as told"

            raise Failed

        return send


def scripted(clock, timeout, **answers):
    pytest.importorskip("pymilvus", reason="pip install 'oasis-hash[scale]'")
    link = connection.Connection(Address.parse("milvus://127.0.0.1:1/x", "x"), timeout)
    link._stub = Script(clock, **answers)
    return link, link._stub


def test_a_request_is_repeated_with_growing_pauses_until_the_timeout(monkeypatch):
    clock = Clock(monkeypatch)
    link, script = scripted(clock, 2.0, Query="UNAVAILABLE")
    with pytest.raises(EngineError, match="no Milvus answered"):
        link.call("Query", None)
    moments = [began - 1000 for _, began, _ in script.asked]
    np.testing.assert_allclose(moments, [0, 0.05, 0.15, 0.35, 0.75, 1.55])
    np.testing.assert_allclose([left for *_, left in script.asked], 2.0 - np.array(moments))
    assert clock.now <= 1002
    link.close()


def test_a_slow_answer_is_given_up_at_the_timeout(monkeypatch):
    clock = Clock(monkeypatch)
    link, script = scripted(clock, 2.0, takes=5.0, Query="UNAVAILABLE")
    with pytest.raises(EngineError, match="gave no answer within 2 s"):
        link.call("Query", None)
    assert script.asked == [("Query", 1000.0, 2.0)]
    assert clock.now == 1002
    link.close()


@pytest.mark.parametrize("code", ["UNAUTHENTICATED", "PERMISSION_DENIED", "INVALID_ARGUMENT"])
def test_what_the_transport_refuses_is_not_repeated(monkeypatch, code):
    link, script = scripted(Clock(monkeypatch), 10.0, Query=code)
    said = "INVALID_ARGUMENT" if code == "INVALID_ARGUMENT" else "did not accept the user and token"
    with pytest.raises(EngineError, match=said):
        link.call("Query", None)
    assert len(script.asked) == 1
    link.close()


def test_loading_again_has_the_time_that_is_left(monkeypatch):
    clock = Clock(monkeypatch)
    wire = engine.protocol()
    status = wire.common.Status(code=101, reason="collection not loaded")
    progress = wire.milvus.GetLoadingProgressResponse
    link, script = scripted(
        clock,
        3.0,
        Query=wire.milvus.QueryResults(status=status),
        LoadCollection=wire.common.Status(),
        GetLoadingProgress=progress(progress=40),
        takes=0.125,
    )
    held = schema.Schema(link, 64, copies=1, kind="BIN_FLAT", description="")
    with pytest.raises(EngineError, match=r"has loaded 40 % of 'x' in 2\.9 s"):
        link.call("Query", None, reload=held.load)
    assert clock.now <= 1003
    assert script.asked[:2] == [("Query", 1000.0, 3.0), ("LoadCollection", 1000.125, 2.875)]
    assert script.asked[-1][0] == "GetLoadingProgress"
    link.close()


def test_a_request_is_sent_once_more_after_loading(monkeypatch):
    clock = Clock(monkeypatch)
    wire = engine.protocol()
    status = wire.common.Status(code=101, reason="collection not loaded")
    link, script = scripted(
        clock,
        1.5,
        Query=[wire.milvus.QueryResults(status=status), wire.milvus.QueryResults()],
        LoadCollection=wire.common.Status(),
        GetLoadingProgress=wire.milvus.GetLoadingProgressResponse(progress=100),
        takes=0.49,
    )
    held = schema.Schema(link, 64, copies=1, kind="BIN_FLAT", description="")
    # loading is done 0.03 s before the end
    assert link.call("Query", None, reload=held.load) == wire.milvus.QueryResults()
    assert [method for method, *_ in script.asked] == [
        "Query",
        "LoadCollection",
        "GetLoadingProgress",
        "Query",
    ]
    assert script.asked[-1][2] == 1.0
    link.close()


def test_a_connection_closed_by_another_thread_says_so(monkeypatch):
    clock = Clock(monkeypatch)
    link, script = scripted(clock, 10.0, Query="UNAVAILABLE")

    def sleep(seconds):
        clock.now += seconds
        link.close()

    monkeypatch.setattr(clock, "sleep", sleep)
    with pytest.raises(EngineError, match="is closed; open another"):
        link.call("Query", None)
    assert len(script.asked) == 1

    def closed_meanwhile():
        link.close()
        raise ValueError("Cannot invoke RPC on closed channel!")

    for answer, error in ((closed_meanwhile, EngineError), (lambda: int("x"), ValueError)):
        link, script = scripted(clock, 10.0, Query=answer)
        with pytest.raises(error, match="is closed; open another" if error is EngineError else "x"):
            link.call("Query", None)
        link.close()


# -- faults, with the real server ----------------------------------------------------------------


def test_a_slow_server_is_an_error_that_names_the_timeout(server, milvus_server):
    server()
    with MilvusIndex(server.uri, name="w64", timeout=2) as ix:
        ix.add(np.zeros((3, 8), np.uint8), [1, 2, 3])
        os.kill(milvus_server.pid, signal.SIGSTOP)
        try:
            with pytest.raises(EngineError, match="gave no answer within 2 s"):
                ix.search(np.zeros((1, 8), np.uint8), 1)
        finally:
            os.kill(milvus_server.pid, signal.SIGCONT)
        assert len(ix) == 3


def killed_while_ingesting(milvus_server, name, kills, seed):
    """Ingest chunks while the server is killed at random moments, and compare after each kill.

    A chunk that was not acknowledged is sent again; all that was acknowledged must be there.
    """
    rng = np.random.default_rng(seed)
    uri = f"{milvus_server.uri}/{name}"
    ix = MilvusIndex(uri, timeout=60)
    # gives up soon, as the server does not come back by itself
    hasty = MilvusIndex(uri, timeout=1)
    truth = {}
    for _ in range(kills):
        killer = threading.Timer(float(rng.random()), milvus_server.kill)
        killer.start()
        alive = True
        while alive:
            codes = random_codes(rng, 400, N_BITS)
            # some new, some to be replaced: what was acknowledged last counts
            ids = rng.permutation(len(truth) + 400)[:400]
            try:
                hasty.add(codes, ids)
            except EngineError:
                alive = False
                killer.join()
                milvus_server.start()
                ix.add(codes, ids)
            truth.update(zip(ids.tolist(), map(bytes, codes), strict=True))
        there = stored(ix)
        assert_nothing_lost(truth, there)
        assert len(ix) == len(truth)
        assert there == truth
    query = random_codes(rng, 1, N_BITS)
    found = ix.search(query, 50)
    keys = np.array(list(truth))
    codes = np.frombuffer(b"".join(truth.values()), np.uint8).reshape(-1, 8)
    distances = hamming(query, codes)[0]
    assert found.distances[0].tolist() == np.sort(distances)[:50].tolist()
    at = dict(zip(keys.tolist(), distances.tolist(), strict=True))
    assert [at[i] for i in found.ids[0].tolist()] == found.distances[0].tolist()
    ix.close()
    hasty.close()
    return len(truth)


def test_a_server_killed_while_ingesting_loses_nothing(milvus_server):
    killed_while_ingesting(milvus_server, "killed", kills=2, seed=0)


def test_a_search_survives_a_restart(milvus_server):
    codes = random_codes(np.random.default_rng(6), 500, N_BITS)
    uri = f"{milvus_server.uri}/lost"
    with MilvusIndex(uri, timeout=60) as ix, MilvusIndex(uri, timeout=1) as hasty:
        ix.add(codes, np.arange(500))
        before = ix.search(codes[:5], 3)
        milvus_server.kill()
        with pytest.raises(EngineError, match="no Milvus answered"):
            hasty.search(codes[:5], 3)
        # the search begins while the server is coming up
        starting = threading.Thread(target=milvus_server.start)
        starting.start()
        after = ix.search(codes[:5], 3)
        starting.join()
        assert after.distances.tolist() == before.distances.tolist()
        assert len(ix) == 500
