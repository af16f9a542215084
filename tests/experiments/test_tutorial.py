"""The tutorial runs from its first cell to its last, and says what it says in the file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import notebook
import pytest

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.ipynb"


@pytest.mark.slow
def test_tutorial_runs_and_its_outputs_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fontawesomefree")
    monkeypatch.chdir(TUTORIAL.parent)  # the notebook moves to a folder of its own
    monkeypatch.setattr(sys, "path", list(sys.path))
    cells = notebook.code_cells(json.loads(TUTORIAL.read_text("utf-8")))
    names: dict[str, object] = {"__name__": "__main__"}
    pictures = 0
    for cell in cells:
        outputs = notebook.execute(cell, names)
        assert notebook.text_of(outputs) == notebook.text_of(cell["outputs"]), (
            "run: python tests/helpers/notebook.py docs/tutorial.ipynb"
        )
        pictures += sum("image/png" in each.get("data", {}) for each in outputs)
    assert len(cells) == 10 and pictures == 2
