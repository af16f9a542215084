"""Hash functions against their formulas, row by row."""

import numpy as np
import pytest
import scipy.sparse as sp

from oasis.codebook import Readout
from oasis.errors import InputError
from oasis.linear import SHARPNESS, LabelMap, LinearMap


def label_map(normalize=False, seed=0):
    rng = np.random.default_rng([4, seed])
    weights = {"image": rng.standard_normal((3, 7)), "text": rng.standard_normal((3, 5))}
    trust = {"image": np.array([0.2, 0.9, 0.5]), "text": np.array([0.6, 0.1, 0.5])}
    predictors = {name: LinearMap({name: W}, normalize=normalize) for name, W in weights.items()}
    D = rng.standard_normal((3, 8))
    return LabelMap(predictors, trust, Readout(D, D)), weights, trust


@pytest.mark.parametrize("normalize", [False, True])
def test_label_map_weighs_predictions_by_trust_and_sharpens_them(normalize):
    hash_function, weights, trust = label_map(normalize)
    rng = np.random.default_rng(1)
    X = {"image": rng.random((6, 7)), "text": rng.random((6, 5))}
    X["text"][2] = 0  # a sample without text
    projected = hash_function.project(X)
    for row in range(6):
        total, weight = np.zeros(3), np.zeros(3)
        for name, W in weights.items():
            x = X[name][row]
            if x.any():
                total += trust[name] * (W @ (x / np.linalg.norm(x) if normalize else x))
                weight += trust[name]
        expected = np.maximum(total / weight, 0) ** SHARPNESS @ hash_function.readout.values
        assert np.allclose(projected[row], expected, rtol=1e-5, atol=1e-6)


def test_label_map_of_one_modality_equals_zeros_in_the_other():
    hash_function, _, _ = label_map()
    image = np.random.default_rng(2).random((4, 7))
    alone = hash_function.project({"image": image})
    with_zeros = hash_function.project({"image": image, "text": sp.csr_array((4, 5))})
    assert np.array_equal(alone, with_zeros)


def test_a_sample_without_any_modality_projects_to_zero():
    hash_function, _, _ = label_map()
    nothing = hash_function.project({"image": np.zeros((2, 7)), "text": np.zeros((2, 5))})
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
