"""Tuning: the same trials for all, on samples that are no query, and the choice in the results."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import experiment_data
import numpy as np
import pytest

from oasis.cli import main
from oasis.datasets import load
from oasis.errors import FormatError, InputError
from oasis.experiments.grid import reproduce
from oasis.experiments.measure.cells import Results
from oasis.experiments.report.report import write_report
from oasis.experiments.run.definition import Grid, Run, load_dataset, parse_variant, runbook_for
from oasis.experiments.run.methods import METHODS
from oasis.experiments.tuning import (
    GRIDS,
    N_TRIALS,
    grid_of,
    read_record,
    read_records,
    record_path,
    trial_parameters,
    tune,
    tuned_runs,
    validation_part,
    write_record,
)
from oasis.metrics import mean_average_precision
from oasis.streams import rounds

toy, no_figures = experiment_data.toy, experiment_data.no_figures


@pytest.mark.parametrize("method", sorted(GRIDS))
def test_trials_are_the_published_parameters_and_distinct_points_of_the_grid(method: str) -> None:
    found = trial_parameters(method)
    points = int(np.prod([len(values) for values in grid_of(method).values()]))
    assert found[0] == () and len(set(found)) == len(found) == min(N_TRIALS, points)
    published = {**METHODS[method].parameters, **METHODS[method].fixed}
    for parameters in found:
        text = "+".join([method, *(f"{name}={value}" for name, value in parameters)])
        assert parse_variant(text)[1] == parameters  # every value can be asked for by name
        for name, value in parameters:
            assert value in GRIDS[method][name] and published.get(name) != value
    assert found == trial_parameters(method)
    assert trial_parameters(method, 2) == found[:2]


@pytest.mark.parametrize("setting", ["first", "second", "third"])
def test_validation_part_holds_no_query_of_any_seed_and_only_first_rounds(setting: str) -> None:
    data = load("synthetic-coco79", n_samples=1500, lazy=True)
    name = "synthetic-coco79@1500"
    part = validation_part(data, name, setting, n_seeds=3, n_rounds=2, n_samples=400)
    used = np.concatenate([*part.train, part.queries])
    assert len(np.unique(used)) == len(used) <= 402
    book = runbook_for(name, setting)
    for seed in range(3):
        for each in rounds(data, book, seed):
            assert not np.isin(used, each.queries).any()
    early = np.concatenate([each.train for each in rounds(data, book, 0)[:2]])
    assert np.isin(used, early).all()
    assert len(part.queries) == pytest.approx(0.2 * len(used), abs=2)
    with pytest.raises(InputError, match="too few to tune on"):
        validation_part(data.select(range(3)), name, setting, n_seeds=3, n_rounds=1, n_samples=1)


def test_the_best_trial_is_chosen_recorded_and_judged_as_by_hand(toy: str, tmp_path: Path) -> None:
    data = load_dataset(toy)
    run = Run(toy, "first", "lemon", 16, 0)
    part = validation_part(data, toy, "first", n_seeds=2, n_rounds=3, n_samples=120)
    record = tune(run, data, part, n_trials=5)
    assert len(record.trials) == 5 and record.chosen.map == max(t.map or 0 for t in record.trials)
    assert record.published.parameters == ()
    model = METHODS["lemon"].model(16, 0, data, dict(record.chosen.parameters))
    codes = []
    for rows in part.train:
        codes.append(model.partial_fit(data.take(rows), data.labels(rows)).codes_.copy())  # type: ignore[union-attr]
    value = mean_average_precision(
        model.encode(data.take(part.queries)),  # type: ignore[union-attr]
        np.concatenate(codes),
        data.L[part.queries],
        data.L[np.concatenate(part.train)],
    )
    assert record.chosen.map == pytest.approx(value)
    path = record_path(tmp_path, run)
    write_record(path, record)
    assert read_record(path) == record and read_records(tmp_path) == [record]
    assert path.relative_to(tmp_path).as_posix() == "tuning/toy/first/lemon/16.json"
    path.write_text(path.read_text("utf-8").replace('"trials"', '"trails"'), "utf-8")
    with pytest.raises(FormatError, match="damaged"):
        read_record(path)


def test_a_trial_that_fails_is_recorded_and_not_chosen(
    toy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = load_dataset(toy)
    part = validation_part(data, toy, "first", n_seeds=1, n_rounds=2, n_samples=80)
    monkeypatch.setitem(GRIDS, "lemon", {"xi": (1.0, -1.0, 5.0)})  # type: ignore[arg-type]
    record = tune(Run(toy, "first", "lemon", 16, 0), data, part)
    failed = [trial for trial in record.trials if trial.map is None]
    assert len(record.trials) == 3 and len(failed) == 1 and "xi must be" in failed[0].error
    assert record.chosen.map is not None
    with pytest.raises(InputError, match="has no codes and is not tuned"):
        tune(Run(toy, "first", "probe", None, 0), data, part)


@pytest.mark.slow
@pytest.mark.usefixtures("no_figures")
def test_tuned_runs_stand_beside_published_ones_in_one_row_of_the_report(
    toy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    picks = ["--dataset", toy, "--method", "lemon,thor", "--out", str(out)]
    tuning = ["tune", *picks, "--setting", "first,second", "--bits", "16", "--trials", "3"]
    monkeypatch.setattr(sys, "argv", ["oasis", *tuning, "--rounds", "2", "--json"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 0
    records = json.loads(capsys.readouterr().out)
    assert [(r["method"], r["setting"], len(r["trials"])) for r in records] == [
        *(("lemon", "first", 3), ("thor", "first", 3)),
        *(("lemon", "second", 3), ("thor", "second", 3)),
    ]
    before = {path: path.read_bytes() for path in (out / "tuning").rglob("*.json")}
    with pytest.raises(SystemExit):
        main()
    assert {path: path.read_bytes() for path in (out / "tuning").rglob("*.json")} == before
    with monkeypatch.context() as other:  # trials of another grid are repeated
        other.setitem(GRIDS, "lemon", {"alpha": (1.0, 2.0, 3.0)})  # type: ignore[arg-type]
        with pytest.raises(SystemExit):
            main()
    changed = [path for path, found in before.items() if path.read_bytes() != found]
    assert sorted(path.parent.name for path in changed) == ["lemon", "lemon"]
    runs = Grid([toy], ["first", "second"], ["lemon", "thor", "probe"], [8, 16], 1).runs()
    tuned = list(tuned_runs(runs, out))
    assert len(tuned) == 8 and all(dict(run.parameters)["tuned"] == 3 for run in tuned)
    finished = reproduce([*runs, *tuned], out)
    assert [each.error for each in finished if each.error] == []
    results = Results.of([each.summary for each in finished if each.summary])
    assert results.variants("toy", "second") == [
        *("lemon", "lemon+tuned=3", "thor", "thor+tuned=3", "probe")
    ]
    text = write_report(out, tmp_path / "report").markdown.read_text("utf-8")
    assert "LEMON, tuned" in text and "### Tuning" in text and "as published" in text
