"""Modalities: rows of several arrays at once."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.model_selection import train_test_split

from oasis.errors import InputError
from oasis.hashers.modalities import Modalities

IMAGE = np.arange(12.0).reshape(4, 3)
TEXT = sp.coo_array(np.eye(4, 2))


def test_rows_are_taken_from_every_modality():
    X = Modalities({"image": IMAGE, "text": TEXT})
    assert (len(X), X.shape) == (4, (4, 5))
    for key, rows in (
        (slice(1, 3), [1, 2]),
        (np.array([3, 0]), [3, 0]),
        (np.array([True, False, False, True]), [0, 3]),
        ([2], [2]),
        (2, [2]),
        (-1, [3]),
    ):
        for taken in (X[key], X[key, ...]):
            assert np.array_equal(taken["image"], IMAGE[rows])
            assert np.array_equal(taken["text"].toarray(), TEXT.toarray()[rows])
    assert [each["image"][0, 0] for each in X] == [0, 3, 6, 9]


def test_scikit_learn_splits_them():
    X = Modalities({"image": IMAGE, "text": TEXT})
    first, second, y, _ = train_test_split(X, list("abcd"), test_size=0.25, random_state=0)
    assert (len(first), len(second), len(y)) == (3, 1, 3)
    assert [list("abcd")[int(row[0]) // 3] for row in first["image"]] == y


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ({}, "with at least one modality, got dict"),
        (IMAGE, "expected a mapping of modality names to arrays .* got ndarray"),
        ({"image": IMAGE, "text": IMAGE[:2]}, "differ in their number of samples"),
        ({"image": IMAGE[0]}, r"must have shape \(n_samples, n_features\), got \(3,\)"),
        ({"image": 3.0}, r"must have shape \(n_samples, n_features\), got \(\)"),
    ],
)
def test_what_has_no_rows_is_refused(X, message):
    with pytest.raises(InputError, match=message):
        Modalities(X)


def test_columns_cannot_be_taken():
    with pytest.raises(InputError, match="only rows can be taken"):
        Modalities({"image": IMAGE})[:, 1]
    with pytest.raises(IndexError, match="row 4 is out of range for 4 samples"):
        Modalities({"image": IMAGE})[4]
