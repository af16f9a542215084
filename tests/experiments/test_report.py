"""Reports: cells and intervals by hand, the paper's figures, and files that need nothing else."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from oasis.errors import FormatError, InputError, MissingExtraError
from oasis.experiments import figures, overview, report
from oasis.experiments.figures import Curve, draw
from oasis.experiments.measure import packed_values
from oasis.experiments.report import as_csv, as_html, as_latex, as_markdown, headline, write_report
from oasis.experiments.results import Results
from oasis.experiments.tables import Cell, Cells, Estimate, Table, paired_difference
from oasis.experiments.task import Task, runbook_for

ROOT = Path(__file__).parents[2]
DATA = {
    "name": "mirflickr",
    "n_samples": 20_015,
    "n_features": {"image": 4096, "text": 1386},
    "n_classes": 24,
    "labels_per_sample": 3.8,
    "recipe": {},
    "sources": [],
}
ENVIRONMENT = {
    "machine": {"processor": "P", "cores": 2, "system": "S", "threads": 1},
    "versions": {"python": "3", "oasis": "0.1", "numpy": "2", "scipy": "1"},
    "commit": "abc",
}


def add(
    results: Results,
    method: str,
    n_bits: int | None,
    seed: int,
    values: tuple[float, ...],
    *,
    setting: str = "second",
    dataset: str = "mirflickr",
    parameters: tuple[tuple[str, Any], ...] = (),
    kind: str = "online",
    **more: Any,
) -> None:
    """Add a row of two rounds: MAP of the first round's and of the last round's queries, of all."""
    first, last, pooled = values
    row = Task("stream", dataset, setting, method, n_bits, seed, parameters).names()
    common = {"n_train": 10, "n_classes": 3, "n_encoded": 5, "encode_seconds": 0.01}
    row["rounds"] = [
        {
            "number": 1,
            "n_base": 10,
            "train_seconds": 1.5,
            **common,
            "new": {"n": 4, "expected": first, "chance": 0.1, "stable": first},
            "all": {"n": 4, "expected": first, "chance": 0.1},
        },
        {
            "number": 2,
            "n_base": 20,
            "train_seconds": 2.5,
            **common,
            "new": {"n": 4, "expected": last, "chance": 0.1, "stable": last, "asymmetric": last},
            "old": {"n": 4, "expected": 2 * pooled - last, "chance": 0.1},
            "all": {"n": 8, "expected": pooled, "chance": 0.1, "asymmetric": pooled},
        },
    ]
    row["history"] = [[first], [2 * pooled - last, last]]
    facts = {
        "data": {**DATA, "name": dataset},
        "method": {"title": method, "kind": kind, "defaults": {"alpha": 10.0}},
        "environment": ENVIRONMENT,
        "runbook": runbook_for(dataset, setting).digest(),
    }
    results.put({**row, **more}, facts)


@pytest.fixture
def results() -> Results:
    found = Results()
    for seed, shift in ((0, 0.0), (1, 0.02)):
        for setting in ("first", "second"):
            values = (0.5 + shift, 0.6 + shift, 0.55 + shift)
            add(found, "oasis", 64, seed, values, setting=setting)
            add(found, "oasis", 16, seed, tuple(v - 0.1 for v in values), setting=setting)
            lemon = tuple(v - 0.2 for v in values)
            add(found, "lemon", 64, seed, lemon, setting=setting)
    add(found, "probe", None, 0, (0.9, 0.9, 0.9), kind="ranker")
    add(found, "itq", 64, 0, (0.1, 0.105, 0.101), codes={"n_distinct": 4, "n_constant": 3})
    return found


def cells_of(results: Results, dataset: str = "mirflickr") -> Cells:
    rows = [row for row in results.of_kind("stream") if row["dataset"] == dataset]
    return Cells.of(results, dataset, rows)


# --- cells -------------------------------------------------------------------------------------


def test_estimate_is_mean_and_95_percent_interval() -> None:
    values = [0.5, 0.52, 0.57]
    found = Estimate.of(values)
    low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    assert found.mean == pytest.approx(np.mean(values))
    assert found.half == pytest.approx((high - low) / 2)
    assert Estimate.of([0.5]).half is None


def test_headline_has_the_papers_protocol_first_and_pooled_queries_named(results: Results) -> None:
    table = overview.headline_table(cells_of(results))
    assert table.header == (
        *("method", "kind", "first, last", "mean", "all", "second, last", "mean", "all"),
    )
    rows = {row[0]: row[2:] for row in table.rows}
    # means of two seeds: last round, mean over rounds, all queries together
    assert rows["OASIS"][:3] == ("*0.610 / 0.610", "*0.560", "*0.560 / 0.560")
    assert rows["LEMON"][3:] == ("~0.410 / 0.410", "~0.360", "~0.360 / 0.360")
    assert rows["ITQ †"][:3] == ("", "", "") and rows["probe (ceiling)"][3].startswith("0.900")
    assert rows["chance"][3] == "0.100"


def test_methods_without_information_are_marked_with_the_reason(results: Results) -> None:
    (line,) = overview.mark_lines(cells_of(results), 64)
    assert line.startswith("† ITQ: 3 of 64 bits are the same") and "within 10 % of chance" in line


def test_published_and_tuned_are_two_lines_and_no_better_one_is_chosen() -> None:
    found = Results()
    add(found, "lemon", 64, 0, (0.5, 0.5, 0.5))
    for setting, xi in (("second", 1.0), ("third", 0.1)):
        parameters = (("tuned", 24), ("xi", xi))
        add(found, "lemon", 64, 0, (0.4, 0.4, 0.4), setting=setting, parameters=parameters)
    names = [row[0] for row in overview.headline_table(cells_of(found)).rows]
    assert names == ["LEMON", "LEMON, tuned", "chance"]


def test_papers_figures_stand_beside_the_same_cell_alone(results: Results) -> None:
    add(results, "oasis-paper", 16, 0, (0.7, 0.7833, 0.7))
    add(results, "oasis-paper", 48, 0, (0.7, 0.7, 0.7))
    add(results, "fomh", 16, 0, (0.5, 0.5, 0.5), parameters=(("rho", 1.0),))
    cells = cells_of(results)
    found = {key: overview.published_map(cell) for key, cell in cells.cells.items()}
    assert {key[1:]: value for key, value in found.items() if value is not None} == {
        ("oasis-paper", 16): 0.7833
    }
    other = Results()
    add(other, "oasis-paper", 16, 0, (0.7, 0.7, 0.7), dataset="coco79")
    assert (
        overview.published_map(cells_of(other, "coco79").cells["second", "oasis-paper", 16]) is None
    )


def test_seeds_of_different_data_are_not_averaged(results: Results) -> None:
    row = results.rows["stream/mirflickr/second/lemon/64/1"]
    results.rows[row["key"]] = {**row, "of": {**row["of"], "runbook": "another"}}
    with pytest.raises(InputError, match="come from different data or rounds"):
        cells_of(results)


def test_sweep_stands_apart_and_has_the_default_in_it() -> None:
    found = Results()
    add(found, "oasis-paper", 64, 0, (0.5, 0.5, 0.5))
    for alpha in (0.1, 1.0, 100.0):
        parameters = (("alpha", alpha),)
        add(found, "oasis-paper", 64, 0, (0.4, 0.4, 0.4), parameters=parameters)
    cells = cells_of(found)
    ((key, values),) = cells.sweeps.items()
    assert key == ("second", "oasis-paper", "alpha", 64)
    assert list(values) == [0.1, 1.0, 10.0, 100.0] and list(cells.cells) == [
        ("second", "oasis-paper", 64)
    ]


# --- paired intervals --------------------------------------------------------------------------


def cell(values: dict[int, np.ndarray], rows: str = "r", n: tuple[int, ...] = ()) -> Cell:
    made = []
    for seed, each in values.items():
        queries = {"rows": rows, "n": list(n or (len(each),)), "expected": packed_values(each)}
        made.append({"seed": seed, "queries": queries, "n_bits": 64})
    return Cell(tuple(made), {})


def test_interval_covers_the_true_difference_about_as_often_as_it_says() -> None:
    rng, covered = np.random.default_rng(1), 0
    for _ in range(60):
        base = rng.random((3, 200)) * 0.5
        shift = 0.02 + 0.1 * rng.standard_normal((3, 200))
        ours = cell(dict(enumerate(np.clip(base + 0.3 + shift, 0, 1))))
        found = paired_difference(ours, cell(dict(enumerate(base + 0.3))))
        assert found is not None and found.n_queries == 600 and found.n_seeds == 3
        covered += found.low <= 0.02 <= found.high
    assert covered >= 53


def test_difference_is_decided_only_where_the_interval_leaves_zero_out() -> None:
    rng = np.random.default_rng(0)
    base = rng.random(300) * 0.5
    better = cell({0: base + 0.1})
    assert paired_difference(better, cell({0: base})).verdict == "better"  # type: ignore[union-attr]
    assert paired_difference(cell({0: base}), better).verdict == "worse"  # type: ignore[union-attr]
    noisy = cell({0: np.clip(base + rng.standard_normal(300) * 0.2, 0, 1)})
    shifted = cell({0: np.clip(base + rng.standard_normal(300) * 0.2, 0, 1)})
    assert paired_difference(noisy, shifted).verdict == "undecided"  # type: ignore[union-attr]


def test_only_the_same_queries_are_compared_and_the_last_rounds_alone_on_request() -> None:
    values = np.linspace(0.1, 0.5, 40)
    ours, theirs = cell({0: values + 0.2}, n=(30, 10)), cell({0: values}, n=(30, 10))
    last = paired_difference(ours, theirs, last=True)
    assert last is not None and last.n_queries == 10
    assert paired_difference(ours, cell({0: values}, rows="other", n=(30, 10))) is None
    assert paired_difference(ours, cell({1: values}, n=(30, 10))) is None
    assert paired_difference(ours, theirs, "asymmetric") is None


# --- files -------------------------------------------------------------------------------------


@pytest.fixture
def written(results: Results, tmp_path: Path) -> Path:
    pytest.importorskip("matplotlib")
    results.write(tmp_path / "mirflickr.jsonl")
    write_report(tmp_path / "mirflickr.jsonl", tmp_path / "report")
    return tmp_path / "report"


def test_page_needs_nothing_from_outside(written: Path) -> None:
    text = (written / "report.html").read_text("utf-8")
    assert "<script" not in text and not re.search(r"(?:src|href)=[\"'](?!#)", text)
    assert text.count("<svg") >= 2 and "currentColor" in text
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))


def test_every_table_is_csv_and_latex_too(written: Path) -> None:
    names = {path.stem for path in (written / "tables").glob("*.csv")}
    assert names == {path.stem for path in (written / "tables").glob("*.tex")} and len(names) > 8
    with (written / "tables" / "mirflickr-at-a-glance.csv").open(encoding="utf-8") as stream:
        header, *rows = csv.reader(stream)
    assert header[0] == "method" and rows[0][0] == "OASIS"
    markdown = (written / "report.md").read_text("utf-8")
    pictures = re.findall(r"\((figures/[^)]+)\)", markdown)
    assert pictures and all((written / each).stat().st_size > 5000 for each in pictures)


def test_report_repeats_and_leaves_the_results_alone(
    results: Results, written: Path, tmp_path: Path
) -> None:
    before = (tmp_path / "mirflickr.jsonl").read_bytes()
    write_report(tmp_path / "mirflickr.jsonl", tmp_path / "again")
    for path in written.rglob("*.*"):
        other = tmp_path / "again" / path.relative_to(written)
        assert path.read_bytes() == other.read_bytes(), path
    assert (tmp_path / "mirflickr.jsonl").read_bytes() == before


def test_failed_tasks_are_told(results: Results) -> None:
    row = Task("stream", "mirflickr", "second", "thor", 64, 0).names()
    results.put({**row, "error": "no luck"}, {})
    (section,) = report.sections_of(results)
    (part,) = [part for part in section.parts if part.name == "Failed"]
    assert part.tables[0].rows == (("stream", "second", "THOR", "64", "0", "no luck"),)


def test_papers_times_stand_beside_ours_round_by_round(results: Results) -> None:
    for method in ("oasis-paper", "lemon"):
        add(results, method, 16, 0, (0.5, 0.5, 0.5), setting="first")
    table = overview._table_2(cells_of(results))
    lines = {row[:2]: row[2:] for row in table.rows}
    assert lines["OASIS (paper)", "here"][:3] == ("1.50", "2.50", "")
    assert lines["OASIS (paper)", "paper"][0] == "1.09" and ("LEMON", "paper") not in lines


def test_methods_that_are_told_all_classes_are_marked_and_supervision_is_stated(
    results: Results,
) -> None:
    assert overview.told_lines(cells_of(results)) == []
    add(results, "iw-omh", 64, 0, (0.5, 0.5, 0.5))
    cells = cells_of(results)
    assert overview.told_lines(cells) == ["‡ told all classes of the stream in advance."]
    assert "IW-OMH ‡" in {row[0] for row in overview.headline_table(cells).rows}
    table = overview.method_table(cells)
    rows = {row[0]: dict(zip(table.header, row, strict=True)) for row in table.rows}
    found = {title: row["supervision"] for title, row in rows.items()}
    assert found == {
        "OASIS": "labels, words",
        "LEMON": "labels",
        "IW-OMH ‡": "labels, words",
        "ITQ": "none",
        "probe (ceiling)": "labels",
    }


def test_no_results_or_no_matplotlib_is_said_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="no such file of results"):
        Results.read(tmp_path / "absent.jsonl")
    with pytest.raises(InputError, match=r"expected a folder with \.jsonl files"):
        Results.read(tmp_path)
    (tmp_path / "other.jsonl").write_text('{"format": "other"}\n', "utf-8")
    with pytest.raises(FormatError, match="is not a file of results"):
        Results.read(tmp_path / "other.jsonl")

    def absent() -> None:
        raise MissingExtraError("matplotlib", extra="figures", what="drawing figures")

    monkeypatch.setattr(report, "check_available", absent)
    with pytest.raises(MissingExtraError, match="figures"):
        write_report(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_markup_in_names_is_escaped() -> None:
    table = Table("<b>", "", ("method", "x"), (("<script>", "*1"), ("a_b & c", "~2")), 1)
    assert "<script>" not in as_html(table) and "&lt;script&gt;" in as_html(table)
    assert r"a\_b \& c & \underline{2}" in as_latex(table)
    assert "| <script> | **1** |" in as_markdown(table)
    assert as_csv(table).splitlines()[1:] == ["<script>,1", "a_b & c,2"]


def test_drawings_repeat_and_nothing_is_drawn_of_nothing() -> None:
    pytest.importorskip("matplotlib")
    panels = {"first": [Curve("lemon", [1, 2], [0.1, 0.2], [0.01, 0.0]), Curve("x", [], [])]}
    ((one,), (two,)) = (draw("n", "t", "c", panels, "round") for _ in range(2))
    assert one == two and one.png.startswith(b"\x89PNG") and figures._INK not in one.svg
    assert draw("n", "t", "c", {"first": []}, "round") == ()


# --- what is tracked ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["coco79", "icons", "wiki", "synthetic-coco79", "mirflickr-text", "small"]
)
def test_tracked_reports_are_whole_sorted_and_name_their_facts(name: str) -> None:
    path = ROOT / "reports" / f"{name}.jsonl"
    results = Results.read(path)
    lines = path.read_text("utf-8").splitlines()[1:]
    keys = [json.loads(line)["key"] for line in lines]
    assert keys == sorted(keys) and len(keys) == len(results.rows)
    for row in results.rows.values():
        assert "commit" in results.facts_of(row)["environment"] and "error" not in row


def test_headline_of_the_tracked_report_is_the_mean_over_its_seeds() -> None:
    path = ROOT / "reports" / "coco79.jsonl"
    rows = [
        row
        for row in Results.read(path).of_kind("stream")
        if (row["setting"], row["method"], row["n_bits"]) == ("third", "lemon", 64)
        and not row["parameters"]
    ]
    last = np.mean([row["rounds"][-1]["new"]["expected"] for row in rows])
    pooled = np.mean([row["rounds"][-1]["all"]["expected"] for row in rows])
    (line,) = [each for each in headline(path).splitlines() if each.startswith("| LEMON  ")]
    assert len(rows) == 3 and f"{last:.3f} / " in line and f"{pooled:.3f} / " in line
