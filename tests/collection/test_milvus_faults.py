"""A collection whose codes are on a Milvus server: the same items on both sides after any kill."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor

import collection_in_milvus
import numpy as np
import pytest
from collection_in_milvus import (
    assert_is,
    make,
)
from collection_truth import assert_nothing_lost, contents
from collection_victim import Victim
from collection_writer import KILL_POINTS, apply, step
from toy import chunk

from oasis.collection import Collection
from oasis.errors import EngineError

pytestmark = pytest.mark.scale
small_limits = collection_in_milvus.small_limits
remote = collection_in_milvus.remote


@pytest.fixture(scope="module")
def victim():
    started = Victim()
    yield started
    started.close()


def test_a_process_killed_between_milvus_and_the_catalog_is_repaired(folder, remote, victim):
    c, truth = make(folder, remote(), steps=5)
    c.close()
    number = 5
    for point, (change, *_) in KILL_POINTS.items():
        while step(number)[0] != change:
            with Collection.open(c.path) as c:
                apply(c, number)
            apply(truth, number)
            number += 1
        assert victim.run(f"die {point}", c.path, number) == -signal.SIGKILL
        if "committed" in point:
            apply(truth, number)
            number += 1
        with Collection.open(c.path) as c:
            assert_is(c, truth)


def wait_until_it_answers(c, within=90.0):
    """Search until the server has loaded the codes again: after a kill that may take longer than
    a request waits."""
    X, _ = chunk(1, seed=1234)
    deadline = time.monotonic() + within
    while True:
        try:
            c.search(X, 1)
        except EngineError:
            if time.monotonic() > deadline:
                raise
        else:
            return


def kill_the_server_often(folder, server, address, n_kills, seed):
    """Ingest while the server is killed and comes back; what fails is given again."""
    rng = np.random.default_rng(seed)
    c, truth = make(folder, address, steps=2)
    number = 2
    for _ in range(n_kills):
        moment = rng.uniform(0, 0.5)

        def cut(moment=moment):
            time.sleep(moment)
            server.kill()
            server.start()

        with ThreadPoolExecutor(1) as pool:
            cutting = pool.submit(cut)
            done = failures = 0
            while not cutting.done() or done < 2:
                try:
                    apply(c, number)
                except EngineError:
                    failures += 1
                    if cutting.done():
                        cutting.result()  # a server that did not come up is what failed
                        assert failures < 100
                    continue
                apply(truth, number)
                number += 1
                done += 1
            cutting.result()
        wait_until_it_answers(c)
        assert_nothing_lost([each[0] for each in truth.items], [each[0] for each in contents(c)])
        assert_is(c, truth)
    c.close()
    with Collection.open(c.path) as c:
        assert_is(c, truth)
    return number


def test_a_server_killed_during_ingests_loses_nothing(folder, milvus_server, remote):
    kill_the_server_often(folder, milvus_server, remote(), 2, seed=1)
