"""Hashers inside scikit-learn's tools."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError as SklearnNotFitted
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from oasis import OASIS
from oasis.baselines import FOMH, ITQ, LEMON
from oasis.hashers import Modalities
from oasis.hashers.checks import CLASS_NAMES, example_chunk

X, Y = example_chunk(90)
ONE_LABEL = [names[0] for names in Y]
MATRIX = np.array([[name in names for name in CLASS_NAMES] for names in Y], dtype=int)
HASHERS = [
    OASIS(16, labels="orthogonal", random_state=0),
    OASIS.paper(16, labels="orthogonal", random_state=0),
    FOMH(16, n_anchors=20, sigma="mean", random_state=0),
    LEMON(16, random_state=0),
    ITQ(16, random_state=0),
]
each_hasher = pytest.mark.parametrize("hasher", HASHERS, ids=lambda each: type(each).__name__)


@each_hasher
def test_a_grid_is_searched_over_several_modalities(hasher):
    search = GridSearchCV(clone(hasher), {"n_bits": [8, 16]}, cv=2, error_score="raise")
    search.fit(Modalities(X), Y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    best = search.best_estimator_
    assert best.n_seen_ == 90 and best.n_bits == search.best_params_["n_bits"]
    assert best.transform(X).shape == (90, best.n_bits)


@each_hasher
def test_cross_validation_scores_are_those_of_a_loop(hasher):
    scores = cross_val_score(clone(hasher), Modalities(X), Y, cv=2)
    rows = np.arange(90)
    for score, test in zip(scores, np.array_split(rows, 2), strict=True):
        train = np.setdiff1d(rows, test)
        model = clone(hasher).fit(Modalities(X)[train], [Y[row] for row in train])
        assert score == model.score(Modalities(X)[test], [Y[row] for row in test])


@each_hasher
def test_a_pipeline_ends_in_a_hasher(hasher):
    pipeline = make_pipeline(StandardScaler(), clone(hasher)).fit(X["image"], ONE_LABEL)
    bits = pipeline.transform(X["image"])
    assert bits.shape == (90, 16) and set(np.unique(bits)) <= {0, 1}
    assert 0 < pipeline.score(X["image"], ONE_LABEL) <= 1
    assert set(pipeline[-1].classes_) == set(ONE_LABEL)


@each_hasher
def test_labels_in_every_form_give_the_same_codes(hasher):
    expected = clone(hasher).fit(X, [sorted(names, key=CLASS_NAMES.index) for names in Y])
    by_matrix = clone(hasher).fit(X, MATRIX, classes=CLASS_NAMES)
    assert np.array_equal(by_matrix.codes_, expected.codes_)
    assert by_matrix.classes_ == expected.classes_
    assert by_matrix.score(X, MATRIX) == expected.score(X, Y)
    single = clone(hasher).fit(X, ONE_LABEL)
    assert np.array_equal(
        single.codes_, clone(hasher).fit(X, [[name] for name in ONE_LABEL]).codes_
    )


@each_hasher
def test_a_grid_takes_a_matrix_of_labels(hasher):
    search = GridSearchCV(clone(hasher), {"n_bits": [8]}, cv=2, error_score="raise")
    search.fit(Modalities(X), MATRIX, classes=list(CLASS_NAMES))
    assert np.isfinite(search.best_score_)


@each_hasher
def test_being_fitted_is_known_and_shown(hasher):
    fresh = clone(hasher)
    assert not hasattr(fresh, "classes_") and "classes_" in dir(fresh)
    with pytest.raises(SklearnNotFitted):
        check_is_fitted(fresh)
    check_is_fitted(fresh.fit(X, Y))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert type(hasher).__name__ in repr(make_pipeline(StandardScaler(), fresh))
        assert type(hasher).__name__ in make_pipeline(StandardScaler(), fresh)._repr_html_()
