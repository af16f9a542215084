"""The controls and the rankers, against brute force, and the linear maps under them."""

import tracemalloc

import hasher_checks
import literal_baselines
import numpy as np
import pytest
import scipy.sparse as sp
import toy
from baseline_makers import N_BITS, itq, itq_refit, pca_sign, random_projection
from hypothesis import given, settings
from hypothesis import strategies as st

from oasis.arrays import has_row, inner_products
from oasis.baselines import ITQ, FloatCosine, PCASign, Probe, RandomProjection
from oasis.baselines.shared.components import Centred, principal_axes
from oasis.codes import pack, unpack
from oasis.errors import InputError, NotFittedError
from oasis.model.ridge import MAX_FEATURES

# linear maps and products


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


@pytest.mark.slow
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


@pytest.mark.parametrize("sparse", [(), ("text",), ("image", "text")])
def test_probe_equals_a_dense_regression_and_a_loop_over_the_base(sparse):
    probe = Probe()
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
    F = np.hstack([np.vstack(parts)[labelled] for parts in plain.values()])
    asked = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in query.values()]
    W = np.linalg.inv(F.T @ F + np.eye(F.shape[1])) @ F.T @ L[labelled]
    predicted = np.hstack(asked) @ W
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
