"""What samples taught can be taken out of a model again."""

import copy

import numpy as np
import pytest
import toy
from hasher_checks import fingerprint

from oasis.arrays import unit_rows
from oasis.codes import unpack
from oasis.errors import InputError
from oasis.model import OASIS
from oasis.model.ridge import with_constant


def chunks(n_chunks, n=60, bare=0.2):
    return [toy.chunk(n, seed=number, bare=bare) for number in range(n_chunks)]


def taught(chunks, **options):
    model = OASIS(random_state=0, **options)
    kept = [model.partial_fit(*each).codes_ for each in chunks]
    return model, kept


def same(one, other, X):
    assert one.n_seen_ == other.n_seen_
    assert np.allclose(one.predict_labels(X), other.predict_labels(X), atol=1e-6)
    a, b = one.state_, other.state_
    for name, ridge in a.ridges.items():
        assert np.allclose(ridge.gram(), b.ridges[name].gram(), atol=1e-9)
        assert np.allclose(ridge.BX, b.ridges[name].BX, atol=1e-6)
    for key in ("bits/BB", "LB", "counts", "pairs/data"):
        p, q = (each.described()[1][f"codebook/{key}"] for each in (one, other))
        assert np.allclose(p, q, atol=1e-9), key


@pytest.mark.parametrize("n_bits", [16, 128])
def test_a_forgotten_chunk_leaves_the_model_as_it_was_before(n_bits):
    first, second, third = chunks(3)
    model, _ = taught([first, second, third], n_bits=n_bits)
    before, _ = taught([first, second], n_bits=n_bits)
    _, kept = taught([first, second, third], n_bits=n_bits)
    assert model.forget(*third, kept[2]) is model
    same(model, before, first[0])


@pytest.mark.parametrize("n_bits", [16, 128])
def test_corrected_labels_leave_the_model_as_if_they_had_been_right(n_bits):
    first, (X, wrong) = chunks(2)
    right = [["cat"] if row % 3 else names for row, names in enumerate(wrong)]
    base, _ = taught([first], n_bits=n_bits)
    model, truth = copy.deepcopy(base), copy.deepcopy(base)
    codes = model.partial_fit(X, wrong).codes_
    model.forget(X, wrong, codes).partial_fit(X, right)
    truth.partial_fit(X, right)
    same(model, truth, first[0])
    assert np.array_equal(
        model.codes_[:, : model.n_label_bits // 8], truth.codes_[:, : model.n_label_bits // 8]
    )


def test_single_precision_and_sparse_rows_are_forgotten_too():
    first, last = chunks(2)
    for kind in (np.float32, np.float64):
        for sparse in ((), ("text",)):
            X, y = toy.chunk(60, seed=7, dtype=kind, sparse=sparse)
            before, _ = taught([first, last], n_bits=16)
            model = copy.deepcopy(before)
            same(model.forget(X, y, model.partial_fit(X, y).codes_), before, first[0])


def test_unlabelled_samples_count_as_none_once_forgotten():
    first, (X, _) = chunks(2)
    model, _ = taught([first], n_bits=128)
    before = copy.deepcopy(model)
    codes = model.partial_fit(X, [None] * 60).codes_
    same(model.forget(X, None, codes), before, first[0])


@pytest.mark.parametrize("bare", [0.0, 0.3])
def test_samples_from_before_content_was_settled_are_forgotten_once_coded_anew(bare):
    first, second = toy.chunk(100, seed=0, bare=bare), toy.chunk(300, seed=1, bare=bare)
    model = OASIS.for_search(128, random_state=0)
    codes = model.partial_fit(*first).codes_
    before = copy.copy(model)
    own = model.partial_fit(*second).codes_
    assert model.content_since_ == 100
    new = model.recode(before, *first, codes)
    labelled = [row for row, names in enumerate(first[1]) if names]
    n = model.n_label_bits // 8
    assert np.array_equal(new[labelled, :n], codes[labelled, :n])
    assert np.array_equal(new[:, n:], model.encode(first[0])[:, n:])
    model.forget(*first, new)
    # the slow truth: the same functions of content, and sums over the second chunk alone
    state, (X, y) = model.state_, second
    units = {name: unit_rows(x) for name, x in X.items()}
    chosen = {True: [row for row, names in enumerate(y) if names], False: range(len(y))}
    for ridges, rows in ((state.ridges, chosen[True]), (state.everything, chosen[False])):
        for name, ridge in ridges.items():
            T = state.content.without(name).values(units)[rows]
            x = with_constant(units[name])[rows]
            assert np.allclose(ridge.BX[: T.shape[1]], T.T @ x, atol=1e-4)
            A = x.T @ x + ridge.delta * np.eye(x.shape[1])
            assert np.allclose(ridge.W[: T.shape[1]], np.linalg.solve(A, x.T @ T).T, atol=1e-4)
    B = unpack(own).astype(float)
    assert state.stored.n == 300 and np.array_equal(state.stored.BB, B.T @ B)


def test_what_was_never_learned_is_refused_and_changes_nothing():
    first, (X, y) = chunks(2, bare=0.0)
    model, (codes,) = taught([first], n_bits=16)
    before = fingerprint(model)
    many = {name: np.vstack([x] * 2) for name, x in X.items()}
    for args, message in (
        ((X, [["never"]] * 60, codes), "'never' was never learned"),
        ((X, y, codes[:5]), "5 codes for 60 samples"),
        ((X, y[:5], codes), "labels for 5 samples"),
        ((many, [*y, *y], np.vstack([codes] * 2)), "120 samples cannot go, 60 were seen"),
        ((X, [["sky", "sea", "cat"]] * 60, codes), "cannot go"),
        (({"image": X["image"]}, y, codes), "lacks modality"),
    ):
        with pytest.raises(InputError, match=message):
            model.forget(*args)
        assert fingerprint(model) == before
