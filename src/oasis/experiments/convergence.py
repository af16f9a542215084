"""The kind of study ``convergence``: loss and MAP of a round after each iteration, as published.

The loss compares all pairs of samples, but no n x n matrix is formed: the squares are expanded into
sums over samples. Two of these sums, ``sum G'G`` and ``sum B'B``, are not used by the method
itself; they are kept only here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from oasis.arrays import Array
from oasis.codes import Codes, pack
from oasis.errors import InputError
from oasis.experiments.figures import Curve, draw
from oasis.experiments.results import Results
from oasis.experiments.stream import check_setting, facts
from oasis.experiments.tables import Part
from oasis.experiments.task import Row, Task, load_dataset, runbook_for
from oasis.hashers.chunk import (
    check_chunk,
)
from oasis.metrics import mean_average_precision
from oasis.model import PublishedOASIS
from oasis.model.hash_functions import (
    LinearMap,
)
from oasis.model.ridge import Ridge
from oasis.model.round import Published, RowsInMemory, SampleRowsInMemory, iterations
from oasis.model.updates import SemanticSums, Weights
from oasis.streams import rounds

__all__ = ["cells", "check_setting", "facts", "parts", "work"]

N_ITERATIONS = 10
"""Iterations that are traced, unless the option ``iterations`` says otherwise."""


@dataclass(frozen=True)
class OldSums:
    """Sums over the samples of earlier rounds that the loss needs, except those of features.

    Attributes
    ----------
    sums : the sums that the method itself keeps
    GG : (f, f), sum of G'G
    BB : (r, r), sum of B'B
    """

    sums: SemanticSums
    GG: Array
    BB: Array

    @classmethod
    def zero(cls, n_bits: int) -> OldSums:
        """Return the sums over no samples."""
        return cls(SemanticSums.zero(n_bits), np.zeros((0, 0)), np.zeros((n_bits, n_bits)))

    def widened(self, n_semantic: int) -> OldSums:
        """Return the sums with f grown to ``n_semantic``: old samples have zeros there."""
        more = n_semantic - len(self.GG)
        return OldSums(self.sums.widened(n_semantic), np.pad(self.GG, ((0, more),) * 2), self.BB)

    def plus(self, rows: SampleRowsInMemory) -> OldSums:
        """Return the sums with the rows of one chunk added, with their present codes."""
        G, B = rows.G, rows.B
        return OldSums(self.sums.joined(rows.sums()), self.GG + G.T @ G, self.BB + B.T @ B)


@dataclass(frozen=True)
class Iterate:
    """The variables after one iteration of a round: B and V (n, r), U (f, r)."""

    B: Array
    V: Array
    U: Array


def round_loss(
    old: OldSums, G: Array, now: Iterate, ridges: Mapping[str, Ridge], weights: Weights
) -> float:
    """Return the loss of the published method (docs/formulas.md) over this and all earlier chunks.

    Cost: O(n f (f + r)).

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


def work(task: Task, data: Path | None, progress: Callable[[int, int], None]) -> Row:
    """Process a stream like ``oasis-paper``, and trace the iterations of each round.

    Every round starts from the state after the method's own number of iterations (3 as published);
    further iterations are traced but not kept. MAP is measured with expected ties: the round's
    queries, coded by the hash function of the iteration, against everything stored before and the
    chunk's codes of the iteration.
    """
    if task.method != "oasis-paper" or task.n_bits is None:
        raise InputError(f"convergence is traced of oasis-paper, not of {task.method!r}")
    dataset = load_dataset(task.dataset, data)
    options: dict[str, Any] = dict(task.parameters)
    words = "wordllama" if dataset.vectors is None else dataset.vectors
    model = PublishedOASIS(task.n_bits, **{"labels": words, "random_state": task.seed, **options})
    n_iter = max(int(task.option("iterations", N_ITERATIONS)), model.n_iter)
    stream = rounds(dataset, runbook_for(task.dataset, task.setting), task.seed)
    old = OldSums.zero(model.n_bits)
    base: list[Codes] = []
    traced = []
    train = np.concatenate([each.train for each in stream])
    for t, each in enumerate(stream):
        chunk = check_chunk(dataset.take(each.train), dataset.labels(each.train), None)
        state = model.begin({name: int(X.shape[1]) for name, X in chunk.X.items()})
        state = state.grown(chunk.labels)
        old = old.widened(state.labels.n_features)
        L = state.labels.indicator(chunk.labels)
        problem = Published(state.labels, L, state.ridges, model.weights, model.n_bits)
        rows = RowsInMemory(chunk.X, model.unit_length).sample_rows(problem, state.rng())
        queries: dict[str, Any] = dict(dataset.take(each.queries))
        base_labels = dataset.L[train[: sum(map(len, base)) + chunk.n_samples]]
        losses, maps = [], []
        after = old
        for step, U in enumerate(iterations(rows, old.sums, model.weights, n_iter), start=1):
            fitted, now = rows.regressions(), Iterate(rows.B, rows.V, U)
            losses.append(round_loss(old, rows.G, now, fitted, model.weights))
            if len(each.queries):
                hash_function = LinearMap({name: ridge.W for name, ridge in fitted.items()})
                stored = np.concatenate([*base, rows.codes()])
                codes = pack(hash_function.project(queries))
                labels = dataset.L[each.queries]
                maps.append(mean_average_precision(codes, stored, labels, base_labels))
            if step == model.n_iter:
                after = old.plus(rows)
        traced.append({"number": each.number, "loss": losses, "map": maps})
        model.partial_fit(chunk.X, chunk.labels)
        old = after
        base.append(model.codes_)
        progress(t + 1, len(stream))
    return {"n_iter": model.n_iter, "rounds": traced}


def cells(row: Row) -> dict[str, float]:
    """Return the figures that two files are compared by: MAP after the last iteration."""
    return {f"round {each['number']}": each["map"][-1] for each in row["rounds"] if each["map"]}


def parts(results: Results, dataset: str, rows: Sequence[Row]) -> list[Part]:
    """Return loss and MAP by iteration of the first, middle and last round of each setting."""
    chosen = {row["setting"]: row for row in sorted(rows, key=lambda row: row["n_bits"] == 64)}
    loss: dict[str, list[Curve]] = {}
    quality: dict[str, list[Curve]] = {}
    for setting, row in chosen.items():
        n, heading = len(row["rounds"]), f"{setting}, {row['n_bits']} bits"
        for at in sorted({0, (n - 1) // 2, n - 1}):
            each = row["rounds"][at]
            name, values = f"round {each['number']}", each["loss"]
            fallen = (values[0] - values[-1]) or 1.0
            steps = [float(i + 1) for i in range(len(values))]
            shares = [(value - values[-1]) / fallen for value in values]
            loss.setdefault(heading, []).append(Curve(name, steps, shares))
            if each["map"]:
                quality.setdefault(heading, []).append(Curve(name, steps, each["map"]))
    stop = float(rows[0]["n_iter"])
    drawings = (
        *draw(
            f"{dataset}-loss",
            "Loss by iteration",
            "OASIS (paper): (loss - last) / (first - last). Dotted: where the method stops.",
            loss,
            "iteration",
            "loss left to fall",
            marked=stop,
        ),
        *draw(
            f"{dataset}-map-by-iteration",
            "MAP by iteration",
            "OASIS (paper): MAP of the round's own queries, coded by the hash function of the "
            "iteration, against everything stored.",
            quality,
            "iteration",
            marked=stop,
        ),
    )
    return [Part("Convergence", (), drawings)]


def _dot(A: Array, C: Array) -> float:
    return float(np.vdot(A, C))
