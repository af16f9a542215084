"""MilvusIndex when its server fails: a stand-in that fails on purpose, and the real one, killed."""

from __future__ import annotations

import os
import signal
import threading
import time

import milvus_engines
import numpy as np
import pytest
from collection_truth import assert_nothing_lost
from milvus_engines import N_BITS, stored
from milvus_server import free_ports

from oasis.codes import hamming
from oasis.errors import EngineError
from oasis.index.checks import random_codes
from oasis.scale.milvus import MilvusIndex

pytestmark = pytest.mark.scale
server = milvus_engines.server
faulty = milvus_engines.faulty
PLACE = "milvus://127.0.0.1:1/x"


# -- faults, with a stand-in ---------------------------------------------------------------------


def add_one(ix):
    ix.add(np.zeros((1, 8), np.uint8), [1])


def test_faults_that_pass_are_waited_for(faulty):
    faulty.answers = ["UNAVAILABLE", (3, "out of memory"), (65535, "node"), (0, "")]
    with MilvusIndex(PLACE, timeout=20) as ix:
        faulty.asked.clear()
        add_one(ix)
    times = [left for _, left in faulty.asked]
    assert len(times) == 4
    # the time that is left, less pauses of 0.05, 0.1 and 0.2 s
    assert times == sorted(times, reverse=True) and 0 < times[-1] <= 20 - 0.35


def test_a_collection_that_is_not_loaded_is_loaded_in_the_time_that_is_left(faulty):
    faulty.answers = [(101, "collection not loaded"), (65535, "x is not loaded"), (0, "")]
    with MilvusIndex(PLACE, timeout=5) as ix:
        faulty.asked.clear()
        add_one(ix)
    assert [method for method, _ in faulty.asked] == ["upsert", "load", "upsert", "load", "upsert"]
    assert all(left <= 5 for _, left in faulty.asked)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((9, "quota exceeded[reason=disk quota]"), "127.0.0.1:1 is full: quota exceeded.*disk"),
        ("UNAVAILABLE", "no Milvus answered at 127.0.0.1:1 for 0.5 s .as told.; start the server"),
        ("DEADLINE_EXCEEDED", "gave no answer within 0.5 s"),
    ],
)
def test_a_fault_that_stays_is_an_error_in_the_end(faulty, answer, message):
    faulty.answers = [answer]
    began = time.monotonic()
    with MilvusIndex(PLACE, timeout=0.5) as ix, pytest.raises(EngineError, match=message):
        add_one(ix)
    assert len(faulty.asked) > 3
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((1100, "bad"), "refused the request: bad"),
        ((100, "gone"), "has no collection 'x' any more"),
        ("UNAUTHENTICATED", "did not accept the user and token"),
        ("PERMISSION_DENIED", "did not accept the user and token"),
        ("INVALID_ARGUMENT", "INVALID_ARGUMENT"),
    ],
)
def test_what_cannot_pass_is_not_repeated(faulty, answer, message):
    faulty.answers = [answer]
    with MilvusIndex(PLACE, timeout=20) as ix:
        faulty.asked.clear()
        with pytest.raises(EngineError, match=message):
            add_one(ix)
    assert len(faulty.asked) == 1


def test_an_absent_server_is_an_error_that_names_it():
    (port,) = free_ports(1)
    with pytest.raises(EngineError, match=rf"no Milvus answered at 127\.0\.0\.1:{port} for 0\.5 s"):
        MilvusIndex(f"milvus://127.0.0.1:{port}/x", timeout=0.5)


def test_a_connection_closed_by_another_thread_says_so(faulty):
    ix = MilvusIndex(PLACE, timeout=10)
    faulty.answers = [ix.close]
    with pytest.raises(EngineError, match="is closed; open another"):
        add_one(ix)


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
