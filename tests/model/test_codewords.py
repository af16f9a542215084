"""Codewords of classes, against the loss written out pair by pair."""

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given

from oasis.model import codewords
from oasis.model.codewords import (
    NEAR,
    SIMILAR,
    Batch,
    grown_codewords,
    pair_gradient,
    sample_codes,
)
from oasis.model.readout import class_pairs


def grown(known, counts, L, n_owned, rng, pairs=None):
    """The codewords of all classes; nothing is known of pairs unless they are given."""
    n_known = len(known)
    pairs = sp.csr_array((n_known, n_known)) if pairs is None else pairs
    return grown_codewords(known, np.asarray(counts, dtype=float), pairs, L, n_owned, rng)


def draw(n, c, seed=0, share=0.3):
    rng = np.random.default_rng([77, seed])
    L = (rng.random((n, c)) < share).astype(float)
    L[np.arange(n), rng.integers(0, c, n)] = 1
    L[:c] = np.eye(c)[: min(n, c)]  # every class occurs
    return sp.csr_array(L)


def batch_of(sets, weights, known=None, times=None):
    """A batch of dense label sets; all of their classes are new unless codewords are given."""
    known = np.empty((0, 8)) if known is None else known
    n_known, sets = len(known), sp.csr_array(sets)
    pull = np.asarray(sets[:, :n_known] @ known)
    times = np.ones(len(weights)) if times is None else times
    return Batch.of(sets, pull, n_known, np.asarray(weights, dtype=float), times)


def literal_loss(C, sets, weights):
    """The loss of the module's docstring, one pair of samples after the other."""
    u, total = np.tanh(sets @ C), 0.0
    for i, one in enumerate(sets):
        similar = [j for j, other in enumerate(sets) if one @ other > 0]
        dissimilar = [j for j in range(len(sets)) if j not in similar]
        for kind, y, share in ((similar, 1, SIMILAR), (dissimilar, -1, 1 - SIMILAR)):
            mass = {j: weights[j] - (1 if j == i else 0) for j in kind}
            mass = {j: max(w, 0.0) for j, w in mass.items()}
            for j, w in mass.items():
                if w:
                    slope = 2 * C.shape[1] ** 0.5
                    near = u[i] @ u[j] / C.shape[1]
                    near = slope * ((near if y == 1 else max(near, 0.0)) - NEAR)
                    pair = np.log(1 + np.exp(-y * near))
                    total += 2 * share * w / sum(mass.values()) * pair
    return total


@given(n=st.integers(1, 12), c=st.integers(1, 5), seed=st.integers(0, 1000))
def test_the_gradient_is_that_of_the_sum_over_pairs(n, c, seed):
    rng = np.random.default_rng(seed)
    sets = np.unique(draw(n, c, seed).toarray(), axis=0)
    weights = rng.integers(1, 5, len(sets)).astype(float)
    C = rng.standard_normal((c, 8))
    n_known = int(rng.integers(0, c))
    gradient = pair_gradient(C[n_known:], batch_of(sets, weights, C[:n_known]))
    assert gradient.shape == (c - n_known, 8)
    row, bit = int(rng.integers(n_known, c)), int(rng.integers(8))
    step = np.zeros((c, 8))
    step[row, bit] = 1e-6
    up, down = (literal_loss(C + each, sets, weights) for each in (step, -step))
    assert gradient[row - n_known, bit] == pytest.approx((up - down) / 2e-6, rel=1e-3, abs=1e-5)


def test_equal_label_sets_count_as_one_that_has_their_number():
    rng = np.random.default_rng(5)
    sets, times = np.unique(draw(40, 4, share=0.4).toarray(), axis=0, return_counts=True)
    repeated = np.repeat(sets, times, axis=0)
    C = rng.standard_normal((4, 8))
    assert times.max() > 2
    each = pair_gradient(C[1:], batch_of(repeated, np.ones(len(repeated)), C[:1]))
    merged = pair_gradient(C[1:], batch_of(sets, times, C[:1], times.astype(float)))
    np.testing.assert_allclose(merged, each, rtol=1e-4, atol=1e-5)


def test_the_gradient_is_the_same_where_many_classes_make_label_sets_sparse(monkeypatch):
    rng = np.random.default_rng(6)
    sets, C = draw(30, 6).toarray(), rng.standard_normal((6, 8))
    dense = pair_gradient(C[2:], batch_of(sets, np.ones(30), C[:2]))
    monkeypatch.setattr(codewords, "DENSE_CLASSES", 5)
    batch = batch_of(sets, np.ones(30), C[:2])
    assert sp.issparse(batch.new)
    np.testing.assert_allclose(pair_gradient(C[2:], batch), dense, rtol=1e-5, atol=1e-6)


@given(n=st.integers(1, 400), n_batches=st.integers(1, 9), seed=st.integers(0, 1000))
def test_label_sets_are_drawn_as_often_as_their_weights_say(n, n_batches, seed):
    rng = np.random.default_rng(seed)
    weights = rng.gamma(0.5, 1.0, n) + 1e-6
    drawn = codewords._drawn(weights, n_batches, rng)
    assert drawn.shape == (n_batches, codewords.BATCH)
    expected = weights / weights.sum() * codewords.BATCH
    times = np.bincount(drawn.ravel(), minlength=n)
    assert (np.abs(times - expected * n_batches) <= 1 + 1e-6).all()
    for each in drawn:  # in each of them
        assert (np.abs(np.bincount(each, minlength=n) - expected) <= 2 + 1e-6).all()


@pytest.mark.slow
@pytest.mark.parametrize("n", [6, 60, 1500])  # all label sets at once, and in batches
def test_learning_lowers_the_loss(n, monkeypatch):
    L, c, r = draw(n, 12 if n > 6 else 6, share=0.15), 12 if n > 6 else 6, 16
    none, sets = np.empty((0, r)), np.unique(L.toarray(), axis=0)
    assert (len(sets) > codewords.BATCH) == (n == 1500)
    learned = grown(none, np.empty(0), L, 0, np.random.default_rng(0))
    monkeypatch.setattr(codewords, "STEP", 0.0)
    start = grown(none, np.empty(0), L, 0, np.random.default_rng(0))
    assert learned.shape == start.shape == (c, r)
    sets = sets[:: -(-len(sets) // 60)]  # pair by pair is slow
    ones = np.ones(len(sets))
    assert literal_loss(learned, sets, ones) < 0.75 * literal_loss(start, sets, ones)


def test_learning_lowers_the_loss_where_every_step_has_a_batch_of_its_own(monkeypatch):
    L, none = draw(1500, 12, share=0.15), np.empty((0, 16))
    sets = np.unique(L.toarray(), axis=0)[::10]
    monkeypatch.setattr(codewords, "KEPT_BATCHES", 1)
    learned = grown(none, np.empty(0), L, 0, np.random.default_rng(0))
    start = np.random.default_rng(0).standard_normal((12, 16))
    ones = np.ones(len(sets))
    assert literal_loss(learned, sets, ones) < 0.75 * literal_loss(start, sets, ones)


def test_known_classes_keep_their_codewords_and_new_ones_keep_away_from_them():
    rng = np.random.default_rng(0)
    known = grown(np.empty((0, 64)), np.empty(0), draw(100, 5, share=0), 0, rng)
    later = np.zeros((40, 7))
    later[:20, 5] = later[20:, 6] = 1
    C = grown(known, np.full(5, 20.0), sp.csr_array(later), 0, rng)
    assert np.array_equal(C[:5], known)
    signs = np.sign(C)
    apart = (64 - signs @ signs.T) / 2
    assert (apart[np.triu_indices(7, 1)] > 20).all()  # random ones have 32 on average


def test_what_came_before_weighs_as_its_samples_did_but_three_chunks_at_most():
    pairs = sp.csr_array(np.array([[4.0, 2.0], [0.0, 0.0]]))  # class 0 alone, and with class 1
    L = sp.csr_array(np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 1.0], [1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]))
    for n_before, scale in ((6, 1.0), (900, 0.01)):
        times = n_before / 6
        sets, weights = codewords._label_sets(pairs * times, L)
        found = {}
        for row, weight in zip(sets.toarray().tolist(), weights, strict=True):
            found.setdefault(tuple(row), []).append(float(weight))
        past = scale * times
        assert found == {  # a tenth of the samples of each class, alone
            (0, 0, 1): pytest.approx([1.0, 0.3]),
            (0, 1, 0): pytest.approx([0.1 * 2 * past]),
            (1, 0, 1): pytest.approx([2.0]),
            (1, 0, 0): pytest.approx([4 * past, 0.1 * (2 + 6 * past)]),
            (1, 1, 0): pytest.approx([2 * past]),
        }


@pytest.mark.slow
def test_a_new_class_keeps_away_from_classes_that_came_together_before():
    """What is known of pairs lowers the loss over label sets of which the chunk shows none."""
    before = draw(600, 8, share=0.25)
    rng = np.random.default_rng(0)
    known = grown(np.empty((0, 16)), np.empty(0), before, 0, rng)
    later = np.zeros((300, 10))
    later[:, :8] = draw(300, 8, seed=1, share=0.05).toarray()
    later[np.arange(300), 8 + np.arange(300) % 2] = 1
    counts, pairs = before.sum(axis=0), class_pairs(before)
    every = np.vstack([np.pad(before.toarray(), ((0, 0), (0, 2)))[:60], later[:60]])
    losses = {}
    for name, told in (("told", pairs), ("untold", sp.csr_array((8, 8)))):
        C = [
            grown(known, counts, sp.csr_array(later), 0, np.random.default_rng(seed), told)
            for seed in range(3)
        ]
        losses[name] = np.mean([literal_loss(each, every, np.ones(120)) for each in C])
    assert losses["told"] < losses["untold"]


def test_two_classes_that_arrive_together_are_not_opposite():
    L = sp.csr_array(np.repeat(np.eye(2), 50, axis=0))
    C = np.sign(grown(np.empty((0, 64)), np.empty(0), L, 0, np.random.default_rng(0)))
    assert 20 <= (C[0] != C[1]).sum() <= 44


def test_nothing_is_drawn_where_no_class_is_new():
    C, rng = np.ones((3, 8)), np.random.default_rng(5)
    before = rng.bit_generator.state
    assert grown(C, np.ones(3), draw(9, 3), 2, rng) is C
    assert rng.bit_generator.state == before


def test_a_single_sample_may_bring_classes():
    L = sp.csr_array(np.array([[0.0, 1.0, 1.0]]))
    C = grown(np.ones((1, 8)), np.ones(1), L, 3, np.random.default_rng(0))
    assert C.shape == (3, 8) and np.isfinite(C).all()


def test_a_code_is_the_sign_of_the_sum_of_codewords_and_zero_counts_as_minus_one():
    C = np.array([[1.0, -2.0, 0.5, 0.0], [2.0, 1.0, -0.5, 0.0]])
    B = sample_codes(sp.csr_array(np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])), C)
    assert B.tolist() == [[1, -1, 1, -1], [1, -1, -1, -1], [-1, -1, -1, -1]]


def test_the_order_of_a_chunk_does_not_matter():
    L = draw(300, 9)
    shuffled = L[np.random.default_rng(1).permutation(300)]
    one, other = (
        grown(np.empty((0, 16)), np.empty(0), each, 4, np.random.default_rng(2))
        for each in (L, shuffled)
    )
    assert np.array_equal(one, other)


def owners(L, n_owned, known=None, counts=(), n_bits=16):
    """The owned bits of all classes as a 0/1 matrix (c, n_owned)."""
    known = np.empty((0, n_bits)) if known is None else known
    C = grown(known, counts, L, n_owned, np.random.default_rng(0))
    return C[:, n_bits - n_owned :], C


def test_every_class_owns_a_bit_alone_while_there_are_enough():
    owned, C = owners(draw(50, 5, share=0.2), 6)
    assert owned.sum(axis=1).tolist() == [1] * 5 and owned.sum(axis=0).max() == 1
    L = sp.csr_array(np.array([[1.0, 0, 0, 1, 0], [0, 0, 0, 0, 0]]))
    assert np.array_equal(sample_codes(L, C)[:, 10:] > 0, L.toarray() @ owned > 0)


def test_frequent_classes_choose_first_and_rare_ones_share():
    times = [3, 40, 1, 20, 2]
    L = sp.csr_array(np.repeat(np.eye(5), times, axis=0))
    owned, _ = owners(L, 3, n_bits=48)
    alone = owned[:, owned.sum(axis=0) == 1].any(axis=1)
    assert alone.tolist() == [False, True, False, True, False]


def test_a_class_that_arrives_joins_the_bit_with_the_fewest_samples_so_far():
    L = sp.csr_array(np.repeat(np.eye(2), [5, 1], axis=0))
    before, known = owners(L, 2, n_bits=48)
    later = sp.csr_array(np.array([[1.0, 0, 0], [0, 0, 1.0]]))
    # since then the second became frequent
    after, C = owners(later, 2, known, counts=[1, 50], n_bits=48)
    assert np.array_equal(C[:2], known)
    assert np.array_equal(after[2], before[0])


@pytest.mark.parametrize(("n_learned", "n_shared"), [(0, 3), (8, 3), (9, 2), (32, 2), (33, 1)])
def test_a_class_that_shares_owns_more_bits_where_few_are_learned(n_learned, n_shared):
    L = sp.csr_array(np.repeat(np.eye(20), 2, axis=0))
    owned, C = owners(L, 16, n_bits=16 + n_learned)
    assert np.array_equal(owned, C[:, n_learned:])
    assert sorted(owned.sum(axis=1)) == [1.0] * 16 + [float(n_shared)] * 4
    if n_shared > 1:
        assert len(np.unique(owned, axis=0)) == 20
