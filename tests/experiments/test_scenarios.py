"""Scenarios: what each does to a data set, and scores against a literal loop."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from oasis.codes import unpack
from oasis.datasets import load, npz
from oasis.datasets.dataset import Dataset
from oasis.errors import InputError
from oasis.experiments import stream as streams
from oasis.experiments.results import Results
from oasis.experiments.runner import run
from oasis.experiments.scenarios import JOINT, SCENARIOS, deal, parts, settings_of
from oasis.experiments.task import Grid, Task
from oasis.model import OASIS
from oasis.streams import Runbook, rounds

CLASSES = ("sky", "sea", "cat", "dog", "car", "bus", "tree", "lamp")
N_SAMPLES = 600


def make_toy(sparse=False):
    """Features that tell labels; class j is about 1 / (j + 1) as frequent as the first."""
    rng = np.random.default_rng(0)
    share = 1 / np.arange(1, 9)
    L = np.zeros((N_SAMPLES, 8), dtype=np.uint8)
    L[np.arange(N_SAMPLES), rng.choice(8, N_SAMPLES, p=share / share.sum())] = 1
    L |= (rng.random(L.shape) < 0.06).astype(np.uint8)
    X = {
        name: (L @ rng.standard_normal((8, d)) + 0.5 * rng.standard_normal((N_SAMPLES, d))).astype(
            np.float32
        )
        for name, d in (("image", 12), ("text", 9))
    }
    if sparse:
        X["text"] = sp.csr_array(np.maximum(X["text"], 0))
    return Dataset("toy", X, L, CLASSES)


@pytest.fixture(scope="module")
def toy():
    return make_toy()


def learned(stream):
    return np.concatenate(stream.train)


@pytest.mark.parametrize("name", SCENARIOS)
def test_deal_is_seeded_and_never_learns_from_a_query(toy, name):
    first, again = (deal(toy, SCENARIOS[name], 3, 400) for _ in range(2))
    other = deal(toy, SCENARIOS[name], 4, 400)
    for mine, theirs in ((first.train, again.train), (first.queries, again.queries)):
        assert all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))
    assert np.array_equal(first.seen.L, again.seen.L)
    assert all(np.array_equal(first.seen.X[key], again.seen.X[key]) for key in first.seen.X)
    assert not (len(first.train) == len(other.train) and np.array_equal(first.truth, other.truth))
    assert len(first.train) == len(first.queries) and all(map(len, first.train))
    everything = np.concatenate([*first.train, *first.queries])
    assert len(np.unique(everything)) == len(everything) <= first.seen.n_samples <= 400
    asked = np.concatenate(first.queries)
    assert np.array_equal(first.seen.L[asked], first.truth[asked])  # queries keep their labels


def test_a_data_set_is_left_as_it_was(toy):
    before = toy.L.copy(), {name: matrix.copy() for name, matrix in toy.X.items()}
    for scenario in SCENARIOS.values():
        deal(toy, scenario, 0)
    assert np.array_equal(toy.L, before[0])
    assert all(np.array_equal(toy.X[name], before[1][name]) for name in toy.X)


def test_single_class_rounds_have_one_label_each(toy):
    stream = deal(toy, SCENARIOS["single-class-rounds"], 0)
    met = []
    for rows in stream.train:
        assert (stream.truth[rows].sum(axis=1) == 1).all()
        (column,) = np.unique(stream.truth[rows].argmax(axis=1))
        met.append(column)
    assert met == sorted(set(met)) and len(met) == 8


def test_returning_classes_come_first_and_last_only(toy):
    scenario = replace(SCENARIOS["returning-classes"], amount=0.25)
    stream = deal(toy, scenario, 0)
    within = np.array([stream.truth[rows].any(axis=0) for rows in stream.train])
    returning = np.flatnonzero(within[0] & within[-1] & ~within[1:-1].any(axis=0))
    assert len(returning) == 2 and len(stream.train) == 10
    assert stream.truth[stream.queries[-1]][:, returning].any(axis=1).all()
    assert not stream.truth[stream.queries[0]][:, returning].any()
    assert sum(map(len, stream.train)) == 540 and sum(map(len, stream.queries)) == 60


def test_tiny_rounds_are_a_hundred_of_fifty():
    data = load("synthetic-coco79", n_samples=6000, lazy=True)
    stream = deal(data, SCENARIOS["tiny-rounds"], 0)
    assert [len(rows) for rows in stream.train] == [50] * 100
    assert [len(rows) for rows in stream.queries] == [0] * 99 + [555]


def test_skew_thins_rare_classes_of_the_base_alone(toy):
    plain = deal(toy, replace(SCENARIOS["skewed-classes"], amount=1.0), 0)
    stream = deal(toy, SCENARIOS["skewed-classes"], 0)
    order = np.argsort(-toy.L.sum(axis=0, dtype=int), kind="stable")
    whole, rest = learned(plain), set(learned(stream).tolist())
    most_frequent_alone = whole[toy.L[whole].sum(axis=1) == toy.L[whole, order[0]]]
    assert len(most_frequent_alone) > 100 and rest >= set(most_frequent_alone.tolist())
    rarer = [[row in rest for row in whole if toy.L[row, order[rank:]].any()] for rank in (1, 3, 6)]
    assert 0.6 > np.mean(rarer[0]) > np.mean(rarer[1]) > 0.15 > np.mean(rarer[2])
    assert np.array_equal(np.concatenate(stream.queries), np.concatenate(plain.queries))


def test_wrong_labels_are_wrong_on_a_tenth(toy):
    stream = deal(toy, SCENARIOS["wrong-labels"], 0)
    rows = learned(stream)
    changed = (stream.seen.L[rows] != stream.truth[rows]).any(axis=1)
    assert changed.sum() == round(0.1 * len(rows))
    spoilt = rows[changed]
    assert not (stream.seen.L[spoilt] & stream.truth[spoilt]).any()
    sets = {tuple(row) for row in stream.truth.tolist()}
    assert all(tuple(row) in sets for row in stream.seen.L[spoilt].tolist())


def test_half_unlabelled_hides_labels_of_half(toy):
    stream = deal(toy, SCENARIOS["half-unlabelled"], 0)
    rows = learned(stream)
    bare = ~stream.seen.L[rows].any(axis=1)
    assert bare.sum() == round(0.5 * len(rows))
    assert np.array_equal(stream.seen.L[rows[~bare]], stream.truth[rows[~bare]])


@pytest.mark.parametrize("sparse", [False, True])
def test_half_missing_drops_one_modality_of_half(sparse):
    toy = make_toy(sparse)
    stream = deal(toy, SCENARIOS["half-missing"], 0)
    dense = [
        {name: m.toarray() if sp.issparse(m) else m for name, m in X.items()}
        for X in (toy.X, stream.seen.X)
    ]
    lacks = np.array([~matrix.any(axis=1) for matrix in dense[1].values()])
    assert lacks.sum() == N_SAMPLES // 2 and lacks.sum(axis=0).max() == 1
    assert (lacks.sum(axis=1) > N_SAMPLES // 6).all()
    for (name, before), lacking in zip(dense[0].items(), lacks, strict=True):
        assert np.array_equal(dense[1][name][~lacking], before[~lacking])


def test_one_modality_is_never_dropped(toy):
    alone = Dataset("alone", {"image": toy.X["image"]}, toy.L, CLASSES)
    stream = deal(alone, SCENARIOS["half-missing"], 0)
    assert np.array_equal(stream.seen.X["image"], toy.X["image"])


def test_settings_are_the_data_sets_own(toy):
    stream = deal(toy, SCENARIOS["joining-classes"], 5)
    book = Runbook("any", rule="growing", order="frequency", n_rounds=5, query_share=0.1)
    expected = rounds(toy, book, 5)
    assert all(np.array_equal(a, b.train) for a, b in zip(stream.train, expected, strict=True))


def literal_ap(scores, relevant):
    """Average precision with ties left open, term by term as the formula has it."""
    total, t, s = 0.0, 0, 0
    for value in sorted(set(scores.tolist()), reverse=True):
        group = relevant[scores == value]
        g, q = len(group), int(group.sum())
        for i in range(1, g + 1):
            if q:
                ahead = (i - 1) * (q - 1) / (g - 1) if g > 1 else 0.0
                total += q / g * (s + 1 + ahead) / (t + i)
        t, s = t + g, s + q
    return total / max(1, int(relevant.sum()))


def literal_score(projections, base, query_labels, base_labels):
    signs = np.where(unpack(base) > 0, 1, -1)
    hamming, asymmetric = [], []
    for projection, labels in zip(projections, query_labels, strict=True):
        relevant = (base_labels @ labels.astype(int)) > 0
        hamming.append(literal_ap(signs @ np.where(projection > 0, 1, -1), relevant))
        scores = (signs @ projection.astype(np.float64)).round(5)
        asymmetric.append(literal_ap(scores, relevant))
    return np.mean(hamming), np.mean(asymmetric)


@pytest.fixture(scope="module")
def stored(toy, tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "toy.npz"
    npz.write(toy, path)
    return str(path)


def test_rows_equal_a_literal_loop_with_the_true_labels(toy, stored, tmp_path):
    settings = ["new-classes", "new-classes/joint"]
    tasks = Grid([stored], settings, ["oasis"], [16], "2").tasks()
    tasks = [task for task in tasks if task.seed == 1]
    apart, joint = (each.row for each in run(tasks, tmp_path))
    stream = deal(toy, SCENARIOS["new-classes"], 1)
    for train, row in ((stream.train, apart), ([learned(stream)], joint)):
        model, base = OASIS(16, random_state=1), []
        for rows in train:
            model.partial_fit(toy.take(rows), toy.labels(rows))
            base.append(model.codes_.copy())
        for rows, (n, *found) in zip(stream.queries, row["sets"], strict=True):
            hamming, asymmetric = literal_score(
                model.project(toy.take(rows)),
                np.concatenate(base),
                toy.L[rows],
                toy.L[np.concatenate(train)].astype(int),
            )
            assert n == len(rows)
            assert found == pytest.approx([hamming, asymmetric], abs=2e-5)
    lost = [
        [b - a for a, b in zip(x[1:], y[1:], strict=True)]
        for x, y in zip(apart["sets"], joint["sets"], strict=True)
    ]
    rows = {"new-classes": apart, "new-classes/joint": joint}
    made = [{"of": {}, **row} for row in rows.values()]
    (part,) = parts(Results(), "toy", made)
    (line,) = part.tables[1].rows
    n = np.array([each[0] for each in apart["sets"]])
    overall = (np.array(lost) * n[:, None]).sum(axis=0) / n.sum()
    worst = np.max(lost, axis=0)
    expected = [overall[0], worst[0], overall[1], worst[1]]
    assert [float(cell) for cell in line[2:]] == pytest.approx(expected, abs=6e-4)


def test_learner_gets_the_corrupted_labels_alone(toy):
    task = Task("stream", "toy", "wrong-labels", "lemon", 16, 0)
    stream = streams.deal(task, toy)
    rows = np.concatenate(stream.train)
    assert (stream.seen.L[rows] != stream.truth[rows]).any()
    assert settings_of([])[-2:] == list(JOINT) and settings_of(["tiny-rounds"]) == ["tiny-rounds"]
    with pytest.raises(InputError, match="unknown scenario 'easy'; known are single-class"):
        settings_of(["easy"])


def test_a_scenario_that_does_not_fit_says_so(toy):
    tiny = toy.select(np.arange(6))
    with pytest.raises(InputError, match="too small for the scenario"):
        deal(tiny, SCENARIOS["new-classes"], 0)
    one = Dataset("one", toy.X, toy.L[:, :1] | 1, ("sky",))
    with pytest.raises(InputError, match="labels cannot be made wrong"):
        deal(one, SCENARIOS["wrong-labels"], 0)
    with pytest.raises(InputError, match="n_samples must be a positive"):
        deal(toy, SCENARIOS["tiny-rounds"], 0, 0)
