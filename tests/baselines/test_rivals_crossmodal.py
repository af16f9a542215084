"""DOCH and CHOICE, online rivals published for cross-modal search."""

import hasher_checks
import literal_crossmodal
import numpy as np
import pytest
import toy
from baseline_makers import VECTORS, choice, doch

from oasis.baselines import CHOICE, DOCH
from oasis.codes import unpack
from oasis.errors import InputError


@pytest.mark.parametrize(
    ("check", "make"),
    hasher_checks.cases(
        # the codes and labels of everything seen are kept, to draw anchors from
        doch=(doch, {"check_memory_does_not_grow_with_samples"}),
        choice=(choice, set()),
        # the width of the kernel and the mean of its features are those of a batch
        choice_as_published=(
            lambda seed=0: choice(seed, centre="batch"),
            {"check_encoding_is_row_wise"},
        ),
    ),
)
def test_conformance(check, make):
    check(make)


def test_neither_needs_to_know_the_classes():
    assert not any(each.needs_classes or each.is_batch for each in (DOCH, CHOICE))


def equals_the_literal(model, slow, seed, sizes):
    """Classes keep arriving: 5, then 9, then 10."""
    for number, n in enumerate(sizes):
        X, y = toy.chunk(n, [seed, number], classes=toy.NAMES[: (5, 9, 10)[number]], bare=0.1)
        expected = slow.partial_fit(X, y)
        model.partial_fit(X, y)
        assert model.classes_ == tuple(slow.classes)
        assert np.array_equal(unpack(model.codes_), expected)
    query = toy.chunk(50, [seed, 99])[0]
    assert np.allclose(model.project(query), slow.project(query), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "options", [{"n_anchors": 7}, {"alpha": 0.9, "theta": 2.0, "n_iter": 1, "n_anchors": 50}]
)
def test_doch_equals_the_published_formulas(options, seed):
    model = DOCH(8, random_state=seed, **options)
    slow = literal_crossmodal.LiteralDOCH(8, seed=seed, **{"alpha": 0.45} | options)
    equals_the_literal(model, slow, seed, (40, 50, 30))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "options",
    [
        {"n_anchors": 25},
        {"n_anchors": 25, "centre": "batch"},
        {"alpha": 2.0, "beta": 0.5, "eta": 3.0, "gamma": 0.3, "xi": 0.1, "rho": 1.0},
    ],
)
@pytest.mark.parametrize("vectors", [None, VECTORS])
def test_choice_equals_the_published_formulas(vectors, options, seed):
    model = CHOICE(8, vectors or "orthogonal", random_state=seed, **options)
    slow = literal_crossmodal.LiteralCHOICE(8, vectors, seed=seed, **options)
    equals_the_literal(model, slow, seed, (40, 50, 30))


def test_doch_has_the_published_alpha_of_the_next_length():
    chunk = toy.chunk(60)
    for n_bits, alpha in ((64, 0.15), (48, 0.15), (256, 0.1)):
        given = DOCH(n_bits, alpha=alpha, random_state=0).partial_fit(*chunk)
        assert np.array_equal(DOCH(n_bits, random_state=0).partial_fit(*chunk).codes_, given.codes_)


def test_a_lone_query_of_choice_is_answered_unless_batches_are_centred_as_published():
    X, y = toy.chunk(60)
    alone = {name: values[:1] for name, values in toy.chunk(1, 9)[0].items()}
    assert choice().partial_fit(X, y).project(alone).any()
    assert not choice(centre="batch").partial_fit(X, y).project(alone).any()


@pytest.mark.parametrize(("make", "share"), [(doch, 0.8), (choice, 0.9)])
def test_classes_are_learned(make, share):
    model = make()
    for number, classes in enumerate((toy.NAMES[:3], toy.NAMES[:6], toy.NAMES[6:])):
        X, y = toy.chunk(150, number, classes=classes)
        model.partial_fit(X, y)
    query, labels = toy.chunk(200, 99, classes=toy.NAMES[6:])
    distance = (unpack(model.encode(query)) != unpack(model.codes_)[:, None]).sum(axis=2)
    nearest = distance.argmin(axis=0)
    assert np.mean([bool(set(labels[j]) & set(y[i])) for j, i in enumerate(nearest)]) > share


@pytest.mark.parametrize("make", [doch, choice])
def test_features_whose_squares_overflow_are_refused_and_nothing_changes(make):
    model = make().partial_fit(*toy.chunk(30))
    before = hasher_checks.fingerprint(model)
    for sparse in ((), ("image", "text")):
        X, y = toy.chunk(20, 1, sparse=sparse)
        with pytest.raises(InputError, match="features this large cannot be used"):
            model.partial_fit({name: values * 1e200 for name, values in X.items()}, y)
        assert hasher_checks.fingerprint(model) == before


@pytest.mark.parametrize(
    ("hasher", "message"),
    [
        (DOCH(8, alpha=0), "alpha must be a finite number, positive, got 0"),
        (DOCH(8, theta=-1), "theta must be a finite number, at least 0, got -1"),
        (DOCH(8, n_anchors=0), "n_anchors must be a positive integer, got 0"),
        (DOCH(8, n_iter=0), "n_iter must be a positive integer, got 0"),
        (CHOICE(8, beta=0), "beta must be a finite number, positive, got 0"),
        (CHOICE(8, rho=-1), "rho must be a finite number, at least 0, got -1"),
        (CHOICE(8, n_anchors=0), "n_anchors must be a positive integer, got 0"),
        (CHOICE(8, centre="last"), "centre must be 'first' or 'batch', got 'last'"),
        (CHOICE(8, labels=7), "labels must be a mapping"),
    ],
)
def test_bad_parameters_are_refused(hasher, message):
    with pytest.raises(InputError, match=message):
        hasher.partial_fit({"image": np.ones((6, 4))}, [["sky"]] * 6)
    assert not hasattr(hasher, "state_")


@pytest.mark.parametrize("make", [doch, choice])
def test_the_length_of_a_code_is_fixed_once_learned(make):
    model = make().partial_fit(*toy.chunk(30))
    with pytest.raises(InputError, match="n_bits is fixed once a model has learned"):
        model.set_params(n_bits=32).partial_fit(*toy.chunk(30, 1))
