"""Convergence: the loss against its literal form, the trace against the model itself."""

from __future__ import annotations

import literal
import numpy as np
import pytest
import toy

from oasis.errors import InputError
from oasis.experiments.convergence import Iterate, OldSums, round_loss, work
from oasis.experiments.task import Row, Task, load_dataset, runbook_for
from oasis.labels import LabelSpace
from oasis.metrics import mean_average_precision
from oasis.model import OASIS
from oasis.model.ridge import Ridge, start_round
from oasis.model.round import Published, RowsInMemory, iterations
from oasis.model.updates import SemanticSums, Weights
from oasis.streams import rounds

WEIGHTS = {"alpha": 3.0, "beta": 0.7, "gamma": 1.3, "theta": 0.5}
DELTA = 0.8


@pytest.mark.parametrize("sizes", [(60, 45), (40, 7)])
def test_loss_is_the_literal_one_over_two_rounds(sizes: tuple[int, int]) -> None:
    n_bits, weights = 8, Weights(**WEIGHTS)
    space = LabelSpace.of(toy.class_vectors(6))
    rng = np.random.default_rng(0)
    old = OldSums.zero(n_bits)
    ridges = {name: Ridge.zero(n_bits, d, DELTA) for name, d in (("image", 20), ("text", 14))}
    before: list[dict] = []
    for seed, n in enumerate(sizes):
        X, y = toy.chunk(n, seed, classes=toy.NAMES[: 4 + 2 * seed])
        space = space.grown(name for names in y for name in names)
        old = old.widened(space.n_features)
        problem = Published(space, space.indicator(y), ridges, weights, n_bits)
        rows = RowsInMemory(X, unit_length=False).sample_rows(problem, rng)
        G = rows.G
        for U in iterations(rows, old.sums, weights, 3):
            now, fitted = Iterate(rows.B, rows.V, U), rows.regressions()
            new = {"B": now.B, "V": now.V, "G": G, "X": list(X.values())}
            everything = {
                "B": np.vstack([np.zeros((0, n_bits)), *(each["B"] for each in before)]),
                "V": np.vstack([np.zeros((0, n_bits)), *(each["V"] for each in before)]),
                "G": np.vstack([np.zeros((0, G.shape[1])), *(each["G"] for each in before)]),
                "X": [
                    np.vstack([np.zeros((0, m.shape[1])), *(each["X"][i] for each in before)])
                    for i, m in enumerate(X.values())
                ],
            }
            Ws = [each.W for each in fitted.values()]
            expected = literal.loss(everything, new, now.U, Ws, **WEIGHTS, delta=DELTA)
            found = round_loss(old, G, now, fitted, weights)
            assert found == pytest.approx(expected, rel=1e-9)
        old, ridges = old.plus(rows), fitted
        before.append(new)


def test_loss_of_any_variables_is_the_literal_one() -> None:
    # nothing that the steps make true may be taken for granted: V not feasible, W not solved for
    rng = np.random.default_rng(1)
    n_bits, weights = 8, Weights(**WEIGHTS)

    def draw(n: int) -> dict:
        X = [rng.standard_normal((n, 5))]
        B = np.where(rng.random((n, n_bits)) < 0.5, -1.0, 1.0)
        return {
            "B": B,
            "V": rng.standard_normal((n, n_bits)),
            "G": rng.standard_normal((n, 3)),
            "X": X,
        }

    before, new = draw(12), draw(9)
    U, W = rng.standard_normal((3, n_bits)), rng.standard_normal((n_bits, 5))
    B, G, V = before["B"], before["G"], before["V"]
    old = OldSums(SemanticSums(B.T @ G, G.T @ V, V.T @ V, len(B)), G.T @ G, B.T @ B)
    ridge = start_round(Ridge.zero(n_bits, 5, DELTA), before["X"][0]).finish(before["B"])
    ridge = start_round(ridge, new["X"][0]).finish(new["B"])
    ridge = type(ridge)(**{**vars(ridge), "W": W})
    now = Iterate(new["B"], new["V"], U)
    found = round_loss(old, new["G"], now, {"x": ridge}, weights)
    expected = literal.loss(before, new, U, [W], **WEIGHTS, delta=DELTA)
    assert found == pytest.approx(expected, rel=1e-10)


NAME = "synthetic-coco79@700"


def trace(task: Task) -> Row:
    return work(task, None, lambda done, of: None)


@pytest.mark.slow
def test_trace_is_that_of_the_model() -> None:
    options = (("iterations", 5),)
    task = Task("convergence", NAME, "second", "oasis-paper", 16, 1, (("alpha", 2.0),), options)
    found, data = trace(task), load_dataset(NAME)
    stream = rounds(data, runbook_for(NAME, "second"), 1)
    assert [each["number"] for each in found["rounds"]] == [each.number for each in stream]
    model = OASIS.paper(16, alpha=2.0, random_state=1)
    stored, labels = [], []
    for each, traced in zip(stream, found["rounds"], strict=True):
        model.partial_fit(data.take(each.train), data.labels(each.train))
        stored.append(model.codes_.copy())
        labels.append(data.L[each.train])
        assert len(traced["loss"]) == len(traced["map"]) == 5
        now = mean_average_precision(
            model.encode(data.take(each.queries)),
            np.concatenate(stored),
            data.L[each.queries],
            np.concatenate(labels),
        )
        assert traced["map"][found["n_iter"] - 1] == pytest.approx(now, abs=2e-3)


@pytest.mark.slow
def test_loss_of_the_trace_does_not_rise() -> None:
    # every chunk has more samples than bits, so that each step is an exact minimiser
    task = Task("convergence", NAME, "first", "oasis-paper", 16, 0, (), (("iterations", 6),))
    for each in trace(task)["rounds"]:
        loss = np.array(each["loss"])
        assert (np.diff(loss) <= 1e-9 * loss[:-1]).all()


def test_fewer_iterations_are_raised_to_the_methods_own_and_others_are_refused() -> None:
    task = Task("convergence", NAME, "third", "oasis-paper", 8, 0, (), (("iterations", 1),))
    assert {len(each["loss"]) for each in trace(task)["rounds"]} == {3}
    with pytest.raises(InputError, match="of oasis-paper, not of 'lemon'"):
        trace(Task("convergence", NAME, "third", "lemon", 8, 0))
