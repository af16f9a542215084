"""Conformance checks that every index must pass: any object with the methods of `HammingIndex`.

`check_index` runs them all. Each check takes ``make``, which returns an empty index for a number of
bits, and ``ties``, and raises a `CheckError` that says what was found and what was expected.

- ``ties="insertion"``: the order is distance (or score), then insertion. Insertion also decides
ties at the k-th distance, so there is one right answer.
- ``ties="any"``, for an external engine: distances are exact, but the engine chooses which of the
  items tied at the k-th distance come back, and returned ties are ordered by id. An existing id may
  be replaced instead of refused.

The truth is `BruteForce`, which compares one bit at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import getitem, ne
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from oasis.hashers.checks import refused, require

Array: TypeAlias = npt.NDArray[Any]

Make: TypeAlias = Callable[[int], Any]
"""Returns an empty index for a number of bits."""

TieOrder: TypeAlias = Literal["insertion", "any"]


class BruteForce:
    """Brute force: items in order of insertion, compared bit by bit."""

    def __init__(self, n_bits: int) -> None:
        self.n_bits = n_bits
        self.items: dict[int, list[int]] = {}

    def add(self, codes: Array, ids: Any) -> None:
        for code, item in zip(codes, ids, strict=True):
            require(int(item) not in self.items, f"id {item} was added twice")
            self.items[int(item)] = self.bits(code)

    def remove(self, ids: Any) -> None:
        for item in ids:
            del self.items[int(item)]

    def bits(self, code: Array) -> list[int]:
        return [(int(code[i // 8]) >> (i % 8)) & 1 for i in range(self.n_bits)]

    def distances(self, code: Array, allow: set[int] | None = None) -> list[tuple[int, int]]:
        query = self.bits(code)
        return [(sum(map(ne, query, bits)), item) for item, bits in self._allowed(allow)]

    def scores(self, projection: Array, allow: set[int] | None = None) -> list[tuple[float, int]]:
        query = [(-float(x), float(x)) for x in projection]
        return [
            (float(np.float32(sum(map(getitem, query, bits)))), item)
            for item, bits in self._allowed(allow)
        ]

    def _allowed(self, allow: set[int] | None) -> list[tuple[int, list[int]]]:
        return [(item, b) for item, b in self.items.items() if allow is None or item in allow]


def require_equal(what: str, found: object, expected: object) -> None:
    """Raise a `CheckError` unless both are equal."""
    require(found == expected, f"{what}: found {found!r}, expected {expected!r}")


def require_array(what: str, found: Array, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
    """Raise a `CheckError` unless an array has this shape and type."""
    require_equal(f"shape and type of {what}", (found.shape, found.dtype), (shape, np.dtype(dtype)))


def assert_search(
    index: Any, truth: BruteForce, queries: Array, k: int, ties: TieOrder, allow: Any = None
) -> None:
    """Search, and require what brute force finds."""
    got = index.search(queries, k) if allow is None else index.search(queries, k, allow=allow)
    require_array("ids", got.ids, (len(queries), k), np.int64)
    require_array("distances", got.distances, (len(queries), k), np.int32)
    admitted = allowed_set(allow)
    for query, ids, distances in zip(
        queries, got.ids.tolist(), got.distances.tolist(), strict=True
    ):
        every = truth.distances(query, admitted)
        # sorted is stable: ties stay in order of insertion
        expected = sorted(every, key=lambda pair: pair[0])[:k]
        padding = [-1] * (k - len(expected))
        require_equal(f"distances of the first {k}", distances, [d for d, _ in expected] + padding)
        if ties == "insertion":
            require_equal(f"ids of the first {k}", ids, [item for _, item in expected] + padding)
            continue
        found = ids[: len(expected)]
        require_equal("ids after the last item", ids[len(expected) :], padding)
        require(len(set(found)) == len(found), f"an id was found twice: {found}")
        distance = {item: d for d, item in every}
        pairs = [(distance[item], item) for item in found]
        require_equal("ties by id", pairs, sorted(pairs))
        require_equal("distances", [d for d, _ in pairs], [d for d, _ in expected])


def assert_asymmetric(
    index: Any, truth: BruteForce, projections: Array, k: int, allow: Any = None
) -> None:
    """Search by scores, and require what brute force finds."""
    got = index.search_asymmetric(projections, k, allow=allow)
    require_array("ids", got.ids, (len(projections), k), np.int64)
    require_array("scores", got.scores, (len(projections), k), np.float32)
    admitted = allowed_set(allow)
    for query, ids, scores in zip(projections, got.ids.tolist(), got.scores.tolist(), strict=True):
        expected = sorted(truth.scores(query, admitted), key=lambda pair: -pair[0])[:k]
        padding = k - len(expected)
        best = [score for score, _ in expected] + [-np.inf] * padding
        require_equal(f"scores of the first {k}", scores, best)
        best_ids = [item for _, item in expected] + [-1] * padding
        require_equal(f"ids of the first {k} by score", ids, best_ids)


def assert_range(
    index: Any, truth: BruteForce, queries: Array, radius: int, ties: TieOrder
) -> None:
    """Search within a radius, and require what brute force finds."""
    offsets, ids, distances = index.range_search(queries, radius)
    require_equal("shape of offsets", offsets.shape, (len(queries) + 1,))
    ends = [int(offsets[0]), int(offsets[-1]), len(distances)]
    require_equal("first and last offset, and distances", ends, [0, len(ids), len(ids)])
    for i, query in enumerate(queries):
        part = slice(int(offsets[i]), int(offsets[i + 1]))
        expected = [pair for pair in truth.distances(query) if pair[0] <= radius]
        key = (lambda pair: pair[0]) if ties == "insertion" else None
        expected = sorted(expected, key=key)
        got = list(zip(distances[part].tolist(), ids[part].tolist(), strict=True))
        require_equal(f"items within distance {radius}", got, expected)


def allowed_set(allow: Any) -> set[int] | None:
    if allow is None:
        return None
    array = np.asarray(allow)
    return set((np.flatnonzero(array) if array.dtype == np.bool_ else array).tolist())


def tied_codes(rng: np.random.Generator, n: int, n_bits: int, distinct: int) -> Array:
    """Return codes with many duplicates, and many ties between the distinct ones."""
    pool = np.zeros((distinct, n_bits // 8), dtype=np.uint8)
    for row in pool:
        for bit in rng.choice(min(n_bits, 10), size=rng.integers(0, 4), replace=False):
            row[bit // 8] ^= 1 << (bit % 8)
    return pool[rng.integers(0, distinct, n)]


def random_codes(rng: np.random.Generator, n: int, n_bits: int) -> Array:
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
    require_equal("len of the index", len(index), n)
    return index, truth, rng


def projections(rng: np.random.Generator, n_bits: int) -> Array:
    """Return queries of every kind: generic, full of ties, tiny, huge, with zeros, all zero."""
    generic = rng.standard_normal((3, n_bits)).astype(np.float32)
    signs = rng.choice([-1.0, 0.0, 1.0], (3, n_bits)).astype(np.float32)
    tenths = (rng.integers(-3, 4, (2, n_bits)) * np.float32(0.1)).astype(np.float32)
    sparse = generic[:1] * (rng.random((1, n_bits)) < 0.1)
    scaled = [generic[:1] * np.float32(1e-30), generic[:1] * np.float32(1e30)]
    return np.concatenate([generic, signs, tenths, sparse, *scaled, np.zeros((1, n_bits))]).astype(
        np.float32
    )


def check_index(make: Make, ties: TieOrder = "insertion", asymmetric: bool = True) -> None:
    """Run every check; the first that fails raises a `CheckError`.

    Parameters
    ----------
    make : callable of a number of bits, returns an empty index
    ties : order of items at the same distance, see the module
    asymmetric : also check `search_asymmetric`, which must be exact
    """
    for check in [*CHECKS, *(ASYMMETRIC_CHECKS if asymmetric else [])]:
        check(make, ties)


def check_search_equals_brute_force(make: Make, ties: TieOrder) -> None:
    """Ids and distances are those of brute force, for several lengths of codes and k."""
    for n_bits in (8, 16, 64, 128):
        index, truth, rng = filled(make, n_bits, seed=n_bits)
        queries = np.concatenate([tied_codes(rng, 4, n_bits, 8), random_codes(rng, 2, n_bits)])
        for k in (1, 5, 37, 150, 200):
            assert_search(index, truth, queries, k, ties)


def check_distinct_codes(make: Make, ties: TieOrder) -> None:
    """The same where no two items share a code."""
    rng = np.random.default_rng(1)
    codes = np.unique(random_codes(rng, 120, 32), axis=0)
    codes = codes[rng.permutation(len(codes))]
    index, truth = make(32), BruteForce(32)
    for part in np.array_split(np.arange(len(codes)), 3):
        index.add(codes[part], part + 7)
        truth.add(codes[part], part + 7)
    for k in (1, 10, 60, 130):
        assert_search(index, truth, random_codes(rng, 5, 32), k, ties)


def check_one_code_for_all(make: Make, ties: TieOrder) -> None:
    """The same where all items share one code."""
    index, truth = make(16), BruteForce(16)
    codes = np.full((50, 2), 170, dtype=np.uint8)
    for start in range(0, 50, 7):
        ids = np.arange(start, min(50, start + 7))[::-1] + 100
        index.add(codes[: len(ids)], ids)
        truth.add(codes[: len(ids)], ids)
    assert_search(index, truth, codes[:1], 20, ties)
    assert_search(index, truth, ~codes[:1], 60, ties)


def check_removed_items_are_gone(make: Make, ties: TieOrder) -> None:
    """Removed items are not found, the oldest of a code included; all may be removed."""
    index, truth, rng = filled(make, 16, seed=2)
    queries = tied_codes(rng, 5, 16, 8)
    for share in (1, 3, 20, 60, 40, 26):
        ids = np.array(list(truth.items))
        # the oldest ones too, whose removal changes the order of codes
        gone = np.concatenate([ids[: share // 2], rng.permutation(ids[share // 2 :])])[:share]
        index.remove(gone)
        truth.remove(gone)
        require_equal("len after a removal", len(index), len(truth.items))
        for k in (1, 4, 30, 160):
            assert_search(index, truth, queries, k, ties)
        assert_range(index, truth, queries, 2, ties)
    require_equal("len of an empty index", len(index), 0)
    assert_search(index, truth, queries, 3, ties)


def check_removed_id_may_return(make: Make, ties: TieOrder) -> None:
    """An id that was removed may be added again, and then counts as new."""
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


def check_range_search(make: Make, ties: TieOrder) -> None:
    """All items within a radius, the radius included."""
    for n_bits in (16, 64):
        index, truth, rng = filled(make, n_bits, seed=4)
        queries = np.concatenate([tied_codes(rng, 3, n_bits, 8), random_codes(rng, 2, n_bits)])
        for radius in (0, 1, 3, n_bits):
            assert_range(index, truth, queries, radius, ties)


def check_allow_lists(make: Make, ties: TieOrder) -> None:
    """Only allowed items are found, given as ids or as a bitmap; unknown ids are ignored."""
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


def check_empty_index(make: Make, ties: TieOrder) -> None:
    """An empty index answers with padding."""
    index, truth = make(64), BruteForce(64)
    queries = random_codes(np.random.default_rng(6), 3, 64)
    require_equal("len of an empty index", len(index), 0)
    assert_search(index, truth, queries, 4, ties)
    assert_range(index, truth, queries, 64, ties)
    index.add(np.empty((0, 8), dtype=np.uint8), [])
    require_equal("len of an empty index", len(index), 0)


def check_no_queries(make: Make, ties: TieOrder) -> None:
    """No queries give empty arrays."""
    index, _, _ = filled(make, 16, n=20)
    got = index.search(np.empty((0, 2), dtype=np.uint8), 3)
    require_array("ids", got.ids, (0, 3), np.int64)
    require_array("distances", got.distances, (0, 3), np.int32)
    offsets, ids, distances = index.range_search(np.empty((0, 2), dtype=np.uint8), 3)
    require_equal("offsets without a query", offsets.tolist(), [0])
    require_equal("items without a query", [len(ids), len(distances)], [0, 0])


def check_bad_input_changes_nothing(make: Make, ties: TieOrder) -> None:
    """Bad arguments raise `InputError` and leave the index as it was."""
    index, truth, rng = filled(make, 16, n=30, seed=7)
    code = np.zeros((1, 2), dtype=np.uint8)
    known = next(iter(truth.items))
    narrow = np.zeros((1, 3), dtype=np.uint8)
    two = np.zeros((2, 2), dtype=np.uint8)
    calls: dict[str, Callable[[], Any]] = {
        "add: a code of another length": lambda: index.add(narrow, [1000]),
        "add: codes that are not uint8": lambda: index.add(code.astype(np.int32), [1000]),
        "add: one dimension": lambda: index.add(code[0], [1000]),
        "add: two ids for one code": lambda: index.add(code, [1000, 1001]),
        "add: a negative id": lambda: index.add(code, [-1]),
        "add: an id that is no integer": lambda: index.add(code, [1.5]),
        "add: an id that is a text": lambda: index.add(code, ["a"]),
        "add: ids of two dimensions": lambda: index.add(code, [[1000]]),
        "add: an id twice": lambda: index.add(two, [1000, 1000]),
        "remove: an unknown id": lambda: index.remove([10**6]),
        "remove: an unknown id beside a known one": lambda: index.remove([known, 10**6]),
        "remove: a negative id": lambda: index.remove([-5]),
        "search: a code of another length": lambda: index.search(narrow, 1),
        "search: codes that are not uint8": lambda: index.search(code.astype(np.float32), 1),
        "search: k of 0": lambda: index.search(code, 0),
        "search: k below 0": lambda: index.search(code, -2),
        "search: k that is no integer": lambda: index.search(code, 1.5),
        "search: an allow-list of floats": lambda: index.search(code, 1, allow=np.array([0.5])),
        "search: an allow-list of two dimensions": lambda: index.search(
            code, 1, allow=np.zeros((2, 2), dtype=np.int64)
        ),
        "range_search: a negative radius": lambda: index.range_search(code, -1),
        "range_search: a code of another length": lambda: index.range_search(narrow, 1),
    }
    if ties == "insertion":
        calls |= {
            "add: an id that is there": lambda: index.add(code, [known]),
            "add: an id that is there beside a new one": lambda: index.add(two, [1000, known]),
        }
    for name, call in calls.items():
        with refused(name):
            call()
    require_equal("len after refused calls", len(index), 30)
    assert_search(index, truth, tied_codes(rng, 3, 16, 8), 30, ties)


def check_inputs_are_left_alone(make: Make, ties: TieOrder) -> None:
    """Arguments are not written to, and may be reused by the caller."""
    index = make(16)
    codes = np.arange(20, dtype=np.uint8).reshape(10, 2)
    ids = np.arange(10)[::-1].copy()
    kept = codes.copy(), ids.copy()
    index.add(codes, ids)
    require((codes == kept[0]).all() and (ids == kept[1]).all(), "add changed its arguments")
    codes[:], ids[:] = 255, 77
    found = index.search(kept[0], 1).ids.ravel().tolist()
    require_equal("ids after the caller reused its arrays", found, kept[1].tolist())


Check: TypeAlias = Callable[[Make, TieOrder], None]

CHECKS: list[Check] = [
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


def check_asymmetric_equals_brute_force(make: Make, ties: TieOrder) -> None:
    """Scores and ids are those of brute force."""
    for n_bits in (8, 64, 128):
        index, truth, rng = filled(make, n_bits, seed=10 + n_bits)
        queries = projections(rng, n_bits)
        for k in (1, 7, 60, 170):
            assert_asymmetric(index, truth, queries, k)
        for query in queries[::3]:
            assert_asymmetric(index, truth, query[None], 20)


def check_asymmetric_with_removed_and_allowed(make: Make, ties: TieOrder) -> None:
    """The same with removed items and allow-lists."""
    index, truth, rng = filled(make, 16, seed=11)
    queries = projections(rng, 16)
    gone = np.array(list(truth.items))[:20]
    index.remove(gone)
    truth.remove(gone)
    assert_asymmetric(index, truth, queries, 25)
    ids = np.array(list(truth.items))
    for count in (1, 60, 125):
        assert_asymmetric(index, truth, queries, 12, allow=rng.permutation(ids)[:count])


def check_asymmetric_bad_input(make: Make, ties: TieOrder) -> None:
    """Bad projections raise `InputError`; an empty index answers with padding."""
    index, _, _ = filled(make, 16, n=20)
    for name, bad in {
        "NaN": np.full((1, 16), np.nan),
        "infinity": np.full((1, 16), np.inf),
        "another width": np.zeros((1, 15)),
        "one dimension": np.zeros(16),
        "complex numbers": np.zeros((1, 16), dtype=np.complex64),
        "values whose sum overflows": np.full((1, 16), 3e38),
    }.items():
        with refused(f"search_asymmetric: {name}"):
            index.search_asymmetric(bad, 1)
    with refused("search_asymmetric: k of 0"):
        index.search_asymmetric(np.zeros((1, 16)), 0)
    empty = make(16).search_asymmetric(np.zeros((2, 16)), 3)
    require((empty.ids == -1).all(), f"an empty index found {empty.ids.tolist()}")
    require((empty.scores == -np.inf).all(), f"an empty index scored {empty.scores.tolist()}")


ASYMMETRIC_CHECKS: list[Check] = [
    check_asymmetric_equals_brute_force,
    check_asymmetric_with_removed_and_allowed,
    check_asymmetric_bad_input,
]
"""For an index whose asymmetric search is exact."""
