"""Scenarios: what each does to a data set, and scores against a literal loop."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from oasis.cli import main
from oasis.codes import unpack
from oasis.datasets import load, npz
from oasis.datasets.dataset import Dataset
from oasis.errors import InputError
from oasis.experiments.scenarios.scoreboard import scoreboard
from oasis.experiments.scenarios.transformations import (
    SCENARIOS,
    Scenario,
    deal,
    scenario_named,
)
from oasis.experiments.scenarios.trials import Score, Trial, applies, carry_out
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
    # queries keep their labels, as far as the scenario has the class at all
    kept = [name not in first.held_out for name in first.seen.classes]
    asked = np.concatenate(first.queries)
    assert np.array_equal(first.seen.L[asked][:, kept], first.truth[asked][:, kept])


def test_a_data_set_is_left_as_it_was(toy):
    before = toy.L.copy(), {name: matrix.copy() for name, matrix in toy.X.items()}
    for scenario in SCENARIOS.values():
        deal(toy, scenario, 0)
    assert np.array_equal(toy.L, before[0])
    assert all(np.array_equal(toy.X[name], before[1][name]) for name in toy.X)


def test_single_class_rounds_have_one_label_each(toy):
    stream = deal(toy, scenario_named("single-class-rounds"), 0)
    met = []
    for rows in stream.train:
        assert (stream.truth[rows].sum(axis=1) == 1).all()
        (column,) = np.unique(stream.truth[rows].argmax(axis=1))
        met.append(column)
    assert met == sorted(set(met)) and len(met) == 8


def test_returning_classes_come_first_and_last_only(toy):
    scenario = replace(scenario_named("returning-classes"), returning=0.25)
    stream = deal(toy, scenario, 0)
    within = np.array([stream.truth[rows].any(axis=0) for rows in stream.train])
    returning = np.flatnonzero(within[0] & within[-1] & ~within[1:-1].any(axis=0))
    assert len(returning) == 2 and len(stream.train) == 10
    assert stream.truth[stream.queries[-1]][:, returning].any(axis=1).all()
    assert not stream.truth[stream.queries[0]][:, returning].any()
    assert sum(map(len, stream.train)) == 540 and sum(map(len, stream.queries)) == 60


def test_tiny_rounds_are_a_hundred_of_fifty():
    data = load("synthetic-coco79", n_samples=6000, lazy=True)
    stream = deal(data, scenario_named("tiny-rounds"), 0)
    assert [len(rows) for rows in stream.train] == [50] * 100
    assert [len(rows) for rows in stream.queries] == [0] * 99 + [555]


def test_skew_thins_rare_classes_of_the_base_alone(toy):
    plain = deal(toy, replace(scenario_named("skewed-classes"), skew=1.0), 0)
    stream = deal(toy, scenario_named("skewed-classes"), 0)
    order = np.argsort(-toy.L.sum(axis=0, dtype=int), kind="stable")
    whole, rest = learned(plain), set(learned(stream).tolist())
    most_frequent_alone = whole[toy.L[whole].sum(axis=1) == toy.L[whole, order[0]]]
    assert len(most_frequent_alone) > 100 and rest >= set(most_frequent_alone.tolist())
    rarer = [[row in rest for row in whole if toy.L[row, order[rank:]].any()] for rank in (1, 3, 6)]
    assert 0.6 > np.mean(rarer[0]) > np.mean(rarer[1]) > 0.15 > np.mean(rarer[2])
    assert np.array_equal(np.concatenate(stream.queries), np.concatenate(plain.queries))


def test_wrong_labels_are_wrong_on_a_tenth(toy):
    stream = deal(toy, scenario_named("wrong-labels"), 0)
    rows = learned(stream)
    changed = (stream.seen.L[rows] != stream.truth[rows]).any(axis=1)
    assert changed.sum() == round(0.1 * len(rows))
    spoilt = rows[changed]
    assert not (stream.seen.L[spoilt] & stream.truth[spoilt]).any()
    sets = {tuple(row) for row in stream.truth.tolist()}
    assert all(tuple(row) in sets for row in stream.seen.L[spoilt].tolist())


def test_half_unlabelled_hides_labels_of_half(toy):
    stream = deal(toy, scenario_named("half-unlabelled"), 0)
    rows = learned(stream)
    bare = ~stream.seen.L[rows].any(axis=1)
    assert bare.sum() == round(0.5 * len(rows))
    assert np.array_equal(stream.seen.L[rows[~bare]], stream.truth[rows[~bare]])


@pytest.mark.parametrize("sparse", [False, True])
def test_half_missing_drops_one_modality_of_half(sparse):
    toy = make_toy(sparse)
    stream = deal(toy, scenario_named("half-missing"), 0)
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
    stream = deal(alone, scenario_named("half-missing"), 0)
    assert np.array_equal(stream.seen.X["image"], toy.X["image"])


def test_unseen_words_are_in_no_label_set(toy):
    stream = deal(toy, scenario_named("unseen-words"), 0)
    columns = [CLASSES.index(name) for name in stream.held_out]
    assert len(columns) == 2
    assert not stream.seen.L[:, columns].any()
    others = [column for column in range(8) if column not in columns]
    assert np.array_equal(stream.seen.L[:, others], stream.truth[:, others])


def test_joined_stream_has_all_data_in_one_round(toy):
    stream = deal(toy, scenario_named("new-classes"), 0)
    joined = stream.joined()
    assert len(stream.train) == len(joined.queries) == 4 and len(joined.train) == 1
    assert sorted(joined.train[0]) == sorted(learned(stream))


def test_settings_are_the_data_sets_own(toy):
    stream = deal(toy, scenario_named("joining-classes"), 5)
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


def test_trial_scores_equal_a_literal_loop(toy):
    scenario = scenario_named("new-classes")
    trial = carry_out(toy, scenario, "oasis", n_bits=16, seed=2)
    stream = deal(toy, scenario, 2)
    for train, scores in ((stream.train, trial.rounds), ([learned(stream)], trial.joint)):
        model, base = OASIS(16, random_state=2), []
        for rows in train:
            model.partial_fit(toy.take(rows), toy.labels(rows))
            base.append(model.codes_.copy())
        for rows, score in zip(stream.queries, scores, strict=True):
            hamming, asymmetric = literal_score(
                model.project(toy.take(rows)),
                np.concatenate(base),
                toy.L[rows],
                toy.L[np.concatenate(train)].astype(int),
            )
            assert score.n == len(rows)
            assert score.hamming == pytest.approx(hamming, abs=1e-9)
            assert score.asymmetric == pytest.approx(asymmetric, abs=1e-3)


def test_word_trial_judges_by_the_truth_and_learns_without_it(toy):
    scenario = scenario_named("unseen-words")
    trial = carry_out(toy, scenario, "oasis", n_bits=16, seed=1)
    stream = deal(toy, scenario, 1)
    model, base = OASIS(16, random_state=1), []
    for rows in stream.train:
        model.partial_fit(stream.seen.take(rows), stream.seen.labels(rows))
        base.append(model.codes_.copy())
    assert not set(stream.held_out) & set(model.classes_)
    columns = [CLASSES.index(name) for name in stream.held_out]
    hamming, _ = literal_score(
        model.project_words(stream.held_out),
        np.concatenate(base),
        np.eye(len(columns)),
        stream.truth[learned(stream)][:, columns].astype(int),
    )
    assert trial.all.hamming == pytest.approx(hamming, abs=1e-9)
    assert trial.probe is not None and trial.probe > 0.9  # features of the toy tell its labels


def test_the_learner_never_meets_the_truth(toy):
    """With labels hidden everywhere there is nothing to learn, whatever the truth."""
    blind = replace(scenario_named("half-unlabelled"), unlabelled=1.0)
    trial = carry_out(toy, blind, "oasis-paper", n_bits=16)
    assert trial.all.hamming < trial.all.chance + 0.1


def test_only_methods_whose_codes_stand_take_part(toy):
    assert applies(scenario_named("unseen-words"), "oasis+delta=2")
    with pytest.raises(InputError, match="does not answer names"):
        carry_out(toy, scenario_named("unseen-words"), "lemon", 16)
    with pytest.raises(InputError, match="cannot take part"):
        applies(scenario_named("wrong-labels"), "probe")


def test_a_scenario_that_does_not_fit_says_so(toy):
    with pytest.raises(InputError, match="known are single-class-rounds"):
        scenario_named("nothing")
    with pytest.raises(InputError, match="is not a setting"):
        Scenario("x", "", "fourth")
    with pytest.raises(InputError, match="a share from 0 to 1, got 2"):
        Scenario("x", "", "first", wrong=2)
    with pytest.raises(InputError, match="skew must be at least 1"):
        Scenario("x", "", "first", skew=0.5)
    with pytest.raises(InputError, match="positive integer, got 0"):
        deal(toy, scenario_named("wrong-labels"), 0, 0)
    with pytest.raises(InputError, match="too small for the scenario"):
        deal(toy, scenario_named("single-class-rounds"), 0, 9)
    with pytest.raises(InputError, match="a class returns in a second"):
        deal(toy, scenario_named("returning-classes"), 0, 1)
    one_class = Dataset("one", toy.X, np.ones((N_SAMPLES, 1), dtype=np.uint8), ("sky",))
    with pytest.raises(InputError, match="labels cannot be made wrong"):
        deal(one_class, scenario_named("wrong-labels"), 0)
    with pytest.raises(InputError, match="no class to hold out"):
        deal(toy, scenario_named("unseen-words"), 0, 20)


def test_scoreboard_takes_means_over_seeds_and_marks_the_best():
    def trial(method, seed, hamming):
        scores = (Score(10, hamming, 0.5, 0.1), Score(30, hamming + 0.2, 0.5, 0.1))
        joint = (Score(10, hamming + 0.1, 0.5, 0.1), Score(30, hamming + 0.2, 0.4, 0.1))
        return Trial("new-classes", "toy", method, 64, seed, scores, joint)

    trials = [
        trial("oasis", 0, 0.4), trial("oasis", 1, 0.5), trial("lemon", 0, 0.1),
        Trial("unseen-words", "toy", "oasis", 64, 0, (Score(2, 0.3, 0.4, 0.1),), probe=0.9),
    ]  # fmt: skip
    quality, lost, words = scoreboard(trials)
    assert quality.rows == (
        ("new-classes", "oasis", "*0.650", "*0.500", "*0.600", "*0.500", "0.100"),
        ("new-classes", "lemon", "0.300", "*0.500", "0.250", "*0.500", "0.100"),
    )
    assert lost.rows[0] == ("new-classes", "oasis", "0.025", "0.100", "-0.075", "0.000")
    assert words.rows == (("unseen-words", "oasis", "0.300", "0.400", "0.100", "0.900"),)


def test_the_round_that_lost_most_is_that_of_the_mean_over_seeds():
    def trial(seed, *lost):
        joint = tuple(Score(5, 0.9, 0.8, 0.1) for _ in lost)
        now = tuple(Score(5, 0.9 - each, 0.8, 0.1) for each in lost)
        return Trial("new-classes", "toy", "oasis", 64, seed, now, joint)

    _, table = scoreboard([trial(0, 0.05, 0.0, 0.04), trial(1, -0.03, 0.06), trial(2, 0.01, 0.0)])
    assert table.rows[0][3] == "0.040"  # the third round; of the others 0.010 and 0.020


@pytest.mark.slow
def test_command_prints_tables_and_json(toy, tmp_path, monkeypatch, capsys):
    npz.write(toy, tmp_path / "toy.npz")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["oasis", "scenarios", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code or 0, capsys.readouterr()

    picks = [
        "--dataset",
        str(tmp_path / "toy.npz"),
        "--scenario",
        "wrong-labels,unseen-words",
        "--bits=16",
    ]
    code, printed = run(*picks)
    assert code == 0 and printed.out.count("| oasis ") == 2 and "| lemon " in printed.out
    code, printed = run(*picks, "--json")
    trials = json.loads(printed.out)
    assert [each["method"] for each in trials] == [
        "oasis-paper", "oasis", "lemon", "oasis-paper", "oasis",
    ]  # fmt: skip
    assert trials[0]["last"]["hamming"] > trials[0]["last"]["chance"]
    code, printed = run(*picks, "--method=probe")
    assert code == 1 and printed.err.startswith("error: method 'probe' cannot take part")


@pytest.mark.parametrize("name", ["wrong-labels", "new-classes", "unseen-words"])
def test_progress_moves_within_a_trial_and_changes_nothing(name: str, toy: Dataset) -> None:
    steps: list[tuple[int, int]] = []
    told = carry_out(
        toy, scenario_named(name), "oasis", 16, progress=lambda done, of: steps.append((done, of))
    )
    assert told == carry_out(toy, scenario_named(name), "oasis", 16)
    assert len(steps) >= 3 and len({of for _, of in steps}) == 1
    assert [done for done, _ in steps] == sorted({done for done, _ in steps})
    assert steps[-1][0] < steps[-1][1]  # the last step is the scores
