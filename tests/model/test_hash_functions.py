"""Hash functions against their formulas, row by row."""

import numpy as np
import pytest
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from oasis.errors import InputError
from oasis.model import hash_functions
from oasis.model.hash_functions import LabelMap, LinearMap


def label_map(normalize=False, seed=0):
    rng = np.random.default_rng([4, seed])
    weights = {"image": rng.standard_normal((3, 7)), "text": rng.standard_normal((3, 5))}
    explained = {"image": np.array([0.2, 0.9, 0.0]), "text": np.array([0.6, 0.1, 0.0])}
    shares = np.array([0.1, 0.3, 0.02])
    predictors = {name: LinearMap({name: W}, normalize=normalize) for name, W in weights.items()}
    return LabelMap(predictors, explained, dict.fromkeys(weights, shares), shares), weights


@pytest.mark.parametrize("normalize", [False, True])
def test_label_map_adds_up_evidence(normalize):
    hash_function, weights = label_map(normalize)
    rng = np.random.default_rng(1)
    X = {"image": rng.random((6, 7)), "text": rng.random((6, 5))}
    X["text"][2] = 0  # a sample without text
    predicted = hash_function.predict(X)
    for row in range(6):
        expected = np.zeros(3)
        for c in range(3):
            q, R, evidence = hash_function.usual[c], [], []
            for name, W in weights.items():
                x = X[name][row]
                if x.any():
                    x = x / np.linalg.norm(x) if normalize else x
                    R.append(hash_function.explained[name][c])
                    evidence.append(W[c] @ x - q)
            # the regression on predictions that vary by R and share R R', in units of q (1 - q)
            together = np.outer(R, R)
            np.fill_diagonal(together, R)
            a = np.linalg.solve(together, R) if all(R) else np.ones(len(R))
            expected[c] = q + a @ evidence
        assert np.allclose(predicted[row], expected, rtol=1e-4, atol=1e-6)


def test_evidence_of_independent_modalities_adds_up_to_a_joint_regression():
    """Two noisy views of a class that have nothing else in common, against one regression."""
    rng = np.random.default_rng(3)
    L = (rng.random((20_000, 1)) < 0.3).astype(float)
    X = {
        name: np.hstack([np.ones_like(L), L + noise * rng.standard_normal(L.shape)])
        for name, noise in (("image", 1.0), ("text", 0.5))
    }
    W = {name: np.linalg.lstsq(x, L)[0].T for name, x in X.items()}
    explained = {name: 1 - np.var(L - x @ W[name].T, axis=0) / np.var(L) for name, x in X.items()}
    predictors = {name: LinearMap({name: each}) for name, each in W.items()}
    q = L.mean(axis=0)
    added = LabelMap(predictors, explained, dict.fromkeys(X, q), q).predict(X)
    both = np.hstack(list(X.values()))
    joint = both @ np.linalg.lstsq(both, L)[0]
    assert np.abs(added - joint).max() < 0.05 * np.ptp(joint)


def test_label_map_of_one_modality_equals_zeros_in_the_other():
    hash_function, _ = label_map()
    image = np.random.default_rng(2).random((4, 7))
    alone = hash_function.predict({"image": image})
    with_zeros = hash_function.predict({"image": image, "text": sp.csr_array((4, 5))})
    assert np.array_equal(alone, with_zeros)


def test_a_sample_without_any_modality_is_predicted_nothing():
    hash_function, _ = label_map()
    nothing = hash_function.predict({"image": np.zeros((2, 7)), "text": np.zeros((2, 5))})
    assert not nothing.any()


def test_linear_map_subtracts_offsets_only_where_the_modality_is():
    W, offset = np.arange(6.0).reshape(2, 3), np.array([1.0, -1.0])
    hash_function = LinearMap({"a": W}, offsets={"a": offset})
    X = np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0]])
    assert np.allclose(hash_function.project({"a": X}), [X[0] @ W.T - offset, [0.0, 0.0]])


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_values_that_are_not_finite_are_refused(bad):
    hash_function = LinearMap({"a": np.full((2, 3), 1e10)})
    with pytest.raises(InputError):
        hash_function.project({"a": np.full((1, 3), bad)})


def test_a_modality_is_missing_where_its_row_is_zero_not_where_its_prediction_is():
    predictors = {name: LinearMap({name: np.eye(2)}) for name in ("image", "text")}
    explained = {name: np.array([0.5, 0.5]) for name in predictors}
    shares = np.array([0.4, 0.4])
    labels = LabelMap(predictors, explained, dict.fromkeys(predictors, shares), shares)
    # a third feature would be there: here the prediction of the text happens to be all zero
    predictors["text"] = LinearMap({"text": np.array([[1.0, -1.0], [1.0, -1.0]])})
    has_text = labels.predict({"image": np.array([[1.0, 0.0]]), "text": np.array([[1.0, 1.0]])})
    lacks = labels.predict({"image": np.array([[1.0, 0.0]]), "text": np.array([[0.0, 0.0]])})
    assert (has_text < lacks).all()  # a text that predicts nothing is evidence against


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [None, np.arange(3.0)])
def test_rows_are_scaled_block_by_block_as_all_at_once(dtype, offset, monkeypatch):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((50, 16)).astype(dtype)
    X[::7] = 0
    X[3] *= 1e-30  # squares underflow in float32
    W = rng.standard_normal((3, 16))
    offsets = {} if offset is None else {"x": offset}
    function = LinearMap({"x": W}, offsets, normalize=True)
    whole, has = function.project_rows("x", X)
    assert np.array_equal(has, X.any(axis=1))
    lengths = np.linalg.norm(X.astype(np.float64), axis=1, keepdims=True)
    unit = np.divide(X.astype(np.float64), lengths, out=np.zeros((50, 16)), where=lengths > 0)
    expected = unit @ W.T - has[:, None] * (0 if offset is None else offset)
    np.testing.assert_allclose(whole, expected, atol=1e-5)
    monkeypatch.setattr(hash_functions, "_BLOCK_CELLS", 16 * 8)
    monkeypatch.setattr(hash_functions, "_ROWS_A_COLUMN", 1)
    parts, has_parts = function.project_rows("x", X)
    assert np.array_equal(has_parts, has)
    np.testing.assert_allclose(parts, whole, rtol=0, atol=1e-6)
    for n_threads in (1, 2):
        with threadpool_limits(n_threads, user_api="blas"):
            assert np.array_equal(function.project({"x": X}), parts)
    monkeypatch.setattr(hash_functions, "_SPARSE_ROWS", 8)
    for n_threads in (1, 2):
        with threadpool_limits(n_threads, user_api="blas"):
            sparse, has_sparse = function.project_rows("x", sp.csr_array(X))
            assert np.array_equal(has_sparse, has)
            np.testing.assert_allclose(sparse, expected, atol=1e-5)
