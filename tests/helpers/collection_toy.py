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


@pytest.fixture
def filled(folder):
    """A collection of three chunks, small and large, beside the truth."""
    truth = Truth()
    with open_toy(folder / "c") as c:
        for number, (n, bare) in enumerate([(60, 0.1), (7, 0.0), (40, 0.5)]):
            X, y = chunk(n, seed=number, bare=bare, classes=NAMES[: 4 + number])
            ids = [f"{number}-{row}" if row % 3 else 1000 * number + row for row in range(n)]
            facts = payloads(n, number)
            c.ingest(X, y, ids, facts)
            truth.ingest(X, y, ids, facts)
        yield c, truth


def first(truth, n, number):
    X, y = chunk(n, seed=number, classes=NAMES[: min(10, 4 + number)])
    ids = [f"{number}-{row}" for row in range(n)]
    truth.ingest(X, y, ids)
    return X, y, ids
