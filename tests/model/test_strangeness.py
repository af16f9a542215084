"""How strange a query is, against a computation over all samples, and what it does to queries."""

import numpy as np
import pytest
import scipy.sparse as sp
import toy

from oasis import OASIS
from oasis.arrays import unit_rows
from oasis.model.hash_functions import sharpened
from oasis.model.ridge import Ridge, with_constant
from oasis.model.ridge_round import start_round
from oasis.model.strangeness import strangeness
from oasis.model.weighing import STRANGE


def regressed(*chunks):
    """The regression of one target on chunks of rows at unit length."""
    ridge = Ridge.zero(1, chunks[0].shape[1] + 1, 1.0)
    for X in chunks:
        started = start_round(ridge, with_constant(X))
        ridge = started.finish(np.ones((X.shape[0], 1)))
    return ridge


def told(rows, queries):
    """The same by its definition, from all rows."""
    mean = rows.mean(axis=0)
    cosines = rows @ mean / np.linalg.norm(mean)
    asked = queries @ mean / np.linalg.norm(mean)
    return (cosines.mean() - asked) / np.sqrt(cosines.var() + 1 / len(rows))


def rows_of(n, d, seed):
    rng = np.random.default_rng(seed)
    return unit_rows(rng.normal(size=(n, d)) + rng.normal(size=d))


@pytest.mark.parametrize("sizes", [(300,), (100, 2, 1, 70), (1,), (3,)])
def test_it_is_that_of_all_rows_however_they_came(sizes):
    chunks = [rows_of(n, 40, 7) for n in sizes]
    queries = rows_of(50, 40, 8)
    found = strangeness("m", regressed(*chunks)).project({"m": 3.0 * queries})[:, 0]
    np.testing.assert_allclose(found, told(np.vstack(chunks), queries), rtol=1e-5, atol=1e-6)


def test_sparse_and_single_precision_give_the_same():
    dense = np.maximum(rows_of(400, 30, 1), 0)
    rows = unit_rows(dense)
    expected = strangeness("m", regressed(rows)).project({"m": rows})
    sparse = strangeness("m", regressed(sp.csr_array(rows))).project({"m": sp.csr_array(rows)})
    np.testing.assert_allclose(sparse, expected, atol=1e-5)
    single = strangeness("m", regressed(rows.astype(np.float32))).project({"m": rows})
    np.testing.assert_allclose(single, expected, atol=1e-4)


def test_without_a_mean_nothing_is_strange():
    queries = rows_of(9, 4, 0)
    opposite = np.vstack([queries, -queries])
    for ridge in (Ridge.zero(2, 5, 1.0), regressed(np.zeros((6, 4)))):
        assert not strangeness("m", ridge).project({"m": queries}).any()
    assert np.isfinite(strangeness("m", regressed(opposite)).project({"m": queries})).all()


def learned(**options):
    X, y = toy.chunk(300, 0)
    return OASIS(n_bits=128, random_state=0, **options).partial_fit(X, y), X


def test_labels_of_a_strange_query_count_less_and_its_content_as_before():
    model, X = learned()
    for names in (("image",), ("text",), ("image", "text")):
        asked = {name: toy.chunk(40, 3)[0][name] for name in names}
        parts = model.state_.query_map.parts(asked)
        expected = np.min(
            [
                told(unit_rows(np.asarray(X[name], dtype=np.float64)), unit_rows(rows))
                for name, rows in asked.items()
            ],
            axis=0,
        )
        np.testing.assert_allclose(parts.strange, np.maximum(expected, 0), atol=1e-4)
        assert (parts.strange > 0.5).any() and (parts.strange == 0).any()
        known = parts._replace(strange=np.zeros_like(parts.strange))
        usual = model.state_.query_map.joined(known, 0.1)
        values, n_label = model.project(asked, content=0.1), model.n_label_bits
        less = 1 / (1 + (parts.strange / STRANGE) ** 2)
        labels = slice(0, n_label - 1)  # without the doubt bit, whose sign changes with confidence
        np.testing.assert_allclose(
            values[:, labels], less[:, None] * usual[:, labels], rtol=1e-4, atol=1e-6
        )
        assert np.array_equal(values[:, n_label:], usual[:, n_label:])


def test_a_modality_that_a_row_lacks_tells_nothing():
    model, _ = learned()
    asked = {name: np.array(rows) for name, rows in toy.chunk(30, 5)[0].items()}
    alone = model.state_.query_map.parts({"text": asked["text"]}).strange
    asked["image"][:10] = 0
    strange = model.state_.query_map.parts(asked).strange
    np.testing.assert_allclose(strange[:10], alone[:10], atol=1e-6)
    assert (strange[10:] <= alone[10:] + 1e-6).all()
    nothing = {name: np.zeros_like(rows) for name, rows in asked.items()}
    assert not model.state_.query_map.parts(nothing).strange.any()


def test_codes_of_labels_alone_know_nothing_of_it():
    model, _ = learned(content=0)
    asked = toy.chunk(30, 5)[0]
    map_, labels = model.state_.query_map, model.predict_labels(asked)
    assert not map_.parts(asked).strange.any()
    q = map_.labels.shares
    expected = map_.readout.project(sharpened(labels - (q * (1 - q) ** 2 / 2).astype(np.float32)))
    np.testing.assert_allclose(model.project(asked), expected, rtol=1e-4, atol=1e-6)
