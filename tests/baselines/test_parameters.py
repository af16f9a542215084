"""Parameters of rivals and controls: bad ones are refused, and some are fixed once learned."""

import pytest
import toy
from baseline_makers import (
    VECTORS,
    choice,
    doch,
    fomh,
    hcfw,
    itq,
    itq_refit,
    iwomh,
    lemon,
    omhdq,
    random_projection,
    sapmh,
    thor,
)

from oasis.baselines import (
    CHOICE,
    DOCH,
    FOMH,
    HCFW,
    ITQ,
    IWOMH,
    LEMON,
    OMHDQ,
    SAPMH,
    THOR,
    PCASign,
    Probe,
    RandomProjection,
)
from oasis.errors import InputError


@pytest.mark.parametrize(
    ("hasher", "message"),
    [
        (FOMH(12), "n_bits must be a positive multiple of 8, got 12"),
        (FOMH(8, n_anchors=0), "n_anchors must be a positive integer, got 0"),
        (FOMH(8, gamma=0), "gamma must be a finite number, positive, got 0"),
        (FOMH(8, rho=-1), "rho must be a finite number, at least 0, got -1"),
        (FOMH(8, alpha=float("nan")), "alpha must be a finite number"),
        (FOMH(8, sigma="median"), "must be a positive number or 'mean', got 'median'"),
        (FOMH(8, sigma={"image": 0, "text": 1}), "sigma of 'image' must be .*, positive, got 0"),
        (FOMH(8, classes="sky"), "classes must be a list of class names or None, got 'sky'"),
        (FOMH(8, classes=["sky", ""]), "class names are non-empty strings, classes holds ''"),
        (FOMH(8, random_state="x"), "random_state must be None, .*, got 'x'"),
        (LEMON(8, beta=-1), "beta must be a finite number, at least 0, got -1"),
        (RandomProjection(8, random_state=-1), "random_state must be None, .*, got -1"),
        (PCASign("64"), "got '64'"),
        (ITQ(8, refit="yes"), "refit must be True or False, got 'yes'"),
        (Probe(delta=0), "delta must be a finite number, positive, got 0"),
        (OMHDQ(8, n_iter=1.5), "n_iter must be a positive integer, got 1.5"),
        (OMHDQ(8, delta=0), "delta must be a finite number, positive, got 0"),
        (OMHDQ(8, lam=-1), "lam must be a finite number, at least 0, got -1"),
        (OMHDQ(8, query_weights="best"), "must be 'published' or 'inverse', got 'best'"),
        (SAPMH(8, k=0), "k must be a positive integer, got 0"),
        (SAPMH(8, theta=0), "theta must be a finite number, positive, got 0"),
        (SAPMH(8, w_weight="mu_2"), "w_weight must be 'mu' or 'rho', got 'mu_2'"),
        (SAPMH(8, mu_features=None), "mu_features must be 'own' or 'first', got None"),
        (THOR(8, VECTORS, gamma=0), "gamma must be a finite number, positive, got 0"),
        (THOR(8, 7), "labels must be a mapping"),
        (IWOMH(8, toy.NAMES, VECTORS, theta=0), "theta must be a finite number, positive, got 0"),
        (IWOMH(8, [], VECTORS), "must know all classes"),
        (
            IWOMH(8, toy.NAMES, VECTORS, ridge_on="all"),
            "must be 'diagonal' or 'entries', got 'all'",
        ),
        (HCFW(8, VECTORS, delta=0), "delta must be a finite number, positive, got 0"),
        (DOCH(8, alpha=0), "alpha must be a finite number, positive, got 0"),
        (DOCH(8, n_anchors=0), "n_anchors must be a positive integer, got 0"),
        (CHOICE(8, beta=0), "beta must be a finite number, positive, got 0"),
        (CHOICE(8, centre="last"), "centre must be 'first' or 'batch', got 'last'"),
        (CHOICE(8, labels=7), "labels must be a mapping"),
        (IWOMH(8, ["unicorn"], VECTORS), "sample 0 has class"),
        (IWOMH(8, [*toy.NAMES, "unicorn"], VECTORS), "unicorn"),
        (SAPMH(8, sigma={"image": 1.0}), "no kernel width for modality 'text'"),
    ],
)
def test_bad_parameters_are_refused(hasher, message):
    with pytest.raises(InputError, match=message):
        hasher.partial_fit(*toy.chunk(30))
    assert not hasattr(hasher, "state_")


@pytest.mark.parametrize(
    ("make", "changed"),
    [
        (fomh, {"n_bits": 32}),
        (lemon, {"n_bits": 32}),
        (random_projection, {"n_bits": 32}),
        (itq, {"refit": True}),
        (itq_refit, {"refit": False}),
        (lambda: Probe(), {"delta": 2.0}),
        (omhdq, {"n_bits": 32}),
        (sapmh, {"n_bits": 32}),
        (thor, {"n_bits": 32}),
        (iwomh, {"n_bits": 32}),
        (hcfw, {"n_bits": 32}),
        (doch, {"n_bits": 32}),
        (choice, {"n_bits": 32}),
        (iwomh, {"classes": toy.NAMES[:6]}),
    ],
)
def test_what_the_state_depends_on_is_fixed_once_learned(make, changed):
    model = make().partial_fit(*toy.chunk(30))
    with pytest.raises(
        InputError, match=f"{next(iter(changed))} is fixed once a model has learned"
    ):
        model.set_params(**changed).partial_fit(*toy.chunk(30, 1))
