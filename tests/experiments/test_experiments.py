"""Experiments on a toy set: definitions, grids that stop and resume, and the command line."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import experiment_data
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasis.cli import main
from oasis.errors import DataError, FormatError, InputError, KernelWidthWarning, NewerVersionError
from oasis.experiments import grid as grids
from oasis.experiments.grid import Finished, Notice, RoundDone, reproduce
from oasis.experiments.measure.summaries import Summary, read_summaries, read_summary
from oasis.experiments.run.definition import Grid, Run, check_dataset, parse_variant, runbook_for
from oasis.experiments.run.methods import METHODS
from oasis.experiments.run.results import (
    read_result,
)

toy = experiment_data.toy


# --- definitions -------------------------------------------------------------------------------


def test_run_key_is_its_path_and_differs_with_every_field() -> None:
    run = Run("coco79", "first", "oasis-paper", 64, 2, (("alpha", 1.0),))
    assert str(run.key) == "coco79/first/oasis-paper+alpha=1.0/64/2"
    others = [
        Run("coco40k", "first", "oasis-paper", 64, 2, (("alpha", 1.0),)),
        Run("coco79", "second", "oasis-paper", 64, 2, (("alpha", 1.0),)),
        Run("coco79", "first", "fomh", 64, 2, (("alpha", 1.0),)),
        Run("coco79", "first", "oasis-paper", 32, 2, (("alpha", 1.0),)),
        Run("coco79", "first", "oasis-paper", 64, 1, (("alpha", 1.0),)),
        Run("coco79", "first", "oasis-paper", 64, 2, (("alpha", 2.0),)),
        Run("coco79", "first", "oasis-paper", 64, 2),
    ]
    assert len({each.key for each in [run, *others]}) == len(others) + 1


@settings(deadline=None)
@given(
    method=st.sampled_from(sorted(METHODS)),
    n_bits=st.none() | st.integers(1, 16).map(lambda n: 8 * n),
    seed=st.integers(0, 99),
    alpha=st.floats(0.001, 100),
)
def test_run_survives_json(method: str, n_bits: int | None, seed: int, alpha: float) -> None:
    run = Run("coco79", "third", method, n_bits, seed, (("alpha", alpha),))
    assert Run.parse(json.loads(json.dumps(run.as_dict()))) == run


def test_grid_expands_every_pick_and_rankers_once() -> None:
    grid = Grid(["icons"], ["first", "third"], ["lemon", "probe"], [16, 64], seeds=2)
    keys = [str(run.key) for run in grid.runs()]
    assert len(keys) == len(set(keys)) == 2 * 2 * (2 + 1)
    assert keys[:4] == [
        "icons/first/lemon/16/0",
        "icons/first/lemon/64/0",
        "icons/first/probe/float/0",
        "icons/first/lemon/16/1",
    ]


@pytest.mark.parametrize(
    ("picks", "named"),
    [
        ((["coco"], ["first"], ["fomh"], [16], 1), "coco79"),
        ((["icons@5"], ["first"], ["fomh"], [16], 1), "synthetic@3000"),
        ((["icons"], ["fourth"], ["fomh"], [16], 1), "first, second, third"),
        ((["icons"], ["first"], ["fhom"], [16], 1), "oasis-paper"),
        ((["icons"], ["first"], ["fomh+alfa=1"], [16], 1), "alpha"),
        ((["icons"], ["first"], ["fomh+n_bits=8"], [16], 1), "alpha"),
        ((["icons"], ["first"], ["oasis-paper+normalize=True"], [16], 1), "alpha"),
        ((["icons"], ["first"], ["fomh+rounds=all"], [16], 1), "alpha"),
        ((["icons"], ["first"], ["omh-dq+rounds=2"], [16], 1), "rounds=all"),
        ((["icons"], ["first"], ["fomh"], [12], 1), "12"),
        ((["icons"], [], ["fomh"], [16], 1), "no settings"),
        ((["icons"], ["first"], ["fomh"], [16], 0), "seeds"),
    ],
)
def test_unknown_picks_are_refused_and_the_known_are_named(picks: tuple, named: str) -> None:
    with pytest.raises(InputError, match=named):
        Grid(*picks)


def test_parameters_are_parsed_by_kind() -> None:
    _, parameters = parse_variant("fomh+n_iter=2+sigma=mean+alpha=1e-3")
    assert parameters == (("alpha", 0.001), ("n_iter", 2), ("sigma", "mean"))


def test_settings_find_the_runbook_of_the_data() -> None:
    assert runbook_for("coco79", "third").name == "coco79-third"
    assert runbook_for("synthetic-mirflickr", "second").name == "mirflickr-second"
    assert runbook_for(check_dataset("synthetic@300"), "second").name == "any-second"
    assert runbook_for("icons", "second").name == "icons"
    assert runbook_for("icons", "icons-releases").name == "icons-releases"


# --- grids -------------------------------------------------------------------------------------


def _small_grid(toy: str) -> list[Run]:
    return Grid([toy], ["second"], ["lemon", "pca-sign"], [8, 16], seeds=1).runs()


def test_grid_leaves_whole_files_and_is_kept_the_second_time(
    toy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = _small_grid(toy)
    seen: list[object] = []
    first = reproduce(runs, tmp_path, listener=seen.append)
    assert [each.status for each in first] == ["computed"] * 4
    n_rounds = next(each.n_rounds for each in seen if isinstance(each, RoundDone))
    assert sum(isinstance(each, RoundDone) for each in seen) == 4 * n_rounds
    files = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")}
    keys = [run.key for run in runs]
    kinds = ("raw/{}.npz", "summaries/{}.json", "queries/{}.npz")
    assert files == {kind.format(key) for kind in kinds for key in keys}
    assert [each.run for each in read_summaries(tmp_path)] == sorted(
        runs, key=lambda run: f"{run.key}.json"
    )
    monkeypatch.setattr(grids, "carry_out", None)
    monkeypatch.setattr(grids, "measure", None)
    second = reproduce(runs, tmp_path)
    assert [each.status for each in second] == ["kept"] * 4
    assert [each.summary for each in second] == [
        Summary.parse(each.summary.as_dict()) for each in first if each.summary is not None
    ]


def test_interrupted_grid_resumes(toy: str, tmp_path: Path) -> None:
    runs = _small_grid(toy)
    n_rounds = 0

    def interrupt(event: object) -> None:
        nonlocal n_rounds
        n_rounds += isinstance(event, RoundDone)
        if n_rounds == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce(runs, tmp_path, listener=interrupt)
    statuses = [each.status for each in reproduce(runs, tmp_path)]
    assert statuses == ["kept", "computed", "computed", "computed"]
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()]


@pytest.mark.parametrize("how", ["truncated", "flipped", "foreign", "empty"])
def test_damaged_result_is_told_put_aside_and_recomputed(
    toy: str, tmp_path: Path, how: str
) -> None:
    run = Run(toy, "second", "lemon", 16, 0)
    (before,) = reproduce([run], tmp_path)
    path = tmp_path / "raw" / f"{run.key}.npz"
    content = path.read_bytes()
    middle = content.index(b"rounds/0/codes.npy") + 160
    damaged = {
        "truncated": content[: len(content) // 2],
        "flipped": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
        "foreign": b"PK\x03\x04 not ours",
        "empty": b"",
    }[how]
    path.write_bytes(damaged)
    seen: list[object] = []
    (after,) = reproduce([run], tmp_path, listener=seen.append)
    (notice,) = [each for each in seen if isinstance(each, Notice)]
    assert "damaged" in notice.text and "0.npz.aside-1" in notice.text
    assert path.with_name("0.npz.aside-1").read_bytes() == damaged
    assert after.status == "computed"
    assert before.summary is not None and after.summary is not None
    assert after.summary.last.all == before.summary.last.all
    path.write_bytes(damaged)
    reproduce([run], tmp_path)
    assert path.with_name("0.npz.aside-2").read_bytes() == damaged


def test_damaged_summary_is_told_and_measured_again(toy: str, tmp_path: Path) -> None:
    run = Run(toy, "second", "lemon", 16, 0)
    reproduce([run], tmp_path)
    path = tmp_path / "summaries" / f"{run.key}.json"
    good = path.read_text()
    path.write_text(good[:100])
    with pytest.raises(FormatError, match=r"0\.json is damaged"):
        read_summaries(tmp_path)
    seen: list[object] = []
    (after,) = reproduce([run], tmp_path, listener=seen.append)
    assert after.status == "measured"
    assert [each for each in seen if isinstance(each, Notice)]
    assert read_summary(path).rounds == Summary.parse(json.loads(good)).rounds
    path.write_text(json.dumps({**json.loads(good), "version": 99}))
    with pytest.raises(NewerVersionError):
        read_summary(path)


def test_result_of_other_data_is_put_aside(toy: str, tmp_path: Path) -> None:
    other = tmp_path / "toy.npz"
    with np.load(toy) as archive:
        np.savez(other, **{**archive, "image": archive["image"] * 2})
    reproduce([Run(toy, "second", "lemon", 16, 0)], tmp_path / "out")
    seen: list[object] = []
    reproduce([Run(str(other), "second", "lemon", 16, 0)], tmp_path / "out", listener=seen.append)
    (notice,) = [each for each in seen if isinstance(each, Notice)]
    assert "was made from another data set" in notice.text


def test_failing_run_does_not_stop_the_others(toy: str, tmp_path: Path) -> None:
    runs = Grid([toy], ["second"], ["fomh+gamma=-1", "lemon"], [8], seeds=1).runs()
    failed, computed = reproduce(runs, tmp_path)
    assert failed.status == "failed" and "gamma" in failed.error
    assert computed.status == "computed"


def test_missing_data_stops_at_once(tmp_path: Path) -> None:
    runs = Grid(["coco79"], ["first"], ["lemon"], [8], seeds=2).runs()
    seen: list[object] = []
    with pytest.raises(DataError, match=r"coco40k\.npz"):
        reproduce(runs, tmp_path / "out", data=tmp_path, listener=seen.append)
    assert not seen


def test_two_runs_of_one_key_are_refused(toy: str, tmp_path: Path) -> None:
    run = Run(toy, "second", "lemon", 8, 0)
    with pytest.raises(InputError, match="two runs have the key"):
        reproduce([run, run], tmp_path)


@pytest.mark.slow
def test_processes_give_the_same_as_one(toy: str, tmp_path: Path) -> None:
    methods = ["lemon", "fomh+gamma=-1", "fomh+sigma=100000"]
    runs = Grid([toy], ["third"], methods, [8], seeds=2).runs()
    seen: list[object] = []
    with pytest.warns(KernelWidthWarning, match="kernel width 100000"):
        several = reproduce(runs, tmp_path / "several", jobs=2, listener=seen.append)
    with pytest.warns(KernelWidthWarning, match="kernel width 100000"):
        single = reproduce(runs, tmp_path / "single")
    assert [each.status for each in several] == [each.status for each in single]
    assert sum(isinstance(each, Finished) for each in seen) == 6
    assert any(isinstance(each, RoundDone) for each in seen)
    for run in runs[::3]:
        one, other = (
            read_result(tmp_path / kind / "raw" / f"{run.key}.npz")
            for kind in ("several", "single")
        )
        for t in range(len(one.rounds)):
            assert (one.base_codes(t) == other.base_codes(t)).all()
        assert one.about["machine"]["threads"] == max(1, multiprocessing.cpu_count() // 2)


@pytest.mark.slow
def test_missing_data_stops_processes_too(tmp_path: Path) -> None:
    runs = Grid(["coco79"], ["first"], ["lemon"], [8], seeds=2).runs()
    with pytest.raises(DataError, match=r"coco40k\.npz"):
        reproduce(runs, tmp_path / "out", data=tmp_path, jobs=2)


# --- command line ------------------------------------------------------------------------------


def _oasis(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["oasis", *arguments])
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.mark.slow
def test_command_line_runs_resumes_and_reports(
    toy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    picks = ["reproduce", "--dataset", toy, "--setting", "second,third", "--out", out]
    picks += ["--method", "lemon,probe", "--bits", "8", "--seeds", "1"]
    assert _oasis(monkeypatch, *picks) == 0
    printed = capsys.readouterr().out
    assert "4 runs: 4 computed" in printed and "LEMON" in printed
    assert _oasis(monkeypatch, *picks, "--json") == 0
    rows = json.loads(capsys.readouterr().out)["runs"]
    assert [row["status"] for row in rows] == ["kept"] * 4
    assert all(row["map"] > row["chance"] for row in rows)
    assert _oasis(monkeypatch, "report", out, "--out", str(tmp_path / "report"), "--json") == 0
    written = json.loads(capsys.readouterr().out)
    assert Path(written["page"]).is_file()
    assert len(written["figures"]) == 6


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["reproduce", "--dataset", "moon"], 1, "error: unknown data set 'moon'"),
        (["reproduce", "--dataset", "icons", "--method", "x"], 1, "error: unknown method 'x'"),
        (["reproduce", "--dataset", "icons", "--setting", "x"], 1, "error: unknown setting 'x'"),
        (["reproduce", "--dataset", "icons", "--bits", "a"], 2, "--bits"),
        (["reproduce"], 2, "--dataset"),
        (["report", "nowhere"], 1, "error: no summaries in nowhere"),
    ],
)
def test_command_line_errors_are_one_line(
    arguments: list[str],
    code: int,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _oasis(monkeypatch, *arguments) == code
    captured = capsys.readouterr()
    assert text in captured.err
    if code == 1:
        assert captured.err.count("\n") == 1 and captured.out == ""


def test_command_line_fails_when_a_run_does(
    toy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    picks = ["--dataset", toy, "--method", "fomh+gamma=-1,lemon", "--bits", "8"]
    out = ["--setting", "second", "--out", str(tmp_path)]
    assert _oasis(monkeypatch, "reproduce", *picks, *out) == 1
    captured = capsys.readouterr()
    assert "error: toy/second/fomh+gamma=-1/8/0: gamma" in captured.err
    assert "2 runs: 1 computed, 1 failed; next: oasis report" in captured.out
    picks[3] = "fomh+gamma=-1"
    assert _oasis(monkeypatch, "reproduce", *picks, *out) == 1
    assert "next" not in capsys.readouterr().out  # there is nothing to report
