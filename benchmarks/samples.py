"""Samples of a data set for benchmarks of quality, and how well codes answer.

`Sample` is a data set in a random order with its queries apart. Base items are ranked as a
collection ranks them: the query's projection against stored codes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from oasis import OASIS, HammingIndex
from oasis.arrays import Indicator, Matrix, Rows, Single, unit_rows
from oasis.codes import Codes
from oasis.datasets import Dataset, load
from oasis.metrics import (
    asymmetric_average_precision,
    asymmetric_item_ranks,
    average_precision,
    average_precision_from_scores,
    found_at_k,
)

N_ROWS = 8000
"""Rows that are drawn from a larger data set."""

N_QUERIES = 500
PLACES = 10

X = dict[str, Matrix]
Names = list[tuple[str, ...]]
Chunk = tuple[X, Names]
Labels = tuple[Any, Any]
"""Indicators of queries and of base items, dense or CSR."""


@dataclass(frozen=True, eq=False)
class Sample:
    """A data set, rows to learn from in random order, and rows of queries."""

    data: Dataset
    rows: Rows
    queries: Rows

    def relevance(self, base: Rows) -> tuple[Indicator, Indicator]:
        """Return the labels of the queries and of base items."""
        return self.data.L[self.queries], self.data.L[base]


def sample(data: Dataset, seed: int, n_rows: int = N_ROWS, n_queries: int = N_QUERIES) -> Sample:
    """Draw labelled rows of a data set; a tenth of them at most are queries."""
    order = np.random.default_rng([seed, 33]).permutation(np.flatnonzero(data.L.any(axis=1)))
    order = order[:n_rows]
    n = min(n_queries, len(order) // 10)
    return Sample(data, order[n:], order[:n])


def load_data(name: str) -> Dataset:
    """Load a data set; ``words`` are the pictures of coco79 with words of captions as labels.

    The 400 words from the 21st most frequent on are the labels.
    """
    if name != "words":
        return load(name)
    data = load("coco79")
    counts: Any = data.X["text"]
    often = np.argsort(-np.diff(counts.tocsc().indptr), kind="stable")[20:420]
    L = (counts[:, often] > 0).toarray().astype(np.uint8)
    return Dataset("words", {"image": data.X["image"]}, L, tuple(f"word {w}" for w in often))


def search_model(seed: int, n_bits: int = 256) -> OASIS:
    """Return a new model as a collection uses it."""
    make: Any = getattr(OASIS, "for_search", OASIS)
    model: OASIS = make(n_bits, random_state=seed)
    return model


def learn(model: Any, chunks: Sequence[Chunk]) -> Codes:
    """Stream chunks through a model; return the stored codes."""
    codes = []
    for features, names in chunks:
        codes.append(model.partial_fit(features, names).codes_.copy())
    return np.concatenate(codes)


def chunked(rows: Rows, size: int) -> list[Rows]:
    """Divide rows into chunks of a size; the last one may be smaller.

    >>> [len(each) for each in chunked(np.arange(5), 2)]
    [2, 2, 1]
    """
    return np.split(rows, np.arange(size, len(rows), size))


def chunks_of(data: Dataset, parts: Sequence[Rows], labelled: bool = True) -> list[Chunk]:
    """Return features and labels of parts of a data set, or features alone."""
    return [
        (data.take(rows), data.labels(rows) if labelled else [()] * len(rows)) for rows in parts
    ]


def label_map(projections: Single, codes: Codes, labels: Labels) -> float:
    """Return MAP of ranking codes by projections."""
    return float(asymmetric_average_precision(projections, codes, *labels).mean())


def hamming_map(queries: Codes, codes: Codes, labels: Labels) -> float:
    """Return MAP of ranking codes by Hamming distance, expected ties."""
    return float(average_precision(queries, codes, *labels).mean())


def score_map(scores: npt.NDArray[Any], labels: Labels) -> float:
    """Return MAP of ranking by scores (n_queries, n_base)."""
    return float(average_precision_from_scores(scores, *labels).mean())


def firsts(projections: Single, codes: Codes, k: int = PLACES) -> npt.NDArray[np.int64]:
    """Return the k best base rows of each query, (n_queries, k)."""
    index = HammingIndex(codes.shape[1] * 8)
    index.add(codes, np.arange(len(codes)))
    return index.search_asymmetric(projections, k).ids


def nearest(queries: Codes, codes: Codes, k: int = PLACES) -> npt.NDArray[np.int64]:
    """Return the k nearest base rows of each query by Hamming distance, (n_queries, k)."""
    index = HammingIndex(codes.shape[1] * 8)
    index.add(codes, np.arange(len(codes)))
    return index.search(queries, k).ids


def best(scores: npt.NDArray[Any], k: int = PLACES) -> npt.NDArray[np.int64]:
    """Return the k columns of highest score in each row."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def right(found: npt.NDArray[np.int64], labels: Labels) -> Any:
    """Return which of the found rows share a label with their query, (n_queries, k) bool."""
    asked, base = labels
    return (asked[:, None, :].astype(bool) & base[found].astype(bool)).any(axis=2)


def cosine(queries: Mapping[str, Matrix], base: Mapping[str, Matrix]) -> Single:
    """Return the sum over modalities of cosines, (n_queries, n_base)."""
    total: Any = 0.0
    for name, x in queries.items():
        product = unit_rows(x) @ unit_rows(base[name]).T
        total = total + (product.toarray() if sp.issparse(product) else product)
    return np.asarray(total, dtype=np.float32)


def few_words(texts: Matrix, rng: np.random.Generator, n: int = 3) -> sp.csr_array:
    """Return texts of which only n words, drawn at random, are left; texts are bags of words."""
    texts = sp.csr_array(texts)
    kept = np.zeros(texts.nnz, dtype=np.bool_)
    for start, stop in zip(texts.indptr[:-1], texts.indptr[1:], strict=True):
        kept[start + rng.permutation(stop - start)[:n]] = True
    counts = np.concatenate([[0], np.cumsum(kept)])[texts.indptr]
    return sp.csr_array((texts.data[kept], texts.indices[kept], counts), shape=texts.shape)


def found_among(projections: Single, codes: Codes, items: Rows, k: int = PLACES) -> float:
    """Return the share of queries whose one item is among the first k."""
    return float(found_at_k(asymmetric_item_ranks(projections, codes, items), k))
