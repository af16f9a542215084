"""The queries of a batch are divided among threads; answers do not depend on how."""

from __future__ import annotations

import threading

import faiss
import numpy as np
import pytest

from oasis.index import HammingIndex
from oasis.index.checks import random_codes
from oasis.index.engine import query_blocks
from oasis.index.engine.query_blocks import faiss_threads, in_blocks


@pytest.fixture
def two_threads(monkeypatch):
    monkeypatch.setattr(query_blocks, "_WORTH_A_THREAD", 1)
    with faiss_threads(2):
        yield
        assert faiss.omp_get_max_threads() == 2


@pytest.mark.parametrize("q", [1, 15, 16, 17, 100])
@pytest.mark.parametrize("block", [1, 7, 16, 1000])
def test_blocks_hold_each_query_once(q, block, two_threads):
    done, threads = [], set()

    def work(start, stop):
        assert 0 < stop - start <= block
        done.extend(range(start, stop))
        threads.add(threading.get_ident())
        assert faiss.omp_get_max_threads() == (1 if q >= 16 else 2)

    in_blocks(work, q, block, 1000)
    assert sorted(done) == list(range(q))
    assert len(threads) == (2 if q >= 16 else 1)


def test_few_codes_are_searched_by_the_calling_thread(monkeypatch, two_threads):
    monkeypatch.setattr(query_blocks, "_WORTH_A_THREAD", 1000)
    threads = []
    in_blocks(lambda start, stop: threads.append(threading.get_ident()), 20, 5, 49)
    assert threads == [threading.get_ident()] * 4


@pytest.mark.parametrize("last", [True, False])
def test_what_a_block_raises_is_raised(last, two_threads):
    def work(start, stop):
        if (stop == 40) == last:
            raise ValueError("block")

    with pytest.raises(ValueError, match="block"):
        in_blocks(work, 40, 10, 1000)


@pytest.mark.parametrize("label_bits", [0, 32])
def test_answers_of_two_threads_are_those_of_one(label_bits, two_threads):
    rng = np.random.default_rng(0)
    codes = random_codes(rng, 3000, 64)[rng.integers(0, 3000, 5000)]
    index = HammingIndex(64, label_bits)
    index.add(codes, np.arange(5000))
    index.remove(np.arange(0, 500, 7))
    queries = rng.standard_normal((40, 64))
    allow = np.arange(100, 4000, 3)
    for allowed in (None, allow, allow[:10]):
        together = index.search_asymmetric(queries, 20, allow=allowed)
        by_distance = index.search(codes[:40], 20, allow=allowed)
        with faiss_threads(1):
            alone = index.search_asymmetric(queries, 20, allow=allowed)
            nearest = index.search(codes[:40], 20, allow=allowed)
        assert (together.ids == alone.ids).all()
        assert (together.scores == alone.scores).all()
        assert (by_distance.ids == nearest.ids).all()
        assert (by_distance.distances == nearest.distances).all()
