"""The scope in which BLAS has one thread."""

import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from oasis.model.threads import at_most, in_threads, one_thread


def blas_threads():
    """Of NumPy's and SciPy's BLAS. faiss's own has one thread, or counts for each thread apart."""
    return [
        each["num_threads"]
        for each in threadpool_info()
        if each["user_api"] == "blas" and "faiss" not in each["filepath"]
    ]


def test_blas_has_one_thread_inside_and_what_it_had_afterwards():
    with one_thread():
        pass  # the libraries are loaded
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        assert before and set(before) == {2}
        with one_thread():
            assert set(blas_threads()) == {1}
            with one_thread():
                assert set(blas_threads()) == {1}
            assert set(blas_threads()) == {1}
        assert blas_threads() == before


def test_an_error_inside_sets_the_number_back():
    with threadpool_limits(2, user_api="blas"):
        try:
            with one_thread():
                np.linalg.solve(np.zeros((2, 2)), np.ones(2))
        except np.linalg.LinAlgError:
            assert set(blas_threads()) == {2}
        else:
            raise AssertionError("a singular matrix was solved")


class Holder:
    """A context that is entered and left in a thread of its own."""

    def __init__(self, limit):
        self.limit = limit or 1
        self._context = one_thread() if limit is None else at_most(limit)
        self._thread = ThreadPoolExecutor(1)
        self._thread.submit(self._context.__enter__).result()

    def leave(self):
        self._thread.submit(self._context.__exit__, None, None, None).result()
        self._thread.shutdown()


@settings(max_examples=25)
@given(st.lists(st.none() | st.integers(1, 5), min_size=1, max_size=5), st.integers(0))
def test_the_smallest_of_the_limits_holds_in_whatever_order_they_are_left(limits, seed):
    with one_thread():
        pass
    with threadpool_limits(4, user_api="blas"):
        before, holders = blas_threads(), []
        for limit in limits:
            holders.append(Holder(limit))
            assert set(blas_threads()) == {min(4, *(each.limit for each in holders))}
        Random(seed).shuffle(holders)
        while holders:
            holders.pop().leave()
            assert set(blas_threads()) == {min([4, *(each.limit for each in holders)])}
        assert blas_threads() == before


def test_blocks_are_worked_on_together_while_another_thread_is_inside():
    together = threading.Barrier(2)
    with one_thread():
        pass
    with threadpool_limits(2, user_api="blas"), one_thread(), ThreadPoolExecutor(1) as other:
        other.submit(in_threads, lambda _: together.wait(30), [0, 1]).result()


def test_a_limit_holds_for_blocks_too():
    used = set()
    with threadpool_limits(2, user_api="blas"), at_most(1):
        in_threads(lambda _: used.add(threading.get_ident()), range(8))
    assert used == {threading.get_ident()}


@pytest.mark.parametrize("n_threads", [1, 2])
def test_every_block_is_worked_on_once_with_any_number_of_threads(n_threads):
    done, used = np.zeros(100), set()

    def work(block):
        done[block] += 1
        used.add(tuple(blas_threads()))

    with one_thread():
        pass
    with threadpool_limits(n_threads, user_api="blas"):
        in_threads(work, [slice(start, start + 7) for start in range(0, 100, 7)])
        assert set(blas_threads()) == {n_threads}
    assert (done == 1).all()
    assert {n for each in used for n in each} == {1}


def test_an_error_in_a_block_reaches_the_caller():
    def work(block):
        if block.start:
            raise ZeroDivisionError("block")

    with pytest.raises(ZeroDivisionError, match="block"):
        in_threads(work, [slice(0, 1), slice(1, 2), slice(2, 3)])
