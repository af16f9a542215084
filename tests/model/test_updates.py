"""The exactness facts of one round."""

import literal
import numpy as np
import pytest
import toy

from oasis.labels import LabelSpace
from oasis.model.ridge import Ridge
from oasis.model.round import Published, RowsInMemory, iterations
from oasis.model.updates import SemanticSums, Weights, b_step, u_step, v_step, z_target

WEIGHTS = Weights(alpha=10.0, beta=1.0, gamma=1.0, theta=1.0)


def sums_of(B, G, V):
    return SemanticSums(B.T @ G, G.T @ V, V.T @ V, len(B))


def noise_for(n, r, seed=0):
    return np.random.default_rng([11, seed]).standard_normal((n, max(0, min(r, n - 1))))


def assert_feasible(V, n, r):
    scale = max(1.0, n)
    assert np.abs(V.sum(axis=0)).max(initial=0.0) < 1e-8 * scale
    if n > r:
        assert np.abs(V.T @ V - n * np.eye(r)).max() < 1e-8 * scale
    else:
        s = np.linalg.svd(V, compute_uv=False)
        assert np.allclose(s[: n - 1], np.sqrt(n), atol=1e-8 * scale)
        assert np.allclose(s[n - 1 :], 0.0, atol=1e-8 * scale)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("n", "r", "rank"),
    [
        (50, 8, 8),
        (50, 8, 3),
        (50, 16, 1),
        (17, 16, 16),
        (16, 16, 16),
        (10, 16, 4),
        (2, 8, 1),
        (1, 8, 1),
    ],
)
def test_v_step_is_feasible_and_reaches_the_nuclear_norm(n, r, rank, seed):
    rng = np.random.default_rng([1, seed])
    Z = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, r)) + 1e3
    V = v_step(Z, noise_for(n, r, seed))
    assert_feasible(V, n, r)
    nuclear = np.linalg.svd(Z - Z.mean(axis=0), compute_uv=False).sum()
    assert np.trace(Z.T @ V) == pytest.approx(np.sqrt(n) * nuclear, rel=1e-9, abs=1e-6)


def test_v_step_is_feasible_when_singular_values_span_twelve_decades():
    rng = np.random.default_rng(0)
    n, r = 200, 16
    left, _ = np.linalg.qr(rng.standard_normal((n, r)))
    right, _ = np.linalg.qr(rng.standard_normal((r, r)))
    Z = left * np.logspace(6, -6, r) @ right.T + 1e4
    assert_feasible(v_step(Z, noise_for(n, r)), n, r)


def test_v_step_of_a_constant_chunk_is_feasible_and_spread_over_all_samples():
    n, r = 60, 8
    V = v_step(np.full((n, r), 7.0), noise_for(n, r))
    assert_feasible(V, n, r)
    # not the trailing columns of a full QR, which would sit on single samples
    assert (np.abs(V) > 1e-3).mean() > 0.95


def round_of(seed, n, r, f=12):
    X, label_sets = toy.chunk(n, seed)
    G = literal.represent(label_sets, toy.class_vectors(width=f))
    return [X["image"], X["text"]], G


def ridge_solution(B, X):
    return np.linalg.solve(X.T @ X + np.eye(X.shape[1]), X.T @ B).T


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("sizes", "r"), [((40, 60), 8), ((33, 50, 40), 32), ((90,), 16)])
def test_no_step_of_any_round_raises_the_loss(sizes, r, seed):
    sums = SemanticSums.zero(r).widened(12)
    old = {"B": np.zeros((0, r)), "V": np.zeros((0, r)), "G": np.zeros((0, 12))}
    old["X"] = [np.zeros((0, 20)), np.zeros((0, 14))]
    for number, n in enumerate(sizes):
        X, G = round_of([seed, number], n, r)
        rng = np.random.default_rng([seed, number])
        B = np.sign(rng.standard_normal((n, r)))
        U = rng.standard_normal((12, r))
        Ws = [np.zeros((r, each.shape[1])) for each in X]
        noise = noise_for(n, r, seed)
        losses = []
        for _ in range(4):
            V = v_step(z_target(sums.BG + B.T @ G, G, B, U, WEIGHTS), noise)
            new = {"B": B, "V": V, "G": G, "X": X}
            losses.append(literal.loss(old, new, U, Ws))
            GV = sums.GV + G.T @ V
            U = u_step(GV, sums.VV + V.T @ V, WEIGHTS)
            losses.append(literal.loss(old, new, U, Ws))
            XW = sum(each @ W.T for each, W in zip(X, Ws, strict=True))
            B = b_step(G, GV, V, XW, WEIGHTS)
            new = {"B": B, "V": V, "G": G, "X": X}
            losses.append(literal.loss(old, new, U, Ws))
            Ws = [
                ridge_solution(np.vstack([old["B"], B]), np.vstack([before, each]))
                for before, each in zip(old["X"], X, strict=True)
            ]
            losses.append(literal.loss(old, new, U, Ws))
        falls = np.diff(losses)
        assert (falls <= 1e-9 * losses[0]).all(), falls.max()
        sums = sums.joined(sums_of(B, G, V))
        old = {
            "B": np.vstack([old["B"], B]),
            "V": np.vstack([old["V"], V]),
            "G": np.vstack([old["G"], G]),
            "X": [np.vstack(pair) for pair in zip(old["X"], X, strict=True)],
        }


@pytest.mark.parametrize("seed", range(3))
def test_feasible_rounds_leave_vv_a_multiple_of_the_identity(seed):
    r, sums = 16, SemanticSums.zero(16).widened(12)
    for number, n in enumerate((40, 25, 60)):
        X, label_sets = toy.chunk(n, [seed, number])
        labels = LabelSpace(toy.class_vectors(width=12)).grown(toy.NAMES[:6])
        ridges = {name: Ridge.zero(r, x.shape[1], 1.0) for name, x in X.items()}
        problem = Published(labels, labels.indicator(label_sets), ridges, WEIGHTS, r)
        rng = np.random.default_rng([seed, number])
        rows = RowsInMemory(X, unit_length=False).sample_rows(problem, rng)
        *_, U = iterations(rows, sums, WEIGHTS, 3)
        sums = sums.joined(rows.sums())
        assert np.abs(sums.VV - sums.n * np.eye(r)).max() < 1e-8 * sums.n
        assert np.allclose(U, sums.GV / (sums.n + WEIGHTS.theta), rtol=1e-9, atol=1e-12)


def test_zero_counts_as_minus_one():
    zero = np.zeros((3, 8))
    B = b_step(np.zeros((3, 2)), np.zeros((2, 8)), zero, zero, WEIGHTS)
    assert (B == -1).all()
