"""Cosine with predicted modalities, against scikit-learn's ridge and cosines by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Ridge

from oasis.baselines import CompletedCosine
from oasis.errors import InputError, NotFittedError


def chunk(n: int, seed: int, lacking: int = 0) -> dict[str, np.ndarray]:
    """Image and text that tell much of each other; the last rows lack a text."""
    rng = np.random.default_rng(seed)
    image = rng.random((n, 6))
    text = image @ np.random.default_rng(0).random((6, 4)) + 0.05 * rng.random((n, 4))
    text[n - lacking :] = 0
    return {"image": image, "text": text}


def units(X: np.ndarray) -> np.ndarray:
    return np.asarray(X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-300))


def test_what_is_lacking_is_predicted_by_a_ridge_on_all_complete_samples() -> None:
    first, second, later = chunk(30, 1), chunk(20, 2, lacking=5), chunk(7, 3, lacking=7)
    ranker = CompletedCosine(delta=0.3)
    for each in (first, second, later):
        ranker.partial_fit(each, [()] * len(each["image"]))
    image = units(np.concatenate([first["image"], second["image"][:15]]))
    text = units(np.concatenate([first["text"], second["text"][:15]]))
    truth = Ridge(alpha=0.3, fit_intercept=True).fit(image, text)
    filled = ranker.state_[1][-1]["text"]
    np.testing.assert_allclose(filled, truth.predict(units(later["image"])), atol=1e-5)
    # scores: cosines with what all samples have in the mean taken away
    base = np.concatenate(
        [text[:30], text[30:], truth.predict(units(second["image"][15:])), filled]
    )
    query = chunk(4, 9)["text"]
    centred = units(query) - text.mean(axis=0)
    others = base - text.mean(axis=0)
    by_hand = units(centred) @ units(others).T
    np.testing.assert_allclose(ranker.scores({"text": query}), by_hand, atol=1e-5)
    assert ranker.n_base_ == 57


def test_sparse_features_give_the_scores_of_dense_ones() -> None:
    X, queries = chunk(25, 4, lacking=6), chunk(3, 5)
    dense = CompletedCosine().partial_fit(X, [()] * 25)
    sparse = CompletedCosine().partial_fit(
        {"image": X["image"], "text": sp.csr_array(X["text"])}, [()] * 25
    )
    by_sparse = sparse.scores({"text": sp.csr_array(queries["text"])})
    np.testing.assert_allclose(dense.scores({"text": queries["text"]}), by_sparse, atol=1e-6)


def test_a_text_finds_the_picture_that_has_none() -> None:
    learned, later = chunk(200, 6), chunk(40, 7)
    text = later.pop("text")
    ranker = CompletedCosine(delta=0.01).partial_fit(learned, [()] * 200)
    ranker.partial_fit({**later, "text": np.zeros_like(text)}, [()] * 40)
    scores = ranker.scores({"text": text})[:, 200:]
    own = scores[np.arange(40), np.arange(40)][:, None]
    assert ((scores > own).sum(axis=1) < 10).mean() > 0.8


def test_rows_without_anything_and_queries_without_a_row_score_the_same_everywhere() -> None:
    X = chunk(12, 8)
    X["image"][3] = 0
    X["text"][3] = 0
    ranker = CompletedCosine().partial_fit(X, [()] * 12)
    scores = ranker.scores({"text": np.vstack([X["text"][:1], np.zeros((1, 4))])})
    assert scores[0, 3] == pytest.approx(0, abs=1e-5)
    assert (scores[1] == 0).all()


def test_a_first_chunk_without_a_complete_sample_is_taken() -> None:
    X = chunk(5, 9, lacking=5)
    ranker = CompletedCosine().partial_fit(X, [()] * 5)
    assert np.isfinite(ranker.scores({"text": np.ones((2, 4))})).all()


def test_refused_chunks_leave_the_ranker_as_it_was() -> None:
    ranker = CompletedCosine()
    with pytest.raises(NotFittedError):
        ranker.scores({"text": np.ones((1, 4))})
    with pytest.raises(InputError, match="at most 8192 features"):
        ranker.partial_fit({"a": np.ones((1, 8000)), "b": np.ones((1, 200))}, [()])
    ranker.partial_fit(chunk(5, 0), [()] * 5)
    before = ranker.scores({"text": np.ones((1, 4))})
    with pytest.raises(InputError):
        ranker.partial_fit({"image": np.ones((2, 6)), "text": np.ones((2, 5))}, [(), ()])
    with pytest.raises(InputError, match="delta must be"):
        CompletedCosine(delta=0).partial_fit(chunk(5, 0), [()] * 5)
    assert (ranker.scores({"text": np.ones((1, 4))}) == before).all()
