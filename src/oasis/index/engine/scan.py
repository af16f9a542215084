"""The nearest distinct codes: by Hamming distance, and by inner product with a real-valued query.

Both return the first slots by (key, slot), exactly; codes come as one or two contiguous arrays.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from oasis.arrays import Array
from oasis.codes import Codes, unpack
from oasis.errors import InputError

Slots = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]

_TABLE_QUERIES = 8
"""Up to so many queries at once lookup tables beat the matrix product (measured)."""

_BLOCK = 8192
_SPARE = 16


def nearest(parts: list[Codes], queries: Codes, s: int) -> tuple[npt.NDArray[np.int32], Slots]:
    """Return distances and slots of the s nearest codes of each query, ties by slot.

    ``s`` must not exceed the number of codes. faiss keeps the lowest rows among ties.
    """
    found, start = [], 0
    for part in parts:
        distances, slots = faiss.knn_hamming(queries, part, min(s, len(part)), variant="hc")
        found.append((distances, slots + start if start else slots))
        start += len(part)
    if len(found) == 1:
        return found[0]
    distances = np.concatenate([d for d, _ in found], axis=1)
    slots = np.concatenate([i for _, i in found], axis=1)
    # stable: the parts are in the order of their slots
    order = np.argsort(distances, axis=1, kind="stable")[:, :s]
    return np.take_along_axis(distances, order, axis=1), np.take_along_axis(slots, order, axis=1)


def within(parts: list[Codes], queries: Codes, radius: int) -> tuple[Slots, Slots, Slots]:
    """Return (query, slot, distance) of every code at distance <= radius, in no order."""
    found, start = [], 0
    for part in parts:
        result = faiss.RangeSearchResult(len(queries))
        faiss.hamming_range_search(  # type: ignore[attr-defined]
            faiss.swig_ptr(queries),
            faiss.swig_ptr(part),
            len(queries),
            len(part),
            radius + 1,  # faiss's radius is strict
            part.shape[1],
            result,
        )
        limits = faiss.rev_swig_ptr(result.lims, len(queries) + 1).astype(np.int64)
        total = int(limits[-1])
        slots = faiss.rev_swig_ptr(result.labels, total).astype(np.int64) + start
        distances = faiss.rev_swig_ptr(result.distances, total).astype(np.int64)
        found.append((np.repeat(np.arange(len(queries)), np.diff(limits)), slots, distances))
        start += len(part)
    query, slot, distance = (np.concatenate(column) for column in zip(*found, strict=True))
    return query, slot, distance


@dataclass(frozen=True)
class Projections:
    """Real-valued queries made ready for an exact search in float32.

    The score of a code is the inner product of query and signs, computed in float64 and rounded to
    float32 once. The scan works in float32 on ``scaled``, whose scores differ from the true ones,
    over ``unit``, by at most ``slack``; so it finds candidates, and they are scored again.
    Where all values of a query are small multiples of one value, as with signs or counts, the
    multiples are scanned: every sum is exact then, ``slack`` is 0, and ties are true ties.

    Attributes
    ----------
    values : (q, n_bits) float64, as given, or the multiples
    scaled : (q, n_bits) float32
    unit : (q,) float64; ``values`` times it are the query's numbers
    slack : (q,) float32
    """

    values: Array
    scaled: Scores
    unit: Array
    slack: Scores

    @classmethod
    def of(cls, projections: npt.NDArray[Any]) -> Projections:
        """Make (q, n_bits) real numbers ready, or refuse those that have no finite score."""
        values = projections.astype(np.float64)
        size = np.abs(values)
        total = size.sum(axis=1)
        refused = ~(total <= np.finfo(np.float32).max)
        if refused.any():
            raise InputError(
                f"projection {int(np.argmax(refused))} holds NaN, infinity or numbers too large "
                "for float32; expected finite numbers"
            )
        # a power of two, so that scaling itself is exact
        scale = np.ldexp(1.0, np.minimum(-np.frexp(size.max(axis=1))[1], 1000))
        # the sum of n rounded terms, the rounding of the terms and that of the final score
        error = 2.0**-23 * values.shape[1] * total + 2.0**-149
        slack = np.minimum(error * scale, 2.0**100).astype(np.float32)
        unit = np.ones(len(values))
        scaled = (values * scale[:, None]).astype(np.float32)
        for row, (multiples, step) in _multiples(values, size).items():
            values[row], scaled[row], unit[row], slack[row] = multiples, multiples, step, 0
        return cls(values, scaled, unit, slack)

    def __getitem__(self, which: npt.NDArray[Any]) -> Projections:
        return Projections(
            self.values[which], self.scaled[which], self.unit[which], self.slack[which]
        )

    def __len__(self) -> int:
        return len(self.values)

    def score(self, query: Slots, codes: Codes) -> Scores:
        """Return the score of ``codes[i]`` for ``query[i]``."""
        out = np.empty(len(query), dtype=np.float32)
        for start in range(0, len(query), _BLOCK):
            part = slice(start, start + _BLOCK)
            signs = unpack(codes[part])
            sums = np.einsum("ij,ij->i", self.values[query[part]], signs.astype(np.float64))
            out[part] = sums * self.unit[query[part]]
        return out


def _multiples(values: Array, size: Array) -> dict[int, tuple[Array, float]]:
    """Return, for each row that is small multiples of one number, the multiples and the number."""
    step = np.min(size, axis=1, where=size > 0, initial=np.inf)
    step[np.isinf(step)] = 1.0
    with np.errstate(over="ignore"):
        ratio = values / step[:, None]
    found = {}
    for row in np.flatnonzero((ratio == np.rint(ratio)).all(axis=1)).tolist():
        # so few and so large that unlike sums stay unlike when rounded to float32
        if (
            np.abs(ratio[row]).sum() <= 2.0**22
            and step[row] >= 2.0**-126
            and bool((ratio[row] * step[row] == values[row]).all())
        ):
            found[row] = (ratio[row], float(step[row]))
    return found


def best(parts: list[Codes], take: Any, projections: Projections, s: int) -> tuple[Scores, Slots]:
    """Return scores and slots of the s best codes of each query, ties by slot.

    ``take`` gives codes by slot; ``s`` must not exceed the number of codes.
    """
    q = len(projections)
    scores = np.empty((q, s), dtype=np.float32)
    slots = np.empty((q, s), dtype=np.int64)
    rest = np.arange(q)
    if q <= _TABLE_QUERIES:
        query, slot, proven = _by_tables(parts, projections, s)
        scores, slots = _settle(projections, take, query, slot, s)
        rest = np.flatnonzero(~proven)
    if len(rest):
        part = projections[rest]
        scores[rest], slots[rest] = _settle(part, take, *_by_product(parts, part, s), s)
    return scores, slots


def _settle(
    projections: Projections, take: Any, query: Slots, slot: Slots, s: int
) -> tuple[Scores, Slots]:
    """Score candidates and return the s best of each query; every query has s or more."""
    score = projections.score(query, take(slot))
    if len(projections) == 1:
        chosen = np.lexsort((slot, -score))[None, :s]
        return score[chosen], slot[chosen]
    order = np.lexsort((slot, -score, query))
    begin = np.searchsorted(query[order], np.arange(len(projections)))
    chosen = order[begin[:, None] + np.arange(s)]
    return score[chosen], slot[chosen]


def _by_tables(
    parts: list[Codes], projections: Projections, s: int
) -> tuple[Slots, Slots, npt.NDArray[np.bool_]]:
    """Return candidates (query, slot) by lookup tables per byte, and which queries have them all.

    Only what faiss returns is known, and its ties are in no useful order: a query is proven when
    the worst that came back lies clearly below the s-th best.
    """
    q = len(projections)
    quantizer = _sign_quantizer(parts[0].shape[1])
    scanned = np.ascontiguousarray(projections.scaled)
    found, worst, start = [], np.full(q, -np.inf, dtype=np.float32), 0
    for part in parts:
        n = min(s + _SPARE, len(part))
        score = np.empty((q, n), dtype=np.float32)
        slots = np.empty((q, n), dtype=np.int64)
        heap = faiss.float_minheap_array_t()
        heap.nh, heap.k = q, n
        heap.val, heap.ids = faiss.swig_ptr(score), faiss.swig_ptr(slots)
        quantizer.search_ip(faiss.swig_ptr(scanned), q, faiss.swig_ptr(part), len(part), heap, True)
        if n < len(part):
            worst = np.maximum(worst, score[:, -1])
        found.append((score, slots + start))
        start += len(part)
    scores = np.concatenate([score for score, _ in found], axis=1)
    slots = np.concatenate([slot for _, slot in found], axis=1)
    bar = -np.partition(-scores, s - 1, axis=1)[:, s - 1]
    proven = worst < bar - 2 * projections.slack
    query = np.repeat(np.arange(q), slots.shape[1])
    return query, slots.ravel(), proven


def _by_product(parts: list[Codes], projections: Projections, s: int) -> tuple[Slots, Slots]:
    """Return candidates (query, slot) by a blocked matrix product, all that can matter."""
    q = len(projections)
    room = max(4 * s, 1024) * q
    kept = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
    found = [kept]
    n_found, first = 0, 0
    bar = np.full(q, -np.inf, dtype=np.float32)
    for part in parts:
        for start in range(0, len(part), _BLOCK):
            block = part[start : start + _BLOCK]
            scores = projections.scaled @ unpack(block).astype(np.float32).T  # (q, block)
            if first == 0 and len(block) > s:
                # a first bar from a sample keeps the candidates of the first block few
                sample = scores[:, : max(4 * s, 1024)]
                column = sample.shape[1] - s
                bar = np.partition(sample, column, axis=1)[:, column] - 2 * projections.slack
            over = np.flatnonzero(scores >= bar[:, None])
            query, column = np.divmod(over, len(block))
            found.append((query, column + first, scores.ravel()[over]))
            n_found += len(over)
            first += len(block)
            if n_found > room:
                kept, bar = _prune(found, projections, s)
                found, n_found = [kept], 0
    (query, slot, _), _ = _prune(found, projections, s)
    return query, slot


Candidates = tuple[Slots, Slots, Scores]


def _prune(found: list[Candidates], projections: Projections, s: int) -> tuple[Candidates, Scores]:
    """Drop candidates that cannot be among the s best; also return the new bar of each query."""
    q = len(projections)
    query = np.concatenate([part[0] for part in found])
    slot = np.concatenate([part[1] for part in found])
    score = np.concatenate([part[2] for part in found])
    count = np.bincount(query, minlength=q)
    enough = np.flatnonzero(count >= s)
    # one integer sorts by query, then score from the best down: float32 bits, made monotone
    keys = np.sort((query << 32) - _monotone(score.view(np.int32)))
    best_s = keys[(np.cumsum(count) - count)[enough] + s - 1]
    bar = np.full(q, -np.inf, dtype=np.float32)
    bits = ((enough << 32) - best_s).astype(np.int32)
    bar[enough] = _monotone(bits).astype(np.int32).view(np.float32)
    bar -= 2 * projections.slack
    keep = score >= bar[query]
    exact = projections.slack == 0
    if exact.any():
        # exact scores settle ties here and now: the first s by (score, slot) are all it takes,
        # and of the slots to come only those that are better
        chosen = np.flatnonzero(keep & exact[query])
        chosen = chosen[np.lexsort((slot[chosen], -score[chosen], query[chosen]))]
        begin = np.searchsorted(query[chosen], query[chosen])
        keep[chosen] = np.arange(len(chosen)) - begin < s
        bar[exact] = np.nextafter(bar[exact], np.float32(np.inf))
    return (query[keep], slot[keep], score[keep]), bar


def _monotone(bits: npt.NDArray[np.int32]) -> Slots:
    """Map the bits of float32 numbers to integers of the same order; its own inverse."""
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).astype(np.int64)


@functools.lru_cache(maxsize=8)
def _sign_quantizer(n_bytes: int) -> Any:
    """Return a product quantizer whose 256 centroids per byte are that byte's eight signs."""
    quantizer = faiss.ProductQuantizer(8 * n_bytes, n_bytes, 8)
    signs = unpack(np.arange(256, dtype=np.uint8)[:, None]).astype(np.float32)
    faiss.copy_array_to_vector(np.tile(signs, (n_bytes, 1)).ravel(), quantizer.centroids)
    return quantizer
