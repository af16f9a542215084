"""OMH-DQ and SAPMH, the batch rivals: the published formulas, and brute force."""

import literal_rivals
import numpy as np
import pytest
import scipy.sparse as sp
import toy
from baseline_makers import N_BITS, omhdq, sapmh

from oasis.baselines import FOMH, OMHDQ, SAPMH
from oasis.baselines.omh_dq import DynamicQueries
from oasis.baselines.sapmh import NUSWIDE, SAPMHTraining, SAPMHWeights
from oasis.baselines.shared.batch import KernelRows
from oasis.baselines.shared.kernel import AnchorKernel
from oasis.codes import pack, unpack
from oasis.errors import InputError, KernelWidthWarning, NotFittedError

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
    encoder = DynamicQueries({}, {}, np.random.PCG64(0).state, weights)
    # random signs are as far from both, so the first B is that of the longer one, S. By the inverse
    # it stays; as published the one that does not fit takes over: -S, S, -S in four passes
    assert np.array_equal(pack(encoder.weighted(parts)), pack(sign * S))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "options",
    [
        {"max_iter": 2},
        {"max_iter": 2, "w_weight": "rho", "theta": 0.1},
        {"max_iter": 2, "mu_features": "first"},  # the program, in both respects
        {"max_iter": 2, "mu_features": "first", "theta": 0.1, "rho": 0.01},
        {"max_iter": 9, "w_weight": "rho", "theta": 1e-2, "rho": 1e-3, "lam": 1.0},
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


@pytest.mark.parametrize("weights", [SAPMHWeights(1e-4, 1e-6, 100.0), SAPMHWeights(0.1, 0.01, 1.0)])
def test_the_h_u_and_w_steps_of_sapmh_do_not_raise_its_objective(weights):
    X, y = toy.chunk(60, bare=0.1)
    rng = np.random.default_rng(0)
    rows = {
        name: KernelRows.of(
            AnchorKernel.at((values,), np.arange(20), "mean", bias=False), (values,)
        )
        for name, values in X.items()
    }
    L = literal_rivals.label_matrix(y, toy.NAMES)
    S = literal_rivals.similarity(L)
    training = SAPMHTraining(rows, sp.csr_array(L), weights, (6, 8), "rho", rng)

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
    double, single = make(), make()
    for number in range(2):
        X, y = toy.chunk(150, number)
        double.partial_fit(X, y)
        single.partial_fit({name: each.astype(np.float32) for name, each in X.items()}, y)
    assert {each.dtype.name for parts in single.state_.seen.X.values() for each in parts} == {
        "float32"
    }
    assert np.mean(unpack(double.all_codes_) == unpack(single.all_codes_)) > 0.99


def test_features_are_copied_so_that_the_callers_stay_theirs():
    X, y = toy.chunk(40)
    model, twin = omhdq().partial_fit(X, y), omhdq().partial_fit(*toy.chunk(40))
    X["image"][:] = 7
    more = toy.chunk(30, 1)
    assert np.array_equal(model.partial_fit(*more).all_codes_, twin.partial_fit(*more).all_codes_)


def test_mean_width_is_that_of_all_rows_that_are_there_and_the_anchors():
    chunks = [toy.chunk(n, number)[0]["text"] for number, n in enumerate((12, 9))]
    chunks[1][3] = 0
    rows = np.array([2, 15, 18])
    everything = np.vstack(chunks)
    anchors = everything[rows]
    there = everything[everything.any(axis=1)]
    mean = np.mean([[((x - a) ** 2).sum() for a in anchors] for x in there])
    for given in (tuple(chunks), tuple(map(sp.csr_array, chunks))):
        kernel = AnchorKernel.at(given, rows, "mean", bias=False)
        assert kernel.sigma == pytest.approx(np.sqrt(mean))
        found = kernel.anchors.toarray() if sp.issparse(kernel.anchors) else kernel.anchors
        assert np.array_equal(found, anchors)


def test_mean_width_of_rows_that_coincide_is_one():
    for dtype in (np.float32, np.float64):
        X = np.tile(np.random.default_rng(0).random(14).astype(dtype), (30, 1))
        assert AnchorKernel.at((X,), np.arange(7), "mean", bias=False).sigma == 1


def test_kernel_rows_equal_dense_products_over_several_blocks():
    rng = np.random.default_rng(0)
    X = rng.random((9_000, 3))
    kernel = AnchorKernel.at((X,), np.arange(5), "mean", bias=True)
    rows = KernelRows.of(kernel, (X[:100], X[100:]))
    phi = kernel.features(X)
    assert np.allclose(rows.phi, phi, atol=1e-14)
    assert np.allclose(np.tril(rows.gram()), np.tril(phi.T @ phi))
    assert rows.squares() == pytest.approx((phi**2).sum())
    left, right = rng.random((6, 2)), rng.random((9_000, 2))
    assert np.allclose(rows.times(left), phi @ left)
    assert np.allclose(rows.transposed_times(right), phi.T @ right)


def test_published_widths_and_parameters():
    X, y = toy.chunk(20)
    with pytest.warns(KernelWidthWarning, match="kernel width (140|60) of modality"):
        regressions = FOMH(8, random_state=0).partial_fit(X, y).state_.regressions
    assert regressions["image"].kernel.sigma == 140 and regressions["text"].kernel.sigma == 60
    with pytest.raises(InputError, match="no kernel width for modality 'sound'"):
        OMHDQ(8).partial_fit({"sound": X["image"]}, y)
    with pytest.warns(
        KernelWidthWarning, match="kernel width (60|80) of modality '(image|text)' is far"
    ):
        kernels = OMHDQ(8, random_state=0).partial_fit(X, y).state_.encoder.kernels
    assert kernels["image"].sigma == 60 and kernels["text"].sigma == 80
    assert kernels["image"].n_features == 21
    with pytest.warns(KernelWidthWarning, match="hardly differ between samples; pass sigma='mean'"):
        kernels = SAPMH(8, random_state=0).partial_fit(X, y).state_.encoder.kernels
    assert kernels["image"].sigma == 100 and kernels["image"].n_features == 20
    with pytest.warns(KernelWidthWarning, match="kernel width 88"):
        nuswide = SAPMH(8, random_state=0, **NUSWIDE).partial_fit(X, y)
    assert nuswide.state_.encoder.kernels["text"].sigma == 88
    assert nuswide.state_.encoder.W.shape == (500, 8)


def test_a_width_is_warned_of_when_it_is_far_from_the_mean_distance_and_only_then():
    X = np.random.default_rng(0).standard_normal((60, 16))
    rows = np.arange(10)
    root = AnchorKernel.at((X,), rows, "mean", bias=True).sigma
    near = AnchorKernel.at((X,), rows, 4.9 * root, bias=True, name="image").features(X)
    AnchorKernel.at((X,), rows, root / 4.9, bias=True, name="image")  # warnings are errors here
    with pytest.warns(KernelWidthWarning, match="modality 'image' .* hardly differ"):
        far = AnchorKernel.at((X,), rows, 20 * root, bias=True, name="image").features(X)
    assert far[:, :-1].min() > 0.99 > near[:, :-1].min()
    with pytest.warns(KernelWidthWarning, match="are nearly zero"):
        tiny = AnchorKernel.at((X,), rows, root / 10, bias=True, name="image").features(X)
    assert np.median(tiny[:, :-1]) < 1e-6
