"""Tasks: keys, grids, names and studies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from oasis.errors import DataError, InputError
from oasis.experiments.task import (
    Grid,
    Task,
    check_dataset,
    load_dataset,
    module_of,
    parse_variant,
    read_study,
    runbook_for,
)

STUDIES = sorted((Path(__file__).parents[2] / "studies").glob("*.toml"))


def test_key_differs_with_every_field() -> None:
    tasks = [
        Task("stream", "coco79", "first", "lemon", 64, 0),
        Task("beyond", "coco79", "first", "lemon", 64, 0),
        Task("stream", "rest:coco79", "first", "lemon", 64, 0),
        Task("stream", "coco79", "second", "lemon", 64, 0),
        Task("stream", "coco79", "first", "thor", 64, 0),
        Task("stream", "coco79", "first", "lemon", 16, 0),
        Task("stream", "coco79", "first", "lemon", None, 0),
        Task("stream", "coco79", "first", "lemon", 64, 1),
        Task("stream", "coco79", "first", "lemon", 64, 0, (("xi", 2.0),)),
    ]
    assert len({task.key for task in tasks}) == len(tasks)
    assert tasks[2].key == "stream/coco79-rest/first/lemon/64/0"
    assert Task("stream", "a/mine.npz", "b/own.toml", "lemon", 8, 0).key.startswith(
        "stream/mine/own/"
    )


def test_grid_expands_every_pick_and_methods_without_length_once() -> None:
    methods = ["oasis", "probe", "opq"]
    grid = Grid(["synthetic@500", "wiki"], ["first", "third"], methods, [16, 32], "4-5")
    tasks = grid.tasks()
    assert len(tasks) == 2 * 2 * 2 * (2 + 1 + 2) == len({task.key for task in tasks})
    assert {task.seed for task in tasks} == {4, 5}
    assert {task.n_bits for task in tasks if task.method == "opq"} == {16, 32}


@pytest.mark.parametrize(
    ("picks", "named"),
    [
        ((["nowhere"], ["first"], ["oasis"], [16]), "synthetic-coco79"),
        ((["coco79@9"], ["first"], ["oasis"], [16]), "as in synthetic@3000"),
        ((["wiki"], ["fourth"], ["oasis"], [16]), "first, second, third"),
        ((["wiki"], ["first"], ["nobody"], [16]), "oasis-paper"),
        ((["wiki"], ["first"], ["lemon+omega=1"], [16]), "alpha"),
        ((["wiki"], ["first"], ["oasis"], [13]), "13"),
        (([], ["first"], ["oasis"], [16]), "no datasets picked"),
        ((["wiki"], ["first"], ["oasis"], [16], "9-7"), "not a list of seeds"),
        ((["wiki"], ["first"], ["oasis"], [16], 0), "positive"),
    ],
)
def test_unknown_picks_are_refused_and_the_known_are_named(picks: tuple, named: str) -> None:
    with pytest.raises(InputError, match=named):
        Grid(*picks)


def test_parameters_are_parsed_by_kind() -> None:
    _, parameters = parse_variant("oasis-paper+alpha=1e-3+n_iter=5+scaling=unit")
    assert dict(parameters) == {"alpha": 1e-3, "n_iter": 5, "scaling": "unit"}


def test_settings_find_the_runbook_of_the_data() -> None:
    assert runbook_for("icons", "second").name == "icons"
    assert runbook_for("synthetic-mirflickr", "third").name == "mirflickr-third"
    assert runbook_for("rest:coco79", "second").name == "coco79-second"
    assert runbook_for("validation:coco79", "second").name == "any-second"
    assert len(runbook_for("wiki", "rounds-3-classes-2").classes) == 3
    with pytest.raises(InputError, match="unknown setting 'sideways'"):
        runbook_for("wiki", "sideways")


def test_validation_part_and_rest_divide_the_samples() -> None:
    whole = load_dataset("synthetic@500")
    parts = [load_dataset(f"{part}:synthetic@500") for part in ("rest", "validation")]
    rows = [np.asarray(each.take(np.arange(each.n_samples))["image"]) for each in parts]
    assert [len(each) for each in rows] == [400, 100]
    every = {row.tobytes() for row in np.asarray(whole.take(np.arange(500))["image"])}
    first, second = ({row.tobytes() for row in each} for each in rows)
    assert first | second == every and not first & second
    assert check_dataset("rest:synthetic") == "rest:synthetic-coco79"
    assert parts[0].describe() != whole.describe()


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_studies_name_tasks_that_can_be_run(path: Path) -> None:
    study = read_study(path)
    assert study.hours > 0 and study.about
    tasks = [task for grid in study.grids for task in grid.tasks()]
    assert tasks and len({task.key for task in tasks}) == len(tasks)


def test_what_is_wrong_with_a_study_is_said(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    with pytest.raises(DataError, match="no such study"):
        read_study(path)
    task = '[[task]]\ndatasets = ["wiki"]\n'
    for text, message in (
        ("= 3", "not a TOML file"),
        (
            f'hours = 1\n{task}method = "oasis"',
            r"unknown keys \['method'\] and lacks \['methods'\]",
        ),
        (f'{task}methods = ["oasis"]', "a study has hours"),
        (f'hours = 1\n{task}methods = ["oasis"]\nkind = "task"', "unknown kind of study 'task'"),
    ):
        path.write_text(text, "utf-8")
        with pytest.raises(InputError, match=message):
            read_study(path)
    with pytest.raises(InputError, match="unknown kind"):
        module_of("os.path")
