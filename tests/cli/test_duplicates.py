"""``oasis duplicates``."""

import json

import numpy as np
import pytest
from toy import NAMES, class_vectors
from typer.testing import CliRunner

from oasis.cli.app import application
from oasis.collection import Collection
from oasis.model import OASIS


@pytest.fixture
def path(tmp_path):
    rng = np.random.default_rng(0)
    X = {"image": rng.standard_normal((40, 32))}
    X["image"][30] = X["image"][5]
    model = OASIS(32, labels=class_vectors(4), random_state=0)
    with Collection.open(tmp_path / "c", model=model) as c:
        c.ingest(
            X, [[NAMES[row % 4]] for row in range(40)], ids=[f"{row}.jpg" for row in range(40)]
        )
    return str(tmp_path / "c")


def test_groups_are_listed_and_deleted_after_a_question(path):
    run = CliRunner().invoke
    listed = run(application(), ["duplicates", path])
    assert listed.exit_code == 0
    assert "5.jpg = 30.jpg" in listed.output
    assert json.loads(run(application(), ["duplicates", path, "--json"]).output)["groups"] == [
        ["5.jpg", "30.jpg"]
    ]
    refused = run(application(), ["duplicates", path, "--delete-all-but-first"], input="n\n")
    assert refused.exit_code == 1
    with Collection.open(path, readonly=True) as c:
        assert len(c) == 40
    done = run(application(), ["duplicates", path, "--delete-all-but-first"], input="y\n")
    assert done.exit_code == 0
    with Collection.open(path, readonly=True) as c:
        assert "30.jpg" not in c
        assert "5.jpg" in c
        assert c.duplicates() == []
