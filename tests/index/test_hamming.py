"""HammingIndex against a bit-by-bit brute force, its threads and its parts."""

from __future__ import annotations

import threading
from pathlib import Path

import faiss
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

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
from oasis.index.engine.buffers import Buffer
from oasis.index.engine.compact import CompactIndex
from oasis.index.engine.keys import append_run, argsort, code_keys, find


@pytest.mark.parametrize(
    "check", index_checks.CHECKS + index_checks.ASYMMETRIC_CHECKS, ids=lambda f: f.__name__
)
def test_index_passes(check):
    check(HammingIndex, "insertion")


@pytest.mark.parametrize(("n_queries", "n_threads"), [(1, 1), (2, 1), (400, 2)])
def test_a_short_scan_takes_one_thread_and_leaves_the_number_as_it_was(
    monkeypatch, n_queries, n_threads
):
    rng = np.random.default_rng(0)
    index = HammingIndex(64)
    index.add(random_codes(rng, 3000, 64), np.arange(3000))
    used, real = [], faiss.knn_hamming

    def note(*arguments, **options):
        used.append(faiss.omp_get_max_threads())
        return real(*arguments, **options)

    monkeypatch.setattr(faiss, "knn_hamming", note)
    before = faiss.omp_get_max_threads()
    try:
        faiss.omp_set_num_threads(2)
        index.search(random_codes(rng, n_queries, 64), 5)
        assert used == [n_threads]
        assert faiss.omp_get_max_threads() == 2
    finally:
        faiss.omp_set_num_threads(before)


class Reopened:
    """An index that is saved and opened again after every chunk: all but the last is mapped."""

    def __init__(self, folder: Path, n_bits: int, *, verify: bool) -> None:
        self._path = folder / "index"
        self._verify = verify
        self._index = HammingIndex(n_bits)

    def add(self, codes, ids):
        if len(self._index):
            self._index.save(self._path)
            self._index = HammingIndex.open(self._path, verify=self._verify)
        self._index.add(codes, ids)

    def __getattr__(self, name):
        return getattr(self._index, name)

    def __len__(self):
        return len(self._index)


@pytest.mark.parametrize(
    "check", index_checks.CHECKS + index_checks.ASYMMETRIC_CHECKS, ids=lambda f: f.__name__
)
def test_index_over_a_mapped_base_passes(check, folder):
    check(lambda n_bits: Reopened(folder, n_bits, verify=False), "insertion")


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
        self.index, self.truth = HammingIndex(n_bits), BruteForce(n_bits)
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


def test_sequences_equal_brute_force(folder):
    from hypothesis.stateful import run_state_machine_as_test

    Sequences.folder = folder
    run_state_machine_as_test(
        Sequences,
        settings=settings(
            max_examples=50,
            stateful_step_count=15,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    chunks=st.lists(st.lists(st.integers(0, 60), max_size=40), max_size=12),
    n_base=st.integers(0, 30),
)
def test_runs_find_the_last_position_of_a_key(chunks, n_base):
    base = np.arange(0, 2 * n_base, 2, dtype=np.int64)
    buffer = Buffer(base)
    runs = (CompactIndex.build(base, base, np.zeros((60, 1), np.uint8)).id_run,) if n_base else ()
    known = base.tolist()
    for chunk in chunks:
        keys = np.array(chunk, dtype=np.int64)
        if not len(keys):
            continue
        buffer.write(len(known), keys)
        runs = append_run(runs, keys, len(known), buffer, buffer.take)
        known += chunk
        wanted = np.arange(-1, 62)
        last = {key: position for position, key in enumerate(known)}
        expected = [last.get(int(key), -1) for key in wanted]
        for n in (len(wanted), 9):  # many are bisected, few are not
            parts = [wanted[at : at + n] for at in range(0, len(wanted), n)]
            found = [find(runs, part, buffer, buffer.take) for part in parts]
            assert np.concatenate(found).tolist() == expected
    assert sum(len(run) for run in runs) == len(known)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    keys=st.lists(
        st.one_of(
            st.integers(0, 5),
            st.integers(2**63 - 4, 2**63 - 1),
            st.builds(lambda high, low: (high << 40) + low, st.integers(0, 3), st.integers(0, 9)),
            st.integers(0, 2**63 - 1),
        ),
        max_size=60,
    )
)
def test_argsort_is_stable_and_right(keys):
    expected = sorted(range(len(keys)), key=keys.__getitem__)
    assert argsort(np.array(keys, dtype=np.int64)).tolist() == expected
    assert argsort(np.array(keys, dtype=np.uint64) * np.uint64(2)).tolist() == expected


def test_runs_stay_few():
    rng = np.random.default_rng(0)
    index = HammingIndex(64)
    ids = rng.permutation(30_000)
    for part in np.array_split(ids, 300):
        index.add(random_codes(rng, len(part), 64), part)
    assert len(index._snapshot.id_runs) <= 16
    assert len(index._snapshot.code_runs) <= 16


def test_codes_of_one_hash_are_kept_apart(monkeypatch):
    # a hash may be met on purpose; answers must not depend on it
    monkeypatch.setattr("oasis.index.engine.snapshot.code_keys", lambda codes: code_keys(codes) % 3)
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


def test_a_failed_add_leaves_the_lists_alone(monkeypatch):
    index, truth, rng = filled(HammingIndex, 16, n=60, seed=12)
    codes = tied_codes(rng, 40, 16, 10)
    put, left = Buffer.put, []

    def failing(self, positions, values):
        put(self, positions, values)
        if not left.pop():
            raise MemoryError

    for n_good in range(4):
        left[:] = [True] * 9 + [False] + [True] * n_good
        monkeypatch.setattr(Buffer, "put", failing)
        with pytest.raises(MemoryError):
            index.add(codes, np.arange(1000, 1040))
        monkeypatch.setattr(Buffer, "put", put)
        assert len(index) == 60
        assert_search(index, truth, codes[:4], 40, "insertion")
    other = tied_codes(rng, 30, 16, 20)
    index.add(other, np.arange(1000, 1030))
    truth.add(other, np.arange(1000, 1030))
    assert_search(index, truth, codes[:4], 80, "insertion")


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


def test_an_older_state_is_searched_as_it_was():
    # the same as with threads, but the writer certainly comes between
    index, truth, rng = filled(HammingIndex, 16, n=80, seed=14)
    old = HammingIndex(16)
    old._snapshot = index._snapshot
    queries = tied_codes(rng, 4, 16, 10)
    gone = list(truth.items)[:9]
    before = BruteForce(16)
    before.items = dict(truth.items)
    index.add(tied_codes(rng, 200, 16, 30), np.arange(1000, 1200))
    index.remove(gone)
    for k in (1, 20, 80, 90):
        assert_search(old, before, queries, k, "insertion")
        assert_search(old, before, queries[:1], k, "insertion")
    assert_range(old, before, queries, 3, "insertion")
    assert_search(old, before, queries, 10, "insertion", allow=np.array(gone))
    assert len(old.items()[1]) == 80


def test_a_wide_search_needs_all_engines():
    # enough codes for several blocks of the product, and enough ties to overrun the tables
    rng = np.random.default_rng(15)
    codes = np.unique(random_codes(rng, 30_000, 24), axis=0)
    codes = codes[rng.permutation(len(codes))]
    index = HammingIndex(24)
    for part in np.array_split(np.arange(len(codes)), 3):
        index.add(codes[part], part)
    signs = np.unpackbits(codes, axis=1, bitorder="little").astype(np.float64) * 2 - 1
    queries = projections(rng, 24)
    queries = np.concatenate([queries, queries[:, ::-1]])
    # sums in the order of a loop, rounded once
    scores = np.zeros((len(queries), len(codes)))
    for bit in range(24):
        scores += queries[:, bit, None].astype(np.float64) * signs[None, :, bit]
    scores = scores.astype(np.float32)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :50]
    for batch in (queries, *(query[None] for query in queries)):
        at = range(len(queries)) if len(batch) > 1 else [int((queries == batch).all(1).argmax())]
        got = index.search_asymmetric(batch, 50)
        assert (got.ids == order[list(at)]).all()
        assert (got.scores == np.take_along_axis(scores, order, axis=1)[list(at)]).all()


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
        assert before <= 50_000 * (n_bits // 8 + 13)
        # the copy that asymmetric searches look up in
        index.search_asymmetric(rng.standard_normal((9, n_bits)), 3)
        assert 50_000 * (n_bits // 8) <= index.nbytes - before
        assert index.nbytes <= 50_000 * (2 * n_bits // 8 + 16)
        # four bytes more for the order of ids that do not ascend
        other = HammingIndex(n_bits)
        other.add(index.items()[0], rng.permutation(200_000)[:50_000])
        assert other.nbytes <= 50_000 * (n_bits // 8 + 17)
