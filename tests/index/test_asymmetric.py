"""Asymmetric search: table look-ups, their certificate, and what happens where it fails."""

from __future__ import annotations

import faiss
import numpy as np
import pytest

from oasis.codes import unpack
from oasis.index import HammingIndex
from oasis.index.checks import random_codes, tied_codes


@pytest.fixture
def asked(monkeypatch):
    """How many codes each look-up of 8 bits was asked for."""
    numbers, search = [], faiss.IndexPQFastScan.search

    def noted(self, queries, k, **options):
        numbers.append(k)
        return search(self, queries, k, **options)

    monkeypatch.setattr(faiss.IndexPQFastScan, "search", noted)
    return numbers


def truth_of(queries, codes, k):
    """Return the order and scores of brute force: float64 sums, rounded once, ties by row."""
    scores = (queries.astype(np.float64) @ unpack(codes).astype(np.float64).T).astype(np.float32)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, axis=1)


def assert_exact(codes, queries, k, n_chunks=1):
    """Add codes, and compare a batch and single queries with brute force; returns the index."""
    index = HammingIndex(8 * codes.shape[1])
    for part in np.array_split(np.arange(len(codes)), n_chunks):
        index.add(codes[part], part)
    order, scores = truth_of(queries, codes, k)
    for some in (slice(None), *(slice(row, row + 1) for row in range(len(queries)))):
        got = index.search_asymmetric(queries[some], k)
        assert (got.ids == order[some]).all()
        assert (got.scores == scores[some]).all()
    return index


@pytest.mark.parametrize("shape", ["normal", "heavy", "halves", "signs", "counts", "one bit"])
@pytest.mark.parametrize("n_bits", [24, 64, 128, 1032])
@pytest.mark.parametrize("n_chunks", [1, 4])
def test_answers_equal_brute_force(shape, n_bits, n_chunks):
    # 1032 bits: too many for sums of 16 bits
    rng = np.random.default_rng([n_bits, len(shape)])
    codes = np.concatenate([random_codes(rng, 5000, n_bits), tied_codes(rng, 3000, n_bits, 40)])
    codes = codes[rng.permutation(len(codes))]
    queries = rng.standard_normal((6, n_bits))
    if shape == "heavy":
        queries *= 10.0 ** rng.integers(-4, 3, queries.shape)
    elif shape == "halves":
        queries[:, n_bits // 2 :] = 0
    elif shape == "signs":
        queries = np.sign(queries)
    elif shape == "counts":
        queries = np.rint(2 * queries) * 0.25
    elif shape == "one bit":
        # half of the codes share the best score
        queries[:, 1:] = 0
    for k in (1, 20, 700):
        assert_exact(codes, queries, k, n_chunks)


def test_an_ordinary_query_needs_one_scan(asked):
    rng = np.random.default_rng(33)
    codes = random_codes(rng, 50_000, 128)
    queries = rng.standard_normal((40, 128)).astype(np.float32)
    assert_exact(codes, queries, 100)
    assert len(asked) == 41
    assert max(asked) < 200


def test_a_certificate_that_fails_widens_the_search(asked):
    # four bits decide the step of the rounding, so that the others, which decide the order, are
    # rounded away: no look-up of 8 bits can tell the codes of the best pattern apart
    rng = np.random.default_rng(31)
    codes = random_codes(rng, 40_000, 64)
    queries = rng.standard_normal((3, 64)) * 1e-4
    queries[:, :4] = 100 * rng.standard_normal((3, 4))
    assert_exact(codes, queries, 20)
    # the first look finds that all four bits must agree, and the second does without them
    assert len(asked) == 8
    assert asked[1] > asked[0]


def test_large_values_that_no_code_agrees_with_widen_the_search_to_the_end(asked):
    # bit 1 is clear in all codes, so its value, which is all that 8 bits can tell, cannot be cut
    rng = np.random.default_rng(35)
    codes = random_codes(rng, 40_000, 64)
    codes[:, 0] &= 0b11111101
    queries = rng.standard_normal((2, 64)) * 1e-4
    queries[:, 1] = 100
    assert_exact(codes, queries, 20)
    assert len(asked) == 9


def test_single_queries_with_bits_of_weight_zero_tie_by_insertion():
    rng = np.random.default_rng(92)
    codes = np.repeat(random_codes(rng, 40, 64), 50, axis=0)
    codes[:, 3] = random_codes(rng, 2000, 8)[:, 0]
    index = HammingIndex(64)
    index.add(codes, np.arange(2000))
    queries = rng.standard_normal((6, 64))
    queries[:, 24:32] = 0
    scores = (queries @ unpack(codes).astype(np.float64).T).astype(np.float32)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :120]
    for query, wanted in zip(queries, order, strict=True):
        assert (index.search_asymmetric(query[None], 120).ids[0] == wanted).all()
