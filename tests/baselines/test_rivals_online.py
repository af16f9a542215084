"""THOR, IW-OMH and HCFW, which learn codes of classes: the published formulas, and brute force."""

import copy
from itertools import pairwise

import hasher_checks
import literal_rivals
import numpy as np
import pytest
import scipy.linalg
import toy
from baseline_makers import N_BITS, VECTORS, hcfw, iwomh, thor
from hypothesis import given, settings
from hypothesis import strategies as st

from oasis.baselines import HCFW, IWOMH, THOR
from oasis.baselines.shared.class_codes import ClassCodes
from oasis.baselines.shared.solvers import solve_sylvester
from oasis.codes import pack, unpack
from oasis.errors import InputError, UnknownWordError

# THOR


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "options",
    [{}, {"alpha": 1.0, "beta": 0.001, "gamma": 1000.0}, {"n_iter": 3, "theta": 2.0}],
)
def test_thor_equals_the_published_formulas(options, seed):
    model = THOR(8, VECTORS, random_state=seed, **options)
    slow = literal_rivals.LiteralTHOR(8, VECTORS, seed=seed, **options)
    for number, n in enumerate((40, 60, 30)):
        # classes keep arriving: 5, then 9, then 10
        classes = toy.NAMES[: (5, 9, 10)[number]]
        X, y = toy.chunk(n, [seed, number], classes=classes, bare=0.1)
        expected = slow.partial_fit(X, y)
        model.partial_fit(X, y)
        assert model.classes_ == tuple(slow.classes)
        assert np.array_equal(unpack(model.codes_), expected)
    query = toy.chunk(50, [seed, 99])[0]
    projections = sum(query[name] @ slow.W[name].T for name in query)
    assert np.allclose(model.project(query), projections, rtol=1e-4, atol=1e-5)


def test_thor_at_128_bits_uses_the_hadamard_matrix_as_it_is():
    model = THOR(128, "orthogonal", random_state=0).partial_fit(*toy.chunk(20))
    T = scipy.linalg.hadamard(128)[:, : len(model.classes_)].astype(float)
    C = 2 * np.linalg.solve(T @ T.T + 10 * np.eye(128), 10 * T)
    assert np.allclose(model.state_.own.codewords.C, C)


def test_thor_takes_128_classes_and_refuses_more_before_anything_changes():
    model = THOR(8, "orthogonal", random_state=0)
    X = {"image": np.random.default_rng(0).random((64, 5))}
    model.partial_fit(X, [[f"a{i}"] for i in range(64)])
    before = hasher_checks.fingerprint(model)
    with pytest.raises(InputError, match="128 classes: 64 have come and the chunk brings 65 more"):
        model.partial_fit(X, [[f"b{i}", "b64"] for i in range(64)])
    assert hasher_checks.fingerprint(model) == before
    assert len(model.partial_fit(X, [[f"b{i}"] for i in range(64)]).classes_) == 128


def test_thor_refuses_a_class_without_a_word_before_anything_changes():
    model = thor().partial_fit(*toy.chunk(30))
    before = hasher_checks.fingerprint(model)
    X, _ = toy.chunk(2, 1)
    with pytest.raises(UnknownWordError):
        model.partial_fit(X, [["sky"], ["unicorn"]])
    assert hasher_checks.fingerprint(model) == before


def test_thor_solves_when_all_codes_and_features_lie_in_few_directions():
    model = thor()
    X, y = toy.chunk(5, classes=("sky",))
    model.partial_fit(X, y)  # one class: one code but for rounding, and 5 samples in 20 dimensions
    sums = model.state_.own.sums
    assert np.linalg.matrix_rank(sums["BB"]) < N_BITS
    for name, each in model.state_.features.items():
        XX = np.tril(each.XX) + np.tril(each.XX, -1).T
        W = model.state_.hash_function.weights[name]
        assert np.allclose(sums["BB"] @ W + 10 * W @ XX, 11 * each.BX)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 9),
    st.integers(1, 12),
    st.integers(1, 20),
    st.floats(1e-3, 1e3),
)
def test_sylvester_solution_has_no_residual(seed, r, d, n, gamma):
    rng = np.random.default_rng(seed)
    B, X = np.sign(rng.standard_normal((n, r))), rng.standard_normal((n, d))
    BB, XX, Y = B.T @ B, X.T @ X, B.T @ X
    lower = np.tril(XX) + np.triu(np.full((d, d), np.nan), 1)
    W = solve_sylvester(BB, np.asfortranarray(lower), Y, gamma)
    residual = BB @ W + gamma * W @ XX - Y
    assert np.abs(residual).max() <= 1e-9 * (1 + gamma) * max(1, np.abs(Y).max())


def test_codes_of_classes_are_learned():
    for model in (thor(), iwomh(), hcfw()):
        for number, classes in enumerate((toy.NAMES[:3], toy.NAMES[:6], toy.NAMES[6:])):
            X, y = toy.chunk(150, number, classes=classes)
            model.partial_fit(X, y)
        query, labels = toy.chunk(200, 99, classes=toy.NAMES[6:])
        distance = (unpack(model.encode(query)) != unpack(model.codes_)[:, None]).sum(axis=2)
        nearest = distance.argmin(axis=0)
        shares = [bool(set(labels[j]) & set(y[i])) for j, i in enumerate(nearest)]
        assert np.mean(shares) > 0.9


# IW-OMH


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("options", [{}, {"alpha": 3.0, "theta": 0.5, "delta": 2.0}])
def test_iwomh_equals_the_published_formulas(options, seed):
    model = IWOMH(8, toy.NAMES, VECTORS, random_state=seed, **options)
    slow = literal_rivals.LiteralIWOMH(8, toy.NAMES, VECTORS, seed=seed, **options)
    for number, n in enumerate((40, 60, 7)):
        X, y = toy.chunk(n, [seed, number], bare=0.1)
        expected = slow.partial_fit(X, y)
        model.partial_fit(X, y)
        assert np.array_equal(model.codes_, pack(expected))
    query = toy.chunk(50, [seed, 99])[0]
    assert np.allclose(model.project(query), slow.project(query), rtol=1e-4, atol=1e-5)


def test_iwomh_keeps_undecided_bits_as_zero_in_the_sums_and_clear_in_the_codes():
    model = iwomh()
    X, _ = toy.chunk(1)
    model.partial_fit(X, [["sky", "sea"]])
    C = model.state_.own.C[:, :2]
    undecided = C[:, 0] != C[:, 1]
    assert undecided.any() and not undecided.all()
    sums = model.state_.features["image"]
    assert not sums.BX[undecided].any() and sums.BX[~undecided].any()
    assert (unpack(model.codes_)[0, undecided] == -1).all()


@pytest.mark.parametrize("known", [0, 6])
def test_class_codes_do_not_raise_their_objective(known):
    rng = np.random.default_rng(0)
    for n_classes in (10, 40):
        # classes whose words are near each other
        E = rng.standard_normal((n_classes, 12)) + 1.5 * rng.standard_normal(12)
        E /= np.linalg.norm(E, axis=1, keepdims=True)
        start = np.where(rng.random((16, n_classes)) < 0.5, -1.0, 1.0)
        old = ClassCodes(start[:, :known], E[:known])
        values = []
        for n_iter in range(6):
            C = old.plus(E[known:], start[:, known:], n_iter, 100 * np.eye(16)).C
            Q = np.linalg.solve(C @ C.T + 100 * np.eye(16), C @ E)
            values.append(np.sum((E - C.T @ Q) ** 2) + 100 * np.sum(Q**2))
            assert np.array_equal(C[:, :known], start[:, :known])
        assert all(after <= before * (1 + 1e-12) for before, after in pairwise(values))
        assert values[-1] < 0.95 * values[0]


def test_a_ridge_on_every_entry_leaves_the_class_codes_as_drawn():
    start = literal_rivals.LiteralIWOMH(N_BITS, toy.NAMES, VECTORS, seed=0).start
    model = iwomh(ridge_on="entries").partial_fit(*toy.chunk(60))
    assert np.array_equal(model.state_.own.C, start)


def test_iwomh_weights_depend_on_the_batch_but_a_lone_query_is_answered():
    model = iwomh().partial_fit(*toy.chunk(60))
    X, _ = toy.chunk(30, 9)
    alone = {"image": X["image"][:1]}
    W, R = model.state_.hash_function.W, model.state_.hash_function.R
    assert np.array_equal(model.encode(alone), pack(alone["image"] @ W["image"]))
    one = {name: values[:1] for name, values in X.items()}
    h = {name: np.abs(values @ R[name]).sum() for name, values in one.items()}
    better = min(h, key=h.get)
    only = pack(one[better] @ W[better])
    assert np.array_equal(model.encode(one), only)


def test_iwomh_must_know_all_classes_and_says_so_before_anything_changes():
    with pytest.raises(InputError, match="IWOMH must know all classes of the stream in advance"):
        IWOMH(8).partial_fit(*toy.chunk(30))
    model = iwomh().partial_fit(*toy.chunk(30))
    before = hasher_checks.fingerprint(model)
    X, _ = toy.chunk(2, 1)
    with pytest.raises(InputError, match="sample 1 has class 'unicorn', which is not one of the"):
        model.partial_fit(X, [["sky"], ["unicorn"]])
    assert hasher_checks.fingerprint(model) == before
    assert model.classes_ == toy.NAMES and model.n_seen_ == 30


# HCFW


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("options", [{}, {"theta": 0.5, "delta": 2.0}, {"ridge_on": "diagonal"}])
def test_hcfw_equals_the_published_formulas(options, seed):
    model = HCFW(8, VECTORS, random_state=seed, **options)
    slow = literal_rivals.LiteralHCFW(8, VECTORS, seed=seed, **options)
    for number, n in enumerate((40, 60, 30)):
        # classes keep arriving: 5, then 9, then 10, more than there are bits
        X, y = toy.chunk(n, [seed, number], classes=toy.NAMES[: (5, 9, 10)[number]], bare=0.1)
        expected = slow.partial_fit(X, y)
        model.partial_fit(X, y)
        assert model.classes_ == tuple(slow.names)
        assert np.array_equal(model.codes_, pack(expected))
    query = toy.chunk(50, [seed, 99])[0]
    assert np.allclose(model.project(query), slow.project(query), rtol=1e-4, atol=1e-5)


def test_hcfw_codes_of_classes_stay_as_drawn_while_these_are_at_most_as_many_as_bits():
    rng = np.random.default_rng(0)
    for n_classes, known, same in ((16, 0, True), (16, 6, True), (60, 0, False), (60, 6, False)):
        E = rng.standard_normal((n_classes, 12)) + 1.5
        E /= np.linalg.norm(E, axis=1, keepdims=True)
        start = np.where(rng.random((16, n_classes)) < 0.5, -1.0, 1.0)
        learned = ClassCodes(start[:, :known], E[:known]).plus(E[known:], start[:, known:], 5)
        assert np.array_equal(learned.C, start) == same


def test_hcfw_takes_new_classes_and_never_changes_a_code():
    model = hcfw().partial_fit(*toy.chunk(30, classes=toy.NAMES[:4]))
    X = toy.chunk(4)[0]
    y = [[name] for name in model.classes_]
    before = copy.deepcopy(model).partial_fit(X, y).codes_
    model.partial_fit(*toy.chunk(30, 1, classes=toy.NAMES[4:]))
    assert len(model.classes_) == 10
    assert np.array_equal(model.partial_fit(X, y).codes_, before)
