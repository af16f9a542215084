"""Brute force, the reference for an index: every item bit by bit; and comparisons with it."""

from __future__ import annotations

from collections.abc import Callable
from operator import getitem, ne
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from oasis.hashers.checks import require

Make: TypeAlias = Callable[[int], Any]
"""Returns an empty index for a number of bits."""

TieOrder: TypeAlias = Literal["insertion", "any"]


def require_equal(what: str, found: object, expected: object) -> None:
    """Raise a `CheckError` unless both are equal."""
    require(found == expected, f"{what}: found {found!r}, expected {expected!r}")


def require_array(
    what: str, found: npt.NDArray[Any], shape: tuple[int, ...], dtype: npt.DTypeLike
) -> None:
    """Raise a `CheckError` unless an array has this shape and type."""
    require_equal(f"shape of {what}", found.shape, shape)
    require_equal(f"type of {what}", found.dtype, np.dtype(dtype))


class BruteForce:
    """Brute force: items in order of insertion, compared bit by bit."""

    def __init__(self, n_bits: int) -> None:
        self.n_bits = n_bits
        self.items: dict[int, list[int]] = {}

    def add(self, codes: npt.NDArray[Any], ids: Any) -> None:
        for code, item in zip(codes, ids, strict=True):
            require(int(item) not in self.items, f"id {item} was added twice")
            self.items[int(item)] = self.bits(code)

    def remove(self, ids: Any) -> None:
        for item in ids:
            del self.items[int(item)]

    def bits(self, code: npt.NDArray[Any]) -> list[int]:
        return [(int(code[i // 8]) >> (i % 8)) & 1 for i in range(self.n_bits)]

    def distances(
        self, code: npt.NDArray[Any], allow: set[int] | None = None
    ) -> list[tuple[int, int]]:
        query = self.bits(code)
        return [
            (sum(map(ne, query, bits)), item)
            for item, bits in self.items.items()
            if allow is None or item in allow
        ]

    def scores(
        self, projection: npt.NDArray[Any], allow: set[int] | None = None
    ) -> list[tuple[float, int]]:
        query = [(-float(x), float(x)) for x in projection]
        return [
            (float(np.float32(sum(map(getitem, query, bits)))), item)
            for item, bits in self.items.items()
            if allow is None or item in allow
        ]


def assert_search(
    index: Any,
    truth: BruteForce,
    queries: npt.NDArray[Any],
    k: int,
    ties: TieOrder,
    allow: Any = None,
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
    require_equal("ids after the last item", ids[len(expected) :], padding)
    require(len(set(found)) == len(found), f"an id was found twice: {found}")
    pairs = [(distance[item], item) for item in found]
    require_equal("ties by id", pairs, sorted(pairs))
    require_equal("distances", [d for d, _ in pairs], [d for d, _ in expected])


def assert_asymmetric(
    index: Any, truth: BruteForce, projections: npt.NDArray[Any], k: int, allow: Any = None
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
    index: Any, truth: BruteForce, queries: npt.NDArray[Any], radius: int, ties: TieOrder
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


def tied_codes(rng: np.random.Generator, n: int, n_bits: int, distinct: int) -> npt.NDArray[Any]:
    """Return codes with many duplicates, and many ties between the distinct ones."""
    pool = np.zeros((distinct, n_bits // 8), dtype=np.uint8)
    for row in pool:
        for bit in rng.choice(min(n_bits, 10), size=rng.integers(0, 4), replace=False):
            row[bit // 8] ^= 1 << (bit % 8)
    return pool[rng.integers(0, distinct, n)]


def random_codes(rng: np.random.Generator, n: int, n_bits: int) -> npt.NDArray[Any]:
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


def projections(rng: np.random.Generator, n_bits: int) -> npt.NDArray[Any]:
    """Return queries of every kind: generic, full of ties, tiny, huge, with zeros, all zero."""
    generic = rng.standard_normal((3, n_bits)).astype(np.float32)
    signs = rng.choice([-1.0, 0.0, 1.0], (3, n_bits)).astype(np.float32)
    tenths = (rng.integers(-3, 4, (2, n_bits)) * np.float32(0.1)).astype(np.float32)
    sparse = generic[:1] * (rng.random((1, n_bits)) < 0.1)
    scaled = [generic[:1] * np.float32(1e-30), generic[:1] * np.float32(1e30)]
    return np.concatenate([generic, signs, tenths, sparse, *scaled, np.zeros((1, n_bits))]).astype(
        np.float32
    )
