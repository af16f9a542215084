"""Hits by scores and recall of neighbours, against enumeration of all orders."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from oasis.codes import hamming, unpack
from oasis.errors import InputError
from oasis.metrics import asymmetric_hits, hits_from_scores, neighbour_recall

RNG = np.random.default_rng(0)
BASE = RNG.integers(0, 4, (7, 1), dtype=np.uint8)
QUERIES = RNG.integers(0, 4, (20, 1), dtype=np.uint8)
BASE_LABELS = np.eye(3, dtype=np.uint8)[RNG.integers(3, size=7)]
QUERY_LABELS = np.eye(3, dtype=np.uint8)[RNG.integers(3, size=20)]
SIMILAR = (QUERY_LABELS @ BASE_LABELS.T) > 0


def orders(distances: np.ndarray) -> list[list[int]]:
    """Return every order of the base in which no nearer item comes later."""
    found: list[list[int]] = [[]]
    for value in np.unique(distances):
        group = np.flatnonzero(distances == value).tolist()
        found = [[*one, *each] for one in found for each in permutations(group)]
    return found


def test_hits_by_scores_are_those_of_a_stable_sort() -> None:
    scores = RNG.integers(0, 5, (20, 7)).astype(np.float32)
    order = np.argsort(-scores, axis=1, kind="stable")
    expected = np.take_along_axis(SIMILAR, order, axis=1)
    for k in (1, 4, 7, 9):
        found = hits_from_scores(scores, QUERY_LABELS, BASE_LABELS, k)
        assert (found == expected[:, :k]).all()
        blocks = hits_from_scores(iter(np.split(scores, [3, 11])), QUERY_LABELS, BASE_LABELS, k)
        assert (blocks == found).all()
    groups = np.array([0, 1, 1, 0, 2, 2, 1])
    grouped = hits_from_scores(scores[:, :3], QUERY_LABELS, BASE_LABELS, 5, groups)
    assert (grouped == hits_from_scores(scores[:, groups], QUERY_LABELS, BASE_LABELS, 5)).all()
    with pytest.raises(InputError, match="scores have 19 rows; expected 20"):
        hits_from_scores(scores[1:], QUERY_LABELS, BASE_LABELS, 2)


def test_asymmetric_hits_are_those_of_inner_products() -> None:
    values = RNG.integers(-3, 4, (20, 8)).astype(np.float32)  # whole numbers: sums are exact
    scores = values @ np.where(unpack(BASE) > 0, 1.0, -1.0).astype(np.float32).T
    found = asymmetric_hits(values, BASE, QUERY_LABELS, BASE_LABELS, 3)
    assert (found == hits_from_scores(scores, QUERY_LABELS, BASE_LABELS, 3)).all()


def test_recall_of_neighbours_is_the_mean_over_orders() -> None:
    nearest = np.stack([RNG.permutation(7)[:3] for _ in range(20)])
    found = neighbour_recall(nearest, BASE, codes=QUERIES)
    expected = [
        np.mean([len(set(each[:3]) & set(nearest[row])) / 3 for each in orders(distances)])
        for row, distances in enumerate(hamming(QUERIES, BASE))
    ]
    assert found == pytest.approx(np.mean(expected))
    values = RNG.standard_normal((20, 8)).astype(np.float32)
    scores = values @ np.where(unpack(BASE) > 0, 1.0, -1.0).astype(np.float32).T
    first = np.argsort(-np.round(scores, 4), axis=1, kind="stable")[:, :3]
    shares = [len(set(a) & set(b)) / 3 for a, b in zip(first, nearest, strict=True)]
    by_values = neighbour_recall(nearest, BASE, projections=values)
    assert by_values == pytest.approx(np.mean(shares), abs=0.05)
