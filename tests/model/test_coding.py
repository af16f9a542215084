"""Projections of queries: in blocks, by several threads, with modalities that are missing."""

import numpy as np
import pytest
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from oasis.arrays import unit_rows
from oasis.codes import pack, unpack
from oasis.datasets import load
from oasis.errors import InputError
from oasis.metrics import mean_average_precision
from oasis.model import OASIS, coding
from oasis.model.readout import SIGN_RIDGE
from oasis.model.weighing import BIT_WEIGHT, CLASS_CONTENT, NOVEL, STRANGE, confidence
from tests.helpers import toy


def learned(n_bits=128, **options):
    model = OASIS(n_bits=n_bits, random_state=0, **options)
    for seed in range(2):
        model.partial_fit(*toy.chunk(150, seed))
    return model


def with_gaps(n):
    """Queries, some of which lack the image, some the text, and one both."""
    X = {name: np.array(rows) for name, rows in toy.chunk(n, 7)[0].items()}
    X["image"][::5] = 0
    X["text"][::7] = 0
    return X


@pytest.mark.parametrize("n_bits", [64, 128])
@pytest.mark.parametrize("names", [("image",), ("text",), ("image", "text")])
def test_blocks_of_rows_give_what_all_rows_give(n_bits, names, monkeypatch):
    model = learned(n_bits)
    X = {name: rows for name, rows in with_gaps(50).items() if name in names}
    X = {name: sp.csr_array(rows) if name == "text" else rows for name, rows in X.items()}
    whole, evidence = model.project_with_evidence(X)
    codes = model.encode(X)
    assert np.array_equal(codes, pack(whole))
    monkeypatch.setattr(coding, "_BLOCK_ROWS", 8)
    for most_values in (1, 1 << 11, 1 << 24):
        monkeypatch.setattr(coding, "_MOST_VALUES", most_values)
        for n_threads in (1, 2):
            with threadpool_limits(n_threads, user_api="blas"):
                parts, told = model.project_with_evidence(X)
                assert np.array_equal(model.encode(X), codes)
            np.testing.assert_allclose(parts, whole, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(told, evidence, atol=1e-5)


def test_an_error_in_a_block_names_the_row_of_the_batch(monkeypatch):
    model, X = learned(64), toy.chunk(50, 7)[0]
    X = {name: np.array(rows) for name, rows in X.items()}
    X["image"][23, 2] = np.nan
    monkeypatch.setattr(coding, "_BLOCK_ROWS", 8)
    monkeypatch.setattr(coding, "_MOST_VALUES", 1)
    with pytest.raises(InputError, match="'image' holds nan at row 23, column 2"):
        model.encode(X)


def test_content_values_are_those_of_the_row_and_predictions_of_what_it_lacks():
    """One row at a time, in float64, by the formulas of `oasis.model.content` and `LabelMap`."""
    model = learned()
    map_ = model.state_.query_map
    content, sizes = map_.content, map_.content.content.sizes
    X = with_gaps(36)
    for names in (("image",), ("text",), ("image", "text")):
        found = map_.parts({name: X[name] for name in names}).content
        for row in range(36):
            has = [name for name in names if X[name][row].any()]
            unit = {name: unit_rows(X[name][row : row + 1].astype(np.float64))[0] for name in has}
            expected = []
            for name, size in sizes.items():
                if name in has:
                    own = content.content.own[name]
                    expected.append(own.weights[name] @ unit[name] - own.offsets[name])
                    continue
                evidence, odds = np.zeros(size), np.zeros(size)
                for other in has:
                    where = content.content.place_without(other, name)
                    W = content.predictors[other].weights[other][where]
                    R = content.explained[other][where]
                    offset = content.predictors[other].offsets[other][where]
                    evidence += (W @ unit[other] - offset) / (1 - R)
                    odds += R / (1 - R)
                expected.append(evidence / (1 + odds))
            np.testing.assert_allclose(found[row], np.concatenate(expected), rtol=1e-4, atol=1e-5)


def test_a_modality_of_zeros_is_one_that_is_not_there():
    model, X = learned(), toy.chunk(40, 7)[0]
    for name, other in (("image", "text"), ("text", "image")):
        alone = model.project({name: X[name]})
        zeros = model.project({name: X[name], other: np.zeros_like(X[other])})
        np.testing.assert_allclose(zeros, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("names", [("image", "text"), ("text",)])
def test_content_signs_of_a_query_lean_towards_the_usual_content_of_its_classes(names):
    model, bits, labels = OASIS(n_bits=128, random_state=0), [], []
    for seed in range(2):
        X, y = toy.chunk(150, seed)
        model.partial_fit(X, y)
        bits.append(unpack(model.codes_)[:, model.n_label_bits :])
        labels += y
    L = np.array([[name in each for name in model.classes_] for each in labels], dtype=float)
    B = np.vstack(bits).astype(float)
    A, b = L - L.mean(axis=0), B - B.mean(axis=0)
    U = np.linalg.solve(b.T @ b + SIGN_RIDGE * len(b) * np.eye(B.shape[1]), b.T @ A).T
    U /= np.linalg.norm(U, axis=1, keepdims=True)

    asked = {name: toy.chunk(60, 5)[0][name] for name in names}
    map_ = model.state_.query_map
    parts = map_.parts(asked)
    sure = confidence(map_.labels.above_shares(parts.labels), map_.sureness.low_hits(parts.has))
    sure /= 1 + (parts.strange / STRANGE) ** 2
    sure /= 1 + (np.maximum(map_.novelty.of(parts.content), 0) / NOVEL) ** 2
    lean = map_._label_weights(parts) @ U
    lean *= CLASS_CONTENT / np.sqrt(np.square(lean).mean(axis=1, keepdims=True))
    expected = parts.content + sure[:, None] * lean

    values = model.project(asked)[:, model.n_label_bits :]
    clear = np.abs(expected) > 1e-5
    assert np.array_equal((values > 0)[clear], (expected > 0)[clear])
    turned = clear & ((expected > 0) != (parts.content > 0))
    assert 0 < turned.sum() < clear.sum() / 4
    assert (np.abs(values[turned]) < 1e-20).all()  # asymmetric scores leave such a bit out
    r_c = values.shape[1]
    plain = model.project(asked, content=BIT_WEIGHT * r_c**0.5)[:, model.n_label_bits :]
    assert np.array_equal((plain > 0)[clear], (parts.content > 0)[clear])
    np.testing.assert_array_equal(values[clear & ~turned], plain[clear & ~turned])
    assert np.array_equal(pack(model.project(asked)), model.encode(asked))


def test_without_label_bits_a_query_has_the_code_of_the_same_item():
    X, y = toy.chunk(150, 0)
    model = OASIS(n_bits=64, content=64, random_state=0).partial_fit(X, y)
    assert len(model.classes_) > 1
    assert np.array_equal(model.encode(X), model.codes_)


def test_leaning_signs_find_labels_by_hamming_distance_better(monkeypatch):
    data = load("synthetic-coco79", n_samples=800)
    queries, stored = np.split(np.arange(data.n_samples), [150])
    model = OASIS(n_bits=128, random_state=0)
    codes = [
        model.partial_fit(data.take(rows), data.labels(rows)).codes_.copy()
        for rows in np.array_split(stored, 2)
    ]

    def found():
        asked = model.encode(data.take(queries))
        return mean_average_precision(asked, np.vstack(codes), data.L[queries], data.L[stored])

    leaning = found()
    monkeypatch.setattr(coding, "CLASS_CONTENT", 0.0)
    assert leaning > found() + 0.02
