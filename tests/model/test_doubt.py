"""The doubt bit: items whose labels were predicted, and none of them surely."""

import copy

import numpy as np
import pytest
import scipy.sparse as sp

from oasis import OASIS
from oasis.codes import unpack
from oasis.model.calibration import PRIOR_HIT, PRIOR_SAMPLES, PRIOR_USUAL, Calibration
from oasis.model.codewords import DOUBT
from oasis.model.weighing import DOUBT_WEIGHT, NOVEL, STRANGE, confidence

N_CLASSES = 5


def draw(rng, n, centres, noise):
    classes = rng.integers(0, N_CLASSES, n)
    X = centres[classes] + noise * rng.standard_normal((n, centres.shape[1]))
    return {"image": X.astype(np.float32)}, [[f"class {each}"] for each in classes]


@pytest.fixture(scope="module")
def stream():
    rng = np.random.default_rng(7)
    centres = rng.standard_normal((N_CLASSES, 40))
    model = OASIS(128, random_state=0)
    for _ in range(3):
        model.partial_fit(*draw(rng, 300, centres, 0.5))
    return rng, centres, model


def doubt(model, codes):
    return unpack(codes)[:, model.n_label_bits - 1] > 0


def test_given_labels_are_not_doubted(stream):
    rng, centres, model = stream
    after = copy.deepcopy(model).partial_fit(*draw(rng, 200, centres, 5.0))
    assert not doubt(after, after.codes_).any()
    assert not after.state_.codewords[:, -1].any()


def test_unlabelled_items_are_doubted_if_no_label_is_sure(stream):
    rng, centres, model = stream
    X = {"image": np.concatenate([draw(rng, 100, centres, s)[0]["image"] for s in (0.1, 4.0)])}
    after = copy.deepcopy(model).partial_fit(X, [()] * 200)
    doubted = doubt(after, after.codes_)
    np.testing.assert_array_equal(doubted, model.predict_proba(X).max(axis=1) < DOUBT)
    assert not doubted[:100].any()
    assert doubted[100:].mean() > 0.3


def test_the_doubt_bit_of_a_query_depends_on_how_sure_its_labels_are(stream):
    rng, centres, model = stream
    known, _ = draw(rng, 50, centres, 0.3)
    noise = rng.standard_normal((50, 40)).astype(np.float32)
    X = {"image": np.concatenate([known["image"], noise])}
    state, n_label = model.state_, model.n_label_bits
    query_map, values = state.query_map, model.project(X, content=0.0)
    owned = values[:, n_label - 1 - state.n_owned : n_label - 1].max(axis=1)
    parts = query_map.parts(X)
    sure = confidence(
        query_map.labels.above_shares(parts.labels), query_map.sureness.low_hits(parts.has)
    )
    sure /= 1 + (parts.strange / STRANGE) ** 2
    sure /= 1 + (np.maximum(query_map.novelty.of(parts.content), 0) / NOVEL) ** 2
    expected = DOUBT_WEIGHT * (1 - 2 * sure) * np.maximum(owned, 0)
    np.testing.assert_allclose(values[:, n_label - 1], expected, rtol=1e-4, atol=1e-7)
    assert (values[:50, n_label - 1] < 0).mean() > 0.9
    assert (values[50:, n_label - 1] > 0).any()


def test_the_doubt_bit_says_how_reliable_items_in_doubt_are(stream):
    rng, centres, model = stream
    after = copy.deepcopy(model)
    for _ in range(2):
        after.partial_fit(*draw(rng, 300, centres, 3.0))  # hard to predict
        after.partial_fit(draw(rng, 600, centres, 3.0)[0], [()] * 600)
    query_map, n_label, n_owned = after.state_.query_map, after.n_label_bits, after.state_.n_owned
    X, _ = draw(rng, 50, centres, 1.0)
    parts = query_map.parts(X)
    read = query_map._label_weights(parts) @ query_map.readout.values
    sure = confidence(
        query_map.labels.above_shares(parts.labels), query_map.sureness.low_hits(parts.has)
    )
    sure /= 1 + (parts.strange / STRANGE) ** 2
    sure /= 1 + (np.maximum(query_map.novelty.of(parts.content), 0) / NOVEL) ** 2
    largest = read[:, n_label - 1 - n_owned : n_label - 1].max(axis=1)
    least = DOUBT_WEIGHT * largest
    assert (read[:, n_label - 1] < -least).any()  # more than the least of doubt
    expected = sure * np.minimum(read[:, n_label - 1], -least) + (1 - sure) * least
    values = after.project(X, content=0.0)
    scaled = values[:, n_label - 1 - n_owned : n_label - 1].max(axis=1) / largest
    np.testing.assert_allclose(values[:, n_label - 1] / scaled, expected, rtol=1e-3, atol=1e-5)


def test_a_given_label_comes_before_the_same_one_in_doubt(stream):
    rng, centres, model = stream
    X, y = draw(rng, 30, centres, 0.5)
    given = copy.deepcopy(model).partial_fit(X, y)
    signs = unpack(given.codes_).astype(np.float32)
    doubted = signs.copy()
    doubted[:, model.n_label_bits - 1] = 1
    queries = model.project({"image": centres.astype(np.float32)})
    assert (queries @ signs.T > queries @ doubted.T).all()


def test_an_item_in_doubt_does_not_ask_for_others_in_doubt(stream):
    _, _, model = stream
    codes = np.zeros((1, 16), dtype=np.uint8)
    in_doubt = codes.copy()
    bit = model.n_label_bits - 1
    in_doubt[0, bit // 8] |= 1 << bit % 8
    for content in (None, 0.0, 1.0):
        np.testing.assert_array_equal(
            model.project_codes(in_doubt, content), model.project_codes(codes, content)
        )


@pytest.mark.parametrize(
    ("parameters", "n_owned", "n_doubt"),
    [
        ({"n_bits": 128}, 56, 1),
        ({"n_bits": 128, "content": 64}, 55, 1),
        ({"n_bits": 256}, 79, 1),
        ({"n_bits": 128, "owned": 14}, 14, 1),
        ({"n_bits": 128, "owned": 80}, 80, 0),
        ({"n_bits": 128, "owned": 0}, 0, 0),
        ({"n_bits": 128, "content": 128}, 0, 0),
        ({"n_bits": 64}, 9, 0),
        ({"n_bits": 64, "content": 56}, 0, 0),
    ],
)
def test_where_codes_have_a_doubt_bit(parameters, n_owned, n_doubt, tmp_path):
    rng = np.random.default_rng(0)
    X, y = draw(rng, 40, rng.standard_normal((N_CLASSES, 12)), 0.3)
    model = OASIS(**parameters, random_state=0).partial_fit(X, y).partial_fit(X, [()] * 40)
    assert (model.state_.n_owned, model.state_.n_doubt) == (n_owned, n_doubt)
    model.save(tmp_path / "model.safetensors")
    again = OASIS.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.project(X), model.project(X))


def test_a_low_hit_lies_half_a_deviation_below_the_usual_one():
    rng = np.random.default_rng(3)
    n = 3000
    hits = rng.normal(0.7, 0.2, n).astype(np.float32)
    calibration = Calibration.none().plus(hits[:, None], sp.csr_array(np.ones((n, 1))))
    prior = rng.normal(*PRIOR_HIT, 100_000)
    weights = np.repeat([1.0, PRIOR_SAMPLES / 100_000], [n, 100_000])
    seen = np.concatenate([hits, prior])
    mean = np.average(seen, weights=weights)
    deviation = np.average((seen - mean) ** 2, weights=weights) ** 0.5
    usual = (hits.sum() + PRIOR_SAMPLES * PRIOR_USUAL) / (n + PRIOR_SAMPLES)
    assert calibration.low_hit == pytest.approx(usual - deviation / 2, abs=1e-3)


def test_a_low_hit_is_at_least_a_quarter_of_the_usual_one():
    hits = np.tile(np.array([[0.0], [2.0], [0.0], [0.0]], np.float32), (500, 1))
    calibration = Calibration.none().plus(hits, sp.csr_array(np.ones((2000, 1))))
    assert calibration.low_hit == calibration.usual_hit / 4


def test_what_was_predicted_among_fewer_classes_fades(stream):
    rng, centres, model = stream
    before = model.state_
    X, y = draw(rng, 30, centres, 0.5)
    X["image"][:10] = 3.0
    y[:10] = [["a class that nobody knew"]] * 10
    known = [each if each[0] in model.classes_ else () for each in y]
    after = copy.deepcopy(model).partial_fit(X, y).state_
    predictions = before.label_map.above_shares(model.predict_labels(X))
    plus = before.calibration.plus(predictions, before.labels.indicator(known))
    share = N_CLASSES / (N_CLASSES + 1)
    np.testing.assert_allclose(after.calibration.hits, share * plus.hits, rtol=1e-6)
    np.testing.assert_allclose(after.calibration.misses, share * plus.misses, rtol=1e-6)
