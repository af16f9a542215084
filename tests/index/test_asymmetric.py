"""Asymmetric search: table look-ups, their certificate, and what happens where it fails."""

from __future__ import annotations

import numpy as np
import pytest

from oasis.codes import unpack
from oasis.index import HammingIndex
from oasis.index import checks as index_checks
from oasis.index.checks import BruteForce, assert_asymmetric, filled, random_codes, tied_codes
from oasis.index.engine import best_codes, fast_scan, packed_codes
from oasis.index.engine.buffers import Buffer
from oasis.index.engine.fast_scan import n_candidates, pack_index
from oasis.index.engine.packed_codes import PackedCodes
from oasis.index.engine.projections import Projections


@pytest.fixture
def small_segments(monkeypatch):
    """Segments so small that toy indexes have several."""
    monkeypatch.setattr(packed_codes, "SEGMENT", 64)
    monkeypatch.setattr(best_codes, "SEGMENT", 64)
    monkeypatch.setattr(packed_codes, "SMALLEST", 8)


@pytest.fixture
def steps(monkeypatch):
    """What a search did: ("scan", queries, how wide) and ("product", queries)."""
    taken = []
    scan, product = best_codes.scan, best_codes.by_product

    def noted_scan(codes, n_slots, packed, projections, eased, s, wider):
        taken.append(("scan", len(projections), wider))
        return scan(codes, n_slots, packed, projections, eased, s, wider)

    def noted_product(parts, projections, s):
        taken.append(("product", len(projections)))
        return product(parts, projections, s)

    monkeypatch.setattr(best_codes, "scan", noted_scan)
    monkeypatch.setattr(best_codes, "by_product", noted_product)
    return taken


def truth_of(queries, codes, k):
    """Return the order and scores of brute force: float64 sums, rounded once, ties by row."""
    scores = (queries.astype(np.float64) @ unpack(codes).astype(np.float64).T).astype(np.float32)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, axis=1)


@pytest.mark.parametrize("check", index_checks.ASYMMETRIC_CHECKS, ids=lambda f: f.__name__)
@pytest.mark.usefixtures("small_segments")
def test_index_of_many_segments_passes(check):
    check(HammingIndex, "insertion")


@pytest.mark.parametrize("n_bits", [8, 24, 64, 128, 512, 1024])
@pytest.mark.parametrize("shape", ["normal", "heavy", "zeros", "signs"])
def test_rounding_bounds_the_error_of_faiss(n_bits, shape):
    rng = np.random.default_rng([n_bits, len(shape)])
    queries = rng.standard_normal((5, n_bits))
    if shape == "heavy":
        queries *= 10.0 ** rng.integers(-4, 3, queries.shape)
    elif shape == "zeros":
        queries[:, n_bits // 2 :] = 0
    elif shape == "signs":
        queries = np.sign(queries)
    projections = Projections.of(queries)
    codes = random_codes(rng, 500, n_bits)
    sums, slots = pack_index(codes).search(projections.scaled, 500)
    scores = projections.scaled.astype(np.float64) @ unpack(codes).astype(np.float64).T
    for row in range(5):
        # codes with a sum of 0 steps, the lowest, are left out by faiss
        found = slots[row] >= 0
        error = np.abs(sums[row, found] - scores[row, slots[row, found]])
        bound = projections.rounding[row]
        assert error.max() <= bound
        left_out = np.setdiff1d(np.arange(500), slots[row])
        lowest = -np.abs(projections.scaled[row]).sum()
        assert (scores[row, left_out] <= lowest + bound).all()


def test_a_certificate_that_fails_widens_the_search(steps):
    # four bits decide the step of the rounding, so that the others, which decide the order, are
    # rounded away: no look-up of 8 bits can tell the codes of the best pattern apart
    rng = np.random.default_rng(31)
    codes = random_codes(rng, 40_000, 64)
    index = HammingIndex(64)
    index.add(codes, np.arange(40_000))
    queries = rng.standard_normal((3, 64)) * 1e-4
    queries[:, :4] = 100 * rng.standard_normal((3, 4))
    order, scores = truth_of(queries, codes, 20)
    got = index.search_asymmetric(queries, 20)
    assert (got.ids == order).all()
    assert (got.scores == scores).all()
    # the first look finds that all four bits must agree, and the second does without them
    assert steps == [("scan", 3, 1), ("scan", 3, 4)]
    # and the first look alone would have been wrong
    part = Projections.of(queries)
    view = index._snapshot.view()
    nothing = part.eased(np.full(3, -np.inf))
    found = best_codes.scan(view.codes, view.n_slots, view.packed, part, nothing, 20, 1)
    _, slots, _, proven = best_codes.settle(view.codes, part, found, 20)
    assert not proven.any()
    assert (slots != order).any(axis=1).all()


def test_large_values_that_no_code_agrees_with_widen_the_search_to_the_end(steps):
    # bit 1 is clear in all codes, so its value, which is all that 8 bits can tell, cannot be cut
    rng = np.random.default_rng(35)
    codes = random_codes(rng, 40_000, 64)
    codes[:, 0] &= 0b11111101
    index = HammingIndex(64)
    index.add(codes, np.arange(40_000))
    queries = rng.standard_normal((2, 64)) * 1e-4
    queries[:, 1] = 100
    order, scores = truth_of(queries, codes, 20)
    got = index.search_asymmetric(queries, 20)
    assert (got.ids == order).all()
    assert (got.scores == scores).all()
    assert steps == [("scan", 2, 1), ("scan", 2, 4), ("scan", 2, 64), ("product", 2)]


@pytest.mark.parametrize("shape", ["normal", "heavy", "signs"])
@pytest.mark.parametrize("rank", [0, 30, 400, 1999])
def test_cut_values_move_the_scores_of_all_that_matters_alike(shape, rank):
    rng = np.random.default_rng([rank, len(shape)])
    codes = random_codes(rng, 2000, 64)
    queries = rng.standard_normal((6, 64))
    if shape == "heavy":
        queries *= 10.0 ** rng.integers(-3, 2, queries.shape)
    elif shape == "signs":
        queries = np.sign(queries) * rng.integers(1, 5, queries.shape)
    part = Projections.of(queries)
    signs = unpack(codes).astype(np.float64).T
    exact = part.scaled.astype(np.float64) @ signs
    floor = np.sort(exact, axis=1)[:, -1 - rank] - part.slack
    eased = part.eased(floor)
    if shape == "heavy" and rank <= 30:
        assert (eased.excess > 0).any()
        assert (eased.rounding[eased.excess > 0] < part.rounding[eased.excess > 0]).any()
    sums = eased.scaled.astype(np.float64) @ signs
    for row in range(6):
        matter = exact[row] >= floor[row]
        excess = eased.excess[row] + eased.slack[row]
        assert (exact[row, matter] - sums[row, matter] <= excess).all()
        assert (eased.rounding <= part.rounding * (1 + 1e-6)).all()
    # and the scan finds them: whoever reaches the floor is within the bounds
    found, slots = pack_index(codes).search(np.ascontiguousarray(eased.scaled), 2000)
    for row in range(6):
        there = slots[row] >= 0
        bound = found[row, there] + eased.rounding[row] + eased.excess[row] + eased.slack[row]
        reached = exact[row, slots[row, there]]
        assert (reached[reached >= floor[row]] <= bound[reached >= floor[row]]).all()


def test_a_floor_changes_no_answer(small_segments):
    rng = np.random.default_rng(36)
    codes = tied_codes(rng, 3000, 64, 12)
    queries = rng.standard_normal((8, 64)) * 10.0 ** rng.integers(-3, 2, (8, 64))
    part = Projections.of(queries)
    buffer, packed = Buffer(codes), PackedCodes()
    for s in (1, 7, 200):
        order, scores = truth_of(queries, codes, s)
        plain = best_codes.best(buffer, 3000, packed, part, s)
        assert (plain[1] == order).all()
        assert (plain[0] == scores).all()
        for reached in (scores[:, -1], scores[:, -1] - np.float32(0.5)):
            eased = part.eased(part.lowest(reached))
            found = best_codes.scan(buffer, 3000, packed, part, eased, s, 64)
            settled = best_codes.settle(buffer, part, found, s)
            assert settled.proven.any()
            assert (settled.scores[settled.proven] == scores[settled.proven]).all()
            assert (settled.slots[settled.proven] == order[settled.proven]).all()


def test_codes_that_all_tie_are_settled_by_the_product(steps):
    rng = np.random.default_rng(32)
    codes = random_codes(rng, 40_000, 64)
    index = HammingIndex(64)
    index.add(codes, np.arange(40_000))
    # one bit has weight: half of the codes share the best score
    queries = np.zeros((2, 64))
    queries[0, 5], queries[1, 40] = 0.3, -7e-20
    order, scores = truth_of(queries, codes, 10)
    got = index.search_asymmetric(queries, 10)
    assert (got.ids == order).all()
    assert (got.scores == scores).all()
    assert steps[-1] == ("product", 2)


def test_an_ordinary_query_needs_one_scan(steps):
    rng = np.random.default_rng(33)
    codes = random_codes(rng, 50_000, 128)
    index = HammingIndex(128)
    index.add(codes, np.arange(50_000))
    queries = rng.standard_normal((40, 128)).astype(np.float32)
    order, scores = truth_of(queries, codes, 100)
    got = index.search_asymmetric(queries, 100)
    assert (got.ids == order).all()
    assert (got.scores == scores).all()
    assert steps == [("scan", 40, 1)]
    eased = Projections.of(queries).eased(np.full(40, -np.inf))
    assert n_candidates(eased, 100, 50_000, 1) < 200


def test_codes_too_long_for_16_bit_sums_are_searched():
    rng = np.random.default_rng(34)
    n_bits = fast_scan.MAX_BITS + 8
    codes = random_codes(rng, 3000, n_bits)
    index = HammingIndex(n_bits)
    index.add(codes, np.arange(3000))
    queries = rng.standard_normal((4, n_bits))
    order, scores = truth_of(queries, codes, 10)
    got = index.search_asymmetric(queries, 10)
    assert (got.ids == order).all()
    assert (got.scores == scores).all()
    assert index._snapshot.packed.nbytes == 0


@pytest.mark.usefixtures("small_segments")
def test_an_older_snapshot_ignores_codes_packed_for_a_later_one():
    index, truth, rng = filled(HammingIndex, 64, n=80, seed=35)
    old = HammingIndex(64)
    old._snapshot = index._snapshot
    before = BruteForce(64)
    before.items = dict(truth.items)
    queries = rng.standard_normal((3, 64)).astype(np.float32)
    for start in (1000, 2000, 3000):
        codes = random_codes(rng, 150, 64)
        index.add(codes, np.arange(start, start + 150))
        truth.add(codes, np.arange(start, start + 150))
        assert_asymmetric(index, truth, queries, 30)
    assert index._snapshot.packed.nbytes > 8 * 80
    for k in (1, 20, 80, 90):
        assert_asymmetric(old, before, queries, k)
        assert_asymmetric(old, before, queries[:1], k)


@pytest.mark.usefixtures("small_segments")
def test_segments_cover_the_codes_once_and_stay_few():
    rng = np.random.default_rng(36)
    codes = Buffer(np.empty((0, 8), dtype=np.uint8))
    packed = PackedCodes()
    length = 0
    for size in rng.integers(1, 30, 60).tolist():
        codes.write(length, random_codes(rng, size, 64))
        length += size
        segments = packed.cover(codes, length, 10**9)
        ends = [0, *(segment.stop for segment in segments)]
        assert ends[:-1] == [segment.start for segment in segments]
        assert length - 8 < ends[-1] <= length
        # full ones, and a logarithmic number of smaller ones behind them
        assert len(segments) <= length // 64 + 4
        for segment in segments:
            assert segment.part.index.ntotal == segment.stop - segment.start <= 64
    assert packed.nbytes <= 8 * (length + 32 * len(segments))


@pytest.mark.usefixtures("small_segments")
def test_a_single_query_packs_one_segment_at_a_time():
    rng = np.random.default_rng(37)
    codes = random_codes(rng, 1000, 64)
    index = HammingIndex(64)
    index.add(codes, np.arange(1000))
    query = rng.standard_normal((1, 64))
    order, _ = truth_of(query, codes, 10)
    for n_segments in (1, 2, 3):
        assert (index.search_asymmetric(query, 10).ids == order).all()
        assert index._snapshot.packed.nbytes == n_segments * 64 * 8
    index.search_asymmetric(np.repeat(query, 40, axis=0), 10)
    assert index._snapshot.packed.nbytes >= 1000 * 8


def test_ties_of_tied_codes_go_by_insertion_over_packed_codes():
    rng = np.random.default_rng(38)
    codes = np.concatenate([random_codes(rng, 5000, 64), tied_codes(rng, 3000, 64, 40)])
    codes = codes[rng.permutation(len(codes))]
    index = HammingIndex(64)
    index.add(codes, np.arange(len(codes)))
    index.remove(np.arange(0, 900, 3))
    queries = np.concatenate([unpack(tied_codes(rng, 3, 64, 9)), rng.integers(-2, 3, (3, 64))])
    scores = queries.astype(np.float64) @ unpack(codes).astype(np.float64).T
    scores[:, np.arange(0, 900, 3)] = -np.inf
    order = np.argsort(-scores, axis=1, kind="stable")[:, :300]
    assert (index.search_asymmetric(queries, 300).ids == order).all()
    for query, expected in zip(queries, order, strict=True):
        assert (index.search_asymmetric(query[None], 300).ids == expected).all()


@pytest.mark.parametrize("n_bits", [8, 64, 128])
def test_a_single_query_is_prepared_as_in_a_batch(n_bits):
    rng = np.random.default_rng(n_bits)
    queries = rng.standard_normal((40, n_bits)) * 10.0 ** rng.integers(-30, 30, (40, 1))
    queries[10:20] *= 10.0 ** rng.integers(-3, 3, (10, n_bits))
    queries[20:25] = np.sign(queries[20:25])
    queries[25:30, : n_bits // 2] = 0
    queries[30:32] = 0
    queries[32:34] = rng.integers(-3, 4, (2, n_bits)) * 0.25
    queries = np.concatenate([queries, queries.astype(np.float32)])
    together = Projections.of(queries)
    for row, query in enumerate(queries):
        alone = Projections.of(query[None])
        for name in ("values", "scaled", "scale", "unit", "slack"):
            assert (getattr(alone, name)[0] == getattr(together, name)[row]).all(), name
        np.testing.assert_allclose(alone.rounding[0], together.rounding[row], rtol=1e-12)
        assert (alone.byte_tables(0) == together.byte_tables(row)).all()


@pytest.mark.parametrize("kind", ["random", "tied", "heavy", "signs"])
def test_single_queries_equal_brute_force(kind, steps):
    rng = np.random.default_rng(len(kind))
    codes = tied_codes(rng, 6000, 64, 6) if kind == "tied" else random_codes(rng, 6000, 64)
    index = HammingIndex(64)
    index.add(codes, np.arange(6000))
    queries = rng.standard_normal((15, 64))
    if kind == "heavy":
        queries *= 10.0 ** rng.integers(-3, 2, queries.shape)
    elif kind == "signs":
        queries = np.sign(queries)
    index.search_asymmetric(queries, 10)
    steps.clear()
    for k in (1, 10, 300):
        order, scores = truth_of(queries, codes, k)
        for row in range(15):
            got = index.search_asymmetric(queries[row : row + 1], k)
            assert (got.ids == order[row]).all()
            assert (got.scores == scores[row]).all()
    # ordinary queries hardly ever come to the general way
    assert kind != "random" or len(steps) < 3


@pytest.mark.parametrize("n_bits", [8, 64, 200])
def test_scores_without_tables_are_those_of_tables(n_bits):
    rng = np.random.default_rng(91)
    projections = Projections.of(rng.standard_normal((1, n_bits)))
    codes = random_codes(rng, 1500, n_bits)
    for n in (1, 7, 1500):
        exact = unpack(codes[:n]).astype(np.float64) @ projections.values[0]
        assert (projections.scores_alone(codes[:n]) == exact.astype(np.float32)).all()
        assert (projections.scores_of(0, codes[:n]) == exact.astype(np.float32)).all()


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
