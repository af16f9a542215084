"""How novel a query is, against a loop over all samples, and what it does to queries."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import toy

from oasis import OASIS
from oasis.codes import unpack
from oasis.model.calibration import SAMPLES
from oasis.model.content import PRIOR_ROWS
from oasis.model.novelty import (
    LEAST_VARIANCE,
    PRIOR_DEVIATION,
    PRIOR_DISTANCES,
    PRIOR_SAMPLES,
    ContentSums,
)
from oasis.model.weighing import NOVEL


class Truth:
    """Distances by their definition, from the bits (n, r_c) and label sets of all samples."""

    def __init__(self, B, label_sets, classes):
        self.B, self.classes = B, classes
        self.has = np.array([[name in names for name in classes] for names in label_sets])
        self.mean = B.mean(axis=0)
        share = len(B) / (len(B) + PRIOR_ROWS)
        S = share * np.cov(B.T, bias=True) + (1 - share) * np.eye(B.shape[1])
        variances, U = np.linalg.eigh(S)
        variances = np.maximum(variances, LEAST_VARIANCE * variances.max())
        self.inverse = U @ np.diag(1 / variances) @ U.T

    def centre(self, column, without=None):
        """The mean of a class, of which one sample may be left out."""
        rows = np.flatnonzero(self.has[:, column])
        if without is not None:
            rows = rows[rows != without]
        return (self.B[rows].sum(axis=0) + PRIOR_SAMPLES * self.mean) / (len(rows) + PRIOR_SAMPLES)

    def nearest(self, v, without=None):
        """``ln d`` of content values; of a sample as if it were in no mean."""
        v, found = np.clip(v, -1, 1), []
        for column in range(len(self.classes)):
            own = without is not None and self.has[without, column]
            apart = v - self.centre(column, without if own else None)
            found.append(apart @ self.inverse @ apart)
        return np.log(min(found))

    def measured(self, v, i):
        """``ln d`` of sample i, whose distances from its own classes are enlarged."""
        v, found = np.clip(v, -1, 1), []
        for column, own in enumerate(self.has[i]):
            n = self.has[:, column].sum() + PRIOR_SAMPLES
            apart = (v - self.centre(column)) * (n / (n - 1) if own else 1.0)
            found.append(apart @ self.inverse @ apart)
        return np.log(min(found))


def learned(*sizes, n_bits=128):
    chunks = [toy.chunk(n, seed) for seed, n in enumerate(sizes)]
    model, codes = OASIS(n_bits=n_bits, random_state=0), []
    for X, y in chunks:
        codes.append(model.partial_fit(X, y).codes_.copy())
    B = unpack(np.vstack(codes))[:, model.n_label_bits :].astype(np.float64)
    return model, B, [names for _, y in chunks for names in y]


@pytest.mark.parametrize("sizes", [(300,), (40, 1, 90)])
def test_distances_are_those_of_all_samples_however_they_came(sizes):
    model, B, label_sets = learned(*sizes)
    truth = Truth(B, label_sets, model.classes_)
    content = model.state_.query_map.parts(toy.chunk(30, 9)[0]).content
    classes = model.state_.content_sums.class_content(model.state_.codebook.counts)
    expected = [truth.nearest(v) for v in content.astype(np.float64)]
    np.testing.assert_allclose(classes.nearest(content), expected, atol=1e-4)


def test_a_sample_is_measured_as_if_it_were_in_no_mean():
    rng = np.random.default_rng(0)
    B = np.where(rng.random((30, 8)) < 0.5, 1.0, -1.0)
    names = ("x", "y", "z")
    label_sets = [[names[i % 3]] + (["x"] if i % 5 == 0 else []) for i in range(30)]
    truth = Truth(B, label_sets, names)
    L = sp.csr_array(truth.has.astype(np.float64))
    sums = ContentSums.zero(8).plus(B, L)
    found = sums.class_content(truth.has.sum(axis=0)).nearest_of_known(
        B.astype(np.float32), truth.has
    )
    expected = [truth.nearest(b, without=i) for i, b in enumerate(B)]
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_the_usual_distance_is_that_of_learned_samples():
    n = SAMPLES - 6  # all samples of the chunk are measured
    model, B, label_sets = learned(n)
    truth = Truth(B, label_sets, model.classes_)
    X, _ = toy.chunk(n, 0)
    content = model.state_.query_map.parts(X).content.astype(np.float64)
    logs = [truth.measured(v, i) for i, v in enumerate(content) if label_sets[i]]
    prior = np.log(model.n_content_bits)
    weight = len(logs) + PRIOR_DISTANCES
    mean = (np.sum(logs) + PRIOR_DISTANCES * prior) / weight
    squares = np.sum(np.square(logs)) + PRIOR_DISTANCES * (prior**2 + PRIOR_DEVIATION**2)
    np.testing.assert_allclose(
        model.state_.query_map.novelty.usual,
        (mean, np.sqrt(squares / weight - mean**2)),
        rtol=1e-3,
    )


def test_what_was_measured_among_fewer_classes_fades():
    sums = learned(200)[0].state_.content_sums
    c, r = sums.LB.shape
    grown = sums.plus(np.zeros((0, r)), sp.csr_array((0, 2 * c)))
    np.testing.assert_allclose(grown.distances, sums.distances / 2)
    assert grown.LB.shape == (2 * c, r) and not grown.LB[c:].any()


def test_labels_of_a_novel_query_count_less_and_its_content_as_before():
    model, *_ = learned(300)
    asked = {name: rows[::-1] for name, rows in toy.chunk(40, 3)[0].items()}
    asked["image"] = -asked["image"]  # unlike every sample
    map_ = model.state_.query_map
    parts = map_.parts(asked)
    u = np.maximum(map_.novelty.of(parts.content), 0)
    assert (u > 1).any()
    typical = replace(map_, novelty=_Typical()).joined(parts, 0.1)
    values, n_label = model.project(asked, content=0.1), model.n_label_bits
    labels = slice(0, n_label - 1)  # without the doubt bit, whose sign changes with confidence
    less = 1 / (1 + (u / NOVEL) ** 2)
    np.testing.assert_allclose(
        values[:, labels], less[:, None] * typical[:, labels], rtol=1e-4, atol=1e-6
    )
    assert np.array_equal(values[:, n_label:], typical[:, n_label:])


class _Typical:
    """Nothing is novel."""

    def of(self, content):
        return np.zeros(len(content), dtype=np.float32)


def test_an_unknown_class_is_novel_and_known_ones_are_not():
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(6, 40)) * 2

    def drawn(which, n):
        return {"m": centres[which] + rng.normal(size=(n, 40))}

    numbers = np.arange(400) % 5
    model = OASIS(n_bits=128, random_state=0)
    X = {"m": centres[numbers] + rng.normal(size=(400, 40))}
    model.partial_fit(X, [[f"class {i}"] for i in numbers])
    map_ = model.state_.query_map
    known, new = (
        map_.novelty.of(map_.parts(drawn(which, 50)).content) for which in (numbers[:50], 5)
    )
    assert np.median(new) > 2 and np.median(known) < 1


def test_without_classes_or_content_bits_nothing_is_novel():
    X, y = toy.chunk(60, 0)
    model = OASIS(n_bits=128, random_state=0).partial_fit(X, [[]] * 60)
    map_ = model.state_.query_map
    assert not map_.novelty.of(map_.parts(X).content).any()
    assert OASIS(n_bits=64, random_state=0).partial_fit(X, y).state_.query_map.novelty is None
