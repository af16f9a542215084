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
    assert "Beyond the labels, own, 16 bits" in first.stdout and "| ITQ " in first.stdout
    again = runner.invoke(application(), [*ASK, "--quick", "--out", str(tmp_path), "--json"])
    assert again.exit_code == 0, again.output
    rows = json.loads(again.stdout)["rows"]
    assert {each["status"] for each in rows} == {"kept"}
    assert len(rows) == 2 * 9  # two methods, nine episodes each


@pytest.mark.slow
def test_beyond_says_that_data_have_no_texts(tmp_path: Path) -> None:
    asked = [*ASK, "--quick", "--features", "image+meaning", "--out", str(tmp_path)]
    result = CliRunner().invoke(application(), asked)
    assert result.exit_code == 1
    lines = [each for each in result.stderr.splitlines() if each.startswith("error: ")]
    assert len(lines) == 18
    assert all("the texts of synthetic-coco79 are not known" in line for line in lines)


@pytest.mark.parametrize(
    ("more", "said"),
    [(["--bits", "many"], "not a list of whole numbers"), (["--content", "2"], "from 0 to 1")],
)
def test_beyond_refuses_lists_that_are_no_numbers(more: list[str], said: str) -> None:
    result = CliRunner().invoke(application(), [*ASK, *more])
    assert result.exit_code == 2
    assert said in result.stderr
