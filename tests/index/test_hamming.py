"""HammingIndex against a bit-by-bit brute force, its threads and its parts."""

from __future__ import annotations

import threading
from pathlib import Path

import faiss
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from oasis.errors import InputError
from oasis.index import HammingIndex
from oasis.index import checks as index_checks
from oasis.index.checks import (
    BruteForce,
    assert_asymmetric,
    assert_range,
    assert_search,
    filled,
    projections,
    random_codes,
    tied_codes,
)

CHECKS = index_checks.CHECKS + index_checks.ASYMMETRIC_CHECKS


@pytest.fixture
def small_segments(monkeypatch):
    """Segments and label groups so small that toy indexes have several."""
    monkeypatch.setattr("oasis.index.segment._TAIL", 12)
    monkeypatch.setattr("oasis.index.segment._PACKED", 8)
    monkeypatch.setattr("oasis.index.label_groups._LEAST_CODES", 1)
    monkeypatch.setattr("oasis.index.label_groups._LISTED", 2)


class Reopened:
    """An index that is saved and opened again before every chunk: all but the last is mapped."""

    def __init__(self, folder: Path, n_bits: int, label_bits: int = 0) -> None:
        self._path = folder / "index"
        self._index = HammingIndex(n_bits, label_bits)

    def add(self, codes, ids):
        if len(self._index):
            self._index.save(self._path)
            self._index = HammingIndex.open(self._path, verify=False)
        self._index.add(codes, ids)

    def __getattr__(self, name):
        return getattr(self._index, name)

    def __len__(self):
        return len(self._index)


@pytest.mark.parametrize("check", CHECKS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("segments", ["tail alone", "several"])
def test_index_passes(check, reopened, labelled, segments, folder, request):
    if segments == "several":
        request.getfixturevalue("small_segments")

    def make(n_bits):
        label_bits = n_bits // 16 * 8 if labelled else 0
        if reopened:
            return Reopened(folder, n_bits, label_bits)
        return HammingIndex(n_bits, label_bits)

    check(make, "insertion")


def test_checks_have_a_mode_for_free_ties():
    class TiesById(HammingIndex):
        """Answers as an engine would that settles ties by id, the highest first at the k-th."""

        def search(self, codes, k, allow=None):
            super().search(codes, k, allow)  # refuses what must be refused
            got = super().search(codes, max(k, len(self)), allow)
            for ids, distances in zip(got.ids, got.distances, strict=True):
                n = int((ids >= 0).sum())
                order = np.lexsort((-ids[:n], distances[:n]))[:k]
                order = order[np.lexsort((ids[order], distances[order]))]
                ids[: len(order)], distances[: len(order)] = ids[order], distances[order]
            return type(got)(got.ids[:, :k], got.distances[:, :k])

        def range_search(self, codes, radius):
            offsets, ids, distances = super().range_search(codes, radius)
            query = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
            order = np.lexsort((ids, distances, query))
            return offsets, ids[order], distances[order]

    for check in index_checks.CHECKS:
        check(TiesById, "any")
    with pytest.raises(AssertionError):
        index_checks.check_search_equals_brute_force(TiesById, "insertion")


@pytest.mark.parametrize("n_bits", [8, 24, 64, 128, 256])
def test_faiss_gives_the_lowest_rows_among_ties(n_bits):
    # the expansion relies on it
    rng = np.random.default_rng(n_bits)
    codes = rng.integers(0, 3, (3000, n_bits // 8), dtype=np.uint8)
    queries = rng.integers(0, 3, (20, n_bits // 8), dtype=np.uint8)
    truth = np.bitwise_count(queries[:, None] ^ codes[None]).sum(axis=2)
    for k in (1, 10, 100, 3000):
        distances, rows = faiss.knn_hamming(queries, codes, k, variant="hc")
        order = np.argsort(truth, axis=1, kind="stable")[:, :k]
        assert (rows == order).all()
        assert (distances == np.take_along_axis(truth, order, axis=1)).all()


class Sequences(RuleBasedStateMachine):
    """Any sequence of add, remove, save and open, searched against the truth at every step."""

    folder: Path
    label_bits: int

    @initialize(
        n_bits=st.sampled_from([8, 24, 64, 128]),
        seed=st.integers(0, 2**32 - 1),
        distinct=st.integers(1, 40),
        ascending=st.booleans(),
    )
    def start(self, n_bits, seed, distinct, ascending):
        self.rng = np.random.default_rng(seed)
        self.pool = tied_codes(self.rng, distinct, n_bits, distinct)
        self.ascending = ascending
        label_bits = min(self.label_bits, n_bits - 8)
        self.index, self.truth = HammingIndex(n_bits, label_bits), BruteForce(n_bits)
        self.next = 0
        self.gone: list[int] = []

    def codes(self, n):
        return self.pool[self.rng.integers(0, len(self.pool), n)]

    @rule(n=st.integers(1, 30), again=st.booleans())
    def add(self, n, again):
        ids = list(range(self.next, self.next + n))
        self.next += n
        if again:
            ids[: len(self.gone)] = self.gone[:n]
            self.gone = self.gone[n:]
        if not self.ascending:
            ids = self.rng.permutation(ids).tolist()
        codes = self.codes(n)
        self.index.add(codes, ids)
        self.truth.add(codes, ids)

    @rule(share=st.floats(0, 1), oldest=st.booleans())
    def remove(self, share, oldest):
        ids = list(self.truth.items)
        n = int(share * share * len(ids))
        chosen = ids[:n] if oldest else self.rng.permutation(ids)[:n].tolist()
        self.index.remove(chosen)
        self.truth.remove(chosen)
        self.gone += [int(i) for i in chosen]

    @rule(verify=st.booleans())
    def save_and_open(self, verify):
        path = self.folder / "index"
        self.index.save(path)
        self.index = HammingIndex.open(path, verify=verify)

    @rule()
    def refused(self):
        code = self.codes(2)
        with pytest.raises(InputError):
            self.index.add(code, [self.next, self.next])
        with pytest.raises(InputError):
            self.index.remove([self.next])

    @rule(k=st.integers(1, 12), share=st.floats(0, 1))
    def filtered(self, k, share):
        ids = np.array(list(self.truth.items), dtype=np.int64)
        allow = self.rng.permutation(ids)[: int(share * len(ids))]
        assert_search(self.index, self.truth, self.codes(2), k, "insertion", allow=allow)

    @rule(k=st.integers(1, 12))
    def asymmetric(self, k):
        queries = projections(self.rng, self.index.n_bits)[[0, 3, 6]]
        assert_asymmetric(self.index, self.truth, queries, k)

    @rule(radius=st.integers(0, 4))
    def ranged(self, radius):
        assert_range(self.index, self.truth, self.codes(2), radius, "insertion")

    @invariant()
    def searches_equal(self):
        if not hasattr(self, "index"):
            return
        assert len(self.index) == len(self.truth.items)
        k = int(self.rng.integers(1, 20))
        assert_search(self.index, self.truth, self.codes(1), k, "insertion")
        assert_search(self.index, self.truth, self.codes(3), k, "insertion")
        codes, ids = self.index.items()
        assert ids.tolist() == list(self.truth.items)
        assert [self.truth.bits(code) for code in codes] == list(self.truth.items.values())
        assert (self.index.codes_of(ids) == codes).all()


@pytest.mark.parametrize("label_bits", [None, 0, 32])
def test_sequences_equal_brute_force(label_bits, folder, request):
    if label_bits is not None:
        request.getfixturevalue("small_segments")
    Sequences.folder, Sequences.label_bits = folder, label_bits or 0
    run_state_machine_as_test(
        Sequences,
        settings=settings(
            max_examples=40,
            stateful_step_count=15,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_codes_of_one_hash_are_kept_apart(monkeypatch, small_segments):
    # a hash may be met on purpose; answers must not depend on it
    monkeypatch.setattr(
        "oasis.index.label_groups._hashes", lambda codes: codes[:, 0].astype(np.uint64) << 40
    )
    index, truth, rng = filled(HammingIndex, 128, seed=8, chunks=6)
    assert_search(index, truth, tied_codes(rng, 5, 128, 9), 60, "insertion")
    assert_asymmetric(index, truth, projections(rng, 128), 60)


def test_distinct_codes_are_kept_once():
    index, truth, _ = filled(HammingIndex, 64, seed=9)
    assert index.n_codes == len({tuple(bits) for bits in truth.items.values()})


def test_large_ids_and_contains():
    index = HammingIndex(8)
    top = 2**63 - 1
    index.add(np.array([[1], [2]], dtype=np.uint8), np.array([top, 0], dtype=np.uint64))
    assert top in index
    assert 0 in index
    assert 5 not in index
    assert -1 not in index
    assert 2**70 not in index
    assert "a" not in index
    assert index.search(np.array([[1]], dtype=np.uint8), 1).ids.tolist() == [[top]]
    with pytest.raises(InputError, match="between 0 and"):
        index.add(np.array([[1]], dtype=np.uint8), np.array([2**63], dtype=np.uint64))


def test_messages_say_what_is_wrong():
    index = HammingIndex(16)
    index.add(np.zeros((2, 2), dtype=np.uint8), [4, 9])
    with pytest.raises(InputError, match="id 9 is in the index already"):
        index.add(np.zeros((1, 2), dtype=np.uint8), [9])
    with pytest.raises(InputError, match="id 3 is given more than once"):
        index.add(np.zeros((2, 2), dtype=np.uint8), [3, 3])
    with pytest.raises(InputError, match="id 7 and 1 more is not in the index"):
        index.remove([4, 7, 8])
    with pytest.raises(InputError, match="codes have 24 bits, expected 16"):
        index.search(np.zeros((1, 3), dtype=np.uint8), 1)
    with pytest.raises(InputError, match="k must be an integer of at least 1, got 0"):
        index.search(np.zeros((1, 2), dtype=np.uint8), 0)
    assert repr(index) == "<HammingIndex: 2 items, 1 codes of 16 bits>"


def test_a_failed_add_changes_nothing(monkeypatch, small_segments):
    index, truth, rng = filled(HammingIndex, 16, n=60, seed=12)
    codes = tied_codes(rng, 40, 16, 10)
    with monkeypatch.context() as patch:
        patch.setattr(np, "concatenate", lambda *_: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            index.add(codes, np.arange(1000, 1040))
    assert len(index) == 60
    assert_search(index, truth, codes[:4], 40, "insertion")
    index.add(codes, np.arange(1000, 1040))
    truth.add(codes, np.arange(1000, 1040))
    assert_search(index, truth, codes[:4], 80, "insertion")


def test_removed_codes_leave_the_file(folder, small_segments):
    rng = np.random.default_rng(21)
    codes = random_codes(rng, 400, 128)
    index = HammingIndex(128)
    path = folder / "index"
    for part in np.array_split(np.arange(400), 9):
        index.add(codes[part], part)
    index.save(path)
    assert all(code.tobytes() in path.read_bytes() for code in codes)
    index = HammingIndex.open(path)
    index.add(~codes[:5], np.arange(1000, 1005))
    gone = np.append(np.arange(0, 400, 7), 1002)
    index.remove(gone)
    index.save(path)
    content = path.read_bytes()
    kept = np.concatenate([codes, ~codes[:5]])
    removed = np.isin(np.concatenate([np.arange(400), np.arange(1000, 1005)]), gone)
    assert [code.tobytes() in content for code in kept] == (~removed).tolist()


def brute_answers(codes, queries, k):
    distances = np.bitwise_count(queries[:, None] ^ codes[None]).sum(axis=2)
    return np.argsort(distances, axis=1, kind="stable")[:, :k]


@pytest.mark.parametrize("mapped", [False, True])
def test_searches_beside_an_adder_see_one_state(mapped, folder):
    rng = np.random.default_rng(13)
    codes = tied_codes(rng, 4000, 16, 60)
    queries = codes[rng.integers(0, 4000, 3)]
    steps = list(range(1000, 4001, 50))
    answers = {n: brute_answers(codes[:n], queries, 40) for n in steps}
    index = HammingIndex(16)
    index.add(codes[:1000], np.arange(1000))
    if mapped:
        index.save(folder / "index")
        index = HammingIndex.open(folder / "index")
    wrong, done = [], threading.Event()
    started = threading.Barrier(3)
    counts = [0, 0]

    def searcher(which):
        started.wait()
        while not done.is_set() or counts[which] == 0:
            before = len(index)
            if which:
                got = np.concatenate([index.search(query[None], 40).ids for query in queries[:1]])
                expected = [a[:1] for n, a in answers.items() if before <= n]
            else:
                got = index.search(queries, 40).ids
                expected = [a for n, a in answers.items() if before <= n]
            counts[which] += 1
            if not any((got == each).all() for each in expected):
                wrong.append(got)

    threads = [threading.Thread(target=searcher, args=(which,)) for which in (0, 1)]
    for thread in threads:
        thread.start()
    started.wait()
    for n in steps[1:]:
        index.add(codes[n - 50 : n], np.arange(n - 50, n))
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert (index.search(queries, 40).ids == answers[4000]).all()


def test_filters_are_exact_when_they_mislead():
    # the nearest codes are all forbidden, so the first look cannot be enough
    rng = np.random.default_rng(16)
    codes = np.concatenate([np.zeros((3000, 8), np.uint8), random_codes(rng, 3000, 64)])
    index = HammingIndex(64)
    index.add(codes, np.arange(6000))
    query = np.zeros((2, 8), dtype=np.uint8)
    bitmap = np.arange(6000) >= 3000
    distances = np.bitwise_count(codes[3000:]).sum(axis=1)
    order = 3000 + np.argsort(distances, kind="stable")[:20]
    for allow in (bitmap, np.arange(3000, 6000), np.arange(3000, 6000) * 1):
        assert (index.search(query, 20, allow=allow).ids == order).all()
    index.remove(np.arange(1990))
    assert (index.search(query, 1010 + 20).ids[:, 1010:] == order).all()


def test_memory_of_codes_that_all_differ():
    rng = np.random.default_rng(17)
    for n_bits in (64, 128):
        index = HammingIndex(n_bits)
        for part in np.array_split(np.arange(50_000), 20):
            index.add(random_codes(rng, len(part), n_bits), part)
        before = index.nbytes
        assert before <= 50_000 * (n_bits // 8 + 9)
        # the copy that asymmetric searches look up in
        index.search_asymmetric(rng.standard_normal((9, n_bits)), 3)
        assert 50_000 * (n_bits // 8) <= index.nbytes - before
        assert index.nbytes <= 50_000 * (2 * n_bits // 8 + 10)
        # four bytes more for the order of ids that do not ascend
        other = HammingIndex(n_bits)
        other.add(index.items()[0], rng.permutation(200_000)[:50_000])
        assert other.nbytes <= 50_000 * (n_bits // 8 + 13)
