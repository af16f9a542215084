"""Experiments on a toy set: raw results against a literal loop, measures against brute force."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import experiment_data
import numpy as np
import pytest
from experiment_data import CLASSES

from oasis.baselines import ITQ, OMHDQ
from oasis.codes import hamming, pack
from oasis.errors import InputError
from oasis.experiments.grid import reproduce
from oasis.experiments.measure.measures import measure
from oasis.experiments.measure.summaries import read_summary
from oasis.experiments.run.definition import Grid, Run, load_dataset, parse_variant, runbook_for
from oasis.experiments.run.methods import METHODS
from oasis.experiments.run.results import (
    QuerySet,
    RawResult,
    RoundResult,
    read_result,
    write_result,
)
from oasis.experiments.run.runner import carry_out
from oasis.model import OASIS
from oasis.streams import rounds

toy = experiment_data.toy


# --- raw results -------------------------------------------------------------------------------


def test_raw_result_is_that_of_a_literal_loop(toy: str) -> None:
    run = Run(toy, "second", "oasis-paper", 16, 1)
    data = load_dataset(toy)
    raw = carry_out(run, data)
    model = OASIS.paper(16, dict(data.vectors or {}), random_state=1)
    stream = rounds(data, runbook_for(toy, "second"), 1)
    assert len(raw.rounds) == len(stream) > 2
    stored = []
    for t, each in enumerate(stream):
        model.partial_fit(data.take(each.train), data.labels(each.train))
        stored.append(model.codes_.copy())
        assert (raw.base_codes(t) == np.concatenate(stored)).all()
        assert len(raw.rounds[t].query_codes) == t + 1
        for i, earlier in enumerate(stream[: t + 1]):
            expected = model.encode(data.take(earlier.queries))
            assert (raw.rounds[t].query_codes[i] == expected).all()
            assert (raw.query_sets[i].labels == data.L[earlier.queries]).all()
    assert (raw.train_labels == data.L[raw.train_rows]).all()
    for projections, codes in zip(raw.last_projections, raw.rounds[-1].query_codes, strict=True):
        assert (pack(projections) == codes).all()
    assert raw.about["method"]["label_vectors"] == "those of toy"
    assert raw.about["runbook"]["digest"] == runbook_for(toy, "second").digest()


def test_batch_method_keeps_the_codes_of_everything(toy: str) -> None:
    data = load_dataset(toy)
    raw = carry_out(Run(toy, "third", "itq-refit", 8, 0), data)
    model = ITQ(8, refit=True, random_state=0)
    for t, each in enumerate(rounds(data, runbook_for(toy, "third"), 0)):
        model.partial_fit(data.take(each.train), data.labels(each.train))
        assert (raw.base_codes(t) == model.all_codes_).all()


def test_classes_are_told_only_to_methods_that_need_them(toy: str) -> None:
    data = load_dataset(toy)
    told = {
        name: carry_out(Run(toy, "first", name, 8, 0), data).about["method"]["told_classes"]
        for name in ("fomh", "lemon", "oasis-paper", "thor", "iw-omh", "sapmh")
    }
    assert {name for name, is_told in told.items() if is_told} == {"fomh", "iw-omh"}


def test_batch_rival_is_measured_thrice_and_is_what_every_chunk_would_make(toy: str) -> None:
    data = load_dataset(toy)
    raw = carry_out(Run(toy, "second", "omh-dq", 8, 1), data)
    stream = rounds(data, runbook_for(toy, "second"), 1)
    assert len(stream) == 5
    assert [each.number for each in raw.rounds] == [1, 3, 5]
    assert raw.about["method"]["rounds"] == "first, middle and last"
    assert raw.about["method"]["fixed"] == {"sigma": "mean", "dtype": "float32"}
    model = OMHDQ(8, sigma="mean", dtype="float32", random_state=1)
    for t, each in enumerate(stream):
        model.partial_fit(data.take(each.train), data.labels(each.train))
        if t not in (0, 2, 4):
            continue
        kept = t // 2
        assert (raw.base_codes(kept) == model.all_codes_).all()
        assert raw.n_base(kept) == len(model.all_codes_)
        assert len(raw.rounds[kept].query_codes) == t + 1
        for i, earlier in enumerate(stream[: t + 1]):
            expected = model.encode(data.take(earlier.queries))
            assert (raw.rounds[kept].query_codes[i] == expected).all()
    summary, _ = measure(raw, "")
    assert [each.n_classes for each in summary.rounds][-1] == len(CLASSES)
    assert [len(row) for row in summary.history] == [1, 2, 3]
    for t, measured in enumerate(summary.rounds):
        assert measured.new is not None
        assert summary.history[t][t] == pytest.approx(measured.new.expected)


def test_batch_rival_is_measured_at_every_round_on_request(toy: str) -> None:
    data = load_dataset(toy)
    method, parameters = parse_variant("sapmh+rounds=all+k=4")
    raw = carry_out(Run(toy, "third", method.name, 8, 0, parameters), data)
    assert [each.number for each in raw.rounds] == [1, 2, 3, 4]
    assert "rounds" not in raw.about["method"]
    thrice = carry_out(Run(toy, "third", "sapmh", 8, 0, (("k", 4),)), data)
    assert (raw.base_codes(3) == thrice.base_codes(2)).all()


def test_published_parameters_are_those_of_the_data_set() -> None:
    assert METHODS["thor"].fixed_for("synthetic-nuswide")["gamma"] == 1000.0
    assert METHODS["thor"].fixed_for("mirflickr") == {}
    assert METHODS["sapmh"].fixed_for("nuswide") == {
        "sigma": "mean",
        "k": 500,
        "theta": 1e-7,
        "rho": 1e-5,
        "lam": 1e-3,
        "dtype": "float32",
        "max_iter": 20,
    }


def test_method_that_cannot_take_the_classes_says_so_before_anything_runs(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.eye(130, dtype=np.uint8)
    path = tmp_path / "many.npz"
    np.savez(
        path,
        image=rng.random((130, 4), dtype=np.float32),
        labels=labels,
        label_names=np.array([f"class {j}" for j in range(130)]),
    )
    runs = Grid([str(path)], ["first"], ["lemon", "thor"], [8], seeds=1).runs()
    seen: list[object] = []
    with pytest.raises(InputError, match="THOR can tell 128 classes apart, many has 130"):
        reproduce(runs, tmp_path / "out", listener=seen.append)
    assert not seen and not (tmp_path / "out").exists()


def test_result_that_says_less_of_its_method_is_kept(toy: str, tmp_path: Path) -> None:
    run = Run(toy, "second", "fomh", 8, 0)
    raw = carry_out(run, load_dataset(toy))
    method = {key: value for key, value in raw.about["method"].items() if key != "fixed"}
    older = replace(raw, about={**raw.about, "method": method})
    write_result(tmp_path / "raw" / f"{run.key}.npz", older)
    (kept,) = reproduce([run], tmp_path)
    assert kept.status == "measured"
    other = {**method, "fixed": {"sigma": 3.0}}
    write_result(
        tmp_path / "raw" / f"{run.key}.npz", replace(raw, about={**raw.about, "method": other})
    )
    (again,) = reproduce([run], tmp_path)
    assert again.status == "computed"


def test_raw_result_survives_its_file(toy: str, tmp_path: Path) -> None:
    for method, n_bits in (("lemon", 16), ("probe", None)):
        raw = carry_out(Run(toy, "second", method, n_bits, 0), load_dataset(toy))
        path = tmp_path / f"{method}.npz"
        write_result(path, raw)
        again = read_result(path)
        assert again.run == raw.run
        assert json.loads(json.dumps(raw.about)) == again.about
        assert (again.train_rows == raw.train_rows).all()
        assert (again.train_labels == raw.train_labels).all()
        for one, other in zip(raw.rounds, again.rounds, strict=True):
            assert one.new_classes == other.new_classes
            assert one.train_seconds == other.train_seconds
            assert all(map(np.array_equal, one.query_codes, other.query_codes))
            for a, b in zip(one.ranked, other.ranked, strict=True):
                assert np.array_equal(a.expected, b.expected)
        assert all(map(np.array_equal, raw.last_projections, again.last_projections))
        assert measure(again, "")[0].rounds == measure(raw, "")[0].rounds


# --- measures ----------------------------------------------------------------------------------


def _brute_average_precision(distances: np.ndarray, similar: np.ndarray, ties: str) -> float:
    """Rank, then take the precision at every similar item; open ties by trying every order."""
    if not similar.any():
        return 0.0
    order = np.argsort(distances, kind="stable")
    if ties == "stable":
        hits = similar[order]
        return float((np.cumsum(hits) / np.arange(1, len(hits) + 1))[hits].mean())
    total, before, found = 0.0, 0, 0
    for distance in np.unique(distances):
        group = similar[distances == distance]
        values = []
        for arranged in set(permutations(group.tolist())):
            count, value = found, 0.0
            for place, hit in enumerate(arranged, before + 1):
                count += hit
                value += hit * count / place
            values.append(value)
        total += float(np.mean(values))
        before, found = before + len(group), found + int(group.sum())
    return total / found


def _small_result() -> RawResult:
    """Three rounds with queries of their own, codes that tie often."""
    rng = np.random.default_rng(3)
    sizes, n_queries = (4, 5, 4), (3, 0, 2)
    sets = tuple(
        QuerySet(np.arange(n), (rng.random((n, 3)) < 0.5).astype(np.uint8)) for n in n_queries
    )

    def codes(n: int) -> np.ndarray:
        return rng.integers(0, 8, (n, 1)).astype(np.uint8)

    labels = (rng.random((sum(sizes), 3)) < 0.4).astype(np.uint8)
    labels[0, 2] = 1  # "c" comes with the first round, before "b"
    labels[:4, 1] = 0
    labels[:, 0] = 0  # no item has "a"
    new = (("c",), ("b",), ())
    results = tuple(
        RoundResult(
            t + 1,
            size,
            new[t],
            t,
            0.5,
            0.25,
            codes(size),
            tuple(codes(n) for n in n_queries[: t + 1]),
        )
        for t, size in enumerate(sizes)
    )
    about = {
        "dataset": {},
        "method": {"kind": "online"},
        "runbook": {"name": "small", "digest": "0"},
    }
    return RawResult(
        Run("small", "second", "lemon", 8, 0), about, np.arange(13), labels, sets, results
    )


def test_measures_are_those_of_brute_force() -> None:
    raw = _small_result()
    summary, scores = measure(raw, "sum")
    assert scores.rows.tolist() == [0, 1, 2, 0, 1] and scores.sets.tolist() == [0, 0, 0, 2, 2]
    history = {}
    for t, measured in enumerate(summary.rounds):
        base = raw.base_codes(t)
        base_labels = raw.train_labels[: len(base)]
        values: dict[str, dict[int, list[float]]] = {"expected": {}, "stable": {}}
        for i in range(t + 1):
            queries, codes = raw.query_sets[i], raw.rounds[t].query_codes[i]
            for ties in values:
                values[ties][i] = [
                    _brute_average_precision(
                        hamming(codes[q : q + 1], base)[0],
                        (base_labels & queries.labels[q]).any(axis=1),
                        ties,
                    )
                    for q in range(len(queries))
                ]
            if values["expected"][i]:
                history[t, i] = np.mean(values["expected"][i])
        groups = {"new": [t], "old": list(range(t)), "all": list(range(t + 1))}
        for name, sets in groups.items():
            together = [value for i in sets for value in values["expected"][i]]
            found = measured.of(name)
            if not together:
                assert found is None
                continue
            assert found is not None
            assert found.n == len(together)
            assert found.expected == pytest.approx(np.mean(together))
            if name == "new" or t == 0:  # the first round has no others
                stable = [value for i in sets for value in values["stable"][i]]
                assert found.stable == pytest.approx(np.mean(stable))
            else:
                assert found.stable is None
    assert scores.expected == pytest.approx([*values["expected"][0], *values["expected"][2]])
    # round 2 has no queries: rounds 1 and 3 remain
    assert summary.history[0] == pytest.approx((history[0, 0],))
    assert summary.history[1] == pytest.approx((history[2, 0], history[2, 2]))
    assert summary.forgetting == pytest.approx((history[0, 0] - history[2, 0], 0.0))
    assert summary.mean_forgetting == pytest.approx(history[0, 0] - history[2, 0])


def test_search_results_and_codes_of_the_last_round_are_those_of_brute_force() -> None:
    raw = _small_result()
    found = measure(raw, "")[0].lookup
    assert found is not None and found.k == 13
    base = raw.base_codes(2)
    codes = np.concatenate(raw.rounds[-1].query_codes)
    labels = np.concatenate([each.labels for each in raw.query_sets])
    distances = hamming(codes, base)
    similar = (labels @ raw.train_labels.T) > 0
    within = distances <= 2
    precision = [
        similar[q][within[q]].mean() if within[q].any() else 0.0 for q in range(len(codes))
    ]
    assert found.precision_at_2 == pytest.approx(np.mean(precision))
    whole = [_brute_average_precision(distances[q], similar[q], "expected") for q in range(5)]
    assert found.map_at_k == pytest.approx(np.mean(whole))  # k is the whole base
    assert found.n_distinct == len({int(code) for code in base[:, 0]})
    assert found.n_constant == 5  # codes are below 8
    last = distances.max(axis=1, keepdims=True)
    assert found.tied == pytest.approx(((distances == last).sum(axis=1) > 1).mean())
    assert 0 < found.ndcg_at_k <= 1


def test_classes_and_radii_of_the_last_round_are_those_of_brute_force() -> None:
    raw = _small_result()
    summary, _ = measure(raw, "")
    codes = np.concatenate(raw.rounds[-1].query_codes)
    labels = np.concatenate([each.labels for each in raw.query_sets])
    base = raw.base_codes(2)
    assert raw.class_names() == ("", "b", "c")
    assert [each.name for each in summary.classes] == ["b", "c"]
    for each, column in zip(summary.classes, (1, 2), strict=True):
        has, similar = labels[:, column] > 0, raw.train_labels[:, column] > 0
        values = [
            _brute_average_precision(hamming(code[None], base)[0], similar, "expected")
            for code in codes[has]
        ]
        assert (each.n_base, each.n_queries) == (similar.sum(), has.sum())
        assert each.ap == pytest.approx(np.mean(values))
    distances = hamming(codes, base)
    similar_pairs = labels @ raw.train_labels.T > 0
    expected = [
        (similar_pairs[within].mean(), similar_pairs[within].sum() / similar_pairs.sum())
        for within in (distances <= radius for radius in range(9))
        if within.any()
    ]
    assert summary.curve is not None
    found = list(zip(summary.curve.precision, summary.curve.recall, strict=True))
    assert found == [pytest.approx(pair) for pair in expected]


def test_names_of_columns_are_found_from_the_rounds(toy: str) -> None:
    data = load_dataset(toy)
    for setting in ("first", "second", "third"):
        raw = carry_out(Run(toy, setting, "random-projection", 8, 0), data)
        assert raw.class_names() == data.classes
    wrong = replace(raw, rounds=(replace(raw.rounds[0], new_classes=()), *raw.rounds[1:]))
    with pytest.raises(InputError, match="round 1 brings 0 new classes"):
        wrong.class_names()


def test_summary_of_an_older_version_is_read_and_measured_again(toy: str, tmp_path: Path) -> None:
    run = Run(toy, "second", "lemon", 16, 0)
    reproduce([run], tmp_path)
    path = tmp_path / "summaries" / f"{run.key}.json"
    good = json.loads(path.read_text())
    older = {key: value for key, value in good.items() if key not in ("classes", "curve")}
    path.write_text(json.dumps({**older, "version": 1}))
    read = read_summary(path)
    assert read.classes == () and read.curve is None
    (again,) = reproduce([run], tmp_path)
    assert again.status == "measured"
    assert json.loads(path.read_text())["classes"] == good["classes"]
    assert len(list(path.parent.iterdir())) == 1


def test_rounds_that_share_queries_forget_nothing(toy: str) -> None:
    summary, _ = measure(carry_out(Run(toy, "first", "lemon", 16, 0), load_dataset(toy)), "")
    assert summary.forgetting == () and summary.mean_forgetting is None
    for each in summary.rounds:
        assert each.old is None
        assert each.new == each.all
    assert summary.last.new is not None
    assert summary.last.new.asymmetric is not None
    assert summary.last.new.expected > summary.last.new.chance


def test_probe_is_measured_from_its_ranking(toy: str) -> None:
    summary, _ = measure(carry_out(Run(toy, "third", "probe", None, 0), load_dataset(toy)), "")
    assert summary.last.all is not None
    assert summary.last.all.expected > 2 * summary.last.all.chance
    assert summary.last.all.asymmetric is None
