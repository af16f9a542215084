"""Codes that were made elsewhere: every form of them, against brute force and against runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import experiment_data
import numpy as np
import pytest
import scipy.io

from oasis.cli import main
from oasis.codes import pack
from oasis.errors import DataError, InputError
from oasis.experiments.given import evaluate, evaluation_table
from oasis.experiments.measure import measures
from oasis.experiments.stream import carry_out, deal
from oasis.experiments.task import Task, load_dataset
from oasis.metrics import average_precision_from_scores, chance_map, mean_average_precision

toy = experiment_data.toy

RNG = np.random.default_rng(5)
NUMBERS = RNG.integers(4, size=80)
LABELS = np.eye(4, dtype=np.uint8)[NUMBERS]
REAL = LABELS @ RNG.standard_normal((4, 16)) + 0.8 * RNG.standard_normal((80, 16))
PACKED = pack(REAL.astype(np.float32))
PARTS = {"base": slice(20, 80), "query": slice(0, 20)}


def _file(path: Path, codes: np.ndarray, labels: np.ndarray = LABELS, **more: Any) -> Path:
    arrays = {f"{part}_codes": codes[rows] for part, rows in PARTS.items()}
    arrays |= {f"{part}_labels": labels[rows] for part, rows in PARTS.items()}
    np.savez(path, **arrays, **more)
    return path


@pytest.mark.parametrize(
    "codes",
    [PACKED, REAL, np.sign(REAL), (REAL > 0).astype(np.uint8), (REAL > 0)],
    ids=["packed", "real", "signs", "bits", "bool"],
)
def test_every_form_of_codes_is_judged_alike(tmp_path: Path, codes: np.ndarray) -> None:
    row = evaluate(_file(tmp_path / "mine.npz", codes))
    expected = mean_average_precision(PACKED[:20], PACKED[20:], LABELS[:20], LABELS[20:])
    found = row["rounds"][-1]["all"]
    assert found["expected"] == pytest.approx(expected, rel=1e-5)
    assert found["chance"] == pytest.approx(chance_map(LABELS[:20], LABELS[20:]), rel=1e-5)
    assert ("asymmetric" in found) == (codes is REAL)
    assert row["n_bits"] == 16 and row["codes"]["n_constant"] == 0
    assert "MAP@100" in {line[0] for line in evaluation_table(row).rows}


def test_class_numbers_scores_and_matlab_names(tmp_path: Path) -> None:
    base = mean_average_precision(PACKED[:20], PACKED[20:], LABELS[:20], LABELS[20:])
    path = tmp_path / "theirs.mat"
    scipy.io.savemat(
        path,
        {
            "Bq": np.sign(REAL[:20]),
            "Bb": np.sign(REAL[20:]),
            "yq": NUMBERS[:20],
            "yb": NUMBERS[20:],
        },
    )
    names = {"query_codes": ("Bq",), "base_codes": ("Bb",)}
    names |= {"query_labels": ("yq",), "base_labels": ("yb",)}
    row = evaluate(path, names)
    assert row["rounds"][-1]["all"]["expected"] == pytest.approx(base, rel=1e-5)
    scores = REAL[:20] @ REAL[20:].T
    ranked = tmp_path / "ranked.npz"
    np.savez(ranked, scores=scores, query_labels=LABELS[:20], base_labels=LABELS[20:])
    found = evaluate(ranked)
    expected = average_precision_from_scores(scores, LABELS[:20], LABELS[20:]).mean()
    assert found["n_bits"] is None
    assert found["rounds"][-1]["all"]["expected"] == pytest.approx(expected, rel=1e-5)


def test_codes_of_a_stream_are_judged_as_the_stream_was(toy: str, tmp_path: Path) -> None:
    task = Task("stream", toy, "first", "lemon", 16, 0)
    _, outcome = carry_out(task, deal(task, load_dataset(toy)), lambda done, of: None)
    np.savez(
        tmp_path / "copy.npz",
        base_codes=outcome.base_codes(),
        query_codes=outcome.projections[0],
        base_labels=outcome.train_labels,
        query_labels=outcome.sets[0].labels,
    )
    row, expected = evaluate(tmp_path / "copy.npz"), measures(outcome)
    for key in ("lookup", "by_scores", "codes"):
        assert row[key] == expected[key]
    assert row["rounds"][-1]["all"] == expected["rounds"][-1]["all"]


@pytest.mark.slow
def test_command_line_prints_keeps_and_reports_several_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(_file(tmp_path / f"{name}.npz", REAL + seed)) for seed, name in enumerate("ab")]
    out = str(tmp_path / "out")
    monkeypatch.setattr(sys, "argv", ["oasis", "evaluate", *files, "--out", out])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 0
    printed = capsys.readouterr()
    assert "nDCG@100" in printed.out and "report.html" in printed.err
    report = (tmp_path / "out" / "report" / "report.md").read_text("utf-8")
    assert "| a " in report and "| b " in report and "given" in report
    assert "Paired differences" in report
    arguments = ["oasis", "evaluate", *files, "--name", "mine", "--json"]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit):
        main()
    rows = json.loads(capsys.readouterr().out)
    assert [(row["method"], row["seed"]) for row in rows] == [("mine", 0), ("mine", 1)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"base_codes": None}, "no base_codes .* Give its variable by --map base_codes"),
        ({"query_labels": None}, "no query_labels"),
        ({"query_codes": REAL[:19]}, r"query_codes are float64 \(19, 16\), expected 20 rows"),
        ({"query_codes": REAL[:20, :15]}, "15 columns; expected a multiple of 8"),
        ({"query_codes": REAL[:20, :8]}, "base_codes have 16 bits, query_codes 8"),
        ({"query_codes": np.full((20, 16), np.nan)}, "not finite"),
        ({"base_labels": LABELS[20:] * 3}, "values other than 0 and 1"),
        ({"base_labels": LABELS[20:, :3]}, "base_labels are"),
        ({"scores": REAL[:20] @ REAL[21:].T}, "scores are .* queries times base"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    _file(tmp_path / "mine.npz", REAL)
    with np.load(tmp_path / "mine.npz") as archive:
        arrays = dict(archive) | change
    np.savez(tmp_path / "bad.npz", **{k: v for k, v in arrays.items() if v is not None})
    with pytest.raises(DataError, match=message):
        evaluate(tmp_path / "bad.npz")
    with pytest.raises(InputError, match="unknown name 'codes' in a mapping"):
        evaluate(tmp_path / "mine.npz", {"codes": ("x",)})
