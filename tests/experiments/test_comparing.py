"""Comparing methods: paired differences, marks, the first table, LaTeX."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import experiment_data
import numpy as np
import pytest

from oasis.cli import main
from oasis.errors import FormatError, KernelWidthWarning
from oasis.experiments.grid import reproduce
from oasis.experiments.measure.cells import Results
from oasis.experiments.measure.queries import (
    QueryScores,
    paired_difference,
    read_queries,
    write_queries,
)
from oasis.experiments.measure.summaries import read_summaries
from oasis.experiments.report.headline import better_variants, headline_table, mark_lines
from oasis.experiments.report.report import headline, write_report
from oasis.experiments.report.table import Table
from oasis.experiments.run.definition import Grid

toy, no_figures = experiment_data.toy, experiment_data.no_figures


COCO79 = Path(__file__).parents[2] / "reports" / "coco79" / "summaries"


def _cells(markdown: str) -> list[list[str]]:
    """Return the cells of all table rows in a text."""
    rows = [line for line in markdown.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row.strip("| ").split(" | ")] for row in rows]


def _scores(values: np.ndarray, first: int = 0) -> QueryScores:
    rows = np.arange(first, first + len(values))
    return QueryScores(rows, rows * 0, values, values)


def test_interval_covers_the_true_difference_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(100):
        ours, theirs = rng.random(150) * 0.5 + 0.05, rng.random(150) * 0.5
        found = paired_difference({0: _scores(ours)}, {0: _scores(theirs)}, n_resamples=300)
        assert found is not None
        covered += found.low <= 0.05 <= found.high
    assert 88 <= covered <= 100


def test_difference_is_decided_only_where_the_interval_leaves_zero_out() -> None:
    rng = np.random.default_rng(1)
    base = rng.random(400)
    noise = rng.standard_normal(400) * 0.2
    same = paired_difference({0: _scores(base)}, {0: _scores(base + noise - noise.mean())})
    assert same is not None and same.verdict == "undecided" and same.low < 0 < same.high
    worse = paired_difference({0: _scores(base), 1: _scores(base)}, {0: _scores(base + 0.1)})
    assert worse is not None and worse.verdict == "worse" and worse.n_seeds == 1
    assert worse.mean == pytest.approx(-0.1)
    seeds = {seed: _scores(base + 0.05 * seed) for seed in range(3)}
    better = paired_difference(seeds, {seed: _scores(base - 0.2) for seed in range(3)})
    assert better is not None and better.verdict == "better" and better.n_queries == 1200
    # seeds that differ widen the interval: their means are 0.2, 0.25 and 0.3
    assert better.low < 0.24 and better.high > 0.26


def test_only_the_same_queries_are_compared() -> None:
    values = np.linspace(0, 1, 20)
    assert paired_difference({0: _scores(values)}, {0: _scores(values, first=5)}) is None
    assert paired_difference({0: _scores(values)}, {1: _scores(values)}) is None
    ranker = replace(_scores(values), asymmetric=np.empty(0))
    assert paired_difference({0: _scores(values)}, {0: ranker}, "asymmetric") is None


def test_query_scores_survive_their_file_and_damage_is_said(tmp_path: Path) -> None:
    scores = _scores(np.linspace(0, 1, 7))
    path = tmp_path / "a" / "b.npz"
    write_queries(path, scores)
    again = read_queries(path)
    assert np.allclose(again.expected, scores.expected, atol=1e-7)
    assert np.array_equal(again.rows, scores.rows)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(FormatError, match="is damaged"):
        read_queries(path)


@pytest.fixture(scope="module")
def results(toy: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("compared") / "out"
    methods = ["oasis", "lemon", "random-projection", "fomh+sigma=100000", "probe"]
    grid = Grid([toy], ["first", "second"], methods, [16], seeds=2)
    with pytest.warns(KernelWidthWarning, match="kernel width 100000"):
        finished = reproduce(grid.runs(), out)
    assert all(each.status == "computed" for each in finished)
    return out


def test_methods_without_information_are_marked_with_the_reason(results: Path) -> None:
    read = Results.of(read_summaries(results))
    lines = mark_lines(read, "toy")
    assert [line for line in lines if line.startswith("† FOMH, sigma=100000: ")]
    assert "16 of 16 bits are the same for all stored items" in " ".join(lines)
    assert "within 10 % of chance" in " ".join(lines)
    assert not [line for line in lines if "LEMON" in line]
    table = headline_table(read, "toy")
    marked = [row[0] for row in table.rows if row[0].endswith("†")]
    assert marked[-1] == "FOMH, sigma=100000 †" and "LEMON †" not in marked
    assert table.header == (
        *("method", "kind", "first"),
        *("second, all queries", "second, last round's"),
    )
    assert sum(row[2].startswith("*") for row in table.rows) == 1
    assert sum(row[2].startswith("~") for row in table.rows) == 1


def test_reproduce_prints_the_reason_of_a_mark(
    results: Path, toy: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    picks = ["--dataset", toy, "--setting", "first", "--method", "fomh+sigma=100000,lemon"]
    arguments = ["oasis", "reproduce", *picks, "--bits", "16", "--out", str(results)]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert re.search(r"16 bits, FOMH, sigma=100000: \d+ of 16 bits are the same", printed)
    assert "16 bits, LEMON" not in printed


@pytest.mark.slow
@pytest.mark.usefixtures("no_figures")
def test_report_has_paired_differences_latex_and_the_first_table(
    results: Path, tmp_path: Path
) -> None:
    written = write_report(results, tmp_path / "report")
    text = written.markdown.read_text("utf-8")
    assert "Paired differences" in text and "95 % interval" in text and "nDCG@k" in text
    assert "is better than every other method" in text or "is not better than" in text
    names = {path.name for path in written.tables}
    assert {"toy-at-a-glance.tex", "toy-paired-differences.tex", "search.csv"} <= names
    latex = (tmp_path / "report" / "tables" / "toy-at-a-glance.tex").read_text("utf-8")
    assert latex.count("\\textbf{") == 3 and latex.count("\\underline{") == 3
    assert "\\toprule" in latex and "&" in latex
    for name, *figures in _cells(headline(results))[2:]:
        title = name.removesuffix(" †").removesuffix(", no codes")
        [whole] = [row for row in _cells(text) if row[0] in (title, f"{title} †") and len(row) == 5]
        assert figures == whole[2:4]
    # summaries alone give the same without differences
    write_report(results / "summaries", tmp_path / "alone")
    alone = results.parent / "copied"
    alone.mkdir(exist_ok=True)
    for path in (results / "summaries").rglob("*.json"):
        target = alone / path.relative_to(results / "summaries")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    plain = write_report(alone, tmp_path / "plain").markdown.read_text("utf-8")
    assert "Paired differences" not in plain and "nDCG@k" in plain


@pytest.mark.slow
@pytest.mark.usefixtures("no_figures")
def test_summaries_of_an_older_version_are_reported(results: Path, tmp_path: Path) -> None:
    for path in (results / "summaries").rglob("*.json"):
        values = json.loads(path.read_text("utf-8"))
        values.pop("lookup")
        values["version"] = 2
        target = tmp_path / "old" / path.relative_to(results / "summaries")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(values), "utf-8")
    text = write_report(tmp_path / "old", tmp_path / "out").markdown.read_text("utf-8")
    assert "At a glance" in text and "nDCG@k" not in text


def test_command_line_prints_the_first_table(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["oasis", "report", str(results), "--headline"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 0
    assert capsys.readouterr().out.strip() == headline(results).strip()


def test_latex_escapes_what_latex_reads_otherwise() -> None:
    table = Table("50 %", "", ("a", "b"), (("x_1 & {y}", "~0.5 ± 0.1"), ("x^2", "*1")), 1)
    text = table.latex()
    assert r"x\_1 \& \{y\} & \underline{0.5 $\pm$ 0.1} \\" in text
    assert r"x\textasciicircum{}2 & \textbf{1} \\" in text


def test_short_table_has_the_better_variant_of_each_method_by_a_literal_mean() -> None:
    maps: dict[tuple[str, bool], dict[str, list[tuple[float, float | None]]]] = {}
    titles = {}
    for path in COCO79.rglob("*.json"):
        summary = json.loads(path.read_text("utf-8"))
        run, measured = summary["run"], summary["rounds"][-1]["all"]
        parameters = run["parameters"]
        if run["n_bits"] in (64, None) and (not parameters or "tuned" in parameters):
            seeds = maps.setdefault((run["method"], "tuned" in parameters), {})
            pair = measured["expected"], measured.get("asymmetric")  # rankers have one figure
            seeds.setdefault(run["setting"], []).append(pair)
            titles[run["method"]] = summary["about"]["method"]
    expected = {}
    settings = ["first", "second", "third"]
    for method, about in titles.items():
        means = {
            tuned: [np.mean([pair[0] for pair in maps[method, tuned][each]]) for each in settings]
            for tuned in (False, True)
            if (method, tuned) in maps
        }
        tuned = bool(True in means and sum(means[True]) > sum(means[False]))
        name = about["title"] + (", tuned" if tuned else "")
        name += {"online": "", "batch": ", batch", "ranker": ", no codes"}[about["kind"]]
        expected[name] = []
        for each in settings:
            pairs = np.array(maps[method, tuned][each], dtype=float).mean(axis=0)
            figures = [f"{value:.3f}" for value in pairs if not np.isnan(value)]
            expected[name].append(" / ".join(figures))
    header, _, *rows, chance = _cells(headline(COCO79))
    assert header == ["method", *settings] and chance[0] == "chance"
    assert {name: [each.strip("*") for each in figures] for name, *figures in rows} == expected
    bold = [name for name, *figures in rows if all(each.startswith("**") for each in figures)]
    assert bold == ["OASIS, tuned"]


def test_variant_that_lacks_a_setting_loses_and_of_equal_ones_the_published_is_taken() -> None:
    summaries = [each for each in read_summaries(COCO79) if each.run.n_bits == 64]
    published = [each for each in summaries if each.run.variant == "lemon"]
    tuned = [
        replace(each, run=replace(each.run, parameters=(("tuned", 24),))) for each in published
    ]
    assert better_variants(Results.of(tuned + published), "coco79", 64) == ["lemon"]
    lacking = [each for each in published if each.run.setting != "third"]
    assert better_variants(Results.of(tuned + lacking), "coco79", 64) == ["lemon+tuned=24"]
    assert better_variants(Results.of(lacking), "coco79", 64) == ["lemon"]


def test_short_table_gives_reasons_for_the_marks_it_shows(results: Path) -> None:
    text = headline(results)
    assert "| FOMH, sigma=100000 † " in text and "\n† FOMH, sigma=100000: " in text
    # published OMH-DQ is marked, but its tuned variant is shown
    read = Results.of(read_summaries(COCO79))
    assert [line[:9] for line in mark_lines(read, "coco79", 64)] == ["† OMH-DQ:", "† SAPMH: "]
    assert "†" not in headline(COCO79)


def test_readme_holds_the_table_that_the_report_makes() -> None:
    root = Path(__file__).parents[2]
    text = (root / "README.md").read_text("utf-8")
    _, _, rest = text.partition("--headline -->\n")
    block, _, _ = rest.partition("\n<!-- /headline -->")
    assert block == headline(COCO79).strip(), (
        "put the output of: oasis report reports/coco79/summaries --headline"
    )
