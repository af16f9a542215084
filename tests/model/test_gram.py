"""The sum of X'X, against a dense product in float64."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from oasis.model.gram import (
    GramSum,
    column_squares,
    lower_zeros,
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


@pytest.fixture
def used(monkeypatch):
    """How many rows were multiplied in which precision, in order."""
    calls = []
    for name in ("_add_single", "_add_double"):
        real = getattr(GramSum, name)

        def note(self, X, *heavy, real=real, name=name):
            calls.append((name.removeprefix("_add_"), len(X)))
            real(self, X, *heavy)

        monkeypatch.setattr(GramSum, name, note)
    return calls


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
        later = GramSum(d, delta=1.0, start=one.lower)
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


def test_a_sum_that_only_has_a_start_is_sent_with_it():
    start = np.asfortranarray(np.tril(np.arange(9.0).reshape(3, 3)))
    arrived = pickle.loads(pickle.dumps(GramSum(3, delta=1.0, start=start)))
    assert np.array_equal(np.tril(arrived.lower), start)


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
@pytest.mark.parametrize("shape", [(0, 3), (5, 3), (1024, 20), (2500, 2100)])
def test_products_with_few_columns_are_those_of_float64_with_any_number_of_threads(dtype, shape):
    n, d = shape
    rng = np.random.default_rng(3)
    X, B, W = rng.random((n, d)).astype(dtype), rng.random((n, 4)), rng.random((d, 4))
    found = []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads, user_api="blas"):
            found.append((product(X, W), transposed_product(X, B)))
    for one, other, expected in zip(*found, (X @ W, X.T @ B), strict=True):
        assert np.array_equal(one, other) and one.dtype == np.float64
        np.testing.assert_allclose(one, expected, rtol=1e-4 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("place", [0, 7, 20])
def test_a_column_much_longer_than_the_others_is_summed_in_float64(used, place):
    chunks = [np.insert(rows(n, seed=n), place, 1, axis=1) for n in (3000, 500)]
    total = GramSum(21, delta=1.0)
    for X in chunks:
        total.add(X)
    assert used == [("single", 3000), ("single", 500)]
    found, expected = np.tril(total.lower), truth(*chunks)
    np.testing.assert_allclose(found[place], expected[place], rtol=1e-13)
    np.testing.assert_allclose(found[:, place], expected[:, place], rtol=1e-13)
    np.testing.assert_allclose(found, expected, atol=1e-3, rtol=0)
    assert not np.allclose(found, expected, rtol=1e-13)  # the others are float32


def test_the_estimate_of_rounding_errors_is_of_their_size():
    for seed, scale in enumerate((1.0, np.geomspace(1, 1e-3, 64))):
        X = (rows(4000, d=64, seed=seed) * scale).astype(np.float32)
        total = GramSum(64, delta=1e9)
        total.add(X)
        error = np.tril(total.lower) - truth(X)
        size = np.linalg.norm(error + np.tril(error, -1).T, 2)
        assert 0.05 * rounding(column_squares(X)) < size < 2 * rounding(column_squares(X))


def test_many_float32_rows_are_cut_into_pieces_that_float32_can_take(used):
    X = rows(30_000)
    total = GramSum(20, delta=1.0)
    total.add(X)
    assert {name for name, _ in used} == {"single"}
    assert sum(n for _, n in used) == 30_000 and len(used) == 3
    assert np.allclose(np.tril(total.lower), truth(X), atol=1e-3, rtol=0)


def test_rows_too_long_for_float32_are_multiplied_in_float64(used):
    X = 100 * rows(2000)
    total = GramSum(20, delta=1.0)
    total.add(X)
    assert used == [("double", 2000)]
    assert np.allclose(np.tril(total.lower), truth(X), rtol=1e-12)


def test_a_piece_with_longer_rows_than_the_others_is_multiplied_in_float64(used):
    X = rows(20_000)
    X[:3000] *= 5
    total = GramSum(20, delta=1.0)
    total.add(X)
    assert {name for name, _ in used} == {"double", "single"}
    assert np.allclose(np.tril(total.lower), truth(X), atol=2e-3, rtol=0)


def test_sums_join_and_start_where_another_ended():
    X, Y = rows(50, dtype=np.float64), rows(40, dtype=np.float64, seed=1)
    one, other = GramSum(20, 1.0), GramSum(20, 1.0)
    one.add(X)
    other.add(Y)
    later = GramSum(20, 1.0, start=one.lower)
    later.add(Y)
    before = one.lower.copy()
    assert np.allclose(np.tril(one.joined(other).lower), truth(X, Y), rtol=1e-12)
    assert np.allclose(np.tril(later.lower), truth(X, Y), rtol=1e-12)
    assert np.array_equal(np.tril(one.lower), np.tril(before))


@pytest.mark.parametrize("d", [5, 1300])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lower_zeros_are_writable_zeros_of_their_own(d, dtype):
    one, other = lower_zeros(d, dtype), lower_zeros(d, dtype)
    assert one.dtype == dtype and one.shape == (d, d) and one.flags.f_contiguous
    one[d - 1, 0] = 3
    assert one.sum() == 3 and not other.any()
    assert np.array_equal(pickle.loads(pickle.dumps(one)), one)
