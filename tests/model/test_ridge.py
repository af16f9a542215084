"""The streaming ridge regression against a dense solve on everything ever seen."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from oasis.errors import InputError
from oasis.hashers.checks import fingerprint
from oasis.model.file import put_together, taken_apart
from oasis.model.ridge import (
    MAX_FEATURES,
    Ridge,
    check_width,
    start_round,
    with_constant,
)

R = 8


def draw(rng, n, d, dtype=np.float64, scale=1.0):
    X = np.maximum(rng.standard_normal((n, d)), 0)
    X /= np.linalg.norm(X, axis=1, keepdims=True) + 1e-12
    return (scale * X).astype(dtype), np.where(rng.random((n, R)) < 0.5, -1.0, 1.0)


def truth(Xs, Bs, delta):
    X, B = np.vstack(Xs).astype(np.float64), np.vstack(Bs)
    return np.linalg.solve(X.T @ X + delta * np.eye(X.shape[1]), X.T @ B).T


def learn(ridge, sizes, rng, d, delta, dtype=np.float64, wrap=np.asarray, scale=1.0):
    """Learn chunks of the given sizes; yield the ridge beside what a dense solve says."""
    Xs, Bs = [], []
    for n in sizes:
        X, B = draw(rng, n, d, dtype, scale)
        first = np.where(rng.random((n, R)) < 0.5, -1.0, 1.0)
        round_ = start_round(ridge, wrap(X))
        expected = X @ truth([*Xs, X], [*Bs, first], delta).T
        predicted = round_.predict(first)
        Xs.append(X)
        Bs.append(B)
        ridge = round_.finish(B)
        yield ridge, predicted, expected, truth(Xs, Bs, delta), np.vstack(Xs).astype(np.float64)


SIZES = (30, 100, 3, 1, 5, 200, 2, 2, 2, 40, 9, 1)


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("delta", [0.01, 1.0, 50.0])
def test_w_equals_a_dense_solve_for_large_and_small_chunks(delta, wrap):
    rng = np.random.default_rng(0)
    for ridge, predicted, expected, W, X in learn(
        Ridge.zero(R, 80, delta), SIZES, rng, 80, delta, wrap=wrap
    ):
        assert np.allclose(predicted, expected, rtol=0, atol=1e-10)
        assert np.allclose(ridge.W, W, rtol=0, atol=1e-10 * max(1, np.abs(W).max()))
        assert np.allclose(ridge.gram(), X.T @ X, rtol=0, atol=1e-10)


@pytest.mark.parametrize("d", [1, 2, 80])
def test_float32_work_is_refined_to_the_float64_answer(d):
    rng = np.random.default_rng(0)
    used = set()
    for ridge, predicted, expected, W, _ in learn(
        Ridge.zero(R, d, 1.0), SIZES, rng, d, 1.0, dtype=np.float32
    ):
        used.add(ridge.single)
        assert np.allclose(predicted, expected, rtol=0, atol=1e-5)
        assert np.allclose(ridge.W, W, rtol=0, atol=1e-5 * np.abs(W).max())
        exact = np.linalg.solve(ridge.gram() + np.eye(d), ridge.BX.T).T
        assert np.allclose(ridge.W, exact, rtol=0, atol=1e-8 * np.abs(W).max())
    assert used == {True}


def test_float32_features_that_dwarf_the_ridge_are_worked_on_in_float64():
    rng = np.random.default_rng(0)
    for ridge, _, _, W, _ in learn(
        Ridge.zero(R, 80, 1.0), (300, 5, 300), rng, 80, 1.0, dtype=np.float32, scale=2000.0
    ):
        assert not ridge.single
        assert np.allclose(ridge.W, W, rtol=0, atol=1e-5 * np.abs(W).max())


def test_small_chunks_leave_the_matrix_alone_until_an_eighth_of_the_width():
    rng = np.random.default_rng(0)
    d = 80
    steps = [ridge for ridge, *_ in learn(Ridge.zero(R, d, 1.0), (100, 4, 4, 2, 1), rng, d, 1.0)]
    assert [len(ridge.tail) for ridge in steps] == [0, 4, 8, 10, 0]
    assert steps[1].base is steps[3].base
    assert steps[4].base is not steps[3].base


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 25), min_size=1, max_size=8),
    cut=st.integers(0, 7),
    single=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_state_round_trip_goes_on_bit_for_bit(sizes, cut, single, seed):
    dtype = np.float32 if single else np.float64
    rng = np.random.default_rng(seed)
    ridge = twin = Ridge.zero(R, 60, 1.0)
    for number, n in enumerate(sizes):
        X, B = draw(rng, n, 60, dtype)
        if number == cut:
            arrays = {}
            facts = taken_apart(ridge, arrays)
            read = {key: np.array(value) for key, value in arrays.items()}
            twin = put_together(Ridge, facts, read)
        ridge, twin = start_round(ridge, X).finish(B), start_round(twin, X).finish(B)
        for name in ("BX", "W", "tail", "half"):
            assert np.array_equal(getattr(ridge, name), getattr(twin, name)), name
        assert np.array_equal(ridge.gram(), twin.gram())


@pytest.mark.parametrize("n", [4, 3000])  # a small round and a large one
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_labels_may_be_sparse_targets_after_dense_ones(n, dtype, make):
    rng = np.random.default_rng(3)
    X = (rng.random((n, 64)) / 4).astype(dtype)
    values, labels = rng.standard_normal((n, 2)), (rng.random((n, 5)) < 0.2).astype(float)
    start = Ridge.zero(7, 64, 1.0)
    ridge = start_round(start, make(X)).finish(values, sp.csr_array(labels))
    dense = start_round(start, make(X)).finish(np.hstack([values, labels]))
    assert (len(ridge.tail) > 0) == (n == 4)
    np.testing.assert_allclose(ridge.BX, dense.BX, rtol=1e-5, atol=1e-4)
    exact = np.hstack([values, labels]).T @ X.astype(np.float64)
    np.testing.assert_allclose(ridge.BX, exact, rtol=1e-5, atol=1e-4)
    assert np.allclose(ridge.W, dense.W, atol=1e-5)
    alone = start_round(Ridge.zero(5, 64, 1.0), make(X)).finish(sp.csr_array(labels))
    assert np.array_equal(alone.BX, ridge.BX[2:])
    assert np.array_equal(alone.gram(), ridge.gram())


def test_a_round_changes_nothing_in_the_old_regression():
    rng = np.random.default_rng(0)
    X, B = draw(rng, 100, 80)
    old = start_round(Ridge.zero(R, 80, 1.0), X).finish(B)
    before = fingerprint(old)
    for n in (2, 90):
        X, B = draw(rng, n, 80)
        start_round(old, X).finish(B)
    assert fingerprint(old) == before


@pytest.mark.parametrize("n", [1, 200])
def test_a_modality_of_zeros_gives_a_zero_w(n):
    for dtype in (np.float32, np.float64):
        ridge = start_round(Ridge.zero(R, 80, 1.0), np.zeros((n, 80), dtype)).finish(
            np.ones((n, R))
        )
        assert not ridge.W.any()


def test_too_many_features_are_refused_with_the_reason():
    with pytest.raises(InputError, match=r"9000 features need a dense 9000 x 9000 sum \(0\.6 GB\)"):
        check_width(9000)
    check_width(MAX_FEATURES)
    assert MAX_FEATURES == 8192


def test_a_ridge_too_small_for_the_data_is_refused():
    X = np.full((50, 40), 1e9)
    with pytest.raises(InputError, match="delta=1e-12 is too small"):
        start_round(Ridge.zero(R, 40, 1e-12), X).finish(np.ones((50, R)))


@pytest.mark.parametrize("n", [2, 60])
def test_a_regression_takes_targets_of_zero_and_new_targets(n):
    rng = np.random.default_rng(0)
    ridge = Ridge.zero(1, 40, 1.0)
    Xs, Ts = [], []
    for width in (1, 1, 3, 3):
        X, T = rng.random((n, 40)), np.zeros((n, width))
        if width == 3 or not Ts:
            T[:, 0] = rng.random(n)
        T[:, -1] += len(Ts) == 2
        ridge = start_round(ridge.resized(width), X).finish(T)
        Xs.append(X)
        Ts.append(np.pad(T, ((0, 0), (0, 3 - width))))
        A, targets = np.vstack(Xs), np.vstack(Ts)[:, :width]
        expected = np.linalg.solve(A.T @ A + np.eye(40), A.T @ targets)
        assert np.allclose(ridge.W, expected.T)


@pytest.mark.parametrize("d", [1, 80, 256, 700])
def test_a_square_along_a_direction_is_that_of_the_rows(d):
    rng = np.random.default_rng(d)
    chunks = [rng.normal(size=(n, d)) for n in (300, 2, 5)]
    ridge = Ridge.zero(R, d, 1.0)
    x = rng.normal(size=d)
    assert ridge.square_along(x) == 0
    for X in chunks:
        ridge = start_round(ridge, X).finish(np.ones((len(X), R)))
    assert d < 80 or len(ridge.tail) > 0
    expected = np.square(np.vstack(chunks) @ x).sum()
    assert ridge.square_along(x) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_constant_ends_the_rows_of_sparse_features_as_of_dense_ones(dtype):
    rng = np.random.default_rng(0)
    dense = (rng.random((30, 8)) * (rng.random((30, 8)) < 0.2)).astype(dtype)
    X = sp.csr_array(dense)
    X.data[::3] = 0  # entries that are stored, and zero
    wide = with_constant(X)
    np.testing.assert_array_equal(wide.toarray(), with_constant(X.toarray()))
    assert wide.dtype == dtype
    assert wide.has_canonical_format
