"""Checks that every index passes: anything with the methods of `HammingIndex`.

Each check takes ``make``, which returns an empty index for a number of bits, and ``ties``:

- ``"insertion"``: the order is distance (or score), then insertion, and a tie at the k-th distance
  is settled by insertion, so there is one right answer;
- ``"any"``, for an engine outside: distances are exact, but which of the items tied at the k-th
  distance come back is the engine's choice, and ties come ordered by id; an item that is there
  already may be replaced instead of refused.

The truth is `BruteForce`, which looks at one bit at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from oasis.errors import InputError

Make = Callable[[int], Any]


class BruteForce:
    """Items in order of insertion, compared bit by bit."""

    def __init__(self, n_bits: int) -> None:
        self.n_bits = n_bits
        self.items: dict[int, list[int]] = {}

    def add(self, codes: np.ndarray, ids: Any) -> None:
        for code, item in zip(codes, ids, strict=True):
            assert int(item) not in self.items
            self.items[int(item)] = self.bits(code)

    def remove(self, ids: Any) -> None:
        for item in ids:
            del self.items[int(item)]

    def bits(self, code: np.ndarray) -> list[int]:
        return [(int(code[i // 8]) >> (i % 8)) & 1 for i in range(self.n_bits)]

    def distances(self, code: np.ndarray, allow: set[int] | None = None) -> list[tuple[int, int]]:
        query = self.bits(code)
        return [
            (sum(a != b for a, b in zip(query, bits, strict=True)), item)
            for item, bits in self.items.items()
            if allow is None or item in allow
        ]

    def scores(
        self, projection: np.ndarray, allow: set[int] | None = None
    ) -> list[tuple[float, int]]:
        query = [float(x) for x in projection]
        return [
            (
                float(np.float32(sum(x if b else -x for x, b in zip(query, bits, strict=True)))),
                item,
            )
            for item, bits in self.items.items()
            if allow is None or item in allow
        ]


def assert_search(
    index: Any, truth: BruteForce, queries: np.ndarray, k: int, ties: str, allow: Any = None
) -> None:
    """Search and compare with the truth."""
    got = index.search(queries, k) if allow is None else index.search(queries, k, allow=allow)
    assert got.ids.shape == got.distances.shape == (len(queries), k)
    assert got.ids.dtype == np.int64
    assert got.distances.dtype == np.int32
    admitted = allowed_set(allow)
    for query, ids, distances in zip(
        queries, got.ids.tolist(), got.distances.tolist(), strict=True
    ):
        every = truth.distances(query, admitted)
        # sorted is stable: ties stay in order of insertion
        expected = sorted(every, key=lambda pair: pair[0])[:k]
        padding = [-1] * (k - len(expected))
        assert distances == [d for d, _ in expected] + padding
        if ties == "insertion":
            assert ids == [item for _, item in expected] + padding
        else:
            assert_tied(ids, every, expected, padding)


def assert_tied(
    ids: list[int],
    every: list[tuple[int, int]],
    expected: list[tuple[int, int]],
    padding: list[int],
) -> None:
    distance = {item: d for d, item in every}
    found = ids[: len(expected)]
    assert ids[len(expected) :] == padding
    assert len(set(found)) == len(found)
    pairs = [(distance[item], item) for item in found]
    assert pairs == sorted(pairs)
    assert [d for d, _ in pairs] == [d for d, _ in expected]


def assert_asymmetric(
    index: Any, truth: BruteForce, projections: np.ndarray, k: int, allow: Any = None
) -> None:
    got = index.search_asymmetric(projections, k, allow=allow)
    assert got.ids.shape == got.scores.shape == (len(projections), k)
    assert got.ids.dtype == np.int64
    assert got.scores.dtype == np.float32
    admitted = allowed_set(allow)
    for query, ids, scores in zip(projections, got.ids.tolist(), got.scores.tolist(), strict=True):
        expected = sorted(truth.scores(query, admitted), key=lambda pair: -pair[0])[:k]
        padding = k - len(expected)
        assert scores == [s for s, _ in expected] + [-np.inf] * padding
        assert ids == [item for _, item in expected] + [-1] * padding


def assert_range(
    index: Any, truth: BruteForce, queries: np.ndarray, radius: int, ties: str
) -> None:
    offsets, ids, distances = index.range_search(queries, radius)
    assert offsets.shape == (len(queries) + 1,)
    assert int(offsets[0]) == 0
    assert int(offsets[-1]) == len(ids) == len(distances)
    for i, query in enumerate(queries):
        part = slice(int(offsets[i]), int(offsets[i + 1]))
        expected = [pair for pair in truth.distances(query) if pair[0] <= radius]
        key = (lambda pair: pair[0]) if ties == "insertion" else None
        expected = sorted(expected, key=key)
        got = list(zip(distances[part].tolist(), ids[part].tolist(), strict=True))
        assert got == expected


def allowed_set(allow: Any) -> set[int] | None:
    if allow is None:
        return None
    array = np.asarray(allow)
    return set((np.flatnonzero(array) if array.dtype == np.bool_ else array).tolist())


def tied_codes(rng: np.random.Generator, n: int, n_bits: int, distinct: int) -> np.ndarray:
    """Return codes with many duplicates, and many ties between the distinct ones."""
    pool = np.zeros((distinct, n_bits // 8), dtype=np.uint8)
    for row in pool:
        for bit in rng.choice(min(n_bits, 10), size=rng.integers(0, 4), replace=False):
            row[bit // 8] ^= 1 << (bit % 8)
    return pool[rng.integers(0, distinct, n)]


def random_codes(rng: np.random.Generator, n: int, n_bits: int) -> np.ndarray:
    return rng.integers(0, 256, (n, n_bits // 8), dtype=np.uint8)


def filled(
    make: Make, n_bits: int, n: int = 150, *, seed: int = 0, distinct: int = 40, chunks: int = 4
) -> tuple[Any, BruteForce, np.random.Generator]:
    """Return an index and the truth, filled alike in several chunks with shuffled ids."""
    rng = np.random.default_rng(seed)
    codes = tied_codes(rng, n, n_bits, distinct)
    ids = rng.permutation(3 * n)[:n]
    index, truth = make(n_bits), BruteForce(n_bits)
    for part in np.array_split(np.arange(n), chunks):
        index.add(codes[part], ids[part])
        truth.add(codes[part], ids[part])
    assert len(index) == n
    return index, truth, rng


def check_search_equals_brute_force(make: Make, ties: str) -> None:
    for n_bits in (8, 16, 64, 128):
        index, truth, rng = filled(make, n_bits, seed=n_bits)
        queries = np.concatenate([tied_codes(rng, 4, n_bits, 8), random_codes(rng, 2, n_bits)])
        for k in (1, 5, 37, 150, 200):
            assert_search(index, truth, queries, k, ties)


def check_distinct_codes(make: Make, ties: str) -> None:
    rng = np.random.default_rng(1)
    codes = np.unique(random_codes(rng, 120, 32), axis=0)
    codes = codes[rng.permutation(len(codes))]
    index, truth = make(32), BruteForce(32)
    for part in np.array_split(np.arange(len(codes)), 3):
        index.add(codes[part], part + 7)
        truth.add(codes[part], part + 7)
    for k in (1, 10, 60, 130):
        assert_search(index, truth, random_codes(rng, 5, 32), k, ties)


def check_one_code_for_all(make: Make, ties: str) -> None:
    index, truth = make(16), BruteForce(16)
    codes = np.full((50, 2), 170, dtype=np.uint8)
    for start in range(0, 50, 7):
        ids = np.arange(start, min(50, start + 7))[::-1] + 100
        index.add(codes[: len(ids)], ids)
        truth.add(codes[: len(ids)], ids)
    assert_search(index, truth, codes[:1], 20, ties)
    assert_search(index, truth, ~codes[:1], 60, ties)


def check_removed_items_are_gone(make: Make, ties: str) -> None:
    index, truth, rng = filled(make, 16, seed=2)
    queries = tied_codes(rng, 5, 16, 8)
    for share in (1, 3, 20, 60, 40, 26):
        ids = np.array(list(truth.items))
        # the oldest ones too, whose removal changes the order of codes
        gone = np.concatenate([ids[: share // 2], rng.permutation(ids[share // 2 :])])[:share]
        index.remove(gone)
        truth.remove(gone)
        assert len(index) == len(truth.items)
        for k in (1, 4, 30, 160):
            assert_search(index, truth, queries, k, ties)
        assert_range(index, truth, queries, 2, ties)
    assert len(index) == 0
    assert_search(index, truth, queries, 3, ties)


def check_removed_id_may_return(make: Make, ties: str) -> None:
    index, truth, rng = filled(make, 16, n=40, seed=3)
    queries = tied_codes(rng, 3, 16, 8)
    for _ in range(4):
        back = np.array(list(truth.items))[[0, 3, 5]]
        for each in (index, truth):
            each.remove(back)
        codes = tied_codes(rng, 3, 16, 5)
        for each in (index, truth):
            each.add(codes, back)
        assert_search(index, truth, queries, 25, ties)


def check_range_search(make: Make, ties: str) -> None:
    for n_bits in (16, 64):
        index, truth, rng = filled(make, n_bits, seed=4)
        queries = np.concatenate([tied_codes(rng, 3, n_bits, 8), random_codes(rng, 2, n_bits)])
        for radius in (0, 1, 3, n_bits):
            assert_range(index, truth, queries, radius, ties)


def check_allow_lists(make: Make, ties: str) -> None:
    index, truth, rng = filled(make, 16, seed=5)
    queries = tied_codes(rng, 4, 16, 8)
    ids = np.array(list(truth.items))
    index.remove(ids[:10])
    truth.remove(ids[:10])
    for count in (0, 1, 2, 10, 75, 148, 150):
        allow = rng.permutation(ids)[:count]
        bitmap = np.zeros(int(ids.max()) + 5, dtype=np.bool_)
        bitmap[allow] = True
        for k in (1, 9, 100):
            assert_search(index, truth, queries, k, ties, allow=allow)
            assert_search(index, truth, queries, k, ties, allow=bitmap)
    unknown = np.array([10**9, 10**12, int(ids[20])])
    assert_search(index, truth, queries, 2, ties, allow=unknown)
    assert_search(index, truth, queries, 2, ties, allow=np.ones(int(ids[20]) + 1, dtype=np.bool_))


def check_empty_index(make: Make, ties: str) -> None:
    index, truth = make(64), BruteForce(64)
    queries = random_codes(np.random.default_rng(6), 3, 64)
    assert len(index) == 0
    assert_search(index, truth, queries, 4, ties)
    assert_range(index, truth, queries, 64, ties)
    index.add(np.empty((0, 8), dtype=np.uint8), [])
    assert len(index) == 0


def check_no_queries(make: Make, ties: str) -> None:
    index, _, _ = filled(make, 16, n=20)
    got = index.search(np.empty((0, 2), dtype=np.uint8), 3)
    assert got.ids.shape == got.distances.shape == (0, 3)
    offsets, ids, distances = index.range_search(np.empty((0, 2), dtype=np.uint8), 3)
    assert offsets.tolist() == [0]
    assert len(ids) == len(distances) == 0


def check_bad_input_changes_nothing(make: Make, ties: str) -> None:
    index, truth, rng = filled(make, 16, n=30, seed=7)
    code = np.zeros((1, 2), dtype=np.uint8)
    known = next(iter(truth.items))
    refused: list[Callable[[], Any]] = [
        lambda: index.add(np.zeros((1, 3), dtype=np.uint8), [1000]),
        lambda: index.add(np.zeros((1, 2), dtype=np.int32), [1000]),
        lambda: index.add(np.zeros(2, dtype=np.uint8), [1000]),
        lambda: index.add(code, [1000, 1001]),
        lambda: index.add(code, [-1]),
        lambda: index.add(code, [1.5]),
        lambda: index.add(code, ["a"]),
        lambda: index.add(code, [[1000]]),
        lambda: index.add(np.zeros((2, 2), dtype=np.uint8), [1000, 1000]),
        lambda: index.remove([10**6]),
        lambda: index.remove([known, 10**6]),
        lambda: index.remove([-5]),
        lambda: index.search(np.zeros((1, 3), dtype=np.uint8), 1),
        lambda: index.search(code.astype(np.float32), 1),
        lambda: index.search(code, 0),
        lambda: index.search(code, -2),
        lambda: index.search(code, 1.5),
        lambda: index.search(code, 1, allow=np.array([0.5])),
        lambda: index.search(code, 1, allow=np.zeros((2, 2), dtype=np.int64)),
        lambda: index.range_search(code, -1),
        lambda: index.range_search(np.zeros((1, 3), dtype=np.uint8), 1),
    ]
    if ties == "insertion":
        refused += [
            lambda: index.add(code, [known]),
            lambda: index.add(np.zeros((2, 2), dtype=np.uint8), [1000, known]),
        ]
    for call in refused:
        with pytest.raises(InputError):
            call()
    assert len(index) == 30
    assert_search(index, truth, tied_codes(rng, 3, 16, 8), 30, ties)


def check_inputs_are_left_alone(make: Make, ties: str) -> None:
    index = make(16)
    codes = np.arange(20, dtype=np.uint8).reshape(10, 2)
    ids = np.arange(10)[::-1].copy()
    kept = codes.copy(), ids.copy()
    index.add(codes, ids)
    assert (codes == kept[0]).all()
    assert (ids == kept[1]).all()
    codes[:], ids[:] = 255, 77
    assert index.search(kept[0], 1).ids.ravel().tolist() == kept[1].tolist()


CHECKS = [
    check_search_equals_brute_force,
    check_distinct_codes,
    check_one_code_for_all,
    check_removed_items_are_gone,
    check_removed_id_may_return,
    check_range_search,
    check_allow_lists,
    check_empty_index,
    check_no_queries,
    check_bad_input_changes_nothing,
    check_inputs_are_left_alone,
]
"""For every index, in either mode."""


def projections(rng: np.random.Generator, n_bits: int) -> np.ndarray:
    """Return queries of every kind: generic, full of ties, tiny, huge, with zeros, all zero."""
    generic = rng.standard_normal((3, n_bits)).astype(np.float32)
    signs = rng.choice([-1.0, 0.0, 1.0], (3, n_bits)).astype(np.float32)
    tenths = (rng.integers(-3, 4, (2, n_bits)) * np.float32(0.1)).astype(np.float32)
    sparse = generic[:1] * (rng.random((1, n_bits)) < 0.1)
    scaled = [generic[:1] * np.float32(1e-30), generic[:1] * np.float32(1e30)]
    return np.concatenate([generic, signs, tenths, sparse, *scaled, np.zeros((1, n_bits))]).astype(
        np.float32
    )


def check_asymmetric_equals_brute_force(make: Make, ties: str) -> None:
    for n_bits in (8, 64, 128):
        index, truth, rng = filled(make, n_bits, seed=10 + n_bits)
        queries = projections(rng, n_bits)
        for k in (1, 7, 60, 170):
            assert_asymmetric(index, truth, queries, k)
        for query in queries[::3]:
            assert_asymmetric(index, truth, query[None], 20)


def check_asymmetric_with_removed_and_allowed(make: Make, ties: str) -> None:
    index, truth, rng = filled(make, 16, seed=11)
    queries = projections(rng, 16)
    gone = np.array(list(truth.items))[:20]
    index.remove(gone)
    truth.remove(gone)
    assert_asymmetric(index, truth, queries, 25)
    ids = np.array(list(truth.items))
    for count in (1, 60, 125):
        assert_asymmetric(index, truth, queries, 12, allow=rng.permutation(ids)[:count])


def check_asymmetric_bad_input(make: Make, ties: str) -> None:
    index, _, _ = filled(make, 16, n=20)
    for bad in (
        np.full((1, 16), np.nan),
        np.full((1, 16), np.inf),
        np.zeros((1, 15)),
        np.zeros(16),
        np.zeros((1, 16), dtype=np.complex64),
        np.full((1, 16), 3e38),
    ):
        with pytest.raises(InputError):
            index.search_asymmetric(bad, 1)
    with pytest.raises(InputError):
        index.search_asymmetric(np.zeros((1, 16)), 0)
    empty = make(16).search_asymmetric(np.zeros((2, 16)), 3)
    assert (empty.ids == -1).all()
    assert (empty.scores == -np.inf).all()


ASYMMETRIC_CHECKS = [
    check_asymmetric_equals_brute_force,
    check_asymmetric_with_removed_and_allowed,
    check_asymmetric_bad_input,
]
"""For an index whose asymmetric search is exact."""
