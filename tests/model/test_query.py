"""Projections of queries: in blocks, by several threads, with modalities that are missing."""

import numpy as np
import pytest
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from oasis.arrays import unit_rows
from oasis.codes import pack
from oasis.errors import InputError
from oasis.model import OASIS, query
from tests.helpers import toy


def learned(n_bits=128, **options):
    model = OASIS.for_search(n_bits, random_state=0, **options)
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
    monkeypatch.setattr(query, "_BLOCK_ROWS", 8)
    for most_values in (1, 1 << 11, 1 << 24):
        monkeypatch.setattr(query, "_MOST_VALUES", most_values)
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
    monkeypatch.setattr(query, "_BLOCK_ROWS", 8)
    monkeypatch.setattr(query, "_MOST_VALUES", 1)
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
                    where = content.content.without(other).place(name)
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


def test_without_label_bits_a_query_has_the_code_of_the_same_item():
    X, y = toy.chunk(150, 0)
    model = OASIS(n_bits=64, content=64, random_state=0).partial_fit(X, y)
    assert len(model.classes_) > 1
    assert np.array_equal(model.encode(X), model.codes_)
