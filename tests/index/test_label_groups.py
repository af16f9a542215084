"""Codes with label bits are packed by label half; answers stay exact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasis.codes import unpack
from oasis.errors import InputError
from oasis.index import HammingIndex
from oasis.index import checks as index_checks
from oasis.index.checks import BruteForce, assert_asymmetric, random_codes
from oasis.index.engine import (
    best_codes,
    content_lists,
    group_batch,
    group_search,
    label_groups,
    packed_codes,
)
from oasis.index.engine.buffers import Buffer
from oasis.index.engine.content_lists import ContentLists, ContentQueries
from oasis.index.engine.keys import code_keys
from oasis.index.engine.label_groups import LabelGroups
from oasis.index.engine.projections import Projections


@pytest.fixture(autouse=True)
def groups_however_few_codes(monkeypatch):
    monkeypatch.setattr(packed_codes, "GROUPED", 1)
    monkeypatch.setattr(packed_codes, "SMALLEST", 1)
    monkeypatch.setattr(label_groups, "LISTED", 4)
    monkeypatch.setattr(label_groups, "LEAST_LISTED", 2**30)


def grouped(n_bits):
    """Return an index whose first half of the bits are label bits, as far as there are bytes."""
    return HammingIndex(n_bits, n_bits // 16 * 8)


class Reopened:
    """An index with label bits that is saved and opened again before every chunk."""

    def __init__(self, folder, n_bits):
        self._path = folder / "index"
        self._index = grouped(n_bits)

    def add(self, codes, ids):
        if len(self._index):
            self._index.save(self._path)
            self._index = HammingIndex.open(self._path, verify=False)
        self._index.add(codes, ids)

    def __getattr__(self, name):
        return getattr(self._index, name)

    def __len__(self):
        return len(self._index)


CHECKS = index_checks.CHECKS + index_checks.ASYMMETRIC_CHECKS


@pytest.mark.parametrize("check", CHECKS, ids=lambda f: f.__name__)
def test_index_with_label_bits_passes(check):
    check(grouped, "insertion")


@pytest.mark.parametrize("check", CHECKS, ids=lambda f: f.__name__)
def test_index_with_label_bits_over_a_mapped_base_passes(check, folder):
    check(lambda n_bits: Reopened(folder, n_bits), "insertion")


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


@pytest.fixture
def looked(monkeypatch):
    """How often ranked groups were enough, how often all lists were considered, and how many.

    And how often lists were searched for several queries together, ranked or all, the small groups
    scanned, and codes of groups scored in full.
    """
    names = ("groups", "all", "lists", "together", "ranked together", "scans", "in full")
    counts = dict.fromkeys(names, 0)
    cls = group_search.GroupSearch
    among_ranked, finish = cls._among_ranked, cls.finish
    together = LabelGroups._look_into_lists
    in_full, look_into = cls._score_in_full, cls._look_into
    scan = LabelGroups._scan

    def noted_ranked(self, *ranked):
        look = among_ranked(self, *ranked)
        counts["groups"] += look is not None
        return look

    def noted_finish(self):
        look = finish(self)
        if look is None:
            counts["all"] += 1
            counts["lists"] = 0
        return look

    def noted_together(self, *queries):
        counts["together"] += len(queries[-1])
        return together(self, *queries)

    def noted_look(self, listed, *rest):
        counts["lists"] += len(listed)
        return look_into(self, listed, *rest)

    def noted_in_full(self, *groups):
        counts["in full"] += 1
        return in_full(self, *groups)

    def noted_scan(self, *queries):
        counts["scans"] += 1
        return scan(self, *queries)

    first = label_groups.together

    def noted_first(*queries):
        looks = first(*queries)
        counts["groups"] += len(looks)
        counts["ranked together"] += len(looks)
        return looks

    monkeypatch.setattr(label_groups, "together", noted_first)
    monkeypatch.setattr(cls, "_among_ranked", noted_ranked)
    monkeypatch.setattr(cls, "finish", noted_finish)
    monkeypatch.setattr(LabelGroups, "_look_into_lists", noted_together)
    monkeypatch.setattr(cls, "_look_into", noted_look)
    monkeypatch.setattr(cls, "_score_in_full", noted_in_full)
    monkeypatch.setattr(LabelGroups, "_scan", noted_scan)
    return counts


@pytest.mark.parametrize("weight", [0.0, 1e-30, 1e-9, 0.03, 0.3, 1.0, 30.0])
@pytest.mark.parametrize("listed", [1, 16, 4096])
@pytest.mark.parametrize("share", [2, 0.01])
def test_answers_are_exact_at_every_content_weight(weight, listed, share, monkeypatch):
    monkeypatch.setattr(label_groups, "LISTED", listed)
    monkeypatch.setattr(group_search, "_SHARE", share)
    rng = np.random.default_rng(51)
    codes, kinds = stream(rng, 6000, 80)
    index = HammingIndex(128, 64)
    for part in np.array_split(np.arange(6000), 7):
        index.add(codes[part], part)
    queries = queries_near(rng, kinds, 12, weight)
    for k in (1, 10, 300):
        assert_exact(index, codes, queries, k)


def test_small_weights_are_answered_by_groups_and_large_ones_are_not(looked):
    rng = np.random.default_rng(52)
    codes, kinds = stream(rng, 20_000, 3000, skew=0.5)
    index = HammingIndex(128, 64)
    index.add(codes, np.arange(20_000))
    assert_exact(index, codes, queries_near(rng, kinds, 10, 0.03), 20)
    assert looked["groups"] > 0
    assert looked["all"] == 0
    assert_exact(index, codes, queries_near(rng, kinds, 10, 3.0), 20)
    assert looked["all"] > 0


@pytest.mark.parametrize("weight", [0.0, 0.01, 0.05, 0.1])
@pytest.mark.parametrize("ranked", [40, 3000])
def test_queries_of_a_batch_look_into_ranked_lists_together(weight, ranked, monkeypatch, looked):
    monkeypatch.setattr(label_groups, "LISTED", 1)
    monkeypatch.setattr(group_search, "RANKED", ranked)
    rng = np.random.default_rng(73)
    codes, kinds = stream(rng, 20_000, 400, skew=0.5)
    index = HammingIndex(128, 64)
    index.add(codes, np.arange(20_000))
    queries = queries_near(rng, kinds, 30, weight)
    # one that ranks nothing, one without labels that agree, one that is steep
    queries[3, :64] *= 1e-3
    queries[4, :64] = 0
    queries[5, :2] *= 100
    for k in (1, 20, 700):
        assert_exact(index, codes, queries, k)
    assert (looked["ranked together"] > 0) == (weight > 0)


def test_small_groups_have_lists_where_hardly_any_code_is_left_without(monkeypatch):
    monkeypatch.setattr(label_groups, "LISTED", 256)
    monkeypatch.setattr(label_groups, "LEAST_LISTED", 24)
    rng = np.random.default_rng(74)

    def lists_of(sizes, n_content_bytes=8):
        labels = np.repeat(random_codes(rng, len(sizes), 64), sizes, axis=0)
        content = random_codes(rng, len(labels), 8 * n_content_bytes)
        codes = np.concatenate([labels, content], axis=1)[rng.permutation(len(labels))]
        groups = LabelGroups(Buffer(codes), 0, len(codes), 8)
        index = HammingIndex(8 * codes.shape[1], 64)
        index.add(codes, np.arange(len(codes)))
        assert_exact(index, codes, 0.1 + rng.standard_normal((4, 8 * codes.shape[1])), 30)
        assert index.nbytes <= len(codes) * (2 * codes.shape[1] + 16)
        return groups.n_lists

    assert lists_of([500] * 9 + [32] * 40) == 49
    assert lists_of([500] * 9 + [32] * 40 + [20] * 10) == 49
    # too many codes would be left, or lists would take more memory than whole codes
    assert lists_of([500] * 9 + [32] * 40 + [20] * 40) == 9
    assert lists_of([500] * 2 + [25] * 400) == 2


@pytest.mark.parametrize("listed", [2, 12])
def test_lists_that_may_matter_and_all_small_groups_where_ranked_ones_are_not_enough(
    listed, monkeypatch, looked
):
    monkeypatch.setattr(label_groups, "LISTED", listed)
    monkeypatch.setattr(group_search, "RANKED", 8)
    rng = np.random.default_rng(62)
    codes, kinds = stream(rng, 20_000, 3000, skew=0.5)
    index = HammingIndex(128, 64)
    index.add(codes, np.arange(20_000))
    part = LabelGroups(Buffer(codes), 0, 20_000, 8)
    assert 0 < part.n_lists < part.n_groups
    for weight in (0.05, 0.1, 0.2):
        queries = queries_near(rng, kinds, 10, weight)
        # a steep query: label values that all must agree with are cut
        queries[5:, :3] *= 100
        assert_exact(index, codes, queries, 30)
    assert looked["all"] > looked["together"] > 0
    assert looked["scans"] > 0
    index.search_asymmetric(queries[:1], 30)
    assert 0 < looked["lists"] < part.n_lists


def test_queries_of_a_batch_search_lists_together_or_alone_alike(monkeypatch, looked):
    rng = np.random.default_rng(72)
    codes, kinds = stream(rng, 9000, 300, skew=0.5)
    index = HammingIndex(128, 64)
    index.add(codes, np.arange(9000))
    queries = queries_near(rng, kinds, 9, 1.0)
    # one that is scored in full, and one that ranks groups
    queries[2, 64:] = 0
    queries[3, 64:] *= 0.01
    assert_exact(index, codes, queries, 25)
    assert 0 < looked["together"] < looked["all"]
    assert looked["groups"] > 0
    both = index.search_asymmetric(queries, 25)
    alone = [index.search_asymmetric(query[None], 25) for query in queries]
    assert (both.ids == np.concatenate([each.ids for each in alone])).all()
    assert (both.scores == np.concatenate([each.scores for each in alone])).all()


def test_groups_are_not_ranked_where_content_outweighs_labels(monkeypatch, looked):
    rng = np.random.default_rng(69)
    codes, kinds = stream(rng, 20_000, 3000, skew=0.5)
    index = HammingIndex(128, 64)
    index.add(codes, np.arange(20_000))

    def refused(self, sums, found):
        raise AssertionError("ranked")

    monkeypatch.setattr(group_search.GroupSearch, "rank", refused)
    assert_exact(index, codes, queries_near(rng, kinds, 10, 0.6), 20)
    assert looked["all"] > 0


@pytest.mark.parametrize("ranked", [8, 3000])
@pytest.mark.parametrize("guess", [-np.inf, -3.0, 3.0])
def test_a_wrong_guess_changes_no_answer(guess, ranked, monkeypatch):
    monkeypatch.setattr(group_search, "RANKED", ranked)
    rng = np.random.default_rng(63)
    codes, kinds = stream(rng, 5000, 400, skew=0.5)
    index = HammingIndex(128, 64)
    index.add(codes, np.arange(5000))
    good = group_search.reachable
    for module in (group_search, group_batch):
        monkeypatch.setattr(module, "reachable", lambda *groups: good(*groups) + guess)
    for weight in (0.01, 0.1, 0.4):
        for k in (1, 40):
            assert_exact(index, codes, queries_near(rng, kinds, 8, weight), k)


def test_a_list_that_was_left_out_wrongly_fails_the_certificate(monkeypatch):
    # all groups are lists, and ranked ones never suffice: only the bound can tell that the guess
    # was too high
    monkeypatch.setattr(label_groups, "LISTED", 1)
    monkeypatch.setattr(group_search.GroupSearch, "_among_ranked", lambda self, *ranked: None)
    monkeypatch.setattr(label_groups, "together", lambda *queries: {})
    rng = np.random.default_rng(70)
    codes, kinds = stream(rng, 5000, 400, skew=0.5)
    index = HammingIndex(128, 64)
    index.add(codes, np.arange(5000))
    queries = queries_near(rng, kinds, 6, 0.1)
    assert_exact(index, codes, queries, 40)
    widths = []
    scan = best_codes.scan

    def noted(*scanned):
        widths.append(scanned[-1])
        return scan(*scanned)

    monkeypatch.setattr(best_codes, "scan", noted)
    monkeypatch.setattr(
        group_search.GroupSearch, "_guess", lambda self, label, sizes: float(label[3]) + self._total
    )
    for query in queries:
        scores = (query[None] @ unpack(codes).astype(np.float64).T).astype(np.float32)[0]
        order = np.argsort(-scores, kind="stable")[:10]
        assert (index.search_asymmetric(query[None], 10).ids == order).all()
    # the first attempt of a single query has no `scan`; it gives the next one a floor
    assert set(widths) == {4}
    widths.clear()
    assert_exact(index, codes, queries, 10)
    assert widths[:2] == [1, 4]


def test_labels_that_no_group_agrees_with_are_exact(monkeypatch):
    # faiss returns no label half at all: all have the lowest sum
    monkeypatch.setattr(group_search, "RANKED", 4)
    rng = np.random.default_rng(68)
    codes, _ = stream(rng, 3000, 60)
    codes[:, 0] &= 0b11111110
    index = HammingIndex(128, 64)
    index.add(codes, np.arange(3000))
    queries = np.zeros((4, 128))
    queries[:, 0] = 5
    queries[1:, 64:] = 0.01 * rng.standard_normal((3, 64))
    assert_exact(index, codes, queries, 30)


def test_content_that_is_rounded_away_is_scored_in_full(looked):
    # four content bits decide the step of the rounding, the others the order
    rng = np.random.default_rng(53)
    codes, kinds = stream(rng, 20_000, 20)
    index = HammingIndex(128, 64)
    index.add(codes, np.arange(20_000))
    queries = queries_near(rng, kinds, 6, 1e-7)
    queries[:, 64:68] = 1e-3 * rng.standard_normal((6, 4))
    assert_exact(index, codes, queries, 30)
    # and where labels leave no precision for content at all
    assert_exact(index, codes, queries_near(rng, kinds, 6, 1e-8), 30)
    assert looked["in full"] > 0


@pytest.mark.parametrize("half", ["label", "content", "neither"])
def test_a_query_without_one_half_is_exact(half, looked, monkeypatch):
    monkeypatch.setattr(group_search, "_SHARE", 0.01)
    rng = np.random.default_rng(54)
    codes, kinds = stream(rng, 9000, 30)
    index = HammingIndex(128, 64)
    index.add(codes, np.arange(9000))
    queries = queries_near(rng, kinds, 6, 0.1)
    queries[:, {"label": slice(64, None), "content": slice(64), "neither": slice(None)}[half]] = 0
    for k in (5, 700):
        assert_exact(index, codes, queries, k)
    assert (looked["all"] > 0) == (half != "label")
    assert (looked["groups"] > 0) == (half == "label")


def test_signs_as_queries_are_exact():
    rng = np.random.default_rng(55)
    codes, _ = stream(rng, 9000, 30)
    index = HammingIndex(128, 64)
    index.add(codes, np.arange(9000))
    assert_exact(index, codes, unpack(codes[:6]).astype(np.float64), 50)


def test_label_halves_of_one_hash_are_kept_apart(monkeypatch):
    monkeypatch.setattr(label_groups, "code_keys", lambda codes: code_keys(codes) % np.uint64(3))
    rng = np.random.default_rng(56)
    codes, kinds = stream(rng, 3000, 40)
    groups = LabelGroups(Buffer(codes), 0, 3000, 8)
    assert groups.n_groups > 3 * 40
    index = HammingIndex(128, 64)
    index.add(codes, np.arange(3000))
    assert_exact(index, codes, queries_near(rng, kinds, 8, 0.05), 40)


def test_removed_items_older_snapshots_and_filters_are_exact():
    rng = np.random.default_rng(57)
    codes, kinds = stream(rng, 500, 12)
    index, truth = HammingIndex(128, 64), BruteForce(128)
    index.add(codes[:300], np.arange(300))
    truth.add(codes[:300], np.arange(300))
    old, before = HammingIndex(128, 64), BruteForce(128)
    old._snapshot = index._snapshot
    before.items = dict(truth.items)
    index.add(codes[300:], np.arange(300, 500))
    truth.add(codes[300:], np.arange(300, 500))
    index.remove(np.arange(0, 120))
    truth.remove(range(120))
    queries = queries_near(rng, kinds, 4, 0.05)
    for k in (1, 25, 390):
        assert_asymmetric(index, truth, queries, k)
        assert_asymmetric(old, before, queries, k)
    assert_asymmetric(index, truth, queries, 9, allow=np.arange(100, 350, 3))
    index.remove(np.arange(120, 260))
    truth.remove(range(120, 260))
    assert_asymmetric(index, truth, queries, 25)


def test_files_keep_label_bits(folder, looked):
    rng = np.random.default_rng(58)
    codes, kinds = stream(rng, 8000, 60)
    index = HammingIndex(128, 64)
    index.add(codes, np.arange(8000))
    index.save(folder / "index")
    opened = HammingIndex.open(folder / "index", verify=False)
    assert opened.label_bits == 64
    queries = queries_near(rng, kinds, 8, 0.05)
    assert_exact(opened, codes, queries, 30)
    assert looked["groups"] > 0
    more, _ = stream(rng, 500, 60)
    opened.add(more, np.arange(8000, 8500))
    assert_exact(opened, np.concatenate([codes, more]), queries, 30)


@pytest.mark.parametrize("worth", [10**9, -(10**9)])
@pytest.mark.parametrize("listed", [1, 12, 4096])
def test_groups_are_those_of_a_plain_loop(listed, worth, monkeypatch):
    monkeypatch.setattr(label_groups, "LISTED", listed)
    monkeypatch.setattr(label_groups, "_WORTH_A_LIST", worth)
    rng = np.random.default_rng(59)
    codes, kinds = stream(rng, 1000, 60)
    groups = LabelGroups(Buffer(codes), 100, 1000, 8)
    found, n_in_lists = {}, {}
    for number in range(groups.n_groups):
        one = np.array([number])
        size = groups.sizes(one)
        if number < groups.n_lists:
            slots = groups.lists.slots(number, 1000)
        else:
            slots = groups.members(one, size)
            assert len(slots) < listed
        assert len(slots) == size[0]
        label = codes[slots[0], :8].tobytes()
        found.setdefault(label, []).extend(slots.tolist())
        n_in_lists[label] = n_in_lists.get(label, 0) + (number < groups.n_lists)
    expected = {}
    for row, code in enumerate(codes[100:], start=100):
        expected.setdefault(code[:8].tobytes(), []).append(row)
    assert found == expected
    for label, slots in found.items():
        # at most two lists, and two only where they may be cut
        assert (n_in_lists[label] > 0) == (len(slots) >= listed)
        assert n_in_lists[label] <= (1 if worth == 10**9 else 2)
    if listed == 1:
        assert (max(n_in_lists.values()) == 2) == (worth < 10**9)
    index = HammingIndex(128, 64)
    index.add(codes, np.arange(1000))
    assert_exact(index, codes, queries_near(rng, kinds, 8, 0.05), 40)
    assert_exact(index, codes, queries_near(rng, kinds, 8, 0.0), 150)


def test_parts_of_several_segments_are_searched_together(monkeypatch):
    monkeypatch.setattr(packed_codes, "GROUP_SEGMENT", 512)
    monkeypatch.setattr(best_codes, "SEGMENT", 512)
    monkeypatch.setattr(packed_codes, "GROUPED", 100)
    monkeypatch.setattr(packed_codes, "SMALLEST", 8)
    rng = np.random.default_rng(64)
    codes, kinds = stream(rng, 2000, 50)
    index = HammingIndex(128, 64)
    for part in np.array_split(np.arange(2000), 9):
        index.add(codes[part], part)
        for weight in (0.02, 0.3, 5.0):
            known = codes[: part[-1] + 1]
            assert_exact(index, known, queries_near(rng, kinds, 4, weight), 25)
    parts = [
        segment.part for segment in index._snapshot.packed.cover(index._snapshot.codes, 2000, 0)
    ]
    assert sum(isinstance(part, LabelGroups) for part in parts) > 2


def test_an_older_snapshot_ignores_groups_packed_for_a_later_one():
    rng = np.random.default_rng(65)
    codes, kinds = stream(rng, 900, 5)
    index, truth = HammingIndex(128, 64), BruteForce(128)
    index.add(codes[:300], np.arange(300))
    truth.add(codes[:300], np.arange(300))
    old = HammingIndex(128, 64)
    old._snapshot = index._snapshot
    index.add(codes[300:], np.arange(300, 900))
    for weight in (0.0, 1e-9, 0.05, 2.0):
        queries = queries_near(rng, kinds, 4, weight)
        index.search_asymmetric(queries, 5)
        for k in (1, 40, 300):
            assert_asymmetric(old, truth, queries, k)
            assert_asymmetric(old, truth, queries[:1], k)


@pytest.mark.parametrize("n_bits", [8, 56, 64, 512])
@pytest.mark.parametrize("shape", ["normal", "heavy", "zeros", "tiny"])
@pytest.mark.parametrize("span", [0.0, 1e-3, 0.5, 100.0])
@pytest.mark.parametrize("shared", [0, 100])
def test_bounds_hold_for_the_sums_of_lists(n_bits, shape, span, shared, monkeypatch):
    monkeypatch.setattr(content_lists, "_SHARED", shared)
    rng = np.random.default_rng([n_bits, len(shape), int(1000 * span)])
    sizes = np.array([40, 1, 33, 200, 7])
    codes = random_codes(rng, int(sizes.sum()), n_bits)
    content = rng.standard_normal((3, n_bits))
    if shape == "heavy":
        content *= 10.0 ** rng.integers(-4, 3, content.shape)
    elif shape == "zeros":
        content[:, n_bits // 2 :] = 0
    elif shape == "tiny":
        content *= 1e-35
    label_half = np.concatenate([np.ones((3, 1)), np.zeros((3, 7))], axis=1)
    projections = Projections.of(np.concatenate([label_half, content], axis=1))
    queries = ContentQueries.of(projections, 8)
    # label scores that are all alike, that fill the room, and that lie further apart
    labels = span * queries.room[:, None] * rng.random((3, 5))
    lists = ContentLists(np.arange(len(codes)), codes, sizes)
    exact = projections.scaled[:, 8:].astype(np.float64) @ unpack(codes).astype(np.float64).T
    exact += np.repeat(labels, sizes, axis=1)
    numbers = np.tile(np.arange(5), (3, 1))
    for n in (2, 20, len(codes), 2 * len(codes)):
        together = lists.search(queries, numbers, labels, n)
        for row in range(3):
            alone = lists.search_one(queries[row : row + 1], numbers[row], labels[row], n)
            for sums, slots, bound in (
                (together.sums[row], together.slots[row], together.bound[row]),
                alone,
            ):
                sums, slots = sums[slots >= 0], slots[slots >= 0]
                left = np.setdiff1d(np.arange(len(codes)), slots)
                assert (np.abs(sums - exact[row, slots]) <= queries.error[row]).all()
                assert (exact[row, left] <= bound).all()


def test_lists_that_are_not_named_are_not_searched():
    rng = np.random.default_rng(66)
    sizes = np.array([40, 50, 60])
    codes = random_codes(rng, 150, 64)
    projections = Projections.of(rng.standard_normal((2, 72)))
    queries = ContentQueries.of(projections, 8)
    lists = ContentLists(np.arange(150), codes, sizes)
    found = lists.search(queries, np.array([[1, -1], [-1, 2]]), np.array([[0.0, 9], [9, 0]]), 100)
    assert set(found.slots[0]) <= {-1, *range(40, 90)}
    assert set(found.slots[1]) <= {-1, *range(90, 150)}
    assert np.isneginf(found.bound).all()


@settings(max_examples=40, deadline=None)
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


def test_few_codes_are_packed_without_groups(monkeypatch, looked):
    monkeypatch.setattr(packed_codes, "GROUPED", 3001)
    rng = np.random.default_rng(61)
    codes, kinds = stream(rng, 3000, 20)
    index = HammingIndex(128, 64)
    index.add(codes, np.arange(3000))
    assert_exact(index, codes, queries_near(rng, kinds, 5, 0.05), 30)
    assert looked["groups"] == looked["all"] == 0


def test_memory_with_label_bits(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(packed_codes, "GROUPED", 1)
    rng = np.random.default_rng(67)
    codes, _ = stream(rng, 50_000, 3000, skew=0.8)
    index = HammingIndex(128, 64)
    index.add(codes, np.arange(50_000))
    index.search_asymmetric(rng.standard_normal((2, 128)), 3)
    assert index.nbytes <= 50_000 * (2 * 16 + 16)


@pytest.mark.parametrize("label_bits", [-8, 4, 64, 72, True, 8.0, "8"])
def test_label_bits_are_checked(label_bits):
    with pytest.raises(InputError, match="label_bits must be a multiple of 8"):
        HammingIndex(64, label_bits)
