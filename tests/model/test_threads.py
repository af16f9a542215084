"""The scope in which BLAS has one thread."""

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from oasis.model.threads import in_threads, one_thread


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


def test_threads_that_enter_together_leave_the_number_as_it_was():
    entered, may_leave = threading.Event(), threading.Event()

    def stay():
        with one_thread():
            entered.set()
            may_leave.wait(30)

    with one_thread():
        pass
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        with one_thread():
            other = threading.Thread(target=stay)
            other.start()
            assert entered.wait(30)
            assert set(blas_threads()) == {1}
        may_leave.set()
        other.join(30)
        assert blas_threads() == before
        with one_thread():
            assert set(blas_threads()) == {1}
        assert blas_threads() == before


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
