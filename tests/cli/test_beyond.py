"""``oasis beyond``: tables for people, one JSON document, and clear refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oasis.cli.app import application

ASK = ("beyond", "--dataset", "synthetic@300", "--method", "itq,float-cosine", "--bits", "16")


@pytest.mark.slow
def test_beyond_prints_tables_and_keeps_what_is_there(tmp_path: Path) -> None:
    runner = CliRunner()
    first = runner.invoke(application(), [*ASK, "--quick", "--out", str(tmp_path)])
    assert first.exit_code == 0, first.output
    assert "labels, and beyond" in first.stdout
    assert (tmp_path / "beyond.md").read_text("utf-8").strip() == first.stdout.strip()
    again = runner.invoke(application(), [*ASK, "--quick", "--out", str(tmp_path), "--json"])
    assert again.exit_code == 0, again.output
    outcomes = json.loads(again.stdout)["outcomes"]
    assert {each["status"] for each in outcomes} == {"kept"}
    assert len(outcomes) == 2 * 9  # two methods, nine episodes each


@pytest.mark.slow
def test_beyond_says_once_that_data_have_no_texts(tmp_path: Path) -> None:
    asked = [*ASK, "--quick", "--features", "image+meaning", "--out", str(tmp_path)]
    result = CliRunner().invoke(application(), asked)
    assert result.exit_code == 0, result.output
    assert result.stderr.count("the texts of synthetic-coco79 are not known") == 1


def test_beyond_refuses_lists_that_are_no_numbers() -> None:
    result = CliRunner().invoke(application(), [*ASK[:-1], "many"])
    assert result.exit_code == 2
    assert "not a list of numbers" in result.stderr
