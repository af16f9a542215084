"""Bits stored several times: what distances then say, and how queries are rounded."""

from __future__ import annotations

import milvus_engines
import numpy as np
import pytest
from milvus_engines import N_BITS, stored

from oasis.codes import hamming, pack, unpack
from oasis.errors import InputError
from oasis.index import HammingIndex
from oasis.index import checks as index_checks
from oasis.index.checks import random_codes
from oasis.scale.milvus import MilvusIndex
from oasis.scale.milvus.copies import query_codes, repeated, rounded

lite = milvus_engines.lite
server = milvus_engines.server
make = milvus_engines.make


def skewed(rng, n, n_bits):
    """Queries with few large values and many small ones, as those of label and content bits."""
    values = 0.01 * rng.standard_normal((n, n_bits))
    values[:, : n_bits // 2] *= 0.3
    heavy = rng.random((n, n_bits // 2)) < 0.1
    values[:, : n_bits // 2] += heavy * rng.standard_normal(heavy.shape)
    return values


@pytest.mark.parametrize("copies", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("kind", ["normal", "skewed", "signs", "zero"])
def test_distances_to_a_query_code_are_inner_products_with_its_weights(copies, kind):
    rng = np.random.default_rng([copies, len(kind)])
    codes = random_codes(rng, 200, 40)
    values = {
        "normal": rng.standard_normal((5, 40)),
        "skewed": skewed(rng, 5, 40),
        "signs": np.sign(rng.standard_normal((5, 40))),
        "zero": np.zeros((5, 40)),
    }[kind]
    weights = rounded(values, copies)
    assert (np.abs(weights) <= copies).all()
    assert ((weights - copies) % 2 == 0).all()
    if copies == 1:
        weights = unpack(pack(values)).astype(np.float64)
    assert (weights * values >= 0).all()
    distances = hamming(query_codes(values, copies), repeated(codes, copies))
    scores = weights @ unpack(codes).astype(np.float64).T
    assert (distances == (40 * copies - scores) / 2).all()


@pytest.mark.parametrize("copies", [2, 3, 4])
def test_signs_are_not_rounded(copies):
    signs = unpack(random_codes(np.random.default_rng(0), 20, 64)).astype(np.float64)
    for scale in (1e-300, 1e-3, 1.0, 1e30):
        assert (rounded(scale * signs, copies) == copies * signs).all()


def test_queries_are_rounded_alike_in_any_batch():
    values = skewed(np.random.default_rng(1), 150, 64)
    together = query_codes(values, 4)
    assert (together == np.concatenate([query_codes(each[None], 4) for each in values])).all()
    assert query_codes(values[:0], 4).shape == (0, 32)


@pytest.mark.parametrize("kind", ["normal", "skewed"])
def test_candidates_hold_more_of_the_answer_with_every_copy(kind):
    rng = np.random.default_rng(2)
    codes = random_codes(rng, 20_000, 64)
    values = rng.standard_normal((30, 64)) if kind == "normal" else skewed(rng, 30, 64)
    best = np.argsort(-(values @ unpack(codes).astype(np.float64).T), axis=1)[:, :10]
    recall = {}
    for copies in (1, 2, 4):
        distances = hamming(query_codes(values, copies), repeated(codes, copies))
        found = np.argsort(distances, axis=1, kind="stable")[:, :200]
        recall[copies] = np.mean([len(set(a) & set(b)) for a, b in zip(best, found, strict=True)])
    assert recall[1] < recall[2] - 0.5 < recall[4] - 0.5
    assert recall[4] > 9.5


# -- in Milvus -----------------------------------------------------------------------------------


@pytest.mark.scale
@pytest.mark.parametrize("copies", [1, 3])
def test_answers_do_not_depend_on_copies(make, copies):
    with MilvusIndex(make.uri, 16, name=f"c{copies}", copies=copies, timeout=120) as ix:

        def emptied(n_bits):
            assert n_bits == 16
            ix.discard_from(0)
            return ix

        same, truth, rng = index_checks.filled(emptied, 16, seed=copies)
        assert same.copies == copies
        queries = index_checks.tied_codes(rng, 4, 16, 8)
        for k in (1, 20, 160):
            index_checks.assert_search(ix, truth, queries, k, "any")
        offsets, _, distances = ix.range_search(queries, 3)
        every = [[d for d, _ in truth.distances(query, None) if d <= 3] for query in queries]
        assert np.diff(offsets).tolist() == [len(each) for each in every]
        assert sorted(distances[: offsets[1]].tolist()) == sorted(every[0])
        codes = pack(np.array(list(truth.items.values())) - 0.5)
        assert stored(ix) == dict(zip(truth.items, map(bytes, codes), strict=True))


@pytest.mark.scale
def test_a_collection_keeps_the_copies_that_it_was_made_with(make):
    with MilvusIndex(make.uri, 8, name="kept", copies=2, timeout=120) as ix:
        ix.add(np.array([[7], [9]], np.uint8), [1, 2])
    with MilvusIndex(make.uri, 8, name="kept", timeout=120) as ix:
        assert ix.copies == 2
        assert stored(ix) == {1: b"\7", 2: b"\x09"}
    with pytest.raises(InputError, match=r"stores each bit 2 times, expected 4; .*copies=2"):
        MilvusIndex(make.uri, 8, name="kept", copies=4, timeout=120)
    with pytest.raises(InputError, match="holds codes of 8 bits, expected 16"):
        MilvusIndex(make.uri, 16, name="kept", copies=1, timeout=120)


@pytest.mark.scale
def test_four_copies_find_what_signs_miss(make):
    rng = np.random.default_rng(8)
    codes = random_codes(rng, 30_000, N_BITS)
    values = skewed(rng, 20, N_BITS)
    exact = HammingIndex(N_BITS)
    exact.add(codes, np.arange(len(codes)))
    best = exact.search_asymmetric(values, 10).ids
    ix = make()
    assert ix.copies == 4
    ix.add(codes, np.arange(len(codes)))
    got = ix.search_asymmetric(values, 10).ids
    assert np.mean([len(set(a) & set(b)) / 10 for a, b in zip(got, best, strict=True)]) > 0.99
