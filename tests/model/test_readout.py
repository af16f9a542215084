"""The readout of labels from codes, against a plain regression on everything stored."""

from itertools import combinations

import numpy as np
import scipy.sparse as sp

from oasis.model.readout import (
    BitSums,
    Codebook,
    class_pairs,
    for_hamming,
)


def draw(n, r, c, seed=0):
    rng = np.random.default_rng([9, seed])
    L = (rng.random((n, c)) < 0.3).astype(float)
    B = np.where(L @ rng.standard_normal((c, r)) + 0.1 * rng.standard_normal((n, r)) > 0, 1.0, -1.0)
    return B, L


def test_directions_equal_a_ridge_regression_of_centred_labels_on_centred_codes():
    B, L = draw(200, 16, 5)
    book = Codebook.zero(16).plus(B, sp.csr_array(L))
    Bc, Lc = B - B.mean(axis=0), L - L.mean(axis=0)
    ridge = 0.07
    D0 = np.random.default_rng(1).standard_normal((5, 16))
    A = Bc.T @ Bc + ridge * len(B) * np.eye(16)
    expected = np.linalg.inv(A) @ (Bc.T @ Lc + ridge * len(B) * D0.T)
    assert np.allclose(book.directions(ridge, D0), expected.T)


def test_chunks_with_arriving_classes_add_up_to_one():
    B, L = draw(90, 8, 6)
    L[:40, 4:] = 0  # the last two classes arrive with the second chunk
    once = Codebook.zero(8).plus(B, sp.csr_array(L))
    twice = (
        Codebook.zero(8).plus(B[:40], sp.csr_array(L[:40, :4])).plus(B[40:], sp.csr_array(L[40:]))
    )
    assert np.allclose(once.LB, twice.LB) and np.array_equal(once.counts, twice.counts)
    assert np.array_equal(once.bits.BB, twice.bits.BB)
    assert np.array_equal(once.bits.B1, twice.bits.B1) and once.bits.n == twice.bits.n == 90


def test_the_covariance_of_bits_is_that_of_all_codes_and_shrinks_towards_independent_bits():
    B, _ = draw(90, 8, 6)
    sums = BitSums.of(B[:40]).joined(BitSums.of(B[40:]))
    covariance = np.cov(B.T, bias=True)
    assert np.allclose(sums.covariance(), covariance)
    assert np.allclose(sums.covariance(10), 0.9 * covariance + 0.1 * np.eye(8))
    assert np.array_equal(BitSums.zero(8).covariance(), np.zeros((8, 8)))


def test_pairs_are_those_of_each_sample_and_count_one_together():
    _, L = draw(120, 8, 7)
    expected = np.zeros((7, 7))
    for row in L:
        classes = np.flatnonzero(row)
        pairs = [(j, j) for j in classes] if len(classes) == 1 else list(combinations(classes, 2))
        for pair in pairs:
            expected[pair] += 1 / len(pairs)
    found = class_pairs(sp.csr_array(L))
    assert np.allclose(found.toarray(), expected, rtol=1e-5)
    assert np.isclose(found.sum(), L.any(axis=1).sum(), rtol=1e-5)


def test_pairs_add_up_to_the_last_bit_in_any_order_while_classes_arrive():
    B, L = draw(90, 8, 6)
    L[:40, 4:] = 0
    book = Codebook.zero(8)
    for rows, c in ((slice(0, 13), 4), (slice(13, 40), 4), (slice(40, 90), 6)):
        book = book.plus(B[rows], sp.csr_array(L[rows, :c]))
    assert np.array_equal(
        book.pairs.matrix().toarray(), class_pairs(sp.csr_array(L[::-1])).toarray()
    )


def test_the_readout_tells_the_classes_of_a_code():
    B, L = draw(500, 64, 6)
    book = Codebook.zero(64).plus(B, sp.csr_array(L))
    read = (B - B.mean(axis=0)) @ book.readout(book, np.zeros((6, 64))).T + L.mean(axis=0)
    assert read[L == 1].mean() > 0.8 and read[L == 0].mean() < 0.1


def test_a_codebook_without_classes_reads_nothing():
    book = Codebook.zero(8).plus(np.ones((3, 8)), sp.csr_array((3, 0)))
    assert book.readout(book, np.zeros((0, 8))).shape == (0, 8)
    assert book.bits.n == 3


def test_a_class_that_all_samples_have_is_read_from_its_codeword():
    B, L = draw(200, 16, 4)
    L[:, 2] = 1
    C = np.random.default_rng(1).standard_normal((4, 16))
    book = Codebook.zero(16).plus(B, sp.csr_array(L))
    assert np.allclose((B - B.mean(axis=0)) @ book.readout(book, 0 * C)[2], 0)
    same = Codebook.zero(16).plus(np.tile(np.sign(C[2]), (9, 1)), sp.csr_array(np.ones((9, 1))))
    assert same.readout(same, C[2:3])[0] @ np.sign(C[2]) > 0.99  # all codes are alike


def test_signs_for_hamming_keep_more_of_the_scores_than_those_of_the_projections():
    B = np.repeat(draw(400, 16, 3)[0], [1] * 12 + [5] * 4, axis=1)  # some bits say the same
    P = np.random.default_rng(2).standard_normal((50, B.shape[1]))
    P[:, np.setdiff1d(np.arange(12, 32), np.arange(12, 32, 5))] *= 1e-3  # read from one of five

    def kept(signs):
        pairs = zip(P @ B.T, signs @ B.T, strict=True)
        return np.mean([np.corrcoef(each)[0, 1] for each in pairs])

    S = BitSums.of(B).covariance()
    assert kept(np.sign(for_hamming(P, S))) > kept(np.sign(P)) + 0.03
    inverse = np.linalg.inv(S + 0.5 * np.eye(len(S)))
    assert np.allclose(for_hamming(P, S), P @ S @ inverse)
