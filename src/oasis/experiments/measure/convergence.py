"""Convergence: the loss of a round and its MAP after each iteration, for the method as published.

The loss compares every sample with every other one, yet nothing of size n x n is formed: all
squares are expanded, and what they need of old samples are sums. Two of these the method itself
has no use for, ``sum G'G`` and ``sum B'B``; they are kept here alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from oasis.arrays import Array, Matrix
from oasis.codes import Codes, pack
from oasis.datasets.dataset import (
    Dataset,
)
from oasis.experiments.measure.traces import RoundTrace, Trace
from oasis.experiments.run.definition import Run, runbook_for
from oasis.experiments.run.machine import machine, versions
from oasis.experiments.run.runner import describe
from oasis.hashers.chunk import (
    check_chunk,
)
from oasis.labels import LabelSpace
from oasis.metrics import mean_average_precision
from oasis.model import OASIS
from oasis.model.hash_functions import (
    LinearMap,
)
from oasis.model.ridge import Ridge
from oasis.model.updates import (
    Iterate,
    Sums,
    Weights,
    iterate,
)
from oasis.streams import rounds


@dataclass(frozen=True)
class OldSums:
    """What the loss needs of the samples of earlier rounds, apart from their features.

    Attributes
    ----------
    sums : the sums that the method itself keeps
    GG : (f, f), sum of G'G
    BB : (r, r), sum of B'B
    """

    sums: Sums
    GG: Array
    BB: Array

    @classmethod
    def zero(cls, n_bits: int) -> OldSums:
        """Return the sums over no samples."""
        return cls(Sums.zero(n_bits), np.zeros((0, 0)), np.zeros((n_bits, n_bits)))

    def widened(self, n_semantic: int) -> OldSums:
        """Return the sums with f grown to ``n_semantic``: old samples have zeros there."""
        more = n_semantic - len(self.GG)
        return OldSums(self.sums.widened(n_semantic), np.pad(self.GG, ((0, more),) * 2), self.BB)

    def plus(self, B: Array, G: Array, V: Array) -> OldSums:
        """Return the sums with one chunk added."""
        return OldSums(self.sums.plus(B, G, V), self.GG + G.T @ G, self.BB + B.T @ B)


def round_loss(
    old: OldSums, G: Array, now: Iterate, ridges: Mapping[str, Ridge], weights: Weights
) -> float:
    """Return the loss of SPEC 2 for a chunk and everything before it. Cost: O(n f (f + r)).

    Parameters
    ----------
    old : sums over all earlier chunks, as wide as G
    G : (n, f) semantic representation of the chunk
    now : B, V and U
    ridges : modality name -> W, with the sums ``B'X`` and ``X'X`` that include the chunk with
        this B, and the ridge delta

    Examples
    --------
    >>> import numpy as np
    >>> B = np.array([[1.0], [-1.0]])
    >>> now = Iterate(B=B, V=B, U=np.zeros((1, 1)))
    >>> G = np.array([[1.0], [-1.0]])
    >>> round_loss(OldSums.zero(1).widened(1), G, now, {}, Weights(1.0, 1.0, 1.0, 1.0))
    2.0
    """
    B, V, U = now.B, now.V, now.U
    r = B.shape[1]
    GG, GB, GV = G.T @ G, G.T @ B, G.T @ V  # (f, f), (f, r), (f, r)
    BB, VV = B.T @ B, V.T @ V  # (r, r)
    # |rS - BV'|^2 with S = GG', for pairs new-new, old-new and new-old
    similarity = r**2 * (_dot(GG, GG) + 2 * _dot(old.GG, GG))
    similarity -= 2 * r * (_dot(GB, GV) + _dot(old.sums.BG.T, GV) + _dot(GB, old.sums.GV))
    similarity += _dot(BB, VV) + _dot(old.BB, VV) + _dot(BB, old.sums.VV)
    # |G - VU'|^2 over new and old
    semantics = np.trace(GG) + np.trace(old.GG) - 2 * _dot(GV + old.sums.GV, U)
    semantics += _dot(VV + old.sums.VV, U.T @ U) + weights.theta * _dot(U, U)
    # |B - XW'|^2 over new and old, and the ridge, which `product` includes
    lengths = float(np.trace(BB) + np.trace(old.BB))
    features = 0.0
    for ridge in ridges.values():
        Wt = np.ascontiguousarray(ridge.W.T)
        features += lengths - 2 * _dot(ridge.BX, ridge.W) + _dot(Wt, ridge.product(Wt))
    relaxed = float(np.square(B - V).sum())
    return float(
        relaxed + weights.alpha * similarity + weights.beta * semantics + weights.gamma * features
    )


def trace_run(
    run: Run,
    dataset: Dataset,
    n_iter: int,
    progress: Callable[[int, int], None] | None = None,
) -> Trace:
    """Go through a stream as ``oasis-paper`` does, looking at ``n_iter`` iterations of each round.

    Every round goes on from what the method has after its own number of iterations (3 as
    published); iterations past that are only looked at. MAP is that of the round's queries, coded
    by the hash function of the iteration, against everything stored before and the chunk's codes
    of the iteration; ties are left open.
    """
    options: dict[str, Any] = dict(run.parameters)
    model = OASIS.paper(run.n_bits or 0, **options)
    weights = Weights(model.alpha, model.beta, model.gamma, model.theta)
    space = LabelSpace.of("wordllama" if dataset.vectors is None else dataset.vectors)
    rng = np.random.Generator(np.random.PCG64(run.seed))
    stream = rounds(dataset, runbook_for(run.dataset, run.setting), run.seed)
    old = OldSums.zero(model.n_bits)
    ridges: dict[str, Ridge] = {}
    base: list[Codes] = []
    traces: list[RoundTrace] = []
    train = np.concatenate([each.train for each in stream])
    for t, each in enumerate(stream):
        chunk = check_chunk(dataset.take(each.train), dataset.labels(each.train), None)
        if not ridges:
            ridges = {
                name: Ridge.zero(model.n_bits, int(X.shape[1]), float(model.delta))
                for name, X in chunk.X.items()
            }
        space = space.grown(name for names in chunk.labels for name in names)
        G = space.represent(chunk.labels)
        old = old.widened(G.shape[1])
        steps = _steps(old.sums, G, chunk.X, ridges, weights, max(n_iter, model.n_iter), rng)
        queries: dict[str, Any] = dict(dataset.take(each.queries))
        base_labels = dataset.L[train[: sum(map(len, base)) + len(G)]]
        losses, maps = [], []
        for now, fitted in steps:
            losses.append(round_loss(old, G, now, fitted, weights))
            if len(each.queries):
                hash_function = LinearMap({name: ridge.W for name, ridge in fitted.items()})
                stored = np.concatenate([*base, pack(now.B)])
                codes = pack(hash_function.project(queries))
                labels = dataset.L[each.queries]
                maps.append(mean_average_precision(codes, stored, labels, base_labels))
        traces.append(RoundTrace(each.number, tuple(losses), tuple(maps)))
        now, ridges = steps[model.n_iter - 1]
        old = old.plus(now.B, G, now.V)
        base.append(pack(now.B))
        if progress is not None:
            progress(t + 1, len(stream))
    about = {**describe(run, dataset), "machine": machine(), "versions": versions()}
    return Trace(run, about, model.n_iter, tuple(traces))


def _steps(
    sums: Sums,
    G: Array,
    X: Mapping[str, Matrix],
    ridges: Mapping[str, Ridge],
    weights: Weights,
    n_iter: int,
    rng: np.random.Generator,
) -> list[tuple[Iterate, dict[str, Ridge]]]:
    """Return the iterations of one round, each with the regressions whose sums include its B."""
    started = {name: ridges[name].round(matrix) for name, matrix in X.items()}

    def predict(B: Array) -> Array:
        return np.asarray(sum(each.predict(B) for each in started.values()))

    return [
        (now, {name: each.finish(now.B) for name, each in started.items()})
        for now in iterate(sums, G, predict, weights, n_iter, rng)
    ]


def _dot(A: Array, C: Array) -> float:
    return float(np.vdot(A, C))
