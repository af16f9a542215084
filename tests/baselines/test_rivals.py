"""All methods: conformance, and what they have in common."""

import tracemalloc

import hasher_checks
import literal_rivals
import numpy as np
import pytest
import scipy.sparse as sp
import toy
from baseline_makers import (
    N_BITS,
    choice,
    doch,
    fomh,
    hcfw,
    itq,
    itq_refit,
    iwomh,
    lemon,
    omhdq,
    pca_sign,
    random_projection,
    sapmh,
    thor,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from oasis.baselines import FOMH, HCFW, IWOMH, OMHDQ, THOR
from oasis.baselines.shared.classes import similarity_between, similarity_squared, similarity_times
from oasis.baselines.shared.linear import GramSums
from oasis.baselines.shared.solvers import PSDFactor, pinv_solve
from oasis.codes import unpack
from oasis.errors import InputError
from oasis.model.ridge import MAX_FEATURES

ALL = [fomh, lemon, omhdq, sapmh, thor, iwomh, hcfw, doch, choice]
# a batch method keeps the features of everything seen; in some methods the weights of the
# modalities, or the kernel, are fitted to a batch of queries, as published
MEMORY, ROWS = "check_memory_does_not_grow_with_samples", "check_encoding_is_row_wise"


@pytest.mark.parametrize(
    ("check", "make"),
    hasher_checks.cases(
        fomh=(fomh, {ROWS}),
        lemon=(lemon, set()),
        omhdq=(omhdq, {MEMORY, ROWS}),
        sapmh=(sapmh, {MEMORY, ROWS}),
        thor=(thor, set()),
        iwomh=(iwomh, {ROWS}),
        hcfw=(hcfw, {ROWS}),
        doch=(doch, {MEMORY}),  # anchors are drawn from the codes of everything seen
        choice=(choice, set()),
        choice_as_published=(lambda seed=0: choice(seed, centre="batch"), {ROWS}),
        random_projection=(random_projection, set()),
        pca_sign=(pca_sign, set()),
        itq=(itq, set()),
        itq_refit=(itq_refit, {MEMORY}),
    ),
)
def test_conformance(check, make):
    check(make)


def test_every_left_out_check_exists():
    assert {MEMORY, ROWS} <= set(hasher_checks.CHECKS)


@pytest.mark.parametrize("make", [fomh, lemon, omhdq, sapmh, doch, choice])
def test_classes_are_learned_from_features_and_found_again(make):
    model = make()
    for number in range(3):
        X, y = toy.chunk(200, number, classes=toy.NAMES[:6])
        model.partial_fit(X, y)
    query, labels = toy.chunk(200, 99, classes=toy.NAMES[:6])
    distance = (unpack(model.encode(query)) != unpack(model.codes_)[:, None]).sum(axis=2)
    pairs = zip(distance.argmin(axis=0), labels, strict=True)
    assert np.mean([bool(set(asked) & set(y[i])) for i, asked in pairs]) > 0.8


# what they have in common


@pytest.mark.slow
@pytest.mark.parametrize("make", ALL)
def test_no_array_of_samples_by_samples_is_formed(make):
    n = 20_000
    rng = np.random.default_rng(0)
    X = {"image": rng.random((n, 6)), "text": rng.random((n, 4))}
    y = [[toy.NAMES[number]] for number in rng.integers(10, size=n)]
    model = make()
    model.set_params(**{"n_iter": 2} if hasattr(model, "n_iter") else {"max_iter": 2})
    tracemalloc.start()
    model.partial_fit(X, y)
    model.encode(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6 < n * n  # less than a byte for every pair


@pytest.mark.parametrize("make", ALL)
def test_features_whose_squares_overflow_are_refused_and_nothing_changes(make):
    model = make().partial_fit(*toy.chunk(30))
    before = hasher_checks.fingerprint(model)
    for sparse in ((), ("image", "text")):
        X, y = toy.chunk(20, 1, sparse=sparse)
        with pytest.raises(InputError, match="features this large cannot be used"):
            model.partial_fit({name: values * 1e200 for name, values in X.items()}, y)
        assert hasher_checks.fingerprint(model) == before
    with pytest.raises(InputError, match="features this large"):
        model.encode({"image": np.full((2, 20), 1e308)})


@pytest.mark.parametrize("make", ALL)
def test_no_query_gives_no_codes(make):
    model = make().partial_fit(*toy.chunk(30))
    nothing = {name: values[:0] for name, values in toy.chunk(1)[0].items()}
    assert model.encode(nothing).shape == (0, N_BITS // 8)


@pytest.mark.parametrize("make", [THOR, IWOMH, HCFW])
def test_a_modality_that_is_too_wide_is_refused(make):
    model = make(8, labels="orthogonal")
    if make is IWOMH:
        model.set_params(classes=["sky"])
    X = {"text": sp.csr_array((2, MAX_FEATURES + 1))}
    with pytest.raises(InputError, match=f"at most {MAX_FEATURES} are accepted"):
        model.partial_fit(X, [["sky"], []])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 5))
def test_products_with_the_similarity_equal_those_with_the_matrix(seed, n, c):
    rng = np.random.default_rng(seed)
    L = (rng.random((n, c)) < 0.4).astype(float)
    S = literal_rivals.similarity(L)
    sparse, left, right = sp.csr_array(L), rng.random((n, 3)), rng.random((n, 2))
    assert np.allclose(similarity_times(sparse, left), S @ left)
    assert np.allclose(similarity_between(sparse, left, right), left.T @ S @ right)
    assert similarity_squared(sparse) == pytest.approx(np.sum(S**2))


def test_a_singular_system_gets_a_ridge_and_a_regular_one_none():
    rng = np.random.default_rng(0)
    for rank in (6, 3):
        F = rng.random((rank, 6))
        A, Y = F.T @ F, F.T @ rng.random((rank, 2))
        X = PSDFactor.of(A).solve(Y)
        assert np.allclose(A @ X, Y, rtol=1e-7)
        if rank == 6:
            assert np.allclose(X, np.linalg.solve(A, Y), rtol=1e-7)
        rows = Y.T.copy()
        PSDFactor.of(A).solve_rows(rows)
        assert np.allclose(rows, X.T)
        assert np.allclose(pinv_solve(np.tril(A), Y), np.linalg.pinv(A) @ Y, rtol=1e-7)
    assert not PSDFactor.of(np.zeros((2, 2))).solve(np.ones((2, 1))).any()
    assert not pinv_solve(np.zeros((2, 2)), np.ones((2, 1))).any()
    with pytest.raises(InputError, match="cannot be solved in float64"):
        PSDFactor.of(np.full((2, 2), np.inf))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sparse", [False, True])
def test_sums_of_a_stream_equal_those_of_everything(dtype, sparse):
    rng = np.random.default_rng(0)
    sums, Xs, Bs = GramSums.zero(3, 7), [], []
    for n in (5, 4500):
        X, B = rng.random((n, 7)).astype(dtype), np.sign(rng.standard_normal((n, 3)))
        before = sums.XX.copy()
        new = sums.plus(sp.csr_array(X) if sparse else X, B)
        assert np.array_equal(sums.XX, before)
        sums = new
        Xs.append(X.astype(np.float64))
        Bs.append(B)
    X, B = np.vstack(Xs), np.vstack(Bs)
    assert np.allclose(np.tril(sums.XX), np.tril(X.T @ X))
    assert np.allclose(sums.BX, B.T @ X, atol=1e-9)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: FOMH(8, 4, 1.0, gamma=1e-300, random_state=0),
            "gamma mu I is singular .* too small beside .* raise gamma",
        ),
        (
            lambda: OMHDQ(8, 4, 1.0, delta=1e-300, random_state=0),
            "delta mu I is singular .* too small beside .* raise delta",
        ),
        (
            lambda: IWOMH(8, ["sky"], "orthogonal", theta=1e-300, random_state=0),
            "X'X \\+ theta I is singular .* theta=1e-300 is too small .* or raise theta",
        ),
    ],
)
def test_a_ridge_that_is_lost_in_rounding_is_named(make, message):
    model = make()
    with pytest.raises(InputError, match=message):
        model.partial_fit({"image": np.ones((6, 4))}, [["sky"]] * 6)
    assert not hasattr(model, "state_")
