"""The factor of a sum of squares, against dense algebra in float64."""

import numpy as np
import pytest
from scipy.linalg import blas, lapack
from threadpoolctl import threadpool_limits

from oasis.errors import InputError
from oasis.model.factor import Centred, centred_trace, cholesky, symmetric_product


def sums(d=30, n=500, offset=0.0):
    X = np.random.default_rng(4).standard_normal((n, d)) + offset
    lengths = np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12)
    X = np.hstack([X / lengths, np.ones((n, 1))])
    return np.asfortranarray(np.tril(X.T @ X)), X


def whole(lower, delta):
    return lower + np.tril(lower, -1).T + delta * np.eye(len(lower))


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("d", [0, 1, 30, 600, 1300])
def test_both_halves_together_solve_the_system(single, d):
    lower, _ = sums(d)
    factor = cholesky(lower, 2.0, single)
    Y = np.random.default_rng(0).standard_normal((d + 1, 7))
    rtol = 1e-4 if single else 1e-10
    A = whole(lower, 2.0)
    np.testing.assert_allclose(A @ factor.upper(factor.lower(Y)), Y, rtol=rtol, atol=rtol)
    # (L^-1 Y)'(L^-1 Y) = Y' A^-1 Y: what small chunks are added by
    half = factor.lower(Y)
    np.testing.assert_allclose(half.T @ half, Y.T @ np.linalg.solve(A, Y), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("single", [False, True])
def test_a_large_factor_does_not_depend_on_the_number_of_threads(single):
    lower, _ = sums(d=1300)
    halves = []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads, user_api="blas"):
            factor = cholesky(lower, 2.0, single)
        halves.append(np.tril(factor.rest.L if single else factor.L))
    assert np.array_equal(*halves)


def ill_conditioned(d=1300, n=200, scale=150.0):
    """Fewer rows than features: the smallest eigenvalue with a ridge of 1 is 1."""
    X = np.random.default_rng(5).standard_normal((n, d)) * scale
    return blas.dsyrk(1.0, X.T, lower=1)


def test_a_large_factor_of_a_singular_sum_is_as_exact_as_that_of_lapack():
    lower = ill_conditioned()
    before = np.tril(lower)
    A = whole(before, 1.0)
    expected, failed = lapack.dpotrf(A, lower=1)
    assert not failed
    found = np.tril(cholesky(lower, 1.0, single=False).L)
    size = np.linalg.norm(A)
    assert np.linalg.norm(found @ found.T - A) < 2 * np.linalg.norm(expected @ expected.T - A) + (
        1e-15 * size
    )
    assert np.array_equal(np.tril(lower), before)


@pytest.mark.parametrize("place", [3, 700, 1299])
def test_a_large_sum_that_is_not_positive_is_refused(place):
    lower = ill_conditioned()
    lower[place, place] = -1.0
    with pytest.raises(InputError, match="singular"):
        cholesky(lower, 1.0, single=False)


def test_the_trace_of_centred_features_is_that_of_their_squares():
    lower, X = sums(offset=5.0)
    centred = X - X.mean(axis=0)
    assert centred_trace(lower) == pytest.approx(np.square(centred).sum())
    assert centred_trace(np.zeros((3, 3))) == 0


def test_features_far_from_zero_are_factored_in_float32_as_well_as_centred_ones():
    lower, _ = sums(d=200, n=4000, offset=30.0)
    delta = 1e-3
    factor = cholesky(lower, delta, single=True)
    assert isinstance(factor, Centred)
    C = np.random.default_rng(0).standard_normal((201, 3))
    target = symmetric_product(lower, C) + delta * C
    found = factor.upper(factor.lower(target))
    found += factor.upper(factor.lower(target - symmetric_product(lower, found) - delta * found))
    np.testing.assert_allclose(found, C, atol=1e-6)


def test_a_sum_that_float32_cannot_factor_is_factored_in_float64():
    X = np.random.default_rng(1).standard_normal((50, 3))
    X = np.hstack([X, X[:, :1] + 1e-6 * X[:, 1:2], np.ones((50, 1))])
    lower = np.asfortranarray(np.tril(X.T @ X))
    factor = cholesky(lower, 1e-10, single=True)
    Y = np.ones((5, 1))
    np.testing.assert_allclose(
        factor.upper(factor.lower(Y)), np.linalg.solve(whole(lower, 1e-10), Y), rtol=1e-3
    )
