"""OMH-DQ, SAPMH, THOR and IW-OMH: conformance, the published formulas, and brute force."""

import tracemalloc
from itertools import pairwise

import hasher_checks
import literal_rivals
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
import toy
from hypothesis import given, settings
from hypothesis import strategies as st

from oasis.baselines import FOMH, IWOMH, OMHDQ, SAPMH, THOR
from oasis.baselines.batch import KernelRows, Seen
from oasis.baselines.gram import GramSums
from oasis.baselines.iw_omh import class_codes
from oasis.baselines.kernel import AnchorKernel
from oasis.baselines.omh_dq import DynamicQueries
from oasis.baselines.psd import PSDFactor
from oasis.baselines.sapmh import NUSWIDE, Training, Weights
from oasis.baselines.similarity import similarity_between, similarity_squared, similarity_times
from oasis.baselines.sylvester import solve_sylvester
from oasis.codes import pack, unpack
from oasis.errors import InputError, NotFittedError, UnknownWordError
from oasis.hasher import check_chunk
from oasis.ridge import MAX_FEATURES

N_BITS = hasher_checks.N_BITS
VECTORS = toy.class_vectors(10)


def omhdq(seed=0, **options):
    return OMHDQ(N_BITS, **{"n_anchors": 25, "sigma": "mean", "random_state": seed} | options)


def sapmh(seed=0, **options):
    options = {"n_anchors": 25, "sigma": "mean", "k": 8, "max_iter": 6} | options
    return SAPMH(N_BITS, random_state=seed, **options)


def thor(seed=0, **options):
    return THOR(N_BITS, VECTORS, random_state=seed, **options)


def iwomh(seed=0, **options):
    return IWOMH(N_BITS, toy.NAMES, VECTORS, random_state=seed, **options)


# a batch method keeps the features of everything seen, and the weights of the modalities are
# fitted to a batch of queries
BATCH = {"check_memory_does_not_grow_with_samples", "check_encoding_is_row_wise"}


@pytest.mark.parametrize(
    ("check", "make"),
    hasher_checks.cases(
        omhdq=(omhdq, BATCH),
        sapmh=(sapmh, BATCH),
        thor=(thor, set()),
        # as published, errors are measured against the largest of a batch of queries
        iwomh=(iwomh, {"check_encoding_is_row_wise"}),
    ),
)
def test_conformance(check, make):
    check(make)


def test_every_left_out_check_exists():
    assert set(hasher_checks.CHECKS) >= BATCH


def test_each_method_says_what_kind_it_is():
    assert [(make.is_batch, make.needs_classes) for make in (OMHDQ, SAPMH, THOR, IWOMH)] == [
        (True, False),
        (True, False),
        (False, False),
        (False, True),
    ]


# batch methods


def stacked(chunks):
    X = {name: np.vstack([each[name] for each, _ in chunks]) for name in chunks[0][0]}
    return X, [names for _, y in chunks for names in y]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "options",
    [
        {"sigma": "mean"},
        {"sigma": "mean", "query_weights": "inverse", "n_iter": 2},
        {
            "sigma": {"image": 7.0, "text": 4.0},
            "alpha": 0.1,
            "beta": 2.0,
            "delta": 0.5,
            "lam": 10.0,
        },
    ],
)
def test_omhdq_equals_the_published_formulas(options, seed):
    model = OMHDQ(8, n_anchors=20, random_state=seed, **options)
    slow = literal_rivals.LiteralOMHDQ(8, 20, seed=seed, **options)
    chunks = [toy.chunk(n, [seed, number], bare=0.1) for number, n in enumerate((40, 25))]
    for number, (X, y) in enumerate(chunks):
        model.partial_fit(X, y)
        everything, labels = stacked(chunks[: number + 1])
        expected = slow.fit(everything, labels, toy.NAMES)
        assert np.array_equal(unpack(model.all_codes_), expected)
        assert np.array_equal(unpack(model.codes_), expected[-len(y) :])
        for name, W in model.state_.encoder.W.items():
            assert np.allclose(W, slow.W[name].T, rtol=1e-5, atol=1e-7)
    query = toy.chunk(70, [seed, 99])[0]
    assert np.array_equal(unpack(model.encode(query)), slow.encode(query))


def test_the_w_and_h_steps_of_omhdq_do_not_raise_its_objective():
    # the literal method is the package's, as the test above shows; its R, B and Z steps solve an
    # augmented problem and may raise it
    slow = literal_rivals.LiteralOMHDQ(8, 20, "mean", alpha=0.1, beta=2.0, delta=0.5, lam=10.0)
    slow.fit(*toy.chunk(60), toy.NAMES)
    assert len(slow.steps) == 18
    assert all(after <= before * (1 + 1e-12) for before, after in slow.steps)
    assert any(after < before * 0.999 for before, after in slow.steps)


@pytest.mark.parametrize(("weights", "sign"), [("published", -1), ("inverse", 1)])
def test_omhdq_weighs_a_modality_by_its_error_as_published_or_by_its_inverse(weights, sign):
    S = np.where(np.random.default_rng(1).random((40, 8)) < 0.5, -1.0, 1.0)
    parts = {"long": S, "short": -0.8 * S}
    encoder = DynamicQueries({}, {}, np.random.PCG64(0).state, weights, "float64")
    # random signs are as far from both, so the first B is that of the longer one, S. By the inverse
    # it stays; as published the one that does not fit takes over: -S, S, -S in four passes
    assert np.array_equal(pack(encoder.weighted(parts)), pack(sign * S))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "options",
    [
        {"max_iter": 2},
        {"max_iter": 2, "w_weight": "mu", "theta": 0.1},
        {"max_iter": 2, "mu_features": "first"},
        {"max_iter": 9, "theta": 1e-2, "rho": 1e-3, "lam": 1.0},
        {"max_iter": 9, "sigma": {"image": 7.0, "text": 4.0}, "lam": 10.0},
    ],
)
def test_sapmh_equals_the_published_formulas(options, seed):
    options = {"sigma": "mean", "k": 6} | options
    model = SAPMH(8, n_anchors=20, random_state=seed, **options)
    slow = literal_rivals.LiteralSAPMH(8, 20, seed=seed, **options)
    chunks = [toy.chunk(n, [seed, number], bare=0.1) for number, n in enumerate((40, 25))]
    for number, (X, y) in enumerate(chunks):
        model.partial_fit(X, y)
        everything, labels = stacked(chunks[: number + 1])
        expected = slow.fit(everything, labels, toy.NAMES)
        assert np.array_equal(unpack(model.all_codes_), expected)
        assert np.array_equal(unpack(model.codes_), expected[-len(y) :])
        assert np.allclose(model.state_.encoder.W, slow.W, rtol=1e-5, atol=1e-6)
        for name, U in model.state_.encoder.U.items():
            assert np.allclose(U, slow.U[name], rtol=1e-5, atol=1e-7)
    query = toy.chunk(70, [seed, 99])[0]
    assert np.array_equal(unpack(model.encode(query)), slow.encode(query))


def test_sapmh_stops_when_the_objective_no_longer_falls():
    X, y = toy.chunk(50)
    options = {"sigma": "mean", "k": 6, "theta": 1e-2, "rho": 1e-3, "lam": 1.0}
    slow = literal_rivals.LiteralSAPMH(8, 20, seed=0, **options)
    slow.fit(X, y, toy.NAMES)
    steps = len(slow.objectives)
    assert 4 <= steps < 99
    model = SAPMH(8, n_anchors=20, random_state=0, **options).partial_fit(X, y)
    short = SAPMH(8, n_anchors=20, random_state=0, max_iter=steps, **options).partial_fit(X, y)
    assert np.array_equal(model.state_.encoder.W, short.state_.encoder.W)


@pytest.mark.parametrize("weights", [Weights(1e-4, 1e-6, 100.0), Weights(0.1, 0.01, 1.0)])
def test_the_h_u_and_w_steps_of_sapmh_do_not_raise_its_objective(weights):
    X, y = toy.chunk(60, bare=0.1)
    rng = np.random.default_rng(0)
    rows = {
        name: KernelRows.of(
            AnchorKernel.at(values, np.arange(20), "mean", bias=False), (values,), "float64"
        )
        for name, values in X.items()
    }
    L = literal_rivals.label_matrix(y, toy.NAMES)
    S = literal_rivals.similarity(L)
    training = Training(rows, sp.csr_array(L), weights, (6, 8), "rho", rng)

    def slow():
        return literal_rivals.objective(
            {name: each.phi for name, each in rows.items()},
            *(S, training.B, training.H, training.U, training.W, training.mu),
            *(weights.theta, weights.rho, weights.lam),
        )

    for _ in range(4):
        for step in (training.h_step, training.u_step, training.w_step):
            before = training.objective()
            assert before == pytest.approx(slow(), rel=1e-9)
            step()
            assert training.objective() <= before * (1 + 1e-10)
        training.b_step()
        training.mu_step()
    assert training.objective() == pytest.approx(slow(), rel=1e-9)


def test_sapmh_fits_a_sample_by_the_modalities_it_has():
    model = sapmh().partial_fit(*toy.chunk(60))
    X, _ = toy.chunk(30, 9)
    X["text"][4] = X["text"][9] = X["image"][9] = 0
    codes = unpack(model.encode(X))
    # brute force: row 4 by the image alone, with the weights of the whole batch
    encoder = model.state_.encoder
    rng = np.random.Generator(np.random.PCG64())
    rng.bit_generator.state = encoder.generator
    B = np.where(rng.random((30, N_BITS)) < 0.5, -1.0, 1.0)
    H = rng.standard_normal((30, 8))
    phi = {name: encoder.kernels[name].features(values) for name, values in X.items()}
    before = np.inf
    for step in range(1, 10):
        mu = weights_of(phi, H, encoder.U)
        for row in range(30):
            here = [name for name in phi if phi[name][row].any()]
            if not here:
                H[row] = 0
                continue
            A = encoder.theta * encoder.W @ encoder.W.T
            b = encoder.theta * encoder.W @ B[row]
            for name in here:
                A = A + mu[name] * encoder.U[name] @ encoder.U[name].T
                b = b + mu[name] * encoder.U[name] @ phi[name][row]
            H[row] = np.linalg.solve(A, b)
        B = np.where(H @ encoder.W > 0, 1.0, -1.0)
        F = sum(1 / (4 * mu) for mu in weights_of(phi, H, encoder.U).values())
        F += encoder.theta * np.sum((B - H @ encoder.W) ** 2)
        if step >= 4 and before - F < 0.001:
            break
        before = F
    assert np.array_equal(codes, B)
    assert (codes[9] == -1).all()


def weights_of(phi, H, U):
    return {
        name: 1 / (2 * np.linalg.norm((K - H @ U[name])[K.any(axis=1)])) for name, K in phi.items()
    }


@pytest.mark.parametrize("make", [omhdq, sapmh])
@pytest.mark.parametrize("sparse", [(), ("text",), ("image", "text")])
def test_chunk_by_chunk_equals_one_chunk_with_everything(make, sparse):
    model, chunks = make(), []
    for number, n in enumerate((40, 25, 30)):
        X, y = toy.chunk(n, number, sparse=sparse if number != 1 else (), bare=0.1)
        model.partial_fit(X, y)
        chunks.append(toy.chunk(n, number, bare=0.1))
        everything, labels = stacked(chunks)
        once = make().partial_fit(everything, labels)
        assert np.array_equal(model.all_codes_, once.all_codes_)
        assert np.array_equal(model.codes_, once.all_codes_[-n:])
        assert np.array_equal(model.all_codes_, model.encode(everything))
        assert model.n_seen_ == len(labels) and set(model.classes_) == set(toy.NAMES[:6])
    with pytest.raises(NotFittedError):
        make().all_codes_  # noqa: B018


@pytest.mark.parametrize("make", [omhdq, sapmh])
def test_encoding_repeats_and_training_repeats_without_a_seed_of_the_user(make):
    model = make().set_params(random_state=None).partial_fit(*toy.chunk(40))
    query = toy.chunk(50, 9)[0]
    assert np.array_equal(model.encode(query), model.encode(query))
    model.partial_fit(*toy.chunk(40, 1))
    assert np.array_equal(model.encode(query), model.encode(query))
    seeded = [
        make().set_params(random_state=np.random.default_rng(4)).partial_fit(*toy.chunk(40))
        for _ in range(2)
    ]
    assert np.array_equal(seeded[0].all_codes_, seeded[1].all_codes_)


@pytest.mark.parametrize("make", [omhdq, sapmh])
def test_single_precision_halves_what_is_kept_and_hardly_changes_a_code(make):
    double, single = make(), make(dtype="float32")
    for number in range(2):
        chunk = toy.chunk(150, number)
        double.partial_fit(*chunk)
        single.partial_fit(*chunk)
    assert {each.dtype.name for parts in single.state_.seen.X.values() for each in parts} == {
        "float32"
    }
    everything, _ = stacked([toy.chunk(150, number) for number in range(2)])
    assert np.array_equal(single.encode(everything), single.all_codes_)
    assert np.mean(unpack(double.all_codes_) == unpack(single.all_codes_)) > 0.99


def test_features_are_copied_so_that_the_callers_stay_theirs():
    X, y = toy.chunk(40)
    model, twin = omhdq().partial_fit(X, y), omhdq().partial_fit(*toy.chunk(40))
    X["image"][:] = 7
    more = toy.chunk(30, 1)
    assert np.array_equal(model.partial_fit(*more).all_codes_, twin.partial_fit(*more).all_codes_)


@pytest.mark.parametrize("make", [omhdq, sapmh])
def test_batch_methods_learn_the_classes(make):
    model, labels = make(n_anchors=60), []
    for number in range(2):
        X, y = toy.chunk(150, number, classes=toy.NAMES[:3])
        model.partial_fit(X, y)
        labels += y
    query, asked = toy.chunk(200, 99, classes=toy.NAMES[:3])
    distance = (unpack(model.encode(query)) != unpack(model.all_codes_)[:, None]).sum(axis=2)
    nearest = distance.argmin(axis=0)
    assert np.mean([set(asked[j]) == set(labels[i]) for j, i in enumerate(nearest)]) > 0.5


def test_mean_width_is_that_of_all_rows_that_are_there_and_the_anchors():
    chunks = [toy.chunk(n, number) for number, n in enumerate((12, 9))]
    chunks[1][0]["text"][3] = 0
    for sparse in (False, True):
        seen = Seen.nothing(chunks[0][0])
        for X, y in chunks:
            given = {name: sp.csr_array(each) if sparse else each for name, each in X.items()}
            seen = seen.plus(check_chunk(given, y, None), "float64")
        rows = np.array([15, 2, 18])
        kernel = seen.kernel("text", rows, "mean", bias=False)
        everything = np.vstack([X["text"] for X, _ in chunks])
        anchors = everything[np.sort(rows)]
        there = everything[everything.any(axis=1)]
        mean = np.mean([[((x - a) ** 2).sum() for a in anchors] for x in there])
        assert kernel.sigma == pytest.approx(np.sqrt(mean))
        found = kernel.anchors.toarray() if sparse else kernel.anchors
        assert np.array_equal(found, anchors)


def test_mean_width_of_rows_that_coincide_is_one():
    for dtype in (np.float32, np.float64):
        X = {"text": np.tile(np.random.default_rng(0).random(14).astype(dtype), (30, 1))}
        seen = Seen.nothing(X).plus(check_chunk(X, [["sky"]] * 30, None), "float64")
        assert seen.kernel("text", np.arange(7), "mean", bias=False).sigma == 1


def test_kernel_rows_equal_dense_products_over_several_blocks():
    rng = np.random.default_rng(0)
    X = rng.random((9_000, 3))
    kernel = AnchorKernel.at(X, np.arange(5), "mean", bias=True)
    rows = KernelRows.of(kernel, (X[:100], X[100:]), "float64")
    phi = kernel.features(X)
    assert np.allclose(rows.phi, phi, atol=1e-14)
    assert np.allclose(np.tril(rows.gram()), np.tril(phi.T @ phi))
    assert rows.squares() == pytest.approx((phi**2).sum())
    left, right = rng.random((6, 2)), rng.random((9_000, 2))
    assert np.allclose(rows.times(left), phi @ left)
    assert np.allclose(rows.transposed_times(right), phi.T @ right)


def test_published_widths_and_parameters():
    X, y = toy.chunk(20)
    kernels = OMHDQ(8, random_state=0).partial_fit(X, y).state_.encoder.kernels
    assert kernels["image"].sigma == 60 and kernels["text"].sigma == 80
    assert kernels["image"].n_features == 21
    with pytest.raises(InputError, match="no kernel width for modality 'sound'"):
        OMHDQ(8).partial_fit({"sound": X["image"]}, y)
    kernels = SAPMH(8, random_state=0).partial_fit(X, y).state_.encoder.kernels
    assert kernels["image"].sigma == 100 and kernels["image"].n_features == 20
    nuswide = SAPMH(8, random_state=0, **NUSWIDE).partial_fit(X, y)
    assert nuswide.state_.encoder.kernels["text"].sigma == 88
    assert nuswide.state_.encoder.W.shape == (500, 8)


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
        assert np.allclose(model.state_.codewords.C, slow.C)
        assert np.array_equal(unpack(model.codes_), expected)
        for name, W in slow.W.items():
            assert np.allclose(model.state_.hash_function.weights[name], W, rtol=1e-7, atol=1e-9)
    query = toy.chunk(50, [seed, 99])[0]
    projections = sum(query[name] @ slow.W[name].T for name in query)
    assert np.allclose(model.project(query), projections, rtol=1e-4, atol=1e-5)


def test_thor_at_128_bits_uses_the_hadamard_matrix_as_it_is():
    model = THOR(128, "orthogonal", random_state=0).partial_fit(*toy.chunk(20))
    T = scipy.linalg.hadamard(128)[:, : len(model.classes_)].astype(float)
    C = 2 * np.linalg.solve(T @ T.T + 10 * np.eye(128), 10 * T)
    assert np.allclose(model.state_.codewords.C, C)


def test_thor_never_changes_a_codeword():
    model = thor().partial_fit(*toy.chunk(30, classes=toy.NAMES[:4]))
    before = model.state_.codewords.C.copy()
    model.partial_fit(*toy.chunk(30, 1, classes=toy.NAMES[4:]))
    assert model.state_.codewords.C.shape == (N_BITS, 10)
    assert np.array_equal(model.state_.codewords.C[:, :4], before)


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
    sums = model.state_.sums
    assert np.linalg.matrix_rank(sums.BB) < N_BITS
    for name, each in model.state_.features.items():
        XX = np.tril(each.XX) + np.tril(each.XX, -1).T
        W = model.state_.hash_function.weights[name]
        assert np.allclose(sums.BB @ W + 10 * W @ XX, 11 * each.BX)


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


def test_thor_and_iwomh_learn_the_classes():
    for model in (thor(), iwomh()):
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
        assert np.array_equal(model.state_.C, slow.C)
        assert np.array_equal(model.codes_, pack(expected))
        for name, each in model.state_.regressions.items():
            assert np.allclose(each.W, slow.W[name])
            assert np.allclose(each.R, slow.R[name], atol=1e-10)
    query = toy.chunk(50, [seed, 99])[0]
    assert np.allclose(model.project(query), slow.project(query), rtol=1e-4, atol=1e-5)


def test_iwomh_keeps_undecided_bits_as_zero_in_the_sums_and_clear_in_the_codes():
    model = iwomh()
    X, _ = toy.chunk(1)
    model.partial_fit(X, [["sky", "sea"]])
    C = model.state_.C[:, :2]
    undecided = C[:, 0] != C[:, 1]
    assert undecided.any() and not undecided.all()
    sums = model.state_.regressions["image"].sums
    assert not sums.BX[undecided].any() and sums.BX[~undecided].any()
    assert (unpack(model.codes_)[0, undecided] == -1).all()


def test_class_codes_do_not_raise_their_objective():
    rng = np.random.default_rng(0)
    for n_classes in (10, 40):
        # classes whose words are near each other
        E = rng.standard_normal((n_classes, 12)) + 1.5 * rng.standard_normal(12)
        E /= np.linalg.norm(E, axis=1, keepdims=True)
        start = np.where(rng.random((16, n_classes)) < 0.5, -1.0, 1.0)
        values = []
        for n_iter in range(6):
            C = class_codes(E, 100.0, n_iter, "diagonal", start)
            Q = np.linalg.solve(C @ C.T + 100 * np.eye(16), C @ E)
            values.append(np.sum((E - C.T @ Q) ** 2) + 100 * np.sum(Q**2))
        assert all(after <= before * (1 + 1e-12) for before, after in pairwise(values))
        assert values[-1] < 0.9 * values[0]


def test_a_ridge_on_every_entry_leaves_the_class_codes_as_drawn():
    slow = literal_rivals.LiteralIWOMH(N_BITS, toy.NAMES, VECTORS, seed=0)
    model = iwomh(ridge_on="entries").partial_fit(*toy.chunk(60))
    assert np.array_equal(model.state_.C, slow.start)
    each = model.state_.regressions["image"]
    XX = np.tril(each.sums.XX) + np.tril(each.sums.XX, -1).T
    R = np.linalg.inv(XX + 1.0) @ (each.sums.BX.T - XX @ each.W.T)
    assert np.allclose(each.R, R, rtol=1e-6, atol=1e-9)


def test_iwomh_weights_depend_on_the_batch_but_a_lone_query_is_answered():
    model = iwomh().partial_fit(*toy.chunk(60))
    X, _ = toy.chunk(30, 9)
    alone = {"image": X["image"][:1]}
    W = model.state_.regressions["image"].W
    assert np.array_equal(model.encode(alone), pack(alone["image"] @ W.T))
    one = {name: values[:1] for name, values in X.items()}
    h = {
        name: np.abs(values @ model.state_.regressions[name].R).sum()
        for name, values in one.items()
    }
    better = min(h, key=h.get)
    only = pack(one[better] @ model.state_.regressions[better].W.T)
    assert np.array_equal(model.encode(one), only)


def test_iwomh_must_know_all_classes_and_says_so_before_anything_changes():
    with pytest.raises(InputError, match="IWOMH must know all classes of the stream beforehand"):
        IWOMH(8).partial_fit(*toy.chunk(30))
    model = iwomh().partial_fit(*toy.chunk(30))
    before = hasher_checks.fingerprint(model)
    X, _ = toy.chunk(2, 1)
    with pytest.raises(InputError, match="sample 1 has class 'unicorn', which is not one of the"):
        model.partial_fit(X, [["sky"], ["unicorn"]])
    assert hasher_checks.fingerprint(model) == before
    assert model.classes_ == toy.NAMES and model.n_seen_ == 30


# what they have in common


@pytest.mark.parametrize("make", [omhdq, sapmh, thor, iwomh])
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


@pytest.mark.parametrize("make", [omhdq, sapmh, thor, iwomh])
def test_features_whose_squares_overflow_are_refused_and_nothing_changes(make):
    model = make().partial_fit(*toy.chunk(30))
    before = hasher_checks.fingerprint(model)
    for sparse in ((), ("image", "text")):
        X, y = toy.chunk(20, 1, sparse=sparse)
        with pytest.raises(InputError, match="features this large cannot be used"):
            model.partial_fit({name: values * 1e200 for name, values in X.items()}, y)
        assert hasher_checks.fingerprint(model) == before


@pytest.mark.parametrize("make", [omhdq, sapmh, thor, iwomh])
def test_no_query_gives_no_codes(make):
    model = make().partial_fit(*toy.chunk(30))
    nothing = {name: values[:0] for name, values in toy.chunk(1)[0].items()}
    assert model.encode(nothing).shape == (0, N_BITS // 8)


@pytest.mark.parametrize("make", [THOR, IWOMH])
def test_a_modality_that_is_too_wide_is_refused(make):
    model = make(8, labels="orthogonal")
    if make is IWOMH:
        model.set_params(classes=["sky"])
    X = {"text": sp.csr_array((2, MAX_FEATURES + 1))}
    with pytest.raises(InputError, match=f"at most {MAX_FEATURES} are accepted"):
        model.partial_fit(X, [["sky"], []])


@pytest.mark.parametrize(
    ("hasher", "message"),
    [
        (OMHDQ(12), "n_bits must be a positive multiple of 8, got 12"),
        (OMHDQ(8, n_anchors=0), "n_anchors must be a positive integer, got 0"),
        (OMHDQ(8, n_iter=1.5), "n_iter must be a positive integer, got 1.5"),
        (OMHDQ(8, delta=0), "delta must be a finite number, positive, got 0"),
        (OMHDQ(8, lam=-1), "lam must be a finite number, at least 0, got -1"),
        (OMHDQ(8, query_weights="best"), "must be 'published' or 'inverse', got 'best'"),
        (OMHDQ(8, dtype="float16"), "dtype must be 'float32' or 'float64', got 'float16'"),
        (OMHDQ(8, sigma="median"), "must be a positive number or 'mean', got 'median'"),
        (OMHDQ(8, random_state="x"), "random_state must be None, .*, got 'x'"),
        (SAPMH(8, k=0), "k must be a positive integer, got 0"),
        (SAPMH(8, max_iter=0), "max_iter must be a positive integer, got 0"),
        (SAPMH(8, theta=0), "theta must be a finite number, positive, got 0"),
        (SAPMH(8, rho=float("nan")), "rho must be a finite number"),
        (SAPMH(8, w_weight="mu_2"), "w_weight must be 'rho' or 'mu', got 'mu_2'"),
        (SAPMH(8, mu_features=None), "mu_features must be 'own' or 'first', got None"),
        (THOR(0, VECTORS), "got 0"),
        (THOR(8, VECTORS, gamma=0), "gamma must be a finite number, positive, got 0"),
        (THOR(8, VECTORS, beta=-1), "beta must be a finite number, at least 0, got -1"),
        (THOR(8, 7), "labels must be a mapping"),
        (IWOMH(8, toy.NAMES, VECTORS, theta=0), "theta must be a finite number, positive, got 0"),
        (IWOMH(8, "sky", VECTORS), "classes must be a list of class names or None, got 'sky'"),
        (IWOMH(8, [], VECTORS), "must know all classes"),
        (
            IWOMH(8, toy.NAMES, VECTORS, ridge_on="all"),
            "must be 'diagonal' or 'entries', got 'all'",
        ),
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
        (omhdq, {"n_bits": 32}),
        (sapmh, {"n_bits": 32}),
        (thor, {"n_bits": 32}),
        (iwomh, {"n_bits": 32}),
        (iwomh, {"classes": toy.NAMES[:6]}),
    ],
)
def test_what_the_state_depends_on_is_fixed_once_learned(make, changed):
    model = make().partial_fit(*toy.chunk(30))
    with pytest.raises(
        InputError, match=f"{next(iter(changed))} is fixed once a model has learned"
    ):
        model.set_params(**changed).partial_fit(*toy.chunk(30, 1))


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
    assert not PSDFactor.of(np.zeros((2, 2))).solve(np.ones((2, 1))).any()
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
            "phi'phi \\+ gamma mu I is singular .* gamma=1e-300 is too small .*; raise gamma",
        ),
        (
            lambda: OMHDQ(8, 4, 1.0, delta=1e-300, random_state=0),
            "phi'phi \\+ delta mu I is singular .* delta=1e-300 is too small .*; raise delta",
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
