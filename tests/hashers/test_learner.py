"""Chunk validation: what is accepted, what it becomes, and what is said when it is not.

And the smallest learner: when its hooks are called, and that only a whole round is written.
"""

import copy
import pickle
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp

from oasis.codes import pack
from oasis.errors import InputError, NotFittedError, SimilarNamesWarning
from oasis.hashers.chunk import (
    check_chunk,
    check_features,
    check_labels,
)
from oasis.hashers.learner import (
    Learner,
)
from oasis.hashers.modalities import Modalities
from oasis.metrics import mean_average_precision


def test_numbers_become_the_narrowest_float_that_holds_them():
    for dtype, expected in (
        (np.uint8, np.float32),
        (np.float16, np.float32),
        (bool, np.float32),
        (np.float32, np.float32),
        (np.int32, np.float64),
        (np.int64, np.float64),
        (np.float64, np.float64),
    ):
        assert check_features({"a": np.ones((2, 3), dtype)}, None)["a"].dtype == expected
        if dtype is not np.float16:  # which scipy.sparse does not know
            sparse = sp.coo_array(np.ones((2, 3), dtype))
            assert check_features({"a": sparse}, None)["a"].dtype == expected


def test_features_come_in_the_order_learned():
    X = {"text": np.ones((2, 3)), "image": np.ones((2, 4))}
    assert list(check_features(X, {"image": 4, "text": 3})) == ["image", "text"]


def test_fortran_ordered_and_sliced_arrays_are_accepted():
    values = np.arange(24.0).reshape(4, 6)
    for view in (np.asfortranarray(values), values[::2, ::3], values.tolist()):
        assert check_features({"a": view}, None)["a"].flags.c_contiguous


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ({"a": np.ones((2, 5018))}, "modality 'a' has 5018 features, this model learned 3"),
        ({"b": np.ones((2, 3))}, r"modality 'b' is unknown; this model learned \['a'\]"),
        ({"a": np.ones(3)}, r"must have shape \(n_samples, n_features\), got \(3,\)"),
        ({"a": [[1, 2], [3]]}, "not a rectangular array"),
        ({"a": np.ones((2, 3), complex)}, "real numbers, got dtype complex128"),
        ({3: np.ones((2, 3))}, "modality names are strings, got 3"),
        (np.ones((2, 3)), r"alone is the modality 'features'; this model learned \['a'\]"),
        ("abc", r"X must map modality names to arrays, .*, got str 'abc'"),
        (None, r"X must map modality names to arrays, .*, got NoneType"),
        ({}, "X has no modality"),
    ],
)
def test_bad_features_are_named(X, message):
    with pytest.raises(InputError, match=message):
        check_features(X, {"a": 3})


def test_a_value_that_is_not_finite_is_located():
    values = np.ones((5, 4))
    values[3, 2] = np.inf
    for matrix in (values, sp.csr_array(values), values.astype(np.float32)):
        with pytest.raises(InputError, match="modality 'a' holds inf at row 3, column 2"):
            check_chunk({"a": matrix}, [["x"]] * 5, None)


def test_large_finite_values_are_not_taken_for_infinity():
    values = np.full((5, 4), 3e38, np.float32)
    check_chunk({"a": values}, [["x"]] * 5, None)


def test_labels_are_distinct_and_keep_their_order():
    assert check_labels([["b", "a", "b"], None, (), {"c": 1}, np.array(["d"])], 5) == [
        ("b", "a"),
        (),
        (),
        ("c",),
        ("d",),
    ]


def test_one_label_per_sample_is_a_string_or_an_integer():
    assert check_labels(["a", None, " b "], 3) == [("a",), (), ("b",)]
    assert check_labels(np.array(["a", "b"]), 2) == [("a",), ("b",)]
    assert check_labels(np.array([3, 12]), 2) == check_labels([3, 12], 2) == [("3",), ("12",)]
    pd = pytest.importorskip("pandas")
    assert check_labels(pd.Series(["a", "b"]), 2) == [("a",), ("b",)]


def test_a_matrix_of_labels_has_its_columns_named():
    Y = np.array([[1, 0, 1], [0, 0, 0]])
    expected = [("a", "c"), ()]
    for matrix in (Y, Y > 0, Y.astype(float), sp.csr_array(Y), sp.coo_array(Y), Y.tolist()):
        assert check_labels(matrix, 2, ["a", "b", "c"]) == expected
    pd = pytest.importorskip("pandas")
    assert check_labels(pd.DataFrame(Y, columns=["a", "b", "c"]), 2) == expected


@pytest.mark.parametrize(
    ("Y", "classes", "message"),
    [
        (np.eye(2), ["a"], "y has 2 columns, got 1 class names"),
        (np.eye(2), ["a", "a "], r"got 2 class names \(1 distinct\)"),
        (2 * np.eye(2), ["a", "b"], "must hold only 0 and 1"),
        (np.full((2, 2), np.nan), ["a", "b"], "must hold only 0 and 1"),
        (np.ones(2), ["a", "b"], r"a 0/1 matrix of shape .*, got shape \(2,\)"),
        (np.eye(2), "ab", "classes must be an iterable of class names, got str 'ab'"),
        (np.eye(2), [1, 2], "class names are strings, classes hold 1"),
    ],
)
def test_a_bad_matrix_of_labels_is_named(Y, classes, message):
    with pytest.raises(InputError, match=message):
        check_labels(Y, 2, classes)


def test_the_order_of_a_set_of_names_does_not_depend_on_the_process():
    names = {f"class {i}" for i in range(50)}
    assert check_labels([names], 1) == [tuple(sorted(names))]


def test_names_that_differ_by_case_alone_give_one_warning():
    X = {"a": np.eye(8)[:3]}
    model = Counter()
    with pytest.warns(SimilarNamesWarning) as caught:
        model.partial_fit(X, [["Cat", " cat "], ["dog"], ["DOG"]])
    assert [str(each.message) for each in caught] == [
        "class names that differ by case alone are different classes: 'Cat' and 'cat', "
        "'dog' and 'DOG'"
    ]
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        state = model.state_
        with pytest.raises(SimilarNamesWarning, match="'sky' and 'Sky'"):
            model.partial_fit(X, [["Sky"], [], []])
        assert model.state_ is state
        model.partial_fit(X, [["sky"], [], []])


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ("sky", "got str 'sky'"),
        ([["sea"], "sky"], "labels of sample 1 must be an iterable of class names, got str 'sky'"),
        (["sky", ["sea"]], r"one per sample, labels of sample 1 hold \['sea'\]"),
        ([[1]], "class names are strings, labels of sample 0 hold 1"),
        ([[""]], "labels of sample 0 hold an empty class name"),
        ([" "], "labels of sample 0 hold an empty class name"),
        ([True], "strings or integers, one per sample, labels of sample 0 hold True"),
        ([2.5], "labels of sample 0 must be an iterable of class names, got float"),
        (np.ones((1, 2)), r"matrix of shape \(1, 2\) and its columns have no names; pass them"),
        ([["a"], ["b"]], "got labels for 2 samples, but features for 1"),
        (None, "got NoneType"),
    ],
)
def test_bad_labels_are_named(y, message):
    with pytest.raises(InputError, match=message):
        check_labels(y, 1)


@dataclass(frozen=True)
class Total:
    widths: dict
    classes: tuple
    n_seen: int


class Counter(Learner[Total]):
    """Counts samples; whatever is named in ``refuse`` raises."""

    def __init__(self, n_bits=8, refuse=""):
        self.n_bits = n_bits
        self.refuse = refuse

    def project(self, X):
        return check_features(X, self.learned.widths)["a"].astype(np.float32)

    def _check_parameters(self, state):
        self._step("parameters", state)

    def _check_chunk(self, chunk, state):
        self._step("chunk", state)

    def _learn(self, old, chunk):
        self._step("learning", old)
        widths = {name: matrix.shape[1] for name, matrix in chunk.X.items()}
        n_seen = (old.n_seen if old else 0) + chunk.n_samples
        return Total(widths, ("sky",), n_seen), pack(chunk.X["a"])

    def _step(self, name, state):
        steps.append((name, state))
        if name == self.refuse:
            raise InputError(f"refused by {name}")


steps = []
ONE = {"a": np.eye(8)[:3]}, [["sky"]] * 3


def test_a_learner_checks_parameters_then_the_chunk_then_learns():
    steps.clear()
    model = Counter().partial_fit(*ONE)
    first = model.state_
    model.partial_fit(*ONE)
    hooks = ("parameters", "chunk", "learning")
    assert steps == [(name, None) for name in hooks] + [(name, first) for name in hooks]
    assert (model.n_seen_, model.classes_, model.learned) == (6, ("sky",), model.state_)
    assert model.codes_.ravel().tolist() == [1, 2, 4]
    assert np.array_equal(model.encode(ONE[0]), model.codes_)


@pytest.mark.parametrize("stage", ["parameters", "chunk", "learning"])
def test_a_learner_that_refuses_at_any_stage_stays_as_it_was(stage):
    fresh = Counter(refuse=stage)
    with pytest.raises(InputError, match=f"refused by {stage}"):
        fresh.partial_fit(*ONE)
    assert vars(fresh) == {"n_bits": 8, "refuse": stage}
    model = Counter().partial_fit(*ONE)
    state, codes = model.state_, model.codes_
    with pytest.raises(InputError, match=f"refused by {stage}"):
        model.set_params(refuse=stage).partial_fit(*ONE)
    assert model.state_ is state and model.codes_ is codes


def test_a_model_that_has_learned_nothing_has_no_learned_attributes():
    fresh = Counter()
    assert not hasattr(fresh, "classes_") and not hasattr(fresh, "n_seen_")
    assert "classes_" in dir(fresh)
    for kind in (NotFittedError, ValueError, AttributeError):
        with pytest.raises(kind):
            _ = fresh.classes_


class One(Counter):
    def project(self, X):
        return check_features(X, self.learned.widths)["features"].astype(np.float32)

    def _learn(self, old, chunk):
        widths = {name: matrix.shape[1] for name, matrix in chunk.X.items()}
        X = chunk.X["features"]
        codes = pack(X.toarray() if sp.issparse(X) else X)
        return Total(widths, ("sky",), chunk.n_samples), codes


@pytest.mark.slow
def test_one_array_is_the_modality_features():
    pd = pytest.importorskip("pandas")
    array = np.eye(8, dtype=np.float32)[:3]
    for X in (array, sp.csr_array(array), pd.DataFrame(array), {"features": array}):
        model = One().fit(X, ["sky"] * 3)
        assert model.learned.widths == {"features": 8}
    for X in (array, pd.DataFrame(array), Modalities({"features": array}), array.tolist()):
        assert np.array_equal(model.encode(X), model.codes_)


def test_score_is_the_map_of_queries_in_the_last_chunk():
    X = np.where(np.random.default_rng(0).random((12, 8)) > 0.5, 1.0, -1.0)
    y = [["a"], ["b"], ["a", "b"], []] * 3
    model = One().fit(X, y)
    Y = np.array([[1, 0], [0, 1], [1, 1], [0, 0]] * 3)
    expected = mean_average_precision(pack(X[:5]), pack(X), Y[:5], Y)
    assert model.score(X[:5], y[:5]) == expected
    assert One().fit(X, Y, classes=["a", "b"]).score(X[:5], Y[:5]) == expected
    again = One().fit(X, Y, classes=["a", "b"]).partial_fit(X, Y)
    assert again.label_sets_ == [tuple(names) for names in y]
    del model.label_sets_
    with pytest.raises(NotFittedError, match="score needs the labels of the last chunk"):
        model.score(X, y)


def test_a_checked_chunk_is_learned_as_it_is():
    chunk = check_chunk(*ONE, None)
    model = Counter().learn(chunk)
    assert np.array_equal(model.codes_, Counter().partial_fit(*ONE).codes_)
    assert model.label_sets_ is chunk.labels


def test_learners_are_copied_and_pickled_with_what_they_learned():
    model = Counter().partial_fit(*ONE)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin.n_seen_ == 3 and np.array_equal(twin.codes_, model.codes_)
