"""Label bits of items without labels: how reliable they are, and how queries read them."""

import copy

import numpy as np
import pytest
import scipy.sparse as sp
import toy

from oasis import OASIS
from oasis.datasets import load
from oasis.errors import FormatError
from oasis.metrics import asymmetric_average_precision
from oasis.model.calibration import SAMPLES, Calibration, Sureness
from oasis.model.codewords import likely_codes
from oasis.model.query import likeliest_weights
from oasis.model.readout import RIDGE, Codebook, CodeSums
from oasis.store import read_arrays, write_arrays


def signs(values):
    return np.where(values > 0, 1.0, -1.0)


def draw(n, r, c, seed):
    rng = np.random.default_rng(seed)
    L = (rng.random((n, c)) < 0.3).astype(float)
    return signs(L @ rng.standard_normal((c, r)) + 0.3 * rng.standard_normal((n, r))), L


@pytest.mark.parametrize("n_guessed", [1, 40, 5000])
def test_the_readout_is_a_regression_on_given_labels_and_as_many_guesses_as_are_stored(n_guessed):
    r, c = 16, 5
    (B, L), (guessed, true) = draw(200, r, c, 1), draw(70, r, c - 1, 2)
    book = Codebook.zero(r).plus(B, sp.csr_array(L))
    guesses = CodeSums.zero(r).plus(guessed, sp.csr_array(true))
    everything = book.stored(guesses, n_guessed)

    rows = np.vstack([B, guessed])
    targets = np.vstack([L, np.pad(true, ((0, 0), (0, 1)))])  # a class came after the guesses
    weights = np.repeat([1.0, n_guessed / 70], [200, 70])
    n = weights.sum()
    x, y = (each - np.average(each, axis=0, weights=weights) for each in (rows, targets))
    covariance = (x * weights[:, None]).T @ x / n
    np.testing.assert_allclose(everything.bits.covariance(), covariance, atol=1e-12)
    C = np.random.default_rng(0).standard_normal((c, r))
    D0 = C / np.abs(C).sum(axis=1, keepdims=True)
    joint = (x * weights[:, None]).T @ y / n + RIDGE * D0.T
    expected = np.linalg.solve(covariance + RIDGE * np.eye(r), joint).T
    np.testing.assert_allclose(book.readout(everything, C), expected, atol=1e-10)


def test_guesses_are_the_label_bits_that_samples_would_have_without_their_labels():
    model = OASIS.for_search(128, random_state=0).partial_fit(*toy.chunk(120, 0))
    X, y = toy.chunk(SAMPLES, 1)
    y[:9] = [["a class that nobody knew"]] * 9
    before = copy.deepcopy(model).state_
    after = model.partial_fit(X, y).state_
    known = [[name for name in each if name in before.classes] for each in y]
    L = before.labels.indicator(known)

    by_both = before.label_map.combined(*before.label_map.parts(X))
    calibration = before.calibration.plus(before.label_map.above_usual(by_both), L)
    none = {name: Calibration.none() for name in X}
    above = before.label_map.above_usual(by_both)
    sure = Sureness(calibration, none).of(above, {name: np.ones(SAMPLES, bool) for name in X})
    B = signs(likely_codes(likeliest_weights(above), sure, before.codewords, before.n_owned))
    old = before.guesses
    assert old.bits.n == 120  # by leave-one-out predictions of the first chunk
    np.testing.assert_array_equal(after.guesses.bits.BB, old.bits.BB + B.T @ B)
    np.testing.assert_array_equal(after.guesses.LB, old.LB + L.T @ B)
    np.testing.assert_array_equal(after.guesses.counts, old.counts + L.sum(axis=0))
    assert after.guesses.bits.n == old.bits.n + SAMPLES


@pytest.mark.parametrize("content", [0, 48])
def test_they_count_as_soon_as_items_without_labels_are_stored(content):
    model = OASIS.for_search(128, content=content, random_state=0).partial_fit(*toy.chunk(100, 0))
    X, y = toy.chunk(60, 1)
    asked = toy.chunk(30, 2)[0]
    model.partial_fit(X, y)
    state = model.state_
    assert state.guesses.bits.n
    book = state.codebook
    assert book.stored(state.guesses, 0) is book  # no item is without labels
    before = model.project(asked)
    model.partial_fit(X, [()] * 60)
    assert model.state_.guesses is state.guesses
    assert not np.allclose(model.project(asked), before, rtol=0.01)


def test_items_without_labels_are_found_better_by_them(monkeypatch):
    data = load("synthetic-coco79", n_samples=2000)
    queries, stored = np.split(np.arange(data.n_samples), [300])

    def found():
        model, codes = OASIS.for_search(128, random_state=0), []
        for rows in np.array_split(stored, 4):
            labels = [
                names if row % 2 else () for row, names in zip(rows, data.labels(rows), strict=True)
            ]
            codes.append(model.partial_fit(data.take(rows), labels).codes_.copy())
        asked = model.project(data.take(queries))
        precisions = asymmetric_average_precision(
            asked, np.vstack(codes), data.L[queries], data.L[stored]
        )
        return precisions.mean()

    with_guesses = found()
    monkeypatch.setattr(Codebook, "stored", lambda self, guesses, n_guessed: self)
    assert with_guesses > found() + 0.01


def test_a_model_of_content_alone_has_no_guesses():
    model = OASIS(n_bits=64, content=64, random_state=0).partial_fit(*toy.chunk(50, 0))
    model.partial_fit(*toy.chunk(50, 1))
    model.partial_fit(toy.chunk(20, 2)[0], [()] * 20)
    assert model.state_.guesses.bits.BB.shape == (0, 0)
    assert model.project(toy.chunk(5, 3)[0]).any()


@pytest.mark.parametrize(
    ("name", "value"), [("guesses/LB", np.zeros((99, 80))), ("guesses/bits/BB", np.zeros((3, 3)))]
)
def test_guesses_of_another_shape_are_damage(name, value, tmp_path):
    path = tmp_path / "model.safetensors"
    OASIS.for_search(128, random_state=0).partial_fit(*toy.chunk(50, 0)).save(path)
    metadata, arrays = read_arrays(path, lambda _: None)
    write_arrays(path, {**arrays, name: value}, metadata)
    with pytest.raises(FormatError, match="is damaged"):
        OASIS.load(path)
