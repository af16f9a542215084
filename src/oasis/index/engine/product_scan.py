"""Candidates by a blocked matrix product: slow, but they always contain the answer."""

from __future__ import annotations

import numpy as np

from oasis.codes import Codes, unpack
from oasis.index.engine.projections import Projections, Scores, Slots
from oasis.index.engine.sort_keys import monotone

_BLOCK = 8192


def by_product(parts: list[Codes], projections: Projections, s: int) -> tuple[Slots, Slots]:
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
    keys = np.sort((query << 32) - monotone(score.view(np.int32)))
    best_s = keys[(np.cumsum(count) - count)[enough] + s - 1]
    bar = np.full(q, -np.inf, dtype=np.float32)
    bits = ((enough << 32) - best_s).astype(np.int32)
    bar[enough] = monotone(bits).astype(np.int32).view(np.float32)
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
