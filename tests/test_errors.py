"""The errors of the package."""

import re
import tomllib
from pathlib import Path

import oasis
from oasis.errors import MissingExtraError

ROOT = Path(__file__).resolve().parents[1]


def test_missing_extra_says_what_works_in_a_clone_and_names_an_extra_that_exists():
    said = str(MissingExtraError("pyarrow", extra="parquet", what="reading Parquet"))
    assert "pip install -e '.[parquet]' in a clone" in said
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    sources = Path(oasis.__file__).parent.rglob("*.py")
    named = {
        extra
        for path in sources
        for extra in re.findall(r'MissingExtraError\([^)]*extra="(\w+)"', path.read_text("utf-8"))
    }
    assert named
    assert named <= set(project["optional-dependencies"])
