"""The factor of a sum of squares, against dense algebra in float64."""

import numpy as np
import pytest

from oasis.model.factor import Centred, centred_trace, cholesky, symmetric_product


def sums(d=30, n=500, offset=0.0):
    X = np.random.default_rng(4).standard_normal((n, d)) + offset
    lengths = np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12)
    X = np.hstack([X / lengths, np.ones((n, 1))])
    return np.asfortranarray(np.tril(X.T @ X)), X


def whole(lower, delta):
    return lower + np.tril(lower, -1).T + delta * np.eye(len(lower))


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("d", [0, 1, 30, 600])
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
