"""Streams on a toy set: codes against a literal loop, measures against brute force."""

from __future__ import annotations

from itertools import permutations

import experiment_data
import numpy as np
import pytest

from oasis.baselines import ITQ, OMHDQ, FloatCosine
from oasis.codes import hamming, pack, unpack
from oasis.datasets import Dataset
from oasis.errors import InputError
from oasis.experiments.measure import (
    Outcome,
    QuerySet,
    Round,
    measures,
    unpacked_values,
)
from oasis.experiments.methods import METHODS
from oasis.experiments.stream import carry_out, deal, work
from oasis.experiments.task import Task, load_dataset, parse_variant, runbook_for
from oasis.model import OASIS
from oasis.streams import rounds

toy = experiment_data.toy
CLASSES = experiment_data.CLASSES


def outcome_of(toy: str, setting: str, variant: str, n_bits: int, seed: int = 0) -> Outcome:
    method, parameters = parse_variant(variant)
    task = Task("stream", toy, setting, method.name, n_bits, seed, parameters)
    return carry_out(task, deal(task, load_dataset(toy)), lambda done, of: None)[1]


def row_of(toy: str, setting: str, method: str, n_bits: int | None, **options: bool) -> dict:
    task = Task("stream", toy, setting, method, n_bits, 0, (), tuple(options.items()))
    return work(task, None, lambda done, of: None)


# --- what is run -------------------------------------------------------------------------------


def test_codes_are_those_of_a_literal_loop(toy: str) -> None:
    found, data = outcome_of(toy, "second", "oasis-paper", 16, 1), load_dataset(toy)
    model = OASIS.paper(16, dict(data.vectors or {}), random_state=1)
    stream = rounds(data, runbook_for(toy, "second"), 1)
    assert len(found.rounds) == len(stream) > 2
    stored = []
    for t, each in enumerate(stream):
        model.partial_fit(data.take(each.train), data.labels(each.train))
        stored.append(model.codes_.copy())
        assert (found.base_codes(t) == np.concatenate(stored)).all()
        assert len(found.rounds[t].query_codes) == t + 1 and found.rounds[t].own == [t]
        for i, earlier in enumerate(stream[: t + 1]):
            expected = model.encode(data.take(earlier.queries))
            assert (found.rounds[t].query_codes[i] == expected).all()
            assert (found.sets[i].labels == data.L[earlier.queries]).all()
    assert (found.base_codes() == np.concatenate(stored)).all()
    for projections, codes in zip(found.projections, found.rounds[-1].query_codes, strict=True):
        assert (pack(projections) == codes).all()


def test_batch_method_keeps_the_codes_of_everything(toy: str) -> None:
    found, data = outcome_of(toy, "third", "itq-refit", 8), load_dataset(toy)
    model = ITQ(8, refit=True, random_state=0)
    for t, each in enumerate(rounds(data, runbook_for(toy, "third"), 0)):
        model.partial_fit(data.take(each.train), data.labels(each.train))
        assert (found.base_codes(t) == model.all_codes_).all()


def test_batch_rival_is_measured_thrice_and_is_what_every_chunk_would_make(toy: str) -> None:
    found, data = outcome_of(toy, "second", "omh-dq", 8, 1), load_dataset(toy)
    stream = rounds(data, runbook_for(toy, "second"), 1)
    assert [each.number for each in found.rounds] == [1, 3, 5]
    facts = METHODS["omh-dq"].facts(data, {})
    assert facts["rounds"] == "first, middle and last"
    assert facts["fixed"] == {"sigma": "mean"}
    assert "rounds" not in METHODS["omh-dq"].facts(data, {"rounds": "all"})
    model = OMHDQ(8, sigma="mean", random_state=1)
    for t, each in enumerate(stream):
        model.partial_fit(data.take(each.train), data.labels(each.train))
        if t in (0, 2, 4):
            assert (found.base_codes(t // 2) == model.all_codes_).all()
            assert len(found.rounds[t // 2].query_codes) == t + 1
    row = measures(found)
    assert row["rounds"][-1]["n_classes"] == len(CLASSES)
    assert [len(each) for each in row["history"]] == [1, 2, 3]
    for t, each in enumerate(row["rounds"]):
        assert row["history"][t][t] == pytest.approx(each["new"]["expected"])
    every = outcome_of(toy, "third", "sapmh+rounds=all+k=4", 8)
    assert [each.number for each in every.rounds] == [1, 2, 3, 4]
    thrice = outcome_of(toy, "third", "sapmh+k=4", 8)
    assert (every.base_codes(3) == thrice.base_codes(2)).all()


def test_published_parameters_are_those_of_the_data_set() -> None:
    assert METHODS["thor"].fixed_for("nuswide")["gamma"] == 1000.0
    assert METHODS["thor"].fixed_for("synthetic-nuswide") == METHODS["thor"].fixed_for("nuswide")
    assert METHODS["thor"].fixed_for("coco79") == {}
    names = tuple(map(str, range(129)))
    many = Dataset("many", {"x": np.eye(129, dtype=np.float32)}, np.eye(129, dtype=np.uint8), names)
    with pytest.raises(InputError, match="can tell 128 classes apart"):
        METHODS["thor"].model(16, 0, many, {})


# --- what is measured --------------------------------------------------------------------------


def brute_ap(distances: np.ndarray, similar: np.ndarray) -> float:
    """Mean average precision over all orders of tied items."""
    values = []
    groups = [np.flatnonzero(distances == d) for d in np.unique(distances)]
    for orders in _orders(groups):
        ranked = similar[orders]
        places = np.flatnonzero(ranked) + 1
        values.append((np.arange(1, len(places) + 1) / places).mean() if len(places) else 0.0)
    return float(np.mean(values))


def _orders(groups: list[np.ndarray]) -> list[np.ndarray]:
    found: list[list[int]] = [[]]
    for group in groups:
        found = [[*one, *order] for one in found for order in permutations(group.tolist())]
    return [np.array(each) for each in found]


def small_outcome() -> Outcome:
    rng = np.random.default_rng(3)

    def codes(n: int) -> np.ndarray:
        return rng.integers(0, 8, (n, 1), dtype=np.uint8)

    labels = np.eye(3, dtype=np.uint8)[rng.integers(3, size=8)]
    sets = tuple(QuerySet(np.arange(i, i + 3), np.eye(3, dtype=np.uint8)) for i in (0, 9))
    values = tuple(rng.standard_normal((3, 8)).astype(np.float32) for _ in range(2))
    rounds_ = (
        Round(1, 4, 3, [0], 0.1, 0.1, codes(4), (codes(3),)),
        Round(2, 4, 3, [1], 0.1, 0.1, codes(4), (codes(3), codes(3))),
    )
    return Outcome(labels, sets, rounds_, values)


def test_measures_are_those_of_brute_force() -> None:
    found = small_outcome()
    row = measures(found)
    for t, each in enumerate(found.rounds):
        base, labels = found.base_codes(t), found.train_labels[: 4 * (t + 1)]
        values = []
        for i, codes in enumerate(each.query_codes):
            distances = hamming(codes, base)
            similar = (found.sets[i].labels @ labels.T) > 0
            values.append([brute_ap(*pair) for pair in zip(distances, similar, strict=True)])
        measured = row["rounds"][t]
        assert measured["new"]["expected"] == pytest.approx(np.mean(values[t]), rel=1e-5)
        assert measured["all"]["expected"] == pytest.approx(np.mean(values), rel=1e-5)
        assert row["history"][t] == pytest.approx([np.mean(v) for v in values], rel=1e-5)
    assert "old" not in row["rounds"][0] and row["rounds"][1]["old"]["n"] == 3
    kept = unpacked_values(row["queries"]["expected"])
    assert kept == pytest.approx(np.concatenate(values), abs=1e-5)
    assert row["queries"]["n"] == [3, 3] and row["codes"]["n_distinct"] == len(np.unique(base))
    for name, i in (("new", [1]), ("all", [0, 1])):
        codes = np.concatenate([found.rounds[-1].query_codes[k] for k in i])
        truth = np.concatenate([found.sets[k].labels for k in i])
        distances, similar = hamming(codes, base), (truth @ labels.T) > 0
        within = distances <= 2
        radius = (within & similar).sum(1) / np.maximum(within.sum(1), 1)
        assert row["lookup"][name]["precision_at_2"] == pytest.approx(radius.mean(), rel=1e-5)
        assert row["lookup"][name]["precision_at_k"] == pytest.approx(similar.mean(), rel=1e-5)
        assert "map_at_5000" not in row["lookup"][name]
        scores = (
            np.concatenate([found.projections[k] for k in i]) @ np.where(unpack(base) > 0, 1, -1).T
        )
        order = np.argsort(-scores, axis=1, kind="stable")
        first = np.take_along_axis(similar, order, axis=1)
        assert row["by_scores"][name]["precision_at_k"] == pytest.approx(first.mean(), rel=1e-5)
        assert row["by_scores"][name]["success_at_10"] == pytest.approx(first.any(1).mean())


def test_rounds_that_share_queries_have_no_history(toy: str) -> None:
    row = row_of(toy, "first", "lemon", 16)
    assert "history" not in row and "old" not in row["rounds"][-1]
    assert row["rounds"][-1]["new"] == row["rounds"][-1]["all"]


def test_ranker_is_measured_from_its_ranking(toy: str) -> None:
    row, data = row_of(toy, "first", "float-cosine", None), load_dataset(toy)
    stream = rounds(data, runbook_for(toy, "first"), 0)
    ranker = FloatCosine()
    for each in stream:
        ranker.partial_fit(data.take(each.train), data.labels(each.train))
    rows = np.concatenate([each.train for each in stream])
    scores = ranker.scores(data.take(stream[-1].queries))
    similar = (data.L[stream[-1].queries].astype(int) @ data.L[rows].T.astype(int)) > 0
    order = np.argsort(-scores, axis=1, kind="stable")
    ranked = np.take_along_axis(similar, order, axis=1)
    precision = np.cumsum(ranked, axis=1) / np.arange(1, len(rows) + 1)
    expected = (precision * ranked).sum(1) / np.maximum(ranked.sum(1), 1)
    assert row["rounds"][-1]["new"]["stable"] == pytest.approx(expected.mean(), rel=1e-5)
    assert row["by_scores"]["new"]["precision_at_10"] == pytest.approx(ranked[:, :10].mean())
    assert "lookup" not in row and "one_modality" not in row


def test_queries_with_one_modality_and_float_neighbours_are_those_of_a_loop(toy: str) -> None:
    row, data = row_of(toy, "second", "lemon", 16, neighbours=True), load_dataset(toy)
    stream = rounds(data, runbook_for(toy, "second"), 0)
    model, ranker, base = METHODS["lemon"].model(16, 0, data, {}), FloatCosine(), []
    for each in stream:
        X, y = data.take(each.train), data.labels(each.train)
        base.append(model.partial_fit(X, y).codes_.copy())
        ranker.partial_fit(X, y)
    rows, asked = np.concatenate([each.train for each in stream]), stream[-1].queries
    codes = np.concatenate(base)
    similar = (data.L[asked].astype(int) @ data.L[rows].T.astype(int)) > 0
    signs = np.where(unpack(codes) > 0, 1.0, -1.0)
    for name, matrix in data.take(asked).items():
        values = model.project({name: matrix})
        scores = (values @ signs.T.astype(np.float32)).round(5)
        expected = [brute_rank_ap(*pair) for pair in zip(scores, similar, strict=True)]
        found = row["one_modality"][name]["projections"]
        assert found == pytest.approx(np.mean(expected), abs=2e-3)
    nearest = np.argsort(-ranker.scores(data.take(asked)), axis=1, kind="stable")[:, :10]
    values = model.project(data.take(asked)) @ signs.T.astype(np.float32)
    first = np.argsort(-values, axis=1, kind="stable")[:, :10]
    share = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(nearest, first, strict=True)])
    assert row["neighbours"]["projections"] == pytest.approx(share, abs=0.02)
    assert 0 < row["neighbours"]["hamming"] <= 1


def brute_rank_ap(scores: np.ndarray, similar: np.ndarray) -> float:
    """Average precision with the closed form of the mean over orders of ties."""
    total, before, hits = 0.0, 0, 0
    for value in np.unique(scores)[::-1]:
        group = similar[scores == value]
        g, q = len(group), int(group.sum())
        for i in range(1, g + 1):
            ahead = (i - 1) * (q - 1) / (g - 1) if g > 1 else 0.0
            total += q / g * (hits + 1 + ahead) / (before + i)
        before, hits = before + g, hits + q
    return total / max(1, hits)
