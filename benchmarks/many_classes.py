"""Streams with very many classes: clusters with thousands, pictures with hundreds of words."""

from __future__ import annotations

import time

import numpy as np
import scipy.sparse as sp

from benchmarks import samples
from benchmarks.bars import Bars
from benchmarks.samples import Chunk, Sample, X, chunked, chunks_of, learn, search_model
from oasis import OASIS


def gaussian_clusters(seed: int) -> Bars:
    """Thousands of classes of few items: the code of labels, and that of a collection.

    Clusters in 256 dimensions, the noise of an item twice their spread; one item of each of 1,000
    classes is a query.
    """
    for n_classes, n_items, hamming, projected in ((1000, 20, 0.97, 0.92), (5000, 6, 0.75, 0.35)):
        rng = np.random.default_rng([seed, 35])
        means = rng.standard_normal((n_classes, 256))
        of = rng.permutation(np.repeat(np.arange(n_classes), n_items))
        once = rng.permutation(np.unique(of, return_index=True)[1])[:1000]
        of = np.concatenate([of[once], np.delete(of, once)])
        x = (means[of] + 2 * rng.standard_normal((len(of), 256))).astype(np.float32)
        L = sp.csr_array((np.ones(len(of), np.uint8), (np.arange(len(of)), of)))
        labels: samples.Labels = (L[:1000], L[1000:])
        queries: X = {"image": x[:1000]}
        stream: list[Chunk] = [
            ({"image": x[rows]}, [(f"class {c}",) for c in of[rows]])
            for rows in chunked(np.arange(1000, len(of)), 2000)
        ]
        model = OASIS(256, content=0, owned=0, random_state=seed)
        began = time.process_time()
        codes = learn(model, stream)
        took = f"learned in {time.process_time() - began:.0f} s of the processor"
        found = samples.hamming_map(model.encode(queries), codes, labels)
        yield f"{n_classes} classes, Hamming MAP, code of labels", found, hamming, took
        found = samples.label_map(model.project(queries), codes, labels)
        yield f"{n_classes} classes, the same by projections", found, None, ""
        best = np.array(model.classes_)[model.predict_labels(queries).argmax(axis=1)]
        share = float(np.mean(best == [f"class {c}" for c in of[:1000]]))
        yield f"{n_classes} classes, right one predicted", share, None, ""
        model = search_model(seed)
        codes = learn(model, stream)
        found = samples.label_map(model.project(queries), codes, labels)
        yield f"{n_classes} classes, label MAP, search code", found, projected, ""
        floats = samples.score_map(samples.cosine(queries, {"image": x[1000:]}), labels)
        yield f"{n_classes} classes, float cosine", floats, None, ""


def words_as_labels(s: Sample, seed: int) -> Bars:
    """Hundreds of labels: the code of a collection against 64 learned bits, by projections."""
    queries, labels = s.data.take(s.queries), s.relevance(s.rows)
    stream = chunks_of(s.data, chunked(s.rows, 2000))

    def found(model: OASIS) -> float:
        codes = learn(model, stream)
        return samples.label_map(model.project(queries), codes, labels)

    least = found(OASIS(64, content=0, owned=0, random_state=seed))
    value = found(search_model(seed))
    yield "400 words, label MAP, search code", value, least, "64 learned bits"
    value = found(OASIS(256, content=0, owned=0, random_state=seed))
    yield "400 words, label MAP, 256 learned bits", value, None, ""
