from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from oasis.datasets import Dataset, load
from oasis.datasets.coco import LABEL_COUNTS
from oasis.datasets.synthetic import COCO79, SHAPES, Shape, generate
from oasis.errors import InputError

SHARED = Path(os.environ.get("OASIS_SHARED", Path(__file__).parents[2] / ".." / "shared")) / "data"

# Distinct label sets among the first n samples of coco79 in random order
COCO_CURVE = {300: 207, 1_000: 523, 2_000: 950, 5_000: 1_976, 10_000: 3_370, 20_000: 5_720}
COCO_CURVE[39_798] = 9_547


@pytest.fixture(scope="module")
def whole() -> Dataset:
    """All labels of a coco79-like set; features only of the rows that are taken."""
    return generate("coco79", seed=11, lazy=True)


def n_distinct(L: np.ndarray) -> int:
    return len(np.unique(np.packbits(L, axis=1), axis=0))


def probe(X: list[Any], L: np.ndarray, n_queries: int) -> float:
    """MAP of a ridge onto the labels that ranks the other samples by their true label sets."""
    parts = []
    for matrix in X:
        dense = matrix.toarray() if sp.issparse(matrix) else matrix
        norms = np.linalg.norm(dense, axis=1, keepdims=True)
        parts.append(dense / np.where(norms > 0, norms, 1))
    features = np.hstack([*parts, np.ones((len(L), 1))]).astype(np.float32)
    query, base = features[:n_queries], features[n_queries:]
    targets = L[n_queries:].astype(np.float32)
    if base.shape[0] < base.shape[1]:
        gram = base @ base.T
        gram.flat[:: len(gram) + 1] += 1.0
        scores = (query @ base.T) @ np.linalg.solve(gram, targets)
    else:
        gram = base.T @ base
        gram.flat[:: len(gram) + 1] += 1.0
        scores = query @ np.linalg.solve(gram, base.T @ targets)
    ranking = scores @ (targets / np.sqrt(targets.sum(axis=1, keepdims=True))).T
    similar = L[:n_queries].astype(np.float32) @ targets.T > 0
    total = 0.0
    for row, relevant in zip(ranking, similar, strict=True):
        ranks = 1 + np.flatnonzero(relevant[np.argsort(-row, kind="stable")])
        if len(ranks):
            total += float(np.mean(np.arange(1, len(ranks) + 1) / ranks))
    return total / n_queries


@pytest.mark.parametrize("name", list(SHAPES))
def test_synthetic_label_counts_and_skew_are_like_coco79(name: str, whole: Dataset) -> None:
    L = whole.L if name == "coco79" else generate(name, n_samples=20_000, seed=2, lazy=True).L
    per_sample = L.sum(axis=1, dtype=np.int64)
    assert per_sample.min() >= 1
    assert per_sample.mean() == pytest.approx(2.36, abs=0.05)
    share = np.bincount(per_sample, minlength=16)[1:15] / len(L)
    wanted = np.array(LABEL_COUNTS) / sum(LABEL_COUNTS)
    assert np.abs(share - wanted).max() < 0.01
    found, curve = np.sort(L.mean(axis=0))[::-1], np.sort(SHAPES[name].frequencies)[::-1]
    common = curve > 0.005
    assert np.abs(found[common] / curve[common] - 1).max() < 0.25
    assert found.min() > 0


def test_synthetic_distinct_label_sets_follow_the_coco79_curve(whole: Dataset) -> None:
    for n, expected in COCO_CURVE.items():
        assert n_distinct(whole.L[:n]) == pytest.approx(expected, rel=0.2), n


@pytest.mark.parametrize(("name", "n_words"), [("coco79", 4.78), ("mirflickr", 16), ("nuswide", 8)])
def test_synthetic_text_has_the_words_asked_for(name: str, n_words: float) -> None:
    data = generate(name, n_samples=2_000, seed=4, lazy=True)
    text = data.X["text"][np.arange(2_000)]
    n = np.diff(text.indptr)
    assert n.min() >= 1
    assert n.mean() == pytest.approx(n_words, rel=0.03)
    assert n.std() == pytest.approx(0.28 * n_words, rel=0.1)
    assert (text.data == 1).all()
    assert text.has_canonical_format
    more = replace(SHAPES[name], text_nonzeros=30.0, n_samples=300)
    assert generate(more, lazy=True).X["text"][np.arange(300)].nnz / 300 == pytest.approx(
        30, rel=0.05
    )


def test_synthetic_images_are_like_pooled_relu_features(whole: Dataset) -> None:
    image = whole.take(np.arange(500))["image"]
    assert image.dtype == np.float32
    assert image.min() == 0
    # coco79: 38 % zeros, between 27 % and 49 % for most dimensions; mean 0.28, skewness 2.6
    zeros = (image == 0).mean(axis=0)
    assert zeros.mean() == pytest.approx(0.38, abs=0.05)
    assert np.quantile(zeros, 0.1) == pytest.approx(0.27, abs=0.06)
    assert np.quantile(zeros, 0.9) == pytest.approx(0.49, abs=0.06)
    assert image.mean() == pytest.approx(0.28, abs=0.03)
    centred = image - image.mean()
    assert (centred**3).mean() / image.std() ** 3 == pytest.approx(2.6, abs=0.5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "n"), [("coco79", 4_000), ("mirflickr", 1_800), ("nuswide", 1_800)]
)
def test_synthetic_probe_needs_both_modalities(name: str, n: int) -> None:
    data = generate(name, n_samples=n, seed=6)
    X = data.take(np.arange(n))
    both = probe([X["image"], X["text"]], data.L, 300)
    image, text = probe([X["image"]], data.L, 300), probe([X["text"]], data.L, 300)
    assert 0.75 < both < 0.9
    assert image < both - 0.02
    assert text < both - 0.02


def small(**change: Any) -> Shape:
    base: dict[str, Any] = {"image_features": 20, "text_features": 40, "n_samples": 60}
    return replace(COCO79, **{**base, **change})


def test_synthetic_rows_do_not_depend_on_how_they_are_taken() -> None:
    lazy = generate(small(), seed=7, lazy=True)
    held = generate(small(), seed=7)
    everything = np.arange(60)
    assert isinstance(held.X["image"], np.ndarray)
    assert isinstance(held.X["text"], sp.csr_array)
    assert np.array_equal(lazy.L, held.L)
    assert np.array_equal(lazy.take(everything)["text"].toarray(), held.X["text"].toarray())
    np.testing.assert_allclose(lazy.take(everything)["image"], held.X["image"], rtol=1e-5)
    rows = np.array([41, 3, 3, 59])
    part = lazy.take(rows)
    # the mixture is one matrix product per block, whose rounding depends on the block's size
    np.testing.assert_allclose(part["image"], held.X["image"][rows], rtol=1e-4, atol=1e-6)
    assert np.array_equal(part["text"].toarray(), held.X["text"].toarray()[rows])
    assert lazy.take([])["text"].shape == (0, 40)
    assert lazy.take([])["image"].shape == (0, 20)


def test_synthetic_repeats_with_the_seed_and_differs_without() -> None:
    one, same, other = (generate(small(), seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one.L, same.L)
    assert np.array_equal(one.X["image"], same.X["image"])
    assert not np.array_equal(one.L, other.L)
    assert not np.array_equal(one.X["image"], other.X["image"])
    assert one.recipe == {"shape": "coco79", "n_samples": 60, "seed": 1}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: generate("imagenet"), "unknown shape 'imagenet'; known are mirflickr, nuswide"),
        (lambda: generate(small(), seed=-1), "seed must not be negative"),
        (lambda: generate(small(), n_samples=0), "sizes must be positive"),
        (lambda: small(text_nonzeros=20.0), "text_nonzeros is 20.0, expected 1 to a quarter"),
        (lambda: small(classes=("a",)), "1 classes, 79 frequencies and 79 themes"),
    ],
)
def test_synthetic_refuses_what_it_cannot_make(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.skipif(not SHARED.exists(), reason="the coco40k file is not here")
def test_shape_facts_are_those_of_coco79() -> None:
    data = load("coco79", SHARED)
    counts = dict(zip(data.classes, data.L.sum(axis=0, dtype=int), strict=True))
    for name, share in zip(COCO79.classes, COCO79.frequencies, strict=True):
        assert counts[name] == round(share * 39_798)
    per_sample = np.bincount(data.L.sum(axis=1, dtype=np.int64))
    assert tuple(per_sample[1:15]) == LABEL_COUNTS
    rng = np.random.default_rng(0)
    order = rng.permutation(data.n_samples)
    for n, expected in COCO_CURVE.items():
        assert n_distinct(data.L[order[:n]]) == pytest.approx(expected, rel=0.05), n
