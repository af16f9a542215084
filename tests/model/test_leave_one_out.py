"""The strength of a ridge, chosen on the first chunk, against regressions without each row."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from oasis.arrays import unit_rows
from oasis.metrics import mean_average_precision
from oasis.model import OASIS
from oasis.model.leave_one_out import MARGIN, WEAKER, HeldOut, chosen_ridge, ridge_by_sums
from oasis.model.ridge import Ridge, with_constant
from oasis.model.ridge_round import start_round


def measurements(n, seed=0):
    """Columns in different units: one of thousands that tells nothing, others that tell classes."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 3, n)
    told = np.eye(3)[classes] @ np.random.default_rng(9).standard_normal((3, 5))
    X = np.column_stack([rng.uniform(500, 2000, n), 3 * told + rng.standard_normal((n, 5))])
    return X, classes


def slow(X, L, delta):
    """Return what regressions with an intercept, each without one row, predict of it."""
    A = np.column_stack([X, np.ones(len(X))])
    found = np.empty(L.shape)
    for row in range(len(A)):
        rest = np.delete(np.arange(len(A)), row)
        gram = A[rest].T @ A[rest] + delta * np.eye(A.shape[1])
        found[row] = A[row] @ np.linalg.solve(gram, A[rest].T @ L[rest])
    return found


def test_the_strongest_ridge_near_the_least_error_is_chosen():
    X, classes = measurements(60)
    X, L = unit_rows(X), np.eye(3)[classes]
    errors = [np.square(slow(X, L, 2.0 * factor) - L).sum() for factor in WEAKER]
    best = next(i for i, each in enumerate(errors) if each <= 1.01 * min(errors))
    delta, predictions = chosen_ridge(X, L, 2.0)
    assert delta == pytest.approx(2.0 * WEAKER[best]) and best > 0
    np.testing.assert_allclose(predictions, slow(X, L, delta), atol=1e-6)


def test_rows_without_the_modality_are_left_out():
    X, classes = measurements(60)
    X, L = unit_rows(X), np.eye(3)[classes]
    there = np.arange(60) % 3 > 0
    delta, predictions = chosen_ridge(np.where(there[:, None], X, 0.0), L, 1.0)
    alone = chosen_ridge(X[there], L[there], 1.0)
    assert delta == alone[0] and not predictions[~there].any()
    np.testing.assert_array_equal(predictions[there], alone[1])
    few = chosen_ridge(np.where(np.arange(60)[:, None] < 5, X, 0.0), L, 1.0)
    assert few[0] == 1.0 and not few[1].any()


def test_words_keep_their_ridge():
    rng = np.random.default_rng(0)
    X = unit_rows(sp.random_array((80, 300), density=0.03, rng=rng, format="csr"))
    L = np.eye(4)[rng.integers(0, 4, 80)]
    delta, predictions = chosen_ridge(X, L, 1.0)
    assert delta == 1.0
    has = np.asarray(abs(X).sum(axis=1)).ravel() > 0
    np.testing.assert_allclose(predictions[has], slow(X.toarray()[has], L[has], 1.0), atol=1e-6)


def test_a_sample_of_the_chunk_is_judged_with_its_own_labels():
    X, classes = measurements(90)
    X, L = unit_rows(X), sp.csr_array(np.eye(3)[classes])
    sample = np.arange(30) * 90 // 30
    held = HeldOut.of({"image": X[sample]}, L, 1.0)
    assert (held.L.toarray() == L.toarray()[sample]).all()
    assert held.deltas["image"] == chosen_ridge(X[sample], L.toarray()[sample], 1.0)[0]


def test_a_constant_is_added_to_rows_that_are_there():
    X = sp.csr_array(np.array([[0.0, 2.0], [0.0, 0.0]], dtype=np.float32))
    assert with_constant(X).toarray().tolist() == [[0, 2, 1], [0, 0, 0]]
    assert with_constant(X).dtype == with_constant(X.toarray()).dtype == np.float32


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_measurements_in_any_unit_and_with_any_offset_are_learned(shift):
    X, classes = measurements(400, seed=1)
    X = {"sensor": X + shift, "other": -X[:, ::2]}
    y, L = [[f"class {each}"] for each in classes], np.eye(3)[classes]
    model = OASIS(32, labels="orthogonal", random_state=0)
    model.partial_fit({k: x[:300] for k, x in X.items()}, y[:300])
    found = model.encode({k: x[300:] for k, x in X.items()})
    assert mean_average_precision(found, model.codes_, L[300:], L[:300]) > 0.9


def test_predictions_of_centred_features_have_the_mean_of_the_labels():
    rng = np.random.default_rng(2)
    X = {"a": rng.standard_normal((1600, 20)), "b": rng.standard_normal((1600, 20))}
    total = X["a"][:, 0] + X["b"][:, 0]
    y = [["usual"] if each > -1.2 else ["rare"] for each in total]
    model = OASIS(32, labels="orthogonal", random_state=0).partial_fit(X, y)
    share = np.mean([names == ["usual"] for names in y])
    predicted = model.predict_labels(X)[:, model.classes_.index("usual")]
    assert predicted.mean() == pytest.approx(share, abs=0.02)
    assert np.mean((predicted > 0.5) == (total > -1.2)) > 0.85


def test_the_ridge_from_sums_is_that_of_generalised_cross_validation():
    rng = np.random.default_rng(5)
    label = rng.integers(0, 3, 240)
    small = 0.02 * (np.eye(3)[label] + 0.3 * rng.standard_normal((240, 3)))
    X = with_constant(np.column_stack([np.ones(240), small]))
    L = np.eye(3)[label]
    others = rng.standard_normal((240, 2))  # targets that are no labels
    ridge = start_round(Ridge.zero(5, 5, 1.0), X).finish(np.hstack([others, L]))
    errors = []
    for delta in WEAKER:
        H = X @ np.linalg.solve(X.T @ X + delta * np.eye(5), X.T)
        errors.append(np.square(L - H @ L).sum() / (240 - np.trace(H)) ** 2)
    expected = WEAKER[np.flatnonzero(np.array(errors) <= MARGIN * min(errors))[0]]
    assert ridge_by_sums(ridge, 2) == pytest.approx(expected)
    assert expected < 0.1
    again = ridge.with_delta(expected)
    W = np.linalg.solve(X.T @ X + expected * np.eye(5), X.T @ np.hstack([others, L])).T
    np.testing.assert_allclose(again.W, W, rtol=1e-8)
    np.testing.assert_allclose(again.gram(), X.T @ X, rtol=1e-12)


def test_with_few_rows_a_feature_the_ridge_stays():
    X = with_constant(np.random.default_rng(6).random((30, 20)))
    ridge = start_round(Ridge.zero(1, 21, 0.5), X).finish(np.ones((30, 1)))
    assert ridge_by_sums(ridge, 0) == 0.5


@pytest.mark.parametrize("content", [0, 8])
def test_classes_that_come_one_by_one_in_different_units_are_told_apart(content, tmp_path):
    X, classes = measurements(600)
    model = OASIS(16, content=content, labels="orthogonal", random_state=0)
    for number in range(3):
        rows = X[:400][classes[:400] == number]
        model.partial_fit({"f": rows}, [[f"class {number}"]] * len(rows))
        model.save(tmp_path / "model.safetensors")
        model = OASIS.load(tmp_path / "model.safetensors")
    predicted = model.predict_labels({"f": X[400:]}).argmax(axis=1)
    strong = replace(model.state_.ridges["f"], delta=1.0).with_delta(1.0)
    by_strong = (
        with_constant(unit_rows(X[400:])) @ strong.W[model.state_.n_content_targets("f") :].T
    ).argmax(axis=1)
    for number in range(3):
        assert (predicted == number)[classes[400:] == number].mean() > 0.9
    assert (by_strong == classes[400:]).mean() < 0.7  # the test can tell
