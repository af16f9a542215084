"""The commands that README and the first guide show, run in a folder of the files they show.

Pictures are noise, so that texts alone decide. Numbers are not compared: scores and times change.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(csv|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.slow


def shape(text: str) -> str:
    """Return a text without numbers, and with single spaces."""
    lines = [re.sub(r"[-+]?\d[\d.,]*", "#", line).split() for line in text.splitlines()]
    return "\n".join(" ".join(line) for line in lines if line)


@pytest.mark.parametrize("guide", ["README.md", "docs/start.md"])
def test_commands_print_what_the_guide_shows(guide, tmp_path, oasis, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for name in ("lake.jpg", "otters.jpg", "dogs.jpg"):
        pixels = rng.integers(0, 256, (80, 80, 3), dtype=np.uint8)
        for folder in (tmp_path, tmp_path / "photos"):
            Image.fromarray(pixels).save(folder / name)
    n_commands = 0
    for kind, body in BLOCK.findall((ROOT / guide).read_text("utf-8")):
        if kind == "csv":
            (tmp_path / "items.csv").write_text(body, "utf-8")
            continue
        for step in body.split("$ oasis ")[1:]:
            command, _, printed = step.partition("\n")
            arguments = re.findall(r'"[^"]*"|\S+', command)
            arguments = [each.strip('"') for each in arguments]
            n_commands += 1
            if arguments[0] == "serve":
                assert shape(served(arguments, tmp_path)) == shape(printed)
                continue
            code, out, err = oasis(*arguments)
            assert (code, err) == (0, ""), command
            assert shape(out) == shape(printed), command
    assert n_commands >= 3


def served(arguments: list[str], folder: Path) -> str:
    """Return the first line that the service prints."""
    command = [sys.executable, "-m", "oasis", *arguments, "--port", "0"]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as service:
        assert service.stdout is not None
        line = service.stdout.readline()
        service.send_signal(signal.SIGTERM)
    return line
