"""The runner: what is kept, what is put aside, and what a failure does."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import experiment_data
import numpy as np
import pytest

from oasis.baselines import LEMON
from oasis.cli import main
from oasis.errors import DataError, FormatError, InputError
from oasis.experiments.report import sections_of, write_report
from oasis.experiments.results import Results, compare, environment
from oasis.experiments.runner import Event, Finished, Notice, RoundDone, run
from oasis.experiments.tables import Part, Table
from oasis.experiments.task import Grid, load_dataset

toy = experiment_data.toy


def tasks_of(toy: str, *methods: str, settings: tuple[str, ...] = ("first",), seeds: int = 1):
    return Grid([toy], settings, methods, [16], seeds).tasks()


def without_times(row: dict) -> dict:
    text = json.dumps(row)
    found = json.loads(text)
    for key in ("measure_seconds", "of"):
        found.pop(key, None)
    for each in found["rounds"]:
        each.pop("train_seconds")
        each.pop("encode_seconds")
    return found


def test_rows_are_written_and_kept_the_second_time(toy: str, tmp_path: Path) -> None:
    tasks = tasks_of(toy, "lemon", "probe", settings=("first", "third"))
    events: list[Event] = []
    first = run(tasks, tmp_path, listener=events.append)
    assert [each.status for each in first] == ["computed"] * 4
    steps = [(e.n_done, e.n_steps) for e in events if isinstance(e, RoundDone)]
    assert steps[-1] == (4, 4) and len([e for e in events if isinstance(e, Finished)]) == 4
    content = (tmp_path / "toy.jsonl").read_bytes()
    again = run(tasks, tmp_path)
    assert [each.status for each in again] == ["kept"] * 4
    assert [each.row for each in again] == [
        Results.read(tmp_path / "toy.jsonl").rows[task.key] for task in tasks
    ]
    assert (tmp_path / "toy.jsonl").read_bytes() == content


def test_file_has_a_header_and_rows_sorted_by_key(toy: str, tmp_path: Path) -> None:
    run(tasks_of(toy, "oasis-paper", "lemon", seeds=2), tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "toy.jsonl").read_text("utf-8").splitlines()]
    header, *rows = lines
    assert header["format"] == "oasis-results" and len(rows) == 4
    assert [row["key"] for row in rows] == sorted(row["key"] for row in rows)
    (data,) = header["data"].values()
    assert data["sources"][0]["file"] == "toy.npz" and len(data["sources"][0]["sha256"]) == 64
    (here,) = header["environments"].values()
    assert here == environment() and len(header["methods"]) == 2
    for row in rows:
        assert row["of"]["environment"] in header["environments"]
        assert row["of"]["method"] in header["methods"]


def test_interrupted_command_resumes(toy: str, tmp_path: Path) -> None:
    tasks = tasks_of(toy, "lemon", "random-projection", "itq")

    def stop(event: Event) -> None:
        if isinstance(event, Finished) and event.task == tasks[1]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tasks, tmp_path, listener=stop)
    assert [each.status for each in run(tasks, tmp_path)] == ["kept", "kept", "computed"]


def test_damaged_line_is_told(toy: str, tmp_path: Path) -> None:
    tasks = tasks_of(toy, "lemon", "random-projection")
    run(tasks, tmp_path)
    path = tmp_path / "toy.jsonl"
    lines = path.read_text("utf-8").splitlines()
    path.write_text("\n".join([*lines[:-1], lines[-1][:99]]), "utf-8")
    with pytest.raises(FormatError, match="line 3 is not a row; delete it"):
        run(tasks, tmp_path)
    path.write_text("\n".join(lines[:-1]), "utf-8")
    assert [each.status for each in run(tasks, tmp_path)] == ["kept", "computed"]


def test_row_of_other_data_is_put_aside(toy: str, tmp_path: Path) -> None:
    tasks = tasks_of(toy, "lemon")
    run(tasks, tmp_path / "out")
    path = Path(toy)
    content = path.read_bytes()
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays["image"] = arrays["image"] * 2
    np.savez(path, **arrays)
    events: list[Event] = []
    try:
        (found,) = run(tasks, tmp_path / "out", listener=events.append)
    finally:
        path.write_bytes(content)
    assert found.status == "computed"
    assert any(isinstance(e, Notice) and "from another data set" in e.text for e in events)
    (old,) = (tmp_path / "out" / "toy.aside.txt").read_text("utf-8").splitlines()
    assert json.loads(old)["of"]["data"]["sources"][0]["file"] == "toy.npz"


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_failing_task_does_not_stop_the_others_and_is_tried_again(
    toy: str, tmp_path: Path, jobs: int
) -> None:
    tasks = tasks_of(toy, "lemon+alpha=-1", "random-projection")
    for _ in range(2):
        failed, ours = run(tasks, tmp_path, jobs=jobs)
        assert failed.status == "failed" and "alpha" in failed.row["error"]
    assert ours.status == "kept"
    rows = Results.read(tmp_path).rows
    assert rows[tasks[0].key]["error"] == failed.row["error"]
    assert [row["method"] for row in Results.read(tmp_path).of_kind("stream")] == [
        "random-projection"
    ]


def test_what_cannot_succeed_stops_at_once(toy: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.npz: no such file"):
        run(tasks_of(str(tmp_path / "absent.npz"), "lemon"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(DataError, match=r"wiki\.npz is neither at"):
        run(Grid(["wiki"], ["first"], ["lemon"], [16]).tasks(), tmp_path, data=tmp_path)
    tasks = tasks_of(toy, "lemon")
    with pytest.raises(InputError, match="two tasks have the key"):
        run([*tasks, *tasks], tmp_path)
    with pytest.raises(InputError, match="jobs must be a positive"):
        run(tasks, tmp_path, jobs=0)


def test_file_without_labels_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "bare.npz"
    image, labels = np.ones((20, 3), np.float32), np.zeros((20, 2), np.uint8)
    np.savez(path, image=image)
    with pytest.raises(DataError, match=r"bare\.npz: no array 'labels', and measures need"):
        run(tasks_of(str(path), "lemon"), tmp_path / "out")
    np.savez(path, image=image, labels=labels, label_names=np.array(["sky", "sea"]))
    with pytest.raises(DataError, match="bare has no labels: no sample has one"):
        run(tasks_of(str(path), "lemon"), tmp_path / "out")


@pytest.mark.slow
def test_processes_give_the_same_as_one(toy: str, tmp_path: Path) -> None:
    tasks = tasks_of(toy, "lemon", "oasis", "float-cosine", settings=("second",), seeds=2)
    one = run(tasks, tmp_path / "one")
    two = run(tasks, tmp_path / "two", jobs=2)
    assert [without_times(e.row) for e in one] == [without_times(e.row) for e in two]
    assert compare(Results.read(tmp_path / "one"), Results.read(tmp_path / "two")) == []


def test_comparison_lists_cells_beyond_the_tolerance_of_the_method(
    toy: str, tmp_path: Path
) -> None:
    run(tasks_of(toy, "lemon", "oasis-paper"), tmp_path)
    old, new = Results.read(tmp_path), Results.read(tmp_path)
    for row in new.rows.values():
        row["rounds"][-1]["new"]["expected"] += 0.003
    (found,) = compare(old, new)
    assert found.key == "stream/toy/first/lemon/16/0" and found.figure == "new expected"
    assert "(tolerance 0.0005)" in str(found)
    del new.rows["stream/toy/first/oasis-paper/16/0"]
    gone = compare(old, new)
    assert {each.new for each in gone[1:]} == {None} and "now none" in str(gone[-1])


def test_a_kind_of_study_is_one_module(
    toy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = ModuleType("oasis.experiments.counting")
    kind.check_setting = lambda dataset, setting: None  # type: ignore[attr-defined]
    kind.facts = lambda task, data: {"data": load_dataset(task.dataset, data).describe()}  # type: ignore[attr-defined]
    kind.work = lambda task, data, progress: {  # type: ignore[attr-defined]
        "n": load_dataset(task.dataset, data).n_samples
    }
    kind.cells = lambda row: {"n": row["n"]}  # type: ignore[attr-defined]
    table = Table("", "", ("n",), (("150",),), 0)
    kind.parts = lambda results, dataset, rows: [Part("Counting", tables=(table,))]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, kind.__name__, kind)
    (found,) = run(Grid([toy], ["any"], ["lemon"], [16], kind="counting").tasks(), tmp_path)
    assert found.row["n"] == 150 and compare(Results.read(tmp_path), Results.read(tmp_path)) == []
    (section,) = sections_of(Results.read(tmp_path))
    assert [part.name for part in section.parts] == ["Counting"]


def _command(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["oasis", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert isinstance(stopped.value.code, int)
    return stopped.value.code


def test_command_line_runs_resumes_compares_and_reports(
    toy: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = str(tmp_path / "out")
    asked = ["reproduce", "--dataset", toy, "--setting", "first", "--method", "lemon,probe"]
    asked += ["--bits", "16", "--out", out]
    assert _command(asked, monkeypatch) == 0
    printed = capsys.readouterr()
    assert "LEMON" in printed.out and "2 tasks: 2 computed; next: oasis report" in printed.out
    assert _command([*asked, "--json"], monkeypatch) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["status"] for row in rows] == ["kept", "kept"]
    assert _command(["report", "--compare", out, out], monkeypatch) == 0
    assert "the same: 2 rows" in capsys.readouterr().out
    assert _command(["report", out, "--headline"], monkeypatch) == 0
    assert "| LEMON " in capsys.readouterr().out
    pytest.importorskip("matplotlib")
    written = write_report(Path(out), tmp_path / "report")
    assert "LEMON" in written.page.read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--dataset", "nowhere"], 1, "error: unknown data set 'nowhere'"),
        (["--dataset", "icons", "--bits", "many"], 2, "not a list of whole numbers"),
        ([], 2, "give a study or --dataset"),
        (["absent.toml"], 1, "absent.toml: no such study"),
    ],
)
def test_command_line_errors_are_one_line(
    arguments: list[str],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _command(["reproduce", *arguments], monkeypatch) == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("command", ["reproduce", "tune", "scenarios", "beyond"])
def test_every_command_tells_a_failed_cell_in_one_line(
    command: str,
    toy: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def crash(*_: object, **__: object) -> None:
        raise ZeroDivisionError("no samples")

    monkeypatch.setattr(LEMON, "partial_fit", crash)
    asked = [command, "--dataset", toy, "--method", "lemon", "--bits", "16", "--out", str(tmp_path)]
    asked += {"reproduce": ["--setting", "first"], "tune": ["--setting", "first"]}.get(command, [])
    asked += ["--scenario", "wrong-labels"] if command == "scenarios" else []
    asked += ["--quick"] if command == "beyond" else []
    assert _command(asked, monkeypatch) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert lines and all("ZeroDivisionError: no samples" in line for line in lines)
