"""The sum of X'X, against a dense product in float64."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from oasis.model.gram import (
    GramSum,
    LowerTriangle,
    factored,
    product,
    rounding,
    transposed_product,
)


def rows(n, d=20, dtype=np.float32, seed=0):
    X = np.random.default_rng([5, seed]).random((n, d))
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(dtype)


def truth(*pieces):
    dense = [X.toarray() if sp.issparse(X) else X for X in pieces]
    X = np.vstack(dense).astype(np.float64)
    return np.tril(X.T @ X)


@pytest.mark.parametrize("pieces", [(30,), (30, 1, 200), (9000,)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_sum_is_that_of_all_rows(pieces, dtype):
    parts = [rows(n, dtype=dtype, seed=n) for n in pieces]
    total = GramSum(20, delta=1.0)
    for X in (*parts, sp.csr_array(parts[0])):
        total.add(X)
    # float32 may be wrong by a thousandth of delta
    assert np.allclose(np.tril(total.lower), truth(*parts, parts[0]), atol=1e-3, rtol=0)
    assert total.single == (dtype == np.float32)


@pytest.mark.parametrize("d", [600, 1300])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_wide_features_take_several_blocks_and_leave_the_start_alone(dtype, d):
    first, second = rows(40, d=d, dtype=dtype), rows(30, d=d, dtype=dtype, seed=1)
    thin = sp.csr_array(np.where(second > 0.05, second, 0))
    one = GramSum(d, delta=1.0)
    one.add(first)
    before = np.tril(one.lower)
    for more in (second, thin):
        later = GramSum(d, delta=1.0, start=LowerTriangle(one.lower))
        later.add(more)
        later.merge(one)
        np.testing.assert_allclose(np.tril(later.lower), truth(first, more, first), atol=1e-5)
        assert np.array_equal(np.tril(one.lower), before)


@pytest.mark.parametrize("d", [20, 600, 1300])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_sum_is_sent_to_another_process_bit_for_bit_without_the_upper_triangle(dtype, d):
    sent = GramSum(d, delta=0.5)
    sent.add(rows(40, d=d, dtype=dtype))
    buffers = []
    message = pickle.dumps(sent, protocol=5, buffer_callback=buffers.append)
    arrived = pickle.loads(message, buffers=buffers)
    assert np.array_equal(np.tril(arrived.lower), np.tril(sent.lower))
    assert arrived.single == sent.single
    # columns in blocks of 256, so the squares on the diagonal are sent whole
    assert sum(buffer.raw().nbytes for buffer in buffers) <= (d + min(d, 256)) * d / 2 * 8
    for total in (arrived, sent):
        total.add(rows(30, d=d, dtype=dtype, seed=1))
    assert np.array_equal(np.tril(arrived.lower), np.tril(sent.lower))


def test_the_sum_of_wide_float32_features_does_not_depend_on_the_number_of_threads():
    first, second = rows(300, d=1300), rows(300, d=1300, seed=1)
    sums = []
    for n_threads in (1, 2):
        total = GramSum(1300, delta=1.0)
        with threadpool_limits(n_threads, user_api="blas"):
            total.add(first)
            total.add(second)
        sums.append(np.tril(total.lower))
    assert np.array_equal(*sums)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(0, 3), (5, 3), (2500, 2100)])
@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
def test_products_are_those_of_float64(dtype, shape, wrap):
    n, d = shape
    rng = np.random.default_rng(3)
    X, B, W = rng.random((n, d)).astype(dtype), rng.random((n, 4)), rng.random((d, 4))
    rtol = 1e-4 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(product(wrap(X), W), X @ W, rtol=rtol)
    for targets in (B, sp.csr_array(B)):
        found = transposed_product(wrap(X), targets)
        np.testing.assert_allclose(found, X.T @ B, rtol=rtol)
        assert found.dtype == np.float64


def test_the_estimate_of_rounding_errors_is_of_their_size():
    for seed, scale in enumerate((1.0, np.geomspace(1, 1e-3, 64))):
        X = (rows(4000, d=64, seed=seed) * scale).astype(np.float32)
        total = GramSum(64, delta=1e9)
        total.add(X)
        error = np.tril(total.lower) - truth(X)
        size = np.linalg.norm(error + np.tril(error, -1).T, 2)
        assert 0.05 * rounding(X) < size < 2 * rounding(X)


def test_sums_join_and_start_where_another_ended():
    X, Y = rows(50, dtype=np.float64), rows(40, dtype=np.float64, seed=1)
    one, other = GramSum(20, 1.0), GramSum(20, 1.0)
    one.add(X)
    other.add(Y)
    later = GramSum(20, 1.0, start=LowerTriangle(one.lower))
    later.add(Y)
    before = one.lower.copy()
    assert np.allclose(np.tril(one.joined(other).lower), truth(X, Y), rtol=1e-12)
    assert np.allclose(np.tril(later.lower), truth(X, Y), rtol=1e-12)
    assert np.array_equal(np.tril(one.lower), np.tril(before))


def test_rows_too_long_for_float32_are_multiplied_in_float64():
    X = rows(20_000)
    X[:3000] *= 100
    total = GramSum(20, delta=1.0)
    total.add(X)
    assert total.single  # the rows were float32
    assert np.allclose(np.tril(total.lower), truth(X), rtol=1e-5, atol=2e-3)
    alone = GramSum(20, delta=1.0)
    alone.add(X[:3000])
    assert np.allclose(np.tril(alone.lower), truth(X[:3000]), rtol=1e-12)


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("d", [1, 30, 600])
def test_both_halves_of_a_factor_together_solve_the_system(single, d):
    A = LowerTriangle(np.asfortranarray(truth(rows(500, d, np.float64))))
    factor, whole = factored(A, 2.0, single), A.whole() + 2.0 * np.eye(d)
    Y = np.random.default_rng(0).standard_normal((d, 7))
    rtol = 1e-4 if single else 1e-10
    np.testing.assert_allclose(whole @ factor.upper(factor.lower(Y)), Y, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(factor.lower(Y)[:, :1], factor.lower(Y[:, :1]), rtol=rtol, atol=rtol)
    # (L^-1 Y)'(L^-1 Y) = Y' A^-1 Y: what small chunks are added by
    half = factor.lower(Y)
    np.testing.assert_allclose(half.T @ half, Y.T @ np.linalg.solve(whole, Y), rtol=rtol, atol=rtol)
    np.testing.assert_allclose(A.product(Y), A.whole() @ Y, rtol=1e-12, atol=1e-12)


def test_a_sum_that_float32_cannot_factor_is_factored_in_float64():
    X = np.random.default_rng(1).standard_normal((50, 3))
    X = np.hstack([X, X[:, :1] + 1e-6 * X[:, 1:2]])
    factor = factored(LowerTriangle(np.asfortranarray(X.T @ X)), 1e-10, single=True)
    Y = np.ones((4, 1))
    np.testing.assert_allclose(
        factor.upper(factor.lower(Y)), np.linalg.solve(X.T @ X + 1e-10 * np.eye(4), Y), rtol=1e-3
    )
