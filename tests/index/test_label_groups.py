"""Codes with label bits: groups of equal label halves are searched first; answers stay exact."""

from __future__ import annotations

import numpy as np
import pytest

from oasis.codes import unpack
from oasis.errors import InputError
from oasis.index import HammingIndex, hamming
from oasis.index import checks as index_checks
from oasis.index.checks import BruteForce, assert_asymmetric, random_codes
from oasis.index.engine import label_groups
from oasis.index.engine.keys import code_keys
from oasis.index.engine.label_groups import LabelGroups


@pytest.fixture(autouse=True)
def groups_however_few_codes(monkeypatch):
    monkeypatch.setattr(hamming, "_FEW_CODES", 0)
    monkeypatch.setattr(label_groups, "_MANY_CODES", 0)


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
def test_index_with_label_bits_over_a_mapped_base_passes(check, tmp_path):
    check(lambda n_bits: Reopened(tmp_path, n_bits), "insertion")


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
def found_by_groups(monkeypatch):
    """How many queries were asked of the groups, and how many of them they answered."""
    counts = {"asked": 0, "answered": 0}
    search = label_groups.best_of_groups

    def noted(codes, groups, projections, s):
        found = search(codes, groups, projections, s)
        counts["asked"] += len(projections)
        counts["answered"] += int(found.proven.sum())
        return found

    monkeypatch.setattr(hamming, "best_of_groups", noted)
    return counts


@pytest.mark.parametrize("weight", [0.0, 1e-9, 0.03, 0.3, 1.0, 30.0])
@pytest.mark.parametrize("large", [16, 4096])
def test_answers_are_exact_at_every_content_weight(weight, large, monkeypatch):
    monkeypatch.setattr(label_groups, "_LARGE", large)
    rng = np.random.default_rng(51)
    codes, kinds = stream(rng, 6000, 80)
    index = HammingIndex(128, 64)
    for part in np.array_split(np.arange(6000), 7):
        index.add(codes[part], part)
    queries = queries_near(rng, kinds, 12, weight)
    for k in (1, 10, 300):
        assert_exact(index, codes, queries, k)


def test_small_weights_are_answered_by_groups_and_large_ones_are_not(found_by_groups):
    rng = np.random.default_rng(52)
    codes, kinds = stream(rng, 20_000, 3000, skew=0.5)
    index = HammingIndex(128, 64)
    index.add(codes, np.arange(20_000))
    assert_exact(index, codes, queries_near(rng, kinds, 10, 0.03), 20)
    assert found_by_groups["answered"] == found_by_groups["asked"] > 0
    found_by_groups.update(asked=0, answered=0)
    assert_exact(index, codes, queries_near(rng, kinds, 10, 3.0), 20)
    assert found_by_groups["answered"] < found_by_groups["asked"]


def test_groups_whose_content_is_rounded_away_are_looked_at_in_full(monkeypatch):
    # four content bits decide the step of the rounding, the others the order
    monkeypatch.setattr(label_groups, "_LARGE", 64)
    rng = np.random.default_rng(53)
    codes, kinds = stream(rng, 20_000, 20)
    index = HammingIndex(128, 64)
    index.add(codes, np.arange(20_000))
    queries = queries_near(rng, kinds, 6, 1e-7)
    queries[:, 64:68] = 1e-3 * rng.standard_normal((6, 4))
    assert_exact(index, codes, queries, 30)


@pytest.mark.parametrize("half", ["label", "content", "neither"])
def test_a_query_without_one_half_is_exact(half, found_by_groups):
    rng = np.random.default_rng(54)
    codes, kinds = stream(rng, 9000, 30)
    index = HammingIndex(128, 64)
    index.add(codes, np.arange(9000))
    queries = queries_near(rng, kinds, 6, 0.1)
    queries[:, {"label": slice(64, None), "content": slice(64), "neither": slice(None)}[half]] = 0
    for k in (5, 700):
        assert_exact(index, codes, queries, k)
    answered = found_by_groups["answered"]
    assert answered == (found_by_groups["asked"] if half == "label" else 0)


def test_signs_as_queries_are_exact():
    rng = np.random.default_rng(55)
    codes, _ = stream(rng, 9000, 30)
    index = HammingIndex(128, 64)
    index.add(codes, np.arange(9000))
    assert_exact(index, codes, unpack(codes[:6]).astype(np.float64), 50)


def test_label_halves_of_one_hash_are_kept_apart(monkeypatch):
    def colliding(codes, n_label_bytes=0):
        return code_keys(codes, n_label_bytes) & np.uint64(0x00000003_0000FFFF)

    monkeypatch.setattr("oasis.index.engine.snapshot.code_keys", colliding)
    monkeypatch.setattr("oasis.index.engine.compact.code_keys", colliding)
    rng = np.random.default_rng(56)
    codes, kinds = stream(rng, 3000, 40)
    index = HammingIndex(128, 64)
    for part in np.array_split(np.arange(3000), 3):
        index.add(codes[part], part)
    assert sum(len(groups) for groups in index._snapshot.groups) > 3 * 40
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


def test_files_keep_label_bits_and_groups(tmp_path, found_by_groups):
    rng = np.random.default_rng(58)
    codes, kinds = stream(rng, 8000, 60)
    index = HammingIndex(128, 64)
    index.add(codes, np.arange(8000))
    index.save(tmp_path / "index")
    opened = HammingIndex.open(tmp_path / "index", verify=False)
    assert opened.label_bits == 64
    (groups,) = opened._snapshot.groups
    assert len(groups) == 60
    assert not groups.starts.flags.owndata
    queries = queries_near(rng, kinds, 8, 0.05)
    assert_exact(opened, codes, queries, 30)
    assert found_by_groups["answered"] > 0
    more, _ = stream(rng, 500, 60)
    opened.add(more, np.arange(8000, 8500))
    assert_exact(opened, np.concatenate([codes, more]), queries, 30)


def test_groups_of_a_run_are_those_of_a_plain_loop():
    rng = np.random.default_rng(59)
    codes, _ = stream(rng, 1000, 15)
    index = HammingIndex(128, 64)
    index.add(codes, np.arange(1000))
    (groups,) = index._snapshot.groups
    found = {}
    for g in range(len(groups)):
        number = np.array([g])
        found[groups.heads[g].tobytes()] = sorted(groups.members(number, groups.sizes(number)))
    expected = {}
    for row, code in enumerate(codes):
        expected.setdefault(code[:8].tobytes(), []).append(row)
    assert found == expected


def test_blocks_of_a_long_run_join(monkeypatch):
    rng = np.random.default_rng(60)
    codes, _ = stream(rng, 500, 9)
    index = HammingIndex(128, 64)
    index.add(codes, np.arange(500))
    (whole,) = index._snapshot.groups
    monkeypatch.setattr(label_groups, "_BLOCK", 7)
    run = index._snapshot.code_runs[0]
    cut = LabelGroups.of(run, index._snapshot.codes, 8)
    assert (cut.starts == whole.starts).all()
    assert (cut.heads == whole.heads).all()


def test_few_codes_are_scanned_without_groups(monkeypatch, found_by_groups):
    monkeypatch.setattr(hamming, "_FEW_CODES", 3001)
    rng = np.random.default_rng(61)
    codes, kinds = stream(rng, 3000, 20)
    index = HammingIndex(128, 64)
    index.add(codes, np.arange(3000))
    assert_exact(index, codes, queries_near(rng, kinds, 5, 0.05), 30)
    assert found_by_groups["asked"] == 0


@pytest.mark.parametrize("label_bits", [-8, 4, 64, 72, True, 8.0, "8"])
def test_label_bits_are_checked(label_bits):
    with pytest.raises(InputError, match="label_bits must be a multiple of 8"):
        HammingIndex(64, label_bits)


def test_of_few_codes_groups_are_looked_at_where_a_scan_would_not_be_proven(
    monkeypatch, found_by_groups
):
    rng = np.random.default_rng(59)
    codes, kinds = stream(rng, 4000, 80)
    index = HammingIndex(128, 64)
    index.add(codes, np.arange(4000))
    monkeypatch.setattr(label_groups, "_MANY_CODES", 5000)
    smooth = queries_near(rng, kinds, 6, 0.5)
    assert_exact(index, codes, smooth, 20)
    assert found_by_groups["answered"] == 0
    # one label value takes all the precision that a scan has
    steep = queries_near(rng, kinds, 6, 0.02)
    steep[:, 3] *= 100
    assert_exact(index, codes, steep, 20)
    assert found_by_groups["answered"] > 0
