"""DOCH and CHOICE, online rivals published for cross-modal search."""

import literal_crossmodal
import numpy as np
import pytest
import toy
from baseline_makers import VECTORS, choice

from oasis.baselines import CHOICE, DOCH
from oasis.codes import unpack


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
