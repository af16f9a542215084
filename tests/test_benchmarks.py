"""The table at the end of a run of benchmarks, and what --check says."""

import json
from types import SimpleNamespace

import pytest

from benchmarks import __main__ as runner
from benchmarks.comparing import Compared, commit, committed_results, compared
from benchmarks.timing import row


@pytest.mark.parametrize(
    ("now", "committed", "goal", "reached", "worse"),
    [
        (1.1, 1.0, "<= 1.2", True, False),
        (1.29, 1.0, "<= 1.2", False, False),
        (1.31, 1.0, "<= 1.2", False, True),
        (0.5, 1.0, "<= 1.2", True, False),
        (31.0, 30.0, ">= 30", True, False),
        (24.0, 30.0, ">= 30", False, False),
        (22.0, 30.0, ">= 30", False, True),
        (9.0, None, "<= 1.2", False, False),
    ],
)
def test_a_ratio_is_worse_by_more_than_a_third_of_the_committed_one(
    now, committed, goal, reached, worse
):
    each = Compared("learning", "a round", now, committed, goal)
    assert (each.reached, each.worse) == (reached, worse)


def test_only_ratios_with_a_goal_are_compared():
    rows = [row("a", 1.0, 2.0, goal="<= 3"), row("b", 1.0, 2.0), row("c", 1.0, goal="<= 3")]
    found = compared({"learning": rows}, {"learning": {"rows": [{"name": "a", "ratio": 4.0}]}})
    assert found == [Compared("learning", "a", 2.0, 4.0, "<= 3")]
    assert compared({"search": rows}, {})[0].committed is None


@pytest.fixture
def suite(tmp_path, monkeypatch):
    """A run whose one ratio can be set, outside of git."""
    monkeypatch.setattr(runner, "RESULTS", tmp_path / "results.json")
    module = SimpleNamespace(ratio=1.0)
    module.run = lambda: [row("a round", 2.0, module.ratio, goal="<= 1.2")]
    monkeypatch.setattr(runner, "import_module", lambda name: module)
    return module


def test_check_fails_where_a_ratio_got_worse_and_writes_nothing(suite, capsys):
    assert runner.main(["learning"]) == 0
    written = runner.RESULTS.read_text()
    machine = json.loads(written)["learning"]["machine"]
    assert {"processor", "python", "numpy", "blas", "commit"} <= set(machine)
    suite.ratio = 1.25
    assert runner.main(["--check", "learning"]) == 0
    suite.ratio = 1.35
    assert runner.main(["--check", "learning"]) == 1
    assert "worse" in capsys.readouterr().out
    assert runner.RESULTS.read_text() == written
    assert runner.main(["learning"]) == 0  # without --check it is told and kept
    assert json.loads(runner.RESULTS.read_text())["learning"]["rows"][0]["ratio"] == 1.35
    assert runner.main(["nothing"]) == 2
    assert "unknown suite" in capsys.readouterr().err


def test_without_git_the_file_is_what_was_committed(tmp_path):
    path = tmp_path / "results.json"
    assert committed_results(path) == {} and commit(tmp_path) == "unknown"
    path.write_text('{"learning": {"rows": []}}')
    assert committed_results(path) == {"learning": {"rows": []}}
