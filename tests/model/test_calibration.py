"""How sure predictions are, told by samples before they are learned."""

import copy

import numpy as np
import pytest
import scipy.sparse as sp

from oasis import OASIS
from oasis.model.calibration import MEMORY, Calibration


def samples(rng, n, centres, noise=0.1):
    classes = rng.integers(0, len(centres), n)
    X = centres[classes] + noise * rng.standard_normal((n, centres.shape[1]))
    return {"image": X.astype(np.float32)}, [[f"class {each}"] for each in classes]


@pytest.fixture(scope="module")
def stream():
    rng = np.random.default_rng(5)
    centres = rng.standard_normal((6, 40))
    model = OASIS(32, random_state=0)
    chunks = [samples(rng, 300, centres) for _ in range(4)]
    for X, y in chunks:
        model.partial_fit(X, y)
    return rng, centres, model


def test_sums_are_those_of_the_largest_predictions():
    predictions = np.array([[0.9, 0.2, 0.4], [0.1, 0.6, 0.5], [0.3, 0.3, 0.3]], dtype=np.float32)
    L = sp.csr_array([[1.0, 0, 0], [1.0, 0, 1.0], [0, 0, 0]])  # the last has no known class
    found = Calibration.none().plus(predictions, L)
    for sums, values in ((found.hits, [0.9, 0.5]), (found.misses, [0.4, 0.6])):
        np.testing.assert_allclose(sums, [2, sum(values), np.square(values).sum()], rtol=1e-6)


def test_a_sample_with_every_class_misses_nothing():
    after = Calibration.none().plus(np.ones((1, 2), np.float32), sp.csr_array([[1.0, 1.0]]))
    assert after.hits[0] == 1 and after.misses[0] == 0


def test_old_samples_fade():
    rng = np.random.default_rng(0)
    calibration = Calibration.none()
    for level in (0.2, 0.9):
        for _ in range(40):
            predictions = rng.normal(level, 0.01, (512, 2)).astype(np.float32)
            calibration = calibration.plus(predictions, sp.csr_array(np.tile([1.0, 0.0], (512, 1))))
    assert calibration.hits[0] == MEMORY
    assert calibration.hits[1] / calibration.hits[0] == pytest.approx(0.9, abs=0.02)


def test_halfway_lies_between_hits_and_misses_and_order_is_kept():
    rng = np.random.default_rng(1)
    predictions = np.stack([rng.normal(0.9, 0.2, 4000), rng.normal(0.1, 0.1, 4000)], axis=1)
    L = sp.csr_array(np.tile([1.0, 0.0], (4000, 1)))
    calibration = Calibration.none().plus(predictions.astype(np.float32), L)
    values = np.linspace(-1, 2, 301).astype(np.float32)
    sure = calibration.sure(values)
    assert (np.diff(sure) >= 0).all()
    assert 0 <= sure.min() < 0.01
    assert 0.99 < sure.max() <= 1
    halfway = values[np.abs(sure - 0.5).argmin()]
    assert halfway == pytest.approx(0.5, abs=0.03)
    # the posterior of a hit for two normal distributions with the mean of both variances
    slope = 0.8 / ((0.2**2 + 0.1**2) / 2)
    np.testing.assert_allclose(sure, 1 / (1 + np.exp(-slope * (values - 0.5))), atol=0.05)


def test_with_as_many_wrong_as_right_predictions_nothing_is_sure():
    predictions = np.tile(np.float32([[0.1, 0.3], [0.3, 0.1]]), (500, 1))
    L = sp.csr_array(np.tile([1.0, 0.0], (1000, 1)))
    calibration = Calibration.none().plus(predictions, L)
    assert calibration.share_right == pytest.approx(0.5, abs=0.01)
    most = calibration.share_right
    assert calibration.sure(np.float32([0.3]), most)[0] < 0.35


def test_samples_of_a_chunk_are_judged_before_they_are_learned(stream):
    rng, centres, model = stream
    X, y = samples(rng, 100, centres)
    predictions = model.state_.label_map.above_usual(model.predict_labels(X))
    expected = model.state_.calibration.plus(predictions, model.state_.labels.indicator(y))
    again = copy.deepcopy(model).partial_fit(X, y)
    np.testing.assert_allclose(again.state_.calibration.hits, expected.hits, rtol=1e-6)
    np.testing.assert_allclose(again.state_.calibration.misses, expected.misses, rtol=1e-6)
    predictions = again.state_.label_map.above_usual(again.predict_labels(X))
    later = model.state_.calibration.plus(predictions, again.state_.labels.indicator(y))
    assert np.abs(later.hits - expected.hits).max() > 1e-3  # the test can tell before from after


def test_a_query_near_a_class_is_told_from_noise(stream):
    rng, centres, model = stream
    known, _ = samples(rng, 300, centres)
    noise = {"image": rng.standard_normal((300, 40)).astype(np.float32)}
    assert (model.evidence(known) > 0.5).mean() > 0.95
    assert (model.evidence(noise) < 0.5).mean() > 0.75
    assert model.predict_proba(known).shape == (300, 6)


def test_one_modality_is_judged_by_what_is_usual_for_it_alone():
    rng = np.random.default_rng(4)
    centres = rng.standard_normal((6, 40))

    def draw(n):
        classes = rng.integers(0, 6, n)
        clear = centres[classes] + 0.5 * rng.standard_normal((n, 40))
        vague = centres[classes] + 4.0 * rng.standard_normal((n, 40))
        return {"clear": clear, "vague": vague}, [[f"class {each}"] for each in classes]

    model = OASIS(32, random_state=0)
    for _ in range(3):
        model.partial_fit(*draw(400))
    X, _ = draw(300)
    state = model.state_
    right = state.calibration.share_right
    for name in X:
        one = {name: X[name]}
        above = state.label_map.above_usual(model.predict_labels(one))
        np.testing.assert_allclose(model.predict_proba(one), state.alone[name].sure(above, right))
        both = {name: X[name], "clear" if name == "vague" else "vague": np.zeros((300, 40))}
        np.testing.assert_allclose(model.evidence(both), model.evidence(one), rtol=1e-6)
    vague, clear = state.alone["vague"].hits, state.alone["clear"].hits
    assert vague[1] / vague[0] < 0.7 * clear[1] / clear[0]
    assert (model.evidence({"vague": X["vague"]}) > 0.5).mean() > 0.4
    again = copy.deepcopy(model).partial_fit(*draw(50))
    assert again.state_.alone["vague"].hits[0] > state.alone["vague"].hits[0]


def test_chunks_of_new_classes_alone_change_nothing():
    rng = np.random.default_rng(2)
    model = OASIS(16, random_state=0)
    for name in ("sky", "sea"):
        model.partial_fit({"image": rng.random((20, 8))}, [[name]] * 20)
    assert not model.state_.calibration.hits.any()
    assert not model.state_.calibration.misses.any()


def test_a_model_without_classes_cannot_tell():
    rng = np.random.default_rng(3)
    model = OASIS(16, content=16, random_state=0).partial_fit(
        {"image": rng.random((20, 8))}, [()] * 20
    )
    np.testing.assert_array_equal(model.evidence({"image": rng.random((3, 8))}), np.ones(3))


def test_saved_and_loaded(tmp_path, stream):
    _, centres, model = stream
    model.save(tmp_path / "m")
    loaded = OASIS.load(tmp_path / "m")
    np.testing.assert_array_equal(
        loaded.evidence({"image": centres}), model.evidence({"image": centres})
    )


def test_without_classes_a_modality_that_no_sample_had_tells_nothing():
    rng = np.random.default_rng(6)
    X = {"image": rng.random((30, 8)), "text": np.zeros((30, 5))}
    model = OASIS.for_search(128, random_state=0).partial_fit(X, [[]] * 30)
    assert model.evidence({"image": X["image"][:2]}).tolist() == [1, 1]
    text = rng.random((2, 5))
    assert model.evidence({"text": text}).tolist() == [0, 0]
    assert model.evidence({"image": X["image"][:2], "text": text}).tolist() == [1, 1]
    assert model.project_with_evidence({"text": text})[1].tolist() == [0, 0]
