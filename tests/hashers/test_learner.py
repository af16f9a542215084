"""Chunk validation: what is accepted, what it becomes, and what is said when it is not.

And the smallest learner: when its hooks are called, and that only a whole round is written.
"""

from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from oasis.arrays import inverse_norms, unit_rows
from oasis.codes import pack
from oasis.errors import InputError, NotFittedError
from oasis.hashers.chunk import (
    check_chunk,
    check_features,
    check_labels,
)
from oasis.hashers.learner import (
    Learner,
)


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
        (np.ones((2, 3)), r"X must map modality names to arrays, .*, got ndarray"),
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


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ("sky", "got str 'sky'"),
        (["sky"], "labels of sample 0 must be an iterable of class names, got str 'sky'"),
        ([[1]], "class names are strings, sample 0 has 1"),
        ([[""]], "sample 0 has an empty class name"),
        ([["a"], ["b"]], "got labels for 2 samples, but features for 1"),
        (None, "got NoneType"),
        ([3], "got int"),
    ],
)
def test_bad_labels_are_named(y, message):
    with pytest.raises(InputError, match=message):
        check_labels(y, 1)


def test_unit_rows_scales_all_but_zero_rows():
    values = np.array([[3.0, 4.0], [0.0, 0.0], [1e-3, 0.0]])
    expected = [[0.6, 0.8], [0, 0], [1, 0]]
    for dtype in (np.float32, np.float64):
        assert np.allclose(unit_rows(values.astype(dtype)), expected)
        assert np.allclose(unit_rows(sp.csr_array(values.astype(dtype))).toarray(), expected)
        assert inverse_norms(values.astype(dtype)).dtype == dtype


def test_unit_rows_survives_squares_that_overflow():
    values = np.full((2, 4), 1e30, np.float32)
    assert np.allclose(unit_rows(values), 0.5)


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

    def _check_chunk(self, X, y, state):
        chunk = super()._check_chunk(X, y, state)
        self._step("chunk", state)
        return chunk

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


def test_a_learner_holds_later_chunks_to_the_widths_it_learned():
    model = Counter().partial_fit(*ONE)
    with pytest.raises(InputError, match="has 9 features, this model learned 8"):
        model.partial_fit({"a": np.eye(9)[:3]}, ONE[1])


def test_a_learner_that_has_learned_nothing_says_so_and_is_cloned_as_such():
    fresh = clone(Counter(16).partial_fit(*ONE))
    assert fresh.get_params() == {"n_bits": 16, "refuse": ""}
    for name in ("learned", "classes_", "n_seen_"):
        with pytest.raises(NotFittedError, match="this model has learned nothing yet"):
            getattr(fresh, name)
