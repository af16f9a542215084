"""What the guides say of files and functions is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GUIDES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FILE = re.compile(r"`(?:oasis/)?((?:[\w-]+/)+\w+\.py)`")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
PLACE = re.compile(r"`(?:\w+\.)?(\w+)` in `((?:\w+/)*\w+\.py)`")


def found(path: str) -> Path | None:
    places = (folder / path for folder in (ROOT, ROOT / "src" / "oasis"))
    return next((place for place in places if place.is_file()), None)


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.name)
def test_files_and_functions_that_a_guide_names_are_there(guide: Path) -> None:
    text = guide.read_text("utf-8")
    assert [path for path in FILE.findall(text) if found(path) is None] == []
    for name, path in PLACE.findall(text):
        place = found(path)
        assert place is not None, path
        defined = re.search(rf"(?:def|class) {name}\b", place.read_text("utf-8"))
        assert defined, f"{name} is not defined in {path}"


def anchors(guide: Path) -> set[str]:
    """Return the anchors that GitHub makes of a guide's headings, those of equal ones once."""
    headings = re.findall(r"^#+ (.+)$", guide.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each).strip().lower().replace(" ", "-") for each in headings}


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.name)
def test_links_of_a_guide_lead_to_files_and_headings(guide: Path) -> None:
    for path, anchor in LINK.findall(guide.read_text("utf-8")):
        target = guide.parent / path if path else guide
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


def test_the_walk_of_contributing_is_checked() -> None:
    assert len(PLACE.findall((ROOT / "CONTRIBUTING.md").read_text("utf-8"))) >= 5


def test_the_drawing_of_the_rooms_is_the_import_contract() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## Rooms")[2]
    lines = text.partition("```text\n")[2].partition("```")[0].splitlines()
    drawn = [line[:41].split() for line in lines]  # what is in a room is right of it
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    assert drawn == [re.findall(r"\w+", layer) for layer in layers]
