"""The rivals and the controls: conformance, the published formulas, and brute force."""

import tracemalloc

import hasher_checks
import literal_baselines
import numpy as np
import pytest
import scipy.sparse as sp
import toy
from hypothesis import given, settings
from hypothesis import strategies as st

from oasis.baselines import FOMH, ITQ, LEMON, FloatCosine, PCASign, Probe, RandomProjection
from oasis.baselines.components import Centred, principal_axes
from oasis.baselines.draws import random_rotation
from oasis.baselines.kernel import AnchorKernel
from oasis.codes import pack, unpack
from oasis.errors import InputError, NotFittedError
from oasis.linear import LinearMap, has_row, inner_products
from oasis.ridge import MAX_FEATURES

N_BITS = hasher_checks.N_BITS


def fomh(seed=0, **options):
    return FOMH(N_BITS, **{"n_anchors": 25, "sigma": "mean", "random_state": seed} | options)


def lemon(seed=0, **options):
    return LEMON(N_BITS, random_state=seed, **options)


def random_projection(seed=0):
    return RandomProjection(N_BITS, random_state=seed)


def pca_sign(seed=0):
    return PCASign(N_BITS, random_state=seed)


def itq(seed=0):
    return ITQ(N_BITS, random_state=seed)


def itq_refit(seed=0):
    return ITQ(N_BITS, refit=True, n_iter=10, random_state=seed)


@pytest.mark.parametrize(
    ("check", "make"),
    hasher_checks.cases(
        # as published, the weights of the modalities are fitted to a batch of queries
        fomh=(fomh, {"check_encoding_is_row_wise"}),
        lemon=(lemon, set()),
        random_projection=(random_projection, set()),
        pca_sign=(pca_sign, set()),
        itq=(itq, set()),
        # a batch method keeps the features of everything seen
        itq_refit=(itq_refit, {"check_memory_does_not_grow_with_samples"}),
    ),
)
def test_conformance(check, make):
    check(make)


def test_every_left_out_check_exists():
    assert {
        "check_encoding_is_row_wise",
        "check_memory_does_not_grow_with_samples",
    } <= set(hasher_checks.CHECKS)


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


def test_fomh_starts_anew_when_the_chunk_size_changes_and_keeps_mu():
    model = fomh().partial_fit(*toy.chunk(40))
    before = model.state_
    rng = np.random.Generator(np.random.PCG64())
    rng.bit_generator.state = before.generator
    fresh = np.where(rng.random((30, N_BITS)) < 0.5, -1.0, 1.0)
    # with one iteration the W step is fitted to the start, by the mu of the round before
    model.set_params(n_iter=1).partial_fit(*toy.chunk(30, 1))
    for name, regression in model.state_.regressions.items():
        old = before.regressions[name]
        phi = regression.kernel.features(toy.chunk(30, 1)[0][name])
        assert np.allclose(regression.BK, old.BK + phi.T @ fresh)
        KK = np.tril(regression.KK) + np.tril(regression.KK, -1).T
        W = np.linalg.solve(KK / old.mu + 1e-3 * np.eye(len(KK)), regression.BK / old.mu)
        assert np.allclose(regression.W, W, rtol=1e-5, atol=1e-7)


def test_fomh_takes_all_rows_of_a_small_first_chunk_as_anchors():
    model = FOMH(8, sigma="mean", random_state=0).partial_fit(*toy.chunk(12))
    kernel = model.state_.regressions["image"].kernel
    assert kernel.n_anchors == 12 and kernel.n_features == 13
    assert {tuple(row) for row in kernel.anchors} == {
        tuple(row) for row in toy.chunk(12)[0]["image"]
    }


def test_fomh_draws_the_same_anchors_for_every_modality():
    X, y = toy.chunk(40)
    X = {"image": X["image"], "copy": X["image"].copy()}
    regressions = fomh().partial_fit(X, y).state_.regressions
    assert np.array_equal(regressions["image"].kernel.anchors, regressions["copy"].kernel.anchors)


def test_fomh_refuses_a_class_that_was_not_announced_and_changes_nothing():
    model = fomh(classes=toy.NAMES[:6])
    model.partial_fit(*toy.chunk(30))
    assert model.classes_ == toy.NAMES[:6]
    before = hasher_checks.fingerprint(model)
    X, _ = toy.chunk(2, 1)
    with pytest.raises(InputError, match="sample 1 has class 'unicorn', which is not one of the 6"):
        model.partial_fit(X, [["sky"], ["unicorn"]])
    assert hasher_checks.fingerprint(model) == before


def test_fomh_does_not_depend_on_whether_classes_are_announced():
    announced, free = fomh(classes=toy.NAMES), fomh()
    for number, classes in enumerate((toy.NAMES[:3], toy.NAMES[3:])):
        chunk = toy.chunk(40, number, classes=classes)
        assert np.array_equal(announced.partial_fit(*chunk).codes_, free.partial_fit(*chunk).codes_)
    assert set(free.classes_) == set(toy.NAMES) and free.n_seen_ == 80


def test_fomh_uses_the_published_widths_by_default():
    regressions = FOMH(8, random_state=0).partial_fit(*toy.chunk(20)).state_.regressions
    assert regressions["image"].kernel.sigma == 140 and regressions["text"].kernel.sigma == 60
    X, y = toy.chunk(20)
    with pytest.raises(InputError, match="no kernel width for modality 'sound'"):
        FOMH(8).partial_fit({"sound": X["image"]}, y)


def test_fomh_learns_the_classes():
    model = fomh()
    for number in range(3):
        X, y = toy.chunk(200, number)
        model.partial_fit(X, y)
    assert shares_a_label(model, y) > 0.9


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
        for name, W in slow.W.items():
            assert np.allclose(model.state_.ridges[name].W, W, rtol=1e-7, atol=1e-9)
    query = toy.chunk(50, [seed, 99])[0]
    projections = sum(query[name] @ slow.W[name].T for name in query)
    assert np.allclose(model.project(query), projections, rtol=1e-4, atol=1e-5)
    columns = [toy.NAMES.index(name) for name in model.classes_]
    sums = model.state_.sums

    def total(left, right):
        return sum(each[left].T @ each[right] for each in slow.seen)

    assert np.allclose(sums.VV, total("V", "V"), atol=1e-7)
    assert np.allclose(sums.BV, total("B", "V"), atol=1e-7)
    assert np.allclose(sums.LV, total("L", "V")[columns], atol=1e-7)
    assert np.allclose(sums.GV, total("G", "V")[columns], atol=1e-7)
    assert np.allclose(sums.GB, total("G", "B")[columns], atol=1e-7)


def test_lemon_keeps_classes_in_order_of_arrival():
    X, _ = toy.chunk(3)
    model = lemon().partial_fit(X, [["sky"], ["Sky", "sea"], []])
    model.partial_fit(X, [["sea"], ["cat"], None])
    assert model.classes_ == ("sky", "Sky", "sea", "cat") and model.n_seen_ == 6


def test_lemon_learns_new_classes():
    model = lemon()
    for number, classes in enumerate((toy.NAMES[:3], toy.NAMES[:6], toy.NAMES[6:])):
        X, y = toy.chunk(150, number, classes=classes)
        model.partial_fit(X, y)
    assert shares_a_label(model, y, classes=toy.NAMES[6:]) > 0.9


def shares_a_label(model, y, **options):
    """How often a query's nearest item of the last chunk shares a label with it."""
    query, labels = toy.chunk(200, 99, **options)
    distance = (unpack(model.encode(query)) != unpack(model.codes_)[:, None]).sum(axis=2)
    nearest = distance.argmin(axis=0)
    return np.mean([bool(set(labels[j]) & set(y[i])) for j, i in enumerate(nearest)])


# what both have in common


@pytest.mark.parametrize("make", [fomh, lemon])
def test_no_array_of_samples_by_samples_is_formed(make):
    n = 20_000
    rng = np.random.default_rng(0)
    X = {"image": rng.random((n, 6)), "text": rng.random((n, 4))}
    y = [[toy.NAMES[number]] for number in rng.integers(10, size=n)]
    model = make(n_iter=2)
    tracemalloc.start()
    model.partial_fit(X, y)
    model.encode(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6 < n * n  # less than a byte for every pair


@pytest.mark.parametrize(
    ("hasher", "message"),
    [
        (FOMH(12), "n_bits must be a positive multiple of 8, got 12"),
        (FOMH(8, n_anchors=0), "n_anchors must be a positive integer, got 0"),
        (FOMH(8, n_iter=1.5), "n_iter must be a positive integer, got 1.5"),
        (FOMH(8, gamma=0), "gamma must be a finite number, positive, got 0"),
        (FOMH(8, rho=-1), "rho must be a finite number, at least 0, got -1"),
        (FOMH(8, alpha=float("nan")), "alpha must be a finite number"),
        (FOMH(8, sigma="median"), "must be a positive number or 'mean', got 'median'"),
        (FOMH(8, sigma={"image": 0, "text": 1}), "sigma of 'image' must be .*, positive, got 0"),
        (FOMH(8, classes="sky"), "classes must be a list of class names or None, got 'sky'"),
        (FOMH(8, classes=iter(["sky"])), "classes must be a list of class names or None"),
        (FOMH(8, classes=["sky", ""]), "class names are non-empty strings, classes holds ''"),
        (FOMH(8, random_state="x"), "random_state must be None, .*, got 'x'"),
        (LEMON(0), "got 0"),
        (LEMON(8, beta=-1), "beta must be a finite number, at least 0, got -1"),
        (LEMON(8, xi=0), "xi must be a finite number, positive, got 0"),
        (LEMON(8, n_iter=0), "n_iter must be a positive integer, got 0"),
        (RandomProjection(7), "got 7"),
        (RandomProjection(8, random_state=-1), "random_state must be None, .*, got -1"),
        (PCASign("64"), "got '64'"),
        (ITQ(8, refit="yes"), "refit must be True or False, got 'yes'"),
        (ITQ(8, n_iter=0), "n_iter must be a positive integer, got 0"),
        (Probe(delta=0), "delta must be a finite number, positive, got 0"),
        (Probe(joint=2), "joint must be True or False, got 2"),
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
        (lemon, {"xi": 2.0}),
        (random_projection, {"n_bits": 32}),
        (itq, {"refit": True}),
        (itq_refit, {"refit": False}),
        (lambda: Probe(), {"delta": 2.0}),
    ],
)
def test_what_the_state_depends_on_is_fixed_once_learned(make, changed):
    model = make().partial_fit(*toy.chunk(30))
    with pytest.raises(
        InputError, match=f"{next(iter(changed))} is fixed once a model has learned"
    ):
        model.set_params(**changed).partial_fit(*toy.chunk(30, 1))


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


def test_mean_width_is_the_root_mean_squared_distance():
    X = toy.chunk(30)[0]["image"]
    rows = np.array([3, 9, 17])
    squares = [((x - X[row]) ** 2).sum() for x in X for row in rows]
    assert AnchorKernel.at(X, rows, "mean", bias=True).sigma == pytest.approx(
        np.sqrt(np.mean(squares))
    )
    assert AnchorKernel.at(np.zeros((3, 2)), np.array([0]), "mean", bias=True).sigma == 1


def test_features_that_overflow_are_refused():
    model = fomh().partial_fit(*toy.chunk(30))
    X, y = toy.chunk(10, 1)
    before = hasher_checks.fingerprint(model)
    with pytest.raises(InputError, match="features this large"):
        model.partial_fit({**X, "image": X["image"] * 1e200}, y)
    with pytest.raises(InputError, match="features this large"):
        model.encode({"image": X["image"] * 1e200})
    assert hasher_checks.fingerprint(model) == before
    with pytest.raises(InputError, match="features this large"):
        lemon().partial_fit(X, y).encode({"image": np.full((2, 20), 1e308)})


# linear maps and products


def test_a_linear_map_leaves_out_what_a_sample_lacks():
    rng = np.random.default_rng(0)
    X = {"a": rng.random((5, 4)), "b": rng.random((5, 3))}
    X["b"][2] = 0
    W = {"a": rng.standard_normal((8, 4)), "b": rng.standard_normal((8, 3))}
    offsets = {"a": rng.standard_normal(8), "b": rng.standard_normal(8)}
    expected = np.zeros((5, 8))
    for i in range(5):
        for name in X:
            if X[name][i].any():
                expected[i] += W[name] @ X[name][i] / np.linalg.norm(X[name][i]) - offsets[name]
    got = LinearMap(W, offsets, normalize=True)
    assert np.allclose(got.project(X), expected, atol=1e-6)
    single = {name: values.astype(np.float32) for name, values in X.items()}
    assert np.allclose(got.project(single), expected, atol=1e-5)
    alone = got.project({"a": X["a"]})
    assert np.allclose(alone[2], expected[2], atol=1e-6)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 6), st.integers(1, 5))
def test_rows_that_are_zero_are_found_in_dense_and_sparse(seed, n, d):
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((n, d)) < 0.6, 0.0, rng.standard_normal((n, d)))
    expected = np.array([any(value != 0 for value in row) for row in X], dtype=bool)
    assert np.array_equal(has_row(X), expected)
    assert np.array_equal(has_row(sp.csr_array(X)), expected)
    stored = sp.csr_array((X.ravel(), np.tile(np.arange(d), n), np.arange(0, n * d + 1, d)), (n, d))
    assert np.array_equal(has_row(stored), expected)  # zeros that are stored are zeros


@pytest.mark.parametrize("left", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("right", [np.asarray, sp.csr_array])
def test_inner_products_are_dense_for_every_kind(left, right):
    X, Y = toy.chunk(7)[0]["text"], toy.chunk(5, 1)[0]["text"]
    product = inner_products(left(X), right(Y))
    assert isinstance(product, np.ndarray)
    assert np.allclose(product, X @ Y.T)


def test_random_rotations_are_orthogonal_and_differ():
    rng = np.random.default_rng(0)
    a, b = random_rotation(rng, 6), random_rotation(rng, 6)
    assert np.allclose(a.T @ a, np.eye(6)) and not np.allclose(a, b)


# controls


def units(X):
    return np.hstack(
        [values / np.linalg.norm(values, axis=1, keepdims=True) for values in X.values()]
    )


def test_random_projection_is_the_sign_of_a_product():
    X, y = toy.chunk(50)
    model = random_projection().partial_fit(X, y)
    rng = np.random.default_rng(0)
    directions = np.hstack([rng.standard_normal((N_BITS, 20)), rng.standard_normal((N_BITS, 14))])
    assert np.array_equal(model.codes_, pack(units(X) @ directions.T))
    assert np.allclose(model.project(X), units(X) @ directions.T, atol=1e-5)


def test_pca_sign_is_the_sign_of_the_principal_components():
    X, y = toy.chunk(80)
    model = pca_sign().partial_fit(X, y)
    Y = units(X) - units(X).mean(axis=0)
    _, _, Vt = np.linalg.svd(Y, full_matrices=False)
    Vt *= np.sign(Vt[np.arange(len(Vt)), np.abs(Vt).argmax(axis=1)])[:, None]
    assert np.allclose(model.project(X), Y @ Vt[:N_BITS].T, atol=1e-6)
    query = toy.chunk(20, 9)[0]
    centred = units(query) - units(X).mean(axis=0)
    assert np.array_equal(model.encode(query), pack(centred @ Vt[:N_BITS].T))


def test_itq_alternates_signs_and_rotations():
    X, y = toy.chunk(80)
    model = ITQ(N_BITS, n_iter=7, random_state=0).partial_fit(X, y)
    start = pca_sign().partial_fit(X, y).project(X).astype(np.float64)
    R = np.linalg.lstsq(start, model.project(X).astype(np.float64), rcond=None)[0]
    assert np.allclose(R.T @ R, np.eye(N_BITS), atol=1e-4)

    def loss(V):
        return float(((np.where(V > 0, 1, -1) - V) ** 2).sum())

    losses = [
        loss(ITQ(N_BITS, n_iter=n, random_state=0).partial_fit(X, y).project(X).astype(float))
        for n in (1, 2, 4, 8, 16)
    ]
    assert losses == sorted(losses, reverse=True)
    # a fixed point: the best rotation for the final signs is no rotation
    V = ITQ(N_BITS, n_iter=500, random_state=0).partial_fit(X, y).project(X).astype(np.float64)
    left, _, right = np.linalg.svd(np.where(V > 0, 1.0, -1.0).T @ V)
    assert np.allclose(right.T @ left.T, np.eye(N_BITS), atol=1e-4)


def test_frozen_controls_keep_the_hash_function_of_the_first_chunk():
    for make in (random_projection, pca_sign, itq):
        model = make().partial_fit(*toy.chunk(60))
        first = hasher_checks.fingerprint(model.state_.hash_function)
        X, y = toy.chunk(30, 1)
        assert np.array_equal(model.partial_fit(X, y).codes_, model.encode(X))
        assert hasher_checks.fingerprint(model.state_.hash_function) == first
        assert model.n_seen_ == 90


@pytest.mark.parametrize("sparse", [(), ("text",), ("image", "text")])
def test_refitted_itq_equals_one_fit_on_everything(sparse):
    model, Xs, ys = itq_refit(), [], []
    for number, n in enumerate((40, 25, 30)):
        X, y = toy.chunk(n, number, sparse=sparse if number != 1 else ())
        model.partial_fit(X, y)
        Xs.append(toy.chunk(n, number)[0])
        ys += y
        everything = {name: np.vstack([each[name] for each in Xs]) for name in X}
        once = itq_refit().partial_fit(everything, ys)
        assert np.array_equal(model.all_codes_, once.all_codes_)
        assert np.array_equal(model.codes_, once.all_codes_[-n:])
        assert np.array_equal(model.all_codes_, model.encode(everything))
    with pytest.raises(AttributeError, match="refit=True"):
        itq().partial_fit(*toy.chunk(30)).all_codes_  # noqa: B018
    with pytest.raises(NotFittedError):
        itq_refit().all_codes_  # noqa: B018


@pytest.mark.parametrize("control", [PCASign, ITQ])
@pytest.mark.parametrize("n", [1, 2, 20, 200])
def test_more_bits_than_dimensions_or_samples_are_filled_with_random_directions(control, n):
    X, y = toy.chunk(n)
    model = control(64, random_state=0).partial_fit(X, y)
    assert model.codes_.shape == (n, 8)
    W = np.hstack(list(model.state_.hash_function.weights.values()))  # (64, 34)
    assert np.linalg.matrix_rank(W) == 34
    codes = unpack(model.encode(toy.chunk(200, 9)[0]))
    assert len({tuple(row) for row in codes.T}) > 32  # bits are not copies of one another


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 40), st.integers(1, 12))
def test_principal_axes_span_what_a_dense_decomposition_finds(seed, n, k):
    rng = np.random.default_rng(seed)
    X = {
        "a": sp.csr_array(rng.random((n, 9)) * (rng.random((n, 9)) < 0.5)),
        "b": rng.random((n, 6)),
    }
    dense = {"a": X["a"].toarray(), "b": X["b"]}
    Y = np.hstack(
        [
            np.where(has_row(each)[:, None], each - each[has_row(each)].mean(axis=0), 0)
            if has_row(each).any()
            else each
            for each in dense.values()
        ]
    )
    data = Centred(X)
    assert np.allclose(data.times(np.eye(15)), Y)
    assert np.allclose(data.transposed_times(np.eye(n)), Y.T)
    _, s, _ = np.linalg.svd(Y, full_matrices=False)
    axes = principal_axes(data, k, np.random.default_rng(0))
    rank = int((s > 1e-10).sum())
    assert axes.shape == (15, min(k, rank))
    assert np.allclose(axes.T @ axes, np.eye(axes.shape[1]), atol=1e-9)
    captured = np.linalg.norm(Y @ axes) ** 2
    assert captured == pytest.approx(float((s[: axes.shape[1]] ** 2).sum()), rel=1e-9, abs=1e-12)


def test_principal_axes_of_wide_data_are_close_to_the_best():
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((400, 150)) * 0.97 ** np.arange(150)
    Y -= Y.mean(axis=0)
    _, s, Vt = np.linalg.svd(Y, full_matrices=False)
    for dtype in (np.float32, np.float64):
        axes = principal_axes(Centred({"a": Y.astype(dtype)}), 8, np.random.default_rng(1))
        assert np.linalg.norm(Y @ axes) ** 2 > 0.999 * (s[:8] ** 2).sum()
        assert np.abs((Vt[:4] @ axes).diagonal()).min() > 0.99


def test_controls_do_not_densify_a_wide_sparse_modality():
    n, d = 2_000, 50_000
    rng = np.random.default_rng(0)
    X = {"text": sp.random_array((n, d), density=1e-4, rng=rng, format="csr")}
    for control in (RandomProjection(8), PCASign(8), ITQ(8), ITQ(8, refit=True)):
        tracemalloc.start()
        control.set_params(random_state=0).partial_fit(X, [[]] * n).encode(X)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 150e6 < n * d * 8


# rankers


def stream(sparse=()):
    return [
        toy.chunk(n, number, classes=toy.NAMES[: 4 + number], sparse=sparse, bare=0.1)
        for number, n in enumerate((40, 25, 30))
    ]


@pytest.mark.parametrize("sparse", [(), ("text",), ("image", "text")])
def test_float_cosine_equals_brute_force(sparse):
    ranker, rows = FloatCosine(), []
    for X, y in stream(sparse):
        dense = {name: sp.csr_array(values).toarray() for name, values in X.items()}
        dense["text"][3] = 0
        X["text"] = sp.csr_array(dense["text"]) if "text" in sparse else dense["text"]
        ranker.partial_fit(X, y)
        rows += list(zip(*dense.values(), strict=True))
    query = toy.chunk(8, 9)[0]

    def joined(sample):
        parts = [part / (np.linalg.norm(part) or 1) for part in sample]
        whole = np.concatenate(parts)
        return whole / (np.linalg.norm(whole) or 1)

    base = np.array([joined(row) for row in rows])
    both = np.array([joined(row) for row in zip(*query.values(), strict=True)])
    assert ranker.n_base_ == 95
    scores = ranker.scores(query)
    assert scores.dtype == np.float32 and scores.shape == (8, 95)
    assert np.allclose(scores, both @ base.T, atol=1e-6)
    image = np.array([joined((row, np.zeros(14))) for row in query["image"]])
    assert np.allclose(ranker.scores({"image": query["image"]}), image @ base.T, atol=1e-6)
    wrapped = {name: sp.csr_array(values) for name, values in query.items()}
    assert np.allclose(ranker.scores(wrapped), scores, atol=1e-6)
    blocks = [
        ranker.scores({name: values[start : start + 3] for name, values in query.items()})
        for start in range(0, 8, 3)
    ]
    assert np.allclose(np.vstack(blocks), scores, atol=1e-6)


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("sparse", [(), ("text",), ("image", "text")])
def test_probe_equals_a_dense_regression_and_a_loop_over_the_base(sparse, joint):
    probe = Probe(joint=joint)
    plain, labels = {"image": [], "text": []}, []
    for (X, y), (dense, _) in zip(stream(sparse), stream(), strict=True):
        probe.partial_fit(X, y)
        for name, values in dense.items():
            plain[name].append(values / np.linalg.norm(values, axis=1, keepdims=True))
        labels += y
    L = literal_baselines.label_matrix(labels, probe.classes_)
    labelled = L.any(axis=1)
    assert 0 < labelled.sum() < 95
    query = toy.chunk(8, 9)[0]
    base = {name: np.vstack(parts)[labelled] for name, parts in plain.items()}
    asked = {
        name: values / np.linalg.norm(values, axis=1, keepdims=True)
        for name, values in query.items()
    }
    if joint:
        base, asked = ({"all": np.hstack([each["image"], each["text"]])} for each in (base, asked))
    predicted = np.zeros((8, L.shape[1]))
    for name, F in base.items():
        W = np.linalg.inv(F.T @ F + np.eye(F.shape[1])) @ F.T @ L[labelled]
        predicted += asked[name] @ W
    expected = np.array(
        [
            [
                sum(max(p[probe.classes_.index(name)], 0) ** 1.5 for name in names)
                for names in labels
            ]
            for p in predicted
        ]
    )
    scores = probe.scores(query)
    assert scores.dtype == np.float32 and scores.shape == (8, 95)
    assert np.allclose(scores, expected, atol=1e-5)
    groups = probe.groups_
    assert probe.n_base_ == len(groups) == 95
    assert groups.max() + 1 == len({frozenset(names) for names in labels}) < 95
    assert np.array_equal(probe.group_scores(query)[:, groups], scores)


def test_probe_accepts_chunks_without_any_label():
    probe = Probe().partial_fit(*toy.chunk(10, bare=1.0))
    query = toy.chunk(4, 9)[0]
    assert np.array_equal(probe.scores(query), np.zeros((4, 10)))
    probe.partial_fit(*toy.chunk(40, 1)).partial_fit(*toy.chunk(40, 2, bare=1.0))
    alone = Probe().partial_fit(*toy.chunk(40, 1))
    assert np.allclose(probe.scores(query)[:, 10:50], alone.scores(query), atol=1e-6)
    assert not probe.scores(query)[:, 50:].any()


def test_probe_finds_the_classes():
    probe = Probe()
    labels = []
    for number in range(3):
        X, y = toy.chunk(100, number)
        probe.partial_fit(X, y)
        labels += y
    query, asked = toy.chunk(100, 9)
    best = probe.scores(query).argmax(axis=1)
    assert (
        np.mean([bool(set(labels[i]) & set(names)) for i, names in zip(best, asked, strict=True)])
        > 0.95
    )


@pytest.mark.parametrize("make", [FloatCosine, Probe])
def test_a_ranker_refuses_bad_chunks_and_stays_as_it_was(make):
    ranker = make().partial_fit(*toy.chunk(30))
    before = hasher_checks.fingerprint(ranker)
    for name, spoil in hasher_checks.BAD_CHUNKS.items():
        with pytest.raises(InputError):
            ranker.partial_fit(*spoil(*toy.chunk(30, 50)))
            pytest.fail(f"accepted {name}")
        assert hasher_checks.fingerprint(ranker) == before, name
    query = toy.chunk(10, 99)[0]
    for spoiled in ({}, {"image": query["image"] * np.nan}, {"sound": np.eye(2)}):
        with pytest.raises(InputError):
            ranker.scores(spoiled)
    with pytest.raises(NotFittedError):
        make().scores(query)


def test_probe_refuses_modalities_that_are_too_wide_together_and_says_how_wide():
    half = MAX_FEATURES // 2 + 1
    X = {name: sp.csr_array((2, half)) for name in ("a", "b")}
    with pytest.raises(InputError, match=f"at most {MAX_FEATURES} are accepted"):
        Probe().partial_fit(X, [["sky"], ["sea"]])
