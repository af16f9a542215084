"""Codes with label bits are searched by label half; answers stay exact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasis.codes import unpack
from oasis.errors import InputError
from oasis.index import HammingIndex
from oasis.index.checks import BruteForce, assert_asymmetric, random_codes


@pytest.fixture(autouse=True)
def groups_however_few_codes(monkeypatch):
    monkeypatch.setattr("oasis.index.segment._TAIL", 0)
    monkeypatch.setattr("oasis.index.segment._PACKED", 1)
    monkeypatch.setattr("oasis.index.label_groups._LEAST_CODES", 1)
    monkeypatch.setattr("oasis.index.label_groups._LISTED", 4)


def stream(rng, n, n_kinds, skew=1.0):
    """Return codes of 64 label and 64 content bits: kinds of falling frequency, random content."""
    kinds = random_codes(rng, n_kinds, 64)
    share = 1 / np.arange(1, n_kinds + 1) ** skew
    labels = kinds[rng.choice(n_kinds, n, p=share / share.sum())]
    return np.concatenate([labels, random_codes(rng, n, 64)], axis=1), kinds


def queries_near(rng, kinds, n, weight):
    """Return n queries near some kinds, whose content half has the given weight."""
    labels = unpack(kinds[rng.integers(0, len(kinds), n)]) * np.abs(rng.standard_normal((n, 64)))
    content = weight * rng.standard_normal((n, 64))
    return np.concatenate([labels + 0.3 * rng.standard_normal((n, 64)), content], axis=1)


def assert_exact(index, codes, queries, k):
    scores = (queries @ unpack(codes).astype(np.float64).T).astype(np.float32)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    got = index.search_asymmetric(queries, k)
    assert (got.ids == order).all()
    assert (got.scores == np.take_along_axis(scores, order, axis=1)).all()
    for i in range(3):
        assert (index.search_asymmetric(queries[i : i + 1], k).ids == order[i]).all()


def index_of(codes):
    index = HammingIndex(128, 64)
    index.add(codes, np.arange(len(codes)))
    return index


@pytest.mark.parametrize("weight", [0.0, 1e-30, 1e-9, 0.03, 0.3, 1.0, 30.0])
@pytest.mark.parametrize("ranked", [8, 384])
@pytest.mark.parametrize("listed", [1, 16, 4096])
def test_answers_are_exact_at_every_content_weight(weight, ranked, listed, monkeypatch):
    monkeypatch.setattr("oasis.index.label_groups._RANKED", ranked)
    monkeypatch.setattr("oasis.index.label_groups._LISTED", listed)
    rng = np.random.default_rng(51)
    codes, kinds = stream(rng, 9000, 150)
    index = index_of(codes)
    for k in (1, 20, 500):
        queries = queries_near(rng, kinds, 7, weight)
        # a steep query: label values that all must agree with
        queries[5:, :3] *= 100
        assert_exact(index, codes, queries, k)


def test_labels_that_no_group_agrees_with_are_exact():
    # faiss returns no label half at all: all have the lowest sum
    rng = np.random.default_rng(68)
    codes, _ = stream(rng, 3000, 60)
    codes[:, 0] &= 0b11111110
    queries = np.zeros((4, 128))
    queries[:, 0] = 5
    queries[1:, 64:] = 0.01 * rng.standard_normal((3, 64))
    assert_exact(index_of(codes), codes, queries, 30)


def test_content_that_is_rounded_away_is_exact():
    # four content bits decide the step of the rounding, the others the order
    rng = np.random.default_rng(53)
    codes, kinds = stream(rng, 20_000, 20)
    index = index_of(codes)
    queries = queries_near(rng, kinds, 6, 1e-7)
    queries[:, 64:68] = 1e-3 * rng.standard_normal((6, 4))
    assert_exact(index, codes, queries, 30)
    # and where labels leave no precision for content at all
    assert_exact(index, codes, queries_near(rng, kinds, 6, 1e-8), 30)


@pytest.mark.parametrize("half", ["label", "content", "neither"])
def test_a_query_without_one_half_is_exact(half):
    rng = np.random.default_rng(54)
    codes, kinds = stream(rng, 9000, 30)
    index = index_of(codes)
    queries = queries_near(rng, kinds, 6, 0.1)
    kept = {"label": slice(64, None), "content": slice(64), "neither": slice(None)}[half]
    queries[1:, kept] = 0
    for k in (5, 700):
        assert_exact(index, codes, queries, k)


def test_signs_as_queries_are_exact():
    rng = np.random.default_rng(55)
    codes, _ = stream(rng, 9000, 30)
    assert_exact(index_of(codes), codes, unpack(codes[:6]).astype(np.float64), 50)


def test_files_keep_label_bits(folder):
    rng = np.random.default_rng(58)
    codes, kinds = stream(rng, 8000, 60)
    index_of(codes).save(folder / "index")
    opened = HammingIndex.open(folder / "index", verify=False)
    assert opened.label_bits == 64
    queries = queries_near(rng, kinds, 8, 0.05)
    assert_exact(opened, codes, queries, 30)
    more, _ = stream(rng, 500, 60)
    opened.add(more, np.arange(8000, 8500))
    assert_exact(opened, np.concatenate([codes, more]), queries, 30)


@pytest.mark.parametrize("sizes", [[500] * 9 + [32] * 40, [500] * 2 + [25] * 400, [20] * 900])
def test_memory_with_label_bits(sizes, monkeypatch):
    monkeypatch.setattr("oasis.index.label_groups._LISTED", 24)
    rng = np.random.default_rng(67)
    labels = np.repeat(random_codes(rng, len(sizes), 64), sizes, axis=0)
    codes = np.concatenate([labels, random_codes(rng, len(labels), 64)], axis=1)
    codes = codes[rng.permutation(len(codes))]
    index = index_of(codes)
    plain = index.nbytes
    assert_exact(index, codes, 0.1 + rng.standard_normal((4, 128)), 30)
    assert 8 * len(codes) < index.nbytes - plain <= 23 * len(codes)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.data())
def test_any_codes_and_queries_are_answered_as_by_brute_force(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    n_label_bytes = data.draw(st.integers(1, 3))
    n_bytes = n_label_bytes + data.draw(st.integers(1, 4))
    n, n_kinds = data.draw(st.integers(1, 300)), data.draw(st.integers(1, 40))
    kinds = rng.integers(0, 256, (n_kinds, n_label_bytes), dtype=np.uint8)
    content = rng.integers(0, data.draw(st.sampled_from([2, 256])), (n, n_bytes - n_label_bytes))
    codes = np.concatenate([kinds[rng.integers(0, n_kinds, n)], content.astype(np.uint8)], axis=1)
    index, truth = HammingIndex(8 * n_bytes, 8 * n_label_bytes), BruteForce(8 * n_bytes)
    index.add(codes, np.arange(n))
    truth.add(codes, np.arange(n))
    queries = rng.standard_normal((4, 8 * n_bytes))
    if data.draw(st.booleans()):
        queries = np.rint(2 * queries)
    queries[:, 8 * n_label_bytes :] *= data.draw(st.sampled_from([0, 1e-20, 1e-6, 0.05, 0.5, 3]))
    queries[:, : data.draw(st.integers(1, 4))] *= data.draw(st.sampled_from([1, 1, 100, 1e5]))
    for k in data.draw(st.lists(st.integers(1, n + 3), min_size=1, max_size=3)):
        assert_asymmetric(index, truth, queries.astype(np.float32), k)
        assert_asymmetric(index, truth, queries[:1].astype(np.float32), k)


@pytest.mark.parametrize("seed", range(6))
def test_content_that_is_tiny_beside_the_labels_still_decides(seed):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 256, (37, 3), dtype=np.uint8)
    codes[:, 0] = codes[0, 0]  # one group; its label score is 0 for some queries
    index, truth = HammingIndex(24, 8), BruteForce(24)
    index.add(codes, np.arange(37))
    truth.add(codes, np.arange(37))
    queries = np.rint(2 * rng.standard_normal((12, 24)))
    queries[:, 8:] *= 1e-20
    assert_asymmetric(index, truth, queries.astype(np.float32), 1)


@pytest.mark.parametrize("label_bits", [-8, 4, 64, 72, True, 8.0, "8"])
def test_label_bits_are_checked(label_bits):
    with pytest.raises(InputError, match="label_bits must be a multiple of 8"):
        HammingIndex(64, label_bits)
