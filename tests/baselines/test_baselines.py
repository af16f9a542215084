"""FOMH, LEMON and kernels: the published formulas."""

import hasher_checks
import literal_baselines
import numpy as np
import pytest
import scipy.sparse as sp
import toy
from baseline_makers import fomh

from oasis.baselines import FOMH, LEMON, RandomProjection
from oasis.baselines.shared.kernel import AnchorKernel
from oasis.codes import unpack
from oasis.errors import InputError

# FOMH


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sizes", [(50, 50, 50), (60, 35, 35)])
@pytest.mark.parametrize(
    "options",
    [
        {"sigma": "mean"},
        {
            "sigma": {"image": 7.0, "text": 4.0},
            "alpha": 1e-3,
            "beta": 2.0,
            "gamma": 0.5,
            "rho": 1.0,
        },
    ],
)
def test_fomh_equals_the_published_formulas(sizes, options, seed):
    model = FOMH(8, n_anchors=20, random_state=seed, **options)
    slow = literal_baselines.LiteralFOMH(8, 20, seed=seed, **options)
    for number, n in enumerate(sizes):
        X, y = toy.chunk(n, [seed, number], bare=0.1)
        expected = slow.partial_fit(X, y, toy.NAMES)
        model.partial_fit(X, y)
        assert np.array_equal(unpack(model.codes_), expected)
        state = model.state_
        assert np.array_equal(state.variables.B, slow.B.T)
        assert np.array_equal(state.variables.Z, slow.Z.T)
        assert np.allclose(state.variables.Gm, slow.Gm.T)
        assert np.allclose(state.variables.D, slow.D.T, rtol=1e-6, atol=1e-8)
        for name, regression in state.regressions.items():
            assert regression.mu == pytest.approx(slow.mu[name], rel=1e-7)
            assert np.allclose(regression.W, slow.W[name].T, rtol=1e-5, atol=1e-7)
            assert np.allclose(regression.BK, slow.old_BK[name].T)
            assert np.allclose(np.tril(regression.KK), np.tril(slow.old_KK[name]))
    query = toy.chunk(70, [seed, 99])[0]
    assert np.array_equal(unpack(model.encode(query)), slow.encode(query))


def test_fomh_carries_the_weights_from_batch_to_batch_of_1000_rows():
    X, y = toy.chunk(60)
    model = FOMH(8, n_anchors=6, sigma="mean", random_state=0).partial_fit(X, y)
    slow = literal_baselines.LiteralFOMH(8, 6, "mean", seed=0)
    slow.partial_fit(X, y, toy.NAMES)
    query = toy.chunk(2300, 9)[0]
    query["text"][1000:] += 3 * np.random.default_rng(0).random((1300, 14))
    codes = unpack(model.encode(query))
    assert np.array_equal(codes, slow.encode(query))
    anew = np.vstack(
        [
            unpack(model.encode({name: each[start : start + 1000] for name, each in query.items()}))
            for start in (0, 1000, 2000)
        ]
    )
    assert np.array_equal(codes[:1000], anew[:1000])
    assert not np.array_equal(codes, anew)
    large = toy.chunk(1500, 3)
    model.partial_fit(*large)
    assert np.array_equal(model.codes_, model.encode(large[0]))


def test_fomh_refuses_a_class_that_was_not_announced_and_changes_nothing():
    model = fomh(classes=toy.NAMES[:6])
    model.partial_fit(*toy.chunk(30))
    assert model.classes_ == toy.NAMES[:6]
    before = hasher_checks.fingerprint(model)
    X, _ = toy.chunk(2, 1)
    with pytest.raises(InputError, match="sample 1 has class 'unicorn', which is not one of the 6"):
        model.partial_fit(X, [["sky"], ["unicorn"]])
    assert hasher_checks.fingerprint(model) == before


# LEMON


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sizes", [(40, 60, 30), (200, 17, 90)])
@pytest.mark.parametrize("options", [{}, {"alpha": 0.5, "beta": 3.0, "gamma": 2.0, "xi": 0.1}])
def test_lemon_equals_the_published_formulas(sizes, options, seed):
    model = LEMON(8, random_state=seed, **options)
    slow = literal_baselines.LiteralLEMON(8, seed=seed, **options)
    for number, n in enumerate(sizes):
        # classes keep arriving: 8, then 9, then 10
        X, y = toy.chunk(n, [seed, number], classes=toy.NAMES[: 8 + number], bare=0.1)
        expected = slow.partial_fit(X, y, toy.NAMES)
        model.partial_fit(X, y)
        assert np.array_equal(unpack(model.codes_), expected)
    query = toy.chunk(50, [seed, 99])[0]
    projections = sum(query[name] @ slow.W[name].T for name in query)
    assert np.allclose(model.project(query), projections, rtol=1e-4, atol=1e-5)


# what both have in common


def test_a_generator_as_seed_is_used_and_moves_on():
    rng = np.random.default_rng(0)
    first = RandomProjection(8, random_state=rng).partial_fit(*toy.chunk(30)).codes_
    second = RandomProjection(8, random_state=rng).partial_fit(*toy.chunk(30)).codes_
    again = RandomProjection(8, random_state=np.random.default_rng(0))
    assert np.array_equal(first, again.partial_fit(*toy.chunk(30)).codes_)
    assert not np.array_equal(first, second)


# kernel features


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("wrap_anchors", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
def test_kernel_features_equal_a_loop(wrap, wrap_anchors, dtype):
    X = toy.chunk(30)[0]["image"].astype(dtype)
    X[4] = 0
    rows = np.array([3, 9, 17])
    kernel = AnchorKernel(wrap_anchors(X[rows]), 2.5, bias=True)
    phi = kernel.features(wrap(X))
    assert phi.shape == (30, 4) and phi.dtype == np.float64 and kernel.n_features == 4
    for i in range(30):
        for j, row in enumerate(rows):
            expected = np.exp(-((X[i].astype(float) - X[row]) ** 2).sum() / (2 * 2.5**2))
            assert phi[i, j] == pytest.approx(0 if i == 4 else expected, rel=1e-5)
        assert phi[i, 3] == (i != 4)
    assert AnchorKernel(wrap_anchors(X[rows]), 2.5, bias=False).features(wrap(X)).shape == (30, 3)
