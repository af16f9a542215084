"""Small collections for the tests."""

import numpy as np
import pytest
from collection_truth import Truth, toy_model
from toy import NAMES, chunk

from oasis.collection import Collection


def open_toy(path, **options):
    return Collection.open(path, model=toy_model(), **options)


def payloads(n, seed=0):
    rng = np.random.default_rng(seed)
    kinds = ["cat", "dog", None, 3, True, 2.5]
    return [
        {"year": int(rng.integers(2015, 2026)), "kind": kinds[int(rng.integers(6))], "row": row}
        for row in range(n)
    ]


def fill(c):
    """Ingest three chunks, small and large; return the truth beside them."""
    truth = Truth()
    for number, (n, bare) in enumerate([(60, 0.1), (7, 0.0), (40, 0.5)]):
        X, y = chunk(n, seed=number, bare=bare, classes=NAMES[: 4 + number])
        ids = [f"{number}-{row}" if row % 3 else 1000 * number + row for row in range(n)]
        facts = payloads(n, number)
        c.ingest(X, y, ids, facts)
        truth.ingest(X, y, ids, facts)
    return truth


@pytest.fixture
def filled(folder):
    """A collection of three chunks beside the truth."""
    with open_toy(folder / "c") as c:
        yield c, fill(c)


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory):
    """The same, made once for all tests of a file that change nothing in it."""
    with open_toy(tmp_path_factory.mktemp("unchanged") / "c") as c:
        yield c, fill(c)


def first(truth, n, number):
    X, y = chunk(n, seed=number, classes=NAMES[: min(10, 4 + number)])
    ids = [f"{number}-{row}" for row in range(n)]
    truth.ingest(X, y, ids)
    return X, y, ids
