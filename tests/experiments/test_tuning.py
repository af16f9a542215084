"""Tuning: the same trials for all, on samples that are in no table, and the choice in the rows."""

from __future__ import annotations

from pathlib import Path

import experiment_data
import numpy as np
import pytest

from oasis.errors import InputError
from oasis.experiments.methods import METHODS, grid_of
from oasis.experiments.report import as_markdown, sections_of
from oasis.experiments.results import Results
from oasis.experiments.runner import run
from oasis.experiments.task import Grid, load_dataset, parse_variant, runbook_for
from oasis.experiments.tuning import N_TRIALS, chosen, trial_parameters, tuned_tasks
from oasis.metrics import mean_average_precision
from oasis.streams import rounds

toy = experiment_data.toy
HASHERS = [name for name, method in METHODS.items() if method.has_codes]


@pytest.mark.parametrize("method", HASHERS)
def test_trials_are_the_published_parameters_and_distinct_points_of_the_grid(method: str) -> None:
    grid, found = grid_of(method), trial_parameters(method)
    points = int(np.prod([len(values) for values in grid.values()]))
    assert found[0] == () and len(set(found)) == len(found) == min(N_TRIALS, points)
    published = {**METHODS[method].parameters, **METHODS[method].fixed}
    for parameters in found:
        text = "+".join([method, *(f"{name}={value}" for name, value in parameters)])
        assert parse_variant(text)[1] == parameters  # every value can be asked for by name
        for name, value in parameters:
            assert value in grid[name] and published.get(name) != value
    assert found == trial_parameters(method)
    assert trial_parameters(method, 2) == found[:2]


def test_the_best_trial_is_chosen_recorded_and_judged_as_by_hand(
    tmp_path: Path,
) -> None:
    name, options = "synthetic-coco79@700", {"trials": 3}
    (found,) = run(
        Grid([name], ["second"], ["lemon"], [16], kind="tuning", options=options).tasks(), tmp_path
    )
    row = found.row
    assert len(row["trials"]) == 3 and row["trials"][0]["parameters"] == {}
    assert chosen(row)["map"] == max(trial["map"] for trial in row["trials"])
    data = load_dataset(f"validation:{name}")
    stream = rounds(data, runbook_for(f"validation:{name}", "second"), 0)
    asked = np.unique(np.concatenate([each.queries for each in stream]))
    learned = np.concatenate([each.train for each in stream])
    assert (row["n_learned"], row["n_queries"]) == (len(learned), len(asked))
    for trial in row["trials"]:
        model = METHODS["lemon"].model(16, 0, data, trial["parameters"])
        codes = []
        for each in stream:
            model.partial_fit(data.take(each.train), data.labels(each.train))
            codes.append(model.codes_.copy())
        queries = model.encode(data.take(asked))
        expected = mean_average_precision(
            queries, np.concatenate(codes), data.L[asked], data.L[learned]
        )
        assert trial["map"] == pytest.approx(expected)


def test_a_trial_that_fails_is_recorded_and_not_chosen(
    toy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = {"xi": (1.0, -1.0)}
    monkeypatch.setitem(METHODS, "lemon", _with_grid("lemon", grid))
    (found,) = run(Grid([toy], ["first"], ["lemon"], [16], kind="tuning").tasks(), tmp_path)
    failed = [trial for trial in found.row["trials"] if "error" in trial]
    assert failed and all("xi" in trial["error"] for trial in failed)
    assert chosen(found.row)["parameters"].get("xi", 1.0) == 1.0
    monkeypatch.setitem(METHODS, "lemon", _with_grid("lemon", {"omega": (1.0,)}))
    with pytest.raises(InputError, match="'omega', which is no parameter"):
        grid_of("lemon")


def _with_grid(name: str, grid: dict) -> object:
    from dataclasses import replace

    return replace(METHODS[name], grid=grid)


@pytest.mark.slow
def test_tuned_tasks_stand_beside_published_ones_in_one_line_of_the_report(
    toy: str, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    settings, methods = ["first"], ["lemon", "random-projection"]
    run(
        Grid([toy], settings, methods, [16], kind="tuning", options={"trials": 4}).tasks(), tmp_path
    )
    tasks = Grid([toy], settings, [*methods, "probe"], [8, 16], tuned=True).tasks()
    tuned = tuned_tasks(tasks, tmp_path)
    assert {task.method for task in tuned} == set(methods)
    assert {dict(task.parameters)["tuned"] for task in tuned} == {3, 4}
    assert len(tuned) == 2 * 2  # another length uses the same choice
    run([*tasks, *tuned], tmp_path)
    sections = {each.name: each for each in sections_of(Results.read(tmp_path))}
    text = "\n".join(as_markdown(t) for p in sections["toy-rest"].parts for t in p.tables)
    assert "| LEMON, tuned " in text and "| LEMON  " in text
    (part,) = [part for part in sections["toy"].parts if part.name == "Tuning"]
    assert len(part.tables[0].rows) == 2
