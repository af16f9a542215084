"""Quantisers of faiss as rankers: the order of their own index, in the bytes that are said."""

from __future__ import annotations

import faiss
import numpy as np
import pytest
import scipy.sparse as sp

from oasis.baselines.quantisers import Kind, Quantiser
from oasis.errors import InputError, NotFittedError

RNG = np.random.default_rng(0)
N = 600
X = {
    "image": RNG.standard_normal((N, 24)).astype(np.float32) @ RNG.standard_normal((24, 24)),
    "text": sp.csr_array((RNG.random((N, 30)) < 0.2).astype(np.float32)),
}
Y: list[list[str]] = [[]] * N


def part(rows: slice) -> dict:
    return {name: matrix[rows] for name, matrix in X.items()}


@pytest.mark.parametrize(("kind", "n_bits"), [("pq", 64), ("opq", 64), ("rabitq", 128)])
def test_scores_are_those_of_the_index_in_so_many_bytes(kind: Kind, n_bits: int) -> None:
    ranker = Quantiser(kind, n_bits, random_state=0).partial_fit(part(slice(0, 400)), Y[:400])
    index = ranker.fitted_[2]
    assert index.sa_code_size() == n_bits // 8
    ranker.partial_fit(part(slice(400, N)), Y[400:])
    assert ranker.n_base_ == N
    from oasis.baselines import quantisers

    axes, means, _ = ranker.fitted_
    vectors = quantisers._reduced(quantisers._units(X), axes, means)
    index.add(vectors)
    if kind == "rabitq":
        parameters = faiss.RaBitQSearchParameters()
        parameters.qb = 0
        distances, ids = index.search(vectors[:20], N, params=parameters)
    else:
        distances, ids = index.search(vectors[:20], N)
    scores = ranker.scores(part(slice(0, 20)))
    found = np.take_along_axis(scores, ids, axis=1)
    # 2 q.x - |x|^2 differs from -|q - x|^2 by a number for each query
    shift = found + distances
    assert np.allclose(shift, shift[:, :1], atol=2e-3)


def test_frozen_codes_do_not_depend_on_later_chunks_and_refitted_ones_do() -> None:
    queries = part(slice(0, 5))
    frozen, refitted = (Quantiser("pq", 64, refit=r, random_state=0) for r in (False, True))
    before = frozen.partial_fit(part(slice(0, 400)), Y[:400]).scores(queries)
    after = frozen.partial_fit(part(slice(400, N)), Y[400:]).scores(queries)
    assert np.array_equal(before, after[:, :400])
    refitted.partial_fit(part(slice(0, 400)), Y[:400]).partial_fit(part(slice(400, N)), Y[400:])
    whole = Quantiser("pq", 64, random_state=0).partial_fit(X, Y)
    assert np.allclose(refitted.scores(queries), whole.scores(queries), atol=1e-5)


def test_few_samples_get_smaller_tables_of_the_same_bytes() -> None:
    ranker = Quantiser("pq", 64, random_state=0).partial_fit(part(slice(0, 100)), Y[:100])
    assert ranker.fitted_[2].sa_code_size() == 8
    assert (
        ranker.scores({"image": X["image"][:100]}).argmax(axis=1) == np.arange(100)
    ).mean() > 0.1


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(InputError, match="RaBitQ needs 72 bits"):
        Quantiser("rabitq", 64).partial_fit(X, Y)
    with pytest.raises(InputError, match="kind must be"):
        Quantiser("ivf", 64).partial_fit(X, Y)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="too few to train"):
        Quantiser("pq", 64).partial_fit(part(slice(0, 9)), Y[:9])
    with pytest.raises(NotFittedError):
        Quantiser().scores(X)
